"""A node's chain followed: its blocks scanned up to the tip, and then as they come, with what reorganisations take
away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import NodeChainError, NodeError, NodePrunedError, ParameterError, SourceError
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.rpc.fullnode import FullNode, Listing
from spvfilter.rpc.notices import TipNotices
from spvfilter.scan.fetching import NodeBlocks
from spvfilter.scan.matcher import Matcher
from spvfilter.watch.match import Match

_MOST_KEPT = 100_000  # blocks below the tip that a reorganisation may take away
_MOST_CONNECTED = 1_000  # blocks of the first scan of which it is told that they are connected: its last ones
_POLL_S = 10.0
_LEAST_PAUSE_S = 0.1


@public
@dataclass(frozen=True, slots=True)
class Connected:
    """A block of the best chain was scanned: all matches in it, and in the blocks before it, were told."""

    height: int
    hash: bytes
    """32 bytes, wire order."""


@public
@dataclass(frozen=True, slots=True)
class Disconnected:
    """A reorganisation has taken a block away: its matches do not count any more. The last one is told first."""

    height: int
    hash: bytes
    """32 bytes, wire order."""


class _Kept:
    """The hashes of the last blocks that were scanned, one for each height."""

    def __init__(self, first: int) -> None:
        self._start = first  # of the scan
        self._first = first
        self._hashes = bytearray()

    @property
    def last(self) -> int:
        return self._first + len(self._hashes) // HASH_SIZE - 1

    def hash_at(self, height: int) -> bytes | None:
        """The hash of the block of a height; None below those that are kept."""
        at = (height - self._first) * HASH_SIZE
        return bytes(self._hashes[at : at + HASH_SIZE]) if at >= 0 else None

    def add(self, digest: bytes) -> None:
        self._hashes += digest
        if len(self._hashes) > 2 * _MOST_KEPT * HASH_SIZE:
            del self._hashes[: _MOST_KEPT * HASH_SIZE]
            self._first += _MOST_KEPT

    def cut(self, last: int) -> None:
        """Drop the blocks above a height."""
        del self._hashes[(last + 1 - self._first) * HASH_SIZE :]

    async def fork(self, node: FullNode, tip: int) -> int:
        """The last height at which the node's chain has the block that is kept; one below the first if none.

        Raises NodeChainError.
        """
        low, high, step = self._first - 1, min(self.last, tip), 1
        while high > low and await node.hash_at(high) != self.hash_at(high):
            below = max(low, high - step)
            if below == low or await node.hash_at(below) == self.hash_at(below):
                low = below
                while high - low > 1:  # they agree at `low`, and not at `high`
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
                f"{node.endpoint}: its chain changed below height {self._first:,}, further back than is remembered"
            )
        return high


@public
async def follow(
    matcher: Matcher, blocks: NodeBlocks, *, notices: TipNotices | None = None, poll_s: float = _POLL_S
) -> AsyncGenerator[Match | Connected | Disconnected]:
    """Scan a node's chain to its tip, and then what comes, without an end: matches, and how the chain grows and
    changes.

    A block is told as Connected after its matches (of the first scan, the last 1,000 are), and as Disconnected when the
    best chain has it no more. The chain is looked at whenever `notices` wake, and every `poll_s` seconds. The hashes
    that the node then gives decide: lost notices, duplicates and lies change nothing. Scripts that a descriptor gains
    while the chain is followed are looked for from there on.

    `matcher.report` is that of the blocks that came last. Raises NodeError as the node's Patience allows;
    NodeChainError for a reorganisation of more than 100,000 blocks; ParameterError for a range with an end.
    """
    node = blocks.node
    if blocks.span.to_height is not None:
        raise ParameterError("a chain that is followed has no last height")
    if not poll_s > 0:
        raise ParameterError(f"the chain is looked at every so many seconds, above 0: {poll_s}")
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
            await node.patience.pause(_LEAST_PAUSE_S)  # however often it wakes
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
    """The blocks above the fork, perhaps none; None if the chain changed meanwhile, so that it has to be looked at
    again.
    """
    if tip <= fork:
        return Listing(fork + 1, b"", b"") if fork < kept.last else None
    try:
        listing = await node.listing(fork + 1)
    except NodeError:
        raise
    except SourceError:  # it became shorter
        return None
    return listing if kept.hash_at(fork) in (None, listing.previous) else None


async def _round(
    matcher: Matcher, blocks: NodeBlocks, listing: Listing, kept: _Kept, told_from: int, notices: TipNotices | None
) -> AsyncGenerator[Match | Connected]:
    """Scan the blocks of a listing, and keep the hashes of those that were."""
    source = NodeBlocks(
        blocks.node,
        undo=blocks.mode,
        ahead=blocks.ahead,
        listing=listing,
        offered=None if notices is None else notices.block,
    )

    def connect(height: int) -> list[Connected]:
        """Keep the blocks below a height that are not kept yet; those to tell of."""
        new = range(kept.last + 1, height)
        for each in new:
            kept.add(listing.hash_at(each))
        return [Connected(each, listing.hash_at(each)) for each in new if each >= told_from]

    try:
        async with aclosing(matcher.scan(source)) as matches:
            async for match in matches:
                assert match.height is not None
                for event in connect(match.height):
                    yield event
                yield match
    except NodePrunedError:
        if await blocks.node.hash_at(listing.last) == listing.hash_at(listing.last):
            raise
        blocks.node.patience.tell(
            f"{blocks.node.endpoint}: block {hash_to_hex(listing.hash_at(listing.last))} is in its chain no more"
        )
    # all matches in them were told, also where the scan has failed
    for event in connect(listing.first + matcher.report.blocks):
        yield event
