"""Sorted runs of coins on disk: for each outpoint its last event, created or spent. Merged runs give the unspent coins.

A run is a file in Arrow's IPC format. Its rows are sorted by outpoint, and each outpoint occurs once. The last event of
an outpoint decides: a coin that was created after its last spend is unspent. This also holds for the coinbases that
were created twice (BIP-30).

As in Bitcoin Core, the coin of the genesis block and coins that nothing can spend do not exist. Nothing can spend a
script that begins with OP_RETURN, or one above 10,000 bytes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any  # pyarrow has no types

from spvfilter.files import SHARED, replacing
from spvfilter.kernel.blocktables import Column
from spvfilter.protocol import HASH_SIZE, MAX_SCRIPT_SIZE
from spvfilter.scan.exporttables import array_of, arrow_type, pyarrow

CREATED = (
    *("outputs.transaction_hash", "outputs.index", "outputs.block_number", "outputs.transaction_index"),
    *("outputs.value", "outputs.type", "outputs.script"),
)
"""The kernel's names of the columns that say which coins were created."""
SPENT = ("inputs.spent_transaction_hash", "inputs.spent_output_index", "inputs.block_number")
"""The kernel's names of the columns that say which coins were spent."""

_OP_RETURN = b"\x6a"
_FAN = 32  # Runs that are merged at once (our choice).
_BATCH_ROWS, _BATCH_BYTES = 16_384, 1 << 21  # Largest batch in a run, except for one long row (our choice).
_WAITING_BYTES = 1 << 25  # Bytes of events that are sorted at once (our choice).
_MAGIC = b"ARROW1"  # The first and the last bytes of a run.
_KEY = ("transaction_hash", "index")
_ORDER = [(name, "ascending") for name in (*_KEY, "order")]


def run_schema(pa: Any) -> Any:
    """Return the schema of a run. A row without a value says that the coin was spent."""
    return pa.schema(
        [
            ("transaction_hash", pa.binary(HASH_SIZE)),
            ("index", pa.int64()),
            ("order", pa.int64()),  # twice the height, plus 1 for a spend: a block creates before it spends
            ("is_coinbase", pa.bool_()),
            ("type", arrow_type(pa, "outputs.type")),
            ("value", pa.int64()),
            ("script", pa.binary()),
        ]
    )


class RunWriter:
    """Writes the run of a part: the last event of each outpoint in its blocks.

    Args:
        path: Path of the run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pa = pyarrow()
        self._waiting: list[Any] = []
        self._size = 0
        self._spilled: list[Path] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Return a context manager that completes the run at its end. Raises OSError."""
        try:
            yield
            self._spill()
            merge_runs(self._spilled, self._path)
        finally:
            for path in self._spilled:
                path.unlink(missing_ok=True)

    def add(self, columns: dict[str, Column]) -> None:
        """Add the events of some blocks, from columns with the names in CREATED and SPENT. Raises OSError."""
        for table in (_created(self._pa, columns), _spent(self._pa, columns)):
            self._waiting.append(table)
            self._size += table.nbytes
        if self._size >= _WAITING_BYTES:
            self._spill()

    def _spill(self) -> None:
        """Sort the waiting events and write them into a run of their own."""
        path = self._path.with_name(f"{self._path.stem}-{len(self._spilled)}{self._path.suffix}")
        self._spilled.append(path)
        with _written(self._pa, path) as write:
            if self._waiting:
                write(_last_events(self._pa, self._pa.concat_tables(self._waiting)))
        self._waiting, self._size = [], 0


def _created(pa: Any, columns: dict[str, Column]) -> Any:
    """Return the coins that blocks create, as a table of events."""
    pc = pa.compute
    txid, index, height, position, value, kind, script = (array_of(pa, name, columns[name]) for name in CREATED)
    table = pa.Table.from_arrays(
        [
            txid,
            index.cast(pa.int64()),
            pc.multiply(height.cast(pa.int64()), 2),
            pc.equal(position, 0),
            kind,
            value,
            script,
        ],
        schema=run_schema(pa),
    )
    can_spend = pc.invert(pc.starts_with(script, pattern=_OP_RETURN))
    can_spend = pc.and_(can_spend, pc.less_equal(pc.binary_length(script), MAX_SCRIPT_SIZE))
    return table.filter(pc.and_(can_spend, pc.greater(height, 0)))


