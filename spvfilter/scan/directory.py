"""A scan that writes one file for each part into a directory. Any engine can scan the parts.

Every run computes its result from scratch, but scans only the parts whose files are not in the directory. Stopped
scans, longer chains and reorganizations therefore need no special treatment.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import unpack_hits
from spvfilter.scan import silentparts
from spvfilter.scan.coinfile import MOST_COINS, write_coins
from spvfilter.scan.engines import Engine
from spvfilter.scan.gaps import Heights, joined
from spvfilter.scan.manifest import PARQUET_HASHES, TEXT_HASHES, WATCH_LIST, table_digest
from spvfilter.scan.matchedtxs import (
    TransactionRow,
    TransactionsTask,
    read_rows,
    row_of,
    transactions_key,
    write_transactions,
)
from spvfilter.scan.parquetrows import ParquetForm
from spvfilter.scan.partfile import PartFile, PartSummary, key_of
from spvfilter.scan.partrun import PartRun, PartsReport, pruned_heights
from spvfilter.scan.parts import PartTask, task_key
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import to_its_end, until
from spvfilter.watch.watchlist import WatchList

_NO_COINS = b""  # the key of a first pass, which knows no outpoints


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
        transactions: True to keep every input and output of the matched transactions, for the method `transactions`.
        binary_hashes: True to write the hashes in Parquet files as 32 bytes in display order, instead of as hex.

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
        if watch.is_empty:
            raise ParameterError("nothing to watch for: the watch list is empty")
        silent = watch.windows.silent
        if silent and any(part.kept for part in plan.parts):
            raise ParameterError(
                "the blocks of earlier parts have been pruned, so they cannot be searched for silent payments, sp():"
                " scan into another directory"
            )
        if watch.network != plan.network:
            raise ParameterError(f"the watch list is for {watch.network}, but the blocks are from {plan.network}")
        self.directory: Path = Path(directory)
        """The directory to which the scan writes its results."""
        self.plan = plan
        """The plan of the blocks to scan."""
        self.check = check
        """True if the scan verifies proof of work, merkle root and witness commitment of each block."""
        self.has_transactions = transactions
        """True if the scan keeps the inputs and outputs of matched transactions."""
        self.has_binary_hashes = binary_hashes
        """True if hashes in Parquet files are 32 bytes; False if they are hex strings."""
        self._rows: list[Path] = []  # part files of the inputs and outputs of matched transactions, in chain order
        self._given = watch.copy()
        self._watch = self._given
        self._windows: list[dict[str, int]] = []  # the ends of the windows, as the manifest stores them
        self._most_coins = most_coins
        self._digest = table_digest(watch.table)
        self._keys = silentparts.keys_digest(silent) if silent else b""
        watched = sha256(self._digest + self._keys).digest() if silent else self._digest
        form = "binary" if binary_hashes else TEXT_HASHES
        self._run = PartRun(self.directory, plan, check, {WATCH_LIST: watched.hex(), PARQUET_HASHES: form})
        self._parts = self._run.parts
        self.report: PartsReport = self._run.report
        """The progress of the scan."""

    @property
    def watch(self) -> WatchList:
        """The copy of the watch list that this scan uses. The packed hits refer to its entries."""
        return self._watch

    @property
    def parquet_form(self) -> ParquetForm:
        """The form of the Parquet files of this scan."""
        return ParquetForm.of(self.plan, is_binary=self.has_binary_hashes)

    async def run(self, engine: Engine | None = None) -> list[PartFile]:
        """Scan the parts that have not been scanned yet, by default in one thread.

        Returns:
            The files of the parts in chain order.

        Raises:
            ParameterError: The directory holds a different scan or other files, or its parts were removed.
            DirectoryInUseError: Another scan is using the directory.
            SourceError: A source of blocks cannot be used, or a block that was scanned before is no longer in any file.
            OSError: A file cannot be read or written.
        """
        async with self.held(engine) as parts:
            return parts

    @asynccontextmanager
    async def held(self, engine: Engine | None = None) -> AsyncIterator[list[PartFile]]:
        """Return a context manager that scans as `run` does, and whose value is the list of the parts' files.

        No other scan can use the directory until the context is left. Raises the errors of `run`.
        """
        async with self._run.opened(engine) as (chosen, manifest):
            await self._find_silent(chosen)
            await to_its_end(self._widen, manifest.windows)
            done = await self._passes(chosen)
            if self.has_transactions:
                rows = [self._transactions_task(task) for task in done.tasks]
                await self._run.summaries(chosen, rows, self._watch.table)
                self._rows = [task.path for task in rows]
            self._run.count(done.tasks, done.summaries)
            manifest.windows = self._windows
            await to_its_end(self._run.finish, manifest, done.tasks)
            yield await to_its_end(lambda: [PartFile(task.path) for task in done.tasks])

    def finished(self) -> list[PartFile]:
        """Return the part files of the last finished run in chain order, or an empty list if there are none.

        Raises OSError if a file cannot be read, and SourceError if the manifest is damaged.
        """
        return list(map(PartFile, self._parts.finished()))

    def transactions(self) -> Iterator[TransactionRow]:
        """Yield every input and output of the matched transactions, in chain order, inputs before outputs.

        Raises ParameterError unless the scan was made with `transactions=True` and has run. Raises OSError if a file
        cannot be read, and SourceError if it is damaged.
        """
        if not self.has_transactions or not self._rows:
            raise ParameterError("no transactions: create the scan with transactions=True and run it first")
        return map(row_of, read_rows(self._rows, self._watch))

    def write_transactions(self, path: Path, is_stopped: Callable[[], bool] = lambda: False, jobs: int = 1) -> None:
        """Write the rows of `transactions` into a file. Its suffix chooses the format: .csv, .jsonl or .parquet.

        With several jobs, threads render the rows. Once `is_stopped` returns True, an internal error ends the work.

        Raises OSError if a file cannot be read or written, SourceError if it is damaged, and ParameterError if Parquet
        is chosen but pyarrow is missing.
        """
        write_transactions(path, until(self._rows, is_stopped), self._watch, self.parquet_form, jobs)

    def remove_parts(self) -> None:
        """Delete the files of the parts, so that only the results remain. After this, the scan cannot grow.

        Raises DirectoryInUseError if a scan is using the directory, OSError if a file cannot be deleted, and
        SourceError if the manifest is damaged.
        """
        with self._parts.locked():
            self._parts.remove_parts()

    async def _find_silent(self, engine: Engine) -> None:
        """Search all parts for silent payments, and watch the scripts found. Later passes then find the matches.

        The numbers of the new entries depend only on the order of the chain.
        """
        if not (silent := self._given.windows.silent):
            return
        keys, undo = silentparts.scan_keys(silent), str(self.plan.undo)
        tasks = list[silentparts.SilentTask]()
        for part in self.plan.parts:
            key = silentparts.silent_key(part, self._keys, undo, self.check)
            path = self._parts.file(key, silentparts.SUFFIX)
            tasks.append(silentparts.SilentTask(part, path, key, undo, self.check, None, keys))
        self.report.passes += 1
        summaries = await self._run.summaries(engine, tasks, self._given.table)
        self.report.candidates = sum(each.matches for each in summaries)
        self.report.unjudged = sum(each.unseen for each in summaries)
        await to_its_end(self._watch_payments, [PartFile(task.path) for task in tasks])

    def _watch_payments(self, files: Sequence[PartFile]) -> None:
        names = [each.name for each in self._given.windows.silent]
        for file in files:
            self._given.add_payments(silentparts.payments_in(file, names))

    def _widen(self, earlier: list[dict[str, int]]) -> None:
        """Double the lookahead of the keychain windows before the scan, so that they move less often during it.

        If parts of the earlier run are kept, the windows start where that run ended them.
        """
        self._windows = []
        if not self._given.keychains:
            return
        if self._keeps and earlier:
            for ends in earlier:
                self._set_windows(ends)
            return
        widened = self._given.copy()
        widened.advance()
        widened.widen()
        self._set_windows({keychain.name: keychain.end for keychain in widened.keychains})

    @property
    def _keeps(self) -> bool:
        """True if parts of the earlier run are kept because their blocks have been pruned."""
        return any(part.kept for part in self.plan.parts)

    def _set_windows(self, ends: dict[str, int]) -> None:
        """Set the ends of keychain windows. The numbers of the entries then depend only on these ends.

        If parts of the earlier run are kept, their hits refer to that run's entry numbers, so new entries follow those.
        """
        if not self._keeps:
            self._windows = []
        self._windows.append(ends)
        self._watch = self._given.copy()
        for each in self._windows:
            for keychain in self._watch.keychains:
                keychain.reach(each.get(keychain.name, 0))
            self._watch.advance()

    def _windows_moved(self, files: Sequence[PartFile]) -> bool:
        """Advance the keychain windows past the scripts that the hits use, and return True if a window moved.

        If a window moved, all of them are widened again.
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

        Then rescan the parts whose blocks lack undo records, to find spends by outpoint.
        """
        parts = self.plan.parts
        while True:
            is_given = self._watch is self._given
            digest = self._digest if is_given else await to_its_end(table_digest, self._watch.table)
            tasks = [self._task(part, digest) for part in parts]
            summaries = await self._run.summaries(engine, tasks, self._watch.table)
            if not await to_its_end(self._windows_moved, [PartFile(task.path) for task in tasks]):
                break
            self.report.passes += 1
        blind = [number for number, summary in enumerate(summaries) if summary.by_outpoint]
        if not blind:
            return self._done(tasks, summaries, digest)
        stale = [self._task(part, digest) for part in self.plan.stale]
        for summary in await self._run.summaries(engine, stale, self._watch.table):
            summaries[0].problems += summary.problems
        coins = await to_its_end(self._learned, [task.path for task in (*stale, *tasks)])
        if not coins:
            return self._done(tasks, summaries, digest)
        self.report.passes += 1
        again = [self._task(parts[number], digest, coins) for number in blind]
        found = await self._run.summaries(engine, again, self._watch.table)
        for number, task, summary in zip(blind, again, found, strict=True):
            tasks[number], summaries[number] = task, summary
        return self._done(tasks, summaries, digest, coins)

    def _done(
        self, tasks: list[PartTask], summaries: list[PartSummary], watch: bytes, coins: bytes = _NO_COINS
    ) -> _Done:
        """Return the result, and report pruned blocks that could not be searched for these scripts and outpoints."""
        heights: list[Heights] = []
        for task, summary in zip(tasks, summaries, strict=True):
            known = coins if summary.by_outpoint else _NO_COINS
            if task.part.kept and task.key != self._key(task.part, watch, known):
                heights += pruned_heights(task.part)
        self.report.not_searched = tuple(joined(heights))
        return _Done(tasks, summaries)

    def _learned(self, paths: Sequence[Path]) -> bytes:
        """Write the outpoints found in these parts to a file. Return its digest, or b"" if no output was found."""
        fresh = self._parts.file(b"", "coins.hits")
        digest = write_coins(fresh, map(PartFile, paths), self._watch.table, self._most_coins)
        fresh.replace(self._coins(digest))
        return digest

    def _coins(self, key: bytes) -> Path:
        """Return the path of the outpoint file with this digest."""
        return self._parts.file(key, ".hits")

    def _task(self, part: Part, watch: bytes, coins: bytes = _NO_COINS) -> PartTask:
        """Return the task for a part.

        Everything that affects the contents of the part's file also affects the task's key and path.
        """
        key, file = self._key(part, watch, coins), self._coins(coins) if coins else None
        if part.kept:
            path = self._parts.named(part.kept)
            key, file = key_of(path) or key, None
            return PartTask(part, path, key, self.plan.undo, self.check, file)
        return PartTask(part, self._parts.file(key), key, self.plan.undo, self.check, file)

    def _key(self, part: Part, watch: bytes, coins: bytes = _NO_COINS) -> bytes:
        """Return the key of a part's task for these scripts and outpoints."""
        return task_key(part, watch, coins, self.plan.undo, self.check)

    def _transactions_task(self, task: PartTask) -> TransactionsTask:
        """Return the task that finds the matched transactions of a scanned part."""
        key = transactions_key(task)
        path, hits = self._parts.file(key), task.path.absolute()
        return TransactionsTask(task.part, path, key, task.undo, task.check, task.coins, hits)
