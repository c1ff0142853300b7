"""A scan that writes one file for each part into a directory. Any engine can scan the parts.

A stopped scan can be continued.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred, public
from spvfilter.errors import DirectoryInUseError, ParameterError
from spvfilter.files import FileHeldError, FileLock
from spvfilter.kernel import unpack_hits
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.coinfile import MOST_COINS, are_whole, write_coins
from spvfilter.scan.engines import Engine, Threads, summary_of
from spvfilter.scan.manifest import Manifest, table_digest
from spvfilter.scan.partfile import PartFile, PartSummary
from spvfilter.scan.parts import PartTask, task_key
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.threadwork import to_its_end
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_PARTS = "parts"  # name of the subdirectory for the files of parts
_LOCK = ".lock"  # name of the file that a running scan locks
_NO_COINS = b""  # the key of a first pass, which knows no outpoints


@public
@dataclass(slots=True)
class PartsReport:
    """The progress of a scan in parts. It is updated while the scan runs."""

    parts_total: int = 0
    """Number of parts to scan. A part counts once in each pass that scans it."""
    parts_done: int = 0
    """Number of parts scanned so far. A part counts once in each pass that scans it."""
    bytes_total: int = 0
    """Total size of the blocks to scan in all passes, in bytes."""
    bytes_done: int = 0
    """Total size of the blocks scanned so far in all passes, in bytes."""
    passes: int = 1
    """Number of passes: two if spends must be found by outpoint, more if windows of keychains have moved."""
    summary: PartSummary = field(default_factory=PartSummary)
    """Summary of all parts; complete when the scan is done."""


class _Done(NamedTuple):
    """The tasks and summaries that make up the result after all passes."""

    tasks: list[PartTask]
    """The tasks whose files make up the result, in chain order."""
    summaries: list[PartSummary]
    """The summary of each task's file."""
    coins: bytes = _NO_COINS
    """Key of the file of outpoints with which parts were scanned again; empty if no part was scanned again."""

    def total(self) -> PartSummary:
        """Return the sum of the summaries of all parts."""
        total = PartSummary()
        for summary in self.summaries:
            total.add(summary)
        return total


