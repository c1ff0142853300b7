"""Events in the wallet's database, which are numbered and written together with the changes that they report.

To the store, an event is a kind and some bytes that only the wallet can interpret. Numbers increase by one within a run
of the client. The first event of a run has the kind `RUN_STARTED`, and numbers may be skipped before it. Old events are
dropped. The named value "events" contains the three numbers of an `EventLog`.

Events about other people's unconfirmed transactions have kinds that begin with `FOREIGN`, and a separate limit.
Dropping one leaves a hole in the numbering of its run, but the last event of a run is never dropped alone. A number
between two events of one run is therefore always the number of an event, either stored or dropped.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple  # rows are as SQLite returns them

from spvfilter._public import public
from spvfilter.errors import EventGapError, FormatError, ParameterError, StoreCorruptError
from spvfilter.store.sqlite import MarkedRows, mark, number, numbers, translated

MAX_EVENTS = 250_000
"""Largest number of events in the database, apart from foreign ones (our choice)."""
MAX_FOREIGN = 10_000
"""Largest number of foreign events in the database (our choice). An attacker can cause any number of them."""
FOREIGN = "foreign "
"""Prefix of the kind of an event about somebody else's unconfirmed transaction, such as "foreign found"."""
MAX_AGE_S = 30 * 86_400
"""Age in seconds above which events are dropped (our choice)."""
LEAST = 10_000
"""Number of latest events to keep whatever their age, so that a wrong clock never causes unread events to be dropped
(our choice).
"""
SHARED_KINDS = ("connected", "disconnected", "started")
"""Kinds of events that belong to every account."""
RUN_STARTED = "started"
"""Kind of the first event of a run. Numbers may be skipped only before such an event."""
END_OF_NUMBERS = 1 << 53
"""Numbers of events stay below this limit, so that JSON parsers with 64-bit floats read them exactly."""
NO_BASE = -1
"""Value of `EventLog.base` if older events were dropped."""
_IS_FOREIGN = f"kind GLOB '{FOREIGN}*'"
# the account's name, the columns, and the mark
_COLUMNS = "(SELECT name FROM accounts WHERE id = account), sequence, time, kind, data, account, mark"
_NAME = "events"  # key of the three numbers in the "meta" table


@public
class StoredEvent(NamedTuple):
    """An event as the database stores it."""

    sequence: int
    """Number of the event, starting at 1."""
    time: int
    """When the event was reported (Unix time)."""
    kind: str
    """Kind of event, such as "found"."""
    data: bytes
    """Fields of the event as JSON."""
    account: str | None = None
    """Name of the account that its match belongs to. None if the event has no match, or the match belongs to no
    account.
    """


@public
class EventLog(NamedTuple):
    """The range of event numbers in the database."""

    base: int = 0
    """The number before that of the first event ever stored: 0, or an unused number in a rebuilt database. It is -1 if
    older events were dropped.
    """
    last: int = 0
    """Number of the last event, or `base` if there is none."""
    told: int = -1
    """Height of the highest block that the events have reported as connected, or -1 if there is none."""

    @classmethod
    def parse(cls, raw: bytes | None) -> EventLog:
        """Parse the bytes in the database. None means that it contains no events.

        Raises FormatError unless the bytes are three numbers in their ranges.
        """
        if raw is None:
            return cls()
        try:
            first, last, told = numbers(raw)
        except ValueError:
            raise FormatError(
                f"the range of events must be 24 bytes long, not {len(raw)}", offset=0, field="events"
            ) from None
        if not (-1 < first <= last + 1 <= END_OF_NUMBERS and told >= -1):
            raise FormatError(
                f"the range of events, {first} to {last} with bookmark {told}, is impossible", offset=0, field="events"
            )
        return cls(first - 1, last, told)

    def __bytes__(self) -> bytes:
        """Return the three numbers, 8 bytes LE each. The first is `base` + 1."""
        return b"".join(map(number, (self.base + 1, self.last, self.told)))


