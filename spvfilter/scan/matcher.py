"""The asyncio matcher: blocks or transactions in, exact matches out. How a scan is carried out is scan.py's business."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import IncompleteScanError, ParameterError
from spvfilter.network import Network
from spvfilter.primitives import Serializable, to_bytes
from spvfilter.scan.feed import Feed, OrderedFeed, PlannedFeed, RawBlocks, ScanReport, StreamFeed
from spvfilter.scan.scan import Scan
from spvfilter.scan.sources import BlockList, BlockSource
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


@public
class Matcher:
    """Matches blocks and transactions against a WatchList, which learns on the way.

    `jobs` threads scan at once, where the kernel lets go of the GIL; the pure one takes but one. With `check`, each block's
    proof of work, merkle root and witness commitment are verified before it is believed; that costs more than the scan. `report` tells how
    the running or last scan fares. One scan at a time.

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
        """What in a transaction concerns the list. Raises FormatError."""
        hits = await asyncio.to_thread(self.watch.table.scan_tx, to_bytes(raw))
        return self.watch.accept(hits)

    async def scan(self, blocks: BlockSource | RawBlocks, *, in_order: bool = False) -> AsyncGenerator[Match]:
        """Matches in the blocks of files (BlockFiles), a sequence, or a plain or asynchronous iterable of raw blocks.

        Files and sequences are put in chain order first; of competing branches only the one with the most work counts. A one-shot
        iterable is matched as it comes and spooled to disk until it ends; then what the order of arrival has hidden is made good. Of two
        branches in it the one met first is matched at once, the other one at the end if it has more work; `report.stale` then
        names blocks whose matches were already given. With `in_order` nothing is spooled, and a block that does not follow the one
        before it raises OrderError: for streams without end.

        Stale blocks give no matches, but what they pay is learned: it may be spent by blocks that are not linked with them.

        Heights are given (RawBlock), counted from the genesis block, or stated by the blocks themselves (BIP-34); else None. A
        one-shot iterable is not waited for: a block that comes before the one below it has the height that is known then. Memory
        is bounded by jobs × 8 MB and some 900 bytes for each block's header.

        Raises ParameterError for files with `in_order`, FormatError at a malformed block of a sequence or iterable. What cannot be read
        of files does not stop the scan, but IncompleteScanError comes at its end.
        """
        self.report = ScanReport()
        feed = _feed(blocks, in_order, self.watch.network, self.report)
        scan = Scan(self.watch, feed, self.report, jobs=self.jobs, check=self.check)
        async with aclosing(scan), aclosing(scan.matches()) as matches:
            async for match in matches:
                self.report.matches += 1
                yield match
        self.report.done = True
        if self.report.problems:
            raise IncompleteScanError(tuple(str(problem) for problem in self.report.problems))


def _feed(blocks: BlockSource | RawBlocks, in_order: bool, network: Network, report: ScanReport) -> Feed:
    if isinstance(blocks, (str, bytes, bytearray, memoryview)):
        raise TypeError("an iterable of raw blocks expected, not one block")
    if isinstance(blocks, BlockSource):
        if in_order:
            raise ParameterError("in_order is for streams: files are put in chain order anyway")
        return PlannedFeed(blocks, network, report, strict=False)
    if isinstance(blocks, Sequence) and not in_order:
        return PlannedFeed(BlockList(blocks), network, report, strict=True)
    if isinstance(blocks, (AsyncIterable, Iterable)):
        return OrderedFeed(blocks, network, report) if in_order else StreamFeed(blocks, network, report)
    raise TypeError(f"an iterable of raw blocks expected, not {type(blocks).__name__}")
