"""Verdicts on the wallet's transactions, computed from the facts by `canonical`."""

from __future__ import annotations

from spvfilter.protocol import HASH_SIZE
from spvfilter.store.ledger import TxStatus
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.facts import Facts, parents_first
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.rows import ROW_STATUS
from spvfilter.wallet.txgraph import Component, TxRecord
from spvfilter.watch.watchlist import WatchList


class JudgedFacts(Facts):
    """Facts with the verdicts that follow from them."""

    def __init__(self, watch: WatchList, limits: PendingLimits | None = None) -> None:
        super().__init__(watch, limits)
        self._verdicts: dict[bytes, Verdict] = {}  # computed by `canonical`; a cache
        self._own: tuple[TxRecord, ...] | None = None  # own records without a block, parents first; a cache
        self._followers: list[dict[bytes, None]] = []

    def verdict(self, txid: bytes) -> Verdict | None:
        """The verdict on a transaction; None if it is not known."""
        return self._verdicts.get(txid)

    def is_pending(self, txid: bytes) -> bool:
        """True if a transaction is unconfirmed and counts."""
        return txid in self._unconfirmed and self._verdicts[txid].counts

    def status(self, txid: bytes) -> TxStatus | None:
        """The status of a transaction; None if it is not known."""
        return self._status(txid) if txid in self._verdicts else None

    def _status(self, txid: bytes) -> TxStatus:
        return ROW_STATUS[self._verdicts[txid].status] if txid in self._unconfirmed else TxStatus.CONFIRMED

    # Own transactions

    def own_records(self) -> tuple[TxRecord, ...]:
        """The own transactions that no block contains, parents first: a new tuple after each change of a verdict."""
        if self._own is None:
            own = [record for record in self.unconfirmed() if record.is_own]
            family = [each for record in own for each in (*self._graph.ancestors(record), record)]
            ordered = parents_first({each.txid: each for each in family if each.txid in self._unconfirmed})
            self._own = tuple(record for record in ordered if record.is_own)
        return self._own

    def own_record(self, txid: bytes) -> TxRecord | None:
        """The record of an own transaction that no block contains, or None."""
        record = self._graph.get(txid)
        return record if record is not None and record.is_own and txid in self._unconfirmed else None

    def follow_own(self) -> dict[bytes, None]:
        """A dict that collects the txids of own transactions whose record or verdict changes from now on.

        The caller empties it after each look. It may also contain transactions that are not own ones any more.
        """
        followed = dict[bytes, None]()
        self._followers.append(followed)
        return followed

    def _note_own(self, txid: bytes) -> None:
        """The record or the verdict of a transaction has changed."""
        if self._is_own(txid) or txid not in self._graph:
            for followed in self._followers:
                followed[txid] = None

    def is_announceable(self, txid: bytes) -> bool:
        """True if an own transaction is unconfirmed, and counts or will count once a peer requests it.

        Foreign conflicts rank lower and never change that.
        """
        is_waiting = txid in self._unconfirmed and self._verdicts[txid].status is Status.WAITING
        return self._is_own(txid) and (is_waiting or self.is_pending(txid))

    def _is_settled(self, txid: bytes) -> bool:
        """True if a block contains a known transaction or a descendant of it."""
        verdict = self._verdicts.get(txid)
        return txid not in self._unconfirmed or (verdict is not None and verdict.status is Status.CONFIRMED)

    def _with_border(self, component: Component) -> Component:
        """The component with the confirmed transactions that spend its inputs and outputs."""
        border = dict(component.border)
        for record in component.records.values():
            for outpoint in (*record.inputs, *self._graph.spent_outputs(record.txid)):
                if outpoint in border:
                    continue
                others = (each for each in self._graph.spenders(outpoint) if each not in component.records)
                confirmed = [each for each in others if self._is_settled(each)]
                if (deep := self._confirmed.spender(outpoint)) is not None:
                    confirmed.append(deep)
                if confirmed:
                    border[outpoint] = min(confirmed)
                elif self._graph.is_missing(outpoint, self._best):
                    border[outpoint] = outpoint[:HASH_SIZE]
        return Component(component.records, border)
