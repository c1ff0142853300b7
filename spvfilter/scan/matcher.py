"""The asyncio matcher: blocks or transactions in, exact matches out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from spvfilter._public import deferred, public
from spvfilter.errors import IncompleteScanError, ParameterError
from spvfilter.kernel import unpack_hits
from spvfilter.network import Network
from spvfilter.primitives import Serializable, to_bytes
from spvfilter.scan.fetching import NodeBlocks, NodeFeed
from spvfilter.scan.order import Feed, OrderedFeed, PlannedFeed, RawBlocks, ScanReport, StreamFeed
from spvfilter.scan.sources import BlockList, BlockSource
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio

    from spvfilter.scan import batches, growth as growths, scan as scans
    from spvfilter.scan.partfile import BlockHits
else:
    asyncio = deferred("asyncio")
    batches = deferred("spvfilter.scan.batches")
    growths = deferred("spvfilter.scan.growth")
    scans = deferred("spvfilter.scan.scan")

T = TypeVar("T")


@public
class Matcher:
    """Matches blocks and transactions against a WatchList, which learns the outpoints that are found.

    `jobs` threads scan in parallel, since the compiled kernel releases the GIL; the pure kernel always uses one. With
    `check`, the proof of work, merkle root and witness commitment of each block are verified first, which costs more
    than the scan. `report` describes the running or last scan. A matcher runs one scan at a time.

    Raises ParameterError for `jobs` below 1 and for an empty watch list.
    """

    def __init__(self, watch: WatchList, *, jobs: int = 1, check: bool = False) -> None:
        if jobs < 1:
            raise ParameterError(f"jobs must be at least 1: {jobs}")
        if not len(watch):
            raise ParameterError("nothing to watch for: the watch list is empty")
        self.watch = watch
        self.jobs = jobs
        self.check = check
        self.report = ScanReport()

    async def match_tx(self, raw: bytes | Serializable) -> list[Match]:
        """The matches of one transaction. Raises FormatError."""
        tx = to_bytes(raw)
        hits = await asyncio.to_thread(self.watch.table.scan_tx, tx)
        while self.watch.keychains:
            new: list[bytes] = await asyncio.to_thread(self.watch.advance, hits)
            if not new:
                break
            hits = await asyncio.to_thread(self.watch.table.scan_tx, tx)
        return self.watch.accept(hits, is_coinbase=bool(hits) and Transaction.parse(tx).is_coinbase)

    async def scan(
        self, blocks: BlockSource | NodeBlocks | RawBlocks, *, in_order: bool = False
    ) -> AsyncGenerator[Match]:
        """Yield the matches in the blocks of files (BlockFiles), a node (NodeBlocks), a sequence, or any iterable of
        raw blocks.

        Files and sequences are put in chain order first; of competing branches only the one with the most work counts.
        Blocks of an iterable are matched as they arrive and spooled to disk. At its end they are searched again for
        spends that the order of arrival has hidden. If it has two branches, the one that came first is matched at once,
        and the other one at the end if it has more work; `report.stale` then names blocks whose matches were already
        yielded. With `in_order`, for endless streams, nothing is spooled, and a block that does not follow the one
        before it raises OrderError.

        Stale blocks give no matches, but their outputs are learned, since blocks that are not linked with them may
        spend these.

        Keychains are complete whatever order their scripts are used in: where a use moves a window beyond twice its
        lookahead, all blocks are searched again for the new scripts, until nothing changes. With `in_order` that cannot
        be: `report.late_scripts` says for how many scripts earlier blocks were not searched. The threads of a scan call
        `script_at` of keychains, one at a time.

        The height of a match is given (RawBlock), counted from the genesis block, or stated by the block itself
        (BIP-34); otherwise it is None. In an iterable, a block that arrives before its parent has the height that is
        known at that time. Memory is bounded by jobs × 8 MB and some 900 bytes for each block's header.

        Raises ParameterError for files with `in_order`, KeychainError where scripts cannot be derived, and FormatError
        for a malformed block of a sequence or iterable. Unreadable parts of files do not stop the scan, but
        IncompleteScanError is raised at its end.
        """
        async with aclosing(self._run(blocks, in_order, self._matches)) as found:
            async for matches in found:
                for match in matches:
                    self.report.matches += 1
                    yield match
        self._finish()

    async def scan_batches(
        self, blocks: BlockSource | NodeBlocks | RawBlocks, *, in_order: bool = False
    ) -> AsyncGenerator[batches.MatchBatch]:
        """As `scan`, but yield the matches of a block together, packed, without an object for each: see `MatchBatch`.

        A block whose matches are found later, in a second search, has another batch.

        Raises ParameterError for files with `in_order`, KeychainError where scripts cannot be derived, FormatError for
        a malformed block of a sequence or iterable, and IncompleteScanError at the end if parts of files were
        unreadable.
        """
        labels = batches.Labels()
        async with aclosing(
            self._run(blocks, in_order, lambda block: batches.MatchBatch(block, self.watch, labels))
        ) as found:
            async for batch in found:
                self.report.matches += len(batch)
                yield batch
        self._finish()

    async def _run(
        self, blocks: BlockSource | NodeBlocks | RawBlocks, in_order: bool, tell: Callable[[BlockHits], T]
    ) -> AsyncGenerator[T]:
        self.report = ScanReport()
        growth = (
            await asyncio.to_thread(growths.Growth, self.watch) if self.watch.keychains else growths.Growth(self.watch)
        )
        if isinstance(blocks, NodeBlocks) and not in_order:
            feed: Feed = await NodeFeed.of(blocks, self.watch.network, self.report)
        else:
            feed = _feed(blocks, in_order, self.watch.network, self.report)
        scan = scans.Scan(self.watch, growth, feed, self.report, tell, jobs=self.jobs, check=self.check)
        async with aclosing(scan), aclosing(scan.found()) as found:
            async for each in found:
                yield each

    def _matches(self, block: BlockHits) -> list[Match]:
        return self.watch.matches(
            unpack_hits(block.packed), block_hash=block.hash, height=block.height, time=block.time
        )

    def _finish(self) -> None:
        self.report.done = True
        if self.report.problems:
            raise IncompleteScanError(tuple(str(problem) for problem in self.report.problems))


def _feed(blocks: BlockSource | NodeBlocks | RawBlocks, in_order: bool, network: Network, report: ScanReport) -> Feed:
    if isinstance(blocks, (str, bytes, bytearray, memoryview)):
        raise TypeError("an iterable of raw blocks expected, not one block")
    if isinstance(blocks, (BlockSource, NodeBlocks)) and in_order:
        raise ParameterError("in_order is for streams: files and a node's blocks are put in chain order anyway")
    if isinstance(blocks, BlockSource):
        return PlannedFeed(blocks, network, report, strict=False)
    if isinstance(blocks, Sequence) and not in_order:
        return PlannedFeed(BlockList(blocks), network, report, strict=True)
    if isinstance(blocks, (AsyncIterable, Iterable)):
        return OrderedFeed(blocks, network, report) if in_order else StreamFeed(blocks, network, report)
    raise TypeError(f"an iterable of raw blocks expected, not {type(blocks).__name__}")
