"""Check that the files of an open database are in place: changes to a removed or replaced file would be lost, and it
would show an old state.
"""

from __future__ import annotations

import os
import pathlib

from spvfilter.errors import StoreError

MEMORY = ":memory:"
"""Path for `Store.open`: a database in memory, which is lost when it is closed."""
_FILES = ("", "-wal")  # suffixes added to the database's name


class FileIdentity:
    """The files of an open database, identified by device and inode.

    The write-ahead log is included once a check has found it. `consequence` ends the message of an error.
    """

    def __init__(self, path: pathlib.Path, consequence: str) -> None:
        self._path = path
        self._consequence = consequence
        self._names = {suffix: f"{path}{suffix}" for suffix in _FILES}
        self._files: dict[str, tuple[int, int]] = {}
        self.check()

    def check(self) -> None:
        """Raise StoreError if a file was removed or replaced, and OSError if it cannot be read."""
        for suffix, name in self._names.items():
            found = _identity(name)
            known = self._files.get(suffix)
            if known is None and found is not None:
                self._files[suffix] = found
            elif known != found:
                what = "its write-ahead log" if suffix else "the file"
                done = "removed" if found is None else "replaced by another one"
                raise StoreError(f"{self._path}: {what} was {done} while it was open: {self._consequence}")


def _identity(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)  # noqa: PTH116  before every commit: without a Path for each
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
