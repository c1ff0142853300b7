"""One scan over many blocks: threads that scan and merge in order, learning, and a second pass for what came too late. Not an API.

Why the set of matches does not depend on the order in which blocks come: a spend is found by its outpoint, which the list learns
when it sees the output. Blocks are put in chain order where their headers link them, and a block that was scanned before an
outpoint was learned from one that does not follow it in the chain is read a second time, for its inputs alone.

Several threads: each scans against what the list knows by then, at least what it knew when the batch began. The merge, in order,
tests the inputs of every block again against the outpoints learned since that beginning. Whichever thread has scanned the batch
that is next merges it, and those behind it that were waiting; no thread waits for another.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from spvfilter.chain import is_proven
from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import BACKEND, NO_ENTRY, Coin, EntryKind, Hit, WatchTable, check_block
from spvfilter.scan.feed import STALE, Block, Feed, ScanReport, batched
from spvfilter.scan.sources import Problem
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

T = TypeVar("T")
_UNREADABLE = (FormatError, SourceError, OSError)


@dataclass(slots=True)
class _Result:
    block: Block
    height: int | None  # the block's, as known when it was passed on
    raw: bytes = b""
    hits: Sequence[Hit] | None = None  # None for a block that cannot be read
    errors: list[tuple[str, Exception]] = field(default_factory=list)  # where, what; of each copy that cannot be read


@dataclass(slots=True)
class _Batch:
    number: int
    results: list[_Result]
    learned: int = 0  # outpoints learned when its scan began
    merged: Future[tuple[list[Match], Exception | None]] = field(default_factory=Future)


class Scan:
    """The state of one scan."""

    def __init__(self, watch: WatchList, feed: Feed, report: ScanReport, *, jobs: int, check: bool) -> None:
        self._watch = watch
        self._feed = feed
        self._report = report
        self._jobs = 1 if BACKEND == "pure" else jobs  # threads that hold the GIL gain nothing by being many, the event loop loses
        self._check = check
        self._closing = False
        self._coins: list[tuple[bytes, Coin]] = []  # what the blocks taught, in order, though the list may have known it
        self._taught: set[bytes] = set()  # the outpoints of these
        self._scanned: list[Block] = []
        self._turn = threading.Lock()  # of the one thread that changes the state above, that below, and the watch list
        self._ready: dict[int, _Batch] = {}  # scanned, by number
        self._next = 0  # the number of the batch that is merged next
        self._workers = ThreadPoolExecutor(self._jobs, "spvfilter-scan")

    async def aclose(self) -> None:
        """Wait for the threads that still scan; nothing touches the watch list afterwards."""
        self._closing = True
        closing = asyncio.create_task(asyncio.to_thread(self._close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing  # no thread outlives the scan
            raise

    def _close(self) -> None:
        self._workers.shutdown(cancel_futures=True)
        self._feed.close()

    async def matches(self) -> AsyncGenerator[Match]:
        """Scan what the feed gives, with one batch more than jobs under way. To be iterated once."""
        waiting: asyncio.Queue[_Batch | None] = asyncio.Queue()  # bounded by `free`
        free = asyncio.Semaphore(self._jobs + 1)
        feeder = asyncio.create_task(self._submit(waiting, free))
        try:
            while (batch := await waiting.get()) is not None:
                matches, error = await asyncio.wrap_future(batch.merged)
                free.release()
                for match in matches:
                    yield match
                if error is not None:
                    raise error
            await feeder  # raises what has ended the feed
            again, late = await self._in_thread(self._too_early)
            for blocks in batched(again):
                for match in await self._in_thread(self._look_again, blocks, late):
                    yield match
        finally:
            feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)

    async def _submit(self, waiting: asyncio.Queue[_Batch | None], free: asyncio.Semaphore) -> None:
        number = 0
        try:
            async with aclosing(self._feed.batches()) as batches:
                async for blocks in batches:
                    batch = _Batch(number, [_Result(block, block.height) for block in blocks])
                    batch.merged.set_running_or_notify_cancel()  # so that it cannot be cancelled with whoever waits
                    await free.acquire()
                    self._workers.submit(self._work, batch)
                    waiting.put_nowait(batch)
                    number += 1
        finally:
            waiting.put_nowait(None)

    async def _in_thread(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, call, *args)

    def _work(self, batch: _Batch) -> None:
        """In a thread: read and scan a batch, which changes nothing but it, and merge what is next."""
        try:
            batch.learned = len(self._coins)  # before the scan: the watch list is taught first, so the scan sees at least these
            found = WatchTable()
            for result in batch.results:
                if self._closing:
                    return
                self._scan(result, found)
        except BaseException as error:
            batch.merged.set_exception(error)
        else:
            self._take_turn(batch)

    def _take_turn(self, batch: _Batch) -> None:
        with self._turn:
            self._ready[batch.number] = batch
            while not self._closing and (ready := self._ready.pop(self._next, None)) is not None:
                try:
                    merged = self._merge(ready)
                except BaseException as error:
                    ready.merged.set_exception(error)
                    return
                if merged[1] is None:
                    self._next += 1  # else it was the last
                ready.merged.set_result(merged)

    def _scan(self, result: _Result, found: WatchTable) -> None:
        for ref in result.block.copies():
            try:
                raw = self._feed.read(result.block)
                if self._check:
                    if not is_proven(ref):
                        raise FormatError("the hash does not meet them", offset=72, field="bits")
                    check_block(raw)
                result.hits = self._watch.table.scan_block(raw, found)
                result.raw = raw
                break
            except _UNREADABLE as error:
                result.errors.append((self._feed.source.name(ref), error))

    def _merge(self, batch: _Batch) -> tuple[list[Match], Exception | None]:
        """In order: add the spends of outpoints learned since the scan began, learn, and make matches."""
        late = None if batch.learned == len(self._coins) else self._late_table(batch.learned)
        matches: list[Match] = []
        for result in batch.results:
            block = result.block
            for where, error in result.errors:
                if self._feed.strict:
                    return matches, error
                self._report.problems.append(Problem.of(where, error))
            if result.hits is None:
                continue
            hits = result.hits if late is None else _united(result.hits, late.scan_block(result.raw))
            found = self._accept(hits, block, result.height)
            block.learned = len(self._coins)
            if not self._feed.endless:
                self._scanned.append(block)
            if block.silent:
                continue
            matches += found
            self._report.blocks += 1
            self._report.bytes_scanned += len(result.raw)
        return matches, None

    def _late_table(self, since: int) -> WatchTable:
        """The outpoints learned since, alone."""
        table = WatchTable()
        for outpoint, coin in self._coins[since:]:
            table.set_coin(outpoint, coin.entry, coin.value, coin.script)
        return table

    def _accept(self, hits: Sequence[Hit], block: Block, height: int | None) -> list[Match]:
        if not hits:
            return []
        table = self._watch.table
        table.learn(hits)  # first: see _work
        for hit in hits:
            if not hit.spend and hit.outpoint not in self._taught:
                self._taught.add(hit.outpoint)
                by_hand = table.find(EntryKind.OUTPOINT, hit.outpoint)
                entry = hit.entry if by_hand == NO_ENTRY else by_hand
                self._coins.append((hit.outpoint, Coin(entry, hit.value, hit.script)))
        block.spends = frozenset((hit.position, hit.n) for hit in hits if hit.spend)
        return self._watch.matches(hits, block_hash=block.ref.hash, height=height)

    def _too_early(self) -> tuple[list[Block], WatchTable]:
        """The blocks that were scanned before one which they may stand upon, as far as headers tell, had taught its outpoints.

        And all outpoints that any of them may have missed. A block that turned out stale is not looked at again, but what it
        taught may have been spent anywhere: its transactions are also in the best branch, where they taught nothing new.
        """
        again: list[Block] = []
        lowest: dict[int, int] = {}  # segment → least depth of the blocks scanned later that learned something
        before = [0, *(block.learned for block in self._scanned)]
        for number in range(len(self._scanned) - 1, -1, -1):
            block = self._scanned[number]
            elsewhere = len(lowest) > (block.segment in lowest)
            if block.segment != STALE and (elsewhere or lowest.get(block.segment, block.depth) < block.depth):
                again.append(block)
            if block.learned > before[number]:
                lowest[block.segment] = min(lowest.get(block.segment, block.depth), block.depth)
        again.reverse()
        return again, self._late_table(min((block.learned for block in again), default=len(self._coins)))

    def _look_again(self, blocks: list[Block], late: WatchTable) -> list[Match]:
        matches: list[Match] = []
        for block in blocks:
            if self._closing:
                break
            try:
                hits = late.scan_block(self._feed.read(block))
            except _UNREADABLE as error:
                self._report.problems.append(Problem.of(self._feed.source.name(block.ref), error))
                continue
            new = [hit for hit in hits if (hit.position, hit.n) not in block.spends]
            matches += self._watch.matches(new, block_hash=block.ref.hash, height=block.height)
        return matches


def _united(hits: Iterable[Hit], more: Iterable[Hit]) -> list[Hit]:
    """Both, each input and output once, in the order of one scan. What `more` knows of an input goes before a matched push."""
    united = {(hit.position, not hit.spend, hit.n): hit for hit in (*hits, *more)}
    return [united[place] for place in sorted(united)]
