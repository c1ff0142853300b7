"""Where an open database is: what is written to a file that was removed or replaced meanwhile is lost when it is
closed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.errors import StoreError

if TYPE_CHECKING:
    import pathlib
else:
    pathlib = deferred("pathlib")

MEMORY = ":memory:"  # instead of a path: a database that is gone when it is closed
_FILES = ("", "-wal")  # what follows the name of the database


class Place:
    """The files that an open database is in, by device and inode.

    The write-ahead log is known from the first check on that finds it.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._names = {suffix: f"{path}{suffix}" for suffix in _FILES}
        self._files: dict[str, tuple[int, int]] = {}
        self.check()

    def check(self) -> None:
        """Raises StoreError if a file is not there any more, or is another one; OSError where it cannot be looked
        at.
        """
        for suffix, name in self._names.items():
            found = _identity(name)
            known = self._files.get(suffix)
            if known is None and found is not None:
                self._files[suffix] = found
            elif known != found:
                what = "its write-ahead log" if suffix else "the file"
                done = "removed" if found is None else "replaced by another one"
                raise StoreError(f"{self._path}: {what} was {done} while it was open: nothing can be kept in it")


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116  before every commit: without a Path for each
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
