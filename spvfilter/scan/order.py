"""The order in which a scan takes its blocks: chain order, order of arrival, or the order declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.chain import link
from spvfilter.errors import OrderError, SourceError
from spvfilter.network import Network
from spvfilter.primitives import Serializable, hash_to_hex
from spvfilter.scan.pull import pull
from spvfilter.scan.sources import (
    PREFIX_SIZE,
    BlockRef,
    BlockSource,
    BlockSpan,
    Problem,
    RawBlock,
    Readable,
    Spool,
    block_ref,
)
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
else:
    futures = deferred("concurrent.futures")
    asyncio = deferred("asyncio")

BATCH_SIZE = 8_000_000  # bytes of blocks that one thread takes at a time: a millisecond or two of work
BATCH_BLOCKS = 256
STALE = -1  # the segment number of a block that is not on a best branch

AnyBlock = bytes | RawBlock | Serializable
RawBlocks = AsyncIterable[AnyBlock] | Iterable[AnyBlock]
T = TypeVar("T")


@public
@dataclass(slots=True)
class ScanReport:
    """What a scan has done so far. It is updated while the scan runs."""

    blocks: int = 0
    """Scanned; each counts once."""
    bytes_scanned: int = 0
    """Of those blocks."""
    bytes_total: int | None = None
    """To scan; None if it is not known."""
    matches: int = 0
    segments: int = 0
    """Runs of linked blocks."""
    duplicates: list[bytes] = field(default_factory=list)
    """Hashes of further copies of a block, which do not count."""
    stale: list[bytes] = field(default_factory=list)
    """Hashes of blocks that are not on the best branch, which do not count."""
    unproven: list[bytes] = field(default_factory=list)
    """Hashes that miss their target, beside others that meet it: damaged headers."""
    problems: list[Problem] = field(default_factory=list)
    """What could not be read."""
    late_scripts: int = 0
    """In an endless stream: scripts of keychains that earlier blocks were not searched for."""
    done: bool = False
    by_undo: int = 0
    """Of the blocks: those matched with their undo records."""
    without_undo: list[bytes] = field(default_factory=list)
    """Hashes of those that spend and have none, if undo records were looked for."""
    undo_problems: list[Problem] = field(default_factory=list)
    """Records that could not be used; their blocks went by outpoints."""
    unseen: int = 0
    """Blocks whose spends of coins from before these blocks cannot be seen: no undo record, and not all blocks
    before.
    """


@dataclass(slots=True, eq=False)
class PendingBlock:
    """A block that is to be scanned, and what the scan learns about it."""

    ref: BlockRef
    height: int | None
    raw: bytes | None = None
    """In a stream, until it is scanned."""
    segment: int = STALE
    """The number of its run of linked blocks; known once all headers are."""
    depth: int = 0
    """Its index in that run."""
    silent: bool = False
    """Stale: its outputs are learned, as they may be spent elsewhere, but it gives no matches."""
    learned: int = 0
    """The number of blocks that had taught outpoints up to and including this one."""
    found: bytes = b""
    """Its hits, packed, if it may be searched again."""
    known: tuple[int, int] = (0, 0)
    """What its last search knew of what keychains' windows have gained (Growth)."""
    spares: tuple[BlockRef, ...] = ()
    """Other copies, in case this one is damaged."""
    by_undo: bool = False
    """It was matched with its undo record, so that outpoints learned later add nothing."""
    rooted: bool = False
    """Its run of blocks begins with the genesis block or the one after it."""

    @property
    def is_blind(self) -> bool:
        """Whether it may spend coins from before its run of blocks, which cannot be seen."""
        return not (self.rooted or self.by_undo or self.segment == STALE or self.ref.transactions == 1)

    def copies(self) -> Iterator[BlockRef]:
        """Yield its copies. Each one is `ref` until the next is requested."""
        yield self.ref
        for ref in self.spares:
            self.ref = ref
            yield ref


