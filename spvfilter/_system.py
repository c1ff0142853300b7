"""System calls under the same names on Linux, macOS and Windows: file locks, and reads and writes at an offset.

Windows has no `fcntl`, `os.pread` or `os.pwrite`, and opens files as text unless a flag says otherwise.
"""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":
    import errno
    import msvcrt
    import threading

    _moving = threading.Lock()  # held while a descriptor's position is set and used
    # an offset past the text of a lock file, because Windows lets no other process read a locked byte
    _LOCKED_BYTE = 1 << 30

    _READ = os.O_RDONLY | os.O_BINARY
    _CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_BINARY

    def read_at(descriptor: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes of an open file, starting at `offset`. Raises OSError."""
        with _moving:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size)

    def write_at(descriptor: int, data: bytes, offset: int) -> int:
        """Write `data` to an open file at `offset` and return the number of bytes written. Raises OSError."""
        with _moving:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.write(descriptor, data)

    def lock(descriptor: int) -> None:
        """Lock an open file without waiting. Raises BlockingIOError if it is already locked, or another OSError."""
        with _moving:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except PermissionError as error:
                raise BlockingIOError(error.errno, error.strerror) from None

    def open_to_lock(path: str | os.PathLike[str]) -> int:
        """Open or create a file and return its descriptor. Raises OSError, in particular for a symbolic link."""
        if os.path.islink(path):  # noqa: PTH114
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_BINARY, 0o600)

    def sync_directory(path: str | os.PathLike[str]) -> None:
        """Do nothing: Windows cannot open a directory, and NTFS journals changes to names."""

else:
    import fcntl

    _READ = os.O_RDONLY | os.O_NONBLOCK  # opening a pipe without a writer would block
    _CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL

    def read_at(descriptor: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes of an open file, starting at `offset`. Raises OSError."""
        return os.pread(descriptor, size, offset)

    def write_at(descriptor: int, data: bytes, offset: int) -> int:
        """Write `data` to an open file at `offset` and return the number of bytes written. Raises OSError."""
        return os.pwrite(descriptor, data, offset)

    def lock(descriptor: int) -> None:
        """Lock an open file without waiting. Raises BlockingIOError if it is already locked, or another OSError."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def open_to_lock(path: str | os.PathLike[str]) -> int:
        """Open or create a file and return its descriptor. Raises OSError, in particular for a symbolic link."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def sync_directory(path: str | os.PathLike[str]) -> None:
        """Flush a directory's entries to disk. Raises OSError."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_to_read(path: str | os.PathLike[str]) -> int:
    """Open a file for reading and return its descriptor. Raises OSError."""
    return os.open(path, _READ)


def create(path: str | os.PathLike[str], mode: int) -> int:
    """Create a file and return its descriptor. The umask limits `mode`. Raises OSError if the file exists."""
    return os.open(path, _CREATE, mode)
