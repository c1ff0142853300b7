"""Follow a node's chain: scan its blocks up to the tip, then new blocks as they arrive, and report reorganizations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.errors import NodeChainError, NodeError, NodePrunedError, ParameterError, SourceError
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.rpc.fullnode import FullNode, Listing
from spvfilter.rpc.notices import TipNotices
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.fetching import NodeBlocks
from spvfilter.scan.matcher import Matcher
from spvfilter.watch.match import Match

# All of these values are our choice.
MOST_KEPT = 100_000  # Most blocks that a reorganization may disconnect.
_MOST_CONNECTED = 1_000  # Number of blocks at the end of the first scan that are reported as Connected.
_POLL_S = 10.0  # Seconds between checks of the chain.
_LEAST_PAUSE_S = 0.1  # Least number of seconds between two checks, however often notifications arrive.


@public
@dataclass(frozen=True, slots=True)
class Connected:
    """An event: a block of the best chain was scanned.

    All matches in it and in earlier blocks have been yielded before this event.
    """

    height: int
    """Height of the scanned block."""
    hash: bytes
    """Hash of the scanned block, 32 bytes in wire order."""

    @property
    def hash_hex(self) -> str:
        """The `hash` field in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


@public
@dataclass(frozen=True, slots=True)
class Disconnected:
    """An event: a reorganization disconnected a block, so that its matches no longer count.

    The highest disconnected block is reported first.
    """

    height: int
    """Height of the disconnected block."""
    hash: bytes
    """Hash of the disconnected block, 32 bytes in wire order."""

    @property
    def hash_hex(self) -> str:
        """The `hash` field in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


class _Kept:
    """The hashes of the most recently scanned blocks, one for each height."""

    def __init__(self, first: int) -> None:
        self._start = first  # lowest height of the scan
        self._first = first  # lowest height that is kept
        self._hashes = bytearray()

    @property
    def last(self) -> int:
        """The height of the last scanned block."""
        return self._first + len(self._hashes) // HASH_SIZE - 1

    def hash_at(self, height: int) -> bytes | None:
        """Return the hash of the block at a height, or None if it is below the kept blocks."""
        at = (height - self._first) * HASH_SIZE
        return bytes(self._hashes[at : at + HASH_SIZE]) if at >= 0 else None

    def add(self, digest: bytes) -> None:
        """Add the hash of the next block."""
        self._hashes += digest
        if len(self._hashes) > 2 * MOST_KEPT * HASH_SIZE:
            del self._hashes[: MOST_KEPT * HASH_SIZE]
            self._first += MOST_KEPT

    def cut(self, last: int) -> None:
        """Remove the blocks above a height."""
        del self._hashes[(last + 1 - self._first) * HASH_SIZE :]

    async def fork(self, node: FullNode, tip: int) -> int:
        """Return the greatest height at which the node's chain contains the kept block, or one below the first.

        Raises NodeChainError if the chain changed below the kept blocks.
        """
        low, high, step = self._first - 1, min(self.last, tip), 1
        while high > low and await node.hash_at(high) != self.hash_at(high):
            below = max(low, high - step)
            if below == low or await node.hash_at(below) == self.hash_at(below):
                low = below
                while high - low > 1:  # the chains agree at `low` and differ at `high`
                    middle = (low + high) // 2
                    if await node.hash_at(middle) == self.hash_at(middle):
                        low = middle
                    else:
                        high = middle
                high = low
                break
            high, step = below, 2 * step
        if high < self._first and self._first > self._start:
            raise NodeChainError(
                f"{node.endpoint}: its chain changed below height {self._first:,}, the lowest that is still known:"
                " scan again"
            )
        return high


@public
async def follow(
    matcher: Matcher, blocks: NodeBlocks, *, notices: TipNotices | None = None, poll_s: float = _POLL_S
) -> AsyncGenerator[Match | Connected | Disconnected]:
    """Scan a node's chain to its tip, then new blocks as they arrive, forever.

    Yields matches, then Connected for their block. The first scan reports only its last 1,000 blocks as Connected. When
    a block leaves the best chain, Disconnected is yielded. Only the node's block hashes matter: lost, duplicate and
    false notifications change nothing. A script that is derived from a descriptor during this time is searched for only
    in later blocks.

    Args:
        matcher: The matcher that scans. Its `report` describes the most recent scan of new blocks.
        blocks: The node's blocks. Their span must have no end.
        notices: Notifications of new blocks. The chain is checked whenever one arrives.
        poll_s: Seconds between checks of the chain, above 0.

    Raises:
        NodeError: The node fails for longer than its Patience allows.
        NodeChainError: A reorganization disconnected more than 100,000 blocks.
        ParameterError: The span has an end, or `poll_s` is not above 0.
    """
    async with aclosing(follow_batches(matcher, blocks, notices=notices, poll_s=poll_s)) as events:
        async for event in events:
            if isinstance(event, MatchBatch):
                for match in event.matches():
                    yield match
            else:
                yield event


async def follow_batches(
    matcher: Matcher, blocks: NodeBlocks, *, notices: TipNotices | None = None, poll_s: float = _POLL_S
) -> AsyncGenerator[MatchBatch | Connected | Disconnected]:
    """Follow a chain as `follow` does, but yield the matches of a block as one MatchBatch.

    Raises NodeError, NodeChainError and ParameterError as `follow` does.
    """
    node = blocks.node
    if blocks.span.to_height is not None or blocks.span.to_time is not None:
        raise ParameterError("following a chain never ends: pass a span without to_height or to_time")
    if not poll_s > 0:
        raise ParameterError(f"poll_s must be more than 0 seconds, not {poll_s}")
    listing: Listing | None = await blocks.listing()
    assert listing is not None
    kept, told_from = _Kept(listing.first), listing.last - _MOST_CONNECTED + 1
    while True:
        if listing is not None and len(listing):
            async with aclosing(_round(matcher, blocks, listing, kept, told_from, notices)) as events:
                async for event in events:
                    yield event
            told_from = 0
        if notices is None:
            await node.patience.pause(poll_s)
        else:
            await notices.wait(poll_s)
            await node.patience.pause(_LEAST_PAUSE_S)
        tip = await node.info()
        if tip.best == kept.hash_at(kept.last):
            listing = None
            continue
        fork = await kept.fork(node, tip.height)
        listing = await _new_blocks(node, kept, fork, tip.height)
        if listing is not None:
            for height in range(kept.last, fork, -1):
                digest = kept.hash_at(height)
                assert digest is not None
                kept.cut(height - 1)
                yield Disconnected(height, digest)


async def _new_blocks(node: FullNode, kept: _Kept, fork: int, tip: int) -> Listing | None:
    """Return the listing of blocks above the fork, or None if the chain changed and must be checked again."""
    if tip <= fork:
        return Listing(fork + 1, b"", b"") if fork < kept.last else None
    try:
        listing = await node.listing(fork + 1)
    except NodeError:
        raise
    except SourceError:  # the chain became shorter
        return None
    return listing if kept.hash_at(fork) in (None, listing.previous) else None


async def _round(
    matcher: Matcher, blocks: NodeBlocks, listing: Listing, kept: _Kept, told_from: int, notices: TipNotices | None
) -> AsyncGenerator[MatchBatch | Connected]:
    """Scan the blocks of a listing, and keep their hashes."""
    source = NodeBlocks(
        blocks.node,
        undo=blocks.mode,
        ahead=blocks.ahead,
        listing=listing,
        offered=None if notices is None else notices.block,
    )

    def connect(height: int) -> list[Connected]:
        """Keep the blocks below a height that are not kept yet, and return the events that report them."""
        new = range(kept.last + 1, height)
        for each in new:
            kept.add(listing.hash_at(each))
        return [Connected(each, listing.hash_at(each)) for each in new if each >= told_from]

    try:
        async with aclosing(matcher.scan_batches(source)) as batches:
            async for batch in batches:
                assert batch.block.height is not None
                for event in connect(batch.block.height):
                    yield event
                yield batch
    except NodePrunedError:
        if await blocks.node.hash_at(listing.last) == listing.hash_at(listing.last):
            raise
        blocks.node.patience.tell(
            f"{blocks.node.endpoint}: block {hash_to_hex(listing.hash_at(listing.last))} is no longer in its chain"
        )
    # all matches in these blocks have been yielded, even if the scan was cut short
    for event in connect(listing.first + matcher.report.blocks):
        yield event
