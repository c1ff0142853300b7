"""The finished parts of an export of one chain.

Later plans reuse them as they are, and read only the blocks after them. The work of a plan therefore depends on the
number of new blocks, not on the length of the chain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spvfilter.errors import SourceError
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.gaps import UNWRITTEN, Heights, ScannedHeights, gaps_between, joined, ranges_of
from spvfilter.scan.order import ScanReport
from spvfilter.scan.partrows import PartRows
from spvfilter.scan.plan import Part, Plan, planned
from spvfilter.scan.rows import FLAGS_AT, HASH_AT, LONE, ROOTED, ROW, ROW_SIZE, UNKNOWN
from spvfilter.scan.sources import BlockFiles, BlockSpan
from spvfilter.scan.spool import BlockSpool, SpooledFiles
from spvfilter.scan.undomode import UndoMode


@dataclass(frozen=True, slots=True)
class FinishedPart:
    """A finished part that contains successive blocks of a chain."""

    part: Part
    """The part, as a plan represents it when the files of its blocks are gone."""
    first: int
    """Height of the first block."""
    lasts: tuple[str, ...]
    """Hash of the last block in each file of the part, as hex in wire order."""
    lacking: tuple[Heights, ...]
    """Heights of the blocks without an undo record, if other blocks of the part have one."""

    @classmethod
    def of(cls, rows: PartRows, number: int, network: str, following: int | None) -> FinishedPart:
        """Return a finished part. If another part precedes it, `following` is the height at which it must start.

        Raises SourceError if its heights are unknown or have a gap.
        """
        size, recorded, lacking = 0, False, list[int]()
        last: dict[int, tuple[int, bytes]] = {}
        begun = height = following
        for file, offset, block_size, _, _, own, block, _, undo, flags in ROW.iter_unpack(rows.rows):
            if begun is None or height is None:
                begun = height = own
            if own != height or own == UNKNOWN:
                raise SourceError(
                    "the heights of the blocks exported earlier are unknown or have gaps, so a node's blocks cannot"
                    " be appended to them: export into another directory"
                )
            last[file] = max(last.get(file, (0, block)), (offset, block))
            size, height = size + block_size, height + 1
            if undo:
                recorded = True
            elif not flags & LONE:
                lacking.append(own)
        assert begun is not None  # a part is never empty
        part = Part(number, network, (), rows.rows, rows.previous, {}, size, kept=rows.name)
        lasts = tuple(block.hex() for _, block in last.values())
        return cls(part, begun, lasts, tuple(ranges_of(lacking)) if recorded else ())

    @property
    def name(self) -> str:
        """Name of the part's file."""
        return self.part.kept

    @property
    def last(self) -> int:
        """Height of the last block."""
        return self.first + len(self.part) - 1

    def hash_at(self, height: int) -> bytes:
        """Return the hash of the block at a height, 32 bytes in wire order."""
        at = (height - self.first) * ROW_SIZE + HASH_AT
        return self.part.rows[at : at + HASH_SIZE]


class KnownBlocks:
    """The blocks that need not be fetched: those of the finished parts, and those in the spool above them."""

    def __init__(self, parts: Sequence[FinishedPart], spool: BlockSpool) -> None:
        self.parts = parts
        self._spool = spool
        ends = [parts[-1].last] if parts else []
        starts = [parts[0].first] if parts else []
        if spool:
            starts, ends = starts or [spool.first], [*ends, spool.last]
        self.first: int = starts[0] if starts else 0
        """Height of the first block, or 0 if there is none."""
        self.last: int = max(ends) if ends else self.first - 1
        """Height of the last block, or one below `first` if there is none."""

    def hash_at(self, height: int) -> bytes:
        """Return the hash of the block at a height, which must be known."""
        if not self.parts or height > self.parts[-1].last:
            return self._spool.hash_at(height)
        return self.parts[bisect_left(self.parts, height, key=lambda part: part.last)].hash_at(height)


def continued_plan(
    settled: Sequence[FinishedPart],
    folder: Path,
    network: Network,
    part_size: int,
    *,
    span: BlockSpan,
    mode: UndoMode,
) -> Plan:
    """Return a plan of finished parts and the blocks after them, which a spool keeps in a folder.

    The result equals the plan that `Plan.of` returns to continue the export with the spool's files, but no block of the
    finished parts is read. Raises the same errors as `Plan.of`.
    """
    rest_span = BlockSpan(None, span.to_height, None, span.to_time) if settled else span
    start = settled[-1].last + 1 if settled else 0
    files = SpooledFiles(BlockFiles(folder, undo=mode, span=rest_span), start)
    rest, _ = planned(files, network, part_size, None)
    if not settled:
        return rest
    is_rooted = bool(settled[-1].part.rows[-1] & ROOTED)
    parts = [each.part for each in settled]
    for part in rest.parts:
        rows = bytearray(part.rows)
        if is_rooted:
            rows[FLAGS_AT::ROW_SIZE] = bytes(flags | ROOTED for flags in rows[FLAGS_AT::ROW_SIZE])
        parts.append(replace(part, number=len(parts), rows=bytes(rows)))
    report = _report(settled, rest.report, span, reads_undo=mode is UndoMode.AUTO)
    return Plan(network, mode, str(span), tuple(parts), rest.stale, report)


def _report(settled: Sequence[FinishedPart], rest: ScanReport, span: BlockSpan, *, reads_undo: bool) -> ScanReport:
    """Return the report for a plan of finished parts and the blocks after them.

    `rest` is the report for those blocks.
    """
    last = rest.heights.found[-1][1] if rest.heights.found else settled[-1].last
    lacking = [
        (first, min(end, last - UNWRITTEN))
        for part in settled
        if reads_undo
        for first, end in part.lacking
        if first <= last - UNWRITTEN
    ]
    found = [(settled[0].first, last)]
    heights = ScannedHeights(
        tuple(found),
        tuple(gaps_between(found, span.last_height, span.first_height)),
        tuple(joined([*lacking, *rest.heights.without_undo])),
    )
    return replace(
        rest,
        blocks=rest.blocks + sum(len(part.part) for part in settled),
        bytes_total=(rest.bytes_total or 0) + sum(part.part.size for part in settled),
        segments=1,
        heights=heights,
    )
