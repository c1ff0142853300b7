"""The order in which a scan processes its blocks: chain order, order of arrival, or declared order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from concurrent import futures
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from spvfilter._public import public
from spvfilter.chain import link
from spvfilter.errors import OrderError, SourceError, counted
from spvfilter.network import Network
from spvfilter.primitives import Serializable, hash_to_hex
from spvfilter.scan.gaps import NEWER_S, HeightLedger, Heights, PlacedBlock, ScannedHeights
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

BATCH_SIZE = 8_000_000  # Bytes of blocks that a thread scans at a time (our choice): one or two milliseconds of work.
BATCH_BLOCKS = 256  # Blocks that a thread scans at a time (our choice).
STALE = -1  # Segment number of a block that is not on a best branch.

AnyBlock = bytes | RawBlock | Serializable
"""A block as bytes, as a `RawBlock` with its height, or as an object that serializes itself."""
RawBlocks = AsyncIterable[AnyBlock] | Iterable[AnyBlock]
"""Blocks to scan: an iterable or an asynchronous iterable."""
T = TypeVar("T")


@public
@dataclass(slots=True)
class ScanReport:
    """The progress and the findings of a scan. It is updated while the scan runs."""

    blocks: int = 0
    """Number of blocks scanned. Each block counts once."""
    bytes_scanned: int = 0
    """Total size of the scanned blocks, in bytes."""
    bytes_total: int | None = None
    """Total size of all blocks to scan, in bytes; None if it is unknown."""
    matches: int = 0
    """Number of matches found."""
    segments: int = 0
    """Number of runs of linked blocks."""
    heights: ScannedHeights = field(default_factory=ScannedHeights)
    """The heights that the scan covers, and the missing heights. Empty until the blocks are in order."""
    duplicates: list[bytes] = field(default_factory=list)
    """Hashes of blocks that occurred more than once in the source. The scan skips the copies."""
    stale: list[bytes] = field(default_factory=list)
    """Hashes of blocks that are not on the best branch. These blocks yield no matches."""
    unproven: list[bytes] = field(default_factory=list)
    """Hashes of blocks with a damaged header: the hash misses its target, although linked blocks meet their targets."""
    problems: list[Problem] = field(default_factory=list)
    """Problems with parts of block files that could not be read."""
    late_scripts: int = 0
    """Number of keychain scripts that earlier blocks of an endless stream were not searched for."""
    done: bool = False
    """True once the scan is complete."""
    by_undo: int = 0
    """Number of scanned blocks that were matched with their undo records."""
    without_undo: list[bytes] = field(default_factory=list)
    """Hashes of blocks that spend coins but have no undo record; empty if undo records are not used."""
    undo_problems: list[Problem] = field(default_factory=list)
    """Undo records that could not be used. Their blocks were matched by outpoints."""
    pruned: tuple[Heights, ...] = ()
    """Heights that the node pruned during the scan, so that they were not scanned. All scanned heights are higher."""
    candidates: int = 0
    """Number of transactions searched for silent payments, which have eligible inputs and a taproot output.

    It is 0 if the watch list contains no sp() descriptor."""
    unjudged: int = 0
    """Number of candidates in which a payment may have been missed because the outputs that they spend are not
    known.
    """
    unseen: int = 0
    """Number of blocks in which spends of earlier coins cannot be seen.

    These blocks have no undo record, and not all earlier blocks were scanned.
    """


@dataclass(slots=True, eq=False)
class Taught:
    """Hits whose outpoints the scan has learned: a node of a linked list, oldest first.

    A batch or block keeps the node that was the latest when its search began. Hits are freed once no search needs them.
    """

    hits: bytes = b""
    """Packed hits of one block."""
    next: Taught | None = None
    """The next node, or None if this is the latest."""

    def later(self) -> Iterator[bytes]:
        """Yield the hits of all later nodes."""
        taught = self.next
        while taught is not None:
            yield taught.hits
            taught = taught.next


@dataclass(slots=True, eq=False)
class PendingBlock:
    """A block to scan, and the scan's data about it."""

    ref: BlockRef
    """Place of the block in its source, and its header fields."""
    height: int | None
    """Height of the block, or None if it is unknown."""
    raw: bytes | None = None
    """The bytes of a stream's block, until the block has been scanned."""
    segment: int = STALE
    """Number of the run of linked blocks that contains the block.

    It is STALE for a stale block, and for every block before linking.
    """
    depth: int = 0
    """Index of the block in its run of linked blocks."""
    silent: bool = False
    """True for a stale block. Its matches are not yielded, but its outputs are learned, because other blocks may spend
    them.
    """
    teaches: bool = False
    """True if outpoints were learned from the block."""
    after: Taught | None = None
    """The latest hits known when the block was searched, if it may be searched again for later hits. Otherwise None."""
    found: bytes = b""
    """Packed hits of the block, if it may be searched again."""
    known: tuple[int, int] = (0, 0)
    """Numbers of scripts and outpoints that the last search of the block used, as returned by `WatchGrowth.mark`."""
    spares: tuple[BlockRef, ...] = ()
    """Places of other copies of the block, in case the copy at `ref` is damaged."""
    by_undo: bool = False
    """True if the block was matched with its undo record. Outpoints that are learned later then add no matches."""
    rooted: bool = False
    """True if the block's run of linked blocks begins with the genesis block or the block after it."""

    @property
    def is_blind(self) -> bool:
        """True if the block may spend coins from before its run of linked blocks. The scan cannot see such spends."""
        return not (self.rooted or self.by_undo or self.segment == STALE or self.ref.transactions == 1)

    def copies(self) -> Iterator[BlockRef]:
        """Yield the places of the block's copies. While a copy is in use, `ref` is its place."""
        yield self.ref
        for ref in self.spares:
            self.ref = ref
            yield ref