@public
class PartScan:
    """A scan of a plan's parts. It writes a manifest and a file for each part into a directory.

    The watch list itself is not changed: the scan uses a copy of it, whose keychain windows move. The result does not
    depend on the number of parts or workers, or on how often the scan was stopped.

    - If blocks have no undo record, there are two passes: the first finds outputs, the second finds their spends.
    - If a used script moves the window of a keychain, all parts are scanned again with the new scripts.

    Args:
        directory: The directory for the results; it is created if it does not exist.
        plan: The plan of the blocks to scan.
        watch: The watch list whose matches are found.
        check: True to verify proof of work, merkle root and witness commitment of each block.
        most_coins: Largest number of outpoints that a second pass keeps in memory, about 150 bytes each.

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
        self._given = watch.copy()
        self._watch = self._given
        self._most_coins = most_coins
        self._wanted = Manifest.of(plan, watch.table, check)

    @property
    def watch(self) -> WatchList:
        """The copy of the watch list that this scan uses. The packed hits refer to its entries."""
        return self._watch

    async def run(self, engine: Engine | None = None) -> list[PartFile]:
        """Scan the parts that are not scanned yet, by default in one thread.

        Returns:
            The files of the parts in chain order.

        Raises:
            ParameterError: The directory holds another scan, or other files.
            DirectoryInUseError: Another scan uses the directory.
            SourceError: A source of blocks cannot be used.
            OSError: A file cannot be read or written.
        """
        async with self.held(engine) as parts:
            return parts

    @asynccontextmanager
    async def held(self, engine: Engine | None = None) -> AsyncIterator[list[PartFile]]:
        """Return a context manager that scans as `run` does; its value is the files of the parts.

        No other scan can use the directory until the context is left. Raises the errors of `run`.
        """
        with self._locked():
            chosen = engine or Threads()
            try:
                parts = await self._scanned(chosen)
            finally:
                if engine is None:
                    await chosen.aclose()
            yield parts

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Return a context manager that locks the directory.

        Raises DirectoryInUseError if another scan uses the directory.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock.take(self.directory / _LOCK)
        except FileHeldError as held:
            who = "another scan of this process" if held.process == os.getpid() else str(held)
            raise DirectoryInUseError(
                f"{self.directory}: {who} scans into it: wait until it has ended, or choose another directory"
            ) from None
        try:
            yield
        finally:
            lock.release()

    async def _scanned(self, engine: Engine) -> list[PartFile]:
        """Scan the parts and return their files. If a finished scan is complete, return its files at once."""
        manifest = await to_its_end(self._opened)
        if (
            manifest.finished
            and (done := await to_its_end(self._whole, manifest))
            and not await self._is_mended(done, engine)
        ):
            await to_its_end(self._clean, manifest)
            return [PartFile(task.path) for task in done.tasks]
        await to_its_end(self._widen)
        return await to_its_end(self._finish, manifest, await self._passes(engine))

    def finished(self) -> list[PartFile]:
        """Return the files of the parts of a finished scan in chain order; empty if the scan is not finished.

        Raises OSError if a file cannot be read, and SourceError if the manifest is damaged.
        """
        manifest = Manifest.read(self.directory)
        return [] if manifest is None else [PartFile(self.directory / _PARTS / name) for name in manifest.finished]

    def _opened(self) -> Manifest:
        """Return the manifest of the directory; a new directory gets a manifest now.

        Raises ParameterError if the directory contains another scan.
        """
        held = Manifest.read(self.directory)
        if held is None:
            names = (each.name for each in self.directory.iterdir())
            if strange := next((name for name in names if not name.startswith(".spvfilter-") and name != _LOCK), None):
                raise ParameterError(
                    f"{self.directory} is not empty and holds no scan (it has {strange}): choose another directory"
                )
            held = self._wanted
            held.write(self.directory)
        held.refuse_other(self._wanted, self.directory)
        (self.directory / _PARTS).mkdir(exist_ok=True)
        return held

    def _whole(self, manifest: Manifest) -> _Done | None:
        """Return the result of a finished scan; None if a part's file is missing, damaged or of another task."""
        if len(manifest.finished) != len(self.plan.parts):
            return None
        self._set_windows(manifest.windows)
        digest, coins = table_digest(self._watch.table), bytes.fromhex(manifest.coins)
        done = _Done([], [], coins)
        for part, name in zip(self.plan.parts, manifest.finished, strict=True):
            task = next(
                (
                    task
                    for task in (self._task(part, digest), self._task(part, digest, coins))
                    if task.path.name == name
                ),
                None,
            )
            summary = None if task is None else summary_of(task.path, task.key)
            if task is None or summary is None:
                return None
            done.tasks.append(task)
            done.summaries.append(summary)
        self.report.summary = done.total()
        return done

    async def _is_mended(self, done: _Done, engine: Engine) -> bool:
        """Return True if data that the finished scan could not read can be read now.

        The parts that lack data are scanned again to find out.
        """
        lacking = [
            (task.part, summary) for task, summary in zip(done.tasks, done.summaries, strict=True) if summary.lacks
        ]
        if not lacking:
            return False
        await engine.begin(self._watch.table)
        digest = await to_its_end(table_digest, self._watch.table)
        again = await self._pass(engine, [self._task(part, digest) for part, _ in lacking])
        return any(
            (new.problems, new.undo_problems) != (old.problems, old.undo_problems)
            for new, (_, old) in zip(again, lacking, strict=True)
        )

    def _widen(self) -> None:
        """Double the lookahead of the keychain windows before the scan, so that they move less often during it."""
        if self._given.keychains:
            widened = self._given.copy()
            widened.advance()
            widened.widen()
            self._set_windows({keychain.name: keychain.end for keychain in widened.keychains})

    def _set_windows(self, ends: dict[str, int]) -> None:
        """Set the ends of keychain windows. The numbers of the entries then depend only on these ends."""
        if ends:
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
        self._set_windows(ends)
        return ends != before

    async def _passes(self, engine: Engine) -> _Done:
        """Scan all parts, and repeat this until no keychain window moves.

        Then scan parts again that have blocks without undo records, to find spends by outpoint.
        """
        parts = self.plan.parts
        while True:
            table = self._watch.table
            await engine.begin(table)
            digest = await to_its_end(table_digest, table)
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
        key = await to_its_end(self._learned, [task.path for task in (*stale, *tasks)])
        if not key:
            return _Done(tasks, summaries)
        self.report.passes += 1
        again = [self._task(parts[number], digest, key) for number in blind]
        for number, task, summary in zip(blind, again, await self._pass(engine, again), strict=True):
            tasks[number], summaries[number] = task, summary
        return _Done(tasks, summaries, key)

    def _learned(self, paths: Sequence[Path]) -> bytes:
        """Write the outpoints that these parts found to a file, and return its key; empty if no output was found.

        The key depends on everything that the parts found.
        """
        files = [PartFile(path) for path in paths]
        key = sha256(b"".join(file.digest for file in files)).digest()
        coins = self._coins(key)
        if not are_whole(coins):
            write_coins(coins, files, self._most_coins)
        return b"" if coins.stat().st_size == HASH_SIZE else key

    def _coins(self, key: bytes) -> Path:
        """Return the path of the file of outpoints with this key."""
        return self.directory / _PARTS / f"coins-{key[:8].hex()}.hits"

    def _task(self, part: Part, watch: bytes, coins: bytes = _NO_COINS) -> PartTask:
        """Return the task for a part.

        The task's key and path change with everything that changes the contents of the part's file.
        """
        key = task_key(part, watch, coins, self.plan.undo, self.check)
        name = f"{'stale-' if part.is_stale else ''}{part.number:06}-{key[:8].hex()}.part"
        return PartTask(
            part, self.directory / _PARTS / name, key, self.plan.undo, self.check, self._coins(coins) if coins else None
        )

    async def _pass(self, engine: Engine, tasks: Sequence[PartTask]) -> list[PartSummary]:
        """Run tasks and return the summaries of their parts.

        It runs one task more at once than the engine's width.
        """
        self.report.parts_total += len(tasks)
        self.report.bytes_total += sum(task.part.size for task in tasks)
        summaries: list[PartSummary | None] = [None] * len(tasks)
        numbers = iter(range(len(tasks)))

        async def work() -> None:
            for number in numbers:
                summaries[number] = await engine.run(tasks[number])
                self.report.parts_done += 1
                self.report.bytes_done += tasks[number].part.size

        workers = [asyncio.create_task(work()) for _ in range(engine.width + 1)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return [summary for summary in summaries if summary is not None]

    def _finish(self, manifest: Manifest, done: _Done) -> list[PartFile]:
        """Record the result of all passes in the manifest."""
        self.report.summary = done.total()
        manifest.windows = {keychain.name: keychain.end for keychain in self._watch.keychains}
        manifest.coins = done.coins.hex()
        manifest.finished = [task.path.name for task in done.tasks]
        manifest.rendered = {}  # earlier outputs may lack matches that this scan has found
        manifest.write(self.directory)
        self._clean(manifest)
        return [PartFile(task.path) for task in done.tasks]

    def _clean(self, manifest: Manifest) -> None:
        """Remove the files of earlier passes and of killed processes from the directory of a finished scan."""
        kept = set(manifest.finished)
        for path in (self.directory / _PARTS).iterdir():
            if path.name not in kept:
                path.unlink(missing_ok=True)
