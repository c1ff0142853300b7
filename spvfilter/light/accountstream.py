"""AccountStream: reads the numbered events of one account from the database."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from spvfilter.errors import NotRunningError
from spvfilter.light.stream import PAGE, EventHub, EventStream, StreamPosition
from spvfilter.wallet.events import WalletEvent


class AccountPage(NamedTuple):
    """The next events of an account."""

    events: list[WalletEvent]
    """The events, in order."""
    sequence: int
    """Number of the last wallet event that the page covers."""
    is_removed: bool
    """True if the account was removed, so no more events follow after this page."""


Load = Callable[[int, int], Awaitable[AccountPage]]
"""A function that returns up to n of the account's events after a given number."""


class AccountStream(EventStream):
    """The numbered events of one account: those about its matches, blocks, and starts of runs.

    The stream follows the account even when it is renamed, and ends when it is removed.
    """

    def __init__(self, hub: EventHub, since: int, load: Load) -> None:
        """Start after the event with the number `since`. `load` reads the account's events."""
        super().__init__(hub, since)
        self._load = load
        self._read = since  # number up to which the database was read
        self._is_begun = False
        self._events: deque[WalletEvent] = deque()
        self._is_removed = False

    async def __anext__(self) -> WalletEvent:
        """Wait for the next event. The iteration ends when the client is closed or the account is removed."""
        hub = self._hub
        while True:
            changed, read = hub.changed, self._read
            if self._events:
                event = self._events.popleft()
                self._at = StreamPosition(event.sequence)
                return event
            if self._is_removed:
                break
            if not self._is_begun or hub.sequence > read:
                try:
                    page = await self._load(read, PAGE)
                except NotRunningError:  # the client was left: the next run yields what follows
                    break
                if self._read == read:  # otherwise another task has read in the meantime
                    self._is_begun, self._read, self._is_removed = True, page.sequence, page.is_removed
                    self._events.extend(page.events)
                continue
            if hub.has_ended:
                break
            await changed.wait()
        hub.check()
        raise StopAsyncIteration
