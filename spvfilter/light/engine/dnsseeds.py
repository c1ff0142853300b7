"""DNS seeds: when to ask them for addresses."""

from __future__ import annotations

_WAIT_S = 11.0  # Wait for enough peers before asking seeds, if the book contains addresses (Core net.cpp).
_LONG_WAIT_S = 300.0  # The same if the book contains more than _MANY addresses (Core net.cpp).
_MANY = 1_000  # Core net.cpp DNSSEEDS_DELAY_PEER_THRESHOLD.
_ENOUGH = 2  # With this many useful peers, the engine asks no seed (Core net.cpp).
_PAUSE_S = 600.0  # First pause between two lookups. It doubles each time, up to _MAX_PAUSE_S (our choice).
_MAX_PAUSE_S = 21_600.0


class Seeds:
    """Decides when to ask DNS seeds."""

    def __init__(self) -> None:
        self.is_asking: bool = False
        self._asked = 0
        self._not_before = 0.0
        self._lacking_since: float | None = None  # enough peers

    def due(self, now: float, known: int, useful: int, most: int) -> bool:
        """Return True if the seeds should be asked now, and record that they are being asked.

        They are asked once there have been too few useful peers for a while, or without that wait if no address is
        known. A lookup that is still running, or the pause after the previous one, delays both.

        Args:
            now: The current time (monotonic seconds).
            known: Number of addresses in the book.
            useful: Number of connected peers that are useful.
            most: Largest number of peers to connect to.
        """
        if known and useful >= min(_ENOUGH, most):
            self._lacking_since = None
            return False
        if self._lacking_since is None:
            self._lacking_since = now
        wait = 0.0 if not known else _LONG_WAIT_S if known > _MANY else _WAIT_S
        if self.is_asking or now < self._not_before or now - self._lacking_since < wait:
            return False
        self.is_asking = True
        self._not_before = now + min(_PAUSE_S * 2.0 ** min(self._asked, 16), _MAX_PAUSE_S)
        self._asked += 1
        return True
