"""Exports of real blocks as Parquet: the default columns, hashes in hex, addresses, and all columns."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import Row, best_of, times_of
from parts import chain
from pipeline import gigabytes

from spvfilter import MAINNET, BlockFiles
from spvfilter.scan import ExportColumns, Plan, TableExport, Threads
from spvfilter.scan.exportcolumns import DEFAULT_COLUMNS

_GOAL = 150  # MB of blocks that a core exports in a second with the default columns
_SLOWER = 100  # the same with addresses, or with hashes in hex


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
    return [*rows, Row(f"export of {size:,.0f} MB, 2 threads, on the clock", two.clock, one.clock, "1 thread", 0.75)]
