"""Pace: how soon another transaction from a network group may be recorded, so that no group hogs the processor."""

from __future__ import annotations

from math import inf

SHARE = 0.025
"""Share of a processor that one network group's transactions may take (our choice)."""
AHEAD_S = 60.0
"""How many seconds of its share an idle group may save up, and its longest pause in seconds (our choice)."""
_MOST = 1_000  # Number of remembered groups above which the ones not paused are forgotten (our choice).


class Pace:
    """When each network group may continue after the work that its transactions caused."""

    def __init__(self) -> None:
        self._rested_at: dict[str, float] = {}  # monotonic seconds

    def charge(self, group: str, work_s: float, now: float) -> None:
        """Charge a group for a transaction that took an estimated `work_s` seconds of processor time."""
        since = max(self._rested_at.pop(group, -inf), now - AHEAD_S)
        self._rested_at[group] = min(since + work_s / SHARE, now + AHEAD_S)
        if len(self._rested_at) > _MOST:
            self._rested_at = {group: at for group, at in self._rested_at.items() if at > now}

    def ready_at(self, group: str) -> float:
        """Return when a group's next transaction may be recorded (monotonic seconds); -inf if it has had none yet."""
        return self._rested_at.get(group, -inf)

    def is_ready(self, group: str, now: float) -> bool:
        """True if the next transaction from a group may be recorded."""
        return self.ready_at(group) <= now
