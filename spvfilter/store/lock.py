"""Lock of a wallet's database against a second writer: a file beside it, which names the process that holds it.

SQLite's own exclusive lock would keep readers out, too. Within one process a second lock is refused as well.
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
        """Take the lock of a database. Raises StoreLockedError, OSError."""
        # by whatever name it is opened; Path.resolve raises RuntimeError for a link to itself
        real = Path(os.path.realpath(database))
        try:
            return super().take(real.with_name(real.name + SUFFIX))
        except FileHeldError as held:
            own = held.process == os.getpid()
            holder = "another client of this process" if own else str(held)
            raise StoreLockedError(
                f"{database}: in use by {holder}; WalletStore and spvfilter wallet read it meanwhile"
            ) from None
