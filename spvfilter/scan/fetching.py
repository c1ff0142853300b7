"""A full node's blocks for a scan: prefetched in chain order, up to a limit, and fetched again if needed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from spvfilter._public import public
from spvfilter.errors import NodeAnswerError, NodePrunedError, ParameterError, SourceError
from spvfilter.kernel import Place
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.rpc import fullnode
from spvfilter.scan.gaps import HeightLedger, PlacedBlock, ScannedHeights, gaps_between, joined
from spvfilter.scan.order import BATCH_BLOCKS, BATCH_SIZE, Feed, PendingBlock, ScanReport
from spvfilter.scan.sources import PREFIX_SIZE, BlockRef, BlockSpan, Problem, Readable, block_ref
from spvfilter.scan.undo import UndoPlace
from spvfilter.scan.undomode import UndoMode

T = TypeVar("T")
_AHEAD = 16  # number of blocks to fetch ahead of the scan, at most 4 MB each (our choice)
_NEED = "Bitcoin Core 30 or later with -rest=1"


@public
class NodeBlocks:
    """The blocks of a node's best chain at the start of the scan.

    With `undo`, spends are found by the script that they spend, and their value and fee are known. For this, the node
    must return the outputs that each block spends, as Bitcoin Core has done over REST since version 30.

    Args:
        node: The node that has the blocks.
        undo: "auto" to use undo records if the node has them, "require" to fail if the node lacks them, "off" to ignore
            them.
        span: The range of blocks to scan; by default, all of them.
        ahead: Number of blocks to fetch ahead of the scan, at least 1. A block takes at most 4 MB.
        listing: The blocks to scan, instead of a span.
        allow_gaps: True to skip blocks that the node does not have, such as pruned ones. The scan's report lists them.
            By default, such blocks are an error.
        offered: Function that takes a block hash and returns the block if it has already arrived in some other way,
            else None. The scan checks the block.

    Raises:
        ParameterError: `ahead` is below 1, the mode of `undo` is unknown, or both a listing and a span are given.
    """

    def __init__(
        self,
        node: fullnode.FullNode,
        *,
        undo: str = UndoMode.AUTO,
        span: BlockSpan | None = None,
        ahead: int = _AHEAD,
        listing: fullnode.Listing | None = None,
        allow_gaps: bool = False,
        offered: Callable[[bytes], bytes | None] | None = None,
    ) -> None:
        if undo not in list(UndoMode):
            raise ParameterError(f"undo must be one of {', '.join(UndoMode)}, not {undo!r}")
        if ahead < 1:
            raise ParameterError(f"ahead must be at least 1 block, not {ahead}")
        if listing is not None and span is not None:
            raise ParameterError("pass either a listing or a span, not both: a listing is always scanned in full")
        self.node = node
        """The node from which the blocks are fetched."""
        self.mode: UndoMode = UndoMode(undo)
        """The mode that says whether undo records are used."""
        self.span: BlockSpan = span or BlockSpan()
        """The range of blocks to scan."""
        self.ahead = ahead
        """Number of blocks that are fetched before they are scanned."""
        self.known = listing
        """The listing of blocks to scan, or None if a span was given instead."""
        self.allow_gaps = allow_gaps
        """True if the scan skips blocks that the node does not have."""
        self.offered = offered
        """The function that returns a block that has already arrived in some other way, or None if none was given."""

    async def listing(self) -> fullnode.Listing:
        """Return the hashes of the blocks to scan, in order of height.

        Raises NodeError if the node fails, and SourceError if the span contains no blocks.
        """
        if self.known is not None:
            return self.known
        span = self.span
        found = await self.node.listing(
            span.from_height or 0, span.to_height, span.from_time, span.to_time, skip_pruned=self.allow_gaps
        )
        if span.from_height == 0 and found.first > 1:
            found = replace(found, missing=((1, found.first - 1), *found.missing))
        return found


class _Record(UndoPlace):
    """An undo record from a node instead of a file. `read` calls a function that returns the record."""

    _read: Callable[[], bytes]

    def __new__(cls, read: Callable[[], bytes]) -> Self:
        record = super().__new__(cls, 0, Path(), b"", 0, 0)
        record._read = read
        return record

    def read(self) -> bytes:
        return self._read()


@dataclass(slots=True)
class FetchedBlock:
    """A block, and its undo record if the node returns one."""

    ref: BlockRef
    """Place and header fields of the block."""
    raw: bytes
    """The serialized block."""
    record: bytes | None
    """Undo record of the block. None if the node does not return one, or if the block spends nothing."""


async def fetch_block(
    blocks: NodeBlocks, listing: fullnode.Listing, height: int, network: Network, *, by_details: bool
) -> FetchedBlock:
    """Fetch a listing's block at a height, and its undo record.

    With `by_details`, spent outputs may also be requested as JSON, which takes the node longer.

    Raises NodeError, such as NodeAnswerError if the block contains a different height. Raises SourceError if the mode
    is "require" and the node does not return the outputs that the block spends.
    """
    digest, node = listing.hash_at(height), blocks.node
    raw = await _whole_block(blocks, digest)
    ref = block_ref(raw[:PREFIX_SIZE], 0, 0, len(raw), network)
    if ref.height not in (None, height):
        name = hash_to_hex(digest)
        raise NodeAnswerError(
            f"{node.endpoint}: returned block {name} for height {height:,}, but the block says {ref.height:,}"
        )
    if blocks.mode is UndoMode.OFF or ref.transactions == 1:
        return FetchedBlock(ref, raw, None)
    record = await node.undo_record(digest, raw[4:36], by_details=by_details)
    if record is None and blocks.mode is UndoMode.REQUIRE:
        raise SourceError(
            f"{node.endpoint}: does not return the outputs that block {hash_to_hex(digest)} spends: use {_NEED}"
        )
    return FetchedBlock(ref, raw, record)


async def _whole_block(blocks: NodeBlocks, digest: bytes) -> bytes:
    """Return the block from `offered` if it is valid, otherwise the block from the node."""
    if blocks.offered is not None and (raw := blocks.offered(digest)) is not None:
        with suppress(NodeAnswerError):
            await asyncio.to_thread(blocks.node.check, raw, digest)
            return raw
    return await blocks.node.block(digest)


class _Reader(Readable):
    """Fetches blocks and undo records again for scanning threads, which wait until the event loop has the answer."""

    def __init__(
        self, node: fullnode.FullNode, mode: UndoMode, listing: fullnode.Listing, *, needs_spent: bool = False
    ) -> None:
        self.mode = mode
        self._needs_spent = needs_spent
        self.listing = listing
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._asked: set[asyncio.Task[object]] = set()
        self._closing = False
        self._records: dict[bytes, bytes] = {}  # undo records of blocks that were fetched but not scanned, by hash
        self._without: set[bytes] = set()  # hashes of blocks without an undo record

    def put(self, digest: bytes, record: bytes | None) -> None:
        """Keep the undo record of a block that is about to be scanned."""
        if record is not None:
            self._records[digest] = record
        elif self._node.tells_spent or self._needs_spent:
            self._without.add(digest)

    def read(self, ref: BlockRef) -> bytes:
        return self._wait(lambda: self._node.block(ref.hash))

    def name(self, ref: BlockRef) -> str:
        return f"{self._node.endpoint}, block {hash_to_hex(ref.hash)}"

    def opened_undo(self, refs: Sequence[BlockRef]) -> AbstractContextManager[list[Place | None] | None]:
        """Return a list with one None for each block if any block has an undo record, else None.

        The list makes the kernel scan the blocks one by one.
        """
        return nullcontext([None] * len(refs) if any(self.find_undo(ref) is not None for ref in refs) else None)

    def find_undo(self, ref: BlockRef) -> UndoPlace | None:
        if (
            self.mode is UndoMode.OFF
            or not (self._node.tells_spent or self._needs_spent)
            or ref.transactions == 1
            or ref.hash in self._without
        ):
            return None
        return _Record(lambda: self._record(ref))

    def undo_size(self, ref: BlockRef) -> int:
        return 0

    def pair_again(self, ref: BlockRef, tried: UndoPlace) -> list[Problem] | None:
        self._without.add(ref.hash)
        return []

    def close(self) -> None:
        """Cancel the requests that threads are waiting for.

        The threads get a SourceError. Call this in the event loop.
        """
        self._closing = True
        for task in self._asked:
            task.cancel()

    def _record(self, ref: BlockRef) -> bytes:
        """Return the undo record of a block: the kept one or, if that has already been used, a newly fetched one."""
        record = self._records.pop(ref.hash, None)
        if record is None:
            record = self._wait(lambda: self._node.undo_record(ref.hash, ref.previous, by_details=self._needs_spent))
        if record is None:
            raise SourceError("the node no longer returns the outputs that the block spends")
        return record

    def _wait(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a request in the event loop and wait for it in this thread."""

        async def ask() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._asked.add(task)
            try:
                if self._closing:
                    raise SourceError("the scan was closed")
                return await call()
            finally:
                self._asked.discard(task)

        try:
            return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()
        except futures.CancelledError:
            raise SourceError("the scan was closed") from None


