"""Address states: successes, failures, pauses and bans of each address to which the pool may connect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spvfilter.light.engine.demands import Refusals
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.options import PeerTimeouts

_MAX_FAILURES = 1  # Consecutive failures up to which an address counts as reliable.

# Seconds that a connection must last, with no request outstanding, to give an unreliable address a chance. They double
# with each chance (our choice).
_STEADY_S = 45.0
_MAX_CHANCES = 10


@dataclass(slots=True)
class AddressState:
    """State of an address."""

    next_try: float = 0.0
    idle_until: float = 0.0
    """Until then, no peer is dropped in favor of this address, because its last connection was of no use."""
    failures: int = 0
    chances: int = 0
    """Number of chances that the address has had since it was last useful."""
    banned_until: float = 0.0
    """End of the latest ban (Unix time)."""
    was_tried: bool = False
    """True if the engine has tried to connect to the address in this run."""
    services: int | None = None
    twin: str | None = None
    """Another address of the same node, to which the client should not connect twice."""
    host: str = ""
    """Host of the last connection to the address; empty before the first."""
    refusals: Refusals = field(default_factory=Refusals)
    """Demands that the node refuses."""

    @property
    def is_reliable(self) -> bool:
        """True unless connections to the address have repeatedly ended without being useful."""
        return self.failures <= _MAX_FAILURES

    def may_offer(self, service: int, wall: float) -> bool:
        """True if the address may offer a service: it did when last connected, or has not been tried yet."""
        if self.banned_until > wall:
            return False
        return not self.was_tried or (self.services is not None and self.services & service != 0 and self.is_reliable)

    def left(self, now: float, timeouts: PeerTimeouts, *, is_failure: bool, is_idle: bool) -> None:
        """Record that the connection ended or could not be made. The address is not tried again for a while."""
        self.was_tried = True
        self.failures = min(self.failures + is_failure, 64)
        self.next_try = now + min(timeouts.retry_s * 2.0 ** max(0, self.failures - 1), timeouts.max_retry_s)
        if is_idle:
            self.idle_until = now + timeouts.max_retry_s

    def due(self, now: Instant, *, is_full: bool) -> float:
        """Return when to connect to the address (monotonic seconds). `is_full` is True if all slots are in use."""
        return max(self.next_try, now.monotonic + self.banned_until - now.wall, self.idle_until if is_full else 0.0)

    def lasts(self, seconds: float) -> None:
        """Give an unreliable address a chance if its connection has lasted long enough with no request outstanding."""
        if not self.is_reliable and seconds >= _STEADY_S * 2.0**self.chances:
            self.failures = _MAX_FAILURES
            self.chances = min(self.chances + 1, _MAX_CHANCES)

    def is_late(self) -> None:
        """Record that the peer has taken too long to answer, so the address has used up its chance."""
        if self.chances and self.failures == _MAX_FAILURES:
            self.failures += 1


def limit_bans(states: Iterable[AddressState], bans: dict[str, float], latest: float) -> None:
    """Shorten bans that end after `latest`, the end of a ban that begins now.

    Bans that end later were made while this machine's clock was ahead.
    """
    for state in states:
        state.banned_until = min(state.banned_until, latest)
    bans.update({address: latest for address, until in bans.items() if until > latest})
