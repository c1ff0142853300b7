"""The blocks of a part as columns, batch by batch. Undo records and other copies of blocks are used as in a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spvfilter.chain import is_proven
from spvfilter.errors import FormatError, SourceError, UndoError, VanishedFileError
from spvfilter.hashes import sha256d
from spvfilter.kernel import Place, block_columns, check_block, read_at
from spvfilter.kernel.blocktables import NO_HEIGHT, ColumnBuffers
from spvfilter.network import Network
from spvfilter.protocol import HEADER_SIZE, MAX_BLOCK_SIZE
from spvfilter.scan.order import BATCH_BLOCKS, BATCH_SIZE
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.parts import PartBlocks, vanished
from spvfilter.scan.plan import Part, PlannedBlock
from spvfilter.scan.sources import BlockRef, Problem
from spvfilter.scan.threadwork import WorkStoppedError
from spvfilter.scan.undo import UndoPlace
from spvfilter.scan.undomode import UndoMode

_UNREADABLE = (FormatError, SourceError, OSError)

Columns = list[ColumnBuffers]
"""The columns of a batch, in the order of their names."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A block of a part, and its number within the part."""

    number: int
    """Number of the block in its part."""
    block: PlannedBlock
    """The block to decode."""


class PartColumns:
    """Decodes the blocks of a part.

    Args:
        part: The part.
        names: The kernel's names of the columns.
        undo: The mode that says how undo files are used: the value of an UndoMode.
        check: True to verify proof of work, merkle root and witness commitment of each block.
        summary: The summary, which counts the blocks and collects their problems as they are decoded.
        hits: The packed hits of blocks, keyed by block hash in wire order. If given, only these blocks are decoded, and
            only transactions with hits get rows. None for all blocks and transactions.
    """

    def __init__(
        self,
        part: Part,
        names: Sequence[str],
        undo: str,
        check: bool,
        summary: PartSummary,
        hits: Mapping[bytes, bytes] | None = None,
    ) -> None:
        network = Network.named(part.network)
        self._address_forms = network.p2pkh_version, network.p2sh_version, network.hrp
        self._part = part
        self._names = names
        self._check = check
        self._summary = summary
        self._source = PartBlocks(part, undo)
        self._hits = hits

    def batches(self, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[tuple[list[BlockRef], Columns]]:
        """Yield the blocks of each batch with their columns. Blocks without a valid copy are omitted.

        Raises WorkStoppedError once `is_stopped` returns True, and SourceError if a required undo record cannot be
        used.
        """
        for batch in self._cut():
            if is_stopped():
                raise WorkStoppedError
            columns = self._decode_together(batch)
            if columns is not None:
                yield [row.block.ref for row in batch], columns
                continue
            for row in batch:
                columns = self._decode_alone(row)
                if columns is not None:
                    yield [row.block.ref], columns

    def _cut(self) -> Iterator[list[_Row]]:
        """Yield the wanted blocks in batches, each of which a single kernel call decodes."""
        batch: list[_Row] = []
        size = 0
        for number, block in enumerate(self._part.blocks()):
            if self._hits is not None and block.ref.hash not in self._hits:
                continue
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

    def _decode_together(self, batch: Sequence[_Row]) -> Columns | None:
        """Decode a batch in a single kernel call. Return None if a block or a record is invalid."""
        refs = [row.block.ref for row in batch]
        try:
            raws, records = self._read(refs)
            if self._check:
                for ref, raw in zip(refs, raws, strict=True):
                    _verify(ref, raw)
            columns = self._columns(refs, raws, records)
        except _UNREADABLE:
            return None
        for row, record in zip(batch, records, strict=True):
            self._count(row.block, record is not None)
        return columns

    def _read(self, refs: Sequence[BlockRef]) -> tuple[list[bytes], list[bytes | None]]:
        """Read blocks and their undo records. Raises SourceError or OSError."""
        with self._source.opened(refs) as places, self._source.opened_undo(refs) as undo:
            raws = [
                self._source.read(ref) if places is None else _read_at(places[number])
                for number, ref in enumerate(refs)
            ]
            records: list[bytes | None] = [None] * len(refs)
            for number, ref in enumerate(refs):
                place = self._source.find_undo(ref)
                at = None if undo is None else undo[number]
                if place is not None:
                    records[number] = place.read() if at is None or at.size > MAX_BLOCK_SIZE else _read_at(at)
        if any(sha256d(raw[:HEADER_SIZE]) != ref.hash for raw, ref in zip(raws, refs, strict=True)):
            raise SourceError("the file changed while it was being read")
        return raws, records

    def _columns(self, refs: Sequence[BlockRef], raws: list[bytes], records: list[bytes | None]) -> Columns:
        """Return the columns of blocks. Raises FormatError, and UndoError if a record belongs to another block."""
        heights = [NO_HEIGHT if ref.height is None else ref.height for ref in refs]
        hits = None if self._hits is None else [self._hits[ref.hash] for ref in refs]
        made = block_columns(raws, records, heights, self._names, *self._address_forms, hits)
        return [ColumnBuffers(*each) for each in made]

    def _decode_alone(self, row: _Row) -> Columns | None:
        """Decode one block from its first valid copy. Return None if no copy is valid."""
        gone: BlockRef | None = None
        for ref in self._part.copies(row.number, row.block.ref):
            try:
                raw = self._source.read(ref)
                if self._check:
                    _verify(ref, raw)
                columns, by_undo = self._decode(ref, raw)
            except FileNotFoundError:
                gone = ref
                continue
            except VanishedFileError:
                raise
            except _UNREADABLE as error:
                self._summary.problems.append(str(Problem.of(self._source.name(ref), error)))
                continue
            self._count(row.block, by_undo)
            return columns
        if gone is not None:
            raise vanished(self._source.name(gone))
        return None

    def _decode(self, ref: BlockRef, raw: bytes) -> tuple[Columns, bool]:
        """Return the columns of a block, and whether its undo record was used. Raises FormatError or LackingError."""
        place, first = self._source.find_undo(ref), None
        tried: list[UndoPlace] = []
        while place is not None:
            try:
                return self._columns([ref], [raw], [place.read()]), True
            except FileNotFoundError:
                raise vanished(f"the undo record of the block in {self._source.name(ref)}") from None
            except (UndoError, SourceError, OSError) as error:
                first = first or error
                tried.append(place)
            place = self._source.find_other_undo(ref, tried)
        if first is not None:
            problem = Problem.of(f"{self._source.name(ref)}: its undo record", first)
            if self._source.mode is UndoMode.REQUIRE:
                raise LackingError(f"{problem.where} cannot be used: {problem.message}") from first
            self._summary.undo_problems.append(str(problem))
        return self._columns([ref], [raw], [None]), False

    def _count(self, block: PlannedBlock, by_undo: bool) -> None:
        """Count a block in the summary. If it spends coins but has no undo record, the values of inputs are missing."""
        self._summary.blocks += 1
        self._summary.bytes_scanned += block.ref.size
        self._summary.by_undo += by_undo
        if not by_undo and not block.is_lone:
            self._summary.by_outpoint += 1
            self._summary.unseen += 1


class LackingError(Exception):
    """A required undo record cannot be used, so the work stops."""


def _read_at(place: Place) -> bytes:
    """Return the bytes at a place. Raises SourceError if the file has shrunk, and OSError if it cannot be read."""
    raw = read_at(place.descriptor, place.offset, place.size, place.key)
    if len(raw) != place.size:
        raise SourceError("the file changed while it was being read")
    return raw


def _verify(ref: BlockRef, raw: bytes) -> None:
    """Verify proof of work, merkle root and witness commitment of a block. Raises FormatError."""
    if not is_proven(ref):
        raise FormatError("the block's hash is above its target", offset=72, field="bits")
    check_block(raw)
