"""`spvfilter scan --out DIR`: scan in parts, so that a later run continues the scan, also on a chain that has grown."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.scan.files import assumed_network, unseen_spends
from spvfilter.cli.scan.following import follow
from spvfilter.cli.scan.gaps import report_heights
from spvfilter.cli.scan.nodeoptions import EVERY_S
from spvfilter.cli.scan.types import warn_of_types
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.problems import Problems
from spvfilter.cli.term.progress import megabytes, progress
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import NO_ROOM
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.cluster import DaskWorkers
from spvfilter.scan.daskcalls import connected
from spvfilter.scan.directory import PartScan
from spvfilter.scan.engines import Engine, Processes, Threads
from spvfilter.scan.gaps import ScannedHeights
from spvfilter.scan.outputs import TOTALS, OutputFormat, publish, scan_parts
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.plan import Plan
from spvfilter.scan.remote import is_url, seen_anywhere
from spvfilter.scan.sources import BlockFiles, BlockSpan
from spvfilter.scan.tables import missing_bloom_filters
from spvfilter.scan.totals import read_totals
from spvfilter.scan.workerplan import plan_on_workers
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_INCOMPLETE = 1  # exit code
_POLL_S = 0.1  # between two updates of the progress display


def run(args: argparse.Namespace, watch: WatchList, span: BlockSpan) -> int:
    """Scan the sources, write the results into the directory `args.out`, and return the exit code.

    Raises ParameterError, SourceError, OSError.
    """
    if args.format == "table":
        raise ParameterError(f"with --out, --format must be one of {', '.join(OutputFormat)}")
    if args.binary and args.format != OutputFormat.PARQUET:
        raise ParameterError("--binary is for Parquet: add --format parquet, or leave --binary out")
    if args.publish is not None and not is_url(args.publish):
        raise ParameterError("--publish takes a URL such as s3://bucket/found")
    if args.dask is not None and args.with_transactions:
        raise ParameterError("--with-transactions needs the parts on this machine: leave --dask out")
    if args.dask is not None and args.processes is not None:
        raise ParameterError("--dask and --processes exclude each other: give one")
    return asyncio.run(_Scans(args, watch, span).run())


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan of a scan, and the engine that executes the plan."""

    plan: Plan
    engine: Engine
    assumed: int
    """Number of files that do not name their network, because each contains one block without a magic."""
    heights: ScannedHeights
    """The heights that the blocks have, and the missing ones."""


@asynccontextmanager
async def _planned_here(args: argparse.Namespace, span: BlockSpan, watch: WatchList) -> AsyncIterator[_Planned]:
    paths = args.paths if args.dask is None else [seen_anywhere(path) for path in args.paths]
    async with _engine(args) as engine:
        files = await asyncio.to_thread(partial(BlockFiles, paths, undo=args.undo, span=span))
        plan = await asyncio.to_thread(Plan.of, files, watch.network)
        yield _Planned(plan, engine, files.assumed, plan.report.heights)


@asynccontextmanager
async def _planned_on_workers(args: argparse.Namespace, span: BlockSpan, watch: WatchList) -> AsyncIterator[_Planned]:
    async with connected(args.dask) as client:
        found = await plan_on_workers(client, args.on_workers, watch.network, undo=args.undo, span=span)
        engine = DaskWorkers(client, found)
        try:
            # without a machine, the blocks before the first one are missing as well
            heights = replace(found.plan.report.heights, gaps=found.missing)
            yield _Planned(found.plan, engine, found.assumed, heights)
        finally:
            await engine.aclose()


@asynccontextmanager
async def _engine(args: argparse.Namespace) -> AsyncIterator[Engine]:
    if args.dask is not None:
        async with connected(args.dask) as client:
            workers = DaskWorkers(client)
            try:
                yield workers
            finally:
                await workers.aclose()
        return
    engine: Engine = Threads(args.jobs) if args.processes is None else Processes(args.processes)
    try:
        yield engine
    finally:
        await engine.aclose()


