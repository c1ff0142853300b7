"""The rounds of a command that processes blocks in parts: one, or with `--follow` one for each state of the chain."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar  # distributed has no types

from spvfilter.cli.blockoptions import BlockOptions
from spvfilter.cli.parts.following import follow
from spvfilter.cli.scan.files import assumed_network
from spvfilter.cli.scan.gaps import report_heights
from spvfilter.cli.term.page import complain
from spvfilter.cli.term.problems import Problems
from spvfilter.cli.term.progress import megabytes, progress
from spvfilter.errors import SourceError, VanishedFileError, counted
from spvfilter.files import NO_ROOM
from spvfilter.scan.cluster import DaskWorkers
from spvfilter.scan.daskcalls import connected
from spvfilter.scan.engines import Engine, Processes, Threads
from spvfilter.scan.gaps import ScannedHeights
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.plan import Plan
from spvfilter.scan.remote import seen_anywhere
from spvfilter.scan.sources import BlockFiles
from spvfilter.scan.workerplan import plan_on_workers

T = TypeVar("T")
Options = TypeVar("Options", bound=BlockOptions)
_INCOMPLETE = 1  # exit code
_ATTEMPTS = 10  # most plans that one round makes if files vanish during it (our choice)
_POLL_S = 0.1  # time between two updates of the progress display


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a round, and the engine that executes the plan."""

    plan: Plan
    """The plan of the blocks."""
    engine: Engine
    """The engine."""
    assumed: int
    """Number of files that do not name their network, because each contains one block without a magic."""
    heights: ScannedHeights
    """The heights of the blocks, and the missing heights."""


def engine_of(options: BlockOptions, client: Any) -> Engine:
    """Return the engine that the options ask for. `client` is the one of a Dask cluster, or None."""
    if client is not None:
        return DaskWorkers(client)
    return Threads(options.jobs) if options.processes is None else Processes(options.processes)


@asynccontextmanager
async def _planned(options: BlockOptions) -> AsyncIterator[Planned]:
    async with AsyncExitStack() as stack:
        client = None if options.dask is None else await stack.enter_async_context(connected(options.dask))
        engine: Engine
        if options.on_workers:
            found = await plan_on_workers(
                client,
                options.on_workers,
                options.network,
                undo=options.undo,
                span=options.span,
                directory=options.out,
            )
            engine = DaskWorkers(client, found)
            # `missing` includes heights below the first block, which a missing machine may have
            heights = replace(found.plan.report.heights, gaps=found.missing)
            planned = Planned(found.plan, engine, found.assumed, heights)
        else:
            paths = options.paths if client is None else [seen_anywhere(path) for path in options.paths]
            files = await asyncio.to_thread(partial(BlockFiles, paths, undo=options.undo, span=options.span))
            plan = await asyncio.to_thread(partial(Plan.of, files, options.network, directory=options.out))
            engine = engine_of(options, client)
            planned = Planned(plan, engine, files.assumed, plan.report.heights)
        try:
            yield planned
        finally:
            await engine.aclose()


