"""Plan: the blocks of a scan, cut into parts that any thread, process or machine can scan, in any order."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.scan.listing import ListedFiles, LocalFiles
from spvfilter.scan.manifest import run_inputs
from spvfilter.scan.order import ScanReport
from spvfilter.scan.partrows import EarlierRun
from spvfilter.scan.planning import Planning
from spvfilter.scan.rows import FOLLOWS, LONE, ROOTED, ROW, ROW_SIZE, SIZE_AT, UNDO_AT, UNDO_SIZE_AT, UNKNOWN
from spvfilter.scan.sources import BlockFiles, BlockRef
from spvfilter.scan.undo import UndoFile

PART_SIZE = 128_000_000  # size of a part's blocks and undo records, in bytes (our choice)
# Offsets within a row of the bytes that say where the block and its undo record are.
_PLACES = (*range(SIZE_AT), *range(UNDO_AT, UNDO_SIZE_AT))
MIN_PART_SIZE, MAX_PART_SIZE = 1_000, 4_000_000_000  # bytes (our choice)


@public
@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One block of a part, as the plan stores it."""

    ref: BlockRef
    """Place of the block, and its header fields. The file number is the index of a file of the part."""
    undo: tuple[int, int] | None
    """Offset and size of the block's undo record in the undo file, in bytes. None if the block has no undo record."""
    is_lone: bool
    """True if the coinbase is the only transaction of the block, so that the block spends nothing."""
    is_rooted: bool
    """True if the block's run of linked blocks begins with the genesis block or the block after it."""


@public
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A block file, with the facts that a part needs."""

    path: str
    """Path or URL of the file."""
    key: bytes
    """The 8-byte key with which the file is XORed, or b"" if it is not XORed."""
    is_hex: bool
    """True if the file is one block in hex digits."""
    undo: tuple[str, bytes] | None
    """Path and XOR key of this file's undo file, or None if there is no undo file."""