class Feed(ABC):
    """Base class of feeds, which yield batches of blocks in the order in which they are scanned.

    A feed fills in those fields of the report that it can read from headers.
    """

    strict = True  # True if an unreadable block ends the scan.
    endless = False  # True if no block can be read a second time.
    planned = False  # True if all blocks are known before the first one is scanned.

    def __init__(self, source: Readable, network: Network, report: ScanReport) -> None:
        self.source = source
        self._network = network
        self._report = report
        self._closing = False
        self._thread = futures.ThreadPoolExecutor(1, "spvfilter-read")

    @abstractmethod
    def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        """Yield batches of blocks. Call this only once.

        Raises FormatError if a block is malformed, and OrderError if a block breaks a declared order.
        """

    def read(self, block: PendingBlock) -> bytes:
        """Return the bytes of a block. Any thread may call it. A block of an endless stream can be read only once.

        Raises SourceError if the source has changed, and OSError if it cannot be read.
        """
        raw, block.raw = block.raw, None
        return self.source.read(block.ref) if raw is None else raw

    def leave(self) -> None:  # noqa: B027  most feeds have nothing to stop
        """Cancel the operations that scanning threads may wait for.

        The scan calls this in the event loop before it joins the threads.
        """

    def close(self) -> None:
        """Stop the feed's thread, which reads headers."""
        self._closing = True
        self._thread.shutdown(cancel_futures=True)

    async def _call(self, call: Callable[..., T], *args: object) -> T:
        """Call a function in the feed's thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)


def _placed(blocks: list[PendingBlock], network: Network, report: ScanReport) -> list[PendingBlock]:
    """Set the segments, depths and heights of blocks, and return the blocks on the best branches in chain order."""
    order = link([block.ref for block in blocks], network)
    report.stale = sorted(blocks[number].ref.hash for number in order.stale)
    report.segments = len(order.segments)
    report.unproven = [blocks[number].ref.hash for number in order.unproven]
    placed = []
    for number, segment in enumerate(order.segments):
        first = blocks[segment.blocks[0]].ref
        # the output of the genesis block cannot be spent, so the block after it also counts as a root
        is_rooted = network.genesis_hash in (first.hash, first.previous)
        for depth, index in enumerate(segment.blocks):
            block = blocks[index]
            block.segment, block.depth, block.rooted = number, depth, is_rooted
            if segment.height is not None:
                block.height = segment.height + depth
            placed.append(block)
    return placed


def _silenced(blocks: Iterable[PendingBlock]) -> list[PendingBlock]:
    """Mark the stale blocks as silent and return them.

    They are sorted by hash, so the result does not depend on the order of `blocks`.
    """
    stale = sorted((block for block in blocks if block.segment == STALE), key=lambda block: block.ref.hash)
    for block in stale:
        block.silent = True
    return stale


def in_chain_order(
    source: BlockSource, network: Network, report: ScanReport, is_closing: Callable[[], bool] = lambda: False
) -> tuple[list[PendingBlock], list[PendingBlock]]:
    """Return the stale blocks of a source, and its blocks on the best branches in chain order.

    The blocks on the best branches are limited to the span of the source; the stale ones are not. Raises SourceError if
    required undo records are missing, if the range contains no blocks, or if it is a range of heights and the height of
    a block is unknown.
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
    whole, stale = placed, _silenced(blocks.values())
    is_rooted = bool(whole) and whole[0].rooted
    if source.span.is_limited and placed:
        placed = _within(placed, source.span)
    report.heights = _heights(placed, whole, stale, report.segments, source, is_rooted=is_rooted)
    report.bytes_total = sum(block.ref.size for block in placed)
    report.undo_problems += source.undo_problems()
    if source.mode is UndoMode.REQUIRE:
        _require_undo(placed, source, report)
    return stale, placed


