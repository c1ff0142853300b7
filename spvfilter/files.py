"""Files on disk: one that takes the place of an old one completely or not at all, and one that is locked by a single
process.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Self

from spvfilter._public import deferred

if TYPE_CHECKING:
    import pathlib
    import tempfile
else:
    pathlib = deferred("pathlib")
    tempfile = deferred("tempfile")

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # a full disk, or a quota that is used up
_MOST_DIGITS = 20  # of a process id


@contextmanager
def replacing(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Context manager: a new file of mode 0600, which is flushed to disk and renamed to `path` on success and removed
    on an exception.

    An OSError of that file names `path`.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=".spvfilter-", dir=path.parent)  # mkstemp: mode 0600
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    temporary = pathlib.Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == name:
            raise OSError(error.errno, error.strerror, str(path)) from None  # of the renaming, which names both
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            error.filename = str(path)  # of a write, which names no file
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class FileHeldError(Exception):
    """A file is locked already, by the process of that id, or by one that is not known."""

    def __init__(self, process: int | None) -> None:
        super().__init__(process)
        self.process = process

    def __str__(self) -> str:
        return "another process" if self.process is None else f"process {self.process}"


class FileLock:
    """The system's lock on a file that names the process which holds it, from `take` to `release`, when the file is
    removed.

    The file is locked, not only there, so that what a killed process left locks nobody out. One process takes it no
    more than once.
    """

    def __init__(self, path: pathlib.Path, file: int) -> None:
        self._path = path
        self._file = file

    @classmethod
    def take(cls, path: pathlib.Path) -> Self:
        """Make the file and lock it. Raises FileHeldError, OSError."""
        while True:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, path):  # else it was released and removed since it was opened
                    os.ftruncate(file, 0)
                    os.pwrite(file, str(os.getpid()).encode("ascii"), 0)
                    return cls(path, file)
                os.close(file)
            except BlockingIOError:
                holder = os.pread(file, _MOST_DIGITS, 0)
                os.close(file)
                raise FileHeldError(int(holder) if holder.isdigit() else None) from None
            except BaseException:
                os.close(file)
                raise

    def release(self) -> None:
        """Let others have it."""
        if self._file >= 0:
            # as where the system has made the file system read-only: the file alone locks nobody out
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _is_at(file: int, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
