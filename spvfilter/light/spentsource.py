"""SpentSource: where a client gets the outputs that blocks spend, which it needs in order to find silent payments."""

from __future__ import annotations

from typing import Protocol

from spvfilter._public import public


@public
class SpentSource(Protocol):
    """A source of the outputs that blocks spend, such as your own `FullNode`.

    The client checks the number of outputs, and that no transaction pays more than it spends. It cannot check their
    scripts, so a lying source can hide a silent payment, but not invent one.
    """

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        """Return the outputs that a block spends, as an undo record with its checksum.

        The client calls this method in its event loop, for several blocks at the same time. It reports an error as a
        `PeerWarning`, and asks again later.

        Args:
            digest: Hash of the block, 32 bytes in wire order.
            previous: Hash of the block's parent.
            by_details: True to use a slower method if there is no faster one.

        Returns:
            The record, or None if the source cannot give the outputs of any block.
        """
        ...
