"""One run over the parts of a plan, for a scan or an export, which writes into a directory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import SourceError
from spvfilter.kernel import WatchTable
from spvfilter.scan.chainchange import ChainChange, chain_change, refuse_lost_blocks
from spvfilter.scan.engines import Engine, Threads, finished, summary_of
from spvfilter.scan.gaps import Heights, in_words, ranges_of
from spvfilter.scan.manifest import Manifest, run_inputs
from spvfilter.scan.partdirectory import PartDirectory
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.partrows import SUFFIX, write_rows
from spvfilter.scan.parts import PartTask
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import to_its_end


@public
@dataclass(slots=True)
class PartsReport:
    """The progress of a scan or export in parts. It is updated during the run."""

    parts_total: int = 0
    """Number of parts to scan."""
    parts_done: int = 0
    """Number of parts scanned so far. A later pass may scan a part again."""
    parts_kept: int = 0
    """Number of parts that this run reused from earlier runs. Known once the run is done."""
    bytes_total: int = 0
    """Total size of the blocks to process in all passes, in bytes."""
    bytes_done: int = 0
    """Total size of the blocks processed so far in all passes, in bytes."""
    passes: int = 1
    """Number of passes: two if spends must be found by outpoint, more if keychain windows have moved."""
    change: ChainChange | None = None
    """Difference between the chain of the last finished run and this plan, or None if no run has finished before."""
    summary: PartSummary = field(default_factory=PartSummary)
    """Summary of all parts. Complete once the run is done."""
    candidates: int = 0
    """Number of transactions that were searched for silent payments, which have eligible inputs and a taproot output.

    It is 0 if the watch list contains no sp() descriptor."""
    unjudged: int = 0
    """Number of candidates in which a payment may have been missed because the outputs that they spend are not
    known.
    """
    not_searched: tuple[Heights, ...] = ()
    """Ranges of pruned blocks that had to be searched again, because a window moved or outputs were found."""


class PartRun:
    """A run over the parts of a plan. It creates only the files of its result that no earlier run has created.

    Args:
        directory: The directory; it is created if it does not exist.
        plan: The plan of the blocks.
        check: True to verify proof of work, merkle root and witness commitment of each block.
        inputs: Other facts that the result depends on, keyed by their names in messages. The manifest stores them.
    """

    def __init__(self, directory: Path, plan: Plan, check: bool, inputs: dict[str, str]) -> None:
        self.parts: PartDirectory = PartDirectory(directory)
        """The directory and the files of its parts."""
        self.report: PartsReport = PartsReport()
        """The progress of the run."""
        self._plan = plan
        own = run_inputs(plan.network, str(plan.undo), plan.span)
        self._wanted = Manifest(
            {"network": own.pop("network")} | inputs | {"check of blocks": "on" if check else "off"} | own
        )
        self._begun: WatchTable | None = None  # the table that the engine searches with
        # Parts, keyed by `_key`. Fresh parts have no complete file from an earlier run, so this run scans them.
        self._fresh: set[tuple[bool, int]] = set()
        self._scanned: set[tuple[bool, int]] = set()

    @asynccontextmanager
    async def opened(
        self, engine: Engine | None, *, is_continued: bool = False
    ) -> AsyncIterator[tuple[Engine, Manifest]]:
        """Return a context manager that locks the directory.

        Its value is a pair: the engine and the directory's manifest.

        With `is_continued`, the plan is known to contain the blocks of the last run, so they are not compared.

        Raises ParameterError if the directory holds a different scan or export or other files, or if its parts were
        removed. Raises SourceError if a block of the last run is no longer in any file. Raises DirectoryInUseError if
        another run is using the directory, and OSError if a file cannot be read or written.
        """
        with self.parts.locked():
            chosen = engine or Threads()
            try:
                manifest = await to_its_end(self.parts.opened, self._wanted)
                if manifest.tip and not is_continued:
                    known = map(bytes.fromhex, (*manifest.lasts, manifest.tip))
                    await to_its_end(refuse_lost_blocks, self._plan, known)
                    self.report.change = chain_change(self._plan, manifest.blocks, bytes.fromhex(manifest.tip))
                self._begun = None
                self._fresh.clear()
                self._scanned.clear()
                yield chosen, manifest
            finally:
                if engine is None:
                    await chosen.aclose()

    async def begin(self) -> None:
        """Write the manifest into a new directory, before anything else is written.

        Raises the same errors as `opened`.
        """
        with self.parts.locked():
            await to_its_end(self.parts.opened, self._wanted)

    async def summaries(self, engine: Engine, tasks: Sequence[PartTask], table: WatchTable) -> list[PartSummary]:
        """Return the summaries of the tasks' files, after running the tasks whose files are missing.

        At most one more task than the engine's width runs at a time. Raises SourceError if a part cannot be scanned, or
        if another machine wrote files that are not visible here, and OSError if a file cannot be read or written.
        """
        kept = await to_its_end(lambda: list(map(_kept, tasks)))
        missing = [number for number, summary in enumerate(kept) if summary is None]
        self._fresh.update(_key(tasks[number]) for number in missing)
        self.report.parts_total = len(self._fresh)
        self.report.bytes_total += sum(tasks[number].part.size for number in missing)
        if missing and self._begun is not table:
            self._begun = table
            await engine.begin(table)
        numbers = iter(missing)

        async def work() -> None:
            for number in numbers:
                task = tasks[number]
                kept[number] = await engine.run(task)
                self._scanned.add(_key(task))
                self.report.parts_done = len(self._scanned)
                self.report.bytes_done += task.part.size
                if not await to_its_end(task.has_files):
                    await to_its_end(task.path.unlink)
                    raise SourceError(
                        f"part {task.part.number}: its files are not in {self.parts.path}: all workers must see that"
                        " directory under the same path"
                    )

        workers = [asyncio.create_task(work()) for _ in range(min(engine.width + 1, len(missing)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [summary for summary in kept if summary is not None]

    def count(self, tasks: Sequence[PartTask], summaries: Sequence[PartSummary]) -> None:
        """Set the summary and the number of kept parts in the report."""
        self.report.summary = PartSummary()
        for summary in summaries:
            self.report.summary.add(summary)
        self.report.parts_kept = sum(_key(task) not in self._fresh for task in tasks)

    def finish(self, manifest: Manifest, tasks: Sequence[PartTask]) -> None:
        """Record the result in the manifest, and remove files that are not part of it. Raises OSError."""
        self.record(manifest, tasks, [block.hex() for part in self._plan.parts for block in part.last_hashes()])
        self.parts.remove_unused()

    def record(self, manifest: Manifest, tasks: Sequence[PartTask], lasts: list[str], settled: int = 0) -> None:
        """Record the result in the manifest. Raises OSError.

        Args:
            manifest: The manifest, which is written.
            tasks: The tasks of all parts.
            lasts: Hash of the last block in each file of each part, as hex in wire order.
            settled: Number of parts, counted from the first, whose blocks have already been recorded.
        """
        manifest.finished = [task.path.name for task in tasks]
        manifest.blocks, manifest.tip = self._plan.blocks, self._plan.tip.hex()
        manifest.lasts = lasts
        for task in tasks[settled:]:
            rows = self.parts.file(task.key, SUFFIX)
            if not rows.exists():
                write_rows(rows, task.part.rows, task.part.previous)
        manifest.write(self.parts.path)


def _key(task: PartTask) -> tuple[bool, int]:
    """Return a key that identifies a task's part: whether the part is stale, and its number."""
    return task.part.is_stale, task.part.number


def pruned_heights(part: Part) -> tuple[Heights, ...]:
    """Return the heights of a part's blocks that a node has pruned."""
    return tuple(ranges_of(height for height in part.heights() if height is not None))


def _kept(task: PartTask) -> PartSummary | None:
    """Return the summary of a task whose files are complete, or None if it must run.

    Raises SourceError if it cannot run because its blocks have been pruned, and OSError if a file cannot be read.
    """
    if task.part.kept:
        known = summary_of(task.path, task.key)
        if known is None or not task.has_files():
            where = ", ".join(map(in_words, pruned_heights(task.part)))
            raise SourceError(
                f"{task.path}: missing or damaged, and its blocks have been pruned ({where}): scan into another"
                " directory"
            )
        return known
    summary = finished(task.path, task.key)
    if summary is not None and not task.has_files():
        task.path.unlink(missing_ok=True)
        return None
    return summary
