"""Streams of a light client's events, each with its own position; what a stream has not read in time it reads from the
database.

The latest events are held in memory once for all streams. Those of the books that are older come from the database; of
the others, which are not kept there, the latest of each kind are held, for each of which those before are no longer of
interest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from spvfilter._public import deferred, public
from spvfilter.errors import NotRunningError
from spvfilter.light.events import BroadcastChanged, Event, PeerChanged, PeerWarning, Progress, Synced
from spvfilter.wallet.events import WalletEvent

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")


MAX_HELD = 1_000  # events in memory
PAGE = 500  # events that a stream reads from the database at once
_MAX_ALIKE = 100  # of a kind that is not kept in the database, of those that are no longer among the latest events
_ONE = (PeerChanged, Progress, Synced)  # kinds of which only the last counts

Load = Callable[[int, int], Awaitable[list[WalletEvent]]]  # up to n events of the database that follow a number


class Told(NamedTuple):
    """An event of this run."""

    sequence: int
    """Its number; of one that has none, that of the last one before it."""
    order: int
    """Among all events of this run, from 0."""
    event: Event

    @property
    def is_kept(self) -> bool:
        """Whether it is one of the books', which the database has."""
        return isinstance(self.event, WalletEvent)


class Position(NamedTuple):
    """How far a stream has come: up to which number, and which event of this run may be next."""

    sequence: int
    order: int = 0

    def behind(self, told: Told) -> Position:
        """Behind an event that was given."""
        return Position(told.sequence, max(self.order, told.order + 1))


class EventHub:
    """The events of one run, from which any number of streams are read; nobody needs to read."""

    def __init__(self, sequence: int, load: Load) -> None:
        """`sequence` is the number of the last event before this run."""
        self.error: Exception | None = None  # what ended the client
        self.has_ended = False
        self._trace: TracebackType | None = None
        self.sequence = sequence  # of the last event that was told
        self.synced: Synced | None = None  # the last one
        # how often something was told of what became of a transaction of ours, which may have nothing in the books
        self.outcomes = 0
        self.given = Position(sequence)  # behind the last event that a stream without `since` gave
        self.changed = asyncio.Event()  # set, and replaced by another, whenever something is told, and at the end
        self._load = load
        self._held: deque[Told] = deque()
        self._aside: dict[type, deque[Told]] = {}  # those that only memory has and that are no longer among the latest
        self._gone = sequence  # number of the last event that only the database has
        self._order = 0  # of the next event

    def put(self, events: Iterable[Event]) -> None:
        """Tell events, of which the database has those of the books."""
        for event in events:
            if isinstance(event, WalletEvent):
                self.sequence = event.sequence
            elif isinstance(event, Synced):
                self.synced = event
            elif isinstance(event, BroadcastChanged):
                self.outcomes += 1
            self._held.append(Told(self.sequence, self._order, event))
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
        """No event follows; readers get the error after the last one, if there is one."""
        if not self.has_ended:
            self.has_ended, self.error = True, error
            self._trace = None if error is None else error.__traceback__
        self._tell()

    def check(self) -> None:
        """Raises what ended the client, whoever asks and however often, as it was first raised."""
        if self.error is not None:
            raise self.error.with_traceback(self._trace)

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def warnings(self, order: int) -> tuple[int, list[PeerWarning]]:
        """The warnings among the latest events, from one of this run on, and the number of the next event."""
        first = self._order - len(self._held)
        latest = islice(self._held, max(order - first, 0), None)
        return self._order, [told.event for told in latest if isinstance(told.event, PeerWarning)]

    def since(self, sequence: int) -> Position:
        """The position behind event number `sequence`."""
        orders = (
            told.order
            for told in self._memory()
            if told.sequence >= sequence and not (told.is_kept and told.sequence == sequence)
        )
        return Position(sequence, next(orders, self._order))

    def _memory(self) -> Iterator[Told]:
        """What is in memory, in order."""
        yield from sorted(told for each in self._aside.values() for told in each)
        yield from self._held

    def next(self, at: Position) -> Told | None:
        """The event that follows, if it is one of the latest; what was put aside must have been given."""
        first = self._order - len(self._held)
        for number in range(max(at.order - first, 0), len(self._held)):
            told = self._held[number]
            if not told.is_kept or told.sequence > at.sequence:
                return told
        return None

    async def earlier(self, at: Position) -> list[Told]:
        """Events that follow and are not among the latest, in order; none if there are no more.

        Raises what reading the database does.
        """
        found: list[Told] = []
        if at.sequence < self._gone:
            stored = await self._load(at.sequence, PAGE)
            found = [Told(event.sequence, at.order - 1, event) for event in stored if event.sequence <= self._gone]
        last = found[-1].sequence if found and found[-1].sequence < self._gone else None
        aside = (told for each in self._aside.values() for told in each if told.order >= at.order)
        found += (told for told in aside if last is None or told.sequence <= last)
        return sorted(found, key=lambda told: (told.sequence, not told.is_kept, told.order))

    def is_behind(self, at: Position) -> bool:
        """Whether something that follows is no longer among the latest events."""
        return at.sequence < self._gone or any(each[-1].order >= at.order for each in self._aside.values())


@public
class EventStream:
    """An asynchronous iterator of events with a position of its own; `LightClient.events` returns it.

    A cancelled wait loses no event: the next wait yields it.
    """

    def __init__(self, hub: EventHub, since: int | None = None) -> None:
        self._hub = hub
        self._is_own = since is not None
        self._at = hub.given if since is None else hub.since(since)
        self._page: deque[Told] = deque()

    @property
    def sequence(self) -> int:
        """Number of the last event that the stream yielded, or of the last event before its start.

        A new stream from `events(since=stream.sequence)` continues here.
        """
        return self._at.sequence

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Event:
        """Wait for the next event. The iteration ends when the client has been left."""
        hub = self._hub
        while True:
            changed, at = hub.changed, self._at
            if not self._page and hub.is_behind(at):
                try:
                    page = await hub.earlier(at)
                except NotRunningError:  # the client was left: the next run gives what follows
                    break
                if self._at is at:  # else another task has read meanwhile
                    self._page = deque(page)
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
