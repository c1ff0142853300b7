"""One scan over many blocks: threads that scan and merge in order, learning, and a second pass for what came too late. Not an API.

Why the set of matches does not depend on the order in which blocks come: a spend is found by its outpoint, which the list learns
when it sees the output. Blocks are put in chain order where their headers link them, and a block that was scanned before an
outpoint was learned from one that does not follow it in the chain is read a second time, for its inputs alone.

Several threads: each scans against what the list knows by then, at least what it knew when the batch began. The merge, in order,
tests the inputs of every block again against the outpoints learned since that beginning.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred
from spvfilter.chain import is_proven
from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import BACKEND, NO_ENTRY, Coin, EntryKind, Hit, ReadBuffer, WatchTable, check_block
from spvfilter.scan.feed import STALE, Block, Feed, ScanReport, batched
from spvfilter.scan.pipeline import Pipeline
from spvfilter.scan.sources import Problem
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_UNREADABLE = (FormatError, SourceError, OSError)


@dataclass(slots=True)
class _Result:
    block: Block
    height: int | None  # the block's, as known when it was passed on
    raw: bytes | None = None  # unless it lies in a file, from which it can be read again
    hits: Sequence[Hit] | None = None  # None for a block that cannot be read
    errors: list[tuple[str, Exception]] = field(default_factory=list)  # where, what; of each copy that cannot be read


@dataclass(slots=True)
class _Batch:
    results: list[_Result]
    learned: int = 0  # outpoints learned when its scan began


class Scan:
    """The state of one scan."""

    def __init__(self, watch: WatchList, feed: Feed, report: ScanReport, *, jobs: int, check: bool) -> None:
        self._watch = watch
        self._feed = feed
        self._report = report
        self._jobs = 1 if BACKEND == "pure" else jobs  # threads that hold the GIL gain nothing by being many, the event loop loses
        self._check = check
        self._coins: list[tuple[bytes, Coin]] = []  # what the blocks taught, in order, though the list may have known it
        self._taught: set[bytes] = set()  # the outpoints of these
        self._scanned: list[Block] = []
        self._threads: Pipeline[_Batch, list[Match]] = Pipeline(self._jobs, self._work, self._merge)
        self._is_done = False  # with every block, so the threads are idle

    async def aclose(self) -> None:
        """Wait for the threads that still scan; nothing touches the watch list afterwards."""
        if self._is_done:
            self._close()
            return
        self._threads.closing = True
        closing = asyncio.create_task(asyncio.to_thread(self._close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing  # no thread outlives the scan
            raise

    def _close(self) -> None:
        self._threads.close()
        self._feed.close()

    async def matches(self) -> AsyncGenerator[Match]:
        """Scan what the feed gives. To be iterated once."""
        free = asyncio.Semaphore(self._jobs + 1)  # blocks of a stream that are taken from it before their results are
        feeder = asyncio.create_task(self._submit(free))
        try:
            async with aclosing(self._threads.results()) as results:
                async for matches in results:
                    free.release()
                    for match in matches:
                        yield match
            await feeder  # raises what has ended the feed
            if self._coins:
                again, late = await self._threads.in_thread(self._too_early)
                for blocks in batched(again):
                    for match in await self._threads.in_thread(self._look_again, blocks, late):
                        yield match
            self._is_done = True
        finally:
            feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)

    async def _submit(self, free: asyncio.Semaphore) -> None:
        try:
            async with aclosing(self._feed.batches()) as batches:
                async for blocks in batches:
                    if not self._feed.planned:
                        await free.acquire()
                    self._threads.put(_Batch([_Result(block, block.height) for block in blocks]))
        finally:
            self._threads.finish()

    def _work(self, batch: _Batch, buffer: ReadBuffer) -> None:
        """In a thread: read and scan a batch, which changes nothing but it."""
        batch.learned = len(self._coins)  # before the scan: the watch list is taught first, so the scan sees at least these
        if not self._scan_together(batch, buffer):
            found = WatchTable()
            for result in batch.results:
                if self._threads.closing:
                    return
                self._scan(result, found)

    def _scan_together(self, batch: _Batch, buffer: ReadBuffer) -> bool:
        """The scan in one call of the kernel; False if a block cannot be read or is malformed, and nothing is scanned."""
        if self._check and not all(is_proven(result.block.ref) for result in batch.results):
            return False
        together = self._hits(batch.results, self._watch.table, buffer, WatchTable(), self._check)
        if together is None:
            return False
        for result, hits in zip(batch.results, together, strict=True):
            result.hits = hits
        return True

    def _hits(
        self, results: list[_Result], table: WatchTable, buffer: ReadBuffer, found: WatchTable | None = None, check: bool = False
    ) -> list[list[Hit]] | None:
        """Of each block its hits, in one call of the kernel; None if there is a block without."""
        with self._feed.source.opened([result.block.ref for result in results]) as places:
            if places is not None:
                outcomes = table.scan_files(places, buffer, found, check)
            elif self._read(results):
                outcomes = list(table.scan_blocks([result.raw or b"" for result in results], found, check))
            else:
                return None
        hits = [outcome for outcome in outcomes if isinstance(outcome, list)]
        return hits if len(hits) == len(results) else None

    def _read(self, results: list[_Result]) -> bool:
        """Have the bytes of blocks in memory; False if one cannot be read."""
        for result in results:
            if self._threads.closing:
                return False
            try:
                if result.raw is None:
                    result.raw = self._feed.read(result.block)
            except _UNREADABLE:
                return False
        return True

    def _scan(self, result: _Result, found: WatchTable) -> None:
        """The scan of one block, in which its copies stand in for each other."""
        raw, result.raw = result.raw, None
        for ref in result.block.copies():
            try:
                if raw is None:
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
                raw = None

    def _merge(self, batch: _Batch, buffer: ReadBuffer) -> list[Match] | None:
        """In order: add the spends of outpoints learned since the scan began, learn, and make matches. Raises what ends the scan."""
        late = self._late_hits(batch, buffer)
        matches: list[Match] = []
        for number, result in enumerate(batch.results):
            block = result.block
            for where, error in result.errors:
                if self._feed.strict:
                    self._threads.tell(matches)
                    raise error
                self._report.problems.append(Problem.of(where, error))
            if result.hits is None:
                continue
            hits = result.hits if late is None else _united(result.hits, late[number])
            found = self._accept(hits, block, result.height)
            block.learned = len(self._coins)
            if not self._feed.endless:
                self._scanned.append(block)
            if block.silent:
                continue
            matches += found
            self._report.blocks += 1
            self._report.bytes_scanned += block.ref.size
        return matches if matches or not self._feed.planned else None

    def _late_hits(self, batch: _Batch, buffer: ReadBuffer) -> list[list[Hit]] | None:
        """Of each block the spends of outpoints learned since the scan began; None if there are no such outpoints."""
        if batch.learned == len(self._coins):
            return None
        late = self._late_table(batch.learned)
        together = self._hits(batch.results, late, buffer)
        return [self._late_hits_of(result, late) for result in batch.results] if together is None else together

    def _late_hits_of(self, result: _Result, late: WatchTable) -> list[Hit]:
        try:
            return [] if result.hits is None else late.scan_block(self._feed.read(result.block) if result.raw is None else result.raw)
        except _UNREADABLE as error:  # the file has changed since it was scanned
            result.errors.append((self._feed.source.name(result.block.ref), error))
            return []

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
            if self._threads.closing:
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
