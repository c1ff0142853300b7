"""The shell's queue of commits, reads and events, over the real database, with a disk that is slow, fails or is
full.
"""

from __future__ import annotations

import random
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from simulation.timeline import Timeline
from simulation.violation import Violation
from spvfilter.errors import StoreError
from spvfilter.light.engine.effects import Commit, Emit, Read
from spvfilter.light.engine.inputs import Committed, Input, Worked
from spvfilter.light.events import Event
from spvfilter.network import REGTEST, Network
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredTx
from spvfilter.store.store import Store
from support.wallets.storesqlite import share_entry_rows, sqlite_of, writing

SLOWEST_S = 0.2
_CHECKED = 6  # a comparison after that many groups of commits
_NO_LIMIT = 0xFFFFFFFE  # pages, SQLite's largest


def open_store(path: Path, secret: bytes, network: Network = REGTEST) -> Store:
    """Open or create the wallet's database, without fsync: only the process is killed here, never the machine."""
    store = Store.open(path, network)
    sqlite_of(store).execute("PRAGMA synchronous = OFF")
    if store.tip < 0:
        with writing(store) as rows:
            rows.set_meta("secret", secret)  # the only thing that the database draws by lot
    return store


class Shadow:
    """A copy of the database that gets each commit in its own transaction."""

    def __init__(self, store: Store, path: Path) -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as target:
            sqlite_of(store).backup(target)
        self._store = Store.open(path, store.network)
        sqlite_of(self._store).execute("PRAGMA synchronous = OFF")
        share_entry_rows(store, self._store)
        self._groups = 0  # of several commits

    def commit(self, store: Store, *batches: Batch) -> None:
        """Apply, one by one, batches of one commit of the database. Raises Violation as `check`."""
        for batch in batches:
            self._store.commit(batch)
        self._groups += len(batches) > 1
        if len(batches) > 1 and self._groups % _CHECKED == 1:
            self.check(store)

    def check(self, store: Store) -> None:
        """True: both databases have the same rows. Raises Violation."""
        for (table,) in sqlite_of(store).execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            grouped, single = (set(sqlite_of(each).execute(f"SELECT * FROM {table}")) for each in (store, self._store))
            if grouped != single:
                row = min(grouped ^ single, key=repr)
                raise Violation("true", f"the table {table} depends on how commits are grouped: {row!r}")

    def close(self) -> None:
        """Close the copy."""
        self._store.close()


class DiskQueue:
    """Commits, reads and events in the order given. `report` takes inputs for the engine, `tell` events for the
    user.
    """

    def __init__(
        self,
        store: Store,
        timeline: Timeline,
        rng: random.Random,
        slowness: float,
        report: Callable[[Input], None],
        tell: Callable[[Event], None],
        fail: Callable[[StoreError], None],
        before_write: Callable[[], None],
        shadow: Path | None = None,
    ) -> None:
        """With `shadow`, a copy of the database gets the same commits one by one, and must be equal in the end."""
        self.store = store
        self._shadow = None if shadow is None else Shadow(store, shadow)
        self.is_open = True
        self.commits = 0
        self.fails_at: int | None = None  # number of commits after which one fails
        self._timeline = timeline
        self._rng = rng
        self._report = report
        self._tell = tell
        self._fail = fail
        self._before_write = before_write
        self._queue: deque[Commit | Emit | Read] = deque()
        self._is_writing = False
        self.slowness = slowness  # seconds
        self._unconfirmed: tuple[int, dict[bytes, StoredTx]] = (-1, {})  # changes and rows of the last read

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def unconfirmed(self) -> Mapping[bytes, StoredTx]:
        """The database's unconfirmed transactions, which are read again only if a row of it has changed."""
        changes = sqlite_of(self.store).total_changes
        if self._unconfirmed[0] != changes:
            found = self.store.transactions(self.store.tip)
            listed = {txid: each for txid, each in found.items() if each.is_listed and each.status.is_open}
            self._unconfirmed = changes, listed
        return self._unconfirmed[1]

    def put(self, effect: Commit | Emit | Read) -> None:
        """Do this after everything put before."""
        self._queue.append(effect)
        if not self._is_writing:
            self._pump()

    def close(self) -> None:
        """End the process, which loses its queue."""
        self.is_open = False
        self._queue.clear()
        try:
            self.check()
        finally:
            self.close_stores()

    def check(self) -> None:
        """True: the database does not depend on how commits were grouped. Raises Violation."""
        if self._shadow is not None:
            self._shadow.check(self.store)

    def close_stores(self) -> None:
        """Close the database, and its copy."""
        self.store.close()
        if self._shadow is not None:
            self._shadow.close()

    def set_full(self, is_full: bool) -> None:
        """Whether the file may grow from now on."""
        db = sqlite_of(self.store)
        pages = db.execute("PRAGMA page_count").fetchone()[0] if is_full else _NO_LIMIT
        db.execute(f"PRAGMA max_page_count = {pages}")

    def _pump(self) -> None:
        while self._queue and self.is_open:
            match self._queue[0]:
                case Commit():
                    self._is_writing = True
                    self._timeline.after(self.slowness * self._rng.random(), self._write)
                    return
                case Emit(event):
                    self._queue.popleft()
                    self._tell(event)
                case Read(token, function):
                    self._queue.popleft()
                    self._answer(token, function)

    def _answer(self, token: int, function: Callable[[Store], object]) -> None:
        try:
            value = function(self.store)
        except Exception as error:
            value = error
        self._timeline.after(self.slowness * self._rng.random(), partial(self._report, Worked(token, value)))

    def _write(self) -> None:
        """Commit some of the commits at the head of the queue."""
        if not self.is_open:
            return
        self._is_writing = False
        self._before_write()
        most = self._rng.choice([1, 1, 3, 100])
        group, events = self._group(most)
        try:
            if self.fails_at is not None and self.commits + len(group) > self.fails_at:
                raise StoreError("the simulated disk fails")
            self.store.commit(*(each.batch for each in group))
            if self._shadow is not None:
                self._shadow.commit(self.store, *(each.batch for each in group))
        except StoreError as error:
            self._fail(error)
            return
        for _ in range(len(group) + len(events)):
            self._queue.popleft()
        self.commits += len(group)
        for event in events:
            self._tell(event)
        self._report(Committed(group[-1].number if group else 0))
        if not self._is_writing:
            self._pump()

    def _group(self, most: int) -> tuple[list[Commit], list[Event]]:
        """The next commits at the head of the queue, and the events between them. All commits come before the
        events.
        """
        group, events, between = list[Commit](), list[Event](), list[Event]()
        for each in self._queue:
            if isinstance(each, Commit) and len(group) < most:
                group.append(each)
                events += between
                between = []
            elif isinstance(each, Emit):
                between.append(each.event)
            else:
                break
        return group, events
