"""Verdicts on the wallet's transactions, computed from the facts by `canonical`."""

from __future__ import annotations

from collections.abc import Mapping

from spvfilter.protocol import HASH_SIZE
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.canonical import Status, Verdict, canonical
from spvfilter.wallet.facts import Facts, parents_first
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.rows import ROW_STATUS
from spvfilter.wallet.txgraph import Component, DropReason, TxRecord
from spvfilter.watch.watchlist import WatchList


class JudgedFacts(Facts):
    """Facts with the verdicts that follow from them, and hypothetical verdicts on a new transaction."""

    def __init__(self, watch: WatchList, limits: PendingLimits | None = None) -> None:
        super().__init__(watch, limits)
        self._verdicts: dict[bytes, Verdict] = {}  # computed by `canonical`; a cache
        self._own: dict[bytes, Verdict] | None = None  # verdicts on own transactions among themselves; a cache

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

    def own_verdicts(self) -> Mapping[bytes, Verdict]:
        """Verdicts on the own unconfirmed transactions, by blocks and own transactions alone, parents first.

        A foreign conflict does not change them. A transaction is announced while this verdict is canonical.
        """
        if self._own is None:
            own = {txid: record for txid in self._unconfirmed if (record := self._graph.get(txid)) and record.is_own}
            ancestors = {each.txid: each for record in own.values() for each in self._graph.ancestors(record)}
            foreign = {txid: each for txid, each in ancestors.items() if txid in self._unconfirmed and not each.is_own}
            component = self._with_border(Component({**foreign, **own}, {}))
            for record in component.records.values():
                for outpoint in record.inputs:
                    for each in self._graph.spenders(outpoint):
                        known = None if each in component.records else self._verdicts.get(each)
                        if known is not None and known.status is Status.CONFIRMED:
                            component.border.setdefault(outpoint, each)  # a parent may be confirmed through a child
            verdicts = canonical(component, self._best)
            order = [record.txid for record in parents_first(component.records) if record.is_own]
            self._own = {txid: verdicts[txid] for txid in order}
        return self._own

    def own_unconfirmed(self) -> list[tuple[bytes, bytes]]:
        """The own transactions to announce (txid, raw), parents first."""
        records = ((txid, self._graph.get(txid)) for txid, verdict in self.own_verdicts().items() if verdict.counts)
        return [(txid, record.raw) for txid, record in records if record is not None]

    def is_announceable(self, txid: bytes) -> bool:
        """True if an own transaction is unconfirmed, and neither blocks nor own transactions speak against it."""
        verdict = self.own_verdicts().get(txid)
        return verdict is not None and verdict.counts

    def would_be(self, tx: Transaction) -> tuple[Verdict, TxRecord | None]:
        """The verdict on a transaction if this wallet broadcast it, and an abandoned ancestor if there is one."""
        record = TxRecord.parse(tx.raw)._replace(broadcast_seq=self._number + 1)
        ancestors = self._graph.ancestors(record)
        family = {each.txid: each for each in (*ancestors, record) if each.anchor_in(self._best) is None}
        active = {txid: each._replace(dropped=None) for txid, each in family.items()}
        verdicts = canonical(self._with_border(Component(active, {})), self._best)
        abandoned = (each for each in ancestors if each.active_drop is DropReason.ABANDONED)
        return verdicts[tx.txid], next(abandoned, None)

    def _with_border(self, component: Component) -> Component:
        """The component with the confirmed transactions that spend its inputs and outputs."""
        border = dict(component.border)
        for record in component.records.values():
            for outpoint in (*record.inputs, *self._graph.spent_outputs(record.txid)):
                if outpoint in border:
                    continue
                confirmed = [each for each in self._graph.spenders(outpoint) if each not in self._unconfirmed]
                if (deep := self._confirmed.spender(outpoint)) is not None:
                    confirmed.append(deep)
                if confirmed:
                    border[outpoint] = min(confirmed)
                elif self._graph.is_missing(outpoint, self._best):
                    border[outpoint] = outpoint[:HASH_SIZE]
        return Component(component.records, border)