class NodeFeed(Feed):
    """The blocks of a node's chain in order, fetched ahead."""

    def __init__(
        self,
        blocks: NodeBlocks,
        listing: fullnode.Listing,
        network: Network,
        report: ScanReport,
        *,
        needs_spent: bool = False,
    ) -> None:
        self._reader = _Reader(blocks.node, blocks.mode, listing, needs_spent=needs_spent)
        self._needs_spent = needs_spent
        super().__init__(self._reader, network, report)
        self._blocks = blocks
        self._listing = listing
        self._ledger = HeightLedger()
        self._run = 0  # number of the run of linked blocks
        self._run_first = listing.first  # height of its first block
        report.segments = 1
        report.heights = self._heights()

    @classmethod
    async def of(
        cls, blocks: NodeBlocks, network: Network, report: ScanReport, *, needs_spent: bool = False
    ) -> NodeFeed:
        """List the blocks. With `needs_spent`, spent outputs may also be requested as JSON, which takes longer.

        Raises ParameterError if the node and the watch list are on different networks, NodeError if the node fails, and
        SourceError if the span contains no blocks.
        """
        if blocks.node.network is not network:
            raise ParameterError(f"the watch list is for {network}, but the node is on {blocks.node.network}")
        return cls(blocks, await blocks.listing(), network, report, needs_spent=needs_spent)

    def leave(self) -> None:
        self._reader.close()

    async def batches(self) -> AsyncGenerator[list[PendingBlock]]:
        fetching: deque[asyncio.Task[FetchedBlock]] = deque()
        height = begun = self._listing.first
        try:
            while height <= self._listing.last:
                while begun <= self._listing.last and len(fetching) < self._blocks.ahead:
                    fetching.append(asyncio.create_task(self._fetch(begun)))
                    begun += 1
                batch: list[PendingBlock] = []
                size = 0
                while (
                    fetching
                    and (not batch or _has_come(fetching[0]))
                    and size < BATCH_SIZE
                    and len(batch) < BATCH_BLOCKS
                ):
                    try:
                        fetched = await fetching[0]
                    except NodePrunedError:
                        if not self._blocks.allow_gaps:
                            raise
                        fetching.popleft()
                        height += 1
                        self._run, self._run_first = self._run + 1, height
                        continue
                    fetching.popleft()
                    batch.append(self._pending(height, fetched))
                    size += len(fetched.raw) + len(fetched.record or b"")
                    height += 1
                self._report.segments = self._run + 1
                if batch:
                    yield batch
            self._report.heights = self._heights()
        finally:
            for task in fetching:
                task.cancel()
            await asyncio.gather(*fetching, return_exceptions=True)

    async def _fetch(self, height: int) -> FetchedBlock:
        """Fetch one block and its undo record. Raises the same errors as `fetch_block`."""
        return await fetch_block(self._blocks, self._listing, height, self._network, by_details=self._needs_spent)

    def _pending(self, height: int, fetched: FetchedBlock) -> PendingBlock:
        """Return the block in the form that the scan needs."""
        first = self._run_first
        self._reader.put(fetched.ref.hash, fetched.record)
        self._ledger.add(PlacedBlock(height, 0, fetched.record is not None, fetched.ref.transactions == 1))
        return PendingBlock(
            fetched.ref, height, fetched.raw, segment=self._run, depth=height - first, rooted=first <= 1
        )

    def _heights(self) -> ScannedHeights:
        """Return the scanned heights, and the heights that the node does not have."""
        last, missing = self._listing.last, list(self._listing.missing)
        found = joined(self._ledger.heights)
        if found:
            missing += gaps_between(found, last)
            if found[0][0] > self._listing.first:
                missing.append((self._listing.first, found[0][0] - 1))
        return ScannedHeights(tuple(found), tuple(joined(missing)))


def _has_come(fetching: asyncio.Task[FetchedBlock]) -> bool:
    """True if a block has arrived. False if its request failed."""
    return fetching.done() and not fetching.cancelled() and fetching.exception() is None
