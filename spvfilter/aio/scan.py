"""One scan over many blocks: threads that scan, a merge in order that learns, a second pass for what came too late. Not an API.

Why the set of matches does not depend on the order in which blocks come: a spend is found by its outpoint, which the list learns
when it sees the output. Blocks are put in chain order where their headers link them, and a block that was scanned before an
outpoint was learned from one that does not follow it in the chain is read a second time, for its inputs alone.

Several threads: each scans against what the list knew when it began. The merge, in order, tests the inputs of every block again against
the outpoints learned since then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from spvfilter.aio.sources import PREFIX_SIZE, BlockRef, BlockSource, Problem, RawBlock, Readable, Spool, block_ref
from spvfilter.chain import Order, link
from spvfilter.errors import FormatError, OrderError, SourceError
from spvfilter.kernel import NO_VALUE, Coin, Hit, WatchTable, check_block
from spvfilter.primitives import Serializable, hash_to_hex, to_bytes
from spvfilter.watch import Match, WatchList

BATCH_SIZE = 1 << 20  # bytes of blocks that one thread takes at a time
BATCH_BLOCKS = 256

RawBlocks = AsyncIterable[bytes | RawBlock | Serializable] | Iterable[bytes | RawBlock | Serializable]
T = TypeVar("T")
_END = object()


@dataclass(slots=True)
class ScanReport:
    """What a scan has done so far; it is updated as the scan goes."""

    blocks: int = 0  # scanned, each counted once
    bytes_scanned: int = 0  # of those blocks
    bytes_total: int | None = None  # to scan, where known
    matches: int = 0
    segments: int = 0  # runs of blocks that are not linked with each other
    duplicates: list[bytes] = field(default_factory=list)  # hashes of blocks met again, not counted
    stale: list[bytes] = field(default_factory=list)  # hashes of blocks off the best branch, not counted
    problems: list[Problem] = field(default_factory=list)  # what could not be read
    done: bool = False


@dataclass(slots=True)
class _Block:
    """A block on its way through the scan."""

    ref: BlockRef
    height: int | None
    raw: bytes | None = None  # a stream's, until it is scanned
    learned: int = 0  # outpoints learned when it had been merged, its own included


@dataclass(slots=True)
class _Result:
    block: _Block
    raw: bytes = b""
    hits: Sequence[Hit] = ()
    error: Exception | None = None


@dataclass(slots=True)
class _Batch:
    results: list[_Result]
    learned: int  # outpoints learned when its scan began


class Scan:
    """The state of one scan."""

    def __init__(self, watch: WatchList, report: ScanReport, *, jobs: int, check: bool) -> None:
        self._watch = watch
        self._report = report
        self._jobs = jobs
        self._check = check
        self._learned: dict[bytes, int] = {}  # outpoint → how many were learned before it
        self._coins: list[tuple[bytes, Coin]] = []  # the same, in order
        self._vague: set[tuple[bytes, int]] = set()  # inputs matched by a push, the outpoint unknown
        self._scanned: list[_Block] = []
        self._workers = ThreadPoolExecutor(jobs, "spvfilter-scan")
        self._merger = ThreadPoolExecutor(1, "spvfilter-merge")  # in order; also links and spools
        self._reader = ThreadPoolExecutor(1, "spvfilter-read")  # a plain iterable may block in next()

    async def aclose(self) -> None:
        """Wait for the threads that still scan; nothing touches the watch list afterwards."""
        self._reader.shutdown(wait=False, cancel_futures=True)
        for executor in (self._workers, self._merger):
            executor.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(executor.shutdown)

    async def planned(self, source: BlockSource, *, strict: bool) -> AsyncGenerator[Match]:
        """Matches in the blocks of a source, in chain order; with `strict` the first malformed one raises."""
        network = self._watch.network
        indexed = await self._in(self._merger, source.index, network)
        self._report.problems.extend(source.problems)
        refs = list(self._without_duplicates(indexed))
        order = await self._in(self._merger, link, refs, network)
        self._report.stale = [refs[number].hash for number in order.stale]
        self._report.segments = len(order.segments)
        self._report.bytes_total = sum(refs[number].size for segment in order.segments for number in segment.blocks)
        blocks = (
            _Block(refs[number], None if segment.height is None else segment.height + depth)
            for segment in order.segments
            for depth, number in enumerate(segment.blocks)
        )
        async for match in self._pipeline(source, _batches(blocks), strict):
            yield match
        places = {refs[number].hash: place for number, place in _places(order)}
        async for match in self._second_pass(source, places):
            yield match

    def _without_duplicates(self, refs: Iterable[BlockRef]) -> Iterator[BlockRef]:
        seen: set[bytes] = set()
        for ref in refs:
            if ref.hash in seen:
                self._report.duplicates.append(ref.hash)
            else:
                seen.add(ref.hash)
                yield ref

    async def stream(self, blocks: RawBlocks) -> AsyncGenerator[Match]:
        """Matches in a one-shot iterable as it comes; at its end what its order has hidden."""
        network = self._watch.network
        spool = Spool()
        met: dict[bytes, _Block] = {}
        held: dict[bytes, _Block] = {}  # blocks of a second branch
        parents: set[bytes] = set()  # blocks whose child was scanned

        async def arrivals() -> AsyncIterator[list[_Block]]:
            async for raw, height in self._items(blocks):
                ref = block_ref(raw[:PREFIX_SIZE], len(met), 0, len(raw), network, height)
                if ref.hash in met:
                    self._report.duplicates.append(ref.hash)
                    continue
                offset = await self._in(self._merger, spool.put, raw)
                above = met.get(ref.previous)
                if ref.hash == network.genesis_hash:
                    known: int | None = 0
                elif above is not None and above.height is not None and height is None:
                    known = above.height + 1
                else:
                    known = ref.height
                ref = BlockRef(ref.file, offset, ref.size, ref.hash, ref.previous, ref.bits, ref.time, known)
                block = met[ref.hash] = _Block(ref, known, raw)
                if ref.previous in parents or ref.previous in held:
                    held[ref.hash] = block
                    block.raw = None
                else:
                    parents.add(ref.previous)
                    yield [block]

        try:
            async for match in self._pipeline(spool, arrivals(), strict=True):
                yield match
            order = await self._in(self._merger, link, [block.ref for block in met.values()], network)
            hashes = list(met)
            self._report.stale = [hashes[number] for number in order.stale]
            self._report.segments = len(order.segments)
            places = {hashes[number]: place for number, place in _places(order)}
            late = sorted((block for block in held.values() if block.ref.hash in places), key=lambda block: places[block.ref.hash])
            async for match in self._pipeline(spool, _batches(late), strict=True):
                yield match
            async for match in self._second_pass(spool, places):
                yield match
        finally:
            await self._in(self._merger, spool.close)

    async def follow(self, blocks: RawBlocks) -> AsyncGenerator[Match]:
        """Matches in an endless iterable of blocks in chain order. Raises OrderError where one does not follow the last."""
        network = self._watch.network
        nothing = Spool()

        async def arrivals() -> AsyncIterator[list[_Block]]:
            last: _Block | None = None
            async for raw, height in self._items(blocks):
                ref = block_ref(raw[:PREFIX_SIZE], 0, 0, len(raw), network, height)
                known = 0 if ref.hash == network.genesis_hash else ref.height
                if last is not None:
                    if ref.previous != last.ref.hash:
                        raise OrderError(f"block {hash_to_hex(ref.hash)} does not follow {hash_to_hex(last.ref.hash)}")
                    if last.height is not None and height is None:
                        known = last.height + 1
                last = _Block(ref, known, raw)
                yield [last]

        async for match in self._pipeline(nothing, arrivals(), strict=True, keep=False):
            yield match

    async def _items(self, blocks: RawBlocks) -> AsyncIterator[tuple[bytes, int | None]]:
        async for item in blocks if isinstance(blocks, AsyncIterable) else self._read(blocks):
            yield (item.raw, item.height) if isinstance(item, RawBlock) else (to_bytes(item), None)

    async def _read(self, blocks: Iterable[bytes | RawBlock | Serializable]) -> AsyncIterator[bytes | RawBlock | Serializable]:
        iterator = iter(blocks)
        while (item := await self._in(self._reader, _next, iterator)) is not _END:
            yield item  # type: ignore[misc]  # not _END, so an item

    async def _in(self, executor: ThreadPoolExecutor, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(executor, call, *args)

    async def _pipeline(
        self, source: Readable, batches: AsyncIterator[list[_Block]] | Iterator[list[_Block]], strict: bool, keep: bool = True
    ) -> AsyncGenerator[Match]:
        """Scan batches in the threads, at most `jobs` waiting, and merge their results in order."""
        waiting: asyncio.Queue[Future[_Batch] | None] = asyncio.Queue()  # bounded by `free`
        # with one job the next batch begins when this one is merged: nothing is ever learned too late
        free = asyncio.Semaphore(1 if self._jobs == 1 else self._jobs + 1)

        async def feed() -> None:
            try:
                if isinstance(batches, AsyncIterator):
                    async for batch in batches:
                        await submit(batch)
                else:
                    for batch in batches:
                        await submit(batch)
            finally:
                waiting.put_nowait(None)

        async def submit(batch: list[_Block]) -> None:
            await free.acquire()
            waiting.put_nowait(self._workers.submit(self._work, source, batch))

        feeder = asyncio.create_task(feed())
        try:
            while (future := await waiting.get()) is not None:
                batch = await asyncio.wrap_future(future)
                matches, error = await self._in(self._merger, self._merge, source, batch, strict, keep)
                free.release()
                for match in matches:
                    yield match
                if error is not None:
                    raise error
            await feeder
        finally:
            if not feeder.done():
                feeder.cancel()
            await asyncio.gather(feeder, return_exceptions=True)

    def _work(self, source: Readable, blocks: list[_Block]) -> _Batch:
        """In a thread: read and scan. Changes nothing but its own results."""
        batch = _Batch([], len(self._coins))
        found = WatchTable()
        for block in blocks:
            result = _Result(block)
            batch.results.append(result)
            try:
                result.raw = block.raw if block.raw is not None else source.read(block.ref)
                block.raw = None
                if self._check:
                    check_block(result.raw)
                result.hits = self._watch.table.scan_block(result.raw, found)
            except (FormatError, SourceError, OSError) as error:
                result.error = error
        return batch

    def _merge(self, source: Readable, batch: _Batch, strict: bool, keep: bool) -> tuple[list[Match], Exception | None]:
        """In one thread, in order: add the spends of outpoints learned since the scan began, learn, and make matches."""
        late = self._late_table(batch.learned)
        matches: list[Match] = []
        for result in batch.results:
            block = result.block
            if result.error is not None:
                if strict:
                    return matches, result.error
                self._report.problems.append(Problem(source.name(block.ref), _message(result.error)))
                continue
            hits = result.hits
            if late is not None:
                hits = _united(hits, late.scan_block(result.raw))
            matches += self._accept(hits, block)
            block.learned = len(self._coins)
            if keep:
                self._scanned.append(block)
            self._report.blocks += 1
            self._report.bytes_scanned += len(result.raw)
        return matches, None

    def _late_table(self, since: int) -> WatchTable | None:
        """The outpoints learned since, alone."""
        if since == len(self._coins):
            return None
        table = WatchTable()
        for outpoint, coin in self._coins[since:]:
            table.set_coin(outpoint, coin.entry, coin.value, coin.script)
        return table

    def _accept(self, hits: Sequence[Hit], block: _Block) -> list[Match]:
        if not hits:
            return []
        for hit in self._watch.table.learn(hits):
            self._learned[hit.outpoint] = len(self._coins)
            self._coins.append((hit.outpoint, Coin(hit.entry, hit.value, hit.script)))
        self._vague.update((hit.txid, hit.n) for hit in hits if hit.spend and hit.value == NO_VALUE)
        return self._watch.matches(hits, block_hash=block.ref.hash, height=block.height)

    async def _second_pass(self, source: Readable, places: dict[bytes, tuple[int, int]]) -> AsyncGenerator[Match]:
        """Spends in blocks that were scanned before their outpoint was learned; `places` are (segment, depth) by block hash."""
        again = self._too_early(places)
        late = self._late_table(min((block.learned for block in again), default=len(self._coins)))
        if late is None:
            return
        for batch in _batches(again):
            found, problems = await self._in(self._merger, self._look_again, source, batch, late)
            self._report.problems.extend(problems)
            for match in found:
                yield match

    def _too_early(self, places: dict[bytes, tuple[int, int]]) -> list[_Block]:
        """The blocks that were merged before one which they may stand upon, as far as headers tell, had taught its outpoints."""
        again: list[_Block] = []
        lowest: dict[int, int] = {}  # segment → least depth of the blocks merged later that learned something
        before = [0, *(block.learned for block in self._scanned)]
        for number in range(len(self._scanned) - 1, -1, -1):
            block = self._scanned[number]
            place = places.get(block.ref.hash)
            if place is None:  # stale after all
                continue
            segment, depth = place
            if len(lowest) > (segment in lowest) or lowest.get(segment, depth) < depth:
                again.append(block)
            if block.learned > before[number]:
                lowest[segment] = min(lowest.get(segment, depth), depth)
        again.reverse()
        return again

    def _look_again(self, source: Readable, blocks: list[_Block], late: WatchTable) -> tuple[list[Match], list[Problem]]:
        matches: list[Match] = []
        problems: list[Problem] = []
        for block in blocks:
            try:
                hits = late.scan_block(source.read(block.ref))
            except (FormatError, SourceError, OSError) as error:
                problems.append(Problem(source.name(block.ref), _message(error)))
                continue
            new = [hit for hit in hits if self._learned[hit.outpoint] >= block.learned and (hit.txid, hit.n) not in self._vague]
            matches += self._watch.matches(new, block_hash=block.ref.hash, height=block.height)
        return matches, problems


def _next(iterator: Iterator[object]) -> object:
    return next(iterator, _END)


def _message(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _united(hits: Sequence[Hit], more: Sequence[Hit]) -> Sequence[Hit]:
    """Both, each input and output once, in the order of one scan."""
    known = {(hit.spend, hit.position, hit.n) for hit in hits}
    new = [hit for hit in more if (hit.spend, hit.position, hit.n) not in known]
    return sorted((*hits, *new), key=lambda hit: (hit.position, not hit.spend, hit.n)) if new else hits


def _batches(blocks: Iterable[_Block]) -> Iterator[list[_Block]]:
    batch: list[_Block] = []
    size = 0
    for block in blocks:
        if batch and (size + block.ref.size > BATCH_SIZE or len(batch) >= BATCH_BLOCKS):
            yield batch
            batch, size = [], 0
        batch.append(block)
        size += block.ref.size
    if batch:
        yield batch


def _places(order: Order) -> Iterator[tuple[int, tuple[int, int]]]:
    """For each block on a best branch: its number, and (segment, depth)."""
    for segment_number, segment in enumerate(order.segments):
        for depth, number in enumerate(segment.blocks):
            yield number, (segment_number, depth)
