"""Which blocks were searched for which entries of the watch list, in a few numbers however many entries there are.

An entry's row in the database has an id, which ascends and is never given twice. Entries that follow each other and
were searched for in the same blocks are one group: a wallet with a million addresses and one start is one group. Groups
that become equal, since blocks are searched for all entries, are joined.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

from spvfilter._public import deferred, public

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

MAX_GROUPS = 256  # ours; beyond, neighbours are joined, and only what was searched for both counts
MAX_RANGES = 64  # of a group; ours; beyond, the shortest counts as not searched


@public
class BlockRange(NamedTuple):
    """Successive blocks of the best chain, by height, both included."""

    first: int
    last: int


Ranges = tuple[BlockRange, ...]  # ascending, apart from each other


def join(ranges: Iterable[BlockRange]) -> Ranges:
    """The heights of all these ranges."""
    joined: list[BlockRange] = []
    for each in sorted(ranges):
        if joined and each.first <= joined[-1].last + 1:
            joined[-1] = BlockRange(joined[-1].first, max(joined[-1].last, each.last))
        else:
            joined.append(each)
    return tuple(joined)


def cut(ranges: Ranges, height: int) -> Ranges:
    """Those heights that are not above one."""
    return tuple(BlockRange(first, min(last, height)) for first, last in ranges if first <= height)


def gaps(ranges: Ranges, last: int, first: int = 0) -> Ranges:
    """The heights from `first` to `last` that are in none of the ranges."""
    found: list[BlockRange] = []
    for each in ranges:
        if each.last < first:
            continue
        if each.first > first:
            found.append(BlockRange(first, min(each.first - 1, last)))
        first = each.last + 1
    found.append(BlockRange(first, last))
    return tuple(each for each in found if each.first <= each.last)


def common(one: Ranges, other: Ranges) -> Ranges:
    """The heights that are in both."""
    pairs = (BlockRange(max(a.first, b.first), min(a.last, b.last)) for a in one for b in other)
    return tuple(sorted(each for each in pairs if each.first <= each.last))


def _count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _bounded(ranges: Ranges) -> Ranges:
    kept = list(ranges)
    while len(kept) > MAX_RANGES:
        kept.remove(min(kept, key=lambda each: each.last - each.first))
    return tuple(kept)


@public
class EntryGroup(NamedTuple):
    """Entries with ids from one on, up to the next group's."""

    id: int
    ranges: Ranges


def _whole(number: object) -> int | None:
    return None if number is None else int(number)  # type: ignore[call-overload]  # of JSON: TypeError


@public
class Searched:
    """The groups of a wallet's entries, the wallet's start, and the next id.

    A block counts as searched for an entry if every output in it that pays the entry is in the books, and so is every
    input that spends an output which was found in an earlier block that counts.
    """

    def __init__(self, groups: Sequence[EntryGroup] = (), start: int | None = None, next_id: int = 1) -> None:
        self._groups = list(groups)
        self.start = start  # height at which the wallet's first search began, or a later, lower one; None before
        self.wanted: tuple[int | None, int | None] | None = (
            None  # before that: a height and a time, at the lower of which it is to begin
        )
        self.next_id = next_id
        self._fresh: BlockRange | None = (
            None  # successive blocks searched for all entries, which the groups do not have yet
        )

    @classmethod
    def parse(cls, raw: bytes | None) -> Self:
        """From the database. Raises ValueError for what `encode` does not write."""
        if raw is None:
            return cls()
        try:
            start, next_id, groups, *wanted = json.loads(raw)
            made = [
                EntryGroup(int(first), tuple(BlockRange(int(low), int(high)) for low, high in ranges))
                for first, ranges in groups
            ]
            found = cls(made, _whole(start), int(next_id))
            if wanted:
                ((height, birthday),) = wanted
                found.wanted = _whole(height), _whole(birthday)
            return found
        except (TypeError, KeyError) as error:
            raise ValueError(str(error)) from None

    def encode(self) -> bytes:
        """For the database."""
        wanted = [] if self.wanted is None else [self.wanted]
        return json.dumps([self.start, self.next_id, self.groups(), *wanted], separators=(",", ":")).encode("ascii")

    def groups(self) -> list[EntryGroup]:
        """The groups, by ascending id."""
        if self._fresh is not None:
            fresh, self._fresh = self._fresh, None
            self._set(EntryGroup(first, join([*ranges, fresh])) for first, ranges in self._groups)
        return self._groups

    def _set(self, groups: Iterable[EntryGroup]) -> None:
        joined: list[EntryGroup] = []
        for first, ranges in groups:
            if not joined or joined[-1].ranges != ranges:
                joined.append(EntryGroup(first, _bounded(ranges)))
        while len(joined) > MAX_GROUPS:
            losses = [
                _count(a.ranges) + _count(b.ranges) - 2 * _count(common(a.ranges, b.ranges))
                for a, b in pairwise(joined)
            ]
            at = losses.index(min(losses))
            joined[at : at + 2] = [EntryGroup(joined[at].id, common(joined[at].ranges, joined[at + 1].ranges))]
        self._groups = joined

    def ranges_of(self, entry: int) -> Ranges:
        """The blocks that were searched for the entry with an id."""
        groups = self.groups()
        at = bisect_right([group.id for group in groups], entry) - 1
        return groups[at].ranges if at >= 0 else ()

    def has(self, height: int) -> bool:
        """Whether a block was searched for any entry."""
        return any(first <= height <= last for group in self.groups() for first, last in group.ranges)

    @property
    def lowest(self) -> int | None:
        """The lowest block that was searched for any entry; None if there is none."""
        return min((ranges[0].first for _, ranges in self.groups() if ranges), default=None)

    def skipped(self, height: int) -> Ranges:
        """The blocks up to a height that were not searched for every entry."""
        return join(gap for group in self.groups() for gap in gaps(group.ranges, height))

    # Changes

    def add_entries(self, number: int) -> int:
        """Entries are added, for which nothing was searched; the id of the first, which the others follow."""
        first = self.next_id
        self.next_id += number
        if number:
            self._set([*self.groups(), EntryGroup(first, ())])
        return first

    def keep_entries(self, ids: Iterable[int]) -> None:
        """Of all entries only those with these ids are left: groups without an entry go."""
        groups = self.groups()
        bounds = [group.id for group in groups]
        left = {bisect_right(bounds, each) for each in ids}
        self._set(group for at, group in enumerate(groups, 1) if at in left)

    def record(self, first: int, last: int) -> None:
        """Blocks were searched for all entries."""
        fresh = self._fresh
        if fresh is not None and fresh.last == first - 1:
            self._fresh = BlockRange(fresh.first, last)
            return
        self.groups()
        self._fresh = BlockRange(first, last)

    def cut(self, height: int) -> None:
        """The blocks above a height left the best chain, or what was found in them is in doubt."""
        self._set(EntryGroup(first, cut(ranges, height)) for first, ranges in self.groups())

    def again(self, height: int, cursor: int) -> None:
        """Blocks above a height, up to a cursor above it, are searched again.

        Where one of them was skipped, a coin may be found there whose spend was overlooked further up: what is above
        counts no more.
        """
        groups = self.groups()
        self._set(
            EntryGroup(first, cut(ranges, height) if gaps(ranges, cursor, height + 1) else ranges)
            for first, ranges in groups
        )
