"""One run of an export into a directory, which may reuse the parts that the previous run wrote."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

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
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.partrows import SUFFIX
from spvfilter.scan.partrun import PartRun, PartsReport
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import stoppable, to_its_end, until

_COINS, _BALANCES = "coins", "balances"
_RUN = ".coins"  # suffix of a run of coins
_TABLE_FILE = re.compile(r"([0-9a-f]{32}|coins|balances)\.parquet|\.spvfilter-.*")


@dataclass(frozen=True, slots=True)
class ExportInputs:
    """The choices that decide what an export writes about the blocks of its plan.

    Raises ParameterError if they contradict each other.
    """

    columns: ExportColumns
    """The tables and columns."""
    check: bool = False
    """True to verify proof of work, merkle root and witness commitment of each block."""
    coins: bool = False
    """True to write the unspent outputs after the last block."""
    balances: bool = False
    """True to write the balances of all scripts after the last block."""
    credits_p2pk: bool = False
    """True to count the coins of a public key toward its P2PKH address in the balances."""

    def __post_init__(self) -> None:
        if self.credits_p2pk and not self.balances:
            raise ParameterError("credits_p2pk needs balances=True as well")

    @property
    def states(self) -> list[str]:
        """Names of the requested tables that are made from all parts: coins and balances."""
        return [name for name, is_wanted in ((_COINS, self.coins), (_BALANCES, self.balances)) if is_wanted]

    def named(self) -> dict[str, str]:
        """Return the choices, except `check`, in the form in which a manifest stores them."""
        inputs = {f"table {table}": ", ".join(names) for table, names in self.columns.tables}
        inputs |= {TABLE_HASHES: TEXT_HASHES if self.columns.is_hex else "binary"}
        inputs |= {"table coins": "on" if self.coins else "off"}
        if self.balances:
            inputs["table balances"] = "with P2PK as P2PKH" if self.credits_p2pk else "on"
        return inputs


class WrittenPart(NamedTuple):
    """A part of an export whose tables are in place."""

    task: ExportTask
    """The task that wrote the tables."""
    summary: PartSummary
    """The summary of the part."""
    tables: dict[str, Path]
    """For each table name, the path of the part's file."""
    lasts: list[str]
    """Hash of the last block in each file of the part, as hex in wire order."""

    def files(self) -> Iterator[Path]:
        """Yield the paths of all files of the part."""
        yield self.task.path
        yield self.task.path.with_suffix(SUFFIX)
        yield from self.tables.values()


