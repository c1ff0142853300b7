"""Files given by URL, such as s3://bucket/blocks/blk00000.dat, read in ranges through fsspec, and local files."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias  # Any: fsspec has no types

from spvfilter import _system
from spvfilter._public import public
from spvfilter.errors import ParameterError, RemoteFileError, SourceError, remedy
from spvfilter.kernel import read_at
from spvfilter.kernel.pure.files import xored

_HAS_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
_WINDOW = 1 << 16  # least number of bytes to read (our choice): the request itself costs more than that
_GAP = 1 << 16  # most bytes between two ranges that are read as one range (our choice)


@public
class RemoteFile:
    """A file or directory given by its URL, with the methods of `pathlib.Path` that block files need (`remote` extra).

    The methods raise:

    - FileNotFoundError, IsADirectoryError or NotADirectoryError if the store reports this for the file;
    - RemoteFileError if the store itself fails, or refuses access;
    - ParameterError if fsspec, or another package that it needs for this URL, is missing.

    The constructor raises ParameterError if the URL contains a password.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        user, at, _ = rest.partition("/")[0].rpartition("@")
        if at and ":" in user:
            raise ParameterError(
                f"a URL must not contain a password, because messages would show it: {scheme}://… (put the"
                " credentials into the store's configuration)"
            )
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemoteFile({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteFile) and self._url == other._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __lt__(self, other: RemoteFile) -> bool:
        return self._url < other._url

    @property
    def name(self) -> str:
        """Name of the file: the part of the URL after the last slash."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Suffix of the file's name, starting with its last dot."""
        return Path(self.name).suffix

    def with_name(self, name: str) -> RemoteFile:
        """Return the file with this name in the same directory."""
        return RemoteFile(f"{self._url.rpartition('/')[0]}/{name}")

    def exists(self) -> bool:
        """Return True if the file exists."""
        with self._store() as (store, path):
            return bool(store.exists(path))

    def is_dir(self) -> bool:
        """Return True if there are files under this URL."""
        with self._store() as (store, path):
            return bool(store.isdir(path))

    def iterdir(self) -> Iterator[RemoteFile]:
        """Yield the files in the directory."""
        with self._store() as (store, path):
            names = [each["name"].rstrip("/").rpartition("/")[2] for each in store.ls(path, detail=True)]
        for name in names:
            yield RemoteFile(f"{self._url}/{name}")

    def size(self) -> int:
        """Return the size of the file in bytes. Raises SourceError if it is not a regular file."""
        with self._store() as (store, path):
            found = store.info(path)
            if found["type"] != "file":
                raise SourceError("not a regular file")
            return int(found["size"])

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of the file, starting at `offset`."""
        if size <= 0:
            return b""
        with self._store() as (store, path):
            return bytes(store.cat_file(path, start=offset, end=offset + size))

    def read_bytes(self) -> bytes:
        """Return all bytes of the file."""
        with self._store() as (store, path):
            return bytes(store.cat_file(path))

    def put(self, local: Path) -> None:
        """Replace this file with a local file.

        Readers never see a partial file. If the store can rename files, the file is uploaded under a temporary name and
        renamed; otherwise it is uploaded as a single object.
        """
        with self._store() as (store, path):
            if _has_renames(store):
                store.makedirs(path.rpartition("/")[0], exist_ok=True)
                beside = f"{path}.unfinished"
                store.put_file(str(local), beside)
                store.mv(beside, path)
            else:
                store.put_file(str(local), path)

    @contextmanager
    def _store(self) -> Iterator[tuple[Any, str]]:
        """Return the store of the file, and the file's path in it."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ParameterError(f"{self._url}: reading files from a URL needs fsspec; {remedy('remote')}") from None
        try:
            store, path = url_to_fs(self._url, use_listings_cache=False)
        except ImportError as error:
            raise ParameterError(f"{self._url}: {error}") from None
        except ValueError as error:
            raise ParameterError(f"{self._url}: fsspec does not support this kind of store: {error}") from None
        try:
            yield store, path
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, SourceError):
            raise
        except Exception as error:  # errors of the store's own classes, and connection errors from any library
            why = isinstance(error, OSError) and error.strerror
            raise RemoteFileError(f"{self._url}: {why or str(error) or type(error).__name__}") from error


def _has_renames(store: Any) -> bool:
    """Return True if the store renames a file without copying it."""
    protocols = (store.protocol,) if isinstance(store.protocol, str) else tuple(store.protocol)
    return not {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}.intersection(protocols)


