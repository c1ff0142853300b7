"""Mempool of the embedded node: transactions that the next block may contain, with replacement by fee.

There are no standardness rules.
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

# Smallest transaction, in bytes without the witness (Core policy.h). A 64-byte transaction can pass for an inner node
# of a merkle tree (CVE-2017-12842).
MIN_SIZE = 65


@public
class TxMempool:
    """Unconfirmed transactions, parents first. No two of them conflict (Core CTxMemPool).

    A transaction is accepted if the next block may contain it along with the transactions already in the mempool.

    Args:
        chain: The chain whose unspent outputs may be spent.
        max_size: Largest total size of the serialized transactions, in bytes.
        replace_by_fee: True if a transaction with a higher fee can replace the transactions that it conflicts with. The
            rules are those of Core 28 and 29.

    Raises:
        ParameterError: `max_size` is negative.
    """

    def __init__(self, chain: BlockTree, max_size: int, *, replace_by_fee: bool = True) -> None:
        if max_size < 0:
            raise ParameterError(f"max_size must be at least 0, not {max_size}")
        self.size: int = 0  # bytes
        self.fees: dict[bytes, int] = {}  # fees in satoshi, keyed by txid
        self._chain = chain
        self._max_size = max_size
        self._replaces = replace_by_fee
        self._txs: dict[bytes, Transaction] = {}
        self._txid_of: dict[bytes, bytes] = {}  # keyed by wtxid
        self._spender: dict[bytes, bytes] = {}  # spending txid for each outpoint

    def __len__(self) -> int:
        return len(self._txs)

    def __iter__(self) -> Iterator[Transaction]:
        """Iterate over the transactions, parents first, as in a block."""
        return iter(list(self._txs.values()))

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._txs

    def get(self, txid: bytes) -> Transaction | None:
        """Return the transaction with this txid, or None if the mempool does not contain it."""
        return self._txs.get(txid)

    def get_by_wtxid(self, wtxid: bytes) -> Transaction | None:
        """Return the transaction with this wtxid, or None if the mempool does not contain it."""
        return self._txs.get(self._txid_of.get(wtxid, b""))

    def is_spent(self, outpoint: bytes) -> bool:
        """Return True if a transaction in the mempool spends the outpoint."""
        return outpoint in self._spender

    def coin(self, outpoint: bytes) -> UnspentOutput | None:
        """Return the unspent output at an outpoint, in the chain or in the mempool.

        The result is None if there is no such output, or if it is spent.
        """
        return self._coin(outpoint, ())

    def _coin(self, outpoint: bytes, replaced: Container[bytes]) -> UnspentOutput | None:
        """Return the output as `coin` does, but as if the `replaced` transactions did not spend anything."""
        if outpoint in self._spender and self._spender[outpoint] not in replaced:
            return None
        parent = self._txs.get(outpoint[:32])
        if parent is not None:
            return consensus.unspent_output(parent, int.from_bytes(outpoint[32:], "little"), self._chain.tip.height + 1)
        return self._chain.coins.get(outpoint)

    def coin_of(self, outpoint: bytes) -> UnspentOutput | None:
        """Return the output at an outpoint, even if a transaction in the mempool spends it.

        The result is None if neither the chain nor the mempool contains the output.
        """
        return self._coin(outpoint, self._txs)

    def add(self, tx: Transaction) -> list[Transaction]:
        """Add a transaction, and return the transactions that it replaced with all their descendants.

        Raises RefusedError if the next block may not contain the transaction, or if it conflicts with a transaction
        that it may not replace.
        """
        return self._add(tx, replace=self._replaces)

    def _add(self, tx: Transaction, *, replace: bool) -> list[Transaction]:
        if tx.txid in self._txs:
            known = tx.wtxid in self._txid_of
            raise refused(
                tx,
                "txn-already-in-mempool" if known else "txn-same-nonwitness-data-in-mempool",
                "the mempool already has it" if known else "the mempool has it with a different witness",
            )
        consensus.check_transaction(tx)
        if tx.is_coinbase:
            raise refused(tx, "coinbase", "it is a coinbase, which may occur only in a block")
        if len(tx.stripped) < MIN_SIZE:
            raise refused(
                tx,
                "tx-size-small",
                f"it must be at least {MIN_SIZE} bytes long without its witness, not {len(tx.stripped)}",
            )
        tip = self._chain.tip
        if not consensus.is_final(tx, tip.height + 1, tip.median_time):
            raise refused(tx, "non-final", f"lock time {tx.lock_time} has not been reached at height {tip.height + 1}")
        spenders = {self._spender[outpoint]: outpoint for outpoint in tx.inputs if outpoint in self._spender}
        for other, outpoint in spenders.items():
            if not replace:
                raise refused(
                    tx, "txn-mempool-conflict", f"transaction {hash_to_hex(other)} spends {OutPoint.parse(outpoint)}"
                )
        families = [self.family(other) for other in spenders]
        replaced = {each.txid: each for family in families for each in family}
        if any(outpoint[:32] in replaced for outpoint in tx.inputs):
            raise refused(
                tx, "bad-txns-spends-conflicting-tx", "it spends an output of a transaction that it would replace"
            )
        fee = consensus.fee(tx, lambda outpoint: self._coin(outpoint, replaced), tip.height + 1)
        if replaced:
            direct, counts = [self._txs[other] for other in spenders], map(len, families)
            check_replacement(tx, fee, direct, counts, list(replaced.values()), self.fees, self._txs)
        size = self.size - sum(len(each.raw) for each in replaced.values())
        if size + len(tx.raw) > self._max_size:
            raise refused(tx, "mempool full", f"the mempool already holds {size} of at most {self._max_size} bytes")
        for txid in replaced:
            self._remove(txid)
        self._txs[tx.txid] = tx
        self._txid_of[tx.wtxid] = tx.txid
        self._spender.update((outpoint, tx.txid) for outpoint in tx.inputs)
        self.fees[tx.txid] = fee
        self.size += len(tx.raw)
        return list(replaced.values())

    def family(self, txid: bytes) -> list[Transaction]:
        """Return a transaction and all its descendants, or an empty list if it is not in the mempool."""
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
        """Remove a transaction and all its descendants, as a full mempool does, and return the removed transactions."""
        gone = self.family(txid)
        for tx in gone:
            self._remove(tx.txid)
        return gone

    def remove_for(self, txs: Sequence[Transaction]) -> bool:
        """Remove the transactions of a new block and all transactions that conflict with it (Core removeForBlock).

        Returns True if the mempool contained a conflicting transaction.
        """
        conflicts = False
        for tx in txs:
            if tx.txid in self._txs:
                self._remove(tx.txid)  # its children stay, since their parent is now in the chain
            for outpoint in tx.inputs:
                if outpoint in self._spender:
                    self.evict(self._spender[outpoint])
                    conflicts = True
        return conflicts

    def rebuild(self, disconnected: Iterable[Transaction]) -> None:
        """Refill the mempool after a reorganization.

        The transactions of the disconnected blocks are added first, oldest first, then the transactions that were in
        the mempool. Transactions that are no longer valid are dropped.
        """
        candidates = [*disconnected, *self._txs.values()]
        self._txs, self._txid_of, self._spender, self.fees, self.size = {}, {}, {}, {}, 0
        for tx in candidates:
            try:
                self._add(tx, replace=False)
            except RefusedError:
                continue  # a coinbase, a transaction that is confirmed again, or an input that is gone

    def _remove(self, txid: bytes) -> None:
        tx = self._txs.pop(txid)
        del self._txid_of[tx.wtxid], self.fees[txid]
        for outpoint in tx.inputs:
            del self._spender[outpoint]
        self.size -= len(tx.raw)
