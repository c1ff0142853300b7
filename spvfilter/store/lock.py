"""WriterLock: keeps a second writer out of a wallet's database. The lock file names the process that holds the lock.

SQLite's own exclusive lock would keep readers out as well. The lock also refuses a second writer in the same process.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Self

from spvfilter.errors import StoreLockedError
from spvfilter.files import FileHeldError, FileLock

SUFFIX = "-lock"


class WriterLock(FileLock):
    """A lock that is held from `take` until `release`."""

    @classmethod
    def take(cls, database: Path) -> Self:
        """Take the lock for a database.

        Raises StoreLockedError if it is held, and OSError if the path is a directory or locking fails.
        """
        # links to the file share its lock; Path.resolve would raise RuntimeError for a link to itself
        real = Path(os.path.realpath(database))
        if real.is_dir():  # such as "/", next to which there is no place for a lock
            raise IsADirectoryError(errno.EISDIR, "is a directory, not a database")
        try:
            return super().take(real.with_name(real.name + SUFFIX))
        except FileHeldError as held:
            own = held.process == os.getpid()
            holder = "another client of this process" if own else str(held)
            raise StoreLockedError(
                f"{database}: in use by {holder}; in the meantime, read it with WalletStore or spvfilter wallet"
            ) from None