def _spent(pa: Any, columns: dict[str, Column]) -> Any:
    """Return the coins that blocks spend, as a table of events."""
    pc = pa.compute
    txid, index, height = (array_of(pa, name, columns[name]) for name in SPENT)
    schema = run_schema(pa)
    nothing = [pa.nulls(len(txid), schema.field(name).type) for name in ("is_coinbase", "type", "value", "script")]
    order = pc.add(pc.multiply(height.cast(pa.int64()), 2), 1)
    return pa.Table.from_arrays([txid, index, order, *nothing], schema=schema)


def _last_events(pa: Any, table: Any) -> Any:
    """Return the last event of each outpoint, sorted by outpoint."""
    pc = pa.compute
    table = table.take(pc.sort_indices(table, sort_keys=_ORDER))
    rows = table.num_rows
    if rows < 2:
        return table
    hashes, indexes = (table[name].combine_chunks() for name in _KEY)
    again = pc.and_(
        pc.equal(hashes.slice(0, rows - 1), hashes.slice(1)), pc.equal(indexes.slice(0, rows - 1), indexes.slice(1))
    )
    return table.filter(pa.concat_arrays([pc.invert(again), pa.array([True])]))


@contextmanager
def _written(pa: Any, path: Path) -> Iterator[Callable[[Any], None]]:
    """Context manager: returns a function that appends sorted rows to a new run. Raises OSError."""
    with replacing(path, SHARED) as file, pa.ipc.new_file(file, run_schema(pa)) as writer:

        def write(table: Any) -> None:
            for batch in table.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
                for piece in _cut(batch):
                    writer.write_batch(piece)

        yield write


def _cut(batch: Any) -> Iterator[Any]:
    """Yield a batch in pieces of at most _BATCH_BYTES, or of one row."""
    pieces = [batch]
    while pieces:
        piece = pieces.pop()
        if piece.num_rows > 1 and piece.get_total_buffer_size() and piece.nbytes > _BATCH_BYTES:
            half = piece.num_rows // 2
            pieces += [piece.slice(half), piece.slice(0, half)]
        else:
            yield piece


def is_whole_run(path: Path) -> bool:
    """Return True if a run exists and was not cut. Raises OSError."""
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

    def __init__(self, pa: Any, file: Any) -> None:
        self._reader = pa.ipc.open_file(file)
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

    def last_key(self) -> tuple[bytes, int]:
        """Return the last outpoint of the current batch."""
        return self._key(self._batch.num_rows - 1)

    def _key(self, row: int) -> tuple[bytes, int]:
        return self._batch[0][row].as_py(), self._batch[1][row].as_py()

    def take(self, bound: tuple[bytes, int] | None) -> Any:
        """Return the rows up to an outpoint, or all rows for None, and move past them."""
        batch, rows = self._batch, self._batch.num_rows
        count = rows if bound is None else bisect_right(range(rows), bound, key=self._key)
        self._batch = batch.slice(count)
        return batch.slice(0, count)


def _merged(pa: Any, paths: Sequence[Path]) -> Iterator[Any]:
    """Yield the last event of each outpoint of some runs as tables, in order. Raises OSError."""
    with ExitStack() as stack:
        cursors = [_Cursor(pa, stack.enter_context(pa.OSFile(str(path)))) for path in paths]
        while cursors := [cursor for cursor in cursors if cursor.refill()]:
            # Later batches of a run have higher outpoints: up to the lowest last outpoint, no row is missing here.
            bound = min((cursor.last_key() for cursor in cursors if cursor.has_more), default=None)
            pieces = [cursor.take(bound) for cursor in cursors]
            yield _last_events(pa, pa.Table.from_batches(pieces))


def merge_runs(paths: Sequence[Path], into: Path) -> None:
    """Merge runs into one. Raises OSError."""
    pa = pyarrow()
    with _written(pa, into) as write:
        for table in _merged(pa, paths):
            write(table)


def unspent(paths: Sequence[Path], temporary: Callable[[], Path]) -> Iterator[Any]:
    """Yield the unspent coins of any number of runs as Arrow tables, in the order of their outpoints.

    At most 32 runs are read at once, so that the memory does not depend on their number.

    Args:
        paths: The runs of all parts of a chain.
        temporary: Returns the path of a new file for a merged run. These files are deleted.

    Raises:
        OSError: A file cannot be read or written.
    """
    pa = pyarrow()
    made: list[Path] = []
    try:
        current = list(paths)
        while len(current) > _FAN:
            following: list[Path] = []
            for start in range(0, len(current), _FAN):
                made.append(temporary())
                following.append(made[-1])
                merge_runs(current[start : start + _FAN], made[-1])
                _delete(path for path in current[start : start + _FAN] if path in made)
            current = following
        for table in _merged(pa, current):
            yield table.filter(pa.compute.is_valid(table["value"]))
    finally:
        _delete(made)


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
