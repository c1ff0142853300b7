"""Sources of raw blocks: files, memory, and the spool of a stream.

All calls block; the matcher makes them in threads.
"""

from __future__ import annotations

import os
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.chain import coinbase_height
from spvfilter.errors import FormatError, ParameterError, SourceError
from spvfilter.hashes import sha256d
from spvfilter.kernel import Place
from spvfilter.network import Network
from spvfilter.primitives import Serializable, read_compact_size, to_bytes
from spvfilter.protocol import HEADER_SIZE
from spvfilter.scan.blockfile import BlockFile, Record
from spvfilter.scan.remote import FilePath, RemoteFile, fetched, located
from spvfilter.scan.undo import LinkedBlock, UndoFile, UndoFiles, UndoPlace
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = deferred("tempfile")

PREFIX_SIZE = 256  # bytes of a block that hold its header and the height in its coinbase
_LINKAGE = struct.Struct("<4x32s32xII")  # of a header: the previous hash, the time, the bits
_SPOOL_IN_MEMORY = 4 << 20  # bytes kept before a spool goes to disk


@public
@dataclass(frozen=True, slots=True)
class RawBlock:
    """A serialised block and its height, if that is known. Raises ParameterError for a negative height."""

    raw: bytes = field(repr=False)
    height: int | None = None

    @classmethod
    def of(cls, item: bytes | RawBlock | Serializable) -> RawBlock:
        """From a block in any form that is accepted. Raises TypeError."""
        return item if isinstance(item, RawBlock) else cls(to_bytes(item))

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", to_bytes(self.raw))
        if self.height is not None and self.height < 0:
            raise ParameterError(f"a height is not negative: {self.height}")


@public
@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a source that could not be read, so payments in it are missed."""

    where: str
    message: str

    @classmethod
    def of(cls, where: str, error: Exception) -> Problem:
        """From the error that was raised."""
        return cls(where, (error.strerror or str(error)) if isinstance(error, OSError) else str(error))

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@public
@dataclass(frozen=True, slots=True)
class BlockRef:
    """The place of a block in its source, and the fields of its header that link it."""

    file: int
    """Number of the file within the source."""
    offset: int
    """Bytes."""
    size: int
    """Bytes."""
    hash: bytes
    previous: bytes
    bits: int
    time: int
    height: int | None
    """Given, or stated by the block itself (BIP-34)."""
    transactions: int | None = None
    """As the block states it."""


def block_ref(
    prefix: bytes, file: int, offset: int, size: int, network: Network, height: int | None = None
) -> BlockRef:
    """The reference of a block whose first PREFIX_SIZE bytes are `prefix`. Raises FormatError for a short header."""
    if len(prefix) < HEADER_SIZE:
        raise FormatError(f"truncated: {HEADER_SIZE} bytes wanted, {len(prefix)} left", offset=0, field="header")
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
    """A range of blocks on the best branches: of heights, both inclusive, and from the first block that has a time, or
    a later one.

    Raises ParameterError for a negative height or time, and a range that ends before it begins.
    """

    from_height: int | None = None
    to_height: int | None = None
    from_time: int | None = None
    """Seconds since 1970."""

    def __post_init__(self) -> None:
        for name, number in (
            ("from_height", self.from_height),
            ("to_height", self.to_height),
            ("from_time", self.from_time),
        ):
            if number is not None and number < 0:
                raise ParameterError(f"{name} is not negative: {number}")
        if self.from_height is not None and self.to_height is not None and self.to_height < self.from_height:
            raise ParameterError(f"a range from height {self.from_height} to {self.to_height} has no block")

    @property
    def is_limited(self) -> bool:
        """Whether there are blocks that it may not have."""
        return self != BlockSpan()

    def has_height(self, height: int | None) -> bool:
        """Whether a block of a height may be in it, which is known if a height limits it."""
        return (self.from_height is None or (height or 0) >= self.from_height) and (
            self.to_height is None or (height or 0) <= self.to_height
        )

    def has_time(self, time: int) -> bool:
        """Whether it may begin with a block of a time."""
        return self.from_time is None or time >= self.from_time

    def __str__(self) -> str:
        limits = (("from height", self.from_height), ("to height", self.to_height), ("from time", self.from_time))
        return " ".join(f"{name} {number}" for name, number in limits if number is not None) or "all blocks"


@public
class Readable(ABC):
    """Blocks that can be read one by one, in any order and more than once.

    Several threads call `read` at the same time.
    """

    @abstractmethod
    def read(self, ref: BlockRef) -> bytes:
        """One block. Raises SourceError, OSError."""

    @abstractmethod
    def name(self, ref: BlockRef) -> str:
        """The place of a block, as a user is told it."""

    def opened(self, refs: Sequence[BlockRef]) -> AbstractContextManager[list[Place] | None]:
        """The places of blocks in files, which are open until the context is left; None if the blocks have to be read
        with `read`.

        A block that turns out unreadable in its place is read with `read`, which raises the error.
        """
        return nullcontext()

    def opened_undo(self, refs: Sequence[BlockRef]) -> AbstractContextManager[list[Place | None] | None]:
        """The places of the blocks' undo records in files, which are open until the context is left; None if no block
        has one.
        """
        return nullcontext()

    mode = UndoMode.OFF  # whether it looks for undo records

    def find_undo(self, ref: BlockRef) -> UndoPlace | None:
        """The place of the undo record of a block; None if it has none."""
        return None

    def undo_size(self, ref: BlockRef) -> int:
        """The bytes of a block's undo record; 0 if it has none."""
        place = self.find_undo(ref)
        return 0 if place is None else place.size

    def pair_again(self, ref: BlockRef, tried: UndoPlace) -> list[Problem] | None:
        """Look for the block's undo record with more effort, after the one tried turned out not to be the block's.

        Returns None if another one was found; else the block has none from now on, and the problems say why.
        """
        return []


