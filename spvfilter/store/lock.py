"""WriterLock: keeps a second writer out of a wallet's database. The lock file names the process that holds it.

SQLite's own exclusive lock would keep readers out as well. The lock also refuses a second writer in the same process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from spvfilter.errors import StoreLockedError
from spvfilter.files import FileHeldError, FileLock

SUFFIX = "-lock"


class WriterLock(FileLock):
    """Held from `take` to `release`."""

    @classmethod
    def take(cls, database: Path) -> Self:
        """Take the lock for a database. Raises StoreLockedError and OSError."""
        # links to the file have the same lock; Path.resolve would raise RuntimeError for a link to itself
        real = Path(os.path.realpath(database))
        try:
            return super().take(real.with_name(real.name + SUFFIX))
        except FileHeldError as held:
            own = held.process == os.getpid()
            holder = "another client of this process" if own else str(held)
            raise StoreLockedError(
                f"{database}: in use by {holder}; in the meantime, read it with WalletStore or spvfilter wallet"
            ) from None
