"""The wallet's database, one SQLite file: headers, watch list, coins, matches, pending transactions, compact filters and the scan cursor.

A batch changes headers, matches, coins and cursor in one transaction, so the state is consistent even if the process is killed. SQLite
has no checksums: each row carries one over its contents, each table the sum of its rows' checksums, and headers are linked by their
hashes. A damaged file is therefore refused and never gives a wrong match.

Use it from one thread at a time. The file and its companions have mode 0600: they reveal what the wallet owns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self  # rows are as SQLite gives them

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.errors import StoreCorruptError, StoreForeignError
from spvfilter.kernel import NO_ENTRY, EntryKind, Hit
from spvfilter.network import Network
from spvfilter.store.addresses import AddressRows, KnownAddress
from spvfilter.store.filters import CompactFilterBatch, CompactFilterRows
from spvfilter.store.headers import HeaderRows
from spvfilter.store.rebuild import beside, replace, salvage
from spvfilter.store.schema import APPLICATION_ID, MARKED, SCHEMA, SCHEMA_VERSION
from spvfilter.store.sqlite import MarkedRows, create, number, numbers, translated
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import secrets
    import sqlite3
else:
    secrets = deferred("secrets")
    sqlite3 = deferred("sqlite3")

_NOTE = "note: "  # prefix of the light client's names in the table "meta"
MEMORY = ":memory:"  # instead of a path: a database that is gone when it is closed


@public
class StoredMatch(NamedTuple):
    """A match in the database: the hit and its block in the best chain; block hash and height are None while it is unconfirmed."""

    hit: Hit
    block_hash: bytes | None
    height: int | None
    completeness: Completeness


@public
class Pending(NamedTuple):
    """An unconfirmed transaction."""

    raw: bytes
    seen: int  # when it arrived, seconds since 1970
    own: bool  # whether we broadcast it


@public
class KeptTx(NamedTuple):
    """A matched transaction of a block, kept because a reorganisation makes it unconfirmed again."""

    raw: bytes
    height: int
    own: bool  # whether we broadcast it


@public
class Bip37Parameters(NamedTuple):
    """Parameters that make this wallet's BIP-37 filter the same in every run: the intersection of different filters reveals the wallet."""

    tweak: int
    elements: int  # number of elements to size it for
    fp_rate: float
    decoy_key: bytes


@public
@dataclass(slots=True)
class Batch:
    """Changes of one commit, applied in this order. Empty parts change nothing."""

    fork: int | None = None  # height up to which the stored chain stays; headers and matches above are deleted
    headers: bytes = b""  # of the next blocks, 80 bytes each
    matches: list[StoredMatch] = field(default_factory=list)  # new ones, and confirmed ones that were unconfirmed
    withdrawn: list[tuple[bool, bytes, int]] = field(default_factory=list)  # identities (spend, txid, n)
    pending: dict[bytes, Pending | None] = field(default_factory=dict)  # by txid; None deletes
    transactions: dict[bytes, KeptTx | None] = field(default_factory=dict)  # by txid; None deletes
    cursor: int | None = None  # height up to which blocks have been searched
    notes: dict[str, bytes | None] = field(default_factory=dict)  # named values of the light client; None deletes
    bip37_parameters: Bip37Parameters | None = None
    compact_filters: CompactFilterBatch | None = None  # BIP-158
    entries: list[tuple[EntryKind, bytes, str | None]] = field(default_factory=list)  # of the attached watch list, those that follow
    addresses: dict[str, KnownAddress | None] = field(default_factory=dict)  # of peers, by address; None deletes

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        if self.fork is not None or self.cursor is not None or self.bip37_parameters is not None or self.compact_filters is not None:
            return False
        parts = self.headers, self.matches, self.withdrawn, self.pending, self.transactions, self.notes, self.entries, self.addresses
        return not any(parts)


