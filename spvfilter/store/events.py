"""Events in the wallet's database: each has a number, the next after the one before it, and is written with the change
that it tells of.

What an event is the wallet knows; here it is a kind and bytes. The latest are kept. The named value "events" has the
number of the first one kept, which marks what was dropped, that of the last one, and the height of the highest block
that they have connected.
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

MAX_EVENTS = 250_000  # that are kept
MAX_AGE_S = 30 * 86_400  # of those that are kept, but for the latest LEAST
LEAST = 10_000  # events that are kept however old they are: a wrong clock must not drop what nobody has read
_NAME = "events"  # of the marked value


@public
class StoredEvent(NamedTuple):
    """An event in the database."""

    sequence: int
    """From 1."""
    time: int
    """When it was told, seconds since 1970."""
    kind: str
    data: bytes


@public
class EventLog(NamedTuple):
    """Which events there are: those from number `first` to `last`, both included. Earlier ones were dropped."""

    first: int = 1
    last: int = 0
    told: int = -1
    """Height of the highest block that is connected by the events."""

    @classmethod
    def parse(cls, raw: bytes | None) -> EventLog:
        """From the database."""
        return cls() if raw is None else cls(*numbers(raw))

    def __bytes__(self) -> bytes:
        return b"".join(map(number, self))

    def check(self, since: int) -> None:
        """Raises EventGapError if events that follow number `since` were dropped, ParameterError for a number that none
        has yet.
        """
        if not isinstance(since, int) or since < 0:
            raise ParameterError(f"the number of an event is not below 0: {since!r}")
        if since > self.last:
            raise ParameterError(
                f"there is no event {since} yet, the last one is {self.last}: is it the number of another database?"
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
        """Which events there are."""
        return self._log

    def verify(self) -> None:
        """Raises StoreCorruptError unless the rows are those that there must be; that each is as it was written its
        mark shows.
        """
        log = EventLog.parse(self._rows.meta(_NAME))
        first, last, count = self._db.execute("SELECT min(sequence), max(sequence), count(*) FROM events").fetchone()
        if count != log.last - log.first + 1 or (count and (first, last) != log[:2]):
            raise StoreCorruptError(f"{self._path}: events are missing")
        self.reset(log)

    def reset(self, log: EventLog) -> None:
        """Forget what a commit that failed has written."""
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
        """At the end of a transaction: drop the oldest, and write which there are."""
        if not self._is_changed:
            return
        first, last, _ = self._log
        least = last - MAX_EVENTS + 1
        (now,) = self._db.execute("SELECT time FROM events WHERE sequence = ?", (last,)).fetchone() or (0,)
        query = "SELECT sequence FROM events WHERE sequence <= ? AND time >= ? ORDER BY sequence LIMIT 1"
        if last - first >= LEAST:  # else none is too old
            young = self._db.execute(query, (last - LEAST, now - MAX_AGE_S)).fetchone()
            least = max(least, last - LEAST + 1 if young is None else young[0])
        if least > first:
            self._rows.remove("events", "sequence < ?", (least,))
            self._log = self._log._replace(first=least)
        self._rows.set_meta(_NAME, bytes(self._log))
        self._is_changed = False

    def begin_behind(self, last: int) -> None:
        """A database that takes the place of another goes on numbering behind its last event; within a transaction."""
        self._log = EventLog(last + 1, last)
        self._rows.set_meta(_NAME, bytes(self._log))

    def read(self, since: int, limit: int) -> list[StoredEvent]:
        """Up to `limit` events that follow number `since`. Raises EventGapError, ParameterError, StoreError."""
        self._log.check(since)
        return stored_events(self._db, self._path, since, limit)


def stored_events(db: sqlite3.Connection, path: pathlib.Path, since: int, limit: int) -> list[StoredEvent]:
    """Up to `limit` events that follow number `since`, as they were written.

    Raises StoreCorruptError for a damaged row.
    """
    found: list[StoredEvent] = []
    query = "SELECT sequence, time, kind, data, mark FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
    with translated(path):
        for *row, stated in db.execute(query, (since, limit)):
            if stated != mark("events", row) or row[0] != since + 1 + len(found):
                raise StoreCorruptError(f"{path}: a damaged row in events")
            found.append(StoredEvent(*row))
    return found
