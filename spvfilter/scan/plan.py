"""Plan: the blocks of a scan, cut into parts that can be scanned apart: in any order, by any thread, process or machine."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.scan.order import PendingBlock, ScanReport, in_chain_order
from spvfilter.scan.sources import BlockFiles, BlockRef

PART_SIZE = 128_000_000  # bytes of blocks and undo records
MIN_PART_SIZE, MAX_PART_SIZE = 1_000, 4_000_000_000

_ROW = struct.Struct("<IQIIIi32sQIB")
ROW_SIZE = _ROW.size  # 73 bytes
_UNKNOWN = -1  # instead of a height
_FOLLOWS, _LONE, _ROOTED = 1, 2, 4


@public
@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """One block of a part."""

    ref: BlockRef
    undo: tuple[int, int] | None  # offset and size of its undo record, in the undo file beside its file
    is_lone: bool  # its coinbase is its only transaction, so that it spends nothing
    is_rooted: bool  # its run of blocks begins with the genesis block or the one after it


@public
@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of blocks, as far as a part needs to know it."""

    path: str
    key: bytes  # 8 bytes with which it is XORed, or empty
    is_hex: bool
    undo: tuple[str, bytes] | None  # path and key of the undo file beside it


@public
@dataclass(frozen=True, slots=True)
class Part:
    """A run of blocks: a pure value, which another process or machine can scan that sees the same files."""

    number: int
    network: str  # its name
    files: tuple[PlannedFile, ...]
    rows: bytes = field(repr=False)  # ROW_SIZE bytes a block
    previous: dict[int, bytes] = field(repr=False)  # row → hash of the block before, where that is not the row before
    spares: dict[int, tuple[tuple[int, int, int], ...]] = field(repr=False)  # row → other copies: file, offset, size
    size: int  # bytes of its blocks
    is_stale: bool = False  # its blocks are off the best branches: what they pay may be spent elsewhere, but they give no matches

    def __len__(self) -> int:
        return len(self.rows) // ROW_SIZE

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of what it consists of: the hashes and places of its blocks and undo records, but not the paths of the files."""
        digest = sha256(b"spvfilter part 1\0" + self.network.encode() + bytes((self.is_stale,)))
        for file in self.files:
            digest.update(_framed(file.key, bytes((file.is_hex, file.undo is not None)), file.undo[1] if file.undo else b""))
        digest.update(_framed(self.rows, *(struct.pack("<I", row) + before for row, before in sorted(self.previous.items()))))
        for row, copies in sorted(self.spares.items()):
            digest.update(_framed(*(struct.pack("<IIQI", row, *copy) for copy in copies)))
        return digest.digest()

    def blocks(self) -> Iterator[PlannedBlock]:
        """Its blocks, in chain order; stale ones in order of their hashes."""
        before = b""
        for row, (file, offset, size, bits, time, height, own, undo_at, undo_size, flags) in enumerate(_ROW.iter_unpack(self.rows)):
            previous = before if flags & _FOLLOWS else self.previous[row]
            ref = BlockRef(
                file, offset, size, own, previous, bits, time, None if height == _UNKNOWN else height, 1 if flags & _LONE else None
            )
            yield PlannedBlock(ref, (undo_at, undo_size) if undo_size else None, bool(flags & _LONE), bool(flags & _ROOTED))
            before = own

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
    undo: str  # UndoMode
    span: str  # the range of blocks, in words
    parts: tuple[Part, ...] = field(repr=False)
    stale: tuple[Part, ...] = field(repr=False)
    files: tuple[tuple[str, int, bytes], ...] = field(repr=False)  # path, number of blocks, and SHA-256 of their places and hashes
    report: ScanReport = field(repr=False)

    @classmethod
    def of(cls, files: BlockFiles, network: Network, *, part_size: int = PART_SIZE) -> Plan:
        """Read the headers in files of blocks, put them in chain order, and cut that into parts of some `part_size` bytes.

        It takes 73 bytes a block, and some 900 more until it returns. Raises SourceError where undo records are required and missing, and
        where the span of `files` has no block; ParameterError for a part size below 1,000 or above 4,000,000,000 bytes.
        """
        if not MIN_PART_SIZE <= part_size <= MAX_PART_SIZE:
            raise ParameterError(f"a part has from {MIN_PART_SIZE:,} to {MAX_PART_SIZE:,} bytes, not {part_size}")
        report = ScanReport()
        stale, placed = in_chain_order(files, network, report)
        parts = [_part(number, blocks, files, network) for number, blocks in enumerate(_cut(placed, files, part_size))]
        apart = [_part(number, blocks, files, network, is_stale=True) for number, blocks in enumerate(_cut(stale, files, part_size))]
        report.blocks = len(placed)
        return cls(network, files.mode, str(files.span), tuple(parts), tuple(apart), tuple(_digests(files, [*stale, *placed])), report)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of those of its parts, and of what is done with them."""
        own = [self.network.name.encode(), str(self.undo).encode()]
        return sha256(_framed(*own, *(part.fingerprint for part in (*self.parts, *self.stale)))).digest()

    @property
    def size(self) -> int:
        """Bytes of blocks on the best branches."""
        return sum(part.size for part in self.parts)