class Rounds(ABC, Generic[Options]):
    """The rounds of a command that writes into one directory.

    Args:
        options: The options of the command.
        verb: The verb of the command in the past tense, such as "scanned".
    """

    def __init__(self, options: Options, verb: str) -> None:
        self.options = options
        self.tell: Messages = Messages()
        """Prints a message, unless the previous round printed it."""
        self.is_first: bool = True
        """True in the first round."""
        self._verb = verb
        self._seconds = 0.0

    @abstractmethod
    async def work(self, planned: Planned) -> PartsReport:
        """Execute a plan and write all results. Returns the report of the run."""

    @abstractmethod
    def describe(self, report: PartsReport) -> None:
        """Print the summary of a round, with `counts` and other messages."""

    async def run(self) -> int:
        """Run one round, or follow the chain, and return the exit code. Raises SourceError or OSError."""
        if self.options.follow:
            return await follow(self._round, self.options.paths, self.options.poll_s, self.options.zmq)
        return await self._round()

    async def _round(self) -> int:
        """Process the blocks as they are now, print the result, and return the exit code."""
        options = self.options
        for left in reversed(range(_ATTEMPTS)):
            async with _planned(options) as planned:
                plan = planned.plan
                if not plan.parts:
                    problems = "".join(f"; {problem}" for problem in plan.report.problems[:3])
                    raise SourceError(f"found no blocks in {', '.join(options.paths or options.on_workers)}{problems}")
                try:
                    report = await self.work(planned)
                    break
                except VanishedFileError:  # a node may prune its files in the meantime
                    if not left:
                        raise
        return self.finish(planned, report)

    def finish(self, planned: Planned, report: PartsReport) -> int:
        """Print the result of a round, and return the exit code. Raises OSError if the report cannot be written."""
        options, plan = self.options, planned.plan
        self.tell.begin()
        if planned.assumed and not options.quiet:
            self.tell(assumed_network(planned.assumed, options.network))
        problems_found, summary = Problems(), report.summary
        for problem in (*plan.report.problems, *summary.problems, *plan.report.undo_problems, *summary.undo_problems):
            problems_found.add(str(problem))
        for line in problems_found.lines():
            self.tell(line)
        if not options.quiet:
            self.describe(report)
            if plan.report.duplicates:
                self.tell(f"{counted(len(plan.report.duplicates), 'duplicate block')}, not counted")
            if plan.report.stale:
                stale = len(plan.report.stale)
                self.tell(f"{counted(stale, 'stale block')}, not on the branch with the most work, not counted")
        self.is_first = False
        lacks = report_heights(options, planned.heights, self.tell, report.not_searched)
        return _INCOMPLETE if lacks or problems_found else 0

    async def shown(self, work: Coroutine[None, None, T], report: PartsReport) -> T:
        """Await the work on all parts, show its progress, and return its result."""
        begun = time.monotonic()
        with progress(None) as shown:
            working = asyncio.ensure_future(work)
            try:
                while not working.done():
                    shown.update(report.bytes_done, report.bytes_total or None)
                    await asyncio.wait([working], timeout=_POLL_S)
                return await working
            except asyncio.CancelledError:
                complain(
                    "stopping: waiting a few seconds for work in progress. The finished parts are kept in"
                    f" {self.options.out}: run the same command again to continue"
                )
                raise
            except OSError as error:
                if error.errno in NO_ROOM:
                    complain(
                        f"no space left in {self.options.out}, where the finished parts are: free some space and run"
                        " the same command again to continue"
                    )
                raise
            finally:
                working.cancel()
                with suppress(asyncio.CancelledError, Exception):  # `await working` above raises it
                    await working
                self._seconds = time.monotonic() - begun

    def counts(self, report: PartsReport, result: str) -> None:
        """Print the numbers of blocks and parts, this result, and the changes since the last run."""
        if self.is_first or report.parts_done or report.change != (0, 0):
            summary = report.summary
            parts = counted(report.parts_done, "part") if report.parts_done else "no parts"
            self.tell(
                f"{counted(summary.blocks, 'block')}, {megabytes(summary.bytes_scanned)}, {parts}"
                f" {self._verb} in {self._seconds:.1f} s: {result}"
            )
            if continued := _continued(report):
                self.tell(continued)


class Messages:
    """Prints messages to standard error. A message that the previous round printed is not repeated."""

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._now: set[str] = set()

    def begin(self) -> None:
        """Begin the messages of the next round."""
        self._before, self._now = self._now, set()

    def __call__(self, message: str) -> None:
        if message not in self._before:
            complain(message)
        self._now.add(message)


def _continued(report: PartsReport) -> str:
    """Say how a run continued an earlier one. The result is empty for a new directory."""
    kept = f"{counted(report.parts_kept, 'part')} kept"
    if report.change is None:
        return kept if report.parts_kept else ""
    changes = [f"{counted(report.change.new, 'new block')}"] if report.change.new else []
    changes += [f"{counted(report.change.gone, 'block')} left the best chain"] if report.change.gone else []
    return f"since the last run: {', '.join(changes) or 'no new blocks'}; {kept}"