@public
class Store:
    """One wallet's database; see `open`. Methods raise StoreError and its kinds."""

    def __init__(self, path: Path, network: Network, connection: sqlite3.Connection) -> None:
        self.path = path
        self.network = network
        self._db = connection
        self._rows = MarkedRows(connection, path, MARKED)
        self._headers = HeaderRows(connection, self._rows, path)
        self.compact_filters = CompactFilterRows(connection, self._rows, path)
        self.addresses = AddressRows(connection, self._rows, path)
        self._watch: WatchList | None = None
        self._ids: list[int] = []  # entry number → id of its row
        self._cursor = -1
        self._searched = -1

    @classmethod
    def open(cls, path: str | os.PathLike[str], network: Network, *, rebuild: bool = False) -> Self:
        """Open the database at `path`, or create it, and verify all of it. MEMORY opens one without a file.

        With `rebuild`, an existing database is moved aside (to `….damaged`) and replaced by a new one with what can be read of its watch
        list, labels and filter parameters; headers and matches must be fetched again. Raises StoreLockedError, StoreForeignError (also
        for another network), StoreCorruptError, StoreFullError, StoreReadOnlyError.
        """
        file = Path(path)
        if rebuild and file.exists():
            return cls._rebuild(file, network)
        store = cls._open(file, network)
        try:
            store._verify()
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def _open(cls, file: Path, network: Network) -> Self:
        with translated(file):
            fresh = str(file) == MEMORY or create(file)
            connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=0)
        store = cls(file, network, connection)
        try:
            with translated(file):
                store._prepare(fresh)
        except BaseException:
            connection.close()
            raise
        return store

    def _prepare(self, fresh: bool) -> None:
        db = self._db
        db.execute("PRAGMA locking_mode = EXCLUSIVE")  # a second process gets an error at once
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not fresh and (tables or application):
            if application != APPLICATION_ID:
                raise StoreForeignError(f"{self.path}: this SQLite database belongs to another program")
            if version != SCHEMA_VERSION:
                raise StoreForeignError(f"{self.path}: schema version {version}, this program reads version {SCHEMA_VERSION}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cell_size_check = ON")
        if not tables:
            with self._rows.transaction():  # one transaction: the schema is complete or absent
                for statement in SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                self._rows.set_meta("network", self.network.genesis_hash)
                self._rows.set_meta("secret", secrets.token_bytes(32))
                self._rows.set_meta("cursor", number(-1) + number(-1))
        else:
            db.execute("BEGIN IMMEDIATE")  # takes the lock now, not at the first write
            db.execute("COMMIT")

    def _verify(self) -> None:
        """Raises StoreCorruptError if a row is damaged or missing or a header does not link."""
        with translated(self.path):
            tables = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'filters'").fetchall()
            for (table,) in (("sqlite_master",), *tables):  # without the filters, up to 13 GB: each is checked when it is read
                (verdict,) = self._db.execute("SELECT * FROM pragma_integrity_check(?)", (table,)).fetchone()
                if verdict != "ok":
                    raise StoreCorruptError(f"{self.path}: {str(verdict)[:200]}")
            self._rows.verify()
            if self._rows.meta("network") != self.network.genesis_hash:
                raise StoreForeignError(f"{self.path}: this wallet belongs to another network than {self.network}")
            self._headers.verify()
            self.compact_filters.load()
            self._cursor, self._searched = self._rows.numbers("cursor")

    @classmethod
    def _rebuild(cls, file: Path, network: Network) -> Self:
        meta, watch = salvage(file, network)
        made = beside(file)
        with cls._open(made, network) as store:
            with translated(made), store._rows.transaction():
                for key in ("secret", "filter"):
                    if key in meta:
                        store._rows.set_meta(key, meta[key])
            store.attach(watch)
            with translated(made):
                store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # into one file; close() would not report a full disk
        replace(file, made)
        return cls.open(file, network)

    def close(self) -> None:
        """Close the file; no other method may be called afterwards."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Reading

    @property
    def tip(self) -> int:
        """Height of the last header; -1 for none."""
        return self._headers.tip

    @property
    def cursor(self) -> int:
        """Height up to which blocks have been searched for every entry of the watch list; -1 for none."""
        return self._cursor

    @property
    def searched(self) -> int:
        """Height up to which blocks had been searched before the cursor moved back for new entries; -1 for none."""
        return self._searched

    @property
    def secret(self) -> bytes:
        """32 random bytes, drawn when the database was created."""
        return self._rows.meta("secret") or b""

    @property
    def bip37_parameters(self) -> Bip37Parameters | None:
        """The parameters last committed, or None."""
        raw = self._rows.meta("filter")
        if raw is None:
            return None
        tweak, elements = numbers(raw[:16])
        return Bip37Parameters(tweak, elements, float.fromhex(raw[16:48].rstrip(b"\0").decode("ascii")), raw[48:])

    def headers(self, start: int = 0) -> Iterator[bytes]:
        """Headers from height `start` on, packed (80 bytes each), up to 2,000 per item."""
        return self._headers.pieces(start)

    def matches(self, *, above: int = -1, confirmed: bool | None = None) -> Iterator[StoredMatch]:
        """Matches in blocks above height `above` in ascending order, then the unconfirmed ones.

        `confirmed` selects one of these kinds. A watch list must be attached. Raises StoreError.
        """
        entries = {row: at for at, row in enumerate(self._ids)}
        where = {None: "height > ? OR height IS NULL", True: "height > ?", False: "height IS NULL AND ? < 0"}[confirmed]
        query = f"SELECT {MARKED['matches']} FROM matches WHERE {where} ORDER BY height IS NULL, height, position, spend DESC, n"  # noqa: S608
        for spend, txid, n, position, outpoint, value, script, entry, block, height, completeness in self._rows_of(query, (above,)):
            hit = Hit(bool(spend), position, txid, n, outpoint, value, script, entries[entry])
            yield StoredMatch(hit, block, height, self._completeness(completeness))

    def _completeness(self, stored: str) -> Completeness:
        try:
            return Completeness(stored)
        except ValueError:
            raise StoreCorruptError(f"{self.path}: a match has the unknown completeness {stored[:20]!r}") from None

    def blocks_of(self, identities: Iterable[tuple[bool, bytes, int]]) -> dict[tuple[bool, bytes, int], tuple[bytes | None, int | None]]:
        """The stored ones of these matches (spend, txid, n), with hash and height of their block; both None while unconfirmed."""
        query = "SELECT block, height FROM matches WHERE spend = ? AND txid = ? AND n = ?"
        with translated(self.path):
            rows = [(identity, self._db.execute(query, identity).fetchone()) for identity in identities]
        return {identity: row for identity, row in rows if row is not None}

    def spender_of(self, outpoint: bytes) -> bytes | None:
        """The txid of a confirmed match that spends an outpoint (36 bytes), or None."""
        query = "SELECT txid FROM matches WHERE outpoint = ? AND spend = 1 AND height IS NOT NULL"
        return next((txid for (txid,) in self._rows_of(query, (outpoint,))), None)

    def has_tx(self, txid: bytes) -> bool:
        """Whether a transaction has a stored match."""
        return any(self._rows_of("SELECT 1 FROM matches WHERE txid = ? LIMIT 1", (txid,)))

    def _rows_of(self, query: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with translated(self.path):
            yield from self._db.execute(query, values)

    def hashes_down(self, fork: int) -> Iterator[tuple[int, bytes]]:
        """Height and block hash of each header above height `fork`, from the tip down."""
        return self._headers.hashes_down(fork)

    def pending(self) -> dict[bytes, Pending]:
        """The unconfirmed transactions by txid."""
        return {txid: Pending(raw, seen, bool(own)) for txid, raw, seen, own in self._rows_of("SELECT txid, raw, seen, own FROM pending")}

    def transactions(self, above: int) -> dict[bytes, KeptTx]:
        """The matched transactions of blocks above a height, by txid."""
        query = "SELECT txid, raw, height, own FROM transactions WHERE height > ?"
        return {txid: KeptTx(raw, height, bool(own)) for txid, raw, height, own in self._rows_of(query, (above,))}

    def note(self, name: str) -> bytes | None:
        """A named value of the light client, or None."""
        return self._rows.meta(_NOTE + name)

    # Writing

    def attach(self, watch: WatchList, since: int = 0) -> None:
        """Merge `watch` with the database: each gets the entries, labels and coins that only the other has.

        Entries that are new to the database need a search of the blocks from height `since` on, so the cursor moves back below it.
        """
        with translated(self.path):
            rows = list(self._db.execute("SELECT id, kind, value, label FROM watch ORDER BY id"))
            known: dict[int, tuple[int, str | None]] = {}  # entry number → id and label of its row
            for row, kind, value, label in rows:
                there = watch.table.find(EntryKind(kind), value)
                mine = watch.label(there) if there != NO_ENTRY else None
                known[watch.add_entry(EntryKind(kind), value, mine or label)] = row, label
            entries = {row: at for at, (row, _) in known.items()}
            coins = {outpoint: rest for outpoint, *rest in self._db.execute("SELECT outpoint, entry, value, script FROM coins")}
            for outpoint, (row, value, script) in coins.items():
                watch.table.set_coin(outpoint, entries[row], value, script)
            self._watch = watch
            self._ids = []
            with self._rows.transaction():
                self._write_entries(known)
                self._write_coins(
                    outpoint
                    for outpoint, coin in watch.table.coins()
                    if coins.get(outpoint) != [self._ids[coin.entry], coin.value, coin.script]
                )
                if len(watch) > len(known):
                    self._move_cursor(min(self._cursor, max(since, 0) - 1))

    def commit(self, *batches: Batch) -> None:
        """Apply batches in one transaction, flushed to disk. Raises StoreError, StoreFullError; then nothing has changed."""
        tip, cursor, searched, ids = self.tip, self._cursor, self._searched, len(self._ids)
        filters = self.compact_filters.state()
        try:
            with translated(self.path), self._rows.transaction():
                for batch in batches:
                    self._write(batch)
        except BaseException:
            self._headers.tip, self._cursor, self._searched = tip, cursor, searched
            del self._ids[ids:]
            self.compact_filters.reset(filters)
            raise

    def _write(self, batch: Batch) -> None:
        if batch.fork is not None and batch.fork < self.tip:
            self._rows.remove("matches", "height > ?", (batch.fork,))
            self._headers.cut(batch.fork)
            self.compact_filters.cut(batch.fork)
            self._searched = min(self._searched, batch.fork)
            self._move_cursor(min(self._cursor, batch.fork))
        if batch.headers or batch.fork is not None:
            self._headers.append(batch.headers)
        for kind, value, label in batch.entries:
            self._add_entry(kind, value, label)
        for identity in batch.withdrawn:
            self._rows.remove("matches", "spend = ? AND txid = ? AND n = ?", identity)
        for hit, block, height, completeness in batch.matches:
            entry = self._ids[hit.entry]
            self._rows.remove("matches", "spend = ? AND txid = ? AND n = ?", (hit.spend, hit.txid, hit.n))
            place = (int(hit.spend), hit.txid, hit.n, hit.position, hit.outpoint)
            row = (*place, hit.value, hit.script, entry, block, height, completeness.value)
            self._rows.insert("matches", row)
        self._write_coins(found.hit.outpoint for found in batch.matches if not found.hit.spend and found.height is not None)
        for txid, pending in batch.pending.items():
            self._rows.remove("pending", "txid = ?", (txid,))
            if pending is not None:
                self._rows.insert("pending", (txid, pending.raw, pending.seen, int(pending.own)))
        for txid, kept in batch.transactions.items():
            self._rows.remove("transactions", "txid = ?", (txid,))
            if kept is not None:
                self._rows.insert("transactions", (txid, kept.raw, kept.height, int(kept.own)))
        for name, note in batch.notes.items():
            self._rows.set_meta(_NOTE + name, note)
        self.addresses.write(batch.addresses)
        if batch.cursor is not None:
            self._move_cursor(min(batch.cursor, self.tip))
        if batch.compact_filters is not None:
            self.compact_filters.write(batch.compact_filters)
        if batch.bip37_parameters is not None:
            tweak, elements, rate, key = batch.bip37_parameters
            self._rows.set_meta("filter", number(tweak) + number(elements) + rate.hex().encode("ascii").ljust(32, b"\0") + key)

    def _move_cursor(self, height: int) -> None:
        self._cursor = height
        self._searched = max(self._searched, height)
        self._rows.set_meta("cursor", number(self._cursor) + number(self._searched))

    def _add_entry(self, kind: EntryKind, value: bytes, label: str | None) -> None:
        """Write the watch list's next entry."""
        row = 1 + self._db.execute("SELECT coalesce(max(id), 0) FROM watch").fetchone()[0]
        self._rows.insert("watch", (row, int(kind), value, label))
        self._ids.append(row)

    def _write_entries(self, known: dict[int, tuple[int, str | None]]) -> None:
        """Write the entries of the watch list that have no row id yet. `known`: entry number → id and label of its existing row."""
        assert self._watch is not None
        for at, (kind, value, label) in enumerate(self._watch.entries()):
            if at < len(self._ids):
                continue
            row, labelled = known.get(at, (0, None))
            if not row:
                row = 1 + self._db.execute("SELECT coalesce(max(id), 0) FROM watch").fetchone()[0]
            elif label != labelled:
                self._rows.remove("watch", "id = ?", (row,))
            if at not in known or label != labelled:
                self._rows.insert("watch", (row, int(kind), value, label))
            self._ids.append(row)

    def _write_coins(self, outpoints: Iterable[bytes]) -> None:
        for outpoint in outpoints:
            coin = self._watch.table.coin(outpoint) if self._watch is not None else None
            if coin is not None:
                self._rows.remove("coins", "outpoint = ?", (outpoint,))
                self._rows.insert("coins", (outpoint, self._ids[coin.entry], coin.value, coin.script))
