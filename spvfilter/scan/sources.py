"""Sources of raw blocks: files, memory, and the spool of a stream.

All calls block, so the matcher makes them in threads.
"""

from __future__ import annotations

import os
import struct
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from spvfilter import _system
from spvfilter._public import public
from spvfilter.chain import coinbase_height
from spvfilter.errors import FormatError, ParameterError, SourceError
from spvfilter.hashes import sha256d
from spvfilter.kernel import Place
from spvfilter.network import Network
from spvfilter.primitives import Serializable, hash_to_hex, read_compact_size, to_bytes
from spvfilter.protocol import HEADER_SIZE
from spvfilter.scan.blockfile import BlockFile, Record
from spvfilter.scan.remote import FilePath, RemoteFile, fetched, located
from spvfilter.scan.undo import LinkedBlock, UndoFile, UndoFiles, UndoPlace
from spvfilter.scan.undomode import UndoMode

PREFIX_SIZE = 256  # Number of bytes at the start of a block that contain its header and the height in its coinbase.
_LINKAGE = struct.Struct("<4x32s32xII")  # Fields of a header: previous hash, time, bits.
SPOOL_IN_MEMORY = 4 << 20  # Bytes that a spool keeps in memory before it uses a file (our choice).


@public
@dataclass(frozen=True, slots=True)
class RawBlock:
    """A serialized block, and its height if the height is known. Raises ParameterError if the height is negative."""

    raw: bytes = field(repr=False)
    """Bytes of the serialized block."""
    height: int | None = None
    """Height of the block, or None if it is unknown."""

    @classmethod
    def of(cls, item: bytes | RawBlock | Serializable) -> RawBlock:
        """Return a RawBlock made from a block in any accepted form. Raises TypeError if `item` is not a block."""
        return item if isinstance(item, RawBlock) else cls(to_bytes(item))

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", to_bytes(self.raw))
        if self.height is not None and self.height < 0:
            raise ParameterError(f"a height must be at least 0, not {self.height}")


@public
@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a block source that could not be read, and why. Payments in this part are missed."""

    where: str
    """The place of the unreadable part, such as a file's path and an offset."""
    message: str
    """A sentence that says why the part could not be read."""

    @classmethod
    def of(cls, where: str, error: Exception) -> Problem:
        """Return the problem that an error caused in the part `where` of a source."""
        return cls(where, (error.strerror or str(error)) if isinstance(error, OSError) else str(error))

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@public
@dataclass(frozen=True, slots=True)
class BlockRef:
    """The place of a block in its source, and the header fields that link it to other blocks."""

    file: int
    """Number of the file that contains the block, within its source."""
    offset: int
    """Offset of the block in its file, in bytes."""
    size: int
    """Size of the block in bytes."""
    hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    previous: bytes
    """Hash of the previous block, 32 bytes in wire order."""
    bits: int
    """Compact bits of the header."""
    time: int
    """Time of the block's header (Unix time)."""
    height: int | None
    """Height of the block, either given or read from the block itself (BIP-34). None if it is unknown."""
    transactions: int | None = None
    """Number of transactions in the block, as stated in the block. None if the number is malformed."""

    @property
    def hash_hex(self) -> str:
        """The `hash` field in hex, as block explorers show it."""
        return hash_to_hex(self.hash)

    @property
    def previous_hex(self) -> str:
        """The `previous` field in hex, as block explorers show it."""
        return hash_to_hex(self.previous)


def block_ref(
    prefix: bytes, file: int, offset: int, size: int, network: Network, height: int | None = None
) -> BlockRef:
    """Return the reference of a block whose first PREFIX_SIZE bytes are `prefix`.

    Raises FormatError if the header is truncated.
    """
    if len(prefix) < HEADER_SIZE:
        raise FormatError(f"truncated: expected {HEADER_SIZE} bytes, {len(prefix)} left", offset=0, field="header")
    previous, time, bits = _LINKAGE.unpack_from(prefix)
    stated = coinbase_height(prefix, network) if height is None else height
    try:
        transactions = read_compact_size(prefix, HEADER_SIZE, "transaction count")[0]
    except FormatError:
        transactions = None
    return BlockRef(file, offset, size, sha256d(prefix[:HEADER_SIZE]), previous, bits, time, stated, transactions)


