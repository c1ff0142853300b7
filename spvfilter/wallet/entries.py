"""Removal of entries from the watch list: which matches another entry keeps, and which are withdrawn."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from spvfilter.kernel import NO_ENTRY, EntryKind, Hit
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.confirmed import ConfirmedMatches
from spvfilter.watch.watchlist import WatchList


class Renumbering:
    """A watch list without some of its entries. The remaining entries get new numbers."""

    def __init__(self, watch: WatchList, removed: Collection[int], account: str | None = None) -> None:
        """With `account`, the watch list loses this account with its keychains, and `removed` has its entries."""
        self._removed = frozenset(removed)
        self._ordered = sorted(self._removed)
        self._shifts = [number - below for below, number in enumerate(self._ordered)]  # first new number behind each
        self.left: WatchList = watch.without_entries(self._removed, account)
        """The watch list without these entries."""

    def hit(self, hit: Hit) -> Hit | None:
        """The hit under the new number of an entry that it matches; None if it matches no remaining entry."""
        if hit.entry not in self._removed:
            return hit._replace(entry=hit.entry - bisect_left(self._ordered, hit.entry))
        table = self.left.table
        number = table.find(EntryKind.OUTPOINT, hit.outpoint) if hit.spend else NO_ENTRY
        if number == NO_ENTRY and hit.script is not None:
            number = table.match_script(hit.script)
        return None if number == NO_ENTRY else hit._replace(entry=number)

    def account(self, number: int) -> str | None:
        """The account of a remaining entry after the change, by its old number."""
        return self.left.account(number - bisect_left(self._ordered, number))

    def label(self, number: int) -> str | None:
        """The label of a remaining entry after the change, by its old number."""
        return self.left.label(number - bisect_left(self._ordered, number))

    def under_old(self, hit: Hit) -> Hit:
        """A hit that `hit` returned, under the old number of its entry."""
        return hit._replace(entry=hit.entry + bisect_right(self._shifts, hit.entry))

    def ids(self, ids: Sequence[int]) -> list[int]:
        """The ids, by number, of the remaining entries."""
        starts = [0, *(number + 1 for number in self._ordered)]
        return [row for first, end in zip(starts, [*self._ordered, len(ids)], strict=True) for row in ids[first:end]]

    def confirmed(self, matches: ConfirmedMatches) -> tuple[list[StoredMatch], list[StoredMatch]]:
        """Renumber the confirmed matches.

        Returns matches that another entry keeps, under its old number, and matches that no entry keeps.
        """
        moved = [
            found._replace(hit=self.under_old(hit))
            for found in matches
            if found.hit.entry in self._removed and (hit := self.hit(found.hit)) is not None
        ]
        return moved, matches.change(self.hit)
