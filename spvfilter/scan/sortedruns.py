"""Sorted runs on disk: files in Arrow's IPC format whose rows are sorted by a unique key. Runs are merged.

A form describes the rows, and how rows with the same key become one row. The memory of a merge depends neither on
the sizes of the runs nor on their number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # pyarrow has no types

from spvfilter.files import SHARED, replacing
from spvfilter.scan.exporttables import pyarrow

WAITING_BYTES = 1 << 25  # Bytes of rows that are sorted in memory at a time (our choice).
FAN = 32  # Number of runs that are merged at a time (our choice).
BATCH_ROWS, BATCH_BYTES = 16_384, 1 << 21  # Largest batch in a run, except for one long row (our choice).
_MAGIC = b"ARROW1"  # The first and the last bytes of a run.


@dataclass(frozen=True, slots=True)
class RunForm:
    """The form of a run: its columns, its key, and how rows with the same key are combined."""

    schema: Any
    """The columns. The key comes first."""
    keys: int
    """Number of columns in the key."""
    reduced: Callable[[Any], Any]
    """Function that returns a table sorted by key, with one row for each key."""


class RunWriter:
    """Writes a run: sorts rows as they arrive, and merges the sorted pieces at the end.

    Args:
        path: Path of the run.
        form: The form of the run.
    """

    def __init__(self, path: Path, form: RunForm) -> None:
        self._path = path
        self._form = form
        self._waiting: list[Any] = []
        self._size = 0
        self._spilled: list[Path] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Return a context manager that completes the run at its end. Raises OSError."""
        try:
            yield
            self._spill()
            merge_runs(self._spilled, self._path, self._form)
        finally:
            delete(self._spilled)

    def add(self, table: Any) -> None:
        """Add rows in any order. Raises OSError."""
        self._waiting.append(table)
        self._size += table.nbytes
        if self._size >= WAITING_BYTES:
            self._spill()

    def _spill(self) -> None:
        """Sort the waiting rows and write them to a separate run."""
        path = self._path.with_name(f"{self._path.stem}-{len(self._spilled)}{self._path.suffix}")
        self._spilled.append(path)
        with _written(path, self._form) as write:
            if self._waiting:
                write(self._form.reduced(pyarrow().concat_tables(self._waiting)))
        self._waiting, self._size = [], 0


@contextmanager
def _written(path: Path, form: RunForm) -> Iterator[Callable[[Any], None]]:
    """Context manager: returns a function that appends sorted rows to a new run. Raises OSError."""
    with replacing(path, SHARED) as file, pyarrow().ipc.new_file(file, form.schema) as writer:

        def write(table: Any) -> None:
            for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
                for piece in _cut(batch):
                    writer.write_batch(piece)

        yield write


def _cut(batch: Any) -> Iterator[Any]:
    """Yield a batch in pieces of at most BATCH_BYTES or one row."""
    pieces = [batch]
    while pieces:
        piece = pieces.pop()
        if piece.num_rows > 1 and piece.get_total_buffer_size() and piece.nbytes > BATCH_BYTES:
            half = piece.num_rows // 2
            pieces += [piece.slice(half), piece.slice(0, half)]
        else:
            yield piece


def is_whole_run(path: Path) -> bool:
    """Return True if a run exists and is not truncated. Raises OSError."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            if file.tell() < 2 * len(_MAGIC):
                return False
            file.seek(-len(_MAGIC), 2)
            return file.read() == _MAGIC
    except FileNotFoundError:
        return False


class _Cursor:
    """Reads a run from its start."""

    def __init__(self, file: Any, keys: int) -> None:
        self._reader = pyarrow().ipc.open_file(file)
        self._keys = keys
        self._next = 0
        self._batch: Any = None
        self.refill()

    @property
    def has_more(self) -> bool:
        """True if batches follow the current one."""
        return bool(self._next < self._reader.num_record_batches)

    def refill(self) -> bool:
        """Read the next batch if the current one is used up. Return False at the end of the run."""
        while self._batch is None or not self._batch.num_rows:
            if not self.has_more:
                return False
            self._batch = self._reader.get_batch(self._next)
            self._next += 1
        return True

    def last_key(self) -> tuple[Any, ...]:
        """Return the last key of the current batch."""
        return self._key(self._batch.num_rows - 1)

    def _key(self, row: int) -> tuple[Any, ...]:
        return tuple(self._batch[column][row].as_py() for column in range(self._keys))

    def take(self, bound: tuple[Any, ...] | None) -> Any:
        """Return the rows up to the key `bound`, or all rows if it is None, and move past them."""
        batch, rows = self._batch, self._batch.num_rows
        count = rows if bound is None else bisect_right(range(rows), bound, key=self._key)
        self._batch = batch.slice(count)
        return batch.slice(0, count)


def _merged(paths: Sequence[Path], form: RunForm) -> Iterator[Any]:
    """Yield the rows of several runs as tables, in order. Raises OSError."""
    pa = pyarrow()
    with ExitStack() as stack:
        cursors = [_Cursor(stack.enter_context(pa.OSFile(str(path))), form.keys) for path in paths]
        while cursors := [cursor for cursor in cursors if cursor.refill()]:
            # Later batches of a run have higher keys, so no row up to the lowest last key is missing here.
            bound = min((cursor.last_key() for cursor in cursors if cursor.has_more), default=None)
            pieces = [cursor.take(bound) for cursor in cursors]
            yield form.reduced(pa.Table.from_batches(pieces))


def merge_runs(paths: Sequence[Path], into: Path, form: RunForm) -> None:
    """Merge runs into one. Raises OSError."""
    with _written(into, form) as write:
        for table in _merged(paths, form):
            write(table)


def merged(paths: Sequence[Path], temporary: Callable[[], Path], form: RunForm) -> Iterator[Any]:
    """Yield the rows of any number of runs as Arrow tables, in order.

    At most 32 runs are read at a time, so that memory use does not depend on their number.

    Args:
        paths: The runs.
        temporary: Function that returns the path of a new file for a merged run. These files are deleted.
        form: The form of the runs.

    Raises:
        OSError: A file cannot be read or written.
    """
    made: list[Path] = []
    try:
        current = list(paths)
        while len(current) > FAN:
            following: list[Path] = []
            for start in range(0, len(current), FAN):
                made.append(temporary())
                following.append(made[-1])
                merge_runs(current[start : start + FAN], made[-1], form)
                delete(path for path in current[start : start + FAN] if path in made)
            current = following
        yield from _merged(current, form)
    finally:
        delete(made)


def delete(paths: Iterable[Path]) -> None:
    """Delete the files that exist. Raises OSError."""
    for path in paths:
        path.unlink(missing_ok=True)