FilePath: TypeAlias = Path | RemoteFile


def is_url(name: object) -> bool:
    """Return True if a name is a URL."""
    return isinstance(name, str) and _HAS_SCHEME.match(name) is not None


def located(name: str | os.PathLike[str]) -> FilePath:
    """Return the local path or the remote file that a name stands for. A file:// URL stands for a local path."""
    if isinstance(name, str) and is_url(name):
        if not name.startswith("file://"):
            return RemoteFile(name)
        path = name.removeprefix("file://")
        # file:///C:/blocks
        return Path(path.removeprefix("/") if sys.platform == "win32" else path)
    return Path(name)


def seen_anywhere(name: str) -> str:
    """Return a name that means the same to a process on another machine: an absolute path or the URL."""
    return name if is_url(name) else str(Path(name).absolute())


class OpenFile(Protocol):
    """A file that is open for reading."""

    size: int
    """Size of the file, in bytes."""

    def at(self, offset: int, size: int, key: bytes = b"") -> bytes:
        """Return up to `size` bytes of the file, starting at `offset`.

        If `key` is not empty, the bytes are XORed with it. The key is 8 bytes long and is repeated from the start of
        the file.
        """


class _Local:
    """A local file that is open for reading."""

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("not a regular file")
        self._descriptor = descriptor
        self.size = status.st_size

    def at(self, offset: int, size: int, key: bytes = b"") -> bytes:
        raw = read_at(self._descriptor, offset, size, key) if key else _system.read_at(self._descriptor, size, offset)
        if len(raw) < min(size, self.size - offset):  # missing bytes must not pass for padding
            raise SourceError("the file shrank while it was being read")
        return raw


class _Remote:
    """A remote file that is open for reading. It keeps the most recently read range of bytes."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self.size = file.size()
        self._begin, self._window = 0, b""

    def at(self, offset: int, size: int, key: bytes = b"") -> bytes:
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        if not self._begin <= offset or end > self._begin + len(self._window):
            wanted = min(max(size, _WINDOW), self.size - offset)
            self._begin, self._window = offset, _whole(self._file, offset, wanted)
        return xored(self._window[offset - self._begin : end - self._begin], offset, key)


def _whole(file: RemoteFile, offset: int, size: int) -> bytes:
    """Return exactly these bytes.

    Raises RemoteFileError if the store returns only a part of the range, or the whole file instead.
    """
    raw = file.read(offset, size)
    if len(raw) != size:
        raise _partial(file, offset, size, len(raw))
    return raw


def _partial(file: RemoteFile, offset: int, size: int, given: int) -> RemoteFileError:
    """Return the error for an answer of the wrong size."""
    return RemoteFileError(
        f"{file}: requested {size:,} bytes starting at byte {offset:,}, but the store returned {given:,}"
    )


@contextmanager
def opened(path: FilePath) -> Iterator[OpenFile]:
    """Context manager: opens a file for reading.

    Raises OSError or RemoteFileError if it cannot be opened, and SourceError if it is not a regular file.
    """
    if isinstance(path, RemoteFile):
        yield _Remote(path)
        return
    descriptor = _system.open_to_read(path)
    try:
        yield _Local(descriptor)
    finally:
        os.close(descriptor)


def fetched(file: RemoteFile, ranges: Sequence[tuple[int, int]]) -> int:
    """Return the descriptor of an in-memory file that contains these ranges (offset, size) of a remote file.

    Bytes past the end of the remote file are omitted. Raises OSError or RemoteFileError.
    """
    descriptor = _nameless()
    try:
        for begin, end in _joined(ranges):
            raw = file.read(begin, end - begin)
            if len(raw) != end - begin and len(raw) != max(file.size() - begin, 0):
                raise _partial(file, begin, end - begin, len(raw))
            if _system.write_at(descriptor, raw, begin) != len(raw):
                raise OSError("not enough memory for the bytes that were read")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    """Return the descriptor of a new file without a name, which is in memory if the system supports that."""
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.memfd_create("spvfilter")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges as (first byte, last byte + 1). Ranges that are close together become one."""
    begin = end = -1
    for offset, size in sorted(ranges):
        if end >= 0 and offset <= end + _GAP:
            end = max(end, offset + size)
            continue
        if end >= 0:
            yield begin, end
        begin, end = offset, offset + size
    if end >= 0:
        yield begin, end
