"""The balance of a watch list over time, stored in 16 bytes for each block that changes it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from spvfilter.kernel import hit_sums
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.repeatedcoins import RepeatedCoins


class BalanceHistory:
    """The changes in a watch list's balance, block by block.

    A spend of unknown value is counted in `unknown` and does not change the balance. A coin that two blocks created
    counts once (BIP-30).
    """

    def __init__(self) -> None:
        self._coins = RepeatedCoins()
        self._times = array("q")  # time of each block that changes the balance (Unix time)
        self._changes = array("q")  # change in the balance in each of these blocks, in satoshi
        self.unknown: int = 0
        """Number of spends whose value is unknown."""

    def __len__(self) -> int:
        """Return the number of blocks that change the balance."""
        return len(self._times)

    def add(self, block: BlockHits) -> None:
        """Add the matches of a block to the history."""
        change = 0
        for _, _, received, spent, unknown in hit_sums(self._coins.counted(block)):
            change += received - spent
            self.unknown += unknown
        if change:
            self._times.append(block.time)
            self._changes.append(change)

    @classmethod
    def of(cls, blocks: Iterable[BlockHits]) -> BalanceHistory:
        """Return the history of the matches in these blocks."""
        made = cls()
        for block in blocks:
            made.add(block)
        return made

    def points(self) -> Iterator[tuple[int, int]]:
        """Yield, oldest first, the time of each block that changes the balance and the balance after it, in satoshi."""
        balance = 0
        for at in sorted(range(len(self._times)), key=self._times.__getitem__):
            balance += self._changes[at]
            yield self._times[at], balance
