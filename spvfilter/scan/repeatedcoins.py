"""The coins on mainnet that two blocks created, so that sums count each of them only once."""

from __future__ import annotations

from spvfilter.kernel import pack_hits, unpack_hits
from spvfilter.primitives import hash_from_hex
from spvfilter.scan.partfile import BlockHits

REPEATING = frozenset(
    map(
        hash_from_hex,
        (
            "00000000000271a2dc26e7667f8419f2e15416dc6955e5a6c6cdf3f2574dd08e",  # 91,722
            "00000000000af0aed4792b1acee3d966af36cf5def14935db8de83d6f9306f2f",  # 91,812
            "00000000000a4d0a398161ffc163c503763b1f4360639393e0e4c8e300e0caec",  # 91,842: the coinbase of 91,812
            "00000000000743f190a18c5577a3c2d2a1f610ae9601ac046a38084ccb7cd721",  # 91,880: the coinbase of 91,722
        ),
    )
)
"""Blocks on mainnet whose coinbase is also in another block (BIP-30; Core validation.cpp, IsBIP30Repeat). BIP-30 and
BIP-34 rule out any other repeated coins.
"""


class RepeatedCoins:
    """The repeated coins that a sum has counted.

    A repeated coinbase creates the same outpoint again, so only one of the two coins exists.
    """

    def __init__(self) -> None:
        self._counted: set[bytes] = set()

    def counted(self, block: BlockHits) -> bytes:
        """Return the packed hits of a block, except outputs that an earlier call returned for another block."""
        if block.hash not in REPEATING:
            return block.packed
        hits = unpack_hits(block.packed)
        return pack_hits([hit for hit in hits if hit.spend or hit.position or self._is_first(hit.outpoint)])

    def _is_first(self, outpoint: bytes) -> bool:
        """Record a coinbase output of one of these blocks. Return False if it has already been recorded."""
        is_first = outpoint not in self._counted
        self._counted.add(outpoint)
        return is_first
