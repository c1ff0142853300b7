"""Facts about Parquet files, by DuckDB and pyarrow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def can_filter() -> bool:
    """True if this version of pyarrow writes Bloom filters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.write_table(pa.table({"x": ["y"]}), pa.BufferOutputStream(), bloom_filter_options={"x": True})
    except TypeError:
        return False
    return True


def facts(path: Path) -> tuple[set[str], set[str]]:
    """The columns with a Bloom filter, and the columns by which the row groups are sorted."""
    import duckdb
    import pyarrow.parquet as pq

    query = "SELECT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_length > 0"
    filtered = {name for (name,) in duckdb.execute(query, [str(path)]).fetchall()}
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        names = file.schema_arrow.names
    return filtered, {names[each.column_index] for group in groups for each in group.sorting_columns}


def groups_read(paths: Sequence[Path], condition: str) -> tuple[int, int]:
    """The numbers of row groups that DuckDB reads and could read for a condition. One row fulfils the condition."""
    import duckdb

    with duckdb.connect() as db:
        (plan,) = (
            text
            for _, text in db.execute(
                f"EXPLAIN ANALYZE FROM read_parquet({list(map(str, paths))}) WHERE {condition}"
            ).fetchall()
        )
    assert "1 row " in plan
    found = re.search(r"Row Groups Scanned: (\d+) / (\d+)", plan)
    assert found is not None, plan
    return int(found[1]), int(found[2])


def without_bloom_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pyarrow the writer of an older version, which knows no Bloom filters."""
    import pyarrow.parquet as pq

    class OlderWriter(pq.ParquetWriter):  # type: ignore[misc]
        def __init__(
            self,
            where: Any,
            schema: Any,
            *,
            compression: str,
            compression_level: int,
            sorting_columns: Any = None,
            use_dictionary: Any = True,
        ) -> None:
            super().__init__(
                where,
                schema,
                compression=compression,
                compression_level=compression_level,
                sorting_columns=sorting_columns,
                use_dictionary=use_dictionary,
            )

    monkeypatch.setattr(pq, "ParquetWriter", OlderWriter)
