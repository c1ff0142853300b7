"""Settlement of an input: compares the verdicts before and after it, and makes events and database rows from that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spvfilter.kernel import Hit
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.canonical import Status, Verdict, canonical
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.confirmed import Identity
from spvfilter.wallet.events import MatchFound, MatchUnconfirmed, MatchWithdrawn, Reason, TxReplaced, WalletEvent
from spvfilter.wallet.facts import NO_HITS
from spvfilter.wallet.intake import Intake, Verify
from spvfilter.wallet.orphanage import Orphan
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.rows import row_of
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.watchlist import WatchList

CONFIRMED = Verdict(Status.CONFIRMED)
UNPROVEN = Completeness.UNPROVEN
_REASONS = {
    Status.REPLACED: Reason.REPLACED,
    Status.CONFLICTED: Reason.CONFLICT,
    Status.ABANDONED: Reason.ABANDONED,
    Status.REJECTED: Reason.REFUSED,
    Status.EXPIRED: Reason.EXPIRED,
}
_OPEN = (Status.CONFIRMED, Status.CANONICAL, Status.REPLACED, Status.WAITING)  # a block may still contain it


class Settlement(Intake):
    """Reports and writes the difference of verdicts and matches that an input made."""

    def __init__(self, watch: WatchList, limits: PendingLimits | None = None, verify: Verify | None = None) -> None:
        super().__init__(watch, limits, verify)
        self._changes = Changes(watch)
        self._counted: dict[bytes, dict[Identity, Hit]] = {}
        """Unconfirmed matches that count and were reported, by txid."""
        self.waiting: dict[bytes, None] = {}
        """Txids of the foreign transactions that wait for more evidence."""
        self._started_waiting: dict[bytes, None] = {}

    @property
    def has_started_waiting(self) -> bool:
        """True if `take_waiting` may return transactions."""
        return bool(self._started_waiting)

    def is_match(self, txid: bytes) -> bool:
        """True if an unconfirmed transaction matches the watch list."""
        return bool(self._hits.get(txid))

    @property
    def waiting_matches(self) -> int:
        """Number of the transactions among `waiting` that match the watch list."""
        return sum(map(self.is_match, self.waiting))

    def take_waiting(self) -> list[bytes]:
        """The txids of the foreign transactions that have begun to wait since the last call, and still do."""
        taken, self._started_waiting = [each for each in self._started_waiting if each in self.waiting], {}
        return taken

    @property
    def batch(self) -> Batch:
        """The changes that are not committed yet."""
        return self._changes.batch

    def match_of(self, hit: Hit, at: StoredMatch | None = None) -> Match:
        """The match of a hit. `at` has its place in a block."""
        block, height, sure, time = (None,) * 4 if at is None else at[1:]
        return self.watch.matches((hit,), block_hash=block, height=height, time=time, completeness=sure)[0]

    def _settle(
        self,
        touched: Iterable[bytes],
        disconnected: Mapping[Identity, StoredMatch] | None = None,
    ) -> list[WalletEvent]:
        """Judge the components of these transactions, and report and write every difference.

        Args:
            touched: Txids of records that changed or were removed.
            disconnected: Matches of disconnected blocks.
        """
        verdicts = dict[bytes, Verdict]()
        if rows := dict.fromkeys(touched):
            self._own = None
        expired = set[bytes]()
        for txid in tuple(rows):
            if txid in verdicts or txid not in self._graph:
                continue
            is_confirmed = txid not in self._unconfirmed
            if is_confirmed:
                verdicts[txid] = CONFIRMED
                if not self._unconfirmed:
                    continue
            component = self._graph.component(txid, self._best)
            if is_confirmed and component.records.keys() <= verdicts.keys():
                continue
            for record in self._unlinked(component.records):
                del component.records[record.txid]
                rows[record.txid] = None
                self._remove(record.txid)
                if record.active_drop is None:
                    self.orphans.put(Orphan(record, arrived=-1))
                else:
                    expired.add(record.txid)
            verdicts |= canonical(self._with_border(component), self._best)
        gone, found, replaced = list[WalletEvent](), list[WalletEvent](), list[WalletEvent]()
        for txid in [each for each in rows if each not in self._graph]:
            removed = Reason.EXPIRED if txid in expired else Reason.SIZELIMIT
            gone += self._report(txid, None, disconnected, removed)
            self._verdicts.pop(txid, None)
            self._changes.remove_tx(txid)
            self._note_own(txid)
            self.waiting.pop(txid, None)
        for txid in dict.fromkeys((*rows, *verdicts)):
            verdict, before = verdicts.get(txid), self._verdicts.get(txid)
            if verdict is None:
                continue
            self._verdicts[txid] = verdict
            self._note_waiting(txid, is_waiting=verdict.status is Status.WAITING and not self._is_own(txid))
            for event in self._report(txid, verdict, disconnected):
                (gone if isinstance(event, MatchWithdrawn) else found).append(event)
            is_new = before is None or before.conflicts_with != verdict.conflicts_with
            if verdict.status is Status.REPLACED and is_new and verdict.conflicts_with is not None:
                replaced.append(TxReplaced(txid, verdict.conflicts_with))
            self.pool.note_ended(txid, is_ended=verdict.status not in _OPEN)
            if verdict != before or txid in rows:
                self._write(txid)
        return [*replaced, *gone, *found]

    def _note_waiting(self, txid: bytes, *, is_waiting: bool) -> None:
        if not is_waiting:
            self.waiting.pop(txid, None)
        elif txid not in self.waiting:
            self.waiting[txid] = self._started_waiting[txid] = None

    def _report(
        self,
        txid: bytes,
        verdict: Verdict | None,
        disconnected: Mapping[Identity, StoredMatch] | None,
        removed: Reason = Reason.SIZELIMIT,
    ) -> Iterator[WalletEvent]:
        """Yield events for the changes to the unconfirmed matches of a transaction since the last report."""
        counted = self._counted.get(txid, NO_HITS)
        counts = verdict is not None and txid in self._unconfirmed and verdict.counts
        wanted = self._hits.get(txid, NO_HITS) if counts else NO_HITS
        if not counted and not wanted:
            self._counted.pop(txid, None)
            return
        if verdict is None:
            reason, by = removed, None
        else:
            reason, by = _REASONS.get(verdict.status, Reason.REORG), verdict.conflicts_with
            if verdict.status is Status.CONFLICTED and by is None:
                reason = Reason.REORG  # a coinbase, or a family that no block can contain
        gone = {mark: hit for mark, hit in counted.items() if mark not in wanted}
        new = {mark: hit for mark, hit in wanted.items() if mark not in counted}
        for mark, match in zip(gone, self.watch.matches(gone.values()), strict=True):
            self._changes.withdraw(mark)
            yield MatchWithdrawn(match, reason, by)
        for hit in new.values():
            self._changes.put_match(StoredMatch(hit, None, None, UNPROVEN))
        before = {} if disconnected is None else {mark: disconnected[mark] for mark in new.keys() & disconnected.keys()}
        for mark in [mark for mark in new if mark in before]:
            yield MatchUnconfirmed(self.match_of(before[mark].hit, before[mark]))
        yield from map(MatchFound, self.watch.matches(hit for mark, hit in new.items() if mark not in before))
        if wanted:
            self._counted[txid] = dict(wanted)
        else:
            self._counted.pop(txid, None)
        if wanted:
            self.watch.windows.see(hit for hit in wanted.values())

    def _write(self, txid: bytes) -> None:
        """Write the whole row of a transaction."""
        self._note_own(txid)
        record, verdict = self._graph.get(txid), self._verdicts.get(txid)
        if record is None or verdict is None:
            return
        hits = self._hits.get(txid, NO_HITS)
        anchor = record.anchor_in(self._best)
        is_found = anchor is not None and self._confirmed.has_tx(txid)
        is_listed = record.is_own or is_found or (record.has_evidence and bool(hits))
        row = row_of(
            record, self._status(txid), verdict.conflicts_with, anchor, tuple(hits.values()), is_listed=is_listed
        )
        self._changes.put_tx(txid, row)
