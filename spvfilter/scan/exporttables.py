"""The files of an export's tables: the kernel's columns, used as Arrow arrays without copying, written as Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from spvfilter.errors import ParameterError, remedy
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import script_addresses
from spvfilter.kernel.blocktables import BLOCK_TABLES, HEX, SCRIPT_TYPES, ColumnBuffers, Layout
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.exportcolumns import layout_of
from spvfilter.scan.parquetrows import opened_writer

ROWS = 131_072  # Number of rows in a row group (our choice): DuckDB reads row groups of this size in parallel.
_BYTES = 1 << 26  # Bytes in memory after which a row group of long rows ends early (our choice).
_MAGIC = b"PAR1"  # The first and the last bytes of a Parquet file.
_HEIGHTS = ("blocks.number", "transactions.block_number", "inputs.block_number", "outputs.block_number")
_FILTERED = frozenset(  # Columns that get Bloom filters if pyarrow can write them.
    f"{table}.{name}"
    for table, columns in BLOCK_TABLES.items()
    for name, layout in columns.items()
    if layout is Layout.HASH or name in ("address", "script", "spent_script")
) - {"inputs.script"}  # nobody searches for a scriptSig
# Columns with few distinct values, for which Parquet's dictionaries pay off. Values, fees and sizes differ in most
# rows: their dictionary would grow until it is dropped, and would cost more time and space than zstd alone.
_FEW = frozenset(
    (
        *("version", "bits", "lock_time", "input_count", "output_count", "spent_output_index", "sequence"),
        *("witness_size", "inscription_count", "content_type", "type", "spent_block_number", "op_return_protocol"),
    )
)


def pyarrow() -> Any:  # Any: pyarrow has no types
    """Return the pyarrow module. Raises ParameterError if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        raise ParameterError(f"an export needs pyarrow; {remedy('parquet')}") from None
    return pa


def arrow_type(pa: Any, kernel_name: str) -> Any:
    """Return the Arrow type of the column with this kernel name."""
    if kernel_name.endswith("timestamp"):
        return pa.timestamp("ms", tz="UTC")
    return {
        Layout.INT8: pa.dictionary(pa.int8(), pa.string()),
        Layout.INT32: pa.int32(),
        Layout.INT64: pa.int64(),
        Layout.FLOAT64: pa.float64(),
        Layout.BITS: pa.bool_(),
        Layout.HASH: pa.binary(HASH_SIZE),
        Layout.BINARY: pa.binary(),
        Layout.TEXT: pa.string(),
    }[layout_of(kernel_name)]


def array_of(pa: Any, kernel_name: str, column: ColumnBuffers) -> Any:
    """Return a kernel column as an Arrow array that shares the column's memory."""
    buffers = [None if each is None else pa.py_buffer(each) for each in (column.validity, column.offsets, column.data)]
    if column.offsets is None:
        del buffers[1]
    kind = arrow_type(pa, kernel_name)
    if not pa.types.is_dictionary(kind):
        return pa.Array.from_buffers(kind, column.length, buffers)
    numbers = pa.Array.from_buffers(pa.int8(), column.length, buffers)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(SCRIPT_TYPES), safe=False)  # the kernel's numbers are valid


def address_array(pa: Any, scripts: Any, network: Network) -> Any:
    """Return the addresses of an Arrow array of scripts. A script without an address becomes null."""
    _, offsets, data = scripts.buffers()
    start, end = 4 * scripts.offset, 4 * (scripts.offset + len(scripts) + 1)
    places = b"" if offsets is None else bytes(memoryview(offsets)[start:end])
    column = script_addresses(
        places or bytes(4),
        b"" if data is None else data.to_pybytes(),
        network.p2pkh_version,
        network.p2sh_version,
        network.hrp,
    )
    return array_of(pa, "outputs.address", ColumnBuffers(*column))


class TableWriter:
    """Writes one table of a part as Parquet. The file appears at its path only when it is complete.

    Args:
        path: Path of the file.
        names: The names of the columns in the file.
        kernel_names: The kernel's names of these columns.
        is_sorted: True if the rows are added in order of height.
    """

    def __init__(self, path: Path, names: Sequence[str], kernel_names: Sequence[str], *, is_sorted: bool) -> None:
        self._path = path
        self._is_sorted = is_sorted
        self._pa = pyarrow()
        self._kernel_names = kernel_names
        self._schema = self._pa.schema(
            [(name, arrow_type(self._pa, kernel)) for name, kernel in zip(names, kernel_names, strict=True)]
        )
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: Any = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Return a context manager that completes the file at its end. Raises OSError."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self._path, SHARED) as file:
            self._file = file
            try:
                yield
                self._flush(is_last=True)
            finally:
                if self._writer is not None:
                    self._writer.close()

    def _parquet_writer(self) -> Any:
        """Return the Parquet writer. The first call creates it, and sizes its Bloom filters for the waiting rows."""
        if self._writer is None:
            assert self._file is not None
            kernels = dict(zip(self._schema.names, self._kernel_names, strict=True))
            heights = [name for name, kernel in kernels.items() if kernel in _HEIGHTS]
            self._writer = opened_writer(
                self._pa,
                self._file,
                self._schema,
                few=[name for name, kernel in kernels.items() if kernel.partition(".")[2] in _FEW],
                order=heights[:1] if self._is_sorted else [],
                filtered=[name for name, kernel in kernels.items() if kernel.removesuffix(HEX) in _FILTERED],
                rows=self._rows,
            )
        return self._writer

    def add(self, columns: Sequence[ColumnBuffers]) -> None:
        """Append rows. Raises OSError."""
        arrays = [array_of(self._pa, name, column) for name, column in zip(self._kernel_names, columns, strict=True)]
        self._waiting.append(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._rows += self._waiting[-1].num_rows
        self._bytes += self._waiting[-1].nbytes
        if self._rows >= ROWS or self._bytes >= _BYTES:
            self._flush()

    def _flush(self, *, is_last: bool = False) -> None:
        """Write the waiting rows as one row group. Even a file without rows contains a schema."""
        if self._rows or is_last:
            writer, rows = self._parquet_writer(), max(self._rows, 1)
            writer.write_table(self._pa.Table.from_batches(self._waiting, self._schema), row_group_size=rows)
        self._waiting, self._rows, self._bytes = [], 0, 0


@contextmanager
def table_writer(path: Path, schema: Any, *, few: Sequence[str], order: Sequence[str]) -> Iterator[Any]:
    """Return a context manager whose value is a ParquetWriter. The file appears only when it is complete.

    Args:
        path: Path of the file. Its directory is created.
        schema: The columns.
        few: Names of columns with few distinct values, which get a dictionary.
        order: Names of the columns by which the rows are sorted.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, SHARED) as file, opened_writer(pyarrow(), file, schema, few=few, order=order) as writer:
        yield writer


def is_complete(path: Path) -> bool:
    """Return True if a Parquet file exists and is not truncated. Raises OSError."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
            file.seek(-len(_MAGIC), 2)
            return file.read() == _MAGIC
    except FileNotFoundError:
        return False
