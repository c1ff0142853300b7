"""`spvfilter scan --out DIR`: scan in parts, so that a later run can continue the scan, even if the chain has grown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.parts.rounds import Planned, Rounds
from spvfilter.cli.scan.files import report_silent, unseen_spends
from spvfilter.cli.scan.options import ScanOptions
from spvfilter.cli.scan.types import warn_of_types
from spvfilter.cli.term.matches import owner_of
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.errors import counted
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.directory import PartScan
from spvfilter.scan.outputs import TOTALS, OutputFormat, publish, scan_parts
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.tables import missing_bloom_filters
from spvfilter.scan.totals import read_totals
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


def run(options: ScanOptions, out: str, watch: WatchList) -> int:
    """Scan the sources, write the results into the directory `out`, and return the exit code.

    Raises SourceError or OSError.
    """
    return asyncio.run(_Scans(options, out, watch).run())


class _Scans(Rounds[ScanOptions]):
    """The scans of one command, which write into one directory."""

    def __init__(self, options: ScanOptions, out: str, watch: WatchList) -> None:
        super().__init__(options, "scanned")
        self._out = out
        self._watch = watch
        self._found = Path(out)  # the last scan's file of matches

    async def work(self, planned: Planned) -> PartsReport:
        options = self.options
        scan = PartScan(
            self._out,
            planned.plan,
            self._watch,
            check=options.check,
            transactions=options.with_transactions,
            binary_hashes=options.binary,
        )
        scanning = scan_parts(scan, options.format or OutputFormat.CSV, planned.engine)
        self._found = await self.shown(scanning, scan.report)
        if options.publish is not None:
            for url in await asyncio.to_thread(publish, self._found, options.publish):
                if not options.quiet:
                    complain(f"published {url}")
        if options.plot is not None:
            await asyncio.to_thread(_draw, scan, Path(options.plot))
        if options.remove_parts:
            await asyncio.to_thread(scan.remove_parts)
        return scan.report

    def describe(self, report: PartsReport) -> None:
        summary = report.summary
        if self.is_first:
            _show_totals(self._found.with_name(TOTALS), Page(sys.stderr))
        found = f"{summary.matches:,} match{'es' if summary.matches != 1 else ''}"
        self.counts(report, f"{found} in {self._found}")
        if summary.by_undo and summary.by_outpoint:
            self.tell(f"{counted(summary.by_outpoint, 'block')} without a usable undo record, matched by outpoints")
        if summary.unseen:
            self.tell(unseen_spends(summary.unseen))
        report_silent(report.candidates, report.unjudged)
        warn_of_types(self._watch, summary.by_outpoint)
        if self.options.format == OutputFormat.PARQUET and (missing := missing_bloom_filters()):
            self.tell(missing)
        if self.options.remove_parts:
            self.tell(f"the part files have been removed: later runs cannot add new blocks to {self._out}")


def _draw(scan: PartScan, path: Path) -> None:
    from spvfilter.cli.scan.plot import draw

    draw(BalanceHistory.of(block for part in scan.finished() for block in part.blocks()), path)


def _show_totals(path: Path, page: Page) -> None:
    """Print the largest totals as a table, if standard error is a terminal."""
    if page.is_terminal:
        show_totals(page, lambda: map(_total, read_totals(path)), f"{path} lists all")


def _total(row: dict[str, str]) -> Total:
    sums = (int(row[name]) for name in ("received", "spent", "unknown", "matches"))
    return Total(row["address"] or row["entry"], owner_of(row.get("account"), row["label"]), *sums)
