"""Exports as Parquet: the default columns, hashes in hex, addresses, and all columns; against pyarrow alone.

Repeated real blocks compress better than a chain. Blocks with distinct transactions show the speed on a real chain.
"""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from measure import Row, best_of, times_of
from parts import chain
from pipeline import gigabytes

from spvfilter import MAINNET, BlockFiles
from spvfilter.bloom.exchange import column_filters
from spvfilter.scan import ExportColumns, Plan, TableExport, Threads
from spvfilter.scan.exportcolumns import DEFAULT_COLUMNS
from spvfilter.scan.parquetrows import LEVEL

_GOAL = 150  # MB of repeated blocks that a core exports in a second with the default columns
_SLOWER = 100  # the same with addresses, or with hashes in hex
_WIDE = 5_000  # columns of a wide file
_DISTINCT, _DISTINCT_SLOWER = (
    90,
    60,
)  # MB of distinct transactions in a second, with the default columns and with addresses


def exported(loop: asyncio.Runner, plan: Plan, out: Path, columns: ExportColumns, jobs: int = 1) -> None:
    """Export into an empty folder."""

    async def export() -> None:
        engine = Threads(jobs)
        try:
            await TableExport(out, plan, columns).run(engine)
        finally:
            await engine.aclose()

    shutil.rmtree(out, ignore_errors=True)
    loop.run(export())


def exports(folder: Path, rounds: int) -> list[Row]:
    """Measure exports of real blocks with undo records, whose bytes do not count."""
    with_address = {
        table: (*names, "address") if table in ("inputs", "outputs") else names
        for table, names in DEFAULT_COLUMNS.items()
    }
    choices = {
        "default columns": (ExportColumns.of(), _GOAL),
        "hashes in hex": (ExportColumns.of(is_hex=True), _SLOWER),
        "with addresses": (ExportColumns.of(with_address), _SLOWER),
        "all columns": (ExportColumns.of({table: ["all"] for table in DEFAULT_COLUMNS}), None),
    }
    with TemporaryDirectory() as name, asyncio.Runner() as loop:
        made, out = chain(Path(name) / "blocks", int(gigabytes() * 1e9)), Path(name) / "out"
        plan = Plan.of(BlockFiles(made.blocks, undo="require"), MAINNET)
        run = partial(exported, loop, plan, out)
        times = best_of(rounds, *(partial(run, columns) for columns, _ in choices.values()))
        one, two = times_of(rounds, partial(run, ExportColumns.of()), partial(run, ExportColumns.of(), 2))
        size = plan.size / 1e6
    rows = [
        Row(
            f"export of {size:,.0f} MB, {label}",
            ours,
            size / (rate or _GOAL) * 1e3,
            f"{rate or _GOAL} MB/s",
            None if rate is None else 1.0,
        )
        for (label, (_, rate)), ours in zip(choices.items(), times, strict=True)
    ]
    rows.append(Row(f"export of {size:,.0f} MB, 2 threads, on the clock", two.clock, one.clock, "1 thread", 0.75))
    return rows + _distinct_exports(rounds, with_address) + _footers(rounds)


def _footers(rounds: int) -> list[Row]:
    """Measure how long it takes to find the filters of one column in a wide footer, and pyarrow's reading of it."""
    with TemporaryDirectory() as name:
        path = Path(name) / "wide.parquet"
        table = pa.table({f"column{number}": pa.array(range(8), pa.int64()) for number in range(_WIDE)})
        middle = f"column{_WIDE // 2}"
        pq.write_table(table, path, row_group_size=2, bloom_filter_options={middle: {"ndv": 8, "fpp": 0.01}})
        ours, theirs = best_of(rounds, partial(column_filters, path, middle), partial(pq.read_metadata, path))
    return [Row(f"filters of a column in a footer of {_WIDE:,} columns", ours, theirs, "pyarrow's read_metadata", 1.5)]


def _distinct_exports(rounds: int, with_address: dict[str, tuple[str, ...]]) -> list[Row]:
    """Measure exports of blocks whose transactions differ, and pyarrow's writing of the same tables."""
    with TemporaryDirectory() as name, asyncio.Runner() as loop:
        made = chain(Path(name) / "blocks", int(gigabytes() * 5e8), is_distinct=True)
        plan = Plan.of(BlockFiles(made.blocks, undo="require"), MAINNET)
        run = partial(exported, loop, plan)
        columns = ExportColumns.of(with_address)
        run(Path(name) / "out", columns)
        tables = [pq.read_table(path, partitioning=None) for path in sorted((Path(name) / "out").glob("*/*/*.parquet"))]
        out = Path(name) / "again"
        default, addresses, alone = best_of(
            rounds,
            partial(run, out, ExportColumns.of()),
            partial(run, out, columns),
            partial(_written, tables, Path(name) / "alone.parquet"),
        )
        size = plan.size / 1e6
    what = f"export of {size:,.0f} MB of distinct transactions"
    return [
        Row(f"{what}, default columns", default, size / _DISTINCT * 1e3, f"{_DISTINCT} MB/s", 1.0),
        Row(f"{what}, with addresses", addresses, size / _DISTINCT_SLOWER * 1e3, f"{_DISTINCT_SLOWER} MB/s", 1.0),
        Row(f"{what}, with addresses", addresses, alone, "pyarrow's writing of these tables", 2.0),
    ]


def _written(tables: list[Any], path: Path) -> None:
    """Write tables by pyarrow's defaults, with the same compression."""
    for table in tables:
        pq.write_table(table, path, compression="zstd", compression_level=LEVEL)
