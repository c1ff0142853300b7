"""`spvfilter scan --out DIR`: scan in parts, so that a later run continues the scan, also on a chain that has grown."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.parts.rounds import Planned, Rounds
from spvfilter.cli.scan.files import report_silent, unseen_spends
from spvfilter.cli.scan.types import warn_of_types
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.errors import ParameterError, counted
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.directory import PartScan
from spvfilter.scan.outputs import TOTALS, OutputFormat, publish, scan_parts
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.remote import is_url
from spvfilter.scan.sources import BlockSpan
from spvfilter.scan.tables import missing_bloom_filters
from spvfilter.scan.totals import read_totals
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


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
    return asyncio.run(_Scans(args, watch, span).run())


class _Scans(Rounds):
    """The scans of one command into one directory."""

    def __init__(self, args: argparse.Namespace, watch: WatchList, span: BlockSpan) -> None:
        super().__init__(args, watch.network, span, "scanned")
        self._watch = watch
        self._found = Path(args.out)  # the file of matches of the last scan

    async def work(self, planned: Planned) -> PartsReport:
        args = self.args
        scan = PartScan(
            args.out,
            planned.plan,
            self._watch,
            check=args.check,
            transactions=args.with_transactions,
            binary_hashes=args.binary,
        )
        scanning = scan_parts(scan, args.format or OutputFormat.CSV, planned.engine)
        self._found = await self.shown(scanning, scan.report)
        if args.publish is not None:
            for url in await asyncio.to_thread(publish, self._found, args.publish):
                if not args.quiet:
                    complain(f"published {url}")
        if args.plot is not None:
            await asyncio.to_thread(_draw, scan, Path(args.plot))
        if args.remove_parts:
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
        if self.args.format == OutputFormat.PARQUET and (missing := missing_bloom_filters()):
            self.tell(missing)
        if self.args.remove_parts:
            self.tell(f"the files of parts are removed: later runs cannot add new blocks to {self.args.out}")


def _draw(scan: PartScan, path: Path) -> None:
    from spvfilter.cli.scan.plot import draw

    draw(BalanceHistory.of(block for part in scan.finished() for block in part.blocks()), path)


def _show_totals(path: Path, page: Page) -> None:
    """Print the largest totals as a table, if standard error is a terminal."""
    if page.is_terminal:
        show_totals(page, lambda: map(_total, read_totals(path)), f"{path} has all")


def _total(row: dict[str, str]) -> Total:
    sums = (int(row[name]) for name in ("received", "spent", "unknown", "matches"))
    return Total(row["address"] or row["entry"], row["label"], *sums)
