"""Export of blocks, transactions, inputs and outputs as Parquet, in parts that any engine writes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError, SourceError
from spvfilter.kernel import WatchTable
from spvfilter.kernel.blocktables import BLOCK_TABLES
from spvfilter.scan.chainchange import chain_change, refuse_lost_blocks
from spvfilter.scan.coinset import check_whole, coins_path, write_coins_table
from spvfilter.scan.directory import PartsReport
from spvfilter.scan.engines import Engine, Threads, finished
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.exporttables import is_complete, pyarrow
from spvfilter.scan.exporttask import ExportTask, export_key
from spvfilter.scan.manifest import Manifest
from spvfilter.scan.partdirectory import PartDirectory
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import to_its_end

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_FORM = "form of hashes"  # an input that only an export has
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
        ParameterError: `coins` is True, and the plan does not have all blocks from the genesis block on.
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
        self.report: PartsReport = PartsReport()
        """The progress of the export."""
        self._height = check_whole(plan) if coins else -1
        self._parts = PartDirectory(self.directory)
        self._wanted = Manifest(
            {"network": plan.network.name}
            | {f"table {table}": ", ".join(names) for table, names in self.columns.tables}
            | {
                _FORM: "text in hex" if self.columns.is_hex else "binary",
                "undo mode": str(plan.undo),
                "check of blocks": "on" if check else "off",
                "table coins": "on" if coins else "off",
                "range": plan.span,
            }
        )

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
        with self._parts.locked():
            chosen = engine or Threads()
            try:
                return await self._run(chosen)
            finally:
                if engine is None:
                    await chosen.aclose()

    async def _run(self, engine: Engine) -> dict[str, list[Path]]:
        manifest = await to_its_end(self._opened)
        if manifest.tip:
            known = map(bytes.fromhex, (*manifest.lasts, manifest.tip))
            await to_its_end(refuse_lost_blocks, self.plan, known)
            self.report.change = chain_change(self.plan, manifest.blocks, bytes.fromhex(manifest.tip))
        tasks = [self._task(part) for part in self.plan.parts]
        summaries = await self._pass(engine, tasks)
        for summary in summaries:
            self.report.summary.add(summary)
        if self.coins:
            await to_its_end(self._write_coins, manifest, tasks)
        return await to_its_end(self._finish, manifest, tasks)

    def _write_coins(self, manifest: Manifest, tasks: Sequence[ExportTask]) -> None:
        """Write the table of coins, unless it is there already. Raises SourceError if a block could not be read."""
        if self.report.summary.problems:
            raise SourceError(
                f"coins need all blocks, but some could not be read: {self.report.summary.problems[0]}. The other"
                " tables are complete as far as blocks could be read"
            )
        path = coins_path(self.directory.absolute(), self._height)
        inputs = sha256(b"".join(task.key for task in tasks)).hexdigest()
        if manifest.rendered.get(_COINS) == inputs and is_complete(path):
            return
        numbers = count()
        runs = [task.run_path for task in tasks if task.run_path is not None]
        write_coins_table(
            path,
            runs,
            lambda: self._parts.file(b"", f"merged-{next(numbers)}{_RUN}").absolute(),
            is_hex=self.columns.is_hex,
        )
        manifest.rendered[_COINS] = inputs

    def _opened(self) -> Manifest:
        """Return the manifest of the directory. Raises ParameterError if the directory holds anything else."""
        held = Manifest.read(self.directory)
        if held is not None and _FORM not in held.inputs:
            raise ParameterError(f"{self.directory} holds a scan, not an export: choose another directory")
        return self._parts.opened(self._wanted)

    def _task(self, part: Part) -> ExportTask:
        """Return the task for a part. Its key and paths change with everything that changes its tables."""
        key = export_key(part, self.columns, self.plan.undo, self.check, self.coins)
        return ExportTask(
            part,
            self._parts.file(key),
            key,
            self.plan.undo,
            self.check,
            None,
            self.directory.absolute(),
            self.columns,
            self._parts.file(key, _RUN).absolute() if self.coins else None,
        )

    async def _pass(self, engine: Engine, tasks: Sequence[ExportTask]) -> list[PartSummary]:
        """Return the summaries of the tasks, and run the tasks whose tables are missing."""
        kept = await to_its_end(lambda: [_finished(task) for task in tasks])
        missing = [number for number, summary in enumerate(kept) if summary is None]
        self.report.parts_kept = len(tasks) - len(missing)
        self.report.parts_total = len(missing)
        self.report.bytes_total = sum(tasks[number].part.size for number in missing)
        if missing:
            await engine.begin(WatchTable())
        numbers = iter(missing)

        async def work() -> None:
            for number in numbers:
                task = tasks[number]
                kept[number] = await engine.run(task)
                if not await to_its_end(task.has_tables):
                    await to_its_end(task.path.unlink)
                    raise SourceError(
                        f"part {task.part.number}: its tables are not in {self.directory}: all workers must see that"
                        " directory by the same path"
                    )
                self.report.parts_done += 1
                self.report.bytes_done += task.part.size

        workers = [asyncio.create_task(work()) for _ in range(min(engine.width + 1, len(missing)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [summary for summary in kept if summary is not None]

    def _finish(self, manifest: Manifest, tasks: Sequence[ExportTask]) -> dict[str, list[Path]]:
        """Record the finished parts in the manifest, and remove the files of other parts."""
        manifest.finished = [task.path.name for task in tasks]
        manifest.blocks, manifest.tip = self.plan.blocks, self.plan.tip.hex()
        manifest.lasts = [block.hex() for part in self.plan.parts for block in part.last_hashes()]
        manifest.write(self.directory)
        files = {table: [task.table_path(table) for task in tasks] for table, _ in self.columns.tables}
        if self.coins:
            files[_COINS] = [coins_path(self.directory.absolute(), self._height)]
        self._remove_others({path for paths in files.values() for path in paths})
        self._parts.remove_unused()
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


def _finished(task: ExportTask) -> PartSummary | None:
    """Return the summary of a part whose tables are complete; None if the part must be exported again.

    Raises OSError.
    """
    summary = finished(task.path, task.key)
    if summary is not None and not task.has_tables():
        task.path.unlink(missing_ok=True)
        return None
    return summary
