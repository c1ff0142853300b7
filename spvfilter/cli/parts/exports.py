"""The rounds of `spvfilter export`."""

from __future__ import annotations

import argparse

from spvfilter.cli.parts.rounds import Planned, Rounds
from spvfilter.scan.export import TableExport
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.sources import BlockSpan
from spvfilter.scan.tables import missing_bloom_filters


class Exports(Rounds):
    """The exports of one command into one directory.

    Args:
        args: The options of the command.
        columns: The tables and columns.
        span: The range of blocks.
    """

    def __init__(self, args: argparse.Namespace, columns: ExportColumns, span: BlockSpan) -> None:
        super().__init__(args, args.network, span, "written")
        self._columns = columns

    async def work(self, planned: Planned) -> PartsReport:
        args = self.args
        export = TableExport(args.out, planned.plan, self._columns, check=args.check, coins=args.coins)
        await self.shown(export.run(planned.engine), export.report)
        return export.report

    def describe(self, report: PartsReport) -> None:
        self.counts(report, f"tables in {self.args.out}")
        if report.summary.by_outpoint:
            self.tell(
                f"{report.summary.by_outpoint:,} block(s) without a usable undo record: values and types of their"
                " inputs, and their fees, are null"
            )
        if missing := missing_bloom_filters():
            self.tell(missing)
