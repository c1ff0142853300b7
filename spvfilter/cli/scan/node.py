"""`spvfilter scan http://HOST:PORT`: scan the blocks of a running node up to its tip, or follow the tip."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from spvfilter._public import deferred
from spvfilter.cli.arguments import format_of
from spvfilter.cli.blockoptions import BlockOptions
from spvfilter.cli.credentials import credentials_of
from spvfilter.cli.scan.files import report_silent
from spvfilter.cli.scan.gaps import report_heights
from spvfilter.cli.scan.options import ScanOptions
from spvfilter.cli.scan.totals import ScanTotals, wants_totals
from spvfilter.cli.scan.types import warn_of_types
from spvfilter.cli.term.matches import batch_printer, printer_of_disconnected
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.problems import Problems
from spvfilter.cli.term.progress import megabytes
from spvfilter.errors import counted
from spvfilter.rpc.credentials import Credentials
from spvfilter.rpc.fullnode import FullNode
from spvfilter.rpc.notices import TipNotices
from spvfilter.rpc.patience import Patience
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.fetching import NodeBlocks
from spvfilter.scan.following import Connected, Disconnected, follow_batches
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.order import ScanReport
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_INCOMPLETE = 1  # exit code


@dataclass(slots=True)
class _Progress:
    """The numbers of scanned blocks and matches so far."""

    page: Page
    totals: ScanTotals | None
    """The totals, or None if nobody sees them."""
    blocks: int = 0
    matches: int = 0
    bytes_scanned: int = 0
    first: int | None = None
    """Height of the first scanned block, or None until the height is known."""
    reached: int | None = None
    """Height of the last scanned block, or None if no block has been scanned yet."""
    candidates: int = 0
    """Number of transactions that were searched for silent payments."""
    unjudged: int = 0
    """Number of transactions in which a silent payment may have been missed."""
    disconnected: int = 0
    """Number of blocks that a reorganization took off the best chain."""
    is_incomplete: bool = False

    def add(self, report: ScanReport) -> None:
        """Add the counts of a scan that has ended or was interrupted."""
        self.blocks += report.blocks
        self.bytes_scanned += report.bytes_scanned
        self.candidates += report.candidates
        self.unjudged += report.unjudged
        if self.first is not None and self.reached is None and report.blocks:
            self.reached = self.first + report.blocks - 1
        problems = Problems()
        for problem in report.undo_problems:
            problems.add(str(problem))
            self.is_incomplete = True
        problems.complain()


def run(options: ScanOptions, matcher: Matcher, page: Page) -> int:
    """Scan, print the results, and return the exit code. Raises NodeError or OSError."""
    credentials = credentials_of(options.cookie, options.user)
    counts = wants_totals(options, format_of(options.format, page))
    totals = ScanTotals(matcher.watch, may_discard=options.follow) if counts else None
    progress, begun = _Progress(page, totals), time.monotonic()
    is_whole = options.follow  # only Ctrl-C ends it
    try:
        asyncio.run(_scan(options, matcher, credentials, progress))
        is_whole = True
    finally:
        if totals is not None:
            totals.settle()
            if options.totals is not None and is_whole:
                totals.write(Path(options.totals))
        if not options.quiet and progress.first is not None:  # otherwise the error says why nothing was scanned
            _summarise(progress, matcher.report, time.monotonic() - begun, format_of(options.format, page))
            report = matcher.report
            warn_of_types(matcher.watch, report.blocks if options.undo == UndoMode.OFF else len(report.without_undo))
    lacks = False if options.follow else report_heights(options, matcher.report.heights)
    return _INCOMPLETE if lacks or progress.is_incomplete else 0


@asynccontextmanager
async def opened(options: BlockOptions, credentials: Credentials | None) -> AsyncIterator[FullNode]:
    """Return a context manager that connects to the node, and says so if it is in initial block download.

    Raises ParameterError, NodeError or OSError.
    """
    patience = Patience(None if options.follow else Patience().seconds, complain)
    async with FullNode.open(options.paths[0], options.network, credentials=credentials, patience=patience) as node:
        info = await node.info()
        if info.is_initial_download and not options.follow:
            complain(
                f"the node is in initial block download: it has blocks up to height {info.height:,}, and headers up to"
                f" {info.headers:,}"
            )
        yield node


async def _scan(options: ScanOptions, matcher: Matcher, credentials: Credentials | None, progress: _Progress) -> None:
    chosen = format_of(options.format, progress.page)
    has_accounts = bool(matcher.watch.accounts)
    show = batch_printer(progress.page, chosen, has_accounts=has_accounts)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(opened(options, credentials))
        notices = await stack.enter_async_context(TipNotices.subscribed(options.zmq)) if options.zmq else None
        skips = not options.follow
        listing = await NodeBlocks(node, span=options.span, allow_gaps=True).listing()
        if options.follow and not options.quiet and listing.first > max(options.from_height or 0, 1):
            complain(f"the blocks begin at height {listing.first:,}: earlier ones are not in this scan")
        progress.first = listing.first
        blocks = NodeBlocks(node, undo=options.undo, listing=listing, allow_gaps=skips)
        if not options.follow:
            try:
                async with aclosing(matcher.scan_batches(blocks)) as batches:
                    async for batch in batches:
                        _take(batch, show, progress)
            finally:
                progress.add(matcher.report)
            return
        gone = printer_of_disconnected(progress.page, chosen, has_accounts=has_accounts)
        report = matcher.report  # follow_batches() replaces it with a new one for later blocks
        following = follow_batches(matcher, blocks, notices=notices, poll_s=options.poll_s)
        try:
            async with aclosing(following) as events:
                async for event in events:
                    if matcher.report is not report:
                        progress.add(report)
                        report = matcher.report
                    match event:
                        case Connected():
                            progress.reached = event.height
                        case Disconnected():
                            progress.disconnected += 1
                            progress.reached = event.height - 1
                            if progress.totals is not None:
                                progress.totals.discard(event.hash)
                            gone(event.height, event.hash)
                        case MatchBatch():
                            _take(event, show, progress)
                        case _:
                            assert_never(event)
        finally:
            progress.add(matcher.report)


def _take(batch: MatchBatch, show: Callable[[MatchBatch], None], progress: _Progress) -> None:
    show(batch)
    if progress.totals is not None:
        progress.totals.add(batch)
    progress.matches += len(batch)


def _summarise(progress: _Progress, report: ScanReport, seconds: float, chosen: str) -> None:
    if progress.totals is not None and (chosen == "table" or sys.stderr.isatty()):
        page = progress.page if chosen == "table" else Page(sys.stderr)
        progress.totals.show(page)
    if progress.reached is None:
        complain("no block was scanned")
        return
    found = (
        f"{progress.matches:,} match{'es' if progress.matches != 1 else ''}" if progress.matches else "nothing found"
    )
    size, rate = megabytes(progress.bytes_scanned), megabytes(progress.bytes_scanned / max(seconds, 0.001))
    complain(
        f"{counted(progress.blocks, 'block')}, {size} in {seconds:.1f} s ({rate}/s), up to height {progress.reached:,}:"
        f" {found}"
    )
    if progress.disconnected:
        complain(
            f"{counted(progress.disconnected, 'block')} left the best chain in reorganizations; rows whose kind is"
            " disconnected name them"
        )
    report_silent(progress.candidates, progress.unjudged)
    if report.unseen:
        complain(
            f"warning: {counted(report.unseen, 'block')} may spend coins from before these blocks, and such spends"
            " were not found. Start the scan at the genesis block, or use the REST interface of Bitcoin Core 30 or"
            " later, which serves spent outputs"
        )
