"""Files on disk: atomic replacement of a file, and a lock file that only one process can hold."""

from __future__ import annotations

import errno
import os
import pathlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Self

from spvfilter import _system

PRIVATE = 0o600  # Mode of a file that may contain secrets.
SHARED = 0o666  # Mode of a file that others may use as far as the user's umask allows it.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # The disk is full, or the user's quota is used up.
_MOST_DIGITS = 20  # longest process id that is read from a lock file, in decimal digits (our choice)


@contextmanager
def replacing(path: pathlib.Path, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """Context manager: write a new file that replaces `path` atomically.

    The file has the mode PRIVATE or SHARED. On success it is flushed to disk and renamed to `path`. On an exception it
    is removed, and `path` is unchanged. Raises OSError, which names `path`.
    """
    name = os.path.join(path.parent, f".spvfilter-{os.urandom(8).hex()}")  # noqa: PTH118  errors have it as text
    try:
        descriptor = _system.create(name, mode)
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
            raise OSError(error.errno, error.strerror, str(path)) from None  # a failed rename names both files
        if isinstance(error, OSError) and error.errno in (*NO_ROOM, errno.EFBIG) and error.filename is None:
            error.filename = str(path)  # a failed write names no file
        raise
    _system.sync_directory(path.parent)


class FileHeldError(Exception):
    """The lock file is already locked."""

    process: int | None
    """Id of the process that holds the lock; None if it is not known."""

    def __init__(self, process: int | None) -> None:
        super().__init__(process)
        self.process = process

    def __str__(self) -> str:
        return "another process" if self.process is None else f"process {self.process}"


class FileLock:
    """A lock file, held from `take` to `release`. It contains the id of the process that holds it.

    Only the operating system's lock on the file counts, not the file's existence, so a file that a killed process
    leaves behind locks nobody out. A process can take the lock only once. `release` removes the file.
    """

    def __init__(self, path: pathlib.Path, file: int) -> None:
        self._path = path
        self._file = file

    @classmethod
    def take(cls, path: pathlib.Path) -> Self:
        """Create the file and lock it. Raises FileHeldError if it is already locked, and OSError if that fails."""
        while True:
            file = _system.open_to_lock(path)
            try:
                _system.lock(file)
                if _is_at(file, path):  # else the holder removed the file after we opened it: try again
                    os.ftruncate(file, 0)
                    _system.write_at(file, str(os.getpid()).encode("ascii"), 0)
                    return cls(path, file)
                os.close(file)
            except BlockingIOError:
                holder = _system.read_at(file, _MOST_DIGITS, 0)
                os.close(file)
                raise FileHeldError(int(holder) if holder.isdigit() else None) from None
            except BaseException:
                os.close(file)
                raise

    def release(self) -> None:
        """Remove the file and unlock it. A second call does nothing."""
        if self._file >= 0:
            if sys.platform == "win32":  # an open file cannot be removed, not even by the next holder
                os.close(self._file)
            # unlink fails if the file system has become read-only; the file that remains locks nobody out
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            if sys.platform != "win32":
                os.close(self._file)
            self._file = -1


def _is_at(file: int, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
