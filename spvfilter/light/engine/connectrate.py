"""Limits the rate of attempts to connect."""

from __future__ import annotations

_FREE_DIALS = 16  # Consecutive failed attempts before the pauses begin (our choice).
DIAL_S = 0.5  # The first pause, as between Core's connections.
_MAX_DIAL_S = 2.0  # The longest pause (our choice). A peer may have sent a thousand unreachable addresses.


class ConnectRate:
    """Decides when the next attempt may be made.

    The first attempts are made without a pause. If all of them fail, as they do offline, growing pauses follow.
    """

    def __init__(self) -> None:
        self._failures = 0
        self.next_at: float = 0.0

    def began(self, now: float) -> None:
        """Record an attempt. It counts as a failure until it succeeds."""
        slow = self._failures - _FREE_DIALS
        self._failures += 1
        self.next_at = now if slow < 0 else now + min(DIAL_S * 1.2 ** min(slow, 64), _MAX_DIAL_S)

    @property
    def is_slow(self) -> bool:
        """True if more than 16 attempts in a row have failed, so there are pauses between attempts."""
        return self._failures > _FREE_DIALS

    def succeeded(self) -> None:
        """Record a successful connection."""
        self._failures = 0
