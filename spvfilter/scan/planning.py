"""Planning: from block files to rows in chain order, cut into parts, in less than 100 bytes per block."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from spvfilter.errors import SourceError, counted
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.gaps import NEWER_S, HeightLedger, PlacedBlock, ScannedHeights
from spvfilter.scan.listing import ListedFiles
from spvfilter.scan.order import ScanReport
from spvfilter.scan.partrows import EarlierRun, PartRows, lost_block
from spvfilter.scan.rowancestry import RowLinker, RowLinks, RowOrder, RowRun, order_rows, roots_of
from spvfilter.scan.rows import FILE_NUMBER, FOLLOWS, HASH_AT, LONE, NOWHERE, ROOTED, ROW_SIZE, UNDO_AT, Rows
from spvfilter.scan.sources import BlockSpan
from spvfilter.scan.undo import UndoFile
from spvfilter.scan.undomode import UndoMode

_COPY = struct.Struct("<IQI")  # File, offset and size, at the start of a row.

MOST_BLOCKS = 1 << 14  # Most blocks in a part (our choice).

_PLACE_SIZE = 16  # Size in bytes of file, offset and size, at the start of a row.
_ONE = frozenset((0,))  # Machine 0 alone.

Spares = dict[int, list[bytes]]  # Rows of other copies of a block, keyed by the block's row number.


class Cut(NamedTuple):
    """The rows of one part of a plan, before the part is made."""

    rows: bytes
    """Rows of the part's blocks, 73 bytes each. The file numbers in them are indexes into `files`."""
    previous: dict[int, bytes]
    """Hash of the previous block, keyed by row number. It is omitted if that block is in the preceding row."""
    spares: dict[int, tuple[tuple[int, int, int], ...]]
    """Other copies of a row's block, keyed by row number: (file, offset, size) of each copy."""
    files: list[int]
    """For each file of the part, its number in the source."""
    size: int
    """Total size of the part's blocks, in bytes."""
    kept: str = ""
    """Name of the part's file from the earlier run if some of its block files are gone. Otherwise empty."""


