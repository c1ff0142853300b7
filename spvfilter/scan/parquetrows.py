"""Rows of a scan in a Parquet file: hashes as text or bytes, the order of the rows, and Bloom filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import signature
from itertools import chain
from typing import IO, Any, NamedTuple

from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.plan import Plan

ROWS = 32_768
"""Rows of a row group (our choice). With a fixed number, the same rows always give the same file."""
_HASHES = ("block_hash", "txid", "outpoint_txid")
_FILTERED = ("txid", "script_pubkey", "address")  # The columns with Bloom filters.
_PLAIN = ("txid", "outpoint_txid", "value")  # Columns without a dictionary: zstd alone is faster and gives less bytes.
_FALSE_POSITIVES = 0.01  # Rate of a Bloom filter (our choice): 10 to 20 bits a row.
_BLOOM = "bloom_filter_options"  # An argument that only newer versions of pyarrow have.
_LEVEL = 1  # Level of zstd (our choice).


class ParquetForm(NamedTuple):
    """The form of a scan's Parquet files."""

    is_binary: bool
    """True if hashes are 32 bytes in display order; False if they are text in hex."""
    is_sorted: bool
    """True if all heights are known, and the rows are in their order."""

    @classmethod
    def of(cls, plan: Plan, *, is_binary: bool) -> ParquetForm:
        """Return the form of the files of a scan of this plan."""
        heights = chain.from_iterable(part.heights() for part in plan.parts)
        return cls(is_binary, is_sorted=is_in_height_order(heights))


def is_in_height_order(heights: Iterable[int | None]) -> bool:
    """Return True if all heights are known and ascend. Equal heights may follow each other."""
    last = 0
    for height in heights:
        if height is None or height < last:
            return False
        last = height
    return True


def has_bloom_filters(pa: Any) -> bool:  # Any: pyarrow has no types
    """Return True if this version of pyarrow can write Bloom filters."""
    return _BLOOM in signature(pa.parquet.ParquetWriter).parameters


def bloom_filters(columns: Iterable[str], rows: int) -> dict[str, Any]:
    """Return the options of a ParquetWriter for Bloom filters with a capacity of `rows` in these columns."""
    return {_BLOOM: {column: {"ndv": rows, "fpp": _FALSE_POSITIVES} for column in columns}}


def binary_schema(pa: Any, schema: Any) -> Any:
    """Return a schema whose hashes are 32 bytes instead of text."""
    for name in _HASHES:
        schema = schema.set(schema.get_field_index(name), pa.field(name, pa.binary(HASH_SIZE)))
    return schema


@contextmanager
def parquet_writer(
    pa: Any, file: IO[bytes], schema: Any, form: ParquetForm, rows: int
) -> Iterator[Callable[[Any], None]]:
    """Return a context manager whose value writes a table of this schema.

    Args:
        pa: The module pyarrow.
        file: The file to write.
        schema: The columns.
        form: The form of the file.
        rows: The number of rows of the first row group, or of all rows: the Bloom filters have this capacity.
    """
    options: dict[str, Any] = {"use_dictionary": [name for name in schema.names if name not in _PLAIN]}
    if form.is_sorted:
        options["sorting_columns"] = [pa.parquet.SortingColumn(schema.get_field_index("height"))]
    if has_bloom_filters(pa):
        options |= bloom_filters(_FILTERED, min(max(rows, 1), ROWS))

    def write(table: Any) -> None:
        writer.write_table(table, row_group_size=ROWS)

    with pa.parquet.ParquetWriter(file, schema, compression="zstd", compression_level=_LEVEL, **options) as writer:
        yield write