class Feed(ABC):
    """Batches of blocks in the order in which they are to be scanned.

    It fills in what the report says about headers.
    """

    strict = True  # an unreadable block ends the scan
    endless = False  # no block can be read a second time
    planned = False  # all blocks are known before the first is scanned

    def __init__(self, source: Readable, network: Network, report: ScanReport) -> None:
        self.source = source
        self._network = network
        self._report = report
        self._closing = False
        self._thread = futures.ThreadPoolExecutor(1, "spvfilter-read")

    @abstractmethod
    def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        """To be iterated once. Raises FormatError, OrderError."""

    def read(self, block: PendingBlock) -> bytes:
        """The bytes of a block; may be called from any thread, once for a block of an endless stream.

        Raises SourceError, OSError.
        """
        raw, block.raw = block.raw, None
        return self.source.read(block.ref) if raw is None else raw

    def leave(self) -> None:  # noqa: B027  most have nothing to end
        """End what threads that scan may wait for. Called in the event loop, before they are waited for."""

    def close(self) -> None:
        self._closing = True
        self._thread.shutdown(cancel_futures=True)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)


def _placed(blocks: list[PendingBlock], network: Network, report: ScanReport) -> list[PendingBlock]:
    """Set the blocks' segments, depths and heights; returns the blocks on the best branches, in chain order."""
    order = link([block.ref for block in blocks], network)
    report.stale = sorted(blocks[number].ref.hash for number in order.stale)
    report.segments = len(order.segments)
    report.unproven = [blocks[number].ref.hash for number in order.unproven]
    placed = []
    for number, segment in enumerate(order.segments):
        first = blocks[segment.blocks[0]].ref
        # nothing can spend what the genesis block pays
        is_rooted = network.genesis_hash in (first.hash, first.previous)
        for depth, index in enumerate(segment.blocks):
            block = blocks[index]
            block.segment, block.depth, block.rooted = number, depth, is_rooted
            if segment.height is not None:
                block.height = segment.height + depth
            placed.append(block)
    return placed


def _silenced(blocks: Iterable[PendingBlock]) -> list[PendingBlock]:
    """Mark the stale blocks as silent and return them, ordered by hash: the result does not depend on the order of
    `blocks`.
    """
    stale = sorted((block for block in blocks if block.segment == STALE), key=lambda block: block.ref.hash)
    for block in stale:
        block.silent = True
    return stale


def in_chain_order(
    source: BlockSource, network: Network, report: ScanReport, is_closing: Callable[[], bool] = lambda: False
) -> tuple[list[PendingBlock], list[PendingBlock]]:
    """The blocks of a source that are stale, and those on the best branches, in chain order, within the range wanted.

    Raises SourceError where undo records are required and missing, and for a range that cannot be told or has no block.
    """
    blocks: dict[bytes, PendingBlock] = {}
    for found in source.index(network):
        if is_closing():
            return [], []
        if isinstance(found, Problem):
            report.problems.append(found)
        elif found.hash in blocks:
            report.duplicates.append(found.hash)
            blocks[found.hash].spares += (found,)
        else:
            blocks[found.hash] = PendingBlock(found, found.height)
    for block in blocks.values():
        _prefer_undo(block, source)
    placed = _placed(list(blocks.values()), network, report)
    if source.span.is_limited and placed:
        placed = _within(placed, source.span)
    report.bytes_total = sum(block.ref.size for block in placed)
    report.undo_problems += source.undo_problems()
    if source.mode is UndoMode.REQUIRE:
        _require_undo(placed, source, report)
    return _silenced(blocks.values()), placed


def _within(placed: list[PendingBlock], span: BlockSpan) -> list[PendingBlock]:
    """The blocks of a range. Raises SourceError where heights are needed and not known, and if there are none."""
    unknown = sum(block.height is None for block in placed)
    if unknown and (span.from_height is not None or span.to_height is not None):
        raise SourceError(
            f"the heights of {unknown:,} block(s) are not known, so that a range of heights cannot be taken"
        )
    kept: list[PendingBlock] = []
    begun = STALE  # the run of which a block was kept
    for block in placed:
        if not span.has_height(block.height) or (block.segment != begun and not span.has_time(block.ref.time)):
            continue
        if block.segment != begun:
            begun, is_whole = block.segment, block.depth == 0
        block.rooted = block.rooted and is_whole
        kept.append(block)
    if not kept:
        raise SourceError(f"none of {len(placed):,} blocks is in the range: {span}")
    return kept


def _prefer_undo(block: PendingBlock, source: BlockSource) -> None:
    """Take first the copy of a block that has an undo record."""
    copies = (block.ref, *block.spares)
    if block.spares and (best := next(filter(source.find_undo, copies), None)) is not None:
        block.ref, block.spares = best, tuple(ref for ref in copies if ref is not best)


