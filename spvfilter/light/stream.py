"""The stream of a light client's events, bounded: what nobody has read in time is thinned out to what still tells something.

Of blocks connected, progress and the like only the latest counts; what became of each match is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred, public
from spvfilter.light.events import Event, PeerChanged, PeerWarning, Progress, Synced
from spvfilter.wallet.events import BlockConnected

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


MAX_WAITING = 1_000  # events that wait to be read, before they are thinned out
MAX_LEFT = 50_000  # events that are never thinned out; from then on the client takes nothing in until some are read
_MAX_ALIKE = {BlockConnected: 1, PeerChanged: 1, PeerWarning: 100, Progress: 1, Synced: 1}  # of a kind that are left: the latest


@public
class EventStream:
    """An iterator of events; a wait that is cancelled loses none, and the next one goes on."""

    def __init__(self, take: Callable[[], Awaitable[Event]]) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._take()

    async def aclose(self) -> None:
        """Nothing is left open; for contextlib.aclosing."""


class EventQueue:
    """Events that wait to be read, until the client has ended."""

    def __init__(self, drained: Callable[[], None]) -> None:
        """`drained` is called when there is room again."""
        self._events: deque[Event] = deque()
        self._drained = drained
        self._changed = asyncio.Event()
        self._thin_at = MAX_WAITING
        self._lasting = 0  # events that are never thinned out
        self.error: Exception | None = None  # what ended the client
        self.has_ended = False

    @property
    def is_full(self) -> bool:
        """Whether the client should wait."""
        return self._lasting >= MAX_LEFT

    def put(self, events: Iterable[Event]) -> None:
        """Add events."""
        for event in events:
            self._events.append(event)
            self._lasting += type(event) not in _MAX_ALIKE
        if len(self._events) >= self._thin_at:
            self._thin_out()
        self._changed.set()

    def _thin_out(self) -> None:
        left = dict(_MAX_ALIKE)
        kept: list[Event] = []
        for event in reversed(self._events):
            kind = type(event)
            if kind in left:
                if not left[kind]:
                    continue
                left[kind] -= 1
            kept.append(event)
        self._events = deque(reversed(kept))
        self._thin_at = max(MAX_WAITING, 2 * len(kept))  # so that each event is looked at a few times at most

    def end(self, error: Exception | None) -> None:
        """No event follows; readers get the error after the last one, if there is one."""
        if not self.has_ended:
            self.has_ended, self.error = True, error
        self._changed.set()

    async def take(self) -> Event:
        """The next event. Raises StopAsyncIteration after the last, or what ended the client."""
        while not self._events:
            if self.has_ended:
                if self.error is not None:
                    raise self.error
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        was_full = self.is_full
        event = self._events.popleft()
        self._lasting -= type(event) not in _MAX_ALIKE
        if was_full and not self.is_full:
            self._drained()
        return event
