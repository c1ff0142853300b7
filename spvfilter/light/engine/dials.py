"""The pace of attempts to connect."""

from __future__ import annotations

_FREE_DIALS = 16  # attempts that fail in succession before they are slowed down; ours
DIAL_S = 0.5  # the first pause, as between Core's connections
_MAX_DIAL_S = 2.0  # the longest; a liar may have told of a thousand addresses that are not there; ours


class Dials:
    """When the next attempt may be made: without a pause at first, ever more slowly while all fail, as they do
    offline.
    """

    def __init__(self) -> None:
        self._failures = 0
        self.next_at: float = 0.0

    def began(self, now: float) -> None:
        """An attempt was begun, which fails until it succeeds."""
        slow = self._failures - _FREE_DIALS
        self._failures += 1
        self.next_at = now if slow < 0 else now + min(DIAL_S * 1.2 ** min(slow, 64), _MAX_DIAL_S)

    @property
    def are_slow(self) -> bool:
        """Whether so many have failed in succession that there are pauses between them."""
        return self._failures > _FREE_DIALS

    def succeeded(self) -> None:
        """A connection was made."""
        self._failures = 0
