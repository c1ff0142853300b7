"""ElectrumBudget: shares the time and memory of an Electrum server among all sessions, fairly between hosts."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from spvfilter.electrum.limits import ElectrumLimits

SMALL = 65_536
"""Bytes of requests, and of answers, that each session may hold without asking for room (our choice)."""
_COPIES = 3
"""An answer is in memory at most three times: in the parts of a batch, as a whole, and in the socket."""


class FairShare:
    """A limited number of permits that sessions wait for.

    Hosts take turns, and a single host gets only some of the permits.
    """

    def __init__(self, permits: int, host_permits: int) -> None:
        self._free = permits
        self._host_permits = host_permits
        self._held: Counter[str] = Counter()
        # keyed by host; the host whose turn is next comes first
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def acquire(self, host: str) -> None:
        """Wait for a permit."""
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # the permit came just before
                self.release(host)
            raise

    def release(self, host: str) -> None:
        """Give a permit back."""
        self._free += 1
        self._held[host] -= 1
        if not self._held[host]:
            del self._held[host]
        self._grant()

    def _grant(self) -> None:
        """Give free permits to waiting sessions."""
        for host in list(self._waiting):
            waiting = self._waiting[host]
            while waiting and waiting[0].done():  # the call was cancelled
                waiting.popleft()
            if waiting and self._free > 0 and self._held[host] < self._host_permits:
                self._free -= 1
                self._held[host] += 1
                waiting.popleft().set_result(None)
                self._waiting[host] = self._waiting.pop(host)  # the other hosts come first now
            if not waiting:
                del self._waiting[host]
        if self._free > 0 and any(self._held[host] < self._host_permits for host in self._waiting):
            self._grant()


class ElectrumBudget:
    """A server's time and memory, and the number of its subscriptions."""

    def __init__(self, limits: ElectrumLimits) -> None:
        rooms = max(2, limits.memory // (_COPIES * limits.response_size + limits.request_size))
        self.turns: FairShare = FairShare(1, 1)
        """The right to use the event loop for a few milliseconds."""
        self.rooms: FairShare = FairShare(rooms, rooms // 2)
        """The right to hold a large request, and large answers."""
        self._subscriptions = limits.all_subscriptions
        self._subscribed: Counter[str] = Counter()

    def subscribe(self, host: str) -> bool:
        """Count a subscription. Returns False if the sessions of the host, or all sessions combined, have too many."""
        if self._subscribed[host] >= max(1, self._subscriptions // 2) or (
            self._subscribed.total() >= self._subscriptions
        ):
            return False
        self._subscribed[host] += 1
        return True

    def unsubscribe(self, host: str, count: int = 1) -> None:
        """Stop counting subscriptions that have ended."""
        self._subscribed[host] -= count
        if self._subscribed[host] <= 0:
            del self._subscribed[host]


def size_of(answer: object) -> int:
    """Estimate how many bytes an answer takes as JSON. Each row of a list is assumed to be as long as the first."""
    if isinstance(answer, str):
        return len(answer) + 2
    if isinstance(answer, dict):
        return 2 + sum(len(name) + 4 + size_of(value) for name, value in answer.items())
    if isinstance(answer, (list, tuple)):
        return 2 + len(answer) * (2 + (size_of(answer[0]) if answer else 0))
    return 20
