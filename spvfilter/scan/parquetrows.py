"""The rows of a scan in a Parquet file: hashes as hex or bytes, the order of the rows, and Bloom filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import chain
from typing import IO, Any, NamedTuple

from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.plan import Plan

ROWS = 32_768
"""Number of rows in a row group (our choice). Because it is fixed, the same rows always give the same file."""
_HASHES = ("block_hash", "txid", "outpoint_txid")
_FILTERED = ("txid", "script_pubkey", "address")  # The columns with Bloom filters.
_PLAIN = ("txid", "outpoint_txid", "value")  # Columns without a dictionary: zstd alone is faster and smaller.
_FALSE_POSITIVES = 0.01  # Rate of a Bloom filter (our choice): it takes 10 to 20 bits per row.
_BLOOM = "bloom_filter_options"  # An argument that only newer versions of pyarrow accept.
LEVEL = 1  # Level of zstd (our choice): higher levels are slower, and hashes do not shrink.


class ParquetForm(NamedTuple):
    """The form of a scan's Parquet files."""

    is_binary: bool
    """True if hashes are 32 bytes in display order; False if they are hex strings."""
    is_sorted: bool
    """True if all heights are known and the rows are sorted by height."""

    @classmethod
    def of(cls, plan: Plan, *, is_binary: bool) -> ParquetForm:
        """Return the form of the files that a scan of this plan writes."""
        heights = chain.from_iterable(part.heights() for part in plan.parts)
        return cls(is_binary, is_sorted=is_in_height_order(heights))


def is_in_height_order(heights: Iterable[int | None]) -> bool:
    """Return True if all heights are known and never decrease."""
    last = 0
    for height in heights:
        if height is None or height < last:
            return False
        last = height
    return True


def has_bloom_filters(pa: Any) -> bool:  # Any: pyarrow has no types
    """Return True if this version of pyarrow can write Bloom filters."""
    return _BLOOM in signature(pa.parquet.ParquetWriter).parameters


def opened_writer(
    pa: Any,
    file: IO[bytes],
    schema: Any,
    *,
    few: Sequence[str],
    order: Sequence[str] = (),
    filtered: Sequence[str] = (),
    rows: int = 1,
) -> Any:
    """Return a ParquetWriter.

    Args:
        pa: The pyarrow module.
        file: The file to write.
        schema: The columns.
        few: Names of columns with few distinct values, which get a dictionary.
        order: Names of the columns by which the rows are sorted.
        filtered: Names of the columns with Bloom filters, if this version of pyarrow can write them.
        rows: Capacity of the Bloom filters.
    """
    options: dict[str, Any] = {}
    if order:
        options["sorting_columns"] = [pa.parquet.SortingColumn(schema.get_field_index(name)) for name in order]
    if filtered and has_bloom_filters(pa):
        options[_BLOOM] = {column: {"ndv": max(rows, 1), "fpp": _FALSE_POSITIVES} for column in filtered}
    return pa.parquet.ParquetWriter(
        file, schema, compression="zstd", compression_level=LEVEL, use_dictionary=few, **options
    )


def binary_schema(pa: Any, schema: Any) -> Any:
    """Return the schema with hashes as 32 bytes instead of hex."""
    for name in _HASHES:
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.binary(HASH_SIZE)))
    return schema


@contextmanager
def parquet_writer(
    pa: Any, file: IO[bytes], schema: Any, form: ParquetForm, rows: int
) -> Iterator[Callable[[Any], None]]:
    """Return a context manager whose value is a function that writes a table with this schema.

    Args:
        pa: The pyarrow module.
        file: The file to write.
        schema: The columns.
        form: The form of the file.
        rows: The number of rows in the first row group, or in the whole file: the capacity of the Bloom filters.
    """
    few = [name for name in schema.names if name not in _PLAIN]
    order = ["height"] if form.is_sorted else []

    def write(table: Any) -> None:
        writer.write_table(table, row_group_size=ROWS)

    with opened_writer(pa, file, schema, few=few, order=order, filtered=_FILTERED, rows=min(rows, ROWS)) as writer:
        yield write
