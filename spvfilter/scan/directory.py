"""A scan that writes one file for each part into a directory. Any engine can scan the parts.

Every run computes its result from the beginning, and scans only the parts whose files the directory does not have. A
scan that was stopped, a chain that grew and a reorganization therefore need no special treatment.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError
from spvfilter.kernel import WatchTable, unpack_hits
from spvfilter.scan.chainchange import ChainChange, chain_change, refuse_lost_blocks
from spvfilter.scan.coinfile import MOST_COINS, write_coins
from spvfilter.scan.engines import Engine, Threads, finished
from spvfilter.scan.manifest import PARQUET_HASHES, TEXT_HASHES, WATCH_LIST, Manifest, table_digest
from spvfilter.scan.matchedtxs import (
    TransactionRow,
    TransactionsTask,
    read_rows,
    row_of,
    transactions_key,
    write_transactions,
)
from spvfilter.scan.parquetrows import ParquetForm
from spvfilter.scan.partdirectory import PartDirectory
from spvfilter.scan.partfile import PartFile, PartSummary
from spvfilter.scan.parts import PartTask, task_key
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import to_its_end
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_NO_COINS = b""  # the key of a first pass, which knows no outpoints


@public
@dataclass(slots=True)
class PartsReport:
    """The progress of a scan in parts. It is updated while the scan runs."""

    parts_total: int = 0
    """Number of parts to scan. A part counts once in each pass that scans it."""
    parts_done: int = 0
    """Number of parts scanned so far. A part counts once in each pass that scans it."""
    parts_kept: int = 0
    """Number of parts that earlier runs have scanned, so that this run did not; known when the scan is done."""
    bytes_total: int = 0
    """Total size of the blocks to scan in all passes, in bytes."""
    bytes_done: int = 0
    """Total size of the blocks scanned so far in all passes, in bytes."""
    passes: int = 1
    """Number of passes: two if spends must be found by outpoint, more if windows of keychains have moved."""
    change: ChainChange | None = None
    """Difference between the chain of the last finished run and this plan; None if no run has finished before."""
    summary: PartSummary = field(default_factory=PartSummary)
    """Summary of all parts; complete when the scan is done."""


class _Done(NamedTuple):
    """The tasks and summaries that make up the result after all passes."""

    tasks: list[PartTask]
    """The tasks whose files make up the result, in chain order."""
    summaries: list[PartSummary]
    """The summary of each task's file."""


