"""Log: every numbered event of a wallet's life. One reader gets the events live, and another reads them from the
database.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from simulation.books import Books
from simulation.violation import Violation
from spvfilter.errors import EventGapError
from spvfilter.light.events import Event, Synced
from spvfilter.store.store import Store
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchFound,
    MatchWithdrawn,
    RunStarted,
    TxReplaced,
    WalletEvent,
)
from spvfilter.wallet.journal import decode

_PAGE = 40  # events that the second reader takes at once
_decoded = lru_cache(maxsize=1 << 12)(decode)  # after each start it reads the same ones again


class Log:
    """Check that no event number is skipped or used twice, and that stored events equal the reported ones.

    Its books apply the events from the first one on.
    """

    def __init__(self, from_height: int | None) -> None:
        self.events: list[WalletEvent] = []
        self.books = Books()
        self._is_whole = not from_height
        """True if the events report all blocks: the search begins with the first one."""
        self._connected: tuple[int, bytes | None] = (0, None)
        """Height and hash of the last block that an event connected."""
        self._top = 0
        """Height of the highest connected block. A search for a new entry connects lower blocks again."""
        self._places: dict[int, int] = {}
        """Index of each event in `events`, by its number."""
        self._last = 0
        """Number of the last event."""
        self._read = 0
        """Number of the last event that the second reader took."""
        self._lost: set[tuple[int, bytes]] = set()
        """Number and run of the last event before each return to an earlier copy, unless the database has it again."""

    def told(self, event: Event, store: Store) -> None:
        """The client tells an event. Raises Violation."""
        if isinstance(event, WalletEvent):
            if event.sequence > store.events.log.last:
                raise Violation("true", f"event {event.sequence} is told before the database has it")
            self._add(event)
        elif isinstance(event, Synced):
            self._check_synced(event)
            self.read_on(store)

    def return_to(self, events: list[WalletEvent]) -> None:
        """The database is an earlier copy of itself, with these events.

        A consumer that keeps the number of another event must be able to tell.
        """
        self._lost |= _cursors(self.events[-1:], self.events)
        self._lost -= _cursors(events, events)
        self.events, self.books, self._places = [], Books(), {}
        self._connected, self._top, self._last, self._read = (0, None), 0, 0, 0
        for event in events:
            self._add(event)

    def _check_stale(self, store: Store) -> None:
        """Raise Violation if a number of a lost event leads to another event of a run with the same id."""
        for number, run_id in self._lost:
            with suppress(EventGapError):
                run = store.events.run_of(number)
                if run is not None and _decoded(run) == RunStarted(run_id):
                    raise Violation("true", f"event {number} was lost with a restored database, and is there again")

    def booted(self, store: Store) -> None:
        """The client starts from its database, which must have every reported event. Raises Violation."""
        last = store.events.log.last
        if last < self._last:
            raise Violation("true", f"event {self._last} was told, and the last one of the database is {last}")
        self._read = 0
        self.read_on(store)

    def read_on(self, store: Store) -> None:
        """The second reader reads the new events, page by page."""
        self._check_stale(store)
        while page := store.events.read(self._read, _PAGE):
            for stored in page:
                event = _decoded(stored)
                last = self._read
                while last + 1 < event.sequence and self._may_be_dropped(last + 1):
                    last += 1
                self._check_next(event, last)
                self._add(event)
                self._read = event.sequence

    def _may_be_dropped(self, number: int) -> bool:
        """True for the number of a reported event without a block, which the database may drop in a flood."""
        place = self._places.get(number)
        match None if place is None else self.events[place]:
            case MatchFound(match) | MatchWithdrawn(match):
                return match.height is None
            case TxReplaced():
                return True
        return False

    @staticmethod
    def _check_next(event: WalletEvent, last: int) -> None:
        """Raise Violation unless an event may follow another: numbers are left out only before RunStarted."""
        if event.sequence != last + 1 and not (isinstance(event, RunStarted) and event.sequence > last):
            raise Violation("true", f"event {event.sequence} follows event {last}")

    def _add(self, event: WalletEvent) -> None:
        number, event = event.sequence, _without_account(event)
        if 0 < number <= self._last:
            place = self._places.get(number)
            if place is None or self.events[place] != event:
                known = "none" if place is None else str(self.events[place])
                raise Violation("true", f"event {number} is {event}, but it was {known}")
            return
        self._check_next(event, self._last)
        self._places[number] = len(self.events)
        self._last = number
        self.events.append(event)
        self.books.take(event)
        match event:
            case BlockConnected(height, digest):
                self._connected = height, digest
                self._top = max(self._top, height)
            case BlockDisconnected(height):
                if self._is_whole and height > self._top:
                    raise Violation(
                        "true", f"block {height} is disconnected, but the highest one connected is {self._top}"
                    )
                self._top = height - 1
                if height <= self._connected[0]:
                    self._connected = height - 1, None
            case _:
                pass

    def _check_synced(self, event: Synced) -> None:
        height, digest = self._connected
        if self._is_whole and (height != event.height or digest not in (None, event.hash)):
            raise Violation("true", f"Synced at {event.height}, but the last block that was told of is {height}")


def _without_account(event: WalletEvent) -> WalletEvent:
    """An event as it stays: stored events get the new name of an account, and lose that of a removed one."""
    match = getattr(event, "match", None)
    if match is None or match.account is None:
        return event
    return replace(event, match=replace(match, account=None))


def _cursors(wanted: list[WalletEvent], events: list[WalletEvent]) -> set[tuple[int, bytes]]:
    """The number of each wanted event, with the id of its run."""
    found, run_id, numbers = set[tuple[int, bytes]](), b"", {event.sequence for event in wanted}
    for event in events:
        run_id = event.id if isinstance(event, RunStarted) else run_id
        if event.sequence in numbers:
            found.add((event.sequence, run_id))
    return found
