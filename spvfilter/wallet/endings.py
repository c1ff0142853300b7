"""Transactions of a wallet that ended without a block: why, which of them are kept, and what they rule out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spvfilter.kernel import Hit
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import Ended, StoredTx, TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import Reason

MAX_ENDED = 1_000  # transactions that were not broadcast here
MAX_ENDED_SIZE = 10_000_000  # bytes of these
LOST_NOTE = "lost coinbases"
MAX_RULED_OUT = 1_000  # txids of what spends from what ended, directly or through others, the latest; ours


class Ending(NamedTuple):
    """How an unconfirmed transaction ends."""

    status: TxStatus
    reason: Reason
    height: int
    """Of the block in which its rival is, or up to which blocks have been searched."""
    block_hash: bytes | None = None
    """Of that block."""
    by: bytes | None = None
    """Txid of its rival."""

    def of(self, tx: StoredTx, hits: Iterable[Hit]) -> StoredTx:
        """A transaction that ended so, with its last matches."""
        ended = tx._replace(status=self.status, block_hash=self.block_hash, height=max(self.height, 0), rival=self.by)
        return ended._replace(position=None, hits=tuple(hits) or tx.hits)


class Endings:
    """What ended: all of what was broadcast here, and the latest of the others."""

    def __init__(self, stored: Sequence[Ended], transactions: Mapping[bytes, StoredTx], lost: bytes) -> None:
        """As the database has them; the conflicted ones of recent blocks are among the `transactions`.

        `lost` are txids of coinbases.
        """
        self._own = {ended.txid: ended.tx for ended in stored if ended.tx is not None}
        self._spenders: dict[bytes, dict[bytes, None]] = {}  # first outpoint that one of ours spends → txids
        for txid, tx in self._own.items():
            self._spenders.setdefault(_first_input(tx), {})[txid] = None
        self._others = {ended.txid: ended.size for ended in stored if ended.tx is None}  # the oldest first
        self._size = sum(self._others.values())
        self._abandoned = {ended.txid for ended in stored if ended.status is TxStatus.ABANDONED}
        self._conflicted = {txid: tx for txid, tx in transactions.items() if tx.status is TxStatus.CONFLICTED}
        # of lost coinbases
        self._orphans = {txid: _parents(tx) for txid, tx in self._conflicted.items() if tx.block_hash is None}
        self._ruled_out: dict[bytes, bytes] = {}  # txid of what cannot count → txid of what ended, from which it spends
        # txids of coinbases that left the best chain
        self._lost = {lost[at : at + 32] for at in range(0, len(lost), 32)}

    def put(self, txid: bytes, tx: StoredTx | None, batch: Batch) -> None:
        """Keep a transaction that has ended; None: nothing of it."""
        self.forget(txid)
        batch.transactions[txid] = tx
        if tx is None:
            return
        if tx.status is TxStatus.ABANDONED:
            self._abandoned.add(txid)
        if tx.status is TxStatus.CONFLICTED:
            self._conflicted[txid] = tx
            if tx.block_hash is None:
                self._orphans[txid] = _parents(tx)
        if tx.own:
            self._own[txid] = tx
            self._spenders.setdefault(_first_input(tx), {})[txid] = None
            return
        self._others[txid] = len(tx.raw)
        self._size += len(tx.raw)
        while len(self._others) > MAX_ENDED or self._size > MAX_ENDED_SIZE:
            oldest = next(iter(self._others))
            self.forget(oldest)
            batch.transactions[oldest] = None

    def put_conflict(
        self, txid: bytes, tx: StoredTx, hits: Iterable[Hit], spender: bytes, block: StoredTx | None, batch: Batch
    ) -> None:
        """Keep a transaction that spends what a block has spent, by `spender`: what spends from it cannot count either.

        Ours stays ours, whoever sends it again.
        """
        if block is not None and block.height is not None:
            end = Ending(TxStatus.CONFLICTED, Reason.CONFLICT, block.height, block.block_hash, spender)
            self.put(txid, end.of(self._own.get(txid, tx), hits), batch)

    def forget(self, txid: bytes) -> None:
        """A transaction is unconfirmed again, in a block, or not kept any more."""
        self._size -= self._others.pop(txid, 0)
        if (own := self._own.pop(txid, None)) is not None:
            spenders = self._spenders[first := _first_input(own)]
            del spenders[txid]
            if not spenders:
                del self._spenders[first]
        self._abandoned.discard(txid)
        self._conflicted.pop(txid, None)
        self._ruled_out.pop(txid, None)
        self._orphans.pop(txid, None)

    def __contains__(self, txid: bytes) -> bool:
        """Whether a transaction has ended, and is kept."""
        return txid in self._own or txid in self._others

    def change(self, hit_of: Callable[[Hit], Hit | None]) -> None:
        """Change the hits of what is kept; those for which there is none are forgotten."""
        for kept in (self._own, self._conflicted):
            for txid, tx in kept.items():
                if tx.hits:
                    kept[txid] = tx._replace(hits=tuple(hit for hit in map(hit_of, tx.hits) if hit is not None))

    def own(self, txid: bytes) -> StoredTx | None:
        """A transaction that was broadcast here and has ended, or None."""
        return self._own.get(txid)

    def may_be(self, inputs: Sequence[bytes]) -> bool:
        """Whether a transaction that spends these outpoints may be one that was broadcast here and has ended."""
        return any(outpoint in self._spenders for outpoint in inputs[:1])

    @property
    def has_own(self) -> bool:
        """Whether there is one that was broadcast here."""
        return bool(self._own)

    def rules_out(self, tx: Transaction, *, own: bool) -> bool:
        """Whether a transaction, or one that it spends from, is in conflict with a block, or was given up; `own` ones
        may come again.
        """
        if not self._conflicted and (own or not self._abandoned):
            return False
        for txid in (tx.txid, *(self._ruled_out.get(outpoint[:32], outpoint[:32]) for outpoint in tx.inputs)):
            if txid in self._conflicted or (not own and txid in self._abandoned):
                self._ruled_out.pop(tx.txid, None)
                self._ruled_out[tx.txid] = txid
                if len(self._ruled_out) > MAX_RULED_OUT:
                    del self._ruled_out[next(iter(self._ruled_out))]
                return True
        return False

    def undone(self, fork: int, batch: Batch) -> list[StoredTx]:
        """Remove and return what conflicts with blocks above a height, which have left the best chain."""
        found = {
            txid: tx for txid, tx in self._conflicted.items() if (tx.height or 0) > fork and tx.block_hash is not None
        }
        for txid in found:
            self.forget(txid)
            batch.transactions[txid] = None
        return list(found.values())

    def lose(self, coinbase: bytes, batch: Batch) -> None:
        """A coinbase is in no block any more: what spends from it is put as conflicted, without a block."""
        self._lost.add(coinbase)
        batch.notes[LOST_NOTE] = b"".join(sorted(self._lost))

    def regain(self, coinbase: bytes, batch: Batch) -> list[StoredTx]:
        """A block has a coinbase, which may have been lost: remove and return what spends from it and from no other
        that is lost.
        """
        if coinbase in self._lost:
            self._lost.discard(coinbase)
            batch.notes[LOST_NOTE] = b"".join(sorted(self._lost)) or None
        back = {coinbase}
        missing = self._lost | self._orphans.keys()
        found = [coinbase]
        while found:  # mostly once: parents were put first
            found = []
            for txid, parents in self._orphans.items():
                if txid not in back and not parents.isdisjoint(back) and (parents & missing) <= back:
                    back.add(txid)
                    found.append(txid)
        returning = [self._conflicted[txid] for txid in list(self._orphans) if txid in back]
        for txid in back - {coinbase}:
            self.forget(txid)
            batch.transactions[txid] = None
        return returning


def _first_input(tx: StoredTx) -> bytes:
    return Transaction.parse(tx.raw).inputs[0]


def _parents(tx: StoredTx) -> set[bytes]:
    """The txids that a transaction spends from."""
    return {outpoint[:32] for outpoint in Transaction.parse(tx.raw).inputs}
