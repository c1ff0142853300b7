"""Plan: the blocks of a scan, cut into parts that can be scanned apart: in any order, by any thread, process or
machine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.scan.listing import ListedFiles, LocalFiles
from spvfilter.scan.order import ScanReport
from spvfilter.scan.planning import Planning
from spvfilter.scan.rows import FOLLOWS, LONE, ROOTED, ROW, ROW_SIZE, UNKNOWN
from spvfilter.scan.sources import BlockFiles, BlockRef
from spvfilter.scan.undo import UndoFile

PART_SIZE = 128_000_000  # bytes of blocks and undo records
MIN_PART_SIZE, MAX_PART_SIZE = 1_000, 4_000_000_000


@public
@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One block of a part."""

    ref: BlockRef
    undo: tuple[int, int] | None
    """Offset and size of its undo record, in the undo file beside its file."""
    is_lone: bool
    """Its coinbase is its only transaction, so that it spends nothing."""
    is_rooted: bool
    """Its run of blocks begins with the genesis block or the one after it."""


@public
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of blocks, as far as a part needs to know it."""

    path: str
    key: bytes
    """8 bytes with which it is XORed, or empty."""
    is_hex: bool
    undo: tuple[str, bytes] | None
    """Path and key of the undo file beside it."""


@public
@dataclass(frozen=True, slots=True)
class Part:
    """A run of blocks: a pure value, which another process or machine can scan that sees the same files."""

    number: int
    network: str
    """Its name."""
    files: tuple[PlannedFile, ...]
    rows: bytes = field(repr=False)
    """ROW_SIZE bytes a block."""
    previous: dict[int, bytes] = field(repr=False)
    """Row → hash of the block before, where that is not the row before."""
    spares: dict[int, tuple[tuple[int, int, int], ...]] = field(repr=False)
    """Row → other copies: file, offset, size."""
    size: int
    """Bytes of its blocks."""
    is_stale: bool = (
        False  # its blocks are off the best branches: what they pay may be spent elsewhere, but they give no matches
    )

    def __len__(self) -> int:
        return len(self.rows) // ROW_SIZE

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of what it consists of: the hashes and places of its blocks and undo records, but not the paths of
        the files.
        """
        digest = sha256(b"spvfilter part 1\0" + self.network.encode() + bytes((self.is_stale,)))
        for file in self.files:
            digest.update(
                _framed(file.key, bytes((file.is_hex, file.undo is not None)), file.undo[1] if file.undo else b"")
            )
        digest.update(
            _framed(self.rows, *(struct.pack("<I", row) + before for row, before in sorted(self.previous.items())))
        )
        for row, copies in sorted(self.spares.items()):
            digest.update(_framed(*(struct.pack("<IIQI", row, *copy) for copy in copies)))
        return digest.digest()

    def blocks(self) -> Iterator[PlannedBlock]:
        """Its blocks, in chain order; stale ones in order of their hashes."""
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

    def heights(self) -> Iterator[int | None]:
        """Of its blocks, as far as they are known."""
        for _, _, _, _, _, height, *_ in ROW.iter_unpack(self.rows):
            yield None if height == UNKNOWN else height

    def copies(self, row: int, ref: BlockRef) -> Iterator[BlockRef]:
        """The places of a block: its own, and those of other copies."""
        yield ref
        for file, offset, size in self.spares.get(row, ()):
            yield BlockRef(file, offset, size, ref.hash, ref.previous, ref.bits, ref.time, ref.height, ref.transactions)


def _framed(*pieces: bytes) -> bytes:
    """Pieces with their lengths, so that no two lists of pieces have the same bytes."""
    return struct.pack("<I", len(pieces)) + b"".join(struct.pack("<Q", len(piece)) + piece for piece in pieces)


@public
@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be scanned: the parts of the best branches in chain order, and the stale blocks apart.

    The blocks are known by their headers alone. `report` says what was found out about them.
    """

    network: Network
    undo: str
    """UndoMode."""
    span: str
    """The range of blocks, in words."""
    parts: tuple[Part, ...] = field(repr=False)
    stale: tuple[Part, ...] = field(repr=False)
    files: tuple[tuple[str, int, bytes], ...] = field(repr=False)
    """Path, number of blocks, and SHA-256 of their places and hashes."""
    report: ScanReport = field(repr=False)

    @classmethod
    def of(cls, files: BlockFiles, network: Network, *, part_size: int = PART_SIZE) -> Plan:
        """Read the headers in files of blocks, put them in chain order, and cut that into parts of some `part_size`
        bytes.

        Headers of several files are read at once. It takes 73 bytes a block, and less than 100 until it returns. Raises
        SourceError where undo records are required and missing, and where the span of `files` has no block;
        ParameterError for a part size below 1,000 or above 4,000,000,000 bytes.
        """
        return planned(LocalFiles(files), network, part_size)[0]

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of those of its parts, and of what is done with them."""
        own = [self.network.name.encode(), str(self.undo).encode()]
        return sha256(_framed(*own, *(part.fingerprint for part in (*self.parts, *self.stale)))).digest()

    @property
    def size(self) -> int:
        """Bytes of blocks on the best branches."""
        return sum(part.size for part in self.parts)


# by whether a part is stale, and its number: that part as each machine has it
Places = dict[tuple[bool, int], dict[int, Part]]


def planned(files: ListedFiles, network: Network, part_size: int) -> tuple[Plan, Places]:
    """The plan of files, and where its parts are; those of the plan are as the first of the machines has them.

    Raises as `Plan.of` does.
    """
    if not MIN_PART_SIZE <= part_size <= MAX_PART_SIZE:
        raise ParameterError(f"a part has from {MIN_PART_SIZE:,} to {MAX_PART_SIZE:,} bytes, not {part_size}")
    planning = Planning(files, network)
    digests = tuple(planning.digests())
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
            )
            for machine, cut in cuts.items()
        }
        places[is_stale, number] = on
        parts[is_stale].append(next(iter(on.values())))
    return Plan(
        network, files.mode, str(files.span), tuple(parts[False]), tuple(parts[True]), digests, planning.report
    ), places


def _file(number: int, files: ListedFiles, undo: UndoFile | None) -> PlannedFile:
    file = files.file(number)
    return PlannedFile(str(file.path), file.key, file.is_hex, None if undo is None else (str(undo.path), undo.key))