def _heights(
    placed: list[PendingBlock],
    whole: list[PendingBlock],
    stale: list[PendingBlock],
    segments: int,
    source: BlockSource | None = None,
    *,
    is_rooted: bool = True,
) -> ScannedHeights:
    """Return the heights that the blocks `placed` cover, and the missing heights.

    `whole` contains all blocks on the best branches, and `is_rooted` is True if they begin with the first block.
    """
    ledger, reads_undo = HeightLedger(), source is not None and source.mode is UndoMode.AUTO
    for block in placed:
        has_undo = source is not None and reads_undo and source.find_undo(block.ref) is not None
        ledger.add(PlacedBlock(block.height, block.ref.file, has_undo, block.ref.transactions == 1))
    last = max((block.ref.time for block in whole), default=0)
    is_late = bool(whole) and not is_rooted
    return ledger.result(
        to_height=None if source is None else source.span.last_height,
        segments=segments,
        is_cut=any(block.ref.time > last + NEWER_S for block in stale),
        tip=whole[-1].height if whole else None,
        from_height=None if source is None else source.span.first_height,
        begins_late=source is not None and is_late and source.span.has_begun(whole[0].ref.time),
    )


def _within(placed: list[PendingBlock], span: BlockSpan) -> list[PendingBlock]:
    """Return the blocks within a range.

    Raises SourceError if the range contains no blocks, or if it is a range of heights and the height of a block is
    unknown.
    """
    unknown = sum(block.height is None for block in placed)
    if unknown and (span.from_height is not None or span.to_height is not None):
        raise SourceError(f"the heights of {counted(unknown, 'block')} are unknown: omit the range of heights")
    kept: list[PendingBlock] = []
    begun = ended = STALE  # segment of the last block that was kept, and of the last block after the range
    for block in placed:
        if not span.has_height(block.height) or block.segment == ended:
            continue
        if span.is_past(block.ref.time):
            ended = block.segment
            continue
        if block.segment != begun and not span.has_time(block.ref.time):
            continue
        if block.segment != begun:
            begun, is_whole = block.segment, block.depth == 0
        block.rooted = block.rooted and is_whole
        kept.append(block)
    if not kept:
        raise SourceError(f"the range {span} contains none of the {len(placed):,} blocks")
    return kept


def _prefer_undo(block: PendingBlock, source: BlockSource) -> None:
    """Replace the block's place with that of a copy that has an undo record, if there is such a copy."""
    copies = (block.ref, *block.spares)
    if block.spares and (best := next(filter(source.find_undo, copies), None)) is not None:
        block.ref, block.spares = best, tuple(ref for ref in copies if ref is not best)


