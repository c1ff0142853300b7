"""Where raw blocks come from: files, memory, a spool of a stream. Everything here blocks; the matcher calls it from its threads."""

from __future__ import annotations

import os
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from spvfilter.aio.blockfile import MAX_BLOCK_SIZE, BlockFile, Record
from spvfilter.chain import coinbase_height
from spvfilter.errors import FormatError, ParameterError, SourceError
from spvfilter.hashes import sha256d
from spvfilter.network import Network
from spvfilter.primitives import HEADER_SIZE, Header, Serializable, to_bytes

PREFIX_SIZE = 256  # bytes of a block that hold its header and the height in its coinbase
_SPOOL_IN_MEMORY = 64 << 20  # bytes kept before a spool goes to disk


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A serialised block whose height is known."""

    raw: bytes
    height: int | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a source that could not be read, so that payments in it are not seen."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where one block lies in its source, and its header's linkage."""

    file: int  # number of the file within the source
    offset: int  # bytes
    size: int  # bytes
    hash: bytes
    previous: bytes
    bits: int
    time: int
    height: int | None  # given, or stated by the block itself (BIP-34)


def block_ref(prefix: bytes, file: int, offset: int, size: int, network: Network, height: int | None = None) -> BlockRef:
    """The reference of a block whose first PREFIX_SIZE bytes are `prefix`. Raises FormatError for a short header."""
    if len(prefix) < HEADER_SIZE:
        raise FormatError(f"truncated: {HEADER_SIZE} bytes wanted, {len(prefix)} left", offset=0, field="header")
    header = Header.parse(prefix[:HEADER_SIZE])
    stated = coinbase_height(prefix, network) if height is None else height
    return BlockRef(file, offset, size, sha256d(prefix[:HEADER_SIZE]), header.previous, header.bits, header.time, stated)


class Readable(ABC):
    """Blocks that can be read one by one, in any order and more than once. `read` is called from several threads."""

    @abstractmethod
    def read(self, ref: BlockRef) -> bytes:
        """One block. Raises SourceError, OSError."""

    @abstractmethod
    def name(self, ref: BlockRef) -> str:
        """Where a block is, for people."""


class BlockSource(Readable):
    """Blocks that can also be listed by their headers first."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []  # what could not be read

    @abstractmethod
    def index(self, network: Network) -> list[BlockRef]:
        """Every block there is, as it comes; what cannot be read goes to `problems`."""


class BlockList(BlockSource):
    """Blocks in memory."""

    def __init__(self, blocks: Sequence[bytes | RawBlock | Serializable]) -> None:
        super().__init__()
        self._blocks = [block if isinstance(block, RawBlock) else RawBlock(to_bytes(block)) for block in blocks]

    def index(self, network: Network) -> list[BlockRef]:
        return [
            block_ref(block.raw[:PREFIX_SIZE], number, 0, len(block.raw), network, block.height)
            for number, block in enumerate(self._blocks)
        ]

    def read(self, ref: BlockRef) -> bytes:
        return self._blocks[ref.file].raw

    def name(self, ref: BlockRef) -> str:
        return f"block {ref.file} of the list"


class Spool(Readable):
    """Blocks of a stream, kept on disk in case they must be read again."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_SPOOL_IN_MEMORY)  # noqa: SIM115  closed by close()
        self._lock = threading.Lock()
        self._end = 0

    def put(self, raw: bytes) -> int:
        """Keep a block; the offset it is read by."""
        with self._lock:
            offset = self._end
            self._file.seek(offset)
            self._file.write(raw)
            self._end += len(raw)
        return offset

    def read(self, ref: BlockRef) -> bytes:
        with self._lock:
            self._file.seek(ref.offset)
            return self._file.read(ref.size)

    def name(self, ref: BlockRef) -> str:
        return f"block {ref.file} of the stream"

    def close(self) -> None:
        self._file.close()


class BlockFiles(BlockSource):
    """Blocks in files: raw ones, hex ones, Bitcoin Core's blk*.dat, and directories of them.

    A directory stands for its blk*.dat files, or if it has none, for its *.raw, *.blk and *.hex files. Files of Bitcoin Core 28
    and later are read through the key in the xor.dat beside them. Raises SourceError if nothing at all is there to read.
    """

    def __init__(self, paths: Iterable[str | os.PathLike[str]] | str | os.PathLike[str]) -> None:
        named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not named:
            raise ParameterError("no file of blocks named")
        super().__init__()
        self._files: list[BlockFile] = []
        seen: set[Path] = set()
        for path in (Path(name) for name in named):
            for file in self._expand(path):
                resolved = file.resolve()
                if resolved not in seen:
                    seen.add(resolved)
                    self._files.append(BlockFile(file))

    def _expand(self, path: Path) -> list[Path]:
        try:
            if not path.is_dir():
                return [path]
            files = sorted(path.glob("blk*.dat")) or sorted(f for f in path.iterdir() if f.suffix in (".raw", ".blk", ".hex"))
        except OSError as error:
            self.problems.append(Problem(str(path), error.strerror or str(error)))
            return []
        if not files:
            self.problems.append(Problem(str(path), "no blk*.dat, *.raw, *.blk or *.hex file in this directory"))
        return files

    def index(self, network: Network) -> list[BlockRef]:
        refs: list[BlockRef] = []
        for number, file in enumerate(self._files):
            try:
                for found in file.records(network, PREFIX_SIZE):
                    if isinstance(found, Record):
                        refs.append(block_ref(found.prefix, number, found.offset, found.size, network))
                    else:
                        self.problems.append(Problem(str(file.path), found))
            except OSError as error:
                self.problems.append(Problem(str(file.path), error.strerror or str(error)))
            except (FormatError, SourceError) as error:
                self.problems.append(Problem(str(file.path), str(error)))
        return refs

    def read(self, ref: BlockRef) -> bytes:
        """One block. Raises SourceError if the file is not what it was when it was indexed, OSError if it is gone."""
        raw = self._files[ref.file].read(ref.offset, ref.size)
        if sha256d(raw[:HEADER_SIZE]) != ref.hash:
            raise SourceError("the file has changed while it was read")
        return raw

    def name(self, ref: BlockRef) -> str:
        return f"{self._files[ref.file].path} at byte {ref.offset}"


def hex_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Raw blocks from lines of hex, blank lines skipped. Raises FormatError (field "hex", offset the line number)."""
    limit = 2 * MAX_BLOCK_SIZE + 2
    for number, line in enumerate(iter(lambda: stream.readline(limit + 1), b""), 1):
        if len(line) > limit:
            raise FormatError(f"a line of more than {limit} digits", offset=number, field="hex line")
        text = line.strip()
        if not text:
            continue
        try:
            yield bytes.fromhex(text.decode("ascii"))
        except ValueError:
            raise FormatError(f"not hex: {text[:40]!r}", offset=number, field="hex line") from None