@public
@dataclass(frozen=True, slots=True)
class BlockSpan:
    """A range of blocks to scan on the best branches, limited by height and by time.

    The range begins at the first block that has a height of at least `from_height` and a time of at least `from_time`.

    It ends before the first block at or above `from_height` whose time is later than `to_time`, so a range that starts
    at `to_time` + 1 begins with exactly that block. Raises ParameterError if a height or time is negative, or if the
    range ends before it begins.
    """

    from_height: int | None = None
    """Lowest height in the range, inclusive. None for no limit."""
    to_height: int | None = None
    """Highest height in the range, inclusive. None for no limit."""
    from_time: int | None = None
    """Earliest time of the range's first block (Unix time). None for no limit."""
    to_time: int | None = None
    """The range ends before the first block that is later than this Unix time. None for no limit."""

    def __post_init__(self) -> None:
        for name, number in (
            ("from_height", self.from_height),
            ("to_height", self.to_height),
            ("from_time", self.from_time),
            ("to_time", self.to_time),
        ):
            if number is not None and number < 0:
                raise ParameterError(f"{name} must be at least 0, not {number}")
        if self.from_height is not None and self.to_height is not None and self.to_height < self.from_height:
            raise ParameterError(f"a range from height {self.from_height} to {self.to_height} contains no blocks")
        if self.from_time is not None and self.to_time is not None and self.to_time < self.from_time:
            raise ParameterError(f"a range from time {self.from_time} to {self.to_time} contains no blocks")

    @property
    def is_limited(self) -> bool:
        """True if the range has a limit, so that it may exclude blocks."""
        return self != BlockSpan()

    def has_height(self, height: int | None) -> bool:
        """Return True if a block at this height may be in the range.

        The height must not be None if a height limits the range.
        """
        return (self.from_height is None or (height or 0) >= self.from_height) and (
            self.to_height is None or (height or 0) <= self.to_height
        )

    def has_time(self, time: int) -> bool:
        """Return True if the range may begin with a block that has this Unix time."""
        return self.from_time is None or time >= self.from_time

    def has_begun(self, time: int) -> bool:
        """Return True if the range begins at a time, and a block with this Unix time is not before it."""
        return self.from_time is not None and time >= self.from_time

    def is_past(self, time: int) -> bool:
        """Return True if the range ends before a block that has this Unix time."""
        return self.to_time is not None and time > self.to_time

    @property
    def first_height(self) -> int | None:
        """The height at which the range starts. None if it starts at a time, or at the start of the chain."""
        return self.from_height if self.from_time is None else None

    @property
    def last_height(self) -> int | None:
        """The height at which the range ends. None if it ends at a time, or at the end of the chain."""
        return self.to_height if self.to_time is None else None

    def __str__(self) -> str:
        heights, times = (self.from_height, self.to_height), (self.from_time, self.to_time)
        names = ("from height", "to height", "from time", "to time")
        limits = zip(names, (*heights, *times), strict=True)
        return " ".join(f"{name} {number}" for name, number in limits if number is not None) or "all blocks"