class EventRows:
    """The rows of the "events" table."""

    def __init__(
        self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path, account_id: Callable[[str], int | None]
    ) -> None:
        """`account_id` returns the id of the account with a given name, or None."""
        self._db = db
        self._rows = rows
        self._path = path
        self._account_id = account_id
        self._log = EventLog()
        self._count: int | None = None  # number of rows that are not foreign; None if they have not been counted yet
        self._foreign = deque[int]()  # numbers of foreign events, except each run's last; valid once `_count` is known
        self._is_changed = False

    @property
    def log(self) -> EventLog:
        """The range of stored event numbers."""
        return self._log

    def verify(self) -> None:
        """Raise StoreCorruptError unless the last row is consistent with the range.

        Sums of rows are checked elsewhere.
        """
        try:
            log = EventLog.parse(self._rows.meta(_NAME))
        except FormatError as error:
            raise StoreCorruptError(f"{self._path}: {error}") from None
        (last,) = self._db.execute("SELECT max(sequence) FROM events").fetchone()
        if log.last != (log.base if last is None else last):
            raise StoreCorruptError(f"{self._path}: the last event should be number {log.last}, but is number {last}")
        self.reset(log)

    def reset(self, log: EventLog) -> None:
        """Go back to the numbers before a failed commit."""
        self._log, self._count, self._is_changed = log, None, False
        self._foreign.clear()

    def write(self, events: Sequence[StoredEvent], told: int | None) -> None:
        """Add the next events, within a transaction. Call `settle` afterwards.

        Raises ParameterError if a number cannot be the next one.
        """
        last, rows = self._log.last, list[tuple[object, ...]]()
        for event in events:
            is_next = event.sequence == last + 1 or (event.kind == RUN_STARTED and event.sequence > last)
            if not is_next or event.sequence >= END_OF_NUMBERS:
                raise ParameterError(f"event {event.sequence} ({event.kind}) cannot follow event {last}")
            last = event.sequence
            account = None if event.account is None else self._account_id(event.account)
            rows.append((*event[:-1], account))
            if event.kind == RUN_STARTED:
                self._count = None  # the event before it is the last of its run
            elif self._count is not None and event.kind.startswith(FOREIGN):
                self._foreign.append(event.sequence)
            elif self._count is not None:
                self._count += 1
        self._rows.insert_all("events", rows)
        self._log = self._log._replace(last=last, told=self._log.told if told is None else told)
        self._is_changed = True

    def settle(self) -> None:
        """Drop the oldest events and write the numbers, at the end of a transaction."""
        if not self._is_changed:
            return
        count = self._counted() if self._count is None else self._count
        while len(self._foreign) > MAX_FOREIGN:
            self._rows.remove("events", "sequence = ?", (self._foreign.popleft(),))
        self._count = count - (self._drop_oldest(count - MAX_EVENTS, count - LEAST) if count > LEAST else 0)
        self._rows.set_meta(_NAME, bytes(self._log))
        self._is_changed = False

    def _counted(self) -> int:
        """Look up the foreign events, and return the number of other events."""
        rows = "SELECT sequence, kind, lead(kind) OVER (ORDER BY sequence) AS next FROM events"
        foreign = f"SELECT sequence FROM ({rows}) WHERE {_IS_FOREIGN} AND next IS NOT ? ORDER BY sequence"
        self._foreign = deque(sequence for (sequence,) in self._db.execute(foreign, (RUN_STARTED,)))
        (count,) = self._db.execute(f"SELECT count(*) FROM events WHERE NOT {_IS_FOREIGN}").fetchone()
        return int(count)

    def _drop_oldest(self, least: int, most: int) -> int:
        """Drop the `least` oldest events and other events that are too old, up to `most` in total. Returns how many.

        Foreign events that precede them are dropped as well, but do not count.
        """
        (now,) = self._db.execute("SELECT time FROM events WHERE sequence = ?", (self._log.last,)).fetchone()
        dropped, through = 0, 0
        query = f"SELECT sequence, time FROM events WHERE NOT {_IS_FOREIGN} ORDER BY sequence LIMIT ?"
        for sequence, time in self._db.execute(query, (most,)):
            if dropped >= least and time >= now - MAX_AGE_S:
                break
            dropped, through = dropped + 1, sequence
        if dropped:
            self._rows.remove("events", "sequence <= ?", (through,))
            while self._foreign and self._foreign[0] <= through:
                self._foreign.popleft()
            self._log = self._log._replace(base=NO_BASE)
        return dropped

    def begin_behind(self, last: int) -> None:
        """Continue the numbering of the database that this one replaces, within a transaction.

        One number is skipped, so that the new numbers cannot be those of events in the old database.
        """
        base = last + 1 if last else 0
        self._log = EventLog(base, base)
        self._rows.set_meta(_NAME, bytes(self._log))

    def read(self, since: int, limit: int, account: int | None = None) -> list[StoredEvent]:
        """Return up to `limit` events after number `since`. Raises EventGapError, ParameterError and StoreError.

        Args:
            since: Number of an event.
            limit: Largest number of events to return.
            account: Id of an account, to return only events about its matches, and about blocks and runs.
        """
        return stored_events(self._db, self._path, self._log, since, limit, account)

    def of_kind(self, kind: str) -> list[StoredEvent]:
        """Return all events of a kind. Raises StoreError."""
        query = f"SELECT {_COLUMNS} FROM events WHERE kind = ? ORDER BY sequence"
        with translated(self._path):
            return [_checked(self._path, row) for row in self._db.execute(query, (kind,))]

    def run_of(self, sequence: int) -> StoredEvent | None:
        """Return the first event of the run that stored event number `sequence`, or None.

        Raises the same errors as `read`.
        """
        return run_of(self._db, self._path, self._log, sequence)


