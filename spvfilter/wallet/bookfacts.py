"""BookFacts: facts from the books about a transaction's inputs, with which the transaction is checked."""

from __future__ import annotations

from collections.abc import Callable

from spvfilter.chain import HeaderChain
from spvfilter.kernel import NO_VALUE
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.store.txcheck import (
    CheckCause,
    CheckFinding,
    CheckWeight,
    FeeLimits,
    KnownParent,
    Replaced,
    invalid,
)
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.txgraph import DropReason, TxRecord


class BookFacts:
    """The facts in the books that are needed to check a transaction.

    Args:
        books: The books.
        chain: The best chain. Without it, lock times and coinbases are not checked.
        fee_limits: Function that returns the fee limits of connected peers.
        is_accepted: Function that takes the txid of one of the wallet's own transactions, and returns True if a peer
            has accepted it.
    """

    def __init__(
        self,
        books: Books,
        chain: HeaderChain | None = None,
        fee_limits: Callable[[], FeeLimits | None] = lambda: None,
        is_accepted: Callable[[bytes], bool] = lambda txid: False,
    ) -> None:
        self._books = books
        self._chain = chain
        self._fee_limits = fee_limits
        self._is_accepted = is_accepted

    @property
    def tip(self) -> int:
        """Height of the tip; -1 if there is no chain."""
        return -1 if self._chain is None else self._chain.height

    @property
    def fee_limits(self) -> FeeLimits | None:
        """The fee limits of connected peers, or None if there are none."""
        return self._fee_limits()

    def median_time(self, height: int) -> int:
        """Return the median time of the 11 headers up to a height, as Unix time."""
        assert self._chain is not None
        return self._chain.median_time_at(height)

    def parent(self, outpoint: bytes) -> KnownParent:
        """Return what the books know about the transaction that an outpoint refers to."""
        place, record = OutPoint.parse(outpoint), self._books.intake.known(outpoint[:32])
        if record is not None:
            tx, anchor = Transaction.parse(record.raw), self._books.facts.anchor(record.txid)
            output = tx.output(place.index) if place.index < record.outputs else None
            is_unconfirmed = anchor is None and not self._books.facts.is_confirmed(record.txid)
            height = None if anchor is None else anchor.height
            return KnownParent(record.outputs, output, height, is_unconfirmed, tx.is_coinbase)
        found = self._books.facts.confirmed.payment(place)
        coin = self._books.watch.table.coin(outpoint)
        output = None
        if coin is not None and coin.value != NO_VALUE and coin.script is not None:
            output = TxOut(coin.value, coin.script)
        elif found is not None and found.hit.script is not None:
            output = TxOut(found.hit.value, found.hit.script)
        if found is None:
            return KnownParent(None, output)
        return KnownParent(None, output, found.height, is_coinbase=found.hit.position == 0)

    def conflict(self, tx: Transaction) -> CheckFinding | None:
        """Return a finding if a block contains the transaction or a conflicting one."""
        facts = self._books.facts
        if facts.is_confirmed(tx.txid):
            height = None if (anchor := facts.anchor(tx.txid)) is None else anchor.height
            message = "a block contains the transaction"
            return CheckFinding(CheckCause.CONFIRMED, CheckWeight.INVALID, message, tx.txid, tx.txid, height)
        if (spender := facts.confirmed_spender(tx)) is None:
            return None
        height = None if (block := facts.anchor(spender)) is None else block.height
        message = f"it conflicts with {hash_to_hex(spender)}, which is in a block"
        return CheckFinding(CheckCause.CONFLICT, CheckWeight.INVALID, message, tx.txid, spender, height)

    def family_conflict(self, tx: Transaction) -> CheckFinding | None:
        """Return a finding if an ancestor was abandoned, or conflicts with a transaction in a block."""
        verdict, ancestor = self._books.intake.would_be(tx)
        if verdict.status is Status.CONFLICTED:
            if (by := verdict.conflicts_with) is None:
                return invalid(tx, CheckCause.CONFLICT, "it, or one of its ancestors, conflicts with an ancestor")
            rival = self._books.facts.record(by)
            is_direct = rival is not None and not set(rival.inputs).isdisjoint(tx.inputs)
            conflict = "it conflicts" if is_direct else "it spends from a transaction that conflicts"
            message = f"{conflict} with {hash_to_hex(by)}, which is confirmed"
            return CheckFinding(CheckCause.CONFLICT, CheckWeight.INVALID, message, tx.txid, by)
        if ancestor is not None and ancestor.active_drop is DropReason.ABANDONED:
            name = hash_to_hex(ancestor.txid)
            message = f"it spends from {name}, which was abandoned: broadcast {name} first, or spend other coins"
            return CheckFinding(CheckCause.ABANDONED_PARENT, CheckWeight.INVALID, message, tx.txid, ancestor.txid)
        return None

    def replaced(self, tx: Transaction) -> list[Replaced]:
        """Return the wallet's own pending transactions that share an input with `tx`."""
        rivals = dict.fromkeys(txid for outpoint in tx.inputs for txid in self._books.facts.spenders(outpoint))
        return [
            Replaced(txid, self._family_fee(record), self._is_accepted(txid))
            for txid in rivals
            if txid != tx.txid
            and (record := self._books.facts.record(txid)) is not None
            and record.is_own
            and self._books.judgement.is_pending(txid)
        ]

    def _family_fee(self, record: TxRecord) -> int:
        """Return the total fees of a transaction and its pending descendants, as far as they are known."""
        family, total = {record.txid: record}, 0
        waiting = [record]
        for each in waiting:  # the list grows during the loop
            tx = Transaction.parse(each.raw)
            values = [self._books.hits.value_of(outpoint) for outpoint in tx.inputs]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                total += max(0, sum(known) - sum(output.value for output in tx.outputs))
            for index in range(each.outputs):
                for txid in self._books.facts.spenders(tx.outpoint(index)):
                    child = self._books.facts.record(txid)
                    if (
                        child is not None
                        and txid not in family
                        and child.is_own
                        and self._books.judgement.is_pending(txid)
                    ):
                        family[txid] = child
                        waiting.append(child)
        return total

    def was_refused(self, tx: Transaction) -> bool:
        """Return True if peers have refused exactly these bytes."""
        record = self._books.facts.record(tx.txid)
        return record is not None and record.raw == tx.raw and record.active_drop is DropReason.REJECTED