@public
class Readable(ABC):
    """A source whose blocks can be read one by one, in any order and more than once.

    Several threads may call `read` at the same time.
    """

    @abstractmethod
    def read(self, ref: BlockRef) -> bytes:
        """Return the bytes of one block.

        Raises SourceError if the source has changed, and OSError if it cannot be read.
        """

    @abstractmethod
    def name(self, ref: BlockRef) -> str:
        """Return a description of a block's place for the user."""

    def opened(self, refs: Sequence[BlockRef]) -> AbstractContextManager[list[Place] | None]:
        """Return a context manager that opens the block files, and whose value is the list of the blocks' places.

        The value is None if the blocks must be read with `read`. If a block cannot be read at its place, call `read`,
        which raises the error.
        """
        return nullcontext()

    def opened_undo(self, refs: Sequence[BlockRef]) -> AbstractContextManager[list[Place | None] | None]:
        """Return a context manager that opens undo files, and whose value is the list of the records' places.

        The value is None if no block has an undo record.
        """
        return nullcontext()

    mode = UndoMode.OFF
    """The mode that says whether undo records are used: an UndoMode."""

    def find_undo(self, ref: BlockRef) -> UndoPlace | None:
        """Return the place of a block's undo record, or None if the block has none."""
        return None

    def undo_size(self, ref: BlockRef) -> int:
        """Return the size of a block's undo record in bytes, or 0 if the block has none."""
        place = self.find_undo(ref)
        return 0 if place is None else place.size

    def pair_again(self, ref: BlockRef, tried: UndoPlace) -> list[Problem] | None:
        """Search harder for the block's undo record, after the record `tried` turned out to belong to another block.

        Returns:
            None if another record was found. Otherwise, the block counts as having no record from now on, and the
            problems say why.
        """
        return []


@public
class BlockSource(Readable):
    """Blocks whose headers can be listed before the blocks are read."""

    span: BlockSpan = BlockSpan()
    """The range of blocks to scan on the best branches."""

    def undo_problems(self) -> list[Problem]:
        """Return the problems found so far with undo files and records that cannot be used."""
        return []

    @abstractmethod
    def index(self, network: Network) -> Iterator[BlockRef | Problem]:
        """Yield every block and every unreadable part, in the order of the source.

        A source that yields no problems raises FormatError if a block is malformed.
        """


def _raw_and_height(item: bytes | RawBlock | Serializable) -> tuple[bytes, int | None]:
    """Return the bytes of a block, and its height, or None if the height is not given."""
    block = RawBlock.of(item)
    return block.raw, block.height


@public
class BlockList(BlockSource):
    """A source of blocks that are in memory.

    Args:
        blocks: The blocks, each as bytes, as a RawBlock or as an object that serializes to bytes.
    """

    def __init__(self, blocks: Sequence[bytes | RawBlock | Serializable]) -> None:
        self._blocks = list(blocks)

    def index(self, network: Network) -> Iterator[BlockRef]:
        for number, item in enumerate(self._blocks):
            raw, height = (item, None) if type(item) is bytes else _raw_and_height(item)
            yield block_ref(raw[:PREFIX_SIZE], number, 0, len(raw), network, height)

    def read(self, ref: BlockRef) -> bytes:
        item = self._blocks[ref.file]
        return item if type(item) is bytes else RawBlock.of(item).raw

    def name(self, ref: BlockRef) -> str:
        return f"block {ref.file} of the list"


def _data_folder(path: FilePath) -> str | None:
    """Return the name of the blocks folder in a Bitcoin Core data folder, or None if there is none."""
    names = ("blocks", *(f"{name}/blocks" for name in ("regtest", "signet", "testnet4", "testnet3")))
    return None if isinstance(path, RemoteFile) else next((name for name in names if (path / name).is_dir()), None)


