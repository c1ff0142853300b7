"""TweakSource: where a client gets the tweaks of blocks, with which compact filters find silent payments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spvfilter._public import public


@public
class TweakSource(Protocol):
    """A source of the tweaks of blocks, such as a `BlindBitOracle` (BIP-352 § Light clients).

    The source learns which blocks are searched, but no key, address or script. It can hide a silent payment. A payment
    that it invents would be real: the wallet could spend it.
    """

    async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
        """Return the tweaks of the block at a height.

        The client calls it in its event loop, for several blocks at the same time. It reports an error as a
        `PeerWarning`, and asks again later.

        Args:
            height: Height of the block.

        Returns:
            Hash of the block, 32 bytes in wire order, and the tweaks of its transactions in any order. Each tweak is 33
            bytes long, and each transaction with a taproot output and an eligible input has one. The client asks again
            if the hash is not that of its best chain.
        """
        ...
