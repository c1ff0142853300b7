"""`spvfilter export`: write blocks, transactions, inputs and outputs as Parquet tables."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_network, whole
from spvfilter.cli.blockrange import add_range, span_of
from spvfilter.cli.term.page import complain
from spvfilter.cli.term.progress import megabytes, progress
from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import NO_ROOM
from spvfilter.network import Network
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import asyncio

    from spvfilter.cli.scan import files as scanfiles, gaps
    from spvfilter.scan import cluster, daskcalls, engines, export, exportcolumns, plan, remote, sources
else:  # not needed to show --help
    asyncio = deferred("asyncio")
    gaps = deferred("spvfilter.cli.scan.gaps")
    scanfiles = deferred("spvfilter.cli.scan.files")
    cluster = deferred("spvfilter.scan.cluster")
    daskcalls = deferred("spvfilter.scan.daskcalls")
    engines = deferred("spvfilter.scan.engines")
    export = deferred("spvfilter.scan.export")
    exportcolumns = deferred("spvfilter.scan.exportcolumns")
    plan = deferred("spvfilter.scan.plan")
    remote = deferred("spvfilter.scan.remote")
    sources = deferred("spvfilter.scan.sources")

_INCOMPLETE = 1  # exit code
_POLL_S = 0.1  # between two updates of the progress display
_MOST_PROBLEMS = 20  # lines on standard error


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter export PATH ... --out DIR [OPTION ...]"
    parser.description = (
        "Write blocks, transactions, inputs and outputs as Parquet: a folder for each table and range of heights."
        " DuckDB, polars and pyarrow read a table as one data set. The same command later writes only what is new."
        " Needs spvfilter[parquet]."
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a blk*.dat file of Bitcoin Core, a file of one block, or a directory or URL (s3://…) of such files",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="the directory for the tables")
    parser.add_argument(
        "--columns",
        metavar="TABLE[:NAME,...]",
        nargs="+",
        action="extend",
        default=[],
        help=(
            "write only these tables: blocks, transactions, inputs, outputs. After a colon: the names of columns, or"
            " all. A + before the names adds them to the default columns, as in outputs:+address; repeatable"
        ),
    )
    parser.add_argument("--hex", action="store_true", help="write hashes as text in hex, not as 32 bytes")
    parser.add_argument(
        "--coins",
        action="store_true",
        help="also write the unspent outputs after the last block; needs all blocks from the genesis block on",
    )
    add_network(parser)
    _add_blocks(parser)
    _add_engine(parser)
    parser.add_argument(
        "--quiet", action="store_true", help="do not print the summary; errors still go to standard error"
    )


def _add_blocks(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose blocks and say which of their data is needed."""
    parser.add_argument(
        "--undo",
        choices=list(UndoMode),
        default=UndoMode.AUTO,
        help=(
            "whether to read the rev*.dat beside each blk*.dat. Values and types of inputs, and fees, come from it;"
            " without it they are null. auto (default): read it if it exists; require: fail without it; off"
        ),
    )
    parser.add_argument(
        "--check", action="store_true", help="verify each block's merkle root and witness commitment before using it"
    )
    add_range(parser, "export")
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="exit with 0 although blocks or undo records of the range are missing; they are still listed",
    )
    parser.add_argument(
        "--report", metavar="FILE.json", help="write the exported and the missing ranges of heights to FILE.json"
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose where the work is done."""
    parser.add_argument(
        "--jobs",
        metavar="J",
        type=whole(1, 256),
        default=1,
        help="number of threads; more than one needs the compiled kernel; default %(default)s",
    )
    parser.add_argument("--processes", metavar="N", type=whole(1, 256), help="use N processes instead of threads")
    parser.add_argument(
        "--dask",
        metavar="tcp://HOST:PORT",
        help=(
            "use the workers of the Dask cluster with this scheduler. Each worker must see the files and DIR under the"
            " same paths"
        ),
    )


def run(args: argparse.Namespace) -> int:
    if args.dask is not None and args.processes is not None:
        raise ParameterError("--dask and --processes exclude each other: give one")
    if remote.is_url(args.out):
        raise ParameterError("--out takes a local path, not a URL: copy the tables after the export")
    columns = exportcolumns.ExportColumns.of(_chosen(args.columns), is_hex=args.hex)
    span = span_of(args)
    return asyncio.run(_export(args, columns, span))


def _chosen(given: Iterable[str]) -> dict[str, list[str]] | None:
    """Return the names of columns by the name of their table; None for the default. Raises ParameterError."""
    chosen: dict[str, list[str]] = {}
    for text in given:
        table, colon, names = text.partition(":")
        if table in chosen:
            raise ParameterError(f"--columns names the table {table[:40]} twice: give all its columns at once")
        default = list(exportcolumns.DEFAULT_COLUMNS.get(table, ()))
        if not colon:
            chosen[table] = default or [""]
        elif names.startswith("+"):
            chosen[table] = [*default, *names[1:].split(",")]
        else:
            chosen[table] = names.split(",")
    return chosen or None


@asynccontextmanager
async def _engine(args: argparse.Namespace) -> AsyncIterator[engines.Engine]:
    if args.dask is not None:
        async with daskcalls.connected(args.dask) as client:
            workers = cluster.DaskWorkers(client)
            try:
                yield workers
            finally:
                await workers.aclose()
        return
    engine: engines.Engine = engines.Threads(args.jobs) if args.processes is None else engines.Processes(args.processes)
    try:
        yield engine
    finally:
        await engine.aclose()


async def _export(args: argparse.Namespace, columns: exportcolumns.ExportColumns, span: sources.BlockSpan) -> int:
    begun = time.monotonic()
    paths = args.paths if args.dask is None else [remote.seen_anywhere(path) for path in args.paths]
    files = sources.BlockFiles(paths, undo=args.undo, span=span)
    planned = await asyncio.to_thread(plan.Plan.of, files, args.network)
    if not planned.parts:
        problems = "".join(f"; {problem}" for problem in planned.report.problems[:3])
        raise SourceError(f"no block in {', '.join(args.paths)}{problems}")
    exporting = export.TableExport(args.out, planned, columns, check=args.check, coins=args.coins)
    async with _engine(args) as engine:
        with progress(None) as shown:
            working = asyncio.ensure_future(exporting.run(engine))
            try:
                while not working.done():
                    shown.update(exporting.report.bytes_done, exporting.report.bytes_total or None)
                    await asyncio.wait([working], timeout=_POLL_S)
                await working
            except OSError as error:
                if error.errno in NO_ROOM:
                    complain(
                        f"no room in {args.out}: the finished parts are kept there; free some space and run the same"
                        " command again to continue"
                    )
                raise
            finally:
                working.cancel()
                with suppress(asyncio.CancelledError, Exception):  # `await working` above raises it
                    await working
    if files.assumed and not args.quiet:
        complain(scanfiles.assumed_network(files.assumed, _network(args)))
    code = _report(exporting, time.monotonic() - begun, quiet=args.quiet)
    return _INCOMPLETE if gaps.report_heights(args, planned.report.heights) else code


def _network(args: argparse.Namespace) -> Network:
    network: Network = args.network
    return network


def _report(exporting: export.TableExport, seconds: float, *, quiet: bool) -> int:
    """Print problems and the summary, and return the exit code."""
    report, planned = exporting.report, exporting.plan.report
    summary = report.summary
    problems = [*map(str, planned.problems), *summary.problems, *map(str, planned.undo_problems)]
    problems += summary.undo_problems
    for problem in problems[:_MOST_PROBLEMS]:
        complain(problem)
    if len(problems) > _MOST_PROBLEMS:
        complain(f"and {len(problems) - _MOST_PROBLEMS:,} more problems")
    if not quiet:
        complain(
            f"{summary.blocks:,} block(s), {megabytes(summary.bytes_scanned)} in {exporting.directory}:"
            f" {report.parts_done:,} part(s) written in {seconds:.1f} s, {report.parts_kept:,} kept"
        )
        if summary.by_outpoint:
            complain(
                f"{summary.by_outpoint:,} block(s) without a usable undo record: values and types of their inputs, and"
                " their fees, are null"
            )
    return _INCOMPLETE if problems else 0
