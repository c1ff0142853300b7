"""What keychains' windows gain during a scan, and which blocks are searched again for it, until nothing changes."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.kernel import Hit
from spvfilter.scan.order import PendingBlock
from spvfilter.watch.watchlist import WatchList


class Growth:
    """Counts the scripts that became watched during a scan, and the outpoints learned from blocks that were searched
    again for them.

    A block is due until it was searched with all of both. Before the scan the windows are widened, by as much again as
    they look ahead: as long as no use moves a window beyond that, no block is searched again.
    """

    def __init__(self, watch: WatchList) -> None:
        self._watch = watch
        self._scripts = 0
        self._coins = 0
        watch.advance()
        watch.widen()

    def mark(self) -> tuple[int, int]:
        """What a search that begins now knows, at least."""
        return self._scripts, self._coins

    def used(self, hits: Iterable[Hit]) -> None:
        """Let the windows move, as the hits say; those that do are widened again.

        The list knows new scripts before they are counted.
        """
        if new := self._watch.advance(hits):
            self._scripts += len(new) + len(self._watch.widen())

    def learned(self, coins: int) -> None:
        """So many outpoints were learned from blocks that were searched again."""
        self._coins += coins

    @property
    def scripts(self) -> int:
        """The number of scripts that became watched during the scan."""
        return self._scripts

    def due(self, blocks: Iterable[PendingBlock]) -> list[PendingBlock]:
        """The blocks to search again, in order."""
        return [block for block in blocks if block.known != (self._scripts, self._coins)]
