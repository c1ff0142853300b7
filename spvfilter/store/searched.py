"""Searched: which blocks have been searched for each entry of the watch list, in a compact form.

An entry's row id is higher than all earlier ones and is never reused. Adjacent entries that were searched for in the
same blocks form a group. A million addresses with the same start form a single group. Groups that become equal as
blocks are searched for all entries are joined.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.errors import StoreCorruptError

# Largest number of groups (our choice). Beyond that, neighbours are joined, keeping the blocks searched for both.
MAX_GROUPS = 256
_MAX_ID = 1 << 62  # row ids
_MAX_HEIGHT = (1 << 31) - 1
MAX_RANGES = 64  # largest number of ranges in a group; beyond that, the shortest count as not searched (our choice)


@public
class BlockRange(NamedTuple):
    """Consecutive blocks of the best chain."""

    first: int
    """Height of the first block."""
    last: int
    """Height of the last block, included in the range."""


Ranges = tuple[BlockRange, ...]  # ascending, with gaps between them


def join(ranges: Iterable[BlockRange]) -> Ranges:
    """Return the union of ranges."""
    joined: list[BlockRange] = []
    for each in sorted(ranges):
        if joined and each.first <= joined[-1].last + 1:
            joined[-1] = BlockRange(joined[-1].first, max(joined[-1].last, each.last))
        else:
            joined.append(each)
    return tuple(joined)


def cut(ranges: Ranges, height: int) -> Ranges:
    """Return the parts of ranges that are not above a height."""
    return tuple(BlockRange(first, min(last, height)) for first, last in ranges if first <= height)


def gaps(ranges: Ranges, last: int, first: int = 0) -> Ranges:
    """Return the heights from `first` to `last` that are not in any of the ranges."""
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
    """Return the heights that two lists of ranges have in common."""
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
    """Entries with consecutive row ids that were searched for in the same blocks."""

    id: int
    """Row id of the first entry. The group ends before the first entry of the next group."""
    ranges: Ranges
    """Blocks that have been searched, in ascending order."""


def _whole(number: object) -> int | None:
    return None if number is None else int(number)  # type: ignore[call-overload]  # of JSON: TypeError


@public
class Searched:
    """A record of the blocks that have been searched for each entry of a wallet.

    A block counts as searched for an entry if the wallet knows every output in it that pays the entry. It must also
    know every input that spends such an output from an earlier block that counts.
    """

    def __init__(self, groups: Sequence[EntryGroup] = (), start: int | None = None, next_id: int = 1) -> None:
        self._groups = list(groups)
        self.start = start
        """Height at which the wallet's first search began, or from which a later `rescan` started if that is lower.
        None before any search.
        """
        self.wanted: tuple[int | None, int | None] | None = None
        """While `start` is None, the height and time at which to start. If both are given, the search starts at the
        lower block.
        """
        self.next_id: int = next_id
        """Row id for the next entry."""
        # consecutive blocks that have been searched for all entries but are not in the groups yet
        self._fresh: BlockRange | None = None

    @classmethod
    def parse(cls, raw: bytes | None) -> Self:
        """Parse the result of `encode`, or None for a new database. Raises StoreCorruptError for anything else."""
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
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise StoreCorruptError(f"the searched blocks cannot be read: {ascii(error)[:200]}") from None
        if not found._is_sound():
            raise StoreCorruptError("the records of searched blocks contradict each other")
        return found

    def _is_sound(self) -> bool:
        """Return True if ids and ranges are in ascending order and within their bounds."""
        ids = [0, *(group.id for group in self._groups), self.next_id]
        heights = [self.start, *(self.wanted or ())[:1]]
        return (
            len(self._groups) <= MAX_GROUPS
            and all(a < b for a, b in pairwise(ids))
            and self.next_id < _MAX_ID
            and all(height is None or 0 <= height <= _MAX_HEIGHT for height in heights)
            and all(group.ranges == join(_bounded(group.ranges)) for group in self._groups)
            and all(0 <= first <= last <= _MAX_HEIGHT for group in self._groups for first, last in group.ranges)
        )

    def encode(self) -> bytes:
        """Return the record as bytes to store in the database."""
        wanted = [] if self.wanted is None else [self.wanted]
        return json.dumps([self.start, self.next_id, self.groups(), *wanted], separators=(",", ":")).encode("ascii")

    def groups(self) -> list[EntryGroup]:
        """Return the groups in ascending order of their ids."""
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
        """Return the blocks that have been searched for the entry with this row id."""
        groups = self.groups()
        at = bisect_right([group.id for group in groups], entry) - 1
        return groups[at].ranges if at >= 0 else ()

    def has(self, height: int) -> bool:
        """Return True if the block at a height has been searched for any entry."""
        return any(first <= height <= last for group in self.groups() for first, last in group.ranges)

    @property
    def lowest(self) -> int | None:
        """Height of the lowest block that has been searched for any entry, or None."""
        return min((ranges[0].first for _, ranges in self.groups() if ranges), default=None)

    def skipped(self, height: int) -> Ranges:
        """Return the blocks up to a height that have not been searched for every entry."""
        return join(gap for group in self.groups() for gap in gaps(group.ranges, height))

    # Changes

    def add_entries(self, number: int, like: int | None = None) -> int:
        """Add `number` entries, and return the row id of the first one.

        No blocks have been searched for them yet. If `like` is the row id of another entry, blocks that have been
        searched for that entry count for the new ones as well.
        """
        first = self.next_id
        self.next_id += number
        if number:
            self._set([*self.groups(), EntryGroup(first, () if like is None else self.ranges_of(like))])
        return first

    def keep_entries(self, ids: Iterable[int]) -> None:
        """Drop the groups that contain none of the entries with these row ids."""
        groups, ordered = self.groups(), sorted(ids)
        bounds = [*(bisect_left(ordered, group.id) for group in groups), len(ordered)]
        self._set(group for at, group in enumerate(groups) if bounds[at] < bounds[at + 1])

    def record(self, first: int, last: int) -> None:
        """Record that the blocks from height `first` to height `last` have been searched for all entries."""
        fresh = self._fresh
        if fresh is not None and fresh.last == first - 1:
            self._fresh = BlockRange(fresh.first, last)
            return
        self.groups()
        self._fresh = BlockRange(first, last)

    def cut(self, height: int) -> None:
        """Forget that blocks above a height were searched: they were disconnected, or their result is in doubt."""
        self._set(EntryGroup(first, cut(ranges, height)) for first, ranges in self.groups())

    def again(self, height: int, cursor: int) -> None:
        """Record that blocks above a height will be searched again. `cursor` is the searched height.

        If one of these blocks was skipped for a group, it may contain a coin whose spend was missed in a later block.
        For that group, no block above the height counts as searched any longer.
        """
        groups = self.groups()
        self._set(
            EntryGroup(first, cut(ranges, height) if gaps(ranges, cursor, height + 1) else ranges)
            for first, ranges in groups
        )
