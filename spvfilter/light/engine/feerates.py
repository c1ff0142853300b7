"""Fee rates that a light client has seen for itself: averages of whole blocks, and its peers' largest feefilter."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.chain import HeaderChain
from spvfilter.hashes import sha256d
from spvfilter.kernel import walk_block
from spvfilter.light.engine.fees import stated_rates
from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import BlockFeeRate, FeeRates
from spvfilter.network import Network
from spvfilter.protocol import HEADER_SIZE

BLOCKS = 144
"""Number of blocks below the tip whose rates are kept: about a day's worth (our choice)."""


def subsidy(network: Network, height: int) -> int:
    """Return the subsidy of a block in satoshi (Core GetBlockSubsidy)."""
    halvings = height // network.halving_interval
    return 5_000_000_000 >> halvings if halvings < 64 else 0


def block_fee_rate(raw: bytes, network: Network, height: int) -> BlockFeeRate | None:
    """Return the average fee rate of a checked block; None if it contains only a coinbase."""
    spans = walk_block(raw)
    coinbase = next(spans)
    values = (int.from_bytes(raw[at : at + 8], "little") for at, _, _ in coinbase.outputs)
    paid = sum(values) - subsidy(network, height)
    weight = 0
    for span in spans:
        size = span.end - span.start
        witness = span.end - 4 - span.witness + 2 if span.witness else 0  # with marker and flag, without lock time
        weight += 4 * size - 3 * witness
    if not weight:
        return None
    virtual_size = -(-weight // 4)
    return BlockFeeRate(height, sha256d(raw[:HEADER_SIZE]), max(paid, 0) * 1_000 // virtual_size, virtual_size)


class RecentRates:
    """Average fee rates of blocks near the tip."""

    def __init__(self, chain: HeaderChain) -> None:
        self._chain = chain
        self._rates: dict[int, BlockFeeRate] = {}  # by height

    def wants(self, height: int) -> bool:
        """Return True if the rate of the block at a height should be computed."""
        return height > self._chain.height - BLOCKS

    def add(self, rate: BlockFeeRate) -> None:
        """Store a rate, and drop the rates of blocks that are now too deep."""
        self._rates[rate.height] = rate
        for height in [height for height in self._rates if not self.wants(height)]:
            del self._rates[height]

    def rates(self, peers: Iterable[Peer]) -> FeeRates:
        """Return the rates of blocks in the best chain, and the largest feefilter of ready peers."""
        used = [rate for _, rate in stated_rates(peers)]
        blocks = tuple(
            self._rates[height]
            for height in sorted(self._rates)
            if self.wants(height) and self._is_active(self._rates[height])
        )
        return FeeRates(blocks, max(used, default=None), len(used))

    def _is_active(self, rate: BlockFeeRate) -> bool:
        return self._chain.height_of(rate.block_hash) == rate.height
