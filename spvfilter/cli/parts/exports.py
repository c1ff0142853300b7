"""The rounds of `spvfilter export`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from spvfilter.cli.blockoptions import BlockOptions
from spvfilter.cli.parts.rounds import Planned, Rounds
from spvfilter.compression import is_compressed
from spvfilter.errors import ParameterError, counted
from spvfilter.scan.export import TableExport
from spvfilter.scan.exportcolumns import DEFAULT_COLUMNS, ExportColumns
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.remote import is_url
from spvfilter.scan.tables import missing_bloom_filters

_FROM_UNDO = {  # The columns of each table that are null without an undo record.
    "transactions": {"input_value", "fee", "fee_rate"},
    "inputs": {"type", "value", "address", "spent_script", "spent_script_hex", "spent_block_number"},
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions(BlockOptions):
    """The options of an export. Each field holds the option of the same name.

    Raises ParameterError if the options contradict each other or the PATHs.
    """

    out: str
    columns: list[str]
    hex: bool
    coins: bool
    balances: bool
    credit_p2pk: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        for path in self.paths:
            if path == "-" or is_compressed(path):
                raise ParameterError(
                    f"{path}: export needs files that it can read again: save or decompress the blocks"
                )
        if is_url(self.out):
            raise ParameterError("--out takes a local path, not a URL: copy the tables after the export")
        if self.credit_p2pk and not self.balances:
            raise ParameterError("--credit-p2pk is for --balances: add --balances, or omit --credit-p2pk")
        assert self.chosen_columns  # its constructor checks the names

    @property
    def without_paths(self) -> str:
        return "no PATH of blocks given (see 'spvfilter export --help')"

    @cached_property
    def chosen_columns(self) -> ExportColumns:
        """The tables and columns."""
        return ExportColumns.of(chosen_columns(self.columns), is_hex=self.hex)


class Exports(Rounds[ExportOptions]):
    """The exports of one command into one directory.

    Args:
        options: The options of the command.
    """

    def __init__(self, options: ExportOptions) -> None:
        super().__init__(options, "written")
        self._columns = options.chosen_columns

    async def work(self, planned: Planned) -> PartsReport:
        options = self.options
        export = TableExport(
            options.out,
            planned.plan,
            self._columns,
            check=options.check,
            coins=options.coins,
            balances=options.balances,
            credits_p2pk=options.credit_p2pk,
        )
        await self.shown(export.run(planned.engine), export.report)
        return export.report

    def describe(self, report: PartsReport) -> None:
        self.counts(report, f"tables in {self.options.out}")
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


def chosen_columns(given: Iterable[str]) -> dict[str, list[str]] | None:
    """Return the column names of each named table, or None for the default tables. Raises ParameterError."""
    chosen: dict[str, list[str]] = {}
    for text in given:
        table, colon, names = text.partition(":")
        if table in chosen:
            raise ParameterError(f"--columns lists the table {table[:40]} twice: list all its columns in one place")
        default = list(DEFAULT_COLUMNS.get(table, ()))
        if not colon:
            chosen[table] = default or [""]
        elif names.startswith("+"):
            chosen[table] = default + [name for name in names[1:].split(",") if name not in default]
        else:
            chosen[table] = names.split(",")
    return chosen or None