@public
@dataclass(frozen=True, slots=True)
class Part:
    """A run of blocks that is scanned as a whole. Any process or machine that sees the same files can scan it."""

    number: int
    """Number of the part in its plan, counted from 0."""
    network: str
    """Name of the network of the blocks."""
    files: tuple[PlannedFile, ...]
    """The files that contain the part's blocks."""
    rows: bytes = field(repr=False)
    """The blocks in chain order: one encoded 73-byte row for each block."""
    previous: dict[int, bytes] = field(repr=False)
    """Hash of the previous block, keyed by row number. It is omitted if that block is in the preceding row."""
    spares: dict[int, tuple[tuple[int, int, int], ...]] = field(repr=False)
    """Other copies of a row's block, keyed by row number: (file, offset, size) of each copy."""
    size: int
    """Total size of the part's blocks, in bytes."""
    is_stale: bool = False
    """True if the blocks are off the best branches. They yield no matches, but other blocks may spend their outputs."""
    kept: str = ""
    """Name of the part's file, if a node has pruned some of the part's blocks since it was scanned. Otherwise empty."""

    def __len__(self) -> int:
        return len(self.rows) // ROW_SIZE

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the part's blocks: their hashes and heights, and the sizes of their undo records.

        The places of the blocks and records do not matter, because the result of a scan does not depend on them.
        """
        rows = bytearray(self.rows)
        for column in _PLACES:
            rows[column::ROW_SIZE] = bytes(len(self))
        return sha256(b"spvfilter part 2\0" + self.network.encode() + bytes((self.is_stale,)) + rows).digest()

    def blocks(self) -> Iterator[PlannedBlock]:
        """Yield the blocks of the part in chain order, or stale blocks in the order of their hashes."""
        before = b""
        for row, (file, offset, size, bits, time, height, own, undo_at, undo_size, flags) in enumerate(
            ROW.iter_unpack(self.rows)
        ):
            previous = before if flags & FOLLOWS else self.previous[row]
            ref = BlockRef(
                file,
                offset,
                size,
                own,
                previous,
                bits,
                time,
                None if height == UNKNOWN else height,
                1 if flags & LONE else None,
            )
            yield PlannedBlock(
                ref, (undo_at, undo_size) if undo_size else None, bool(flags & LONE), bool(flags & ROOTED)
            )
            before = own

    def hashes(self) -> list[bytes]:
        """Return the hash of each block of the part in order, 32 bytes in wire order."""
        return [row[6] for row in ROW.iter_unpack(self.rows)]

    def last_hashes(self) -> list[bytes]:
        """Return the hash of the last block in each file of the part, 32 bytes in wire order."""
        last: dict[int, tuple[int, bytes]] = {}
        for file, offset, _, _, _, _, own, *_ in ROW.iter_unpack(self.rows):
            last[file] = max(last.get(file, (0, own)), (offset, own))
        return [own for _, own in last.values()]

    def heights(self) -> Iterator[int | None]:
        """Yield the height of each block of the part in order, or None if it is unknown."""
        for _, _, _, _, _, height, *_ in ROW.iter_unpack(self.rows):
            yield None if height == UNKNOWN else height

    def copies(self, row: int, ref: BlockRef) -> Iterator[BlockRef]:
        """Yield the places of the block in a row: first `ref`, then the places of its other copies."""
        yield ref
        for file, offset, size in self.spares.get(row, ()):
            yield BlockRef(file, offset, size, ref.hash, ref.previous, ref.bits, ref.time, ref.height, ref.transactions)


def _framed(*pieces: bytes) -> bytes:
    """Encode a list of pieces: the number of pieces, then each piece preceded by its length.

    Different lists give different bytes.
    """
    return struct.pack("<I", len(pieces)) + b"".join(struct.pack("<Q", len(piece)) + piece for piece in pieces)


@public
@dataclass(frozen=True, slots=True)
class Plan:
    """The blocks of a scan, cut into parts. Making a plan reads only headers."""

    network: Network
    """The network of the blocks."""
    undo: str
    """The mode that says how undo files are used: the value of an UndoMode."""
    span: str
    """A description of the range of blocks to scan."""
    parts: tuple[Part, ...] = field(repr=False)
    """The parts with blocks of the best branches, in chain order."""
    stale: tuple[Part, ...] = field(repr=False)
    """The parts with stale blocks, which are off the best branches."""
    report: ScanReport = field(repr=False)
    """Findings about the headers, such as duplicates, stale blocks and problems."""

    @classmethod
    def of(
        cls,
        files: BlockFiles,
        network: Network,
        *,
        part_size: int = PART_SIZE,
        directory: str | os.PathLike[str] | None = None,
    ) -> Plan:
        """Plan the blocks in files: read their headers, put the blocks in chain order, and cut them into parts.

        The headers of several files are read at the same time. A plan takes 73 bytes of memory for each block, and less
        than 100 during planning.

        Args:
            files: The block files.
            network: The network of the blocks.
            part_size: Approximate size of a part (blocks and undo records) in bytes, from 1,000 to 4,000,000,000.
            directory: Directory of the scan or export that this plan continues. Blocks that a node has pruned since
                its last run stay in the plan, and their parts stay as they are.

        Raises:
            ParameterError: The part size is outside that range.
            SourceError: Required undo records are missing, the span of `files` contains no blocks, or a block of the
                last run is gone although a lower block is in the files.
            OSError: The directory cannot be read.
        """
        return planned(LocalFiles(files), network, part_size, directory)[0]

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the fingerprints of all parts, the network, and the undo mode."""
        own = [self.network.name.encode(), str(self.undo).encode()]
        return sha256(_framed(*own, *(part.fingerprint for part in (*self.parts, *self.stale)))).digest()

    @property
    def size(self) -> int:
        """Total size of the blocks on the best branches, in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def blocks(self) -> int:
        """Number of blocks on the best branches."""
        return sum(map(len, self.parts))

    @property
    def tip(self) -> bytes:
        """Hash of the last block on the best branches, 32 bytes in wire order; empty if the plan contains no blocks."""
        return self.parts[-1].hashes()[-1] if self.parts else b""


# The parts of a plan, keyed by (is stale, number of the part), then by machine. Each has its machine's paths.
Places = dict[tuple[bool, int], dict[int, Part]]


def planned(
    files: ListedFiles, network: Network, part_size: int, directory: str | os.PathLike[str] | None = None
) -> tuple[Plan, Places]:
    """Return a plan of the files, and for each part, one form for each machine that has its files.

    The forms differ only in the paths of the files. The plan itself contains the form for the first machine. Raises the
    same errors as `Plan.of`.
    """
    if not MIN_PART_SIZE <= part_size <= MAX_PART_SIZE:
        raise ParameterError(f"part_size must be from {MIN_PART_SIZE:,} to {MAX_PART_SIZE:,} bytes, not {part_size}")
    same = run_inputs(network, str(files.mode), str(files.span))
    earlier = None if directory is None else EarlierRun.of(Path(directory), same)
    planning = Planning(files, network, earlier)
    parts: tuple[list[Part], list[Part]] = ([], [])
    places: Places = {}
    for is_stale, cuts in planning.cuts(part_size):
        number = len(parts[is_stale])
        on = {
            machine: Part(
                number,
                network.name,
                tuple(_file(each, files, planning.undo.get(each)) for each in cut.files),
                cut.rows,
                cut.previous,
                cut.spares,
                cut.size,
                is_stale,
                cut.kept,
            )
            for machine, cut in cuts.items()
        }
        places[is_stale, number] = on
        parts[is_stale].append(next(iter(on.values())))
    return Plan(network, files.mode, str(files.span), tuple(parts[False]), tuple(parts[True]), planning.report), places


def _file(number: int, files: ListedFiles, undo: UndoFile | None) -> PlannedFile:
    """Return the facts about a file that a part needs."""
    file = files.file(number)
    return PlannedFile(str(file.path), file.key, file.is_hex, None if undo is None else (str(undo.path), undo.key))