def _cut(blocks: Iterable[PendingBlock], files: BlockFiles, part_size: int) -> Iterator[list[PendingBlock]]:
    part: list[PendingBlock] = []
    size = 0
    for block in blocks:
        more = block.ref.size + files.undo_size(block.ref)
        if part and size + more > part_size:
            yield part
            part, size = [], 0
        part.append(block)
        size += more
    if part:
        yield part


def _part(number: int, blocks: list[PendingBlock], files: BlockFiles, network: Network, *, is_stale: bool = False) -> Part:
    numbers: dict[int, int] = {}  # of a file in the part, by its number in the source
    rows = bytearray()
    previous: dict[int, bytes] = {}
    spares: dict[int, tuple[tuple[int, int, int], ...]] = {}
    before = b""
    for row, block in enumerate(blocks):
        ref, undo = block.ref, files.find_undo(block.ref)
        at, size = (undo.offset, undo.size) if undo else (0, 0)
        follows = ref.previous == before
        if not follows:
            previous[row] = ref.previous
        flags = _FOLLOWS * follows | _LONE * (ref.transactions == 1) | _ROOTED * block.rooted
        height = _UNKNOWN if block.height is None else block.height
        place = numbers.setdefault(ref.file, len(numbers)), ref.offset, ref.size
        rows += _ROW.pack(*place, ref.bits, ref.time, height, ref.hash, at, size, flags)
        if block.spares:
            spares[row] = tuple((numbers.setdefault(copy.file, len(numbers)), copy.offset, copy.size) for copy in block.spares)
        before = ref.hash
    planned = tuple(_file(number, files) for number in numbers)
    return Part(number, network.name, planned, bytes(rows), previous, spares, sum(block.ref.size for block in blocks), is_stale)


def _file(number: int, files: BlockFiles) -> PlannedFile:
    file, undo = files.file(number), files.undo_file(number)
    return PlannedFile(str(file.path), file.key, file.is_hex, None if undo is None else (str(undo.path), undo.key))


def _digests(files: BlockFiles, blocks: list[PendingBlock]) -> Iterator[tuple[str, int, bytes]]:
    """By file: its path, the number of its blocks, and SHA-256 of their places, hashes and undo records, in the order of the file."""
    by_file: dict[int, list[tuple[int, bytes]]] = {}
    for block in blocks:
        for ref in (block.ref, *block.spares):
            undo = files.find_undo(ref)
            row = _ROW.pack(
                0, ref.offset, ref.size, ref.bits, ref.time, 0, ref.hash, undo.offset if undo else 0, undo.size if undo else 0, 0
            )
            by_file.setdefault(ref.file, []).append((ref.offset, row))
    for number in sorted(by_file):
        rows = sorted(by_file[number])
        yield str(files.file(number).path), len(rows), sha256(b"".join(row for _, row in rows)).digest()
