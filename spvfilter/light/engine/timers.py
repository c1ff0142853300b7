"""Timers: when the engine needs the next tick."""

from __future__ import annotations

from math import inf

from spvfilter.light.engine.context import Context
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.peers import PeerState

_IDLE_S = 30.0  # Interval between ticks while no request is outstanding.
_LONGEST_S = 10.0  # Longest interval between ticks while the engine is waiting for something without a deadline.
_STEADY_TICKS = 4  # After this many ticks without another input, ticks become rarer.
_MAX_SLACK_S = 0.5  # A tick may be this late, so that small changes need no new timer.
_AFTER_S = 0.001  # Delay after a deadline, because sums of times are rounded.
_EXPIRY_S = 60.0  # Interval between checks for expired unconfirmed transactions.


class Timers:
    """The next tick, and the next check for expired transactions."""

    def __init__(self) -> None:
        self.started: Instant = Instant(0.0, 0.0)
        self._wake_at: float | None = None
        self._ticks = 0  # number of ticks since the last other input
        self._expiry_at = 0.0

    @property
    def wakes_at(self) -> float:
        """When the requested tick is due (monotonic seconds); infinity if none was requested."""
        return inf if self._wake_at is None else self._wake_at

    def forget(self) -> None:
        """Forget the requested tick, which another request has replaced."""
        self._wake_at = None

    def rang(self) -> None:
        """Record that the requested tick has arrived."""
        self._wake_at = None
        self._ticks += 1

    def stirred(self) -> None:
        """Record an input other than a tick."""
        self._ticks = 0

    def is_expiry_due(self, now: float) -> bool:
        """True if the check for expired transactions is due. Returns True at most once a minute."""
        if now < self._expiry_at:
            return False
        self._expiry_at = now + _EXPIRY_S
        return True

    def expire_again(self) -> None:
        """Check again at the next tick, because one check drops only a few transactions."""
        self._expiry_at = 0.0

    def set(self, context: Context, also_at: float, *, is_done: bool) -> None:
        """Request the next tick. Another part of the engine needs one by `also_at` (monotonic seconds)."""
        now, timeouts = context.now.monotonic, context.options.timeouts
        at = now + _IDLE_S
        peers = list(context.pool)
        if context.is_due:
            at = now
        elif not is_done or any(peer.questions or peer.state is not PeerState.READY for peer in peers):
            rarer = 2 ** max(0, min(self._ticks - _STEADY_TICKS, 8))
            at = now + max(timeouts.stall_s / 2, min(rarer * timeouts.stall_s / 2, _LONGEST_S))
        for peer in peers:
            if peer.questions:
                since = next(iter(peer.questions.values()))  # the oldest has waited longest
                due = since + (timeouts.stall_s if peer.state is PeerState.READY else timeouts.reply_s)
                at = min(at, max(due, now) + _AFTER_S)
        next_try = context.pool.next_try(context.now)
        if next_try is not None:
            at = min(at, max(next_try, now))
        at = min(at, max(also_at, now))
        slack_s = 0.0 if context.is_due else min(timeouts.stall_s / 4, _MAX_SLACK_S)
        if self._wake_at is None or at < self._wake_at - slack_s or self._wake_at < now:
            self._wake_at = at
            context.out.wake(at)
