"""Streams that may be compressed with gzip or zstd, read in bounded pieces."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol, cast

from spvfilter.errors import SourceError, remedy

SUFFIXES = (".gz", ".zst")
"""Suffixes of compressed files."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BUFFER = 1 << 20  # Bytes that are read or decompressed at a time (our choice).
_PIECE = 1 << 8  # Bytes of zstd that are decompressed at a time (our choice): 4 of them yield up to 128 kB.
_DEEPEST = 2  # Largest number of layers of compression that are removed (our choice).
_LARGEST_WINDOW = 1 << 27  # Bytes of earlier output that zstd may refer to: the limit of the zstd program.


def is_compressed(path: str | os.PathLike[str]) -> bool:
    """Return True if the name of a file says that it is compressed."""
    return os.fspath(path).lower().endswith(SUFFIXES)


def begun(stream: BinaryIO) -> tuple[io.BufferedReader, bytes]:
    """Return the stream, still at its beginning, and its first four bytes, or fewer if the first line is shorter.

    It reads no further than that, so it does not block on a pipe whose first line has arrived.
    """
    head = stream.readline(4)
    return io.BufferedReader(_Rejoined(head, stream), _BUFFER), head


def unpacked(stream: BinaryIO, most: int | None = None) -> io.BufferedReader:
    """Return the stream decompressed, or unchanged if it is not compressed. The first bytes say which.

    Reading decompresses a bounded piece at a time. It raises SourceError if a compressed stream is damaged or cut off,
    or if it exceeds `most` bytes when decompressed.

    Raises:
        SourceError: The stream is compressed with zstd, and no package for zstd is installed.
    """
    reader, head = begun(stream)
    is_packed = head.startswith((_GZIP, _ZSTD))
    for _ in range(_DEEPEST):
        if head.startswith(_GZIP):
            reader, head = begun(io.BufferedReader(_Gunzipped(reader), _BUFFER))
        elif head.startswith(_ZSTD):
            reader, head = begun(io.BufferedReader(_zstd(reader), _BUFFER))
    return io.BufferedReader(_Limited(reader, most), _BUFFER) if is_packed and most is not None else reader


class _Limited(io.RawIOBase):
    """A stream with a limit on its length. Reading past the limit raises SourceError."""

    def __init__(self, reader: io.BufferedReader, most: int) -> None:
        super().__init__()
        self._reader = reader
        self._most = self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        taken = self._reader.read1(len(view))
        self._left -= len(taken)
        if self._left < 0:
            raise SourceError(f"the file exceeds {self._most:,} bytes when decompressed: decompress it first")
        view[: len(taken)] = taken
        return len(taken)


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes have already been read, with these bytes put back."""

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


class _Gunzipped(io.RawIOBase):
    """The decompressed contents of a gzip stream. If it is damaged, reading raises SourceError."""

    def __init__(self, reader: BinaryIO) -> None:
        super().__init__()
        self._file = gzip.GzipFile(fileobj=reader)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        try:
            return self._file.readinto(cast("bytearray", buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged(error) from None


class _Frame(Protocol):
    """A decompressor for one zstd frame, in the interface that Python 3.14 and the zstandard package share."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...


class _Unzstd(io.RawIOBase):
    """The decompressed contents of a stream of zstd frames. If it is damaged, reading raises SourceError.

    Args:
        reader: The compressed stream.
        new_frame: Returns the decompressor for the next frame.
        error: The exception that a damaged frame raises.
    """

    def __init__(self, reader: io.BufferedReader, new_frame: Callable[[], _Frame], error: type[Exception]) -> None:
        super().__init__()
        self._reader = reader
        self._new_frame = new_frame
        self._error = error
        self._frame: _Frame | None = None
        self._rest = b""  # compressed bytes after the last frame
        self._plain = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        while not self._plain:
            piece, self._rest = self._rest or self._reader.read1(_PIECE), b""
            if not piece:
                if self._frame is None:
                    return 0
                raise _damaged("a frame is incomplete")
            self._plain = memoryview(self._decompressed(piece))
        taken = self._plain[: len(view)]
        view[: len(taken)] = taken
        self._plain = self._plain[len(taken) :]
        return len(taken)

    def _decompressed(self, piece: bytes) -> bytes:
        if self._frame is None:
            self._frame = self._new_frame()
        try:
            plain = self._frame.decompress(piece)
        except self._error as error:
            raise _damaged(error) from None
        if self._frame.eof:
            self._rest, self._frame = self._frame.unused_data, None
        return plain


def _damaged(why: object) -> SourceError:
    return SourceError(f"the compressed stream is damaged or cut off: {why}")


def _zstd(reader: io.BufferedReader) -> _Unzstd:
    """Return the decompressed contents of a zstd stream. Raises SourceError if no package for zstd is installed."""
    try:
        from compression import zstd  # type: ignore[import-not-found]  # since Python 3.14
    except ImportError:
        pass
    else:
        options = {zstd.DecompressionParameter.window_log_max: _LARGEST_WINDOW.bit_length() - 1}
        return _Unzstd(reader, lambda: cast("_Frame", zstd.ZstdDecompressor(options=options)), zstd.ZstdError)
    try:
        import zstandard  # an extra
    except ImportError:
        raise SourceError(
            f"compressed with zstd, which needs zstandard; {remedy('zstd')}, or decompress the file first (zstd -dc)"
        ) from None
    unzstd = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    return _Unzstd(reader, lambda: cast("_Frame", unzstd.decompressobj()), zstandard.ZstdError)
