"""AccountStream: the numbered events of one account, which it reads from the database."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from spvfilter.errors import NotRunningError
from spvfilter.light.stream import PAGE, EventHub, EventStream, Position
from spvfilter.wallet.events import WalletEvent


class AccountPage(NamedTuple):
    """The next events of an account."""

    account: int
    """Id of the account."""
    events: list[WalletEvent]
    """The events, in order."""
    sequence: int
    """Number of the last event of the wallet that the page covers."""
    is_removed: bool
    """True if the account was removed, so that no further event follows the page."""


Load = Callable[[int | None, int, int], Awaitable[AccountPage]]
"""A function that returns up to n events of an account after a number; its id is None on the first call."""


class AccountStream(EventStream):
    """The numbered events of one account: of its matches, of blocks, and of starts of runs.

    The stream follows the account under every name, and ends when the account is removed.
    """

    def __init__(self, hub: EventHub, since: int, load: Load) -> None:
        """`since` is the number of an event; the stream yields the events after it."""
        super().__init__(hub, since)
        self._load = load
        self._account: int | None = None
        self._read = since  # number up to which the database was read
        self._events: deque[WalletEvent] = deque()
        self._is_removed = False

    async def __anext__(self) -> WalletEvent:
        """Wait for the next event. The iteration ends when the client is left, or the account is removed."""
        hub = self._hub
        while True:
            changed, read = hub.changed, self._read
            if self._events:
                event = self._events.popleft()
                self._at = Position(event.sequence)
                return event
            if self._is_removed:
                break
            if self._account is None or hub.sequence > read:
                try:
                    page = await self._load(self._account, read, PAGE)
                except NotRunningError:  # the client was left: the next run gives what follows
                    break
                if self._read == read:  # otherwise another task has read meanwhile
                    self._account, self._read, self._is_removed = page.account, page.sequence, page.is_removed
                    self._events.extend(page.events)
                continue
            if hub.has_ended:
                break
            await changed.wait()
        hub.check()
        raise StopAsyncIteration
