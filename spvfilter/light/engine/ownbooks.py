"""The wallet's own transactions in its books: everything that the broadcaster reads or changes.

A transaction is the wallet's own if this wallet broadcast it; all others are foreign. No other module of the engine
reads the wallet's own transactions from the books.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spvfilter.errors import ParameterError, TxConflictError
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.facts import parents_first
from spvfilter.wallet.refusals import check_abandon, check_broadcast
from spvfilter.wallet.txgraph import TxRecord


class Conflict(NamedTuple):
    """A transaction that conflicts with one of the wallet's own."""

    txid: bytes | None
    """Txid, 32 bytes in wire order; None if unknown."""
    height: int | None
    """Height of its block; None if it is unconfirmed or the height is unknown."""


class OwnBooks:
    """Reads and changes the wallet's own transactions in the books."""

    def __init__(self, books: Books) -> None:
        self._books = books

    # Changes

    def record(self, tx: Transaction, now: int) -> list[WalletEvent]:
        """Record a broadcast at `now` (Unix time). It outranks every earlier broadcast."""
        return self._books.broadcast(tx.raw, now)

    def abandon(self, txid: bytes, *, rejected: bool = False, is_unsent: bool = False) -> list[WalletEvent]:
        """Abandon an unconfirmed transaction, or mark it as rejected by peers. Its descendants become inactive.

        If `is_unsent` is True, no peer can have it, so the versions that it replaced count again.
        """
        return self._books.reject(txid) if rejected else self._books.abandon(txid, is_unsent=is_unsent)

    def requested(self, txid: bytes) -> list[WalletEvent]:
        """Record that a peer requested or announced one of the wallet's own transactions."""
        return self._books.requested(txid)

    def note(self, name: str, value: bytes) -> None:
        """Store a note in the next commit, together with all changes before it."""
        self._books.batch.notes[name] = value

    # Checks

    def check_abandon(self, txid: bytes) -> None:
        """Raise ParameterError if a transaction is not unconfirmed or was not broadcast by this wallet."""
        check_abandon(self._books, txid)

    def check(self, tx: Transaction) -> list[Transaction]:
        """Check that a block can contain a transaction, and return the ancestors to broadcast with it, parents first.

        Raises ParameterError and TxConflictError.
        """
        check_broadcast(self._books, tx)
        ancestors = parents_first(self._books.intake.ancestors(TxRecord.parse(tx.raw)))
        inactive = [each for each in ancestors if self.ended(each.txid) is not None]
        for each in inactive:
            name = hash_to_hex(each.txid)
            try:
                check_broadcast(self._books, Transaction.parse(each.raw))
            except ParameterError as error:
                by, height = (error.by, error.height) if isinstance(error, TxConflictError) else (None, None)
                reason = f"it spends from {name}, which cannot be broadcast again: {error}"
                raise TxConflictError(reason, by, height) from None
        return [Transaction.parse(each.raw) for each in inactive]

    # Queries

    def own_records(self) -> tuple[TxRecord, ...]:
        """Return our transactions that no block contains, parents first. Each change leads to a new tuple."""
        return self._books.judgement.own_records()

    def own_record(self, txid: bytes) -> TxRecord | None:
        """Return the record of one of the wallet's own transactions that no block contains, or None."""
        return self._books.judgement.own_record(txid)

    def follow(self) -> dict[bytes, None]:
        """Return a dict that collects the txids of transactions that change from now on. The caller empties it."""
        return self._books.judgement.follow_own()

    def is_announceable(self, txid: bytes) -> bool:
        """Return True if a transaction of the wallet is unconfirmed and no later one of the wallet's replaces it."""
        return self._books.judgement.is_announceable(txid)

    def is_unconfirmed(self, txid: bytes) -> bool:
        """Return True if this transaction, which may be somebody else's, is pending or replaced."""
        status = self._books.judgement.status(txid)
        return status is not None and status.is_open

    def is_confirmed(self, txid: bytes) -> bool:
        """Return True if the best chain contains this transaction of the wallet, no matter how deep."""
        return self._books.facts.is_confirmed(txid)

    def ended(self, txid: bytes) -> TxStatus | None:
        """Return the status of one of our transactions that has ended; None if it is confirmed, open or unknown."""
        record, status = self._books.facts.record(txid), self._books.judgement.status(txid)
        if record is None or not record.is_own or status is None:
            return None
        return None if status.is_open or status is TxStatus.CONFIRMED else status

    def ended_raw(self, txid: bytes) -> bytes | None:
        """Return the bytes of one of our transactions that has ended; None if it is confirmed, open or unknown."""
        record = self._books.facts.record(txid)
        return None if record is None or self.ended(txid) is None else record.raw

    def status(self, txid: bytes) -> TxStatus:
        """Return the status of a recorded transaction of the wallet."""
        return self._books.judgement.status(txid) or TxStatus.CONFIRMED

    def conflict(self, txid: bytes) -> Conflict:
        """Return the transaction that conflicts with one of ours. Foreign unconfirmed ones never replace ours."""
        verdict = self._books.judgement.verdict(txid)
        by = None if verdict is None else verdict.conflicts_with
        anchor = None if by is None else self._books.facts.anchor(by)
        return Conflict(by, None if anchor is None else anchor.height)

    def rival(self, tx: Transaction) -> bytes | None:
        """Return the txid of an unconfirmed transaction that shares an input with `tx`, preferably a pending one."""
        rivals = [each for outpoint in tx.inputs for each in self.spenders(outpoint) if each != tx.txid]
        return min(rivals, key=lambda each: not self._books.judgement.is_pending(each), default=None)

    def spenders(self, outpoint: bytes) -> list[bytes]:
        """Return the txids of the unconfirmed transactions that spend an outpoint."""
        return [txid for txid in self._books.facts.spenders(outpoint) if self.is_unconfirmed(txid)]

    def known_fee(self, tx: Transaction, input_values: Sequence[int] | None = None) -> int | None:
        """Return the fee in satoshi; None unless the value of every input is given or known."""
        value_of = self._books.hits.value_of
        known = [value_of(outpoint) for outpoint in tx.inputs] if input_values is None else input_values
        values = [value for value in known if value is not None]
        fee = sum(values) - sum(output.value for output in tx.outputs)
        return fee if len(values) == len(tx.inputs) and fee >= 0 else None