class Spool(Readable):
    """A source of a stream's blocks. It keeps them in a temporary file in case they must be read again."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(SPOOL_IN_MEMORY)  # noqa: SIM115  `close` closes it
        self._lock = threading.Lock()
        self.size: int = 0  # offset of the next block, in bytes

    def put(self, raw: bytes) -> None:
        with self._lock:
            self._file.seek(self.size)
            self._file.write(raw)
            self.size += len(raw)

    def read(self, ref: BlockRef) -> bytes:
        with self._lock:
            self._file.seek(ref.offset)
            return self._file.read(ref.size)

    def name(self, ref: BlockRef) -> str:
        return f"block {ref.file} of the stream"

    def close(self) -> None:
        with self._lock:
            self._file.close()


class FileBlocks(Readable):
    """A source of blocks in files that are known by number."""

    _files: Sequence[BlockFile]

    def read(self, ref: BlockRef) -> bytes:
        """Return the bytes of one block.

        Raises SourceError if the file has changed since it was indexed, and OSError if the file cannot be read.
        """
        raw = self._files[ref.file].read(ref.offset, ref.size)
        if len(raw) != ref.size or sha256d(raw[:HEADER_SIZE]) != ref.hash:
            raise SourceError("the file changed while it was being read")
        return raw

    @contextmanager
    def opened(self, refs: Sequence[BlockRef]) -> Iterator[list[Place] | None]:
        wanted = [(ref.file, self._files[ref.file].path, ref.offset, ref.size) for ref in refs]
        with _descriptors(wanted) as opened:
            if opened is None or any(self._files[number].is_hex for number in opened):
                yield None
            else:
                yield [
                    Place(opened[ref.file], ref.offset, ref.size, self._files[ref.file].key, ref.hash) for ref in refs
                ]

    @contextmanager
    def opened_undo(self, refs: Sequence[BlockRef]) -> Iterator[list[Place | None] | None]:
        found = [self.find_undo(ref) for ref in refs]
        with _descriptors(
            [(place.number, place.path, place.offset, place.size) for place in found if place is not None]
        ) as opened:
            if not opened:
                yield None
            else:
                yield [
                    None if at is None else Place(opened[at.number], at.offset, at.size, at.key, ref.previous)
                    for ref, at in zip(refs, found, strict=True)
                ]

    def name(self, ref: BlockRef) -> str:
        return f"{self._files[ref.file].path} at byte {ref.offset}"


@public
class BlockFiles(FileBlocks, BlockSource):
    """A source of blocks in files: raw files, hex files, Bitcoin Core's blk*.dat, and directories of such files.

    - A path may be a URL that fsspec knows, such as s3://bucket/blocks (extra `remote`).
    - A directory stands for its blk*.dat files or, if it contains none, for its *.raw, *.blk and *.hex files.
    - Bitcoin Core 28 and later XORs its files with the key in the xor.dat next to them. Reading reverses the XOR.
    - A file that is named twice is read once.

    The scan continues without parts that cannot be read, and reports them as problems. If a store of remote files
    fails, the scan ends with RemoteFileError. Problems with undo records are reported separately, and the scan matches
    those blocks without undo records.

    Args:
        paths: One path or several paths of files and directories.
        undo: "auto" to use the rev*.dat of each blk*.dat, which contains the coins that blocks spend; "require" to fail
            if a needed undo record is missing; "off" to ignore these files.
        span: The range of blocks to scan; by default, all of them.

    Raises:
        ParameterError: No path is given, or the mode of `undo` is unknown.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
        *,
        undo: str = UndoMode.AUTO,
        span: BlockSpan | None = None,
    ) -> None:
        named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not named:
            raise ParameterError("no block files: pass at least one path")
        if undo not in list(UndoMode):
            raise ParameterError(f"undo must be one of {', '.join(UndoMode)}, not {undo!r}")
        self.mode: UndoMode = UndoMode(undo)
        self.span: BlockSpan = span or BlockSpan()
        self._missing: list[Problem] = []
        self._listed: set[str] = set()  # identities of the files that directories contain
        files = [file for name in named for file in self._expand(located(name))]
        self._files = [BlockFile(file) for file in {_identity(file): file for file in files}.values()]
        self._undo = UndoFiles()

    def _expand(self, path: FilePath) -> Sequence[FilePath]:
        """Return the files that a path stands for."""
        try:
            if not path.is_dir():
                return [path]
            there: list[FilePath] = sorted(path.iterdir(), key=str)
            files = [file for file in there if file.name.startswith("blk") and file.suffix == ".dat"]
            files = files or [file for file in there if file.suffix in (".raw", ".blk", ".hex")]
        except OSError as error:
            self._missing.append(Problem.of(str(path), error))
            return []
        if not files:
            inner = _data_folder(path)
            advice = f": it looks like Bitcoin Core's data folder, so give its folder {inner} instead" if inner else ""
            self._missing.append(
                Problem(str(path), f"no blk*.dat, *.raw, *.blk or *.hex file in this directory{advice}")
            )
        self._listed.update(map(_identity, files))
        return files

    def index(self, network: Network) -> Iterator[BlockRef | Problem]:
        yield from self._missing
        for number in range(len(self._files)):
            undo = self.undo_beside(number)
            refs: list[BlockRef] = []
            for found in self.index_file(number, network):
                if undo is not None and isinstance(found, BlockRef):
                    refs.append(found)
                yield found
            if undo is not None:
                self._undo.add(number, undo, [linked(self, ref) for ref in refs], network)

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._files)

    @property
    def assumed(self) -> int:
        """Number of files whose network is assumed, because their only block does not reveal it.

        Known once the blocks have been listed.
        """
        return sum(file.is_assumed for file in self._files)

    @property
    def missing(self) -> Sequence[Problem]:
        """The paths at which no file exists."""
        return self._missing

    def index_file(self, number: int, network: Network) -> Iterator[BlockRef | Problem]:
        """Yield every block and every unreadable part of one file. Several threads may index files at the same time."""
        file = self._files[number]
        nothing = True
        try:
            for found in file.records(network, PREFIX_SIZE):
                nothing = False
                if isinstance(found, Record):
                    yield block_ref(found.prefix, number, found.offset, found.size, network)
                else:
                    yield Problem(str(file.path), found)
            if nothing:
                yield Problem(str(file.path), "this file contains no blocks, only zeros")
        except (FormatError, SourceError, OSError) as error:
            if isinstance(error, FileNotFoundError) and _identity(file.path) in self._listed:
                return  # a node has pruned it since the directory was listed
            yield Problem.of(str(file.path), error)

    def undo_beside(self, number: int) -> UndoFile | None:
        """Return the undo file of a block file, or None if no undo file exists or undo files are not used."""
        return None if self.mode is UndoMode.OFF else UndoFile.beside(self._files[number].path)

    def find_undo(self, ref: BlockRef) -> UndoPlace | None:
        return self._undo.find(ref.file, ref.hash)

    def pair_again(self, ref: BlockRef, tried: UndoPlace) -> list[Problem] | None:
        problems = self._undo.pair_again(ref.hash, tried)
        return None if problems is None else [Problem(where, message) for where, message in problems]

    def file(self, number: int) -> BlockFile:
        """Return the file with this number."""
        return self._files[number]

    def undo_problems(self) -> list[Problem]:
        return [Problem(where, message) for where, message in self._undo.problems]


