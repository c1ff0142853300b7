"""Files by URL, as s3://bucket/blocks/blk00000.dat, read in ranges through fsspec (the extra `remote`); and files of
either kind, open.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias  # Any: fsspec has no types

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError, RemoteFileError, SourceError
from spvfilter.kernel import read_at
from spvfilter.kernel.pure.files import xored

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = deferred("tempfile")

_HAS_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")
_WINDOW = 1 << 16  # bytes read at once where less is asked for: a request costs more than they do
_GAP = 1 << 16  # bytes between two ranges that are read as one


@public
class RemoteFile:
    """A file or directory by its URL: what of `pathlib.Path` is asked of files of blocks.

    Its methods raise FileNotFoundError, IsADirectoryError and NotADirectoryError for what the store says of this file,
    RemoteFileError where the store itself fails or refuses, and ParameterError without fsspec, or what it needs for
    such URLs. So does the constructor, for a URL with a password in it.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        user, at, _ = rest.partition("/")[0].rpartition("@")
        if at and ":" in user:
            raise ParameterError(
                f"a URL with a password in it is refused, since messages name it: {scheme}://… (configure the store)"
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
        """What follows the last slash."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """What begins with the last dot of the name."""
        return Path(self.name).suffix

    def with_name(self, name: str) -> RemoteFile:
        """The file of that name beside it."""
        return RemoteFile(f"{self._url.rpartition('/')[0]}/{name}")

    def exists(self) -> bool:
        """Whether there is such a file."""
        with self._store() as (store, path):
            return bool(store.exists(path))

    def is_dir(self) -> bool:
        """Whether there are files below it."""
        with self._store() as (store, path):
            return bool(store.isdir(path))

    def iterdir(self) -> Iterator[RemoteFile]:
        """The files in a directory."""
        with self._store() as (store, path):
            names = [each["name"].rstrip("/").rpartition("/")[2] for each in store.ls(path, detail=True)]
        for name in names:
            yield RemoteFile(f"{self._url}/{name}")

    def size(self) -> int:
        """Bytes. Raises SourceError for what is no file."""
        with self._store() as (store, path):
            found = store.info(path)
            if found["type"] != "file":
                raise SourceError("not a regular file")
            return int(found["size"])

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on."""
        if size <= 0:
            return b""
        with self._store() as (store, path):
            return bytes(store.cat_file(path, start=offset, end=offset + size))

    def read_bytes(self) -> bytes:
        """All of it."""
        with self._store() as (store, path):
            return bytes(store.cat_file(path))

    def put(self, local: Path) -> None:
        """Take a local file's place: whole, by a rename where the store has files, and as one object where it has
        none.
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
        """The store, and the path in it."""
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ParameterError(f"{self._url}: files by URL need fsspec: pip install 'spvfilter[remote]'") from None
        try:
            store, path = url_to_fs(self._url, use_listings_cache=False)
        except ImportError as error:
            raise ParameterError(f"{self._url}: {error}") from None
        except ValueError as error:
            raise ParameterError(f"{self._url}: no kind of store that fsspec knows: {error}") from None
        try:
            yield store, path
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, SourceError):
            raise
        except Exception as error:  # a store's own, and what a store that is away, busy or closed to us makes of it
            why = isinstance(error, OSError) and error.strerror
            raise RemoteFileError(f"{self._url}: {why or str(error) or type(error).__name__}") from error


def _has_renames(store: Any) -> bool:
    """Whether a file can be renamed without being written anew."""
    protocols = (store.protocol,) if isinstance(store.protocol, str) else tuple(store.protocol)
    return not {"s3", "s3a", "gs", "gcs", "az", "abfs", "memory"}.intersection(protocols)


FilePath: TypeAlias = Path | RemoteFile


def is_url(name: object) -> bool:
    """Whether a name is meant as a URL."""
    return isinstance(name, str) and _HAS_SCHEME.match(name) is not None


def located(name: str | os.PathLike[str]) -> FilePath:
    """A path, or what a URL names; file:// is a path, too."""
    if isinstance(name, str) and is_url(name):
        return Path(name.removeprefix("file://")) if name.startswith("file://") else RemoteFile(name)
    return Path(name)


def seen_anywhere(name: str) -> str:
    """A name that means the same in a process that runs elsewhere: an absolute path, or the URL."""
    return name if is_url(name) else str(Path(name).absolute())


class OpenFile(Protocol):
    """A file open for reading."""

    size: int
    """Bytes."""

    def at(self, offset: int, size: int, key: bytes = b"") -> bytes:
        """Up to `size` bytes from `offset` on, XORed with a key of 8 bytes that is repeated from the start of the file,
        if there is one.
        """


class _Local:
    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("not a regular file")
        self._descriptor = descriptor
        self.size = status.st_size

    def at(self, offset: int, size: int, key: bytes = b"") -> bytes:
        raw = read_at(self._descriptor, offset, size, key) if key else os.pread(self._descriptor, size, offset)
        if len(raw) < min(size, self.size - offset):  # what is not there is no padding
            raise SourceError("the file has become shorter while it was read")
        return raw


class _Remote:
    """It keeps the last range that it has read."""

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
    """Those bytes, all of them and no others.

    Raises RemoteFileError where the store gives a part of a range, or the file in its place.
    """
    raw = file.read(offset, size)
    if len(raw) != size:
        raise _partial(file, offset, size, len(raw))
    return raw


def _partial(file: RemoteFile, offset: int, size: int, given: int) -> RemoteFileError:
    return RemoteFileError(
        f"{file}: {size:,} bytes from byte {offset:,} on were asked of the store, which gave {given:,}"
    )


@contextmanager
def opened(path: FilePath) -> Iterator[OpenFile]:
    """A file open for reading. Raises OSError; SourceError unless it is a regular file; RemoteFileError."""
    if isinstance(path, RemoteFile):
        yield _Remote(path)
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe without a writer would block
    try:
        yield _Local(descriptor)
    finally:
        os.close(descriptor)


def fetched(file: RemoteFile, ranges: Sequence[tuple[int, int]]) -> int:
    """A descriptor of a nameless file in memory with these ranges, as offset and size, of a remote one, at their
    offsets in it.

    What lies behind the end of the remote file is left out. Raises OSError, RemoteFileError.
    """
    descriptor = _nameless()
    try:
        for begin, end in _joined(ranges):
            raw = file.read(begin, end - begin)
            if len(raw) != end - begin and len(raw) != max(file.size() - begin, 0):
                raise _partial(file, begin, end - begin, len(raw))
            if os.pwrite(descriptor, raw, begin) != len(raw):
                raise OSError("no memory for what was read")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("spvfilter")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges as first byte and the one after the last; those that are near each other as one."""
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
