"""Events in the wallet's database, numbered without gaps and written with the change that they report.

The store sees an event as a kind and bytes; only the wallet can read them. Old events are dropped. The named value
"events" has three numbers: the first and the last event that are kept, and the height of the highest block that the
events have connected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred, public
from spvfilter.errors import EventGapError, ParameterError, StoreCorruptError
from spvfilter.store.sqlite import MarkedRows, mark, number, numbers, translated

if TYPE_CHECKING:
    import pathlib
    import sqlite3
else:
    pathlib = deferred("pathlib")
    sqlite3 = deferred("sqlite3")

MAX_EVENTS = 250_000
"""The database keeps at most this many events (our choice)."""
MAX_AGE_S = 30 * 86_400
"""Older events are dropped, in seconds (our choice)."""
LEAST = 10_000
"""The latest events stay whatever their age, as a wrong clock must not drop unread events (our choice)."""
_NAME = "events"  # key of the three numbers in the table "meta"


@public
class StoredEvent(NamedTuple):
    """An event as the database has it."""

    sequence: int
    """Number of the event, from 1."""
    time: int
    """When it was reported, in seconds since 1970."""
    kind: str
    """Kind of event, such as "found"."""
    data: bytes
    """Fields of the event as JSON."""


@public
class EventLog(NamedTuple):
    """Range of the numbers of the events in the database. Earlier events were dropped."""

    first: int = 1
    """Number of the first event."""
    last: int = 0
    """Number of the last event."""
    told: int = -1
    """Height of the highest block that the events have connected; -1 for none."""

    @classmethod
    def parse(cls, raw: bytes | None) -> EventLog:
        """Read the bytes from the database; None is a database without events."""
        return cls() if raw is None else cls(*numbers(raw))

    def __bytes__(self) -> bytes:
        """Return the three numbers, 8 bytes LE each."""
        return b"".join(map(number, self))

    def check(self, since: int) -> None:
        """Check that all events after a number are in the database.

        Args:
            since: Number of an event.

        Raises:
            EventGapError: Some events after `since` were dropped.
            ParameterError: No event has this number yet.
        """
        if not isinstance(since, int) or since < 0:
            raise ParameterError(f"the number of an event must be at least 0, not {since!r}")
        if since > self.last:
            raise ParameterError(
                f"there is no event {since}: the last one is {self.last}; is the number that of another database?"
            )
        if since + 1 < self.first:
            raise EventGapError(since, self.first)


class EventRows:
    """The rows of the table "events"."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._log = EventLog()
        self._is_changed = False

    @property
    def log(self) -> EventLog:
        """Range of the numbers of the stored events."""
        return self._log

    def verify(self) -> None:
        """Check that no row is missing. Raises StoreCorruptError. The checksum of each row is checked elsewhere."""
        log = EventLog.parse(self._rows.meta(_NAME))
        first, last, count = self._db.execute("SELECT min(sequence), max(sequence), count(*) FROM events").fetchone()
        if count != log.last - log.first + 1 or (count and (first, last) != log[:2]):
            raise StoreCorruptError(f"{self._path}: events are missing")
        self.reset(log)

    def reset(self, log: EventLog) -> None:
        """Go back to the numbers before a failed commit."""
        self._log, self._is_changed = log, False

    def write(self, events: Sequence[StoredEvent], told: int | None) -> None:
        """Add the next events, within a transaction; `settle` follows.

        Raises ParameterError for a number that is not the next one.
        """
        last = self._log.last
        for event in events:
            last += 1
            if event.sequence != last:
                raise ParameterError(f"event {event.sequence} cannot follow event {last - 1}")
            self._rows.insert("events", event)
        self._log = self._log._replace(last=last, told=self._log.told if told is None else told)
        self._is_changed = True

    def settle(self) -> None:
        """Drop the oldest events and write the numbers, at the end of a transaction."""
        if not self._is_changed:
            return
        first, last, _ = self._log
        least = last - MAX_EVENTS + 1
        (now,) = self._db.execute("SELECT time FROM events WHERE sequence = ?", (last,)).fetchone() or (0,)
        query = "SELECT sequence FROM events WHERE sequence <= ? AND time >= ? ORDER BY sequence LIMIT 1"
        if last - first >= LEAST:  # otherwise no event can be too old
            young = self._db.execute(query, (last - LEAST, now - MAX_AGE_S)).fetchone()
            least = max(least, last - LEAST + 1 if young is None else young[0])
        if least > first:
            self._rows.remove("events", "sequence < ?", (least,))
            self._log = self._log._replace(first=least)
        self._rows.set_meta(_NAME, bytes(self._log))
        self._is_changed = False

    def begin_behind(self, last: int) -> None:
        """Continue the numbers of a database that this one replaces, after its last event; within a transaction."""
        self._log = EventLog(last + 1, last)
        self._rows.set_meta(_NAME, bytes(self._log))

    def read(self, since: int, limit: int) -> list[StoredEvent]:
        """Return up to `limit` events after number `since`. Raises EventGapError, ParameterError, StoreError."""
        self._log.check(since)
        return stored_events(self._db, self._path, since, limit)


def stored_events(db: sqlite3.Connection, path: pathlib.Path, since: int, limit: int) -> list[StoredEvent]:
    """Return up to `limit` events after number `since`. Raises StoreCorruptError for a damaged row."""
    found: list[StoredEvent] = []
    query = "SELECT sequence, time, kind, data, mark FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
    with translated(path):
        for *row, stated in db.execute(query, (since, limit)):
            if stated != mark("events", row) or row[0] != since + 1 + len(found):
                raise StoreCorruptError(f"{path}: a damaged row in events")
            found.append(StoredEvent(*row))
    return found
