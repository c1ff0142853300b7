"""Heights of a scan: the ranges that it covers, the missing ranges, and blocks without undo records."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from spvfilter._public import public

Heights = tuple[int, int]
"""A range of heights: the first one and the last one."""

UNWRITTEN = 10
"""Number of blocks below the tip whose undo records a running node may not have written yet (our choice)."""
NEWER_S = 86_400
"""Seconds by which a stale block must be newer than the best chain for that chain to count as cut off (our choice)."""


@public
@dataclass(frozen=True, slots=True)
class ScannedHeights:
    """The heights that a scan covered, and the missing heights."""

    found: tuple[Heights, ...] = ()
    """Ranges of heights with blocks, lowest first."""
    gaps: tuple[Heights, ...] = ()
    """Ranges of missing heights, up to the last block or the last requested height.

    Heights below the first block are missing only if they were requested.
    """
    without_undo: tuple[Heights, ...] = ()
    """Ranges of blocks without an undo record in files where other blocks have one. The last 10 blocks are not
    listed.
    """
    is_unplaced: bool = False
    """True if blocks are missing before a run of blocks, and the heights of that run are unknown."""
    is_cut: bool = False
    """True if a stale block is more than a day newer than the last block of the best chain."""
    begins_late: bool = False
    """True if the range begins at a time, and blocks of that time or later may be missing below the first one."""

    @property
    def is_whole(self) -> bool:
        """True if nothing is missing. Blocks before the first one are not a gap unless the range includes them."""
        return not (self.gaps or self.without_undo or self.is_unplaced or self.is_cut or self.begins_late)

    def sentences(self) -> list[str]:
        """Describe each missing part in one sentence."""
        told = [f"missing: {in_words(each)}" for each in self.gaps]
        told += [
            f"no undo record: {in_words(each)}; spends of older coins may be missing" for each in self.without_undo
        ]
        if self.begins_late:
            told.append(
                "earlier blocks may be missing, because even the first block is newer than the start of the range"
            )
        if self.is_unplaced:
            told.append("blocks are missing before a run of blocks, so the heights of that run are unknown")
        if self.is_cut:
            told.append(
                "the best chain ends more than a day before the newest block: are blocks missing after its end?"
            )
        return told


class PlacedBlock(NamedTuple):
    """The facts about a block on a best branch that a scan needs to find missing heights."""

    height: int | None
    """Height of the block; None if it is unknown."""
    file: int
    """Number of the file that contains the block."""
    has_undo: bool
    """True if the block has an undo record."""
    is_lone: bool
    """True if the coinbase is the only transaction of the block."""


@dataclass(slots=True)
class HeightLedger:
    """Collects the heights of a scan's blocks in chain order, and finds the missing ones."""

    heights: list[Heights] = field(default_factory=list)
    """Ranges of heights in the order of the blocks."""
    unknown: int = 0
    """Number of blocks whose height is unknown."""
    recorded: set[int] = field(default_factory=set)
    """Numbers of the files in which a block has an undo record."""
    lacking: dict[int, array[int]] = field(default_factory=dict)
    """For each file number, the heights of the blocks without an undo record."""

    def add(self, block: PlacedBlock) -> None:
        """Add the next block in chain order."""
        if block.has_undo:
            self.recorded.add(block.file)
        if block.height is None:
            self.unknown += 1
            return
        if not block.has_undo and not block.is_lone:
            self.lacking.setdefault(block.file, array("I")).append(block.height)
        if self.heights and block.height == self.heights[-1][1] + 1:
            self.heights[-1] = self.heights[-1][0], block.height
        else:
            self.heights.append((block.height, block.height))

    def result(
        self,
        *,
        to_height: int | None,
        segments: int,
        is_cut: bool,
        tip: int | None,
        from_height: int | None = None,
        begins_late: bool = False,
    ) -> ScannedHeights:
        """Return the heights that the blocks cover, and the missing ones.

        Args:
            to_height: The last requested height, or None if there is no limit.
            segments: Number of runs of linked blocks.
            is_cut: True if a stale block is much newer than the best chain.
            tip: Height of the last block of the best chain, if it is known. The node may not have written the undo
                records of the last 10 blocks.
            from_height: The first requested height, or None if there is no limit.
            begins_late: True if the range begins at a time, and blocks of that time or later may be missing below the
                first one.
        """
        found = joined(self.heights)
        lacking = (height for file in sorted(self.recorded) for height in self.lacking.get(file, ()))
        return ScannedHeights(
            tuple(found),
            tuple(gaps_between(found, to_height, from_height)),
            tuple(ranges_of(sorted(height for height in lacking if tip is None or height <= tip - UNWRITTEN))),
            segments > 1 and self.unknown > 0,
            is_cut,
            begins_late,
        )


def ranges_of(heights: Iterable[int]) -> list[Heights]:
    """Combine heights into the longest possible ranges, lowest first."""
    ranges: list[Heights] = []
    for height in heights:
        if ranges and height == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], height
        else:
            ranges.append((height, height))
    return joined(ranges)


def joined(ranges: Iterable[Heights]) -> list[Heights]:
    """Sort ranges, and join overlapping and adjacent ranges."""
    result: list[Heights] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(last, result[-1][1])
        else:
            result.append((first, last))
    return result


def gaps_between(found: list[Heights], to_height: int | None = None, from_height: int | None = None) -> list[Heights]:
    """Return the heights between `from_height` and `to_height` that are missing from `found`, a list of joined ranges.

    If a limit is None, the first or last height in `found` takes its place.

    The genesis block never counts as missing, because its coin cannot be spent.
    """
    gaps = [(last + 1, first - 1) for (_, last), (first, _) in pairwise(found)]
    if found and from_height is not None and found[0][0] > (begin := max(from_height, 1)):
        gaps.insert(0, (begin, found[0][0] - 1))
    if found and to_height is not None and to_height > found[-1][1]:
        gaps.append((found[-1][1] + 1, to_height))
    return gaps


def without(ranges: Iterable[Heights], gone: Iterable[Heights]) -> list[Heights]:
    """Remove the heights of the ranges `gone` from `ranges`. Both are sorted, lowest first."""
    removed, left = list(gone), []
    for first, last in ranges:
        at = first
        for begin, end in removed:
            if begin <= last and end >= at:
                if begin > at:
                    left.append((at, begin - 1))
                at = end + 1
        if at <= last:
            left.append((at, last))
    return left


def in_words(heights: Heights) -> str:
    """Describe a range of heights."""
    first, last = heights
    return f"height {first:,}" if first == last else f"heights {first:,} to {last:,}"