class ExportRun:
    """One run of an export, which writes the tables of a plan's parts into a directory.

    Raises SourceError if coins or balances are requested, but the plan does not contain all blocks since the genesis
    block.
    """

    def __init__(self, directory: Path, plan: Plan, inputs: ExportInputs) -> None:
        self._directory, self._plan, self._inputs = directory, plan, inputs
        self._columns, self._states = inputs.columns, inputs.states
        self._height = check_whole(plan) if self._states else -1
        self._run = PartRun(directory, plan, inputs.check, inputs.named())
        self._parts = self._run.parts
        self.report: PartsReport = self._run.report
        """The progress of the run."""
        self.written: list[WrittenPart] = []
        """The parts in chain order, once they are written."""

    async def write(
        self, engine: Engine | None, *, is_last: bool, written: Sequence[WrittenPart] = (), settled: int = 0
    ) -> dict[str, list[Path]]:
        """Write the parts as `TableExport.run` does. Unless this is the last run, coins and balances stay as they are.

        Args:
            engine: The engine; None for one thread.
            is_last: True if no other run with more blocks follows immediately.
            written: The parts that the previous run wrote, if nothing else has changed the directory since. Then only
                the parts that differ need work; otherwise all files in the directory are checked.
            settled: Number of parts at the start of `written` that are also the first parts of the plan. They stay as
                they are.

        Raises the errors of `run`.
        """
        await asyncio.to_thread(pyarrow)
        states = self._states if is_last else []
        if self._states:  # they are made from all parts
            written, settled = (), 0
        kept = written[:settled]
        async with self._run.opened(engine, is_continued=bool(written)) as (chosen, manifest):
            tasks = [self._task(part) for part in self._plan.parts[settled:]]
            summaries = await self._run.summaries(chosen, tasks, WatchTable())
            self._run.count([*(part.task for part in kept), *tasks], [*(part.summary for part in kept), *summaries])
            staged = {name: await stoppable(self._write_state, manifest, tasks, name) for name in states}
            return await to_its_end(self._finish, manifest, tasks, summaries, staged, written, settled)

    def _write_state(
        self, is_stopped: Callable[[], bool], manifest: Manifest, tasks: Sequence[ExportTask], name: str
    ) -> Path:
        """Write the table of coins or balances, unless it exists already, and return the path of the new file.

        Raises SourceError if a block could not be read, and WorkStoppedError once `is_stopped` returns True.
        """
        if self.report.summary.problems:
            raise SourceError(
                f"{name} need all blocks, but some could not be read: {self.report.summary.problems[0]}. The tables in"
                f" {self._directory} stay as they are: repair the file, or export without {name} into another directory"
            )
        inputs = sha256(b"with addresses\0" + b"".join(task.key for task in tasks))
        before, manifest.rendered[name] = manifest.rendered.get(name), inputs.hexdigest()
        staged = self._parts.file(inputs.digest(), f".{name}.parquet").absolute()
        if is_complete(staged) or (
            before == inputs.hexdigest() and is_complete(state_path(self._directory.absolute(), name, self._height))
        ):
            return staged
        numbers = until(count(), is_stopped)
        runs = [task.run_path for task in tasks if task.run_path is not None]

        def temporary() -> Path:
            return self._parts.file(b"", f"merged-{next(numbers)}{_RUN}").absolute()

        network = self._plan.network
        if name == _COINS:
            write_coins_table(staged, runs, temporary, is_stopped, network=network, is_hex=self._columns.is_hex)
        else:
            write_balances_table(
                staged, runs, temporary, is_stopped, network=network, credits_p2pk=self._inputs.credits_p2pk
            )
        return staged

    def _task(self, part: Part) -> ExportTask:
        """Return the task for a part. Everything that affects the part's tables also affects its key and paths."""
        key = export_key(part, self._columns, self._plan.undo, self._inputs.check, bool(self._states))
        return ExportTask(
            part,
            self._parts.file(key).absolute(),
            key,
            self._plan.undo,
            self._inputs.check,
            None,
            self._directory.absolute(),
            self._columns,
            self._parts.file(key, _RUN).absolute() if self._states else None,
        )

    def _finish(
        self,
        manifest: Manifest,
        tasks: Sequence[ExportTask],
        summaries: Sequence[PartSummary],
        states: dict[str, Path],
        written: Sequence[WrittenPart],
        settled: int,
    ) -> dict[str, list[Path]]:
        """Move the new files to their places, record the finished parts, and remove the files of other parts.

        Until this call, readers see the tables of the earlier export.
        """
        parts = [*written[:settled], *map(self._placed, tasks, summaries)]
        files = {table: [part.tables[table] for part in parts] for table, _ in self._columns.tables}
        for name, staged in states.items():
            files[name] = [place(staged, state_path(self._directory.absolute(), name, self._height))]
        # first, so that the manifest never names a part without tables
        lasts = [block for part in parts for block in part.lasts]
        self._run.record(manifest, [part.task for part in parts], lasts, settled)
        if written:
            _remove_replaced(written[settled:], parts[settled:])
        else:
            self._parts.remove_unused()
            later = [name for name in self._states if name not in states]
            self._remove_others({path for paths in files.values() for path in paths}, later)
        self.written = parts
        return files

    def _placed(self, task: ExportTask, summary: PartSummary) -> WrittenPart:
        """Move the new tables of a part to their places, and return the part."""
        tables = {table: place(task.staged_path(table), task.table_path(table)) for table, _ in self._columns.tables}
        return WrittenPart(task, summary, tables, [block.hex() for block in task.part.last_hashes()])

    def _remove_others(self, kept: set[Path], later: Sequence[str]) -> None:
        """Remove the tables of parts that no longer belong to the export, and the temporary files of killed processes.

        Other files in the directory stay. The tables `later` also stay, because a later run writes them.
        """
        root, tables = self._directory.absolute(), {*BLOCK_TABLES, _COINS, _BALANCES}.difference(later)
        for folder in [folder for table in sorted(tables) for folder in (root / table).glob("height*=*")]:
            for path in folder.iterdir():
                if path not in kept and _TABLE_FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()


def _remove_replaced(before: Iterable[WrittenPart], after: Iterable[WrittenPart]) -> None:
    """Remove the files of the parts `before` that none of the parts `after` needs, and folders that become empty."""
    kept = {path for part in after for path in part.files()}
    for part in before:
        for path in part.files():
            if path not in kept:
                path.unlink(missing_ok=True)
        for path in part.tables.values():
            with suppress(OSError):  # other parts have tables in it, or it is gone already
                path.parent.rmdir()


def place(staged: Path, path: Path) -> Path:
    """Move a new file to `path`, and return `path`. If there is no new file, an earlier run's file stays there."""
    if staged.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        staged.replace(path)
    return path
