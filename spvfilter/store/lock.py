"""Lock of a wallet's database against a second writer: a file beside it, which names the process that holds it.

SQLite's own exclusive lock would keep readers out, too. The file is locked, not only there, so that what a killed process left locks
nobody out. Within one process a second lock is refused as well.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from spvfilter.errors import StoreLockedError

SUFFIX = "-lock"
_MOST = 20  # bytes of a process id in decimal


class WriterLock:
    """Held from `take` to `release`."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file = file

    @classmethod
    def take(cls, database: Path) -> Self:
        """Take the lock of a database. Raises StoreLockedError, OSError."""
        real = database.resolve()  # by whatever name it is opened
        path = real.with_name(real.name + SUFFIX)
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
                holder = os.pread(file, _MOST, 0)
                os.close(file)
                raise StoreLockedError(f"{database}: {_said_of(holder)}") from None
            except BaseException:
                os.close(file)
                raise

    def release(self) -> None:
        """Let others have it."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _said_of(holder: bytes) -> str:
    """Who holds it, in words."""
    if holder == str(os.getpid()).encode("ascii"):
        return "in use by another client of this process; other readers use WalletStore"
    who = f"process {holder.decode('ascii')}" if holder.isdigit() else "another process"
    return f"in use by {who}; readers use WalletStore"
