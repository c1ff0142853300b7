"""EventStream and EventHub: the events of one run, and streams that each read them from their own position.

The latest 1,000 events are kept in memory, shared by all streams. Older wallet events are read from the database. All
other events exist only in memory, which keeps a few older events of each kind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.errors import NotRunningError
from spvfilter.light.events import BroadcastChanged, Event, PeerChanged, PeerWarning, Progress, Synced
from spvfilter.wallet.events import WalletEvent

MAX_HELD = 1_000
"""Number of the latest events that are kept in memory (our choice)."""
PAGE = 500
"""Number of events that a stream reads from the database at a time."""
_MAX_ALIKE = 100
"""Number of older unnumbered events of each kind that are kept in memory (our choice)."""
_ONE = (PeerChanged, Progress, Synced)
"""Kinds of events of which only the latest is kept among the older events."""

Load = Callable[[int, int], Awaitable[list[WalletEvent]]]
"""A function that returns up to n events from the database after a given number."""


class StreamEvent(NamedTuple):
    """An event of this run."""

    sequence: int
    """Number of the event, or of the last numbered event before it."""
    order: int
    """Position among all events of this run, counted from 0."""
    event: Event
    """The event."""

    @property
    def is_kept(self) -> bool:
        """True if it is a wallet event, which the database keeps."""
        return isinstance(self.event, WalletEvent)


class StreamPosition(NamedTuple):
    """The position of a stream."""

    sequence: int
    """Number of the last event that was yielded."""
    order: int = 0
    """Lowest possible position of the next event among the events of this run."""

    def behind(self, told: StreamEvent) -> StreamPosition:
        """Return the position after an event that was yielded."""
        return StreamPosition(told.sequence, max(self.order, told.order + 1))


class EventHub:
    """The events of one run. Any number of streams read them, or none."""

    def __init__(self, sequence: int, load: Load) -> None:
        """Start without events.

        Args:
            sequence: Number of the last event before this run.
            load: Function that reads events from the database.
        """
        self.error: Exception | None = None  # the error that stopped the client, or None
        self.has_ended: bool = False
        self._trace: TracebackType | None = None
        self.sequence: int = sequence
        """Number of the last event."""
        self.synced: Synced | None = None
        """The last `Synced` event."""
        self.outcomes: int = 0
        """Number of `BroadcastChanged` events, which are counted because such a change may cause no wallet event."""
        self.given: StreamPosition = StreamPosition(sequence)
        """Position after the last event that a stream without `since` yielded."""
        self.changed: asyncio.Event = asyncio.Event()
        """Set and then replaced with a new object at each event, and at the end."""
        self._load = load
        self._held: deque[StreamEvent] = deque()  # the latest events
        self._aside: dict[type, deque[StreamEvent]] = {}  # older unnumbered events, by kind
        self._gone = sequence  # number of the last event that is only in the database
        self._order = 0  # position of the next event

    def put(self, events: Iterable[Event]) -> None:
        """Add events. The wallet events among them are already in the database."""
        for event in events:
            if isinstance(event, WalletEvent):
                self.sequence = event.sequence
            elif isinstance(event, Synced):
                self.synced = event
            elif isinstance(event, BroadcastChanged):
                self.outcomes += 1
            self._held.append(StreamEvent(self.sequence, self._order, event))
            self._order += 1
        while len(self._held) > MAX_HELD:
            old = self._held.popleft()
            kind = type(old.event)
            if old.is_kept:
                self._gone = old.sequence
            else:
                self._aside.setdefault(kind, deque(maxlen=1 if kind in _ONE else _MAX_ALIKE)).append(old)
        self._tell()

    def end(self, error: Exception | None) -> None:
        """End all streams. If there is an error, readers see it after the last event."""
        if not self.has_ended:
            self.has_ended, self.error = True, error
            self._trace = None if error is None else error.__traceback__
        self._tell()

    def check(self) -> None:
        """If the client stopped on its own, raise the error that stopped it, each time with the original traceback."""
        if self.error is not None:
            raise self.error.with_traceback(self._trace)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def warnings(self, order: int) -> tuple[int, list[PeerWarning]]:
        """Return the warnings at and after a position, among the latest events, and the position of the next event."""
        first = self._order - len(self._held)
        latest = islice(self._held, max(order - first, 0), None)
        return self._order, [told.event for told in latest if isinstance(told.event, PeerWarning)]

    def since(self, sequence: int) -> StreamPosition:
        """Return the position after the event with the number `sequence`."""
        orders = (
            told.order
            for told in self._memory()
            if told.sequence >= sequence and not (told.is_kept and told.sequence == sequence)
        )
        return StreamPosition(sequence, next(orders, self._order))

    def _memory(self) -> Iterator[StreamEvent]:
        """Yield the events in memory, in order."""
        yield from sorted(told for each in self._aside.values() for told in each)
        yield from self._held

    def next(self, at: StreamPosition) -> StreamEvent | None:
        """Return the next event if it is one of the latest, or None. Older events must already have been yielded."""
        first = self._order - len(self._held)
        for number in range(max(at.order - first, 0), len(self._held)):
            told = self._held[number]
            if not told.is_kept or told.sequence > at.sequence:
                return told
        return None

    async def earlier(self, at: StreamPosition) -> list[StreamEvent]:
        """Return the next events before the latest ones, in order; empty if there are no more.

        Raises the same errors as reading the database.
        """
        found: list[StreamEvent] = []
        if at.sequence < self._gone:
            stored = await self._load(at.sequence, PAGE)
            found = [
                StreamEvent(event.sequence, at.order - 1, event) for event in stored if event.sequence <= self._gone
            ]
        last = found[-1].sequence if found and found[-1].sequence < self._gone else None
        aside = (told for each in self._aside.values() for told in each if told.order >= at.order)
        found += (told for told in aside if last is None or told.sequence <= last)
        return sorted(found, key=lambda told: (told.sequence, not told.is_kept, told.order))

    @property
    def gone(self) -> int:
        """Number of the last event that is only in the database."""
        return self._gone

    def is_behind(self, at: StreamPosition) -> bool:
        """Return True if the next event is older than the latest events."""
        return at.sequence < self._gone or any(each[-1].order >= at.order for each in self._aside.values())


@public
class EventStream:
    """An asynchronous iterator over events, with its own position, which `LightClient.events` returns.

    Cancelling a wait loses no event: the next wait yields the event.
    """

    def __init__(self, hub: EventHub, since: int | None = None) -> None:
        self._hub = hub
        self._is_own = since is not None
        self._at = hub.given if since is None else hub.since(since)
        self._page: deque[StreamEvent] = deque()

    @property
    def sequence(self) -> int:
        """Number of the last event that the stream yielded, or of the last event before its start.

        A new stream from `events(since=stream.sequence)` continues here.
        """
        return self._at.sequence

    @property
    def is_current(self) -> bool:
        """True if the stream has yielded all events so far."""
        return not self._page and not self._hub.is_behind(self._at) and self._hub.next(self._at) is None

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event. The iteration ends when the client's `async with` block has ended."""
        hub = self._hub
        while True:
            changed, at, gone = hub.changed, self._at, hub.gone
            if not self._page and hub.is_behind(at):
                try:
                    page = await hub.earlier(at)
                except NotRunningError:  # the client was left: the next run yields what follows
                    break
                if self._at is at:  # otherwise another task has read in the meantime
                    self._page = deque(page)
                    if not page:  # the database has dropped all these events
                        self._at = at._replace(sequence=max(at.sequence, gone))
                continue
            told = self._page.popleft() if self._page else hub.next(at)
            if told is not None:
                self._at = self._at.behind(told)
                if not self._is_own:
                    hub.given = max(hub.given, self._at)
                return told.event
            if hub.has_ended:
                break
            await changed.wait()
        hub.check()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Do nothing: a stream holds no resources. The method exists for `contextlib.aclosing`."""
