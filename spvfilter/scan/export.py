"""Export of blocks, transactions, inputs and outputs as Parquet, in parts that any engine writes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import SourceError
from spvfilter.kernel import WatchTable
from spvfilter.kernel.blocktables import BLOCK_TABLES
from spvfilter.scan.coinset import check_whole, coins_path, write_coins_table
from spvfilter.scan.engines import Engine
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.exporttables import is_complete, pyarrow
from spvfilter.scan.exporttask import ExportTask, export_key
from spvfilter.scan.manifest import TABLE_HASHES, TEXT_HASHES, Manifest
from spvfilter.scan.partrun import PartRun, PartsReport
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import stoppable, to_its_end, until

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_COINS = "coins"
_RUN = ".coins"  # suffix of a run of coins
_TABLE_FILE = re.compile(r"([0-9a-f]{32}|coins)\.parquet|\.spvfilter-.*")


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
        coins: True to write also the table `coins`: the unspent outputs after the last block.

    Raises:
        SourceError: `coins` is True, and the plan does not have all blocks from the genesis block on.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        plan: Plan,
        columns: ExportColumns | None = None,
        *,
        check: bool = False,
        coins: bool = False,
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
        self._height = check_whole(plan) if coins else -1
        inputs = {f"table {table}": ", ".join(names) for table, names in self.columns.tables}
        inputs |= {
            TABLE_HASHES: TEXT_HASHES if self.columns.is_hex else "binary",
            "table coins": "on" if coins else "off",
        }
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
        await asyncio.to_thread(pyarrow)
        async with self._run.opened(engine) as (chosen, manifest):
            tasks = [self._task(part) for part in self.plan.parts]
            self._run.count(tasks, await self._run.summaries(chosen, tasks, WatchTable()))
            coins = [await stoppable(self._write_coins, manifest, tasks)] if self.coins else []
            return await to_its_end(self._finish, manifest, tasks, coins)

    def _write_coins(self, is_stopped: Callable[[], bool], manifest: Manifest, tasks: Sequence[ExportTask]) -> Path:
        """Write the table of coins, unless it is there already, and return the path of the new file.

        Raises SourceError if a block could not be read, and StoppedError once `is_stopped` returns True.
        """
        if self.report.summary.problems:
            raise SourceError(
                f"coins need all blocks, but some could not be read: {self.report.summary.problems[0]}. The tables in"
                f" {self.directory} stay as they are: repair the file, or export without coins into another directory"
            )
        inputs = sha256(b"".join(task.key for task in tasks))
        before, manifest.rendered[_COINS] = manifest.rendered.get(_COINS), inputs.hexdigest()
        staged = self._parts.file(inputs.digest(), f".{_COINS}.parquet").absolute()
        if is_complete(staged) or (
            before == inputs.hexdigest() and is_complete(coins_path(self.directory.absolute(), self._height))
        ):
            return staged
        numbers = until(count(), is_stopped)
        runs = [task.run_path for task in tasks if task.run_path is not None]
        write_coins_table(
            staged,
            runs,
            lambda: self._parts.file(b"", f"merged-{next(numbers)}{_RUN}").absolute(),
            is_stopped,
            is_hex=self.columns.is_hex,
        )
        return staged

    def _task(self, part: Part) -> ExportTask:
        """Return the task for a part. Its key and paths change with everything that changes its tables."""
        key = export_key(part, self.columns, self.plan.undo, self.check, self.coins)
        return ExportTask(
            part,
            self._parts.file(key).absolute(),
            key,
            self.plan.undo,
            self.check,
            None,
            self.directory.absolute(),
            self.columns,
            self._parts.file(key, _RUN).absolute() if self.coins else None,
        )

    def _finish(self, manifest: Manifest, tasks: Sequence[ExportTask], coins: list[Path]) -> dict[str, list[Path]]:
        """Move the new files to their places, remove the files of other parts, and record the finished parts.

        Until this call, readers see the tables of the earlier export.
        """
        files: dict[str, list[Path]] = {}
        for table, _ in self.columns.tables:
            files[table] = [_placed(task.staged_path(table), task.table_path(table)) for task in tasks]
        if coins:
            path = coins_path(self.directory.absolute(), self._height)
            files[_COINS] = [_placed(staged, path) for staged in coins]
        self._remove_others({path for paths in files.values() for path in paths})
        self._run.finish(manifest, tasks)
        return files

    def _remove_others(self, kept: set[Path]) -> None:
        """Remove the tables of parts that no longer belong to the export, and the temporary files of killed processes.

        Other files in the directory stay.
        """
        root = self.directory.absolute()
        for folder in [folder for table in (*BLOCK_TABLES, _COINS) for folder in (root / table).glob("height*=*")]:
            for path in folder.iterdir():
                if path not in kept and _TABLE_FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()


def _placed(staged: Path, path: Path) -> Path:
    """Move a new file to `path`, and return `path`. Without a new file, the file of an earlier run stays there."""
    if staged.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(path)
    return path
