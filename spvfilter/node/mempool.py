"""The embedded node's mempool: transactions valid for the next block, with replacement by fee.

No standardness rules.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from spvfilter._public import public
from spvfilter.errors import ParameterError, RefusedError
from spvfilter.node import consensus
from spvfilter.node.blocktree import BlockTree
from spvfilter.node.consensus import UnspentOutput, refused
from spvfilter.node.replacement import check_replacement
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.transaction import Transaction

MIN_SIZE = (
    65  # bytes without witness: one of 64 can pass for an inner node of a merkle tree (CVE-2017-12842; Core policy.h)
)


@public
class TxMempool:
    """Transactions in topological order, parents first; no two spend the same outpoint (Core CTxMemPool).

    A transaction is accepted if it is valid on top of these and the unspent outputs of the best chain. `max_size`
    bounds the serialised bytes. With `replace_by_fee`, one that pays more takes the place of those that spend the same,
    as in Core 28 and 29 (replacement.py has the rules). Raises ParameterError if the size is negative.
    """

    def __init__(self, chain: BlockTree, max_size: int, *, replace_by_fee: bool = True) -> None:
        if max_size < 0:
            raise ParameterError(f"max_size must not be negative: {max_size}")
        self.size = 0  # bytes
        self.fees: dict[bytes, int] = {}  # satoshi by txid
        self._chain = chain
        self._max_size = max_size
        self._replaces = replace_by_fee
        self._txs: dict[bytes, Transaction] = {}
        self._txid_of: dict[bytes, bytes] = {}  # by wtxid
        self._spender: dict[bytes, bytes] = {}  # txid by outpoint

    def __len__(self) -> int:
        return len(self._txs)

    def __iter__(self) -> Iterator[Transaction]:
        """Parents first, as in a block."""
        return iter(list(self._txs.values()))

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._txs

    def get(self, txid: bytes) -> Transaction | None:
        """The transaction with a txid."""
        return self._txs.get(txid)

    def get_by_wtxid(self, wtxid: bytes) -> Transaction | None:
        """The transaction with a wtxid."""
        return self._txs.get(self._txid_of.get(wtxid, b""))

    def is_spent(self, outpoint: bytes) -> bool:
        """Whether a transaction of the mempool spends the outpoint."""
        return outpoint in self._spender

    def coin(self, outpoint: bytes) -> UnspentOutput | None:
        """The unspent output of the chain or the mempool at an outpoint, or None."""
        return self._coin(outpoint, ())

    def _coin(self, outpoint: bytes, replaced: Container[bytes]) -> UnspentOutput | None:
        """The same, where the spends of these transactions do not count."""
        if outpoint in self._spender and self._spender[outpoint] not in replaced:
            return None
        parent = self._txs.get(outpoint[:32])
        if parent is not None:
            return consensus.unspent_output(parent, int.from_bytes(outpoint[32:], "little"), self._chain.tip.height + 1)
        return self._chain.coins.get(outpoint)

    def coin_of(self, outpoint: bytes) -> UnspentOutput | None:
        """The same, whether or not a transaction of the mempool spends it."""
        return self._coin(outpoint, self._txs)

    def add(self, tx: Transaction) -> list[Transaction]:
        """Add a transaction; those that it replaces, with their descendants.

        Raises RefusedError for one that is invalid in the next block, or spends what another one spends and must not
        replace it.
        """
        return self._add(tx, replace=self._replaces)

    def _add(self, tx: Transaction, *, replace: bool) -> list[Transaction]:
        if tx.txid in self._txs:
            known = tx.wtxid in self._txid_of
            raise refused(
                tx, "txn-already-in-mempool" if known else "txn-same-nonwitness-data-in-mempool", "seen before"
            )
        consensus.check_transaction(tx)
        if tx.is_coinbase:
            raise refused(tx, "coinbase", "a coinbase outside a block")
        if len(tx.stripped) < MIN_SIZE:
            raise refused(tx, "tx-size-small", f"{len(tx.stripped)} bytes without witness, at least {MIN_SIZE}")
        tip = self._chain.tip
        if not consensus.is_final(tx, tip.height + 1, tip.median_time):
            raise refused(tx, "non-final", f"lock time {tx.lock_time} at height {tip.height + 1}")
        spenders = {self._spender[outpoint]: outpoint for outpoint in tx.inputs if outpoint in self._spender}
        for other, outpoint in spenders.items():
            if not replace:
                raise refused(
                    tx, "txn-mempool-conflict", f"{OutPoint.parse(outpoint)} is spent by {hash_to_hex(other)}"
                )
        families = [self.family(other) for other in spenders]
        replaced = {each.txid: each for family in families for each in family}
        if any(outpoint[:32] in replaced for outpoint in tx.inputs):
            raise refused(tx, "bad-txns-spends-conflicting-tx", "it spends from what it would replace")
        fee = consensus.fee(tx, lambda outpoint: self._coin(outpoint, replaced), tip.height + 1)
        if replaced:
            direct, counts = [self._txs[other] for other in spenders], map(len, families)
            check_replacement(tx, fee, direct, counts, list(replaced.values()), self.fees, self._txs)
        size = self.size - sum(len(each.raw) for each in replaced.values())
        if size + len(tx.raw) > self._max_size:
            raise refused(tx, "mempool full", f"{size} of {self._max_size} bytes are taken")
        for txid in replaced:
            self._remove(txid)
        self._txs[tx.txid] = tx
        self._txid_of[tx.wtxid] = tx.txid
        self._spender.update((outpoint, tx.txid) for outpoint in tx.inputs)
        self.fees[tx.txid] = fee
        self.size += len(tx.raw)
        return list(replaced.values())

    def family(self, txid: bytes) -> list[Transaction]:
        """A transaction and all that spends from it, directly or not; nothing if it is not in the mempool."""
        found: dict[bytes, Transaction] = {}
        waiting = [txid]
        while waiting:
            tx = self._txs.get(waiting.pop())
            if tx is not None and tx.txid not in found:  # a child may be reached twice
                found[tx.txid] = tx
                children = (self._spender.get(tx.outpoint(index)) for index in range(len(tx.span.outputs)))
                waiting += [child for child in children if child is not None]
        return list(found.values())

    def evict(self, txid: bytes) -> list[Transaction]:
        """Remove a transaction with all that spends from it, as a full mempool does; what was removed."""
        gone = self.family(txid)
        for tx in gone:
            self._remove(tx.txid)
        return gone

    def remove_for(self, txs: Sequence[Transaction]) -> bool:
        """Remove the transactions of a new tip and those that conflict with them; whether any did (Core
        removeForBlock).
        """
        conflicts = False
        for tx in txs:
            if tx.txid in self._txs:
                self._remove(tx.txid)  # its children stay: their parent is now in the chain
            for outpoint in tx.inputs:
                if outpoint in self._spender:
                    self.evict(self._spender[outpoint])
                    conflicts = True
        return conflicts

    def rebuild(self, disconnected: Iterable[Transaction]) -> None:
        """After a reorganisation, keep what is still valid of the disconnected transactions, oldest first, then of the
        mempool.
        """
        candidates = [*disconnected, *self._txs.values()]
        self._txs, self._txid_of, self._spender, self.fees, self.size = {}, {}, {}, {}, 0
        for tx in candidates:
            try:
                self._add(tx, replace=False)
            except RefusedError:
                continue  # a coinbase, a transaction confirmed again, or one whose inputs are gone

    def _remove(self, txid: bytes) -> None:
        tx = self._txs.pop(txid)
        del self._txid_of[tx.wtxid], self.fees[txid]
        for outpoint in tx.inputs:
            del self._spender[outpoint]
        self.size -= len(tx.raw)
