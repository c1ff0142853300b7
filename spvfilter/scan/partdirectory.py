"""A directory of parts: its lock, its manifest, and the files of its parts, which are found by key.

The key of a file covers everything that its contents depend on. A run asks for the files that its result needs, and
scans the missing ones. Files that are no longer needed are removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spvfilter.errors import DirectoryInUseError, ParameterError
from spvfilter.files import FileHeldError, FileLock
from spvfilter.scan.manifest import Manifest

_PARTS = "parts"  # Name of the subdirectory for the files of parts.
_LOCK = ".lock"  # Name of the file that a running scan or export locks.
TEMPORARY = ".spvfilter-"  # The names of unfinished files begin with this string.
_KEY_BYTES = 16  # Number of key bytes in the name of a file (our choice).


class PartDirectory:
    """A directory with the files of the parts of a scan or export. Only one run uses it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The path of the directory."""
        self._used: set[str] = set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Return a context manager that locks the directory, and creates it if it does not exist.

        Raises DirectoryInUseError if another scan or export is using the directory.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock.take(self.path / _LOCK)
        except FileHeldError as held:
            who = "another scan or export of this process" if held.process == os.getpid() else str(held)
            raise DirectoryInUseError(
                f"{self.path}: {who} is writing to it: wait until it ends, or choose another directory"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def opened(self, wanted: Manifest) -> Manifest:
        """Return the manifest of the directory. A new directory gets the manifest `wanted`.

        Raises ParameterError if the directory holds a different scan or export, or other files, or if its parts were
        removed.
        """
        held = Manifest.read(self.path)
        if held is None:
            names = (each.name for each in self.path.iterdir())
            if strange := next((name for name in names if not name.startswith(TEMPORARY) and name != _LOCK), None):
                raise ParameterError(
                    f"{self.path} is not empty and contains no scan or export (it contains {strange}): choose another"
                    " directory"
                )
            held = wanted
            held.write(self.path)
        held.refuse_other(wanted, self.path)
        self._used.clear()
        if held.parts_removed:
            self.remove_unused()
            raise ParameterError(
                f"{self.path}: the parts of this scan were removed, so it cannot grow: scan into another directory"
            )
        (self.path / _PARTS).mkdir(exist_ok=True)
        return held

    def file(self, key: bytes, suffix: str = ".part") -> Path:
        """Return the path of the file with this key, and record that this run uses the file."""
        name = key[:_KEY_BYTES].hex() + suffix
        self._used.add(name)
        return self.path / _PARTS / name

    def named(self, name: str) -> Path:
        """Return the path of a part file that an earlier run made, and record that this run uses it."""
        self._used.add(name)
        return self.path / _PARTS / name

    def finished(self) -> list[Path]:
        """Return the paths of the part files of the last finished run, if any, in chain order.

        Raises OSError if the manifest cannot be read, and SourceError if it is damaged.
        """
        manifest = Manifest.read(self.path)
        return [] if manifest is None else [self.path / _PARTS / name for name in manifest.finished]

    def remove_unused(self) -> None:
        """Remove the files of parts that this run did not use. Earlier runs or killed processes left them behind."""
        folder = self.path / _PARTS
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in self._used:
                path.unlink(missing_ok=True)

    def remove_parts(self) -> None:
        """Remove all files of parts. This is first recorded in the manifest, so that later runs refuse the directory.

        Raises OSError if a file cannot be removed, and SourceError if the manifest is damaged.
        """
        manifest = Manifest.read(self.path)
        if manifest is None:
            return
        manifest.finished, manifest.parts_removed = [], True
        manifest.write(self.path)
        self._used.clear()
        self.remove_unused()
        folder = self.path / _PARTS
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            folder.rmdir()
