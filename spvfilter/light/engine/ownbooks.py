"""Own transactions in the wallet's books: every question and change of the broadcaster.

This wallet broadcast its own transactions; all others are foreign. No other module of the engine reads own transactions
in the books.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from spvfilter.errors import ParameterError, TxConflictError
from spvfilter.kernel import NO_VALUE
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.refusals import check_abandon, check_broadcast


class Conflict(NamedTuple):
    """A transaction that conflicts with an own one."""

    txid: bytes | None
    """Txid, 32 bytes in wire order; None if it is not known."""
    height: int | None
    """Height of its block; None if it is unconfirmed or not known."""
    is_later_own: bool
    """True if this wallet broadcast it later than the own transaction."""


class OwnBooks:
    """Reads and changes own transactions in the books."""

    def __init__(self, books: Books) -> None:
        self._books = books

    # Changes

    def record(self, tx: Transaction, now: int) -> list[WalletEvent]:
        """Record a broadcast at `now` (seconds since 1970). It outranks every earlier broadcast."""
        return self._books.add_unconfirmed(tx.raw, now, own=True)

    def abandon(self, txid: bytes, *, rejected: bool = False) -> list[WalletEvent]:
        """Abandon an own unconfirmed transaction and its descendants, or mark them as rejected by peers."""
        return self._books.abandon(txid, refused=rejected)

    def note(self, name: str, value: bytes) -> None:
        """Store a note in the next commit, together with all changes before it."""
        self._books.batch.notes[name] = value

    # Checks

    def check_abandon(self, txid: bytes) -> None:
        """Raise ParameterError if a transaction is not unconfirmed or was not broadcast by this wallet."""
        check_abandon(self._books, txid)

    def check(self, tx: Transaction) -> list[Transaction]:
        """Check that a block can contain a transaction, and return the ancestors to broadcast with it, parents first.

        Raises ParameterError, TxConflictError.
        """
        check_broadcast(self._books, tx)
        self._check_values(tx)
        ancestors = self._inactive_ancestors(tx)
        for ancestor in ancestors:
            try:
                check_broadcast(self._books, ancestor)
            except ParameterError as error:
                by, height = (error.by, error.height) if isinstance(error, TxConflictError) else (None, None)
                reason = f"it spends from {hash_to_hex(ancestor.txid)}, which cannot be broadcast again: {error}"
                raise TxConflictError(reason, by, height) from None
        return ancestors

    def _check_values(self, tx: Transaction) -> None:
        """Raise ParameterError if an input does not exist, or if the outputs exceed the inputs."""
        for outpoint in tx.inputs:
            parent, index = self._parent(outpoint), OutPoint.parse(outpoint).index
            if parent is not None and index >= len(parent.span.outputs):
                raise ParameterError(
                    f"no block can contain the transaction: it spends output {index} of {hash_to_hex(outpoint[:32])},"
                    f" which has {len(parent.span.outputs)} outputs"
                )
        values = [self._value(outpoint) for outpoint in tx.inputs]
        spent, paid = sum(value or 0 for value in values), sum(output.value for output in tx.outputs)
        if None not in values and spent < paid:
            raise ParameterError(
                f"no block can contain the transaction: its outputs have {paid} satoshi, its inputs {spent}"
            )

    def _inactive_ancestors(self, tx: Transaction) -> list[Transaction]:
        """Return the own ancestors that expired or were rejected. Raises ParameterError for an abandoned one."""
        found: dict[bytes, Transaction] = {}
        waiting, ordered = [tx], dict[bytes, Transaction]()
        while waiting:
            child = waiting[-1]
            parents = [txid for txid in dict.fromkeys(each[:32] for each in child.inputs) if txid not in found]
            for txid in parents:
                ended = self._books.ended.own(txid)
                if ended is not None and ended.status is TxStatus.ABANDONED:
                    name = hash_to_hex(txid)
                    raise ParameterError(
                        f"it spends from {name}, which was abandoned: broadcast {name} first, or spend other coins"
                    )
                if ended is not None:
                    found[txid] = Transaction.parse(ended.raw)
                    waiting.append(found[txid])
            if waiting[-1] is child:
                ordered[child.txid] = waiting.pop()
        return [each for each in ordered.values() if each is not tx]

    # Questions

    def announceable(self) -> list[tuple[bytes, bytes]]:
        """Return (txid, bytes) of own unconfirmed transactions that no later own one replaces, parents first."""
        return self._books.own_unconfirmed()

    def announceable_txids(self) -> Collection[bytes]:
        """Return the txids of `announceable`, in any order."""
        return self._books.unconfirmed.sent.wanted.keys()

    def is_announceable(self, txid: bytes) -> bool:
        """Return True if an own transaction is unconfirmed and no later own one replaces it."""
        return txid in self._books.unconfirmed.sent.wanted

    def is_unconfirmed(self, txid: bytes) -> bool:
        """Return True if the books have an unconfirmed transaction, own or foreign."""
        return txid in self._books.unconfirmed.pending

    def is_confirmed(self, txid: bytes) -> bool:
        """Return True if a recent block of the best chain contains a transaction of the wallet."""
        return self._books.in_block(txid) is not None

    def ended(self, txid: bytes) -> TxStatus | None:
        """Return the status of an own transaction that is neither confirmed nor unconfirmed, or None."""
        ended = self._books.ended.own(txid)
        return None if ended is None or self.is_confirmed(txid) else ended.status

    def ended_raw(self, txid: bytes) -> bytes | None:
        """Return the bytes of an own transaction that is neither confirmed nor unconfirmed, or None."""
        ended = self._books.ended.own(txid)
        return None if ended is None else ended.raw

    def status(self, txid: bytes) -> TxStatus:
        """Return the status of an own transaction that was recorded."""
        pending = self._books.unconfirmed.pending.get(txid)
        return pending.status if pending is not None else self.ended(txid) or TxStatus.CONFIRMED

    def conflict(self, txid: bytes) -> Conflict:
        """Return the transaction that conflicts with an own one."""
        pending, ended = self._books.unconfirmed.pending.get(txid), self._books.ended.own(txid)
        if pending is not None:
            later = self._books.unconfirmed.sent.replaced_by(txid)
            return Conflict(later or pending.rival, None, is_later_own=later is not None)
        return Conflict(None, None, False) if ended is None else Conflict(ended.rival, ended.height, False)

    def spenders(self, outpoint: bytes) -> list[bytes]:
        """Return the txids of the unconfirmed transactions that spend an outpoint."""
        return self._books.unconfirmed.spenders(outpoint)

    def known_fee(self, tx: Transaction, input_values: Sequence[int] | None = None) -> int | None:
        """Return the fee in satoshi; None unless the value of every input is given or known."""
        known = [self._value(outpoint) for outpoint in tx.inputs] if input_values is None else input_values
        values = [value for value in known if value is not None]
        fee = sum(values) - sum(output.value for output in tx.outputs)
        return fee if len(values) == len(tx.inputs) and fee >= 0 else None

    def _value(self, outpoint: bytes) -> int | None:
        """Return the value of an outpoint in satoshi, or None if it is not known."""
        coin = self._books.watch.table.coin(outpoint)
        if coin is not None and coin.value != NO_VALUE:
            return coin.value
        parent, index = self._parent(outpoint), OutPoint.parse(outpoint).index
        return parent.output(index).value if parent is not None and index < len(parent.span.outputs) else None

    def _parent(self, outpoint: bytes) -> Transaction | None:
        """Return the transaction that an outpoint names, or None if the books do not have it."""
        parent = self._books.unconfirmed.pending.get(outpoint[:32]) or self._books.in_block(outpoint[:32])
        return None if parent is None else Transaction.parse(parent.raw)