@public
class BlockSource(Readable):
    """Blocks whose headers can be listed before the blocks are read.

    Of those on the best branches, `span` says which are scanned.
    """

    span = BlockSpan()

    def undo_problems(self) -> list[Problem]:
        """The undo files and records that cannot be used, as far as is known."""
        return []

    @abstractmethod
    def index(self, network: Network) -> Iterator[BlockRef | Problem]:
        """Yield every block and every unreadable part, in the order of the source.

        A source that allows no problems raises FormatError.
        """


def _raw_and_height(item: bytes | RawBlock | Serializable) -> tuple[bytes, int | None]:
    block = RawBlock.of(item)
    return block.raw, block.height


@public
class BlockList(BlockSource):
    """Blocks in memory."""

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


class Spool(Readable):
    """The blocks of a stream, one after the other, kept on disk in case they have to be read again."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY)
        self._lock = threading.Lock()
        self.size = 0  # bytes; where the next block will lie

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
    """Blocks in files that are known by number."""

    _files: Sequence[BlockFile]

    def read(self, ref: BlockRef) -> bytes:
        """One block. Raises SourceError if the file has changed since it was indexed, OSError if it cannot be read."""
        raw = self._files[ref.file].read(ref.offset, ref.size)
        if len(raw) != ref.size or sha256d(raw[:HEADER_SIZE]) != ref.hash:
            raise SourceError("the file has changed while it was read")
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
    """Blocks in files: raw ones, hex ones, Bitcoin Core's blk*.dat, and directories of them.

    A path may be a URL that fsspec knows, as s3://bucket/blocks (extra `remote`). A directory stands for its blk*.dat
    files, or if it has none, for its *.raw, *.blk and *.hex files. Files of Bitcoin Core 28 and later are XORed with
    the key in the xor.dat beside them, which is undone. A file named twice is read once. Unreadable parts are reported
    as problems of the scan, which goes on without them; a store of remote files that fails ends it with
    RemoteFileError.

    With `undo`, "auto" or "require", the rev*.dat beside each blk*.dat tells what its blocks spend; what is wrong with
    undo records is reported apart, as the blocks can be used without them. Of all blocks, those of `span` are scanned.
    Raises ParameterError if no path is given, and for an unknown mode.
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
            raise ParameterError("no file of blocks named")
        if undo not in list(UndoMode):
            raise ParameterError(f"undo is one of {', '.join(UndoMode)}, not {undo!r}")
        self.mode = UndoMode(undo)
        self.span = span or BlockSpan()
        self._missing: list[Problem] = []
        files = [file for name in named for file in self._expand(located(name))]
        self._files = [BlockFile(file) for file in {_identity(file): file for file in files}.values()]
        self._undo = UndoFiles()

    def _expand(self, path: FilePath) -> Sequence[FilePath]:
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
            self._missing.append(Problem(str(path), "no blk*.dat, *.raw, *.blk or *.hex file in this directory"))
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
        """The number of files."""
        return len(self._files)

    @property
    def assumed(self) -> int:
        """The number of files of one block, of which nothing says of which network it is; known once they were
        listed.
        """
        return sum(file.is_assumed for file in self._files)

    @property
    def missing(self) -> Sequence[Problem]:
        """The paths that have no file."""
        return self._missing

    def index_file(self, number: int, network: Network) -> Iterator[BlockRef | Problem]:
        """Yield every block and every unreadable part of one file. Several threads may read a file each."""
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
                yield Problem(str(file.path), "no block in this file, nothing but zeros")
        except (FormatError, SourceError, OSError) as error:
            yield Problem.of(str(file.path), error)

    def undo_beside(self, number: int) -> UndoFile | None:
        """The undo file beside a file, if undo records are looked for and there is one."""
        return None if self.mode is UndoMode.OFF else UndoFile.beside(self._files[number].path)

    def find_undo(self, ref: BlockRef) -> UndoPlace | None:
        return self._undo.find(ref.file, ref.hash)

    def pair_again(self, ref: BlockRef, tried: UndoPlace) -> list[Problem] | None:
        problems = self._undo.pair_again(ref.hash, tried)
        return None if problems is None else [Problem(where, message) for where, message in problems]

    def file(self, number: int) -> BlockFile:
        """A file by its number."""
        return self._files[number]

    def undo_problems(self) -> list[Problem]:
        return [Problem(where, message) for where, message in self._undo.problems]


def _identity(file: FilePath) -> str:
    return str(file) if isinstance(file, RemoteFile) else os.path.realpath(file)


@contextmanager
def _descriptors(wanted: Sequence[tuple[int, FilePath, int, int]]) -> Iterator[dict[int, int] | None]:
    """Files open for reading, by number, at least in the ranges wanted (number, file, offset, size); None if one cannot
    be opened.
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
                        fetched(path, ranges[number]) if isinstance(path, RemoteFile) else os.open(path, os.O_RDONLY)
                    )
            whole = True
        except OSError:
            whole = False
        yield descriptors if whole else None
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def linked(source: Readable, ref: BlockRef) -> LinkedBlock:
    """What pairing with an undo record needs to know of a block."""
    return LinkedBlock(ref.hash, ref.previous, ref.transactions or 0, ref.time, ref.height, partial(source.read, ref))
