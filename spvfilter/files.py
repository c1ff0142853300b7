"""Atomic file replacement: a new file takes the place of an old one completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from spvfilter._public import deferred

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = deferred("tempfile")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Context manager: a new file of mode 0600, which is flushed to disk and renamed to `path` on success and removed on an exception."""
    descriptor, name = tempfile.mkstemp(prefix=".spvfilter-", dir=path.parent)  # mkstemp: mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
