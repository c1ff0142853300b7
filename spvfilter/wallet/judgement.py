"""Verdicts on the wallet's transactions, computed from the facts by `canonical`."""

from __future__ import annotations

from spvfilter.protocol import HASH_SIZE
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.wallet.canonical import Status, Verdict, canonical
from spvfilter.wallet.facts import Facts, parents_first
from spvfilter.wallet.rows import ROW_STATUS, status_of
from spvfilter.wallet.txgraph import Component, TxRecord

CONFIRMED = Verdict(Status.CONFIRMED)
INACTIVE = (Status.ABANDONED, Status.REJECTED, Status.EXPIRED)


class Judgement:
    """The verdicts that follow from the facts."""

    def __init__(self, facts: Facts) -> None:
        self.waiting: dict[bytes, None] = {}
        """Txids of the foreign transactions that are waiting for more evidence."""
        self._facts = facts
        self._verdicts: dict[bytes, Verdict] = {}  # computed by `canonical` and cached
        self._own: tuple[TxRecord, ...] | None = None  # our records without a block, parents first, cached
        self._started_waiting: dict[bytes, None] = {}
        self._followers: list[dict[bytes, None]] = []

    def load(self, txid: bytes, row: StoredTx) -> None:
        """Load the verdict from the row of a transaction."""
        is_unconfirmed = self._facts.is_without_block(txid)
        self._verdicts[txid] = Verdict(status_of(row.status), row.conflicts_with) if is_unconfirmed else CONFIRMED

    def put(self, txid: bytes, verdict: Verdict) -> None:
        """Store a new verdict."""
        self._verdicts[txid] = verdict
        if verdict.status is not Status.WAITING or self._facts.is_own(txid):
            self.waiting.pop(txid, None)
        elif txid not in self.waiting:
            self.waiting[txid] = self._started_waiting[txid] = None

    def forget(self, txid: bytes) -> None:
        """Forget the verdict on a transaction that was removed."""
        self._verdicts.pop(txid, None)
        self.waiting.pop(txid, None)

    def begin(self) -> None:
        """Record that facts about unconfirmed transactions have changed."""
        self._own = None

    def component_of(self, txid: bytes, judged: dict[bytes, Verdict]) -> Component | None:
        """Return the component to judge for a transaction; None if `judged` already contains all of it.

        If the transaction is in a block, its verdict is added to `judged`.
        """
        facts = self._facts
        if txid in judged or txid not in facts.graph:
            return None
        is_confirmed = not facts.is_without_block(txid)
        if is_confirmed:
            judged[txid] = CONFIRMED
            if not facts.without_block:
                return None
        component = facts.graph.component(txid, facts.best)
        return None if is_confirmed and component.records.keys() <= judged.keys() else component

    def judge(self, component: Component) -> dict[bytes, Verdict]:
        """Return the verdicts on the transactions of a component."""
        return canonical(self._with_border(component), self._facts.best)

    # Queries

    @property
    def has_started_waiting(self) -> bool:
        """True if `take_waiting` may return transactions."""
        return bool(self._started_waiting)

    def take_waiting(self) -> list[bytes]:
        """Return the txids of foreign transactions that have started waiting since the last call and still are."""
        taken, self._started_waiting = [each for each in self._started_waiting if each in self.waiting], {}
        return taken

    def verdict(self, txid: bytes) -> Verdict | None:
        """Return the verdict on a transaction; None if it is not known."""
        return self._verdicts.get(txid)

    def is_pending(self, txid: bytes) -> bool:
        """True if a transaction is unconfirmed and counts."""
        return txid in self._facts.without_block and self._verdicts[txid].counts

    def is_waiting(self, txid: bytes) -> bool:
        """True if a transaction is unconfirmed and does not count yet."""
        return self._facts.is_without_block(txid) and self._verdicts[txid].status is Status.WAITING

    def is_inactive(self, txid: bytes) -> bool:
        """True if a transaction does not count because it or an ancestor was dropped."""
        return self._verdicts[txid].status in INACTIVE

    def status(self, txid: bytes) -> TxStatus | None:
        """Return the status of a transaction; None if it is not known."""
        if txid not in self._verdicts:
            return None
        return ROW_STATUS[self._verdicts[txid].status] if txid in self._facts.without_block else TxStatus.CONFIRMED

    # Own transactions

    def own_records(self) -> tuple[TxRecord, ...]:
        """Return our transactions that no block contains, parents first. Each new verdict leads to a new tuple."""
        if self._own is None:
            facts = self._facts
            own = [record for record in facts.unconfirmed() if record.is_own]
            family = [each for record in own for each in (*facts.graph.ancestors(record, self._is_anchored), record)]
            ordered = parents_first({each.txid: each for each in family if each.txid in facts.without_block})
            self._own = tuple(record for record in ordered if record.is_own)
        return self._own

    def _is_anchored(self, record: TxRecord) -> bool:
        return record.is_anchored(self._facts.best)

    def own_record(self, txid: bytes) -> TxRecord | None:
        """Return the record of one of the wallet's own transactions that no block contains, or None."""
        record = self._facts.record(txid)
        return record if record is not None and record.is_own and self._facts.is_without_block(txid) else None

    def follow_own(self) -> dict[bytes, None]:
        """Return a dict that collects the txids of the wallet's own transactions whose record or verdict changes.

        It covers changes from now on, and the caller empties it after use. It may also contain transactions that no
        longer belong to the wallet.
        """
        followed = dict[bytes, None]()
        self._followers.append(followed)
        return followed

    def note_own(self, txid: bytes) -> None:
        """Record that the record or the verdict of a transaction has changed."""
        if self._facts.is_own(txid) or txid not in self._facts.graph:
            for followed in self._followers:
                followed[txid] = None

    def is_announceable(self, txid: bytes) -> bool:
        """True if one of our transactions is unconfirmed, and counts or will count once a peer requests it.

        Foreign conflicts rank lower and never change that.
        """
        return self._facts.is_own(txid) and (self.is_waiting(txid) or self.is_pending(txid))

    def _is_settled(self, txid: bytes) -> bool:
        """True if a block contains this known transaction or one of its descendants."""
        verdict = self._verdicts.get(txid)
        return txid not in self._facts.without_block or (verdict is not None and verdict.status is Status.CONFIRMED)

    def _with_border(self, component: Component) -> Component:
        """Return the component with its border: the confirmed transactions that spend its inputs and outputs."""
        border, graph, deep_spender = dict(component.border), self._facts.graph, self._facts.confirmed.spender
        for txid, record in component.records.items():
            alone = (txid,)
            for outpoint in (*record.inputs, *graph.spent_outputs(txid)):
                spenders, deep = graph.spenders(outpoint), deep_spender(outpoint)
                if outpoint in border or (spenders == alone and deep is None and outpoint[:HASH_SIZE] not in graph):
                    continue  # nothing else spends it
                confirmed = [each for each in spenders if each not in component.records and self._is_settled(each)]
                if deep is not None:
                    confirmed.append(deep)
                if confirmed:
                    border[outpoint] = min(confirmed)
                elif graph.is_missing(outpoint, self._facts.best):
                    border[outpoint] = outpoint[:HASH_SIZE]
        return Component(component.records, border)
