"""One scan of many blocks: threads scan batches, the results are merged in order, and a second pass follows.

This module is not part of the API. The set of matches does not depend on three things:

- The order of the blocks. Blocks are put in chain order as far as their headers link them. A spend is found by its
  outpoint, which the watch list learns when the output is found. A block that was scanned before an outpoint was
  learned is read again, but only its inputs are searched.
- The number of threads. A batch is scanned with at least the outpoints that were known when its scan began. When it is
  merged, its blocks are searched again for spends of the outpoints that were learned in between.
- The order in which scripts of keychains are used. If windows move beyond where they were when the scan started, all
  blocks that were scanned without the new scripts are searched again, until nothing changes.
- The order in which silent payments are found. Their scripts become watched when their batch is merged. Blocks that
  were scanned without them are searched again for the scripts, and never again for silent payments.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from spvfilter.chain import is_proven
from spvfilter.errors import FormatError, SourceError, UndoError
from spvfilter.kernel import BACKEND, EntryKind, Hit, Place, ReadBuffer, WatchTable, check_block, pack_hits, unpack_hits
from spvfilter.scan.coinfile import entry_of, learnable, patterns_of
from spvfilter.scan.gaps import ranges_of, without
from spvfilter.scan.growth import WatchGrowth
from spvfilter.scan.order import STALE, Feed, PendingBlock, ScanReport, Taught, batched
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.pipeline import Pipeline
from spvfilter.scan.sources import Problem
from spvfilter.scan.undomode import UndoMode
from spvfilter.silent.search import Judged
from spvfilter.watch import compiled, silentsearch
from spvfilter.watch.silentsearch import SilentSearch
from spvfilter.watch.watchlist import WatchList

T = TypeVar("T")
_UNREADABLE = (FormatError, SourceError, OSError)


@dataclass(slots=True)
class _Result:
    """A block and the result of its scan."""

    block: PendingBlock
    """The block that was scanned."""
    height: int | None
    """Height of the block when the feed yielded it, or None if it was unknown."""
    raw: bytes | None = None
    """Bytes of the block, or None for a block in a file, which can be read again."""
    hits: bytes | None = None
    """Packed hits of the block, or None if the block is unreadable."""
    errors: list[tuple[str, Exception]] = field(default_factory=list)
    """Place and error of each unreadable copy of the block."""
    undo_errors: list[Problem] = field(default_factory=list)
    """Problems with undo records that could not be used."""
    judged: Judged | None = None
    """The silent payments in the block, or None if it was not searched for them."""
    record: bytes | None = None
    """Undo record with which the block was searched for silent payments, or None if there was none."""


@dataclass(slots=True)
class _Batch:
    """Blocks that one thread scans together, with their results."""

    results: list[_Result]
    """The results of the batch's blocks."""
    after: Taught = field(default_factory=Taught)
    """The latest hits from which outpoints were learned before the scan of the batch began."""
    known: tuple[int, int] = (0, 0)
    """Numbers of scripts and outpoints that the scan of the batch uses, as returned by `WatchGrowth.mark`."""


