"""`spvfilter scan PATH ...`: scan blocks in files or on standard input, and print matches, totals and a summary."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path

from spvfilter.cli.arguments import format_of
from spvfilter.cli.scan.gaps import report_heights
from spvfilter.cli.scan.options import ScanOptions
from spvfilter.cli.scan.streams import blocks_in, named
from spvfilter.cli.scan.totals import ScanTotals, wants_totals
from spvfilter.cli.scan.types import warn_of_types
from spvfilter.cli.term.matches import batch_printer
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.problems import Problems
from spvfilter.cli.term.progress import ProgressDisplay, megabytes, progress
from spvfilter.errors import FormatError, IncompleteScanError, SourceError, counted
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.gaps import in_words
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles
from spvfilter.scan.undomode import UndoMode

_INCOMPLETE = 1  # exit code
_POLL_S = 0.1  # time between two updates of the progress display
_HASHES_SHOWN = 20  # most block hashes that a list in the summary contains


def run(options: ScanOptions, matcher: Matcher, page: Page) -> int:
    """Scan, print the results, and return the exit code. Raises SourceError or OSError."""
    with ScanTotals(matcher.watch, may_discard=options.is_stream) as totals:
        return asyncio.run(_Scan(matcher, options, page, totals).run())


class _Scan:
    """One scan of files or of standard input, and its output."""

    def __init__(self, matcher: Matcher, options: ScanOptions, page: Page, totals: ScanTotals) -> None:
        self._matcher = matcher
        self._options = options
        self._format = format_of(options.format, page)
        self._page = page
        self._totals = totals
        self._history = BalanceHistory()
        self._files: BlockFiles | None = None  # None for a stream
        self._bad = Problems()  # parts of a stream that are not blocks

    async def run(self) -> int:
        start = time.monotonic()
        complete = True
        with progress(self._page.console) as shown:
            ticker = asyncio.create_task(self._tick(shown))
            try:
                await self._print_matches(shown)
            except IncompleteScanError:
                complete = False
            finally:
                ticker.cancel()
            shown.update(self._matcher.report.bytes_scanned, self._matcher.report.bytes_total)
        seconds = time.monotonic() - start
        report = self._matcher.report
        problems = self._bad
        lacks_part = bool(problems or report.undo_problems)
        for problem in (*report.problems, *report.undo_problems):
            problems.add(str(problem))
        problems.complain()
        if not report.blocks:
            raise SourceError(
                "nothing could be read" if problems else f"found no blocks in {named(self._options.paths)}"
            )
        for block in report.stale:
            self._totals.discard(block)
        discarded = self._totals.settle()
        if self._options.totals is not None:
            self._totals.write(Path(self._options.totals))
        if self._options.plot is not None:
            from spvfilter.cli.scan.plot import draw

            await asyncio.to_thread(draw, self._history, Path(self._options.plot))
        if not self._options.quiet:
            if self._format == "table" or sys.stderr.isatty():
                self._totals.show(self._page if self._format == "table" else Page(sys.stderr))
            self._summarise(seconds, discarded)
        for heights in report.pruned:
            complain(f"the node pruned {in_words(heights)} during the scan: they are not in this scan")
        asked = self._options.from_height is not None or self._options.from_date is not None
        lacks_part = lacks_part or bool(report.pruned and asked and not self._options.allow_gaps)
        lacks = report_heights(self._options, report.heights)
        return 0 if complete and not lacks and not lacks_part else _INCOMPLETE

    async def _print_matches(self, shown: ProgressDisplay) -> None:
        show = self._shower()
        blocks: BlockFiles | Iterator[bytes]
        if self._options.is_stream:
            blocks = blocks_in(self._options.paths, self._matcher.watch.network, self._add_bad)
        else:
            blocks = self._files = BlockFiles(self._options.paths, undo=self._options.undo, span=self._options.span)
        try:
            async with aclosing(self._matcher.scan_batches(blocks)) as batches:
                async for batch in batches:
                    shown.clear()
                    show(batch)
                    if self._options.plot is not None:
                        self._history.add(batch.block)
        except FormatError as error:  # only a stream raises it; bad blocks in files are reported at the end
            raise SourceError(f"{named(self._options.paths)}: {error}") from None

    def _add_bad(self, name: str, why: str) -> None:
        self._bad.add(f"{name}: {why}", name)

    def _shower(self) -> Callable[[MatchBatch], None]:
        """Return a function that prints the matches of a block and counts them for the totals."""
        lines = batch_printer(self._page, self._format, has_accounts=bool(self._matcher.watch.accounts))
        # the summary of a stream gives the number of matches in its stale blocks
        if not wants_totals(self._options, self._format) and (self._options.quiet or not self._options.is_stream):
            return lines

        def show_and_count(batch: MatchBatch) -> None:
            lines(batch)
            self._totals.add(batch)

        return show_and_count

    async def _tick(self, shown: ProgressDisplay) -> None:
        while True:
            shown.update(self._matcher.report.bytes_scanned, self._matcher.report.bytes_total)
            await asyncio.sleep(_POLL_S)

    def _summarise(self, seconds: float, discarded: int) -> None:
        report = self._matcher.report
        found = f"{report.matches} match{'es' if report.matches != 1 else ''}" if report.matches else "nothing found"
        size, rate = megabytes(report.bytes_scanned), megabytes(report.bytes_scanned / max(seconds, 0.001))
        complain(f"{counted(report.blocks, 'block')}, {size} in {seconds:.1f} s ({rate}/s): {found}")
        if report.duplicates:
            complain(f"{counted(len(report.duplicates), 'duplicate block')}, not counted")
        if report.stale:
            given = f"; matches in them that had already been printed: {discarded}" if discarded else ""
            complain(
                f"{counted(len(report.stale), 'stale block')}, not on the branch with the most work, not counted{given}"
            )
            _list(report.stale)
        if report.unproven:
            complain(
                f"{counted(len(report.unproven), 'block')} with a header hash above its target, damaged or never mined:"
            )
            _list(report.unproven)
        if self._files is not None and (assumed := self._files.assumed):
            complain(assumed_network(assumed, self._matcher.watch.network))
        if report.by_undo and report.without_undo:
            complain(
                f"{counted(len(report.without_undo), 'block')} without a usable undo record, matched by outpoints:"
            )
            _list(report.without_undo)
        if report.unseen:
            complain(unseen_spends(report.unseen))
        report_silent(report.candidates, report.unjudged)
        reads_undo = not self._options.is_stream and self._options.undo != UndoMode.OFF
        warn_of_types(self._matcher.watch, len(report.without_undo) if reads_undo else report.blocks)


def _list(blocks: Sequence[bytes]) -> None:
    """Print the first few block hashes to standard error."""
    for block in blocks[:_HASHES_SHOWN]:
        complain(f"  {hash_to_hex(block)}")


def assumed_network(blocks: int, network: Network) -> str:
    """Return a message about blocks without a magic, because only a magic says which network a block belongs to."""
    return f"took {counted(blocks, 'block')} of unknown network to be from {network}; use --network to choose another"


def report_silent(candidates: int, unjudged: int) -> None:
    """Print how many transactions were searched for silent payments, and how many of them may hide a missed payment."""
    if candidates:
        complain(f"{counted(candidates, 'transaction')} searched for silent payments")
    if unjudged:
        complain(
            f"warning: {unjudged:,} of them may hide a silent payment, because the outputs that they spend are"
            " unknown. Put the rev*.dat files next to the blk*.dat files, or scan a node that serves spent outputs"
        )


def unseen_spends(blocks: int) -> str:
    """Return a warning about blocks in which a scan of files cannot find spends of older coins."""
    return (
        f"warning: {counted(blocks, 'block')} may spend coins from before these blocks, and such spends were not"
        " found. Start the scan at the genesis block, or put the rev*.dat files next to the blk*.dat files"
    )
