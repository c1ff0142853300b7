"""Search blocks for transactions with given txids."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from concurrent import futures
from contextlib import aclosing
from typing import NamedTuple

from spvfilter.errors import FormatError, SourceError
from spvfilter.kernel import block_txids, check_block
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.fetching import NodeBlocks, NodeFeed
from spvfilter.scan.order import Feed, PendingBlock, PlannedFeed, ScanReport
from spvfilter.scan.sources import BlockSource, Problem
from spvfilter.scan.threadwork import to_its_end

_AHEAD = 4  # number of blocks in memory for each thread (our choice)


class PlacedTx(NamedTuple):
    """The place of a transaction in the best chain."""

    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""
    block: bytes
    """Hash of the block, 32 bytes in wire order."""
    height: int | None
    """Height of the block, or None if it is unknown."""
    time: int
    """Time of the block's header (Unix time)."""
    position: int
    """Position of the transaction in the block, starting at 0."""


class _Searched(NamedTuple):
    """A searched block."""

    size: int | None
    """Size of the block in bytes, or None if no copy of it is readable."""
    found: list[PlacedTx]
    """The transactions that were found in the block."""
    problems: list[Problem]
    """The copies of the block that are not readable."""


async def find_txs(
    blocks: BlockSource | NodeBlocks,
    wanted: frozenset[bytes],
    network: Network,
    report: ScanReport,
    *,
    jobs: int = 1,
    check: bool = False,
) -> AsyncGenerator[list[PlacedTx]]:
    """Yield the transactions with these txids, as one list per block, in chain order. Stale blocks are not searched.

    Args:
        blocks: The blocks, in files or from a node.
        wanted: The txids, each 32 bytes in wire order.
        network: The network of the blocks.
        report: The report to which the counts and problems of the search are added.
        jobs: Number of threads.
        check: True to verify merkle root and witness commitment of each block.

    Raises:
        ParameterError: The node is on a different network.
        SourceError: A node fails (NodeError), the range contains no blocks, or the heights of its blocks are unknown.
    """
    feed: Feed
    if isinstance(blocks, NodeBlocks):
        feed = await NodeFeed.of(blocks, network, report)
    else:
        feed = PlannedFeed(blocks, network, report, strict=False)
    pool = futures.ThreadPoolExecutor(jobs, "spvfilter-txids")
    search = asyncio.get_running_loop().run_in_executor
    waiting: deque[asyncio.Future[_Searched]] = deque()
    try:
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                for block in batch:
                    if not block.silent:
                        waiting.append(search(pool, _searched, feed, block, wanted, check))
                    if len(waiting) > _AHEAD * jobs:
                        yield _taken(await waiting.popleft(), report)
        while waiting:
            yield _taken(await waiting.popleft(), report)
    finally:
        feed.leave()
        await to_its_end(pool.shutdown, cancel_futures=True)
        await to_its_end(feed.close)


def _taken(searched: _Searched, report: ScanReport) -> list[PlacedTx]:
    """Add a searched block to the report, and return its transactions."""
    size, found, problems = searched
    report.problems += problems
    if size is not None:
        report.blocks += 1
        report.bytes_scanned += size
    report.matches += len(found)
    return found


def _searched(feed: Feed, block: PendingBlock, wanted: frozenset[bytes], check: bool) -> _Searched:
    """Search the first valid copy of one block."""
    problems: list[Problem] = []
    for ref in block.copies():
        try:
            raw = feed.read(block)
            if check:
                check_block(raw)
            txids = block_txids(raw)
        except (FormatError, SourceError, OSError) as error:
            problems.append(Problem.of(feed.source.name(ref), error))
            continue
        ids = [txids[at : at + HASH_SIZE] for at in range(0, len(txids), HASH_SIZE)]
        found = [
            PlacedTx(txid, ref.hash, block.height, ref.time, position)
            for position, txid in enumerate([] if wanted.isdisjoint(ids) else ids)
            if txid in wanted
        ]
        return _Searched(len(raw), found, problems)
    return _Searched(None, [], problems)
