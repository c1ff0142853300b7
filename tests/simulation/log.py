"""Log: every numbered event of a wallet's life, over all restarts, as one reader is told of them and another finds them
in the database.
"""

from __future__ import annotations

from functools import lru_cache

from simulation.books import Books
from simulation.violation import Violation
from spvfilter.light.events import Event, Synced
from spvfilter.store.store import Store
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, WalletEvent
from spvfilter.wallet.journal import decode

_PAGE = 40  # events that the second reader takes at once
_decoded = lru_cache(maxsize=1 << 12)(decode)  # after each start it reads the same ones again


class Log:
    """Refuses a number that is left out, given twice, or kept as another event than was told; believes the events from
    the first on.
    """

    def __init__(self, from_height: int | None) -> None:
        self.events: list[WalletEvent] = []
        self.books = Books()
        self._is_whole = not from_height  # else heights below it count as searched, and no event tells of their blocks
        self._connected: tuple[int, bytes | None] = (0, None)  # height and block that was connected last
        self._top = 0  # the highest one: for a new entry, blocks are connected again from a lower height on
        self._read = 0  # by the second reader

    def told(self, event: Event, store: Store) -> None:
        """The client tells an event. Raises Violation."""
        if isinstance(event, WalletEvent):
            if event.sequence > store.events.log.last:
                raise Violation("true", f"event {event.sequence} is told before the database has it")
            self._add(event)
        elif isinstance(event, Synced):
            self._check_synced(event)
            self.read_on(store)

    def booted(self, store: Store) -> None:
        """The client begins, after an end of any kind: the database has what was told, and what could not be told any
        more.
        """
        last = store.events.log.last
        if last < len(self.events):
            raise Violation("true", f"event {len(self.events)} was told, and the database has {last} of them")
        self._read = 0
        self.read_on(store)

    def read_on(self, store: Store) -> None:
        """The second reader takes what it has not read, page by page."""
        while page := store.events.read(self._read, _PAGE):
            for stored in page:
                event = _decoded(stored)
                if event.sequence != self._read + 1:
                    raise Violation("true", f"event {event.sequence} follows event {self._read} in the database")
                self._add(event)
                self._read += 1

    def _add(self, event: WalletEvent) -> None:
        number = event.sequence
        if 0 < number <= len(self.events):
            if self.events[number - 1] != event:
                raise Violation("true", f"event {number} is {event}, but it was {self.events[number - 1]}")
            return
        if number != len(self.events) + 1:
            raise Violation("true", f"event {number} follows event {len(self.events)}")
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
