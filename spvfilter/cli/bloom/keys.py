"""Input of `spvfilter bloom`: keys from files or standard input, one per line or terminated by NUL."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from spvfilter.cli.arguments import standard_input
from spvfilter.cli.bloom.storage import READABLE
from spvfilter.errors import SourceError

CHUNK = 1 << 16
"""Most bytes to read at a time: the capacity of a pipe on Linux."""
MAX_KEY = 64 << 20
"""Largest size of a key in bytes (our choice)."""


class KeyLines:
    """The keys in files or on standard input, in batches as they arrive.

    Without paths, and for the path "-", keys come from standard input. A key ends with a newline or with CR LF. If
    `nul` is True, a key ends with NUL and may contain any other byte. The last key needs no terminator. An empty line
    is an empty key.

    The constructor raises OSError if a file cannot be read. `batches` raises SourceError if a key is larger than 64 MiB
    or a file is a filter.
    """

    def __init__(self, paths: Sequence[str], nul: bool) -> None:
        self.paths: list[str] = list(paths) or ["-"]
        sizes = [_size(path) for path in self.paths]
        # in bytes; None if the size of a path is unknown
        self.total: int | None = None if None in sizes else sum(size for size in sizes if size is not None)
        self.done: int = 0  # number of bytes read so far
        self._end = b"\0" if nul else b"\n"

    @property
    def named(self) -> str:
        """The names of the inputs, for messages."""
        return ", ".join("standard input" if path == "-" else path for path in self.paths)

    def batches(self) -> Iterator[list[bytes]]:
        for path in self.paths:
            with ExitStack() as stack:
                stream = standard_input() if path == "-" else stack.enter_context(Path(path).open("rb"))
                yield from self._of(stream, path)

    def _of(self, stream: BinaryIO, path: str) -> Iterator[list[bytes]]:
        rest: list[bytes] = []  # pieces of a key whose end has not been read yet
        size, start = 0, True
        while chunk := stream.read1(CHUNK):  # type: ignore[attr-defined]  # both are buffered readers
            if start and chunk.startswith(READABLE):
                raise SourceError(f"{path}: expected lines, but this is a filter")
            start = False
            self.done += len(chunk)
            if self._end not in chunk:
                rest.append(chunk)
                size += len(chunk)
                if size > MAX_KEY:
                    raise SourceError(f"{path}: a line is longer than {MAX_KEY:,} bytes: is this a text file?")
                continue
            *keys, last = b"".join((*rest, chunk)).split(self._end)
            rest, size = [last], len(last)
            yield self._trimmed(keys)
        if key := b"".join(rest):
            yield self._trimmed([key])

    def _trimmed(self, keys: list[bytes]) -> list[bytes]:
        return keys if self._end == b"\0" else [key.removesuffix(b"\r") for key in keys]


def _size(path: str) -> int | None:
    """Return the size of a file in bytes, or None for a pipe. Raises OSError if the file cannot be read.

    The file is not opened, because that would start the writer of a FIFO.
    """
    if path == "-":
        return None
    status = Path(path).stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return status.st_size if stat.S_ISREG(status.st_mode) else None
