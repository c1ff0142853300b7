"""The balance of what is watched, over time: 16 bytes for each block with matches."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from spvfilter.kernel import hit_sums
from spvfilter.scan.partfile import BlockHits


class BalanceHistory:
    """How the balance changes, block by block. Spends of unknown value are counted, and do not change it."""

    def __init__(self) -> None:
        self._times = array("q")  # of blocks, seconds since 1970
        self._changes = array("q")  # satoshi
        self.unknown = 0  # spends

    def __len__(self) -> int:
        """The number of blocks that change it."""
        return len(self._times)

    def add(self, block: BlockHits) -> None:
        """Count the matches of a block."""
        change = 0
        for _, _, received, spent, unknown in hit_sums(block.packed):
            change += received - spent
            self.unknown += unknown
        if change:
            self._times.append(block.time)
            self._changes.append(change)

    @classmethod
    def of(cls, blocks: Iterable[BlockHits]) -> BalanceHistory:
        """The history of these blocks."""
        made = cls()
        for block in blocks:
            made.add(block)
        return made

    def points(self) -> Iterator[tuple[int, int]]:
        """The time of each block that changes the balance, oldest first, and the balance then, in satoshi."""
        balance = 0
        for at in sorted(range(len(self._times)), key=self._times.__getitem__):
            balance += self._changes[at]
            yield self._times[at], balance