def _require_undo(placed: list[PendingBlock], source: BlockSource, report: ScanReport) -> None:
    """Raise SourceError if undo records are required and a block that spends coins has none."""
    lacking = [block.ref for block in placed if block.ref.transactions != 1 and source.find_undo(block.ref) is None]
    if lacking:
        why = "".join(f"; {problem}" for problem in report.undo_problems[:3])
        first = f"{source.name(lacking[0])}, block {hash_to_hex(lacking[0].hash)}"
        raise SourceError(
            f"undo data is required, but {len(lacking):,} of {len(placed):,} blocks have none; the first is"
            f" {first}{why}"
        )


class PlannedFeed(Feed):
    """A feed of blocks in chain order, for sources whose headers can be read before the blocks."""

    planned = True

    def __init__(self, source: BlockSource, network: Network, report: ScanReport, *, strict: bool) -> None:
        super().__init__(source, network, report)
        self._files = source
        self.strict = strict

    async def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        stale, placed = await self._call(
            in_chain_order, self._files, self._network, self._report, lambda: self._closing
        )
        # stale blocks come first, so that later blocks are scanned for spends of their outputs
        for batch in batched(stale + placed, self._files):
            yield batch


class _OneShotFeed(Feed):
    """Base class of feeds whose blocks come from an iterable that can be read only once."""

    def __init__(self, blocks: RawBlocks, network: Network, report: ScanReport) -> None:
        self._spool = Spool()
        super().__init__(self._spool, network, report)
        self._blocks = blocks

    def close(self) -> None:
        super().close()
        self._spool.close()

    async def _arrivals(self) -> AsyncGenerator[RawBlock]:
        """Yield the blocks as they arrive."""
        if isinstance(self._blocks, AsyncIterable):
            async for item in self._blocks:
                yield item if isinstance(item, RawBlock) else await self._call(RawBlock.of, item)
        else:
            async with aclosing(pull(map(RawBlock.of, self._blocks))) as blocks:
                async for block in blocks:
                    yield block


class StreamFeed(_OneShotFeed):
    """A feed of blocks in the order in which they arrive.

    Blocks of a second branch are held back until the best branch is known.
    """

    def __init__(self, blocks: RawBlocks, network: Network, report: ScanReport) -> None:
        super().__init__(blocks, network, report)
        self._met: dict[bytes, PendingBlock] = {}
        self._held: set[bytes] = set()
        self._parents: set[bytes] = set()  # hashes of blocks whose child was passed on

    async def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        async with aclosing(self._arrivals()) as arrivals:
            async for arrived in arrivals:
                if (block := await self._call(self._admit, arrived)) is not None:
                    yield [block]
        for batch in batched(await self._call(self._late)):
            yield batch

    def _admit(self, arrived: RawBlock) -> PendingBlock | None:
        """Return the block to scan now, or None if the block is held back or is a duplicate."""
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
        """Return the blocks that were held back: first the stale ones, then those on the best branches."""
        placed = _placed(list(self._met.values()), self._network, self._report)
        held = [self._met[digest] for digest in self._held]
        stale = [block for block in self._met.values() if block.segment == STALE]
        self._report.heights = _heights(placed, placed, stale, self._report.segments)
        return _silenced(held) + [block for block in placed if block.ref.hash in self._held]


class OrderedFeed(_OneShotFeed):
    """A feed of blocks that the caller declares to be in chain order. The stream may be endless.

    Blocks are not stored on disk.
    """

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
    """Return the height of an arriving block, or None if it is unknown.

    The height is given, counted from the previous block, or read from the block itself.
    """
    if arrived.height is not None:
        return arrived.height
    if ref.hash == network.genesis_hash:
        return 0
    return ref.height if before is None or before.height is None else before.height + 1


def batched(blocks: Iterable[PendingBlock], source: Readable | None = None) -> Iterator[list[PendingBlock]]:
    """Split blocks into batches, each of which is scanned by one thread.

    With `source`, the sizes of undo records count as well.
    """
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