def check_number(since: int) -> None:
    """Raise ParameterError unless a value can be the number of an event, or is 0."""
    if not isinstance(since, int) or since < 0:
        raise ParameterError(f"an event number must be at least 0, not {since!r}")


def check_since(db: sqlite3.Connection, log: EventLog, since: int) -> None:
    """Check that the database contains all events after a number, except for dropped foreign ones.

    Args:
        db: The database.
        log: Range of its events.
        since: Number of an event.

    Raises:
        EventGapError: `since` is neither the number of an event nor the number before the first, or later events were
            dropped.
        ParameterError: `since` is negative or not a number.
    """
    check_number(since)
    if since == log.base:
        return
    if since > log.last or not _is_known(db, log, since):
        raise EventGapError(since, log.last)


def _is_known(db: sqlite3.Connection, log: EventLog, since: int) -> bool:
    """True if `since` is the number of a stored event, or of a dropped foreign event.

    A number between two runs belongs to no event.
    """
    if db.execute("SELECT 1 FROM events WHERE sequence = ?", (since,)).fetchone() is not None:
        return True
    after = db.execute("SELECT kind FROM events WHERE sequence > ? ORDER BY sequence LIMIT 1", (since,)).fetchone()
    if after is None or after[0] == RUN_STARTED:
        return False
    if log.base != NO_BASE and since > log.base:
        return True
    return db.execute("SELECT 1 FROM events WHERE sequence < ? LIMIT 1", (since,)).fetchone() is not None


def stored_events(
    db: sqlite3.Connection, path: pathlib.Path, log: EventLog, since: int, limit: int, account: int | None = None
) -> list[StoredEvent]:
    """Return up to `limit` events after number `since`, for the wallet or for one account.

    Raises EventGapError and ParameterError in the same cases as `check_since`, and StoreCorruptError for a damaged row.
    """
    where, values = "sequence > ?", [since]
    if account is not None:
        kinds = ", ".join(map(repr, SHARED_KINDS))
        where, values = f"{where} AND (account = ? OR kind IN ({kinds}))", [since, account]
    query = f"SELECT {_COLUMNS} FROM events WHERE {where} ORDER BY sequence LIMIT ?"
    with translated(path):
        check_since(db, log, since)
        return [_checked(path, row) for row in db.execute(query, (*values, limit))]


def _checked(path: pathlib.Path, row: tuple[Any, ...]) -> StoredEvent:
    """Return the event in a row of `_COLUMNS`. Raises StoreCorruptError if it is damaged."""
    name, *columns, stated = row
    if stated != mark("events", columns):
        raise StoreCorruptError(f"{path}: a row in table events is damaged")
    sequence, time, kind, data, _ = columns
    return StoredEvent(sequence, time, kind, data, name)


def run_of(db: sqlite3.Connection, path: pathlib.Path, log: EventLog, sequence: int) -> StoredEvent | None:
    """Return the first event of the run that stored event number `sequence`, or None if it is unknown.

    Raises EventGapError and ParameterError in the same cases as `check_since`, and StoreCorruptError for a damaged row.
    """
    query = f"SELECT {_COLUMNS} FROM events WHERE sequence <= ? AND kind = ? ORDER BY sequence DESC LIMIT 1"
    with translated(path):
        check_since(db, log, sequence)
        row = db.execute(query, (sequence, RUN_STARTED)).fetchone()
        return None if row is None else _checked(path, row)
