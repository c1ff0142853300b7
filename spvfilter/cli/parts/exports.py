"""The rounds of `spvfilter export`."""

from __future__ import annotations

import argparse

from spvfilter.cli.parts.rounds import Planned, Rounds
from spvfilter.errors import counted
from spvfilter.scan.export import TableExport
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.sources import BlockSpan
from spvfilter.scan.tables import missing_bloom_filters

_FROM_UNDO = {  # Columns that are null without an undo record, by their table.
    "transactions": {"input_value", "fee", "fee_rate"},
    "inputs": {"type", "value", "address", "spent_script", "spent_script_hex", "spent_block_number"},
}


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
        export = TableExport(
            args.out,
            planned.plan,
            self._columns,
            check=args.check,
            coins=args.coins,
            balances=args.balances,
            credits_p2pk=args.credit_p2pk,
        )
        await self.shown(export.run(planned.engine), export.report)
        return export.report

    def describe(self, report: PartsReport) -> None:
        self.counts(report, f"tables in {self.args.out}")
        empty = [
            f"{table}.{name}"
            for table, names in self._columns.tables
            for name in names
            if name in _FROM_UNDO.get(table, ())
        ]
        if report.summary.by_outpoint and empty:
            self.tell(
                f"{counted(report.summary.by_outpoint, 'block')} without a usable undo record: their values of"
                f" {', '.join(empty)} are null"
            )
        if missing := missing_bloom_filters():
            self.tell(missing)
