"""Removal of entries from the watch list: which matches stay, and which are withdrawn.

A match stays if another entry also matches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from typing import Self

from spvfilter.kernel import NO_ENTRY, EntryKind, Hit
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.confirmed import ConfirmedMatches
from spvfilter.wallet.parts import Parts, counted
from spvfilter.watch.index import TxOutIndex


class Renumbering:
    """A watch list without some of its entries. The remaining entries get new numbers."""

    def __init__(
        self, watch: TxOutIndex, removed: Collection[int], name: str | None = None, stay: Sequence[int] = ()
    ) -> None:
        """Compute the remaining watch list. Another thread may do this, as long as the list's entries do not change.

        Args:
            watch: The watch list before the change.
            removed: Numbers of the entries to remove.
            name: Account that is removed along with these entries; None for no account.
            stay: Numbers of the account's entries that stay in the watch list.
        """
        self._removed = frozenset(removed)
        self.removed: list[int] = sorted(self._removed)
        """Numbers of the removed entries, in ascending order."""
        self.name: str | None = name
        """Account that is removed; None for no account."""
        self.stay: Sequence[int] = stay
        """Numbers of the account's entries that stay."""
        self._shifts = [number - below for below, number in enumerate(self.removed)]  # first new number after each
        self.left: TxOutIndex = watch.without_coins(self._removed, name)
        """The watch list without these entries. It contains outpoints only after `take_coins`."""
        entries = map(watch.table.entry, self.removed)
        self.scripts: list[bytes] = [value for kind, value in entries if kind == EntryKind.SCRIPT]
        """Scripts of the removed entries and, after `take_coins`, of the removed outpoints."""

    @classmethod
    def of_account(cls, watch: TxOutIndex, name: str) -> Self:
        """Compute the watch list without an account. Raises UnknownAccountError."""
        removed, stay = watch.entries_of_account(name)
        return cls(watch, removed, name, stay)

    def take_coins(self, watch: TxOutIndex) -> Parts[None]:
        """Copy the outpoints of the full watch list to the remaining one, in parts."""
        for (outpoint, coin), is_stop in counted(watch.table.coins()):
            if (script := self.left.take_coin(outpoint, coin, self.removed, self._removed)) is not None:
                self.scripts.append(script)
            if is_stop:
                yield

    def hit(self, hit: Hit) -> Hit | None:
        """Return the hit with the new number of a remaining entry that matches it; None if no entry does."""
        if hit.entry not in self._removed:
            below = bisect_left(self.removed, hit.entry)
            return Hit(*hit[:7], hit.entry - below, hit.fee) if below else hit  # three times as fast as _replace
        table = self.left.table
        number = table.find(EntryKind.OUTPOINT, hit.outpoint) if hit.spend else NO_ENTRY
        if number == NO_ENTRY and hit.script is not None:
            number = table.match_script(hit.script)
        return None if number == NO_ENTRY else hit._replace(entry=number)

    def account(self, number: int) -> str | None:
        """Return the account of a remaining entry after the change. `number` is the entry's old number."""
        return self.left.account(number - bisect_left(self.removed, number))

    def label(self, number: int) -> str | None:
        """Return the label of a remaining entry after the change. `number` is the entry's old number."""
        return self.left.label(number - bisect_left(self.removed, number))

    def under_old(self, hit: Hit) -> Hit:
        """Return the result of `hit` with the old number of its entry."""
        return hit._replace(entry=hit.entry + bisect_right(self._shifts, hit.entry))

    def ids(self, ids: Sequence[int]) -> list[int]:
        """Return the row ids of the remaining entries, indexed by their new numbers. `ids` are those of all entries."""
        left, first = list[int](), 0
        for number in self.removed:
            left += ids[first:number]
            first = number + 1
        left += ids[first:]
        return left

    def confirmed(self, matches: ConfirmedMatches) -> Parts[tuple[list[StoredMatch], list[StoredMatch]]]:
        """Renumber the confirmed matches, in parts.

        Returns the matches that stay because another entry also matches, with that entry's old number, and the
        matches to withdraw.
        """
        moved = list[StoredMatch]()
        for found, is_stop in counted(matches):
            if found.hit.entry in self._removed and (hit := self.hit(found.hit)) is not None:
                moved.append(found._replace(hit=self.under_old(hit)))
            if is_stop:
                yield
        return moved, (yield from matches.change(self.hit))