def _require_undo(placed: list[PendingBlock], source: BlockSource, report: ScanReport) -> None:
    lacking = [block.ref for block in placed if block.ref.transactions != 1 and source.find_undo(block.ref) is None]
    if lacking:
        why = "".join(f"; {problem}" for problem in report.undo_problems[:3])
        first = f"{source.name(lacking[0])}, block {hash_to_hex(lacking[0].hash)}"
        raise SourceError(
            f"undo data is required, and {len(lacking):,} of {len(placed):,} blocks have none, the first {first}{why}"
        )


class PlannedFeed(Feed):
    """Blocks in chain order, for sources whose headers can be read first."""

    planned = True

    def __init__(self, source: BlockSource, network: Network, report: ScanReport, *, strict: bool) -> None:
        super().__init__(source, network, report)
        self._files = source
        self.strict = strict

    async def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        stale, placed = await self._call(
            in_chain_order, self._files, self._network, self._report, lambda: self._closing
        )
        # stale ones first, so that later blocks are scanned with what they pay
        for batch in batched(stale + placed, self._files):
            yield batch


class _OneShotFeed(Feed):
    """Blocks of an iterable that can be read only once."""

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
    """Blocks in the order of arrival.

    Blocks of a second branch are held back until it is known which branch is best.
    """

    def __init__(self, blocks: RawBlocks, network: Network, report: ScanReport) -> None:
        super().__init__(blocks, network, report)
        self._met: dict[bytes, PendingBlock] = {}
        self._held: set[bytes] = set()
        self._parents: set[bytes] = set()  # hashes of blocks of which a child was passed on

    async def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        async with aclosing(self._arrivals()) as arrivals:
            async for arrived in arrivals:
                if (block := await self._call(self._admit, arrived)) is not None:
                    yield [block]
        for batch in batched(await self._call(self._late)):
            yield batch

    def _admit(self, arrived: RawBlock) -> PendingBlock | None:
        """The block, or None if it is held back or was met before."""
        raw = arrived.raw
        ref = block_ref(raw[:PREFIX_SIZE], len(self._met), self._spool.size, len(raw), self._network, arrived.height)
        if ref.hash in self._met:
            self._report.duplicates.append(ref.hash)
            return None
        self._spool.put(raw)
        block = self._met[ref.hash] = PendingBlock(
            ref, _height(ref, arrived, self._met.get(ref.previous), self._network), raw
        )
        if ref.previous in self._parents or ref.previous in self._held:
            self._held.add(ref.hash)
            block.raw = None
            return None
        self._parents.add(ref.previous)
        return block

    def _late(self) -> list[PendingBlock]:
        """The blocks held back: first the stale ones, then those on the best branches."""
        placed = _placed(list(self._met.values()), self._network, self._report)
        held = [self._met[digest] for digest in self._held]
        return _silenced(held) + [block for block in placed if block.ref.hash in self._held]


class OrderedFeed(_OneShotFeed):
    """Blocks that are declared to follow each other, perhaps an endless stream. Nothing is spooled."""

    endless = True

    async def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        last: PendingBlock | None = None
        async with aclosing(self._arrivals()) as arrivals:
            async for arrived in arrivals:
                raw = arrived.raw
                ref = block_ref(raw[:PREFIX_SIZE], 0, 0, len(raw), self._network, arrived.height)
                if last is not None and ref.previous != last.ref.hash:
                    raise OrderError(f"block {hash_to_hex(ref.hash)} does not follow {hash_to_hex(last.ref.hash)}")
                last = PendingBlock(ref, _height(ref, arrived, last, self._network), raw)
                yield [last]


def _height(ref: BlockRef, arrived: RawBlock, before: PendingBlock | None, network: Network) -> int | None:
    """The height of a block that arrives: given, counted from the one before it, or stated by the block itself."""
    if arrived.height is not None:
        return arrived.height
    if ref.hash == network.genesis_hash:
        return 0
    return ref.height if before is None or before.height is None else before.height + 1


def batched(blocks: Iterable[PendingBlock], source: Readable | None = None) -> Iterator[list[PendingBlock]]:
    """Split blocks into the batches that a thread scans in one go; with the source, their undo records count, too."""
    batch: list[PendingBlock] = []
    size = 0
    for block in blocks:
        more = block.ref.size + (0 if source is None else source.undo_size(block.ref))
        if batch and (size + more > BATCH_SIZE or len(batch) >= BATCH_BLOCKS):
            yield batch
            batch, size = [], 0
        batch.append(block)
        size += more
    if batch:
        yield batch