def _identity(file: FilePath) -> str:
    """Return a string that is the same for two names of the same file."""
    return str(file) if isinstance(file, RemoteFile) else os.path.realpath(file)


@contextmanager
def _descriptors(wanted: Sequence[tuple[int, FilePath, int, int]]) -> Iterator[dict[int, int] | None]:
    """Context manager: opens the files of the wanted ranges, and closes them at the end.

    Each range is (file number, file, offset, size). At least the wanted ranges of a remote file are fetched. The value
    is a file descriptor for each file number, or None if a file cannot be opened.
    """
    ranges: dict[int, list[tuple[int, int]]] = {}
    for number, _, offset, size in wanted:
        ranges.setdefault(number, []).append((offset, size))
    descriptors: dict[int, int] = {}
    try:
        try:
            for number, path, *_ in wanted:
                if number not in descriptors:
                    descriptors[number] = (
                        fetched(path, ranges[number]) if isinstance(path, RemoteFile) else _system.open_to_read(path)
                    )
            whole = True
        except OSError:
            whole = False
        yield descriptors if whole else None
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def linked(source: Readable, ref: BlockRef) -> LinkedBlock:
    """Return the facts about a block that `pair` needs to find its undo record."""
    return LinkedBlock(ref.hash, ref.previous, ref.transactions or 0, ref.time, ref.height, partial(source.read, ref))
