"""Blocks on a stream that is read once: lines of hex, or the records of a blk*.dat, plain or compressed."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from spvfilter._public import public
from spvfilter.errors import FormatError, SourceError
from spvfilter.network import Network
from spvfilter.protocol import HEADER_SIZE, MAX_BLOCK_SIZE
from spvfilter.scan.wrongnetwork import A_TRANSACTION, contradiction, is_mined, is_tx

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
TEXT = frozenset((*range(0x20, 0x7F), 0x09, 0x0A, 0x0D))  # Printable ASCII, tab and line ends.
_HEX = frozenset(b"0123456789abcdefABCDEF \t")
_BUFFER = 1 << 20  # Bytes that are read at once (our choice).
_DEEPEST = 2  # Layers of compression that are removed (our choice).


@public
def stream_blocks(stream: BinaryIO, network: Network, bad: Callable[[str], None] | None = None) -> Iterator[bytes]:
    """Yield the raw blocks on a stream of hex lines or of a blk*.dat, which may be compressed by gzip or zstd.

    Zstandard needs Python 3.14 or the package zstandard.

    Args:
        stream: The stream, open for reading bytes.
        network: The network of the blocks.
        bad: Called with a sentence for each line that is not hex and for each record that is cut off. The next line or
            record is then read. If it is None, such a line or record is an error.

    Raises:
        FormatError: A line is not hex. The field is "hex line", the offset is the number of the line.
        SourceError: The blocks are of another network, the stream is neither hex nor a blk*.dat, or its compression is
            damaged.
    """
    with damage():
        plain, head = begun(unpacked(stream))
        owner = Network.of_magic(head, network)
        if owner is network:
            yield from _records(plain, network, bad)
        elif owner is not None:
            raise SourceError(f"these are blocks of {owner}, not of {network}")
        elif TEXT.issuperset(head):
            yield from hex_blocks(plain, bad, network)
        elif is_tx(plain.read(MAX_BLOCK_SIZE)):
            raise SourceError(A_TRANSACTION)
        else:
            raise SourceError(
                "neither lines of hex nor a blk*.dat (since Bitcoin Core 28 these are XORed: name the file instead)"
            )


@contextmanager
def damage() -> Iterator[None]:
    """Return a context manager that turns errors of a damaged compressed stream into SourceError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"the compressed stream is damaged or cut off: {error}") from None


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were read already, with these bytes put back."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        super().__init__()
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        # all of these streams are buffered readers
        taken = self._head[: len(view)] or self._rest.read1(len(view))  # type: ignore[attr-defined]
        self._head = self._head[len(view) :]
        view[: len(taken)] = taken
        return len(taken)


def begun(stream: BinaryIO) -> tuple[io.BufferedReader, bytes]:
    """Return the stream and its first four bytes, or fewer bytes if the first line is shorter.

    It waits for no further bytes.
    """
    head = stream.readline(4)
    return io.BufferedReader(_Rejoined(head, stream), _BUFFER), head


def unpacked(stream: BinaryIO) -> io.BufferedReader:
    """Return the stream decompressed, or unchanged if it is not compressed."""
    reader, head = begun(stream)
    for _ in range(_DEEPEST):
        if head.startswith(_GZIP):
            reader, head = begun(io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=reader)), _BUFFER))
        elif head.startswith(_ZSTD):
            reader, head = begun(io.BufferedReader(_zstd(reader), _BUFFER))
    return reader


def _zstd(reader: BinaryIO) -> io.RawIOBase:
    """Return a stream decompressed by zstd. Raises SourceError if no package for zstd is installed."""
    try:
        from compression import zstd  # type: ignore[import-not-found]  # since Python 3.14
    except ImportError:
        pass
    else:
        return cast("io.RawIOBase", zstd.open(reader))
    try:
        import zstandard  # type: ignore[import-not-found]  # not a dependency
    except ImportError:
        raise SourceError("compressed by zstd: pip install zstandard, or decompress it first (zstd -dc)") from None
    return cast("io.RawIOBase", zstandard.ZstdDecompressor().stream_reader(reader, read_across_frames=True))


@public
def hex_blocks(
    stream: BinaryIO, bad: Callable[[str], None] | None = None, network: Network | None = None
) -> Iterator[bytes]:
    """Yield raw blocks from lines of hex. Blank lines are skipped.

    Args:
        stream: The stream, open for reading bytes.
        bad: Called with a sentence for each line that is not hex, or that is certainly not a block of `network`. The
            next line is then read. If it is None, such a line is an error.
        network: The network of the blocks; by default blocks of any network are accepted.

    Raises:
        FormatError: A line is not hex, too long, or of another network. The field is "hex line", the offset is the
            number of the line.
    """
    limit = 2 * MAX_BLOCK_SIZE + 2
    for number, line in enumerate(iter(lambda: stream.readline(limit + 1), b""), 1):
        if len(line) > limit:
            raise FormatError(f"a line of more than {limit} digits", offset=number, field="hex line")
        text = line.strip()
        if not text:
            continue
        raw, message = _block_of(text, network)
        if message is None:
            yield raw
        elif bad is None:
            raise FormatError(message, offset=number, field="hex line")
        else:
            bad(f"line {number}: {message}")


def hex_fault(text: bytes) -> str:
    """Return what is wrong with a text that is not hex. The text may be a secret, so the message omits it."""
    wrong = next((at for at, char in enumerate(text, 1) if char not in _HEX), None)
    digits = sum(char not in b" \t" for char in text)
    return f"an odd number of hex digits: {digits:,}" if wrong is None else f"character {wrong:,} is not a hex digit"


def _block_of(text: bytes, network: Network | None) -> tuple[bytes, str | None]:
    """Return the block in a line, and a sentence that says what is wrong with the line, if anything is."""
    try:
        raw = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return b"", f"not hex: {hex_fault(text)}"
    if network is None:
        return raw, None
    return raw, A_TRANSACTION if not is_mined(raw) and is_tx(raw) else contradiction(raw, network)


def _records(stream: io.BufferedReader, network: Network, bad: Callable[[str], None] | None) -> Iterator[bytes]:
    """Yield the blocks of a blk*.dat. Raises SourceError."""
    at = 0
    while True:
        while (zeros := stream.peek(1)) and not zeros[0]:
            at += len(stream.read(len(zeros) - len(zeros.lstrip(b"\0"))))
        head = stream.read(8)
        if not head:
            return
        size = int.from_bytes(head[4:], "little")
        if head[:4] != network.magic or len(head) < 8 or not HEADER_SIZE < size <= MAX_BLOCK_SIZE:
            raise SourceError(f"no block record of {network} at byte {at}")
        raw = stream.read(size)
        if len(raw) < size:
            message = f"the record at byte {at} is cut off: {len(raw)} of {size} bytes"
            if bad is None:
                raise SourceError(message)
            bad(message)
            return
        at += 8 + size
        yield raw
