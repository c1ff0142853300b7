"""TweakSource: where a client gets the tweaks of blocks. It needs them to find silent payments by compact filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spvfilter._public import public


@public
class TweakSource(Protocol):
    """A source of the tweaks of blocks, such as a `BlindBitOracle` (BIP-352 § Light clients).

    The source learns which blocks are searched, but no keys, addresses or scripts. It can hide a silent payment but not
    invent one, because the wallet can spend every payment that the client finds.
    """

    async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
        """Return the tweaks of the block at a height.

        The client calls this method in its event loop, for several blocks at the same time. It reports an error as a
        `PeerWarning`, and asks again later.

        Args:
            height: Height of the block.

        Returns:
            Hash of the block, 32 bytes in wire order, and the tweaks of its transactions in any order. Each tweak is 33
            bytes long, and there is one for each transaction that has a taproot output and an eligible input. If the
            hash is not in the best chain, the client asks again.
        """
        ...