class Planning:
    """The blocks of files in chain order. The constructor reads the headers, and `cuts` consumes the object.

    Blocks of an earlier run may be missing from the files only if all of them lie below the lowest block in the files.
    A node has then pruned them, and they stay in the plan. Their parts stay as the earlier run cut them.

    Raises SourceError if required undo records are missing, if the span of the files contains no blocks, or if other
    blocks of the earlier run are gone.
    """

    def __init__(self, files: ListedFiles, network: Network, earlier: EarlierRun | None = None) -> None:
        self.report: ScanReport = ScanReport()
        self.undo: dict[int, UndoFile] = {}  # undo file for each file number
        self._files = files
        self._kept: list[PartRows] = []  # parts of the earlier run some of whose blocks are gone
        self._kept_of = array("i")  # for each row, the number of its kept part, or NOWHERE; empty if no parts are kept
        links, self._spares = self._read(network, earlier)
        self._rows = links.rows
        order = order_rows(links, network)
        rows, report = self._rows, self.report
        report.stale = sorted(map(rows.hash, order.stale))
        report.unproven = [rows.hash(row) for row in order.unproven]
        report.segments = len(order.runs)
        for run in order.runs:
            if run.height is not None:
                for depth, row in enumerate(run.rows):
                    rows.set_height(row, run.height + depth)
        if self._kept:
            self._check_pruned(order)
        first = order.runs[0] if order.runs else None
        late = first is not None and not first.is_rooted and files.span.has_begun(rows.bits_and_time(first.rows[0])[1])
        runs = _within(order.runs, files.span, rows) if files.span.is_limited and order.runs else order.runs
        report.heights = self._heights(order, runs, files, begins_late=late)
        self.placed: int = sum(len(run.rows) for run in runs)
        report.blocks = self.placed
        report.bytes_total = sum(rows.place(row)[2] for run in runs for row in run.rows)
        if files.mode is UndoMode.REQUIRE:
            self._require_undo(runs)
        self._order = array("I")  # Rows on the best branches in chain order, then stale rows by their hashes.
        # Hash of the previous block for each index in that order, unless that block is at the preceding index.
        self._previous: dict[int, bytes] = {}
        self._arrange(runs, order.stale, links)

    def _heights(self, order: RowOrder, runs: list[RowRun], files: ListedFiles, *, begins_late: bool) -> ScannedHeights:
        """Return the heights that these runs cover, and the missing heights."""
        rows, ledger, reads_undo = self._rows, HeightLedger(), files.mode is UndoMode.AUTO
        for row in chain.from_iterable(run.rows for run in runs):
            has_undo = reads_undo and bool(rows.undo(row)[1])
            ledger.add(PlacedBlock(rows.height(row), rows.place(row)[0], has_undo, bool(rows.flags(row) & LONE)))
        last = max((rows.bits_and_time(row)[1] for run in order.runs for row in run.rows), default=0)
        return ledger.result(
            to_height=files.span.last_height,
            segments=len(order.runs),
            is_cut=any(rows.bits_and_time(row)[1] > last + NEWER_S for row in order.stale),
            tip=rows.height(order.runs[-1].rows[-1]) if order.runs else None,
            from_height=files.span.first_height,
            begins_late=begins_late,
        )

    def _read(self, network: Network, earlier: EarlierRun | None) -> tuple[RowLinks, Spares]:
        """Read the headers of all files, link them, and collect duplicates. Add the blocks of the earlier run."""
        linker, spares = RowLinker(), Spares()
        self.report.problems += self._files.missing
        for listing in self._files.listings(network):
            self.report.problems += listing.problems
            self.report.undo_problems += listing.undo_problems
            if listing.undo is not None:
                self.undo[listing.number] = listing.undo
            for raw, previous in listing:
                block = raw[HASH_AT : HASH_AT + HASH_SIZE]
                if (row := linker.find(block)) == NOWHERE:
                    linker.add(raw, block, previous)
                else:
                    self.report.duplicates.append(block)
                    spares.setdefault(row, []).append(raw)
        for row, copies in spares.items():
            _prefer_undo(linker.links.rows, row, copies)
        if earlier is not None and any(linker.find(block) == NOWHERE for block in earlier.lasts):
            for part in earlier.parts():
                self._remember(linker, part)
        return linker.links, spares

    def _remember(self, linker: RowLinker, part: PartRows) -> None:
        """Add the blocks of an earlier part that are no longer in any file. Their file gets its own number."""
        if all(linker.find(block) != NOWHERE for _, block, _ in part):
            return
        rows, number = linker.links.rows, FILE_NUMBER.pack(len(self._files) + len(self._kept))
        for raw, block, previous in part:
            row = linker.find(block)
            if row == NOWHERE:
                row = len(rows)
                linker.add(number + raw[FILE_NUMBER.size : -1] + bytes((raw[-1] & LONE,)), block, previous)
            self._kept_of.extend([NOWHERE] * (len(rows) - len(self._kept_of)))
            self._kept_of[row] = len(self._kept)
        self._kept.append(part)

    def _is_gone(self, row: int) -> bool:
        """Return True if the block is known from the earlier run, but no longer in any file."""
        return self._rows.place(row)[0] >= len(self._files)

    def _check_pruned(self, order: RowOrder) -> None:
        """Raise SourceError unless all blocks that are gone lie below all blocks in the files.

        If heights are unknown, all blocks must form one run, and their places in it are compared instead.
        """
        rows = self._rows
        known = {row: depth for depth, row in enumerate(order.runs[0].rows)} if order.runs[0].height is None else None
        highest, lowest = (-1, NOWHERE), len(rows) if known is not None else None
        for row in range(len(rows)):
            height = rows.height(row) if known is None else known.get(row)
            if self._is_gone(row):
                if height is None:
                    raise lost_block(rows.hash(row))
                highest = max(highest, (height, row))
            elif height is not None:
                lowest = height if lowest is None else min(lowest, height)
        if lowest is None or highest[0] >= lowest or (known is not None and len(order.runs) > 1):
            raise lost_block(rows.hash(highest[1]))

    def _require_undo(self, runs: list[RowRun]) -> None:
        """Raise SourceError if a block that spends coins has no undo record."""
        rows = self._rows
        lacking = [
            row
            for run in runs
            for row in run.rows
            if not rows.flags(row) & LONE and not rows.undo(row)[1] and not self._is_gone(row)
        ]
        if lacking:
            file, offset, _ = rows.place(lacking[0])
            why = "".join(f"; {problem}" for problem in self.report.undo_problems[:3])
            first = f"{self._files.file(file).path} at byte {offset}, block {hash_to_hex(rows.hash(lacking[0]))}"
            raise SourceError(
                f"undo data is required, but {len(lacking):,} of {self.placed:,} blocks have none; the first is"
                f" {first}{why}"
            )

    def _arrange(self, runs: list[RowRun], stale: list[int], links: RowLinks) -> None:
        """Fill in the order of the rows, the hashes of their previous blocks, and their flags."""
        rows, roots = self._rows, roots_of(links)

        def append(row: int, follows: bool, is_rooted: bool) -> None:
            if not follows:
                parent = links.parents[row]
                self._previous[len(self._order)] = roots[row] if parent == NOWHERE else rows.hash(parent)
            rows.add_flags(row, FOLLOWS * follows | ROOTED * is_rooted)
            self._order.append(row)

        for run in runs:
            for depth, row in enumerate(run.rows):
                append(row, depth > 0, run.is_rooted)
        last = NOWHERE
        for row in sorted(stale, key=rows.hash):
            append(row, last != NOWHERE and links.parents[row] == last, False)
            last = row

    def cuts(self, part_size: int) -> Iterator[tuple[bool, dict[int, Cut]]]:
        """Cut the rows into parts of about `part_size` bytes. A machine has a part if it has all the part's blocks.

        For each part, yields whether it is stale, and its form on each machine. Rows are released as they are taken.
        """
        kept, is_kept = len(self._order), bytearray(len(self._rows))
        spares: dict[int, list[bytes]] = {}
        for at, row in enumerate(self._order):
            is_kept[row] = 1
            if row in self._spares:
                spares[at] = self._spares[row]
        if self._kept:
            more = [NOWHERE] * (len(self._rows) - len(self._kept_of))
            self._kept_of.extend(more)
            self._kept_of = array("i", (self._kept_of[row] for row in self._order))
        self._order.extend(row for row in range(len(self._rows)) if not is_kept[row])
        self._rows.permute(self._order)
        for is_stale, start, end in ((False, 0, self.placed), (True, self.placed, kept)):
            at = start
            while at < end:
                if self._kept and self._kept_of[at] != NOWHERE:
                    part = self._kept[self._kept_of[at]]
                    yield is_stale, {0: self._keep(part, at, end, is_stale=is_stale)}
                    at += len(part)
                    continue
                stop = at + 1
                while self._kept and stop < end and self._kept_of[stop] == NOWHERE:
                    stop += 1
                for first, last, machines in self._ranges(at, stop if self._kept else end, part_size, spares):
                    yield is_stale, self._cut(first, last, spares, machines)
                at = stop if self._kept else end

    def _keep(self, part: PartRows, at: int, end: int, *, is_stale: bool) -> Cut:
        """Return a part of the earlier run unchanged.

        Raises SourceError if its blocks no longer follow one another on the best branches.
        """
        rows = self._rows.take(at, min(at + len(part), end))
        hashes = [bytes(rows[row + HASH_AT : row + UNDO_AT]) for row in range(0, len(rows), ROW_SIZE)]
        held = [block for _, block, _ in part]
        if is_stale or hashes != held:
            raise SourceError(
                f"a reorganization reaches the pruned block {hash_to_hex(held[0])} or the ones after it, so its part"
                " cannot be scanned again: scan into another directory"
            )
        size = sum(_COPY.unpack_from(part.rows, row)[2] for row in range(0, len(part.rows), ROW_SIZE))
        return Cut(part.rows, part.previous, {}, [], size, part.name)

    def _ranges(
        self, start: int, end: int, part_size: int, spares: Spares
    ) -> Iterator[tuple[int, int, frozenset[int]]]:
        """For each part, yield its first row, its last row + 1, and the machines that have its blocks."""
        first, size, having = start, 0, _ONE
        for at in range(start, end):
            more = self._rows.place(at)[2] + self._rows.undo(at)[1]
            here = self._machines(at, spares)
            if at > first and (size + more > part_size or at - first >= MOST_BLOCKS or here != having):
                yield first, at, having
                first, size = at, 0
            having = here
            size += more
        if first < end:
            yield first, end, having

    def _machines(self, at: int, spares: Spares) -> frozenset[int]:
        """Return the machines that have a block and its undo record.

        If no machine has an undo record of the block, return the machines that have the block.
        """
        if self._files.machines == 1:
            return _ONE
        raws = [self._rows[at], *spares.get(at, ())]
        recorded = [raw for raw in raws if _has_undo(raw)]
        return frozenset(self._files.machine(FILE_NUMBER.unpack_from(raw)[0]) for raw in recorded or raws)

    def _cut(self, first: int, last: int, spares: Spares, machines: frozenset[int]) -> dict[int, Cut]:
        """Return the part made of these rows, for each machine."""
        previous = {at - first: self._previous[at] for at in range(first, last) if at in self._previous}
        if 0 not in previous:
            previous[0] = self._rows.hash(first - 1)
        rows = self._rows.take(first, last)
        rows[ROW_SIZE - 1] &= ~FOLLOWS
        here = {at - first: spares[at] for at in range(first, last) if at in spares}
        copied = len(machines) > 1
        return {
            machine: self._on(machine, bytearray(rows) if copied else rows, previous, here)
            for machine in sorted(machines)
        }

    def _on(self, machine: int, rows: bytearray, previous: dict[int, bytes], spares: Spares) -> Cut:
        """Return the part made of these rows as one machine has it. The rows are modified."""
        numbers: dict[int, int] = {}  # number in the part for each file number in the source
        copies: dict[int, tuple[tuple[int, int, int], ...]] = {}
        size = 0
        for row in range(len(rows) // ROW_SIZE):
            at = row * ROW_SIZE
            others = spares.get(row, [])
            if others and self._files.machines > 1:
                own = bytes(rows[at : at + ROW_SIZE])
                others = [
                    raw for raw in (own, *others) if self._files.machine(FILE_NUMBER.unpack_from(raw)[0]) == machine
                ]
                chosen = others.pop(next((number for number, raw in enumerate(others) if _has_undo(raw)), 0))
                rows[at : at + _PLACE_SIZE] = chosen[:_PLACE_SIZE]
                rows[at + UNDO_AT : at + ROW_SIZE - 1] = chosen[UNDO_AT : ROW_SIZE - 1]
            file, _, block_size = _COPY.unpack_from(rows, at)
            size += block_size
            FILE_NUMBER.pack_into(rows, at, numbers.setdefault(file, len(numbers)))
            if others:
                places = map(_COPY.unpack_from, others)
                copies[row] = tuple(
                    (numbers.setdefault(copy, len(numbers)), offset, length) for copy, offset, length in places
                )
        return Cut(bytes(rows), previous, copies, list(numbers), size)


def _has_undo(raw: bytes) -> bool:
    """Return True if the row contains the place of an undo record."""
    return raw[ROW_SIZE - 5 : ROW_SIZE - 1] != bytes(4)


def _prefer_undo(rows: Rows, row: int, copies: list[bytes]) -> None:
    """Make a row describe a copy of its block that has an undo record, if there is such a copy."""
    if rows.undo(row)[1]:
        return
    for number, raw in enumerate(copies):
        if _has_undo(raw):
            before = rows[row]
            rows[row] = raw
            copies[:] = [before, *copies[:number], *copies[number + 1 :]]
            return


def _within(runs: list[RowRun], span: BlockSpan, rows: Rows) -> list[RowRun]:
    """Return the blocks in a range.

    Raises SourceError if the range contains no blocks, or if it is a range of heights and the height of a block is
    unknown.
    """
    placed = sum(len(run.rows) for run in runs)
    if span.from_height is not None or span.to_height is not None:
        unknown = sum(rows.height(row) is None for row in chain.from_iterable(run.rows for run in runs))
        if unknown:
            raise SourceError(f"the heights of {counted(unknown, 'block')} are unknown: omit the range of heights")
    kept: list[RowRun] = []
    for run in runs:
        left = array("I")
        for depth, row in enumerate(run.rows):
            if not span.has_height(rows.height(row)):
                continue
            time = rows.bits_and_time(row)[1]
            if span.is_past(time):
                break
            if left or span.has_time(time):
                if not left:
                    run.is_rooted = run.is_rooted and depth == 0
                left.append(row)
        if left:
            kept.append(RowRun(left, run.height, run.is_rooted))
    if not kept:
        raise SourceError(f"the range {span} contains none of the {placed:,} blocks")
    return kept
