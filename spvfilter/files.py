"""Files that are replaced whole or not at all. What is in them is others' business."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file of mode 0600 beside `path`, flushed to disk and renamed over it when the block ends well, else removed."""
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
