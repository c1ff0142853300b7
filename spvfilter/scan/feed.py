"""In which order a scan takes its blocks: in chain order, as they arrive, or as declared. The scanning itself is scan.py's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.chain import link
from spvfilter.errors import OrderError
from spvfilter.network import Network
from spvfilter.primitives import Serializable, hash_to_hex
from spvfilter.scan.pull import pull
from spvfilter.scan.sources import PREFIX_SIZE, BlockRef, BlockSource, Problem, RawBlock, Readable, Spool, block_ref

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
else:
    futures = deferred("concurrent.futures")
    asyncio = deferred("asyncio")

BATCH_SIZE = 8_000_000  # bytes of blocks that one thread takes at a time: a millisecond or two of work
BATCH_BLOCKS = 256
STALE = -1  # the segment of a block off the best branches

AnyBlock = bytes | RawBlock | Serializable
RawBlocks = AsyncIterable[AnyBlock] | Iterable[AnyBlock]
T = TypeVar("T")


@public
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
    unproven: list[bytes] = field(default_factory=list)  # hashes that do not meet their bits, amid others that do: damaged headers
    problems: list[Problem] = field(default_factory=list)  # what could not be read
    done: bool = False


@dataclass(slots=True, eq=False)
class Block:
    """A block on its way through a scan."""

    ref: BlockRef
    height: int | None
    raw: bytes | None = None  # a stream's, until it is scanned
    segment: int = STALE  # number of the run of linked blocks it belongs to, and its place there; known when all headers are
    depth: int = 0
    silent: bool = False  # stale: it teaches what may be spent elsewhere, but gives no matches
    learned: int = 0  # outpoints learned when it had been scanned, its own included
    spends: frozenset[tuple[int, int]] = frozenset()  # (transaction, input) of those matched
    spares: tuple[BlockRef, ...] = ()  # other copies, should this one be damaged

    def copies(self) -> Iterator[BlockRef]:
        """Its copies one after the other, each being `ref` until the next is asked for."""
        yield self.ref
        for ref in self.spares:
            self.ref = ref
            yield ref


class Feed(ABC):
    """Batches of blocks in the order in which they are to be scanned. It keeps the part of the report that headers tell."""

    strict = True  # a block that cannot be read ends the scan
    endless = False  # blocks cannot be read a second time
    planned = False  # all blocks are known before the first is scanned

    def __init__(self, source: Readable, network: Network, report: ScanReport) -> None:
        self.source = source
        self._network = network
        self._report = report
        self._closing = False
        self._thread = futures.ThreadPoolExecutor(1, "spvfilter-read")

    @abstractmethod
    def batches(self) -> AsyncGenerator[list[Block]]:
        """To be iterated once. Raises FormatError, OrderError."""

    def read(self, block: Block) -> bytes:
        """A block's bytes, from any thread; those of a stream's block but once. Raises SourceError, OSError."""
        raw, block.raw = block.raw, None
        return self.source.read(block.ref) if raw is None else raw

    def close(self) -> None:
        self._closing = True
        self._thread.shutdown(cancel_futures=True)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)

    def _place(self, blocks: list[Block]) -> list[Block]:
        """Give the blocks their places in the chain; returns those on the best branches, in chain order."""
        order = link([block.ref for block in blocks], self._network)
        self._report.stale = [blocks[number].ref.hash for number in order.stale]
        self._report.segments = len(order.segments)
        self._report.unproven = [blocks[number].ref.hash for number in order.unproven]
        placed = []
        for number, segment in enumerate(order.segments):
            for depth, index in enumerate(segment.blocks):
                block = blocks[index]
                block.segment, block.depth = number, depth
                if segment.height is not None:
                    block.height = segment.height + depth
                placed.append(block)
        return placed

    @staticmethod
    def _silenced(blocks: Iterable[Block]) -> list[Block]:
        """Of placed blocks the stale ones, to be scanned without a word, in an order that does not depend on theirs."""
        stale = sorted((block for block in blocks if block.segment == STALE), key=lambda block: block.ref.hash)
        for block in stale:
            block.silent = True
        return stale


class PlannedFeed(Feed):
    """Blocks whose headers can be read first: in chain order."""

    planned = True

    def __init__(self, source: BlockSource, network: Network, report: ScanReport, *, strict: bool) -> None:
        super().__init__(source, network, report)
        self._index = source.index(network)
        self.strict = strict

    async def batches(self) -> AsyncGenerator[list[Block]]:
        for batch in batched(await self._call(self._plan)):
            yield batch

    def _plan(self) -> list[Block]:
        blocks: dict[bytes, Block] = {}
        for found in self._index:
            if self._closing:
                return []
            if isinstance(found, Problem):
                self._report.problems.append(found)
            elif found.hash in blocks:
                self._report.duplicates.append(found.hash)
                blocks[found.hash].spares += (found,)
            else:
                blocks[found.hash] = Block(found, found.height)
        placed = self._place(list(blocks.values()))
        self._report.bytes_total = sum(block.ref.size for block in placed)
        return self._silenced(blocks.values()) + placed  # first, so that what they teach is known in time


class _OneShotFeed(Feed):
    """Blocks that come but once."""

    def __init__(self, blocks: RawBlocks, network: Network, report: ScanReport) -> None:
        self._spool = Spool()
        super().__init__(self._spool, network, report)
        self._blocks = blocks

    def close(self) -> None:
        super().close()
        self._spool.close()

    async def _arrivals(self) -> AsyncGenerator[RawBlock]:
        if isinstance(self._blocks, AsyncIterable):
            async for item in self._blocks:
                yield item if isinstance(item, RawBlock) else await self._call(RawBlock.of, item)
        else:
            async with aclosing(pull(map(RawBlock.of, self._blocks))) as blocks:
                async for block in blocks:
                    yield block


class StreamFeed(_OneShotFeed):
    """Blocks as they come; of a second branch the blocks are held back until it is known which one is best."""

    def __init__(self, blocks: RawBlocks, network: Network, report: ScanReport) -> None:
        super().__init__(blocks, network, report)
        self._met: dict[bytes, Block] = {}
        self._held: set[bytes] = set()
        self._parents: set[bytes] = set()  # blocks whose child was passed on

    async def batches(self) -> AsyncGenerator[list[Block]]:
        async with aclosing(self._arrivals()) as arrivals:
            async for arrived in arrivals:
                if (block := await self._call(self._admit, arrived)) is not None:
                    yield [block]
        for batch in batched(await self._call(self._late)):
            yield batch

    def _admit(self, arrived: RawBlock) -> Block | None:
        """The block if it is to be scanned at once."""
        raw = arrived.raw
        ref = block_ref(raw[:PREFIX_SIZE], len(self._met), self._spool.size, len(raw), self._network, arrived.height)
        if ref.hash in self._met:
            self._report.duplicates.append(ref.hash)
            return None
        self._spool.put(raw)
        block = self._met[ref.hash] = Block(ref, _height(ref, arrived, self._met.get(ref.previous), self._network), raw)
        if ref.previous in self._parents or ref.previous in self._held:
            self._held.add(ref.hash)
            block.raw = None
            return None
        self._parents.add(ref.previous)
        return block

    def _late(self) -> list[Block]:
        """The blocks held back: those off the best branches, then those on them."""
        placed = self._place(list(self._met.values()))
        held = [self._met[digest] for digest in self._held]
        return self._silenced(held) + [block for block in placed if block.ref.hash in self._held]


class OrderedFeed(_OneShotFeed):
    """Blocks that are said to follow each other, perhaps without end. Nothing is spooled."""

    endless = True

    async def batches(self) -> AsyncGenerator[list[Block]]:
        last: Block | None = None
        async with aclosing(self._arrivals()) as arrivals:
            async for arrived in arrivals:
                raw = arrived.raw
                ref = block_ref(raw[:PREFIX_SIZE], 0, 0, len(raw), self._network, arrived.height)
                if last is not None and ref.previous != last.ref.hash:
                    raise OrderError(f"block {hash_to_hex(ref.hash)} does not follow {hash_to_hex(last.ref.hash)}")
                last = Block(ref, _height(ref, arrived, last, self._network), raw)
                yield [last]


def _height(ref: BlockRef, arrived: RawBlock, before: Block | None, network: Network) -> int | None:
    """Of a block as it comes: given, counted, or stated by itself."""
    if arrived.height is not None:
        return arrived.height
    if ref.hash == network.genesis_hash:
        return 0
    return ref.height if before is None or before.height is None else before.height + 1


def batched(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Runs of blocks that one thread takes at a time."""
    batch: list[Block] = []
    size = 0
    for block in blocks:
        if batch and (size + block.ref.size > BATCH_SIZE or len(batch) >= BATCH_BLOCKS):
            yield batch
            batch, size = [], 0
        batch.append(block)
        size += block.ref.size
    if batch:
        yield batch
