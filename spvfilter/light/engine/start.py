"""The start of a search: a height, or a time."""

from __future__ import annotations

from spvfilter.chain import HeaderChain

_MEDIAN_SPAN = 11  # blocks
TIMESTAMP_WINDOW_S = 7_200  # A block's time may be wrong by this much.


class StartHeight:
    """The first block to be searched.

    It is the block at a height or at a birthday (Unix time), whichever is lower. Without either, it is the genesis
    block.
    """

    def __init__(self, from_height: int | None = None, birthday: int | None = None) -> None:
        self._from_height = from_height
        self._birthday = birthday

    @property
    def is_given(self) -> bool:
        """True if there is a height or a birthday."""
        return self._from_height is not None or self._birthday is not None

    @property
    def wanted(self) -> tuple[int | None, int | None]:
        """The height and the birthday."""
        return self._from_height, self._birthday

    def first(self, chain: HeaderChain) -> int:
        """Return the first height to be searched.

        For a birthday, a margin of two hours and eleven blocks is subtracted. The time in a header may be off by two
        hours, and the median time of eleven blocks lags behind.
        """
        if self._birthday is None:
            return self._from_height or 0
        low, high = 0, chain.height + 1
        while low < high:  # median times ascend
            middle = (low + high) // 2
            if chain.median_time_at(middle) < self._birthday - TIMESTAMP_WINDOW_S:
                low = middle + 1
            else:
                high = middle
        low = max(low - _MEDIAN_SPAN, 0)
        return low if self._from_height is None else min(low, self._from_height)

    def lower(self, other: StartHeight) -> None:
        """Also search the blocks from another start, by moving this one back if necessary.

        The height of a birthday may be unknown until all headers have arrived.
        """
        if not other.is_given or not self.is_given:
            self._from_height, self._birthday = (0 if self.is_given else None), None
            return
        self._from_height = min(
            (each for each in (self._from_height, other._from_height) if each is not None), default=None
        )
        self._birthday = min((each for each in (self._birthday, other._birthday) if each is not None), default=None)