class Scan(Generic[T]):
    """The state of one scan. `tell` turns a block's hits into the item that the scan yields.

    `image` is the image of a compiled list. It is kept here because the list's table drops it on learning outpoints.
    """

    def __init__(
        self,
        watch: WatchList,
        growth: WatchGrowth,
        feed: Feed,
        report: ScanReport,
        tell: Callable[[BlockHits], T],
        *,
        jobs: int,
        check: bool,
        image: memoryview | None = None,
        silent: SilentSearch | None = None,
    ) -> None:
        self._watch = watch
        self._feed = feed
        self._report = report
        # the pure kernel holds the GIL, so more threads would gain nothing and would delay the event loop
        self._jobs = 1 if BACKEND == "pure" else jobs
        self._check = check
        self._tell = tell
        # hits of the latest block in which outputs were found, even if the list knew their outpoints
        self._taught = Taught()
        self._image = watch.table.image() if image is None else image
        self._scanned: list[PendingBlock] = []
        self._gone: list[tuple[Problem, PendingBlock]] = []  # blocks whose files have disappeared
        self._growth = growth
        self._silent = silent
        self._threads: Pipeline[_Batch, list[T]] = Pipeline(self._jobs, self.work, self.merge)
        self._has_outpoints: bool | None = None  # True if an entry is an outpoint; None if unknown
        self._patterns: frozenset[int] = frozenset()  # entries whose outputs are not learned
        self._is_done = False  # True if all blocks have been scanned, so that the threads are idle

    async def aclose(self) -> None:
        """Wait for the threads that are still scanning. After this call, no thread changes the watch list."""
        if self._is_done:
            self._close()
            return
        self._threads.closing = True
        self._feed.leave()
        closing = asyncio.create_task(asyncio.to_thread(self._close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing  # no thread may outlive the scan
            raise

    def _close(self) -> None:
        self._threads.close()
        self._feed.close()

    async def found(self) -> AsyncGenerator[T]:
        """Scan the blocks of the feed and yield the results. Call this only once."""
        free = asyncio.Semaphore(self._jobs + 1)  # number of batches by which a stream is read ahead of the results
        feeder = asyncio.create_task(self._submit(free))
        try:
            async with aclosing(self._threads.results()) as results:
                async for several in results:
                    free.release()
                    for each in several:
                        yield each
            await feeder  # raises the error that ended the feed
            self._judge_gone()
            self._report.unseen = sum(block.is_blind for block in self._scanned)
            again, late = await self._threads.in_thread(self._too_early)
            for blocks in batched(again):
                for each in await self._threads.in_thread(self._look_again, blocks, late):
                    yield each
            while due := self._growth.due(self._scanned):
                for blocks in batched(due):
                    for each in await self._threads.in_thread(self._search_again, blocks):
                        yield each
            if self._feed.endless:
                self._report.late_scripts = self._growth.scripts
            self._is_done = True
        finally:
            feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)

    async def _submit(self, free: asyncio.Semaphore) -> None:
        """Pass the batches of the feed to the threads."""
        try:
            async with aclosing(self._feed.batches()) as batches:
                async for blocks in batches:
                    if not self._feed.planned:
                        await free.acquire()
                    self._threads.put(_Batch([_Result(block, block.height) for block in blocks]))
        finally:
            self._threads.finish()

    def work(self, batch: _Batch, buffer: ReadBuffer) -> None:
        """Read and scan a batch, in any thread. This changes only the batch.

        Raises SourceError if the file of a compiled watch list was changed in place.
        """
        compiled.check_image(self._image)
        batch.known = self._growth.mark()
        # read before the scan, which then sees at least these outpoints, because the watch list learns them first
        batch.after = self._taught
        if self._silent is not None or not self._scan_together(batch, buffer):
            found = WatchTable()
            for result in batch.results:
                if self._threads.closing:
                    return
                self._scan(result, found, self._silent)

    def _scan_together(self, batch: _Batch, buffer: ReadBuffer) -> bool:
        """Scan the batch in a single kernel call.

        If a block is unreadable or malformed, change nothing and return False.
        """
        if self._check and not all(is_proven(result.block.ref) for result in batch.results):
            return False
        refs = [result.block.ref for result in batch.results]
        with self._feed.source.opened_undo(refs) as undo:
            # undo records contain all spent outputs, so the outputs of this batch are not looked up
            found = None if undo is not None and all(undo) else WatchTable()
            together = self._hits(batch.results, self._watch.table, buffer, found, self._check, undo)
        if together is None:
            return False
        for number, (result, hits) in enumerate(zip(batch.results, together, strict=True)):
            result.hits = hits
            result.block.by_undo = undo is not None and undo[number] is not None
        return True

    def _hits(
        self,
        results: list[_Result],
        table: WatchTable,
        buffer: ReadBuffer,
        found: WatchTable | None = None,
        check: bool = False,
        undo: list[Place | None] | None = None,
    ) -> list[bytes] | None:
        """Return the packed hits of each block, found in a single kernel call.

        The result is None if a block or an undo record is unreadable or malformed.
        """
        with self._feed.source.opened([result.block.ref for result in results]) as places:
            if places is not None:
                outcomes = table.scan_files(places, buffer, found, check, undo, packed=True)
            elif undo is not None:
                return None
            elif self._read(results):
                outcomes = list(table.scan_blocks([result.raw or b"" for result in results], found, check, packed=True))
            else:
                return None
        hits = [outcome for outcome in outcomes if isinstance(outcome, bytes)]
        return hits if len(hits) == len(results) else None

    def _read(self, results: list[_Result]) -> bool:
        """Read the blocks that are not in memory. Returns False if a block is unreadable."""
        for result in results:
            if self._threads.closing:
                return False
            try:
                if result.raw is None:
                    result.raw = self._feed.read(result.block)
            except _UNREADABLE:
                return False
        return True

    def _scan(self, result: _Result, found: WatchTable, silent: SilentSearch | None = None) -> None:
        """Scan the first valid copy of one block. With `silent`, also search it for silent payments."""
        raw, result.raw = result.raw, None
        for ref in result.block.copies():
            try:
                if raw is None:
                    raw = self._feed.read(result.block)
                if self._check:
                    if not is_proven(ref):
                        raise FormatError("the block's hash is above its target", offset=72, field="bits")
                    check_block(raw)
                result.hits = self._hits_of(result, raw, found, silent)
                result.raw = raw
                break
            except _UNREADABLE as error:
                result.errors.append((self._feed.source.name(ref), error))
                raw = None

    def _hits_of(self, result: _Result, raw: bytes, found: WatchTable, silent: SilentSearch | None = None) -> bytes:
        """Return the packed hits of a block, found with its undo record if there is a usable one.

        Raises FormatError if the block is malformed, and SourceError if a required undo record cannot be used.
        """
        block, source = result.block, self._feed.source
        while (place := source.find_undo(block.ref)) is not None:
            try:
                record = place.read()
                hits = _scanned(self._watch.table, raw, found, record)
                block.by_undo = True
                if silent is not None:
                    result.record = record
                    result.judged = silent.block(raw, silentsearch.scripts_of_record(raw, record))
                return hits
            except (UndoError, SourceError, OSError) as error:
                more = source.pair_again(block.ref, place)
                if more is None:
                    continue
                if source.mode is UndoMode.REQUIRE:
                    raise SourceError(f"its undo record cannot be used: {error}") from None
                result.undo_errors += [Problem.of(f"{source.name(block.ref)}: its undo record", error), *more]
        hits = _scanned(self._watch.table, raw, found)
        if silent is not None:
            result.judged = silent.block(raw, None)
        return hits

    def merge(self, batch: _Batch, buffer: ReadBuffer) -> list[T] | None:
        """Add the spends of outpoints that were learned after the scan of the batch began, then learn its outputs.

        Returns the items of the batch. Raises the error that ends the scan.
        """
        self._watch_payments(batch)
        late = self._late_hits(batch, buffer)
        told: list[T] = []
        for number, result in enumerate(batch.results):
            block = result.block
            for where, error in result.errors:
                if self._feed.strict:
                    self._threads.tell(told)
                    raise error
                if isinstance(error, FileNotFoundError) and result.hits is None:
                    self._gone.append((Problem.of(where, error), block))
                    continue
                self._report.problems.append(Problem.of(where, error))
            self._report.undo_problems += result.undo_errors
            if result.hits is None:
                continue
            hits = result.hits if late is None else _united(result.hits, late[number])
            block.teaches = self._accept(hits, block) > 0
            block.known = batch.known
            if not self._feed.endless and not block.by_undo:
                block.after = self._taught
            if not self._feed.endless:
                self._scanned.append(block)
            if block.silent:
                continue
            if hits:
                told.append(self._tell(BlockHits(block.ref.hash, result.height, block.ref.time, hits)))
            if result.judged is not None:
                self._report.candidates += result.judged.candidates
                self._report.unjudged += result.judged.unjudged
            self._report.blocks += 1
            self._report.by_undo += block.by_undo
            if not block.by_undo and block.ref.transactions != 1 and self._feed.source.mode is not UndoMode.OFF:
                self._report.without_undo.append(block.ref.hash)
            self._report.bytes_scanned += block.ref.size
        return told if told or not self._feed.planned else None

    def _watch_payments(self, batch: _Batch) -> None:
        """Watch the silent payments of a batch. Scan it again if it was scanned without the scripts of such payments.

        Nothing is read again, because the event loop, which fetches a node's blocks, may be waiting for this thread.
        """
        if self._silent is None:
            return
        for result in batch.results:
            if result.hits is not None and result.judged is not None:
                self._growth.found(len(self._watch.add_payments(self._silent.payments(result.judged))))
        if batch.known[0] == self._growth.mark()[0]:
            return
        batch.known, batch.after = self._growth.mark(), self._taught
        found = WatchTable()
        for result in batch.results:
            if result.hits is not None and result.raw is not None:
                result.hits = _scanned(self._watch.table, result.raw, found, result.record)

    def _judge_gone(self) -> None:
        """Report blocks whose files have disappeared since they were listed.

        They count as pruned if they lie below all others.
        """
        files = {block.ref.file for _, block in self._gone}
        left = [block.height for block in self._scanned if block.ref.file not in files and block.height is not None]
        heights = [block.height for _, block in self._gone if block.height is not None]
        if len(heights) < len(self._gone) or not left or max(heights, default=-1) >= min(left):
            self._report.problems += (problem for problem, _ in self._gone)
            return
        self._report.pruned = tuple(ranges_of(sorted(heights)))
        found = self._report.heights
        self._report.heights = replace(found, found=tuple(without(found.found, self._report.pruned)))

    def _late_hits(self, batch: _Batch, buffer: ReadBuffer) -> list[bytes] | None:
        """Return each block's spends of outpoints that were learned after its scan began, or None if none were."""
        if batch.after.next is None:
            return None
        blind = [result for result in batch.results if not result.block.by_undo]
        if not blind:
            return None
        late = self._late_table(batch.after)
        together = self._hits(blind, late, buffer)
        if together is None:
            together = [self._late_hits_of(result, late) for result in blind]
        hits = iter(together)
        return [b"" if result.block.by_undo else next(hits) for result in batch.results]

    def _late_hits_of(self, result: _Result, late: WatchTable) -> bytes:
        """Return the spends in one block of outpoints that were learned after its scan began.

        This is used for a batch in which a block is unreadable.
        """
        try:
            return (
                b""
                if result.hits is None
                else _scanned(late, self._feed.read(result.block) if result.raw is None else result.raw)
            )
        except _UNREADABLE as error:  # the file has changed since it was scanned
            result.errors.append((self._feed.source.name(result.block.ref), error))
            return b""

    def _late_table(self, after: Taught) -> WatchTable:
        """Return a table of only the outpoints that were learned after these hits."""
        own, late = self._watch.table, WatchTable()
        if self._has_outpoints is None:
            self._has_outpoints = own.count_of(EntryKind.OUTPOINT) > 0
            self._patterns = patterns_of(own)
        for packed in after.later():
            if self._has_outpoints or self._patterns:  # an outpoint that is itself an entry belongs to that entry
                late.learn([hit._replace(entry=entry_of(own, hit)) for hit in learnable(packed, self._patterns)])
            else:
                late.learn_packed(packed)
        return late

    def _accept(self, hits: bytes, block: PendingBlock) -> int:
        """Learn the outpoints of a block's hits, and return their number. Keep hits that a later search needs."""
        if not hits:
            return 0
        learned = self._watch.table.learn_packed(hits)
        if learned:  # the watch list learns first: see work
            self._taught.next = Taught(hits)
            self._taught = self._taught.next
        if self._watch.keychains:
            self._growth.used(unpack_hits(hits))
        if not self._feed.endless and (self._watch.keychains or not block.by_undo):
            block.found += hits
        return learned

    def _too_early(self) -> tuple[list[PendingBlock], WatchTable]:
        """Return the blocks to search again, and all outpoints that they may have missed.

        A block is searched again if it was scanned before outpoints were learned from a block that may precede it, as
        far as headers tell. Stale blocks are not searched again. Their outputs may be spent anywhere, because the best
        branch may contain the same transactions, from which nothing was learned a second time.
        """
        again: list[PendingBlock] = []
        # for each segment, the least depth of the blocks, scanned later, from which outpoints were learned
        lowest: dict[int, int] = {}
        for block in reversed(self._scanned):
            elsewhere = len(lowest) > (block.segment in lowest)
            if (
                block.segment != STALE
                and not block.by_undo
                and (elsewhere or lowest.get(block.segment, block.depth) < block.depth)
            ):
                again.append(block)
            if block.teaches:
                lowest[block.segment] = min(lowest.get(block.segment, block.depth), block.depth)
        again.reverse()
        return again, self._late_table(next((block.after for block in again if block.after), self._taught))

    def _look_again(self, blocks: list[PendingBlock], late: WatchTable) -> list[T]:
        """Search blocks for spends of the outpoints in `late`."""
        told: list[T] = []
        for block in blocks:
            if self._threads.closing:
                break
            try:
                hits = late.scan_block(self._feed.read(block))
            except _UNREADABLE as error:
                self._report.problems.append(Problem.of(self._feed.source.name(block.ref), error))
                continue
            if new := _new(block, hits):
                block.found += new
                told.append(self._tell(BlockHits(block.ref.hash, block.height, block.ref.time, new)))
        return told

    def _search_again(self, blocks: list[PendingBlock]) -> list[T]:
        """Search blocks for everything that is watched now, and return the items for new hits."""
        batch = _Batch([_Result(block, block.height) for block in blocks], known=self._growth.mark())
        if not self._scan_together(batch, ReadBuffer()):
            found = WatchTable()
            for result in batch.results:
                if self._threads.closing:
                    return []
                self._scan(result, found)
        told: list[T] = []
        for result in batch.results:
            block = result.block
            block.known = batch.known
            if result.hits is None:  # the file has changed since it was scanned
                self._report.problems += (Problem.of(where, error) for where, error in result.errors)
                continue
            if not (new := _new(block, unpack_hits(result.hits))):
                continue
            self._growth.learned(self._accept(new, block))
            if block.segment != STALE:
                told.append(self._tell(BlockHits(block.ref.hash, block.height, block.ref.time, new)))
        return told


def _scanned(table: WatchTable, raw: bytes, found: WatchTable | None = None, undo: bytes | None = None) -> bytes:
    """Return the packed hits of one block. Raises FormatError if it is malformed."""
    (outcome,) = table.scan_blocks([raw], found, False, [undo], packed=True)
    if isinstance(outcome, FormatError):
        raise outcome
    return outcome


def _new(block: PendingBlock, hits: list[Hit]) -> bytes:
    """Return the packed hits that a block did not have before."""
    had = {(hit.spend, hit.position, hit.n) for hit in unpack_hits(block.found)}
    return pack_hits(hit for hit in hits if (hit.spend, hit.position, hit.n) not in had)


def _united(packed: bytes, more: bytes) -> bytes:
    """Combine two sets of packed hits: each input and output once, in the order of a scan.

    A spend in `more` replaces a matched data push.
    """
    if not more:
        return packed
    united = {(hit.position, not hit.spend, hit.n): hit for hit in (*unpack_hits(packed), *unpack_hits(more))}
    return pack_hits(united[place] for place in sorted(united))
