"""Scan one part. The result depends only on the part's blocks and the watch list, not on other parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Self

from spvfilter._public import public
from spvfilter.chain import is_proven
from spvfilter.errors import FormatError, SourceError, UndoError, VanishedFileError
from spvfilter.kernel import ReadBuffer, WatchTable, check_block, count_hits
from spvfilter.network import Network
from spvfilter.scan.blockfile import BlockFile
from spvfilter.scan.order import BATCH_BLOCKS, BATCH_SIZE
from spvfilter.scan.partfile import BlockHits, PartSummary
from spvfilter.scan.plan import Part, PlannedBlock
from spvfilter.scan.remote import located
from spvfilter.scan.sources import BlockFiles, BlockRef, FileBlocks, Problem
from spvfilter.scan.threadwork import WorkStoppedError
from spvfilter.scan.undo import UndoPlace
from spvfilter.scan.undomode import UndoMode

_UNREADABLE = (FormatError, SourceError, OSError)


@public
@dataclass(frozen=True, slots=True)
class PartTask:
    """A part to scan, with the options of its scan."""

    part: Part
    """The part whose blocks are scanned."""
    path: Path
    """Path of the part's file, which the task writes."""
    key: bytes
    """Key of the task: 32 bytes that identify the part, the watch list and the options. The part's file contains the
    key.
    """
    undo: str
    """The mode that says how undo files are used: the value of an UndoMode."""
    check: bool
    """True to verify proof of work, merkle root and witness commitment of each block."""
    coins: Path | None
    """Path of a file of outpoints to watch in addition to the watch list, or None in a first pass."""

    def with_part(self, part: Part) -> Self:
        """Return the same task for another machine's copy of the part. The key stays the same."""
        return replace(self, part=part)

    @property
    def has_scan_key(self) -> bool:
        """True if the task contains a private scan key of silent payments."""
        return False

    def has_files(self) -> bool:
        """Return True if the other files of the task, next to the part's file, are complete. Raises OSError."""
        return True

    def scan(
        self, table: WatchTable, summary: PartSummary, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[BlockHits]:
        """Yield the hits of the part's blocks, in order, and fill in `summary`. Blocks without hits are omitted.

        Once `is_stopped` returns True, an internal error ends the scan. Raises SourceError if a required undo record
        cannot be used.
        """
        return scan_part(self, table, summary, is_stopped)


def task_key(part: Part, watch: bytes, coins: bytes, undo: str, check: bool) -> bytes:
    """Return the key of a task: SHA-256 of the part, the watch list, the outpoints and the options."""
    return sha256(b"spvfilter scan 1\0" + part.fingerprint + watch + coins + bytes((check,)) + undo.encode()).digest()


class PartBlocks(FileBlocks):
    """The blocks of a part and their undo records.

    If an undo record is not where the plan says, its file is listed again.
    """

    def __init__(self, part: Part, mode: str) -> None:
        self._files = [BlockFile(located(file.path), file.key, is_hex=file.is_hex) for file in part.files]
        self._part = part
        self._network = Network.named(part.network)
        self._again: dict[int, BlockFiles] = {}  # for each file, its blocks and undo records, listed again
        self._undo: dict[bytes, UndoPlace] = {}
        self.mode: UndoMode = UndoMode(mode)

    def plan_undo(self, block: PlannedBlock) -> None:
        """Record where, according to the plan, a block's undo record is."""
        beside = self._part.files[block.ref.file].undo
        if block.undo is not None and beside is not None:
            self._undo[block.ref.hash] = UndoPlace(block.ref.file, located(beside[0]), beside[1], *block.undo)

    def find_undo(self, ref: BlockRef) -> UndoPlace | None:
        return self._undo.get(ref.hash)

    def find_other_undo(self, ref: BlockRef, tried: Collection[UndoPlace]) -> UndoPlace | None:
        """Return another undo record for a block, after the records `tried` turned out to belong to other blocks.

        Other blocks keep their records.
        """
        again, alone = self._again.get(ref.file), _alone(ref)
        if again is None:
            again = self._again[ref.file] = BlockFiles(self._part.files[ref.file].path, undo=self.mode)
            for _ in again.index(self._network):
                pass  # lists the blocks and pairs them with undo records
        found = again.find_undo(alone)
        if found is not None and found._replace(number=ref.file) in tried:
            again.pair_again(alone, found)
            found = again.find_undo(alone)
        place = None if found is None else found._replace(number=ref.file)
        return None if place in tried else place


def vanished(where: str) -> VanishedFileError:
    """Return the error for a file that has disappeared since the plan was made."""
    return VanishedFileError(f"{where}: the file has disappeared since the blocks were listed: plan and run again")


def _alone(ref: BlockRef) -> BlockRef:
    """Return the same block with the file number that it has if its file is listed alone."""
    return BlockRef(0, ref.offset, ref.size, ref.hash, ref.previous, ref.bits, ref.time, ref.height, ref.transactions)


@dataclass(frozen=True, slots=True)
class _Row:
    """A block of a part, and its number within the part."""

    number: int
    """Number of the block in its part."""
    block: PlannedBlock
    """The block to scan."""


def scan_part(
    task: PartTask, table: WatchTable, summary: PartSummary, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[BlockHits]:
    """Yield the hits of a part's blocks, in order, and fill in `summary`. Blocks without hits are omitted.

    Raises WorkStoppedError once `is_stopped` returns True, SourceError if a required undo record cannot be used, and
    VanishedFileError if a file has disappeared since the plan was made.
    """
    return PartScanner(task, table, summary).run(is_stopped)


class PartScanner:
    """Scans one part."""

    def __init__(self, task: PartTask, table: WatchTable, summary: PartSummary) -> None:
        self._task = task
        self._table = table
        self._summary = summary
        self._source = PartBlocks(task.part, task.undo)
        self._buffer = ReadBuffer()

    def run(self, is_stopped: Callable[[], bool]) -> Iterator[BlockHits]:
        for batch in self._batches():
            if is_stopped():
                raise WorkStoppedError
            together = self.together(batch)
            for number, row in enumerate(batch):
                try:
                    packed, by_undo = self._alone(row) if together is None else together[number]
                except _LackingError as error:
                    raise SourceError(str(error)) from error
                if packed is None:
                    continue
                self._count(row.block, by_undo)
                if packed:
                    ref = row.block.ref
                    self._summary.matches += count_hits(packed)
                    yield BlockHits(ref.hash, ref.height, ref.time, packed)

    def _batches(self) -> Iterator[list[_Row]]:
        """Yield the blocks in batches, each of which a single kernel call scans."""
        batch: list[_Row] = []
        size = 0
        for number, block in enumerate(self._task.part.blocks()):
            if self._source.mode is not UndoMode.OFF:
                self._source.plan_undo(block)
            more = block.ref.size + self._source.undo_size(block.ref)
            if batch and (size + more > BATCH_SIZE or len(batch) >= BATCH_BLOCKS):
                yield batch
                batch, size = [], 0
            batch.append(_Row(number, block))
            size += more
        if batch:
            yield batch

    def together(self, batch: Sequence[_Row]) -> list[tuple[bytes | None, bool]] | None:
        """Scan a batch in a single kernel call. Return None if a block is invalid.

        Returns:
            For each block, its packed hits, and whether its undo record was used.
        """
        refs = [row.block.ref for row in batch]
        if self._task.check and not all(map(is_proven, refs)):
            return None
        with self._source.opened(refs) as places, self._source.opened_undo(refs) as undo:
            if places is None:
                return None
            outcomes = self._table.scan_files(places, self._buffer, None, self._task.check, undo, packed=True)
        packed = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
        if len(packed) < len(batch):
            return None
        return [(hits, undo is not None and undo[number] is not None) for number, hits in enumerate(packed)]

    def _alone(self, row: _Row) -> tuple[bytes | None, bool]:
        """Scan the first valid copy of one block. The packed hits are None if no copy is valid."""
        gone: BlockRef | None = None
        for ref in self._task.part.copies(row.number, row.block.ref):
            try:
                raw = self._source.read(ref)
                if self._task.check:
                    if not is_proven(ref):
                        raise FormatError("the block's hash is above its target", offset=72, field="bits")
                    check_block(raw)
                return self._hits(ref, raw)
            except FileNotFoundError:
                gone = ref
            except VanishedFileError:
                raise
            except _UNREADABLE as error:
                self._summary.problems.append(str(Problem.of(self._source.name(ref), error)))
        if gone is not None:
            raise vanished(self._source.name(gone))
        return None, False

    def _hits(self, ref: BlockRef, raw: bytes) -> tuple[bytes, bool]:
        """Return the packed hits of a block, and whether its undo record was used."""
        place, first = self._source.find_undo(ref), None
        tried: list[UndoPlace] = []
        while place is not None:
            try:
                return self.scan_alone(raw, place.read()), True
            except FileNotFoundError:
                raise vanished(f"the undo record of the block in {self._source.name(ref)}") from None
            except (UndoError, SourceError, OSError) as error:
                first = first or error
                tried.append(place)
            place = self._source.find_other_undo(ref, tried)
        if first is not None:
            problem = Problem.of(f"{self._source.name(ref)}: its undo record", first)
            if self._source.mode is UndoMode.REQUIRE:
                raise _LackingError(f"{problem.where} cannot be used: {problem.message}") from first
            self._summary.undo_problems.append(str(problem))
        return self.scan_alone(raw, None), False

    def scan_alone(self, raw: bytes, undo: bytes | None) -> bytes:
        """Return the packed hits of a block. Raises FormatError if it is malformed."""
        (outcome,) = self._table.scan_blocks([raw], None, False, [undo], packed=True)
        if isinstance(outcome, FormatError):
            raise outcome
        return outcome

    def _count(self, block: PlannedBlock, by_undo: bool) -> None:
        """Count a scanned block in the summary."""
        self._summary.blocks += 1
        self._summary.bytes_scanned += block.ref.size
        self._summary.by_undo += by_undo
        if not by_undo and not block.is_lone:
            self._summary.by_outpoint += 1
            self._summary.unseen += not block.is_rooted


class _LackingError(Exception):
    """A required undo record cannot be used, so the scan stops."""
