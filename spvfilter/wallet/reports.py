"""Reports: events about unconfirmed matches, and which matches count and have been reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.confirmed import Identity, identity
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import MatchFound, MatchUnconfirmed, MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.facts import Facts
from spvfilter.wallet.hits import NO_HITS, Hits
from spvfilter.wallet.parts import pieces
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.match import Completeness, Match

UNPROVEN = Completeness.UNPROVEN
_REASONS = {
    Status.REPLACED: Reason.REPLACED,
    Status.CONFLICTED: Reason.CONFLICT,
    Status.ABANDONED: Reason.ABANDONED,
    Status.REJECTED: Reason.REFUSED,
    Status.EXPIRED: Reason.EXPIRED,
}


class Reports:
    """Reports and writes how unconfirmed matches change with the verdicts."""

    def __init__(self, watch: TxOutIndex, facts: Facts, hits: Hits, changes: Changes) -> None:
        self._watch = watch
        self._facts = facts
        self._hits = hits
        self._changes = changes
        self._counted: dict[bytes, dict[Identity, Hit]] = {}
        """Unconfirmed matches that count and have been reported, by txid."""

    def load(self, hit: Hit) -> None:
        """Load an unconfirmed match from the database."""
        self._counted.setdefault(hit.txid, {})[identity(hit)] = hit

    def counted(self, txid: bytes) -> Mapping[Identity, Hit]:
        """Return those of a transaction's unconfirmed matches that count and have been reported."""
        return self._counted.get(txid, NO_HITS)

    def is_uncounted(self, txid: bytes) -> bool:
        """True if no match of this transaction has been reported as unconfirmed since its last withdrawal."""
        return txid not in self._counted

    def match_of(self, hit: Hit, at: StoredMatch | None = None) -> Match:
        """Return the match for a hit. `at` is its place in a block; None if it is unconfirmed."""
        block, height, sure, time = (None,) * 4 if at is None else at[1:]
        return self._watch.matches((hit,), block_hash=block, height=height, time=time, completeness=sure)[0]

    def confirm(self, mark: Identity) -> bool:
        """Record that a block contains a match. Returns True if the match had been reported as unconfirmed."""
        counted = self._counted.get(mark.txid, {})
        return counted.pop(mark, None) is not None

    def report(
        self,
        txid: bytes,
        verdict: Verdict | None,
        disconnected: Mapping[Identity, StoredMatch] | None,
        removed: Reason = Reason.SIZELIMIT,
    ) -> Iterator[WalletEvent]:
        """Yield events for the changes to a transaction's unconfirmed matches since the last report."""
        counted = self._counted.get(txid, NO_HITS)
        counts = verdict is not None and self._facts.is_without_block(txid) and verdict.counts
        wanted = self._hits.of(txid) if counts else NO_HITS
        if not counted and not wanted:
            self._counted.pop(txid, None)
            return
        if counted.keys() == wanted.keys():  # the usual case, because the whole component is judged for one transaction
            self._counted[txid] = dict(wanted)
            self._watch.windows.see(wanted.values())
            return
        if verdict is None:
            reason, by = removed, None
        else:
            reason, by = _REASONS.get(verdict.status, Reason.REORG), verdict.conflicts_with
            if verdict.status is Status.CONFLICTED and by is None:
                reason = Reason.REORG  # a coinbase, or a family that no block can contain
        gone = {mark: hit for mark, hit in counted.items() if mark not in wanted}
        new = {mark: hit for mark, hit in wanted.items() if mark not in counted}
        for piece in pieces(gone.items()):
            for (mark, _), match in zip(piece, self._watch.matches(hit for _, hit in piece), strict=True):
                self._changes.withdraw(mark)
                yield MatchWithdrawn(match, reason, by)
        for hit in new.values():
            self._changes.put_match(StoredMatch(hit, None, None, UNPROVEN))
        before = {} if disconnected is None else {mark: disconnected[mark] for mark in new.keys() & disconnected.keys()}
        for mark in [mark for mark in new if mark in before]:
            yield MatchUnconfirmed(self.match_of(before[mark].hit, before[mark]))
        for fresh in pieces(hit for mark, hit in new.items() if mark not in before):
            yield from map(MatchFound, self._watch.matches(fresh))
        if wanted:
            self._counted[txid] = dict(wanted)
        else:
            self._counted.pop(txid, None)
        self._watch.windows.see(wanted.values())

    def renumber(self, change: Renumbering, left: Mapping[bytes, Mapping[Identity, Hit]]) -> list[MatchWithdrawn]:
        """Withdraw the reported matches that no longer match any entry, and store the others under their new entries.

        Args:
            change: The removal of entries.
            left: The remaining matches of each unconfirmed transaction, with their new entries.
        """
        gone = list[Hit]()
        for txid, hits in left.items():
            counted = self.counted(txid)
            for mark, hit in counted.items():
                if mark in hits:
                    self._changes.put_match(StoredMatch(change.under_old(hits[mark]), None, None, UNPROVEN))
                else:
                    gone.append(hit)
                    self._changes.withdraw(mark)
            self._counted[txid] = {mark: hits[mark] for mark in counted if mark in hits}
        return self.withdrawn(gone)

    def withdrawn(self, hits: Iterable[Hit]) -> list[MatchWithdrawn]:
        """Return events that withdraw unconfirmed matches because their entries were removed."""
        return [MatchWithdrawn(match, Reason.REMOVED) for match in self._watch.matches(hits)]
