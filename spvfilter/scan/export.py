"""Export of blocks, transactions, inputs and outputs as Parquet, in parts that any engine writes."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import ParameterError, SourceError
from spvfilter.kernel import WatchTable
from spvfilter.kernel.blocktables import BLOCK_TABLES
from spvfilter.scan.balanceset import write_balances_table
from spvfilter.scan.coinset import check_whole, state_path, write_coins_table
from spvfilter.scan.engines import Engine
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.exporttables import is_complete, pyarrow
from spvfilter.scan.exporttask import ExportTask, export_key
from spvfilter.scan.manifest import TABLE_HASHES, TEXT_HASHES, Manifest
from spvfilter.scan.partrun import PartRun, PartsReport
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import stoppable, to_its_end, until

_COINS, _BALANCES = "coins", "balances"
_RUN = ".coins"  # suffix of a run of coins
_TABLE_FILE = re.compile(r"([0-9a-f]{32}|coins|balances)\.parquet|\.spvfilter-.*")


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
        coins: True to also write the table `coins`: the unspent outputs after the last block.
        balances: True to also write the table `balances`: the value and the number of the coins of each script.
        credits_p2pk: True to count the coins of a public key as those of its P2PKH address in `balances`.

    Raises:
        SourceError: Coins or balances are wanted, and the plan does not have all blocks from the genesis block on.
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
        """True if the coins of a public key count as those of its P2PKH address in the balances."""
        self._states = [name for name, is_wanted in ((_COINS, coins), (_BALANCES, balances)) if is_wanted]
        self._height = check_whole(plan) if self._states else -1
        inputs = export_inputs(self.columns, coins=coins, balances=balances, credits_p2pk=credits_p2pk)
        self._run = PartRun(self.directory, plan, check, inputs)
        self._parts = self._run.parts
        self.report: PartsReport = self._run.report
        """The progress of the export."""

    async def run(self, engine: Engine | None = None) -> dict[str, list[Path]]:
        """Write the parts that are not written yet, by default in one thread.

        Returns:
            The paths of the files of each table in chain order, by the name of the table.

        Raises:
            ParameterError: The directory holds another export or other files, or pyarrow is not installed.
            DirectoryInUseError: Another export uses the directory.
            SourceError: A source of blocks cannot be used, a block that was exported before is in no file now, or
                another machine wrote a table that is not visible here.
            OSError: A file cannot be read or written.
        """
        return await self.write(engine, is_last=True)

    async def write(self, engine: Engine | None, *, is_last: bool) -> dict[str, list[Path]]:
        """Write the parts as `run` does. Unless the run is the last one, coins and balances stay as they are.

        Raises the errors of `run`.
        """
        await asyncio.to_thread(pyarrow)
        states = self._states if is_last else []
        async with self._run.opened(engine) as (chosen, manifest):
            tasks = [self._task(part) for part in self.plan.parts]
            self._run.count(tasks, await self._run.summaries(chosen, tasks, WatchTable()))
            staged = {name: await stoppable(self._write_state, manifest, tasks, name) for name in states}
            return await to_its_end(self._finish, manifest, tasks, staged)

    def _write_state(
        self, is_stopped: Callable[[], bool], manifest: Manifest, tasks: Sequence[ExportTask], name: str
    ) -> Path:
        """Write the table of coins or balances, unless it is there already, and return the path of the new file.

        Raises SourceError if a block could not be read, and WorkStoppedError once `is_stopped` returns True.
        """
        if self.report.summary.problems:
            raise SourceError(
                f"{name} need all blocks, but some could not be read: {self.report.summary.problems[0]}. The tables in"
                f" {self.directory} stay as they are: repair the file, or export without {name} into another directory"
            )
        inputs = sha256(b"with addresses\0" + b"".join(task.key for task in tasks))
        before, manifest.rendered[name] = manifest.rendered.get(name), inputs.hexdigest()
        staged = self._parts.file(inputs.digest(), f".{name}.parquet").absolute()
        if is_complete(staged) or (
            before == inputs.hexdigest() and is_complete(state_path(self.directory.absolute(), name, self._height))
        ):
            return staged
        numbers = until(count(), is_stopped)
        runs = [task.run_path for task in tasks if task.run_path is not None]

        def temporary() -> Path:
            return self._parts.file(b"", f"merged-{next(numbers)}{_RUN}").absolute()

        network = self.plan.network
        if name == _COINS:
            write_coins_table(staged, runs, temporary, is_stopped, network=network, is_hex=self.columns.is_hex)
        else:
            write_balances_table(staged, runs, temporary, is_stopped, network=network, credits_p2pk=self.credits_p2pk)
        return staged

    def _task(self, part: Part) -> ExportTask:
        """Return the task for a part. Its key and paths change with everything that changes its tables."""
        key = export_key(part, self.columns, self.plan.undo, self.check, bool(self._states))
        return ExportTask(
            part,
            self._parts.file(key).absolute(),
            key,
            self.plan.undo,
            self.check,
            None,
            self.directory.absolute(),
            self.columns,
            self._parts.file(key, _RUN).absolute() if self._states else None,
        )

    def _finish(
        self, manifest: Manifest, tasks: Sequence[ExportTask], states: dict[str, Path]
    ) -> dict[str, list[Path]]:
        """Move the new files to their places, record the finished parts, and remove the files of other parts.

        Until this call, readers see the tables of the earlier export.
        """
        files: dict[str, list[Path]] = {}
        for table, _ in self.columns.tables:
            files[table] = [_placed(task.staged_path(table), task.table_path(table)) for task in tasks]
        for name, staged in states.items():
            files[name] = [_placed(staged, state_path(self.directory.absolute(), name, self._height))]
        self._run.finish(manifest, tasks)  # first, so that the manifest never names a part without tables
        later = [name for name in self._states if name not in states]
        self._remove_others({path for paths in files.values() for path in paths}, later)
        return files

    def _remove_others(self, kept: set[Path], later: Sequence[str]) -> None:
        """Remove the tables of parts that no longer belong to the export, and the temporary files of killed processes.

        Other files in the directory stay. A later run writes the tables `later`, so they stay too.
        """
        root, tables = self.directory.absolute(), {*BLOCK_TABLES, _COINS, _BALANCES}.difference(later)
        for folder in [folder for table in sorted(tables) for folder in (root / table).glob("height*=*")]:
            for path in folder.iterdir():
                if path not in kept and _TABLE_FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()


def export_inputs(columns: ExportColumns, *, coins: bool, balances: bool, credits_p2pk: bool) -> dict[str, str]:
    """Return the inputs of an export that its manifest stores, except those of its plan. Raises ParameterError."""
    if credits_p2pk and not balances:
        raise ParameterError("credits_p2pk is for balances: also set balances=True")
    inputs = {f"table {table}": ", ".join(names) for table, names in columns.tables}
    inputs |= {TABLE_HASHES: TEXT_HASHES if columns.is_hex else "binary", "table coins": "on" if coins else "off"}
    if balances:
        inputs["table balances"] = "with P2PK as P2PKH" if credits_p2pk else "on"
    return inputs


def _placed(staged: Path, path: Path) -> Path:
    """Move a new file to `path`, and return `path`. Without a new file, the file of an earlier run stays there."""
    if staged.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(path)
    return path