@public
class PartScan:
    """A scan of a plan's parts. It writes a manifest and a file for each part into a directory.

    A later scan into the same directory scans only the parts that are new or have changed. The result does not depend
    on the number of parts or workers, or on how often the scan was stopped. The scan uses a copy of the watch list,
    whose keychain windows move.

    - If blocks have no undo record, there are two passes: the first finds outputs, the second finds their spends.
    - If a used script moves the window of a keychain, all parts are scanned again with the new scripts.

    Args:
        directory: The directory for the results; it is created if it does not exist.
        plan: The plan of the blocks to scan.
        watch: The watch list whose matches are found.
        check: True to verify proof of work, merkle root and witness commitment of each block.
        most_coins: Largest number of outpoints that a second pass keeps in memory, about 150 bytes each.
        transactions: True to keep every input and output of the matched transactions, for `transactions`. The engine
            must see the directory: threads or processes of this machine.
        binary_hashes: True to write the hashes in Parquet files as 32 bytes in display order, not as text in hex.

    Raises:
        ParameterError: The watch list is empty, or its network is not that of the plan.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        plan: Plan,
        watch: WatchList,
        *,
        check: bool = False,
        most_coins: int = MOST_COINS,
        transactions: bool = False,
        binary_hashes: bool = False,
    ) -> None:
        if not len(watch):
            raise ParameterError("nothing to watch for: the watch list is empty")
        if watch.network != plan.network:
            raise ParameterError(f"the watch list is of {watch.network}, and the blocks are of {plan.network}")
        self.directory: Path = Path(directory)
        """The directory to which the scan writes its results."""
        self.plan = plan
        """The plan of the blocks to scan."""
        self.check = check
        """True if the scan verifies proof of work, merkle root and witness commitment of each block."""
        self.report: PartsReport = PartsReport()
        """The progress of the scan."""
        self.has_transactions = transactions
        """True if the scan keeps the inputs and outputs of matched transactions."""
        self.has_binary_hashes = binary_hashes
        """True if hashes in Parquet files are 32 bytes; False if they are text in hex."""
        self._rows: list[Path] = []  # files with the inputs and outputs of matched transactions, in chain order
        self._parts = PartDirectory(self.directory)
        self._given = watch.copy()
        self._watch = self._given
        self._most_coins = most_coins
        self._begun: WatchTable | None = None  # the table for which the engine scans
        self._fresh: set[int] = set()  # numbers of parts that this run scans
        self._digest = table_digest(watch.table)
        self._wanted = Manifest(
            {
                "network": plan.network.name,
                WATCH_LIST: self._digest.hex(),
                "undo mode": str(plan.undo),
                "check of blocks": "on" if check else "off",
                "range": plan.span,
                PARQUET_HASHES: "binary" if binary_hashes else TEXT_HASHES,
            }
        )

    @property
    def watch(self) -> WatchList:
        """The copy of the watch list that this scan uses. The packed hits refer to its entries."""
        return self._watch

    @property
    def parquet_form(self) -> ParquetForm:
        """The form of the Parquet files of this scan."""
        return ParquetForm.of(self.plan, is_binary=self.has_binary_hashes)

    async def run(self, engine: Engine | None = None) -> list[PartFile]:
        """Scan the parts that are not scanned yet, by default in one thread.

        Returns:
            The files of the parts in chain order.

        Raises:
            ParameterError: The directory holds another scan or other files, or its parts were removed.
            DirectoryInUseError: Another scan uses the directory.
            SourceError: A source of blocks cannot be used, or a block that was scanned before is in no file now.
            OSError: A file cannot be read or written.
        """
        async with self.held(engine) as parts:
            return parts

    @asynccontextmanager
    async def held(self, engine: Engine | None = None) -> AsyncIterator[list[PartFile]]:
        """Return a context manager that scans as `run` does; its value is the files of the parts.

        No other scan can use the directory until the context is left. Raises the errors of `run`.
        """
        with self._parts.locked():
            chosen = engine or Threads()
            try:
                parts = await self._scanned(chosen)
            finally:
                if engine is None:
                    await chosen.aclose()
            yield parts

    async def _scanned(self, engine: Engine) -> list[PartFile]:
        """Scan the parts whose files are missing, and return the files of all parts."""
        manifest = await to_its_end(self._parts.opened, self._wanted)
        if manifest.tip:
            known = map(bytes.fromhex, (*manifest.lasts, manifest.tip))
            await to_its_end(refuse_lost_blocks, self.plan, known)
            self.report.change = chain_change(self.plan, manifest.blocks, bytes.fromhex(manifest.tip))
        self._begun = None
        self._fresh.clear()
        await to_its_end(self._widen)
        done = await self._passes(engine)
        if self.has_transactions:
            rows = [self._transactions_task(task) for task in done.tasks]
            await self._pass(engine, rows)
            self._rows = [task.rows for task in rows]
        return await to_its_end(self._finish, manifest, done)

    def finished(self) -> list[PartFile]:
        """Return the files of the parts of the last finished run in chain order; empty if there are none.

        Raises OSError if a file cannot be read, and SourceError if the manifest is damaged.
        """
        return list(map(PartFile, self._parts.finished()))

    def transactions(self) -> Iterator[TransactionRow]:
        """Yield every input and output of the matched transactions, in chain order, inputs before outputs.

        Raises ParameterError unless the scan was made with `transactions=True` and has run, and OSError if a file
        cannot be read.
        """
        if not self.has_transactions or not self._rows:
            raise ParameterError("no transactions: make the scan with transactions=True, and run it first")
        return map(row_of, read_rows(self._rows))

    def write_transactions(self, path: Path) -> None:
        """Write the rows of `transactions` into a file. Its suffix chooses the format: .csv, .jsonl or .parquet.

        Raises OSError if a file cannot be read or written, and ParameterError for Parquet without pyarrow.
        """
        write_transactions(path, self._rows, self.parquet_form)

    def remove_parts(self) -> None:
        """Delete the files of the parts, so that only the outputs stay. This scan cannot grow afterwards.

        Raises DirectoryInUseError if a scan uses the directory, OSError if a file cannot be deleted, and SourceError if
        the manifest is damaged.
        """
        with self._parts.locked():
            self._parts.remove_parts()

    def _widen(self) -> None:
        """Double the lookahead of the keychain windows before the scan, so that they move less often during it."""
        if self._given.keychains:
            widened = self._given.copy()
            widened.advance()
            widened.widen()
            self._set_windows({keychain.name: keychain.end for keychain in widened.keychains})

    def _set_windows(self, ends: dict[str, int]) -> None:
        """Set the ends of keychain windows. The numbers of the entries then depend only on these ends."""
        self._watch = self._given.copy()
        for keychain in self._watch.keychains:
            keychain.reach(ends.get(keychain.name, 0))
        self._watch.advance()

    def _windows_moved(self, files: Sequence[PartFile]) -> bool:
        """Advance the keychain windows for the scripts that the hits use. Return True if a window moved.

        Windows that moved are then widened again.
        """
        if not self._watch.keychains:
            return False
        before = {keychain.name: keychain.end for keychain in self._watch.keychains}
        moved = [self._watch.advance(unpack_hits(block.packed)) for file in files for block in file.blocks()]
        if any(moved):
            self._watch.widen()
        ends = {keychain.name: keychain.end for keychain in self._watch.keychains}
        if ends != before:
            self._set_windows(ends)
        return ends != before

    async def _passes(self, engine: Engine) -> _Done:
        """Scan all parts, and repeat this until no keychain window moves.

        Then scan parts again that have blocks without undo records, to find spends by outpoint.
        """
        parts = self.plan.parts
        while True:
            is_given = self._watch is self._given
            digest = self._digest if is_given else await to_its_end(table_digest, self._watch.table)
            tasks = [self._task(part, digest) for part in parts]
            summaries = await self._pass(engine, tasks)
            if not await to_its_end(self._windows_moved, [PartFile(task.path) for task in tasks]):
                break
            self.report.passes += 1
        blind = [number for number, summary in enumerate(summaries) if summary.by_outpoint]
        if not blind:
            return _Done(tasks, summaries)
        stale = [self._task(part, digest) for part in self.plan.stale]
        for summary in await self._pass(engine, stale):
            summaries[0].problems += summary.problems
        coins = await to_its_end(self._learned, [task.path for task in (*stale, *tasks)])
        if not coins:
            return _Done(tasks, summaries)
        self.report.passes += 1
        again = [self._task(parts[number], digest, coins) for number in blind]
        for number, task, summary in zip(blind, again, await self._pass(engine, again), strict=True):
            tasks[number], summaries[number] = task, summary
        return _Done(tasks, summaries)

    def _learned(self, paths: Sequence[Path]) -> bytes:
        """Write the outpoints that these parts found to a file, and return its digest; empty if no output was found."""
        fresh = self._parts.file(b"", "coins.hits")
        digest = write_coins(fresh, map(PartFile, paths), self._watch.table, self._most_coins)
        fresh.replace(self._coins(digest))
        return digest

    def _coins(self, key: bytes) -> Path:
        """Return the path of the file of outpoints with this digest."""
        return self._parts.file(key, ".hits")

    def _task(self, part: Part, watch: bytes, coins: bytes = _NO_COINS) -> PartTask:
        """Return the task for a part.

        The task's key and path change with everything that changes the contents of the part's file.
        """
        key = task_key(part, watch, coins, self.plan.undo, self.check)
        return PartTask(
            part, self._parts.file(key), key, self.plan.undo, self.check, self._coins(coins) if coins else None
        )

    def _transactions_task(self, task: PartTask) -> TransactionsTask:
        """Return the task that writes the matched transactions of a scanned part."""
        key = transactions_key(task)
        path, rows = self._parts.file(key), self._parts.file(key, ".rows").absolute()
        if not rows.exists():
            path.unlink(missing_ok=True)
        return TransactionsTask(task.part, path, key, task.undo, task.check, None, task.path.absolute(), rows)

    async def _pass(self, engine: Engine, tasks: Sequence[PartTask]) -> list[PartSummary]:
        """Return the summaries of the tasks' files, and run the tasks that have no file.

        It runs one task more at once than the engine's width.
        """
        kept = await to_its_end(lambda: [finished(task.path, task.key) for task in tasks])
        missing = [number for number, summary in enumerate(kept) if summary is None]
        self._fresh.update(tasks[number].part.number for number in missing if not tasks[number].part.is_stale)
        self.report.parts_total += len(missing)
        self.report.bytes_total += sum(tasks[number].part.size for number in missing)
        if missing and self._begun is not self._watch.table:
            self._begun = self._watch.table
            await engine.begin(self._begun)
        numbers = iter(missing)

        async def work() -> None:
            for number in numbers:
                kept[number] = await engine.run(tasks[number])
                self.report.parts_done += 1
                self.report.bytes_done += tasks[number].part.size

        workers = [asyncio.create_task(work()) for _ in range(min(engine.width + 1, len(missing)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [summary for summary in kept if summary is not None]

    def _finish(self, manifest: Manifest, done: _Done) -> list[PartFile]:
        """Record the result of all passes in the manifest, and remove files that are not part of it."""
        self.report.summary = PartSummary()
        for summary in done.summaries:
            self.report.summary.add(summary)
        self.report.parts_kept = sum(task.part.number not in self._fresh for task in done.tasks)
        manifest.finished = [task.path.name for task in done.tasks]
        manifest.blocks, manifest.tip = self.plan.blocks, self.plan.tip.hex()
        manifest.lasts = [block.hex() for part in self.plan.parts for block in part.last_hashes()]
        manifest.write(self.directory)
        self._parts.remove_unused()
        return [PartFile(task.path) for task in done.tasks]