class _Scans:
    """The scans of one command into one directory: one scan, or with `--follow` one for each state of the chain."""

    def __init__(self, args: argparse.Namespace, watch: WatchList, span: BlockSpan) -> None:
        self._args = args
        self._watch = watch
        self._span = span
        self._tell = _Messages()
        self._is_first = True

    async def run(self) -> int:
        args = self._args
        if args.follow:
            return await follow(self._scan, args.paths, args.every or EVERY_S, args.zmq)
        return await self._scan()

    async def _scan(self) -> int:
        """Scan the blocks as they are now, write all outputs, and return the exit code."""
        args, begun = self._args, time.monotonic()
        planning = (_planned_on_workers if args.on_workers else _planned_here)(args, self._span, self._watch)
        async with planning as planned:
            plan = planned.plan
            if not plan.parts:
                problems = "".join(f"; {problem}" for problem in plan.report.problems[:3])
                raise SourceError(f"no block in {', '.join(args.paths or args.on_workers)}{problems}")
            scan = PartScan(
                args.out,
                plan,
                self._watch,
                check=args.check,
                transactions=args.with_transactions,
                binary_hashes=args.binary,
            )
            path = await self._scanned(scan, planned.engine)
        seconds = time.monotonic() - begun
        if args.publish is not None:
            for url in await asyncio.to_thread(publish, path, args.publish):
                if not args.quiet:
                    complain(f"published {url}")
        if args.plot is not None:
            await asyncio.to_thread(_draw, scan, Path(args.plot))
        if args.remove_parts:
            await asyncio.to_thread(scan.remove_parts)
        return self._report(scan, path, seconds, planned)

    async def _scanned(self, scan: PartScan, engine: Engine) -> Path:
        """Run a scan, show its progress, and return the path of the file of matches."""
        args = self._args
        with progress(None) as shown:
            working = asyncio.ensure_future(scan_parts(scan, args.format or OutputFormat.CSV, engine))
            try:
                while not working.done():
                    shown.update(scan.report.bytes_done, scan.report.bytes_total or None)
                    await asyncio.wait([working], timeout=_POLL_S)
                return await working
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

    def _report(self, scan: PartScan, path: Path, seconds: float, planned: _Planned) -> int:
        """Print the result of a scan, and return the exit code."""
        args = self._args
        self._tell.begin()
        if planned.assumed and not args.quiet:
            self._tell(assumed_network(planned.assumed, self._watch.network))
        code = _report(scan, path, seconds, self._tell, quiet=args.quiet, is_first=self._is_first)
        self._is_first = False
        if args.format == OutputFormat.PARQUET and not args.quiet and (missing := missing_bloom_filters()):
            self._tell(missing)
        if args.remove_parts and not args.quiet:
            self._tell(f"the files of parts are removed: later runs cannot add new blocks to {args.out}")
        return _INCOMPLETE if report_heights(args, planned.heights, self._tell) else code


class _Messages:
    """Prints messages on standard error. A message that the scan before has printed is not repeated."""

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._now: set[str] = set()

    def begin(self) -> None:
        """Begin the messages of the next scan."""
        self._before, self._now = self._now, set()

    def __call__(self, message: str) -> None:
        if message not in self._before:
            complain(message)
        self._now.add(message)


def _draw(scan: PartScan, path: Path) -> None:
    from spvfilter.cli.scan.plot import draw

    draw(BalanceHistory.of(block for part in scan.finished() for block in part.blocks()), path)


def _continued(report: PartsReport) -> str:
    """Return how a scan continued an earlier one, in words; empty for a new scan."""
    kept = f"{report.parts_kept:,} part(s) kept"
    if report.change is None:
        return kept if report.parts_kept else ""
    changes = [f"{report.change.new:,} new block(s)"] if report.change.new else []
    changes += [f"{report.change.gone:,} block(s) left the best chain"] if report.change.gone else []
    return f"since the last run: {', '.join(changes) or 'no new block'}; {kept}"


def _report(
    scan: PartScan, path: Path, seconds: float, tell: Callable[[str], None], *, quiet: bool, is_first: bool
) -> int:
    """Print problems, totals and the summary, and return the exit code. Later scans print no totals."""
    summary, planned = scan.report.summary, scan.plan.report
    problems = [*map(str, planned.problems), *summary.problems]
    undo_problems = [*map(str, planned.undo_problems), *summary.undo_problems]
    found_problems = Problems()
    for problem in (*problems, *undo_problems):
        found_problems.add(problem)
    for line in found_problems.lines():
        tell(line)
    if not quiet:
        if is_first:
            _show_totals(scan.directory / TOTALS, Page(sys.stderr))
        found = f"{summary.matches:,} match{'es' if summary.matches != 1 else ''}"
        done = scan.report.parts_done or "no"
        if is_first or scan.report.parts_done or scan.report.change != (0, 0):
            tell(
                f"{summary.blocks:,} block(s), {megabytes(summary.bytes_scanned)}, {done} part(s) scanned in"
                f" {seconds:.1f} s: {found} in {path}"
            )
            if continued := _continued(scan.report):
                tell(continued)
        if planned.duplicates:
            tell(f"{len(planned.duplicates):,} duplicate block(s), not counted")
        if planned.stale:
            tell(f"{len(planned.stale):,} stale block(s), not on the branch with the most work, not counted")
        if summary.by_undo and summary.by_outpoint:
            tell(f"{summary.by_outpoint:,} block(s) without a usable undo record, matched by outpoints")
        if summary.unseen:
            tell(unseen_spends(summary.unseen))
        warn_of_types(scan.watch, summary.by_outpoint)
    return _INCOMPLETE if problems or undo_problems else 0


def _show_totals(path: Path, page: Page) -> None:
    """Print the largest totals as a table, if standard error is a terminal."""
    if page.is_terminal:
        show_totals(page, lambda: map(_total, read_totals(path)), f"{path} has all")


def _total(row: dict[str, str]) -> Total:
    sums = (int(row[name]) for name in ("received", "spent", "unknown", "matches"))
    return Total(row["address"] or row["entry"], row["label"], *sums)
