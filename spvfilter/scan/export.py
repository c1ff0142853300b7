"""Export blocks, transactions, inputs and outputs as Parquet, in parts that any engine can write."""

from __future__ import annotations

import os
from pathlib import Path

from spvfilter._public import public
from spvfilter.scan.engines import Engine
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.exportrun import ExportInputs, ExportRun
from spvfilter.scan.partrun import PartsReport
from spvfilter.scan.plan import Plan


@public
class TableExport:
    """An export of a plan's blocks as partitioned Parquet: a folder for each table and range of heights.

    A later export into the same directory writes only the parts that are new or have changed. The result does not
    depend on the engine, or on how often the export was stopped.

    Args:
        directory: The directory for the tables; it is created if it does not exist.
        plan: The plan of the blocks to export.
        columns: The tables and columns; by default the default columns of all tables.
        check: True to verify proof of work, merkle root and witness commitment of each block.
        coins: True to also write the `coins` table: the unspent outputs after the last block.
        balances: True to also write the `balances` table: the total value and the number of each script's coins.
        credits_p2pk: True to count the coins of a public key toward its P2PKH address in `balances`.

    Raises:
        SourceError: Coins or balances are requested, but the plan does not contain all blocks since the genesis block.
        ParameterError: `credits_p2pk` is True without `balances`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        plan: Plan,
        columns: ExportColumns | None = None,
        *,
        check: bool = False,
        coins: bool = False,
        balances: bool = False,
        credits_p2pk: bool = False,
    ) -> None:
        self.directory: Path = Path(directory)
        """The directory to which the export writes the tables."""
        self.plan = plan
        """The plan of the blocks to export."""
        self.columns: ExportColumns = columns or ExportColumns.of()
        """The tables and columns that the export writes."""
        self.check = check
        """True if the export verifies proof of work, merkle root and witness commitment of each block."""
        self.coins = coins
        """True if the export writes the unspent outputs after the last block."""
        self.balances = balances
        """True if the export writes the balances of all scripts after the last block."""
        self.credits_p2pk = credits_p2pk
        """True if the coins of a public key count toward its P2PKH address in the balances."""
        inputs = ExportInputs(self.columns, check=check, coins=coins, balances=balances, credits_p2pk=credits_p2pk)
        self._run = ExportRun(self.directory, plan, inputs)
        self.report: PartsReport = self._run.report
        """The progress of the export."""

    async def run(self, engine: Engine | None = None) -> dict[str, list[Path]]:
        """Write the parts that have not been written yet, by default in one thread.

        Returns:
            For each table name, the paths of its files in chain order.

        Raises:
            ParameterError: The directory holds a different export or other files, or pyarrow is not installed.
            DirectoryInUseError: Another export is using the directory.
            SourceError: A source of blocks cannot be used, a block that was exported before is no longer in any file,
                or another machine wrote a table that is not visible here.
            OSError: A file cannot be read or written.
        """
        return await self._run.write(engine, is_last=True)
