"""Growth of keychain windows during a scan, and the blocks that must be searched again for new scripts."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.kernel import Hit
from spvfilter.scan.order import PendingBlock
from spvfilter.watch.watchlist import WatchList


class WatchGrowth:
    """Counts newly watched scripts during a scan, and the outpoints learned from searching blocks again.

    A block must be searched again until it has been searched with all of these. Before the scan, the windows are
    widened to twice their lookahead, so blocks are searched again only if a use moves a window beyond that.
    """

    def __init__(self, watch: WatchList) -> None:
        self._watch = watch
        self._scripts = 0
        self._found = 0
        self._coins = 0
        watch.advance()
        watch.widen()

    def mark(self) -> tuple[int, int]:
        """Return the numbers of scripts and outpoints so far: a search that starts now uses at least these."""
        return self._scripts + self._found, self._coins

    def used(self, hits: Iterable[Hit]) -> None:
        """Move the windows as the hits require. Windows that move are widened again.

        The list watches new scripts before they are counted.
        """
        if new := self._watch.advance(hits):
            self._scripts += len(new) + len(self._watch.widen())

    def found(self, scripts: int) -> None:
        """Count newly watched scripts of silent payments."""
        self._found += scripts

    def learned(self, coins: int) -> None:
        """Count outpoints learned from searching blocks again."""
        self._coins += coins

    @property
    def scripts(self) -> int:
        """Number of scripts that the list began to watch during the scan."""
        return self._scripts

    def due(self, blocks: Iterable[PendingBlock]) -> list[PendingBlock]:
        """Return the blocks that must be searched again, in order."""
        return [block for block in blocks if block.known != self.mark()]
