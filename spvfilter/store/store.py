"""Store: a wallet's database, one SQLite file with headers, watch list, coins, matches, filters and events.

A batch changes all of them in one transaction, so the state is consistent even if the process is killed. SQLite has no
checksums, so each row carries one, their sum is stored for each table, and headers are linked by their hashes. A
damaged file is refused and never yields a wrong match.

Use the object from one thread at a time. The file and its companions have mode 0600, because they reveal what the
wallet owns.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Self  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.errors import ParameterError, StoreCorruptError, UnknownAccountError
from spvfilter.hashes import sha256d
from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, Hit, WatchedCoin, block_txids, check_block, merkle_branches
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.store.accounts import AccountRows
from spvfilter.store.addresses import AddressRows
from spvfilter.store.batch import AccountChange, Batch, Bip37Parameters
from spvfilter.store.events import EventRows
from spvfilter.store.filters import CompactFilterRows
from spvfilter.store.headers import HeaderRows
from spvfilter.store.joining import (
    check_account,
    check_descriptors,
    inherited,
    keep_keychains,
    start_of,
    take_keychains,
    take_outputs,
    take_revealed,
    take_spellings,
    wider,
)
from spvfilter.store.keychains import KeychainRows, StoredKeychain
from spvfilter.store.labels import ImportedLabels, LabelRows
from spvfilter.store.ledger import (
    Ledger,
    StoredMatch,
    StoredTx,
    kept_transactions,
    stored_completeness,
)
from spvfilter.store.lock import WriterLock
from spvfilter.store.migrations import migrate
from spvfilter.store.networkrows import check_network, network_rows, read_network
from spvfilter.store.place import MEMORY, FileIdentity
from spvfilter.store.rebuild import beside, replace, salvage
from spvfilter.store.schema import (
    APPLICATION_ID,
    MARKED,
    SCHEMA_VERSION,
    SECRET_SIZE,
    STATEMENTS,
    check_rows,
    check_statements,
    version_of,
)
from spvfilter.store.searched import Searched
from spvfilter.store.sqlite import MarkedRows, check_sqlite, create, number, reading, translated
from spvfilter.store.views import Views
from spvfilter.transaction import Transaction
from spvfilter.watch.labels import Label
from spvfilter.watch.watchlist import WatchList

_NOTE = "note: "
"""Prefix of the light client's keys in the "meta" table."""
_BOOKMARK = f"{_NOTE}told: "
"""Prefix of the keys of bookmarks."""
_PATIENCE_S = 5.0  # seconds to wait for a reader that is recovering the file after a crash, or closing it


@public
class Store:
    """A wallet's database, opened for writing with `open`, as a light client does.

    Programs that only read should use `WalletStore`. Methods raise StoreError, or a subclass that names the cause.
    """

    def __init__(self, path: Path, network: Network, connection: sqlite3.Connection, lock: WriterLock | None) -> None:
        self.path = path
        """Path of the file, or `MEMORY`."""
        self.network = network
        """Network of the wallet."""
        self._db = connection
        self._lock = lock
        self._identity = None if lock is None else FileIdentity(path, "the changes cannot be saved")
        self._rows = MarkedRows(connection, path, MARKED, check_rows)
        self._headers = HeaderRows(connection, self._rows, path)
        self._accounts = AccountRows(connection, self._rows, path)
        self._ledger = Ledger(connection, self._rows, path, self._accounts)
        self._labels = LabelRows(connection, self._rows, network)
        self.keychains: KeychainRows = KeychainRows(connection, self._rows, path)
        """Keychains of the wallet."""
        self.events: EventRows = EventRows(connection, self._rows, path, self._accounts.find)
        """Events of the wallet."""
        self.compact_filters: CompactFilterRows = CompactFilterRows(connection, self._rows, path)
        """Compact filters and their headers."""
        self.addresses: AddressRows = AddressRows(connection, self._rows, path)
        """Addresses of nodes."""
        self._ids: list[int] = []  # entry number → id of its row
        self._cursor = -1
        self._searched = -1

    @classmethod
    def open(cls, path: str | os.PathLike[str], network: Network, *, rebuild: bool = False) -> Self:
        """Open or create a database, and check everything in it except the compact filters.

        A database of version 0.2.0 or later is migrated to the current schema. With `rebuild`, a damaged or older
        database is moved to a file whose name ends in `.damaged`. The readable parts of its watch list, labels,
        bookmarks and filter parameters are copied to a new database. Headers and matches must be downloaded again.

        Args:
            path: Path of the file, or `MEMORY` for a database without a file.
            network: Network of the wallet.
            rebuild: True to replace an existing database.

        Raises:
            StoreLockedError: Another client has opened the database.
            StoreForeignError: The file belongs to another program, network or schema version.
            StoreCorruptError: The file is damaged.
            StoreFullError: The disk is full.
            StoreReadOnlyError: The file cannot be written.
            StoreError: This Python's SQLite library is too old.
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
            check_sqlite(file)
            lock = None if str(file) == MEMORY else WriterLock.take(file)
        connection: sqlite3.Connection | None = None
        try:
            with translated(file):
                fresh = lock is None or create(file)
                connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=_PATIENCE_S)
                store = cls(file, network, connection, lock)
                with reading(file):
                    store._prepare(fresh)
        except BaseException:
            if connection is not None:
                connection.close()
            if lock is not None:
                lock.release()
            raise
        return store

    def _prepare(self, fresh: bool) -> None:
        db = self._db
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        version = version_of(db, self.path) if not fresh and (tables or application) else SCHEMA_VERSION
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA cell_size_check = ON")
        if not tables:
            with self._rows.transaction():  # one transaction, so that the schema is either complete or absent
                for statement in STATEMENTS:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                for key, value in network_rows(self.network).items():
                    self._rows.set_meta(key, value)
                self._rows.set_meta("secret", secrets.token_bytes(SECRET_SIZE))
                self._rows.set_meta("cursor", number(-1) + number(-1))
                self.events.begin_behind(0)
        else:
            self._check_network()
            migrate(db, self.path, version)
            check_statements(db, self.path)
            db.execute("BEGIN IMMEDIATE")  # takes the lock now, not at the first write
            db.execute("COMMIT")

    def _check_network(self) -> None:
        """Raise StoreForeignError if the wallet belongs to another network."""
        check_network(read_network(self._db, self.path), self.network, self.path)

    def _verify(self) -> None:
        """Check all rows and headers. Raises StoreCorruptError if a row is damaged or missing."""
        with reading(self.path):
            tables = self._db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'filters'"
            ).fetchall()
            # not the filters, up to 13 GB: each is checked when it is read
            for (table,) in (("sqlite_master",), *tables):
                (verdict,) = self._db.execute("SELECT * FROM pragma_integrity_check(?)", (table,)).fetchone()
                if verdict != "ok":
                    raise StoreCorruptError(f"{self.path}: damaged: {' '.join(str(verdict).split())[:200]}")
            self._rows.verify()
            self._check_network()
            for table in ("matches", "coins"):
                query = f"SELECT entry FROM {table} WHERE entry NOT IN (SELECT id FROM watch) LIMIT 1"
                for (entry,) in self._db.execute(query):
                    raise StoreCorruptError(f"{self.path}: entry {entry} of the watch list is missing")
            for txid, raw in self._db.execute("SELECT txid, raw FROM transactions"):
                if Transaction.parse(raw).txid != txid:
                    raise StoreCorruptError(
                        f"{self.path}: transaction {hash_to_hex(txid)} contains the bytes of another one"
                    )
            self._headers.verify()
            self._accounts.verify()
            self._ledger.verify()
            self.keychains.verify()
            self.events.verify()
            self.compact_filters.load()
            self._cursor, self._searched = self._rows.numbers("cursor")
            if not -1 <= self._cursor <= self._searched <= self.tip:
                raise StoreCorruptError(f"{self.path}: the searched height contradicts the headers")
            if len(self.secret) != SECRET_SIZE:
                raise StoreCorruptError(f"{self.path}: the secret of the wallet is damaged")
            Searched.parse(self._rows.meta("searched"))
            if (raw := self._rows.meta("filter")) is not None:
                Bip37Parameters.parse(raw)

    @classmethod
    def _rebuild(cls, file: Path, network: Network) -> Self:
        with translated(file):
            lock = WriterLock.take(file)
        try:
            cls._replace(file, network)
        finally:
            lock.release()
        return cls.open(file, network)

    @classmethod
    def _replace(cls, file: Path, network: Network) -> None:
        meta, watch, last_event, own, labels, frozen, revealed, scripts = salvage(file, network)
        made = beside(file)
        with cls._open(made, network) as store:
            with translated(made), store._rows.transaction():
                store.events.begin_behind(last_event)
                store.keychains.keep_revealed(revealed)
                store.keychains.keep_revealed_scripts(scripts)
                for key in meta:
                    if key in ("secret", "filter") or key.startswith(_BOOKMARK):
                        store._rows.set_meta(key, meta[key])
                for table, rows in (("labels", labels), ("frozen", frozen)):
                    for row in rows:
                        store._rows.insert(table, row)
            store.attach(watch)
            store.commit(Batch(transactions=dict(own)))
            with translated(made):
                # into one file; close() would not report a full disk
                store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        replace(file, made)

    def close(self) -> None:
        """Close the file. Do not call other methods after this."""
        self._db.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()

    # Reading

    @property
    def views(self) -> Views:
        """The wallet's balance, coins, history and keychains."""
        return Views(self._db, self.path, self.network)

    @property
    def tip(self) -> int:
        """Height of the tip of the best chain, or -1 if there is none."""
        return self._headers.tip

    @property
    def cursor(self) -> int:
        """Height up to which blocks have been searched for every entry of the watch list, or -1 if none have."""
        return self._cursor

    @property
    def searched(self) -> int:
        """Greatest height that was searched before the cursor moved back for new entries, or -1 if there is none."""
        return self._searched

    @property
    def ids(self) -> list[int]:
        """Row ids of the attached watch list's entries, indexed by entry number."""
        return self._ids.copy()

    @property
    def searched_blocks(self) -> Searched:
        """For each entry, the blocks that have been searched. Raises StoreCorruptError if the database is damaged."""
        return Searched.parse(self._rows.meta("searched"))

    @property
    def secret(self) -> bytes:
        """Secret of the wallet: 32 random bytes, chosen when the database was created."""
        return self._rows.meta("secret") or b""

    @property
    def bip37_parameters(self) -> Bip37Parameters | None:
        """Parameters of the wallet's BIP-37 filter, or None before the first filter."""
        raw = self._rows.meta("filter")
        return None if raw is None else Bip37Parameters.parse(raw)

    def import_labels(self, labels: Sequence[Label]) -> ImportedLabels:
        """Store labels (BIP-329), and return which outputs this froze and unfroze.

        Args:
            labels: The labels. A later label replaces an earlier one for the same record.

        Raises:
            StoreError: The database cannot be written.
        """
        before = set(self.views.frozen())
        self.commit(Batch(bip329=labels))
        after = set(self.views.frozen())
        frozen, unfrozen = (tuple(sorted(each, key=bytes)) for each in (after - before, before - after))
        return ImportedLabels(len(labels), frozen, unfrozen)

    def store_proofs(self, raw_block: bytes) -> None:
        """Store the merkle branches of the wallet's transactions that are in a block of the best chain.

        Args:
            raw_block: The whole block.

        Raises:
            FormatError: The bytes are not a block, or its header does not commit to its transactions.
            StoreError: The database cannot be read or written.
        """
        check_block(raw_block)
        joined, block = block_txids(raw_block), sha256d(raw_block[:HEADER_SIZE])
        txids = [joined[at : at + HASH_SIZE] for at in range(0, len(joined), HASH_SIZE)]
        wanted = self.views.confirmed_in(block, txids)
        places = [at for at, txid in enumerate(txids) if txid in wanted]
        if places:
            branches = zip(places, merkle_branches(joined, places), strict=True)
            self.commit(Batch(branches={txids[at]: (block, branch) for at, branch in branches}))

    def waiting_labels(self, scripts: Iterable[bytes]) -> list[Label]:
        """Return the labels of addresses that were imported before the addresses were watched. Raises StoreError.

        Args:
            scripts: ScriptPubKeys of the addresses.
        """
        with reading(self.path):
            return self._labels.waiting_for(scripts)

    def account_id(self, name: str) -> int:
        """Return the id of an account, which the database never reuses.

        Raises:
            UnknownAccountError: The database has no such account.
        """
        found = self._accounts.find(name)
        if found is None:
            raise UnknownAccountError(name)
        return found

    def has_account(self, account: int) -> bool:
        """Return True if the database has an account with this id."""
        return account in self._accounts.load()

    def headers(self, start: int = 0) -> Iterator[bytes]:
        """Yield the headers starting at height `start`, 80 bytes each, up to 2,000 of them in one item."""
        return self._headers.pieces(start)

    def matches(self, *, above: int = -1, confirmed: bool | None = None) -> Iterator[StoredMatch]:
        """Yield matches: confirmed ones by ascending height, then unconfirmed ones. A watch list must be attached.

        Args:
            above: Only matches in blocks above this height.
            confirmed: True for confirmed matches only, False for unconfirmed ones only.

        Raises:
            StoreError: The database cannot be read.
        """
        entries = {row: at for at, row in enumerate(self._ids)}
        where = {None: "height > ? OR height IS NULL", True: "height > ?", False: "height IS NULL AND ? < 0"}[confirmed]
        order = "height IS NULL, height, position, spend DESC, n"
        query = f"SELECT {MARKED['matches']} FROM matches WHERE {where} ORDER BY {order}"
        for spend, txid, n, position, outpoint, value, script, entry, block, height, completeness in self._rows_of(
            query, (above,)
        ):
            hit = Hit(bool(spend), position, txid, n, outpoint, value, script, entries[entry])
            yield StoredMatch(hit, block, height, stored_completeness(completeness, self.path))

    def timed_matches(self) -> Iterator[StoredMatch]:
        """Yield all matches with the times of their blocks, in the order of `matches`. Raises StoreError."""
        views, height, time = self.views, -1, 0
        for found in self.matches():
            if found.height is None or found.block_hash is None:
                yield found
                continue
            if found.height != height:
                height, time = found.height, views.block_time(found.height, found.block_hash)
            yield found._replace(time=time)

    def blocks_of(
        self, identities: Iterable[tuple[bool, bytes, int]]
    ) -> dict[tuple[bool, bytes, int], tuple[bytes | None, int | None]]:
        """Return the block hash and height of each of these matches that is stored.

        Both are None if the match is unconfirmed.

        Args:
            identities: Matches, each given as (spend, txid, n).
        """
        query = "SELECT block, height FROM matches WHERE spend = ? AND txid = ? AND n = ?"
        with translated(self.path):
            rows = [(identity, self._db.execute(query, identity).fetchone()) for identity in identities]
        return {identity: row for identity, row in rows if row is not None}

    def spender_of(self, outpoint: bytes) -> bytes | None:
        """Return the txid of the confirmed match that spends an outpoint (36 bytes), or None."""
        query = "SELECT txid FROM matches WHERE outpoint = ? AND spend = 1 AND height IS NOT NULL"
        return next((txid for (txid,) in self._rows_of(query, (outpoint,))), None)

    def has_tx(self, txid: bytes) -> bool:
        """Return True if a transaction has a stored match."""
        return any(self._rows_of("SELECT 1 FROM matches WHERE txid = ? LIMIT 1", (txid,)))

    def _rows_of(self, query: str, values: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        with translated(self.path):
            yield from self._db.execute(query, values)

    def hashes_down(self, fork: int) -> Iterator[tuple[int, bytes]]:
        """Yield the height and block hash of each header above height `fork`, from the tip down."""
        return self._headers.hashes_down(fork)

    def transactions(self, above: int, own_above: int | None = None) -> dict[bytes, StoredTx]:
        """Return, keyed by txid, all transactions that are not in a block, and confirmed ones above a height.

        The result also includes deeper confirmed transactions that affect unconfirmed ones.

        Args:
            above: The height.
            own_above: A lower height, used for transactions that this wallet broadcast.
        """
        query = f"SELECT {MARKED['transactions']} FROM transactions WHERE "
        return kept_transactions(lambda where, values: self._rows_of(query + where, values), above, own_above)

    def note(self, name: str) -> bytes | None:
        """Return a named value of the light client, or None."""
        return self._rows.meta(_NOTE + name)

    # Writing

    def attach(self, watch: WatchList, since: int | None = None) -> None:
        """Merge a watch list with the database, so that both contain the same entries, labels and coins.

        If the watch list has new entries, blocks are searched again for them: the searched height moves down.

        Args:
            watch: The watch list.
            since: First block to search for new entries; by default, the start of the wallet's first search. New
                scripts of a stored keychain are always searched for from that start or below.

        Raises:
            KeychainMismatchError: The database contains a different keychain with the same name.
            ParameterError: In the database, an entry belongs to a different account, or an account has a different
                descriptor.
            StoreCorruptError: The database contains a malformed entry.
        """
        with reading(self.path):
            rows = list(self._db.execute("SELECT id, kind, value, label, account FROM watch ORDER BY id"))
            keychains, accounts = self.keychains.load(), self._accounts.load()
            better = take_spellings(watch, keychains, rows)
            keychains = [
                each if (name := better.get(each.name)) is None else each._replace(name=name, descriptor=name)
                for each in keychains
            ]
            check_descriptors(watch, keychains, accounts)
            numbers = self._take_entries(watch, rows, keychains, accounts)
            known = dict(zip(numbers, rows, strict=True))
            entries = dict(zip((row for row, *_ in rows), numbers, strict=True))
            more_labels = wider(watch, keychains)
            take_keychains(watch, keychains, entries, accounts)
            take_outputs(watch, keychains, entries, self.keychains.outputs())
            watch.windows.anchor_silent()
            coins = {
                outpoint: rest
                for outpoint, *rest in self._db.execute("SELECT outpoint, entry, value, script FROM coins")
            }
            for outpoint, (row, value, script) in coins.items():
                watch.table.set_coin(outpoint, entries[row], value, script)
            self._ids = []
            with self._rows.transaction():
                self._check_unchanged()
                self.keychains.respell(better)
                self._join_labels(watch)
                searched = self.searched_blocks
                stored_accounts = set(accounts.values())
                for name in watch.accounts:
                    if name not in stored_accounts:
                        self._accounts.add(name)
                ids = {name: account for account, name in self._accounts.load().items()}
                self._write_entries(watch, known, ids, searched.add_entries(len(watch) - len(known)))
                for outpoint, coin in watch.table.coins():
                    if coins.get(outpoint) != [self._ids[coin.entry], coin.value, coin.script]:
                        self._write_coin(outpoint, coin)
                keep_keychains(self.keychains, watch, keychains, self._ids, ids)
                is_grown = len(watch.keychains) > len(keychains)
                take_revealed(self.keychains.load() if is_grown else keychains, watch)
                watch.windows.revealed_scripts |= self.keychains.revealed_scripts()
                self._ledger.settle()  # transactions of entries with a new label
                if len(watch) > len(known) or more_labels:
                    start = searched.start or 0
                    places = (watch.keychain_of(entry) for entry in range(len(watch)) if entry not in known)
                    grown = {place[0].name for place in places if place is not None} if keychains else set[str]()
                    lowest = [
                        start_of(each, searched) for each in keychains if each.name in grown or each in more_labels
                    ]
                    is_new = len(watch) > len(known)
                    first = min([*([start if since is None else max(since, 0)] if is_new else []), *lowest])
                    searched.again(first - 1, self._cursor)
                    self._rows.set_meta("searched", searched.encode())
                    self._move_cursor(min(self._cursor, first - 1))

    def _take_entries(
        self,
        watch: WatchList,
        rows: Sequence[tuple[Any, ...]],
        keychains: Sequence[StoredKeychain],
        accounts: Mapping[int, str],
    ) -> list[int]:
        """Add the entries in the database to a watch list, and return their numbers.

        An entry gets its own label and account only if they differ from those of its keychain.

        Args:
            watch: The watch list.
            rows: Rows of the entries: id, kind, value, label and account.
            keychains: Keychains in the database.
            accounts: Names of the accounts, keyed by row id.

        Raises:
            ParameterError: In the watch list, an entry belongs to a different account.
            StoreCorruptError: An entry is malformed.
        """
        given, add, kinds = watch.index.accounts_by_entry(), watch.table.add, tuple(EntryKind)
        labels, owners = inherited(keychains)
        try:
            numbers = [add(kinds[kind], value) for _, kind, value, *_ in rows]
        except ParameterError as error:
            raise StoreCorruptError(f"{self.path}: the watch list has a malformed entry: {error}") from error
        if given:
            for at, (*_, owner) in zip(numbers, rows, strict=True):
                if owner is not None and at < len(given):
                    check_account(accounts[owner], given[at], "script")
        with watch.within_account(None):
            for name in accounts.values():
                _begin_account(watch, name, self.path)
            for row, kind, value, label, owner in rows:
                is_labelled, is_owned = label != labels.get(row), owner != owners.get(row)
                if not is_labelled and not is_owned:
                    continue
                watch.begin_account(accounts[owner] if is_owned and owner is not None else None)
                own = watch.own_label(watch.table.find(kinds[kind], value))
                try:
                    watch.add_entry(kinds[kind], value, own or (label if is_labelled else None))
                except ParameterError as error:
                    raise StoreCorruptError(f"{self.path}: entry {row} of the watch list: {error}") from error
        return numbers

    def _join_labels(self, watch: WatchList) -> None:
        """Give watched addresses the labels that were imported before the addresses were watched."""
        for script, label in self._labels.waiting().items():
            if (at := watch.table.find(EntryKind.SCRIPT, script)) != NO_ENTRY:
                if watch.own_label(at) is None:
                    watch.relabel(at, label)
                self._labels.joined(script)

    def commit(self, *batches: Batch) -> None:
        """Apply batches in one transaction, and flush them to disk.

        After a StoreError, nothing has changed. Other exceptions, such as KeyboardInterrupt, can occur after the
        commit.

        Args:
            batches: Changes, in order.

        Raises:
            StoreError: The database cannot be written; StoreFullError if the disk is full.
            ParameterError: Headers do not follow the stored headers, or a hash has the wrong size.
        """
        tip, cursor, searched, ids, number = self.tip, self._cursor, self._searched, self._ids, len(self._ids)
        filters, log = self.compact_filters.state(), self.events.log
        self._ledger.begin()
        try:
            with translated(self.path), self._rows.transaction():
                self._check_unchanged()
                for batch in batches:
                    self._write(batch)
                self._ledger.settle()
                self.events.settle()
        except BaseException:
            if not self._rows.is_committed:
                self._headers.tip, self._cursor, self._searched = tip, cursor, searched
                self._ids = ids
                del self._ids[number:]
                self._ledger.roll_back()
                self.events.reset(log)
                self.compact_filters.reset(filters)
            raise

    def _check_unchanged(self) -> None:
        """Raise StoreLockedError if another process has written the file, or StoreError if it was moved or removed."""
        if self._identity is not None:
            self._identity.check()
        self._rows.check_unchanged()

    def _write(self, batch: Batch) -> None:
        self._write_chain(batch)
        self._write_watch(batch)
        self._write_ledger(batch)
        if batch.removed:
            gone = set(batch.removed)
            self._ids = [row for at, row in enumerate(self._ids) if at not in gone]
        self._write_notes(batch)

    def _write_chain(self, batch: Batch) -> None:
        if batch.fork is not None and batch.fork < self.tip:
            self._ledger.cut(batch.fork)
            self._headers.cut(batch.fork)
            self.compact_filters.cut(batch.fork)
            self._searched = min(self._searched, batch.fork)
            self._move_cursor(min(self._cursor, batch.fork))
        if batch.headers or batch.fork is not None:
            self._headers.append(batch.headers)

    def _write_watch(self, batch: Batch) -> None:
        if batch.entries:
            ids = {account: self._accounts.add(account) for *_, account in batch.entries}
            rows = ((row, int(kind), value, label, ids[account]) for row, kind, value, label, account in batch.entries)
            self._rows.insert_all("watch", rows)
            self._ids += (row for row, *_ in batch.entries)
        for each in batch.accounts:
            self._change_account(each)
        for name, keys in batch.sp_keys:
            self.keychains.put_silent(name, keys)
        for change in batch.keychains:
            self.keychains.change(change)
        for row, output in batch.sp_outputs.items():
            self.keychains.put_output(row, *output)
        for name, label in batch.keychain_labels.items():
            self.keychains.relabel(name, label)
        for at, label in batch.labels.items():
            self._relabel(self._ids[at], label)
        for row, text in self._labels.write(batch.bip329).items():
            self._relabel(row, text or inherited(self.keychains.load())[0].get(row))
        for outpoint, is_frozen in batch.frozen.items():
            self._rows.remove("frozen", "outpoint = ?", (outpoint,))
            if is_frozen:
                self._rows.insert("frozen", (outpoint,))
        if batch.removed:
            self._ledger.settle()  # changes in earlier batches need the labels of the entries that will be removed
        self._remove_entries([self._ids[at] for at in batch.removed])
        for each in batch.accounts:
            self._claim({self._ids[at]: name for at, name in each.left})

    def _write_ledger(self, batch: Batch) -> None:
        for identity in batch.withdrawn:
            self._ledger.withdraw(identity)
        for found in batch.matches:
            self._ledger.put(found, self._ids[found.hit.entry])
        for hit in (found.hit for found in batch.matches if not found.hit.spend and found.height is not None):
            self._write_coin(hit.outpoint, WatchedCoin(hit.entry, hit.value, hit.script))
        for txid, tx in batch.transactions.items():
            hits = () if tx is None else tuple(hit._replace(entry=self._ids[hit.entry]) for hit in tx.hits)
            self._ledger.keep(txid, tx and tx._replace(hits=hits))
        for txid, (block, branch) in batch.branches.items():
            self._ledger.keep_branch(txid, block, branch)

    def _write_notes(self, batch: Batch) -> None:
        for name, note in batch.notes.items():
            self._rows.set_meta(_NOTE + name, note)
        self.addresses.write(batch.addresses)
        if batch.events or batch.told is not None:
            self.events.write(batch.events, batch.told)
        for each in batch.accounts:
            self._end_account(each)
        if batch.cursor is not None:
            self._move_cursor(min(batch.cursor, self.tip))
        if batch.searched is not None:
            self._rows.set_meta("searched", batch.searched)
        if batch.compact_filters is not None:
            self.compact_filters.write(batch.compact_filters)
        if batch.bip37_parameters is not None:
            self._rows.set_meta("filter", batch.bip37_parameters.encode())

    def _move_cursor(self, height: int) -> None:
        self._cursor = height
        self._searched = max(self._searched, height)
        self._rows.set_meta("cursor", number(self._cursor) + number(self._searched))

    def _write_entries(
        self, watch: WatchList, known: Mapping[int, tuple[Any, ...]], ids: Mapping[str, int], row: int
    ) -> None:
        """Write the entries of a watch list.

        Args:
            watch: The watch list.
            known: Row of each stored entry, keyed by entry number: id, kind, value, label and account.
            ids: Ids of the accounts, keyed by name.
            row: Row id of the first new entry. The others follow.
        """
        claimed, rows = dict[int, str | None](), count(row)
        labels, accounts = watch.index.labels_by_entry(), watch.index.accounts_by_entry()
        self._ids += (known[at][0] if at in known else next(rows) for at in range(len(labels)))

        def fresh() -> Iterator[tuple[object, ...]]:  # not a list, which the garbage collector would traverse
            for at, (label, account) in enumerate(zip(labels, accounts, strict=True)):
                if at not in known:
                    kind, value = watch.table.entry(at)
                    yield self._ids[at], int(kind), value, label, None if account is None else ids[account]

        self._rows.insert_all("watch", fresh())
        for at, (label, account) in enumerate(zip(labels, accounts, strict=True)):
            if (stored := known.get(at)) is not None:
                there, _, _, labelled, owned = stored
                if label != labelled:
                    self._relabel(there, label)
                if owned != (None if account is None else ids[account]):
                    claimed[there] = account
        self._claim(claimed)

    def _relabel(self, row: int, label: str | None) -> None:
        query = "SELECT kind, value, account FROM watch WHERE id = ?"
        kind, value, account = self._db.execute(query, (row,)).fetchone()
        self._rows.remove("watch", "id = ?", (row,))
        self._rows.insert("watch", (row, kind, value, label, account))
        self._ledger.relabelled(row)
        if kind == EntryKind.SCRIPT:
            self._labels.joined(value)

    # Accounts

    def _claim(self, owners: Mapping[int, str | None]) -> None:
        """Assign entries, given by their row ids, to accounts."""
        for row, name in owners.items():
            query = "SELECT kind, value, label FROM watch WHERE id = ?"
            entry = self._db.execute(query, (row,)).fetchone()
            self._rows.remove("watch", "id = ?", (row,))
            self._rows.insert("watch", (row, *entry, self._accounts.add(name)))
        if owners:
            self._ledger.moved(owners.keys())

    def _change_account(self, change: AccountChange) -> None:
        """Add or rename an account, and give it keychains and entries."""
        if change.renamed is not None:
            self._accounts.rename(change.name, change.renamed)
            return
        account = self._accounts.add(change.name)
        if change.is_removed and account is not None:
            self.keychains.keep_revealed_of(account)
        for new in change.keychains:
            self.keychains.put(new, account)
        for name in change.adopted:
            self.keychains.claim(name, account)
        self._claim({self._ids[at]: change.name for at in change.claimed})

    def _end_account(self, change: AccountChange) -> None:
        """Remove an account whose entries are being removed, after the events about its matches have been written."""
        account = self._accounts.find(change.name) if change.is_removed else None
        if account is not None:
            self._ledger.settle()
            self._ledger.drop_account(account)
            self.keychains.remove_of(account)
            self._rows.remove("account_txs", "account = ?", (account,))  # of transactions that do not count
            self._accounts.remove(account)

    def _remove_entries(self, rows: Sequence[int]) -> None:
        """Remove entries and the coins that were learned through them.

        A coin stays if its outpoint is itself an entry, or if it pays another entry.
        """
        if not rows:
            return
        gone, scripts = set(rows), dict[bytes, int]()
        for row in rows:
            self._rows.remove("watch", "id = ?", (row,))
            self._rows.remove("sp_outputs", "entry = ?", (row,))
        there = "SELECT value, id FROM watch WHERE kind = ?"
        outpoints = dict(self._db.execute(there, (int(EntryKind.OUTPOINT),)))
        coins = self._db.execute("SELECT outpoint, entry, value, script FROM coins").fetchall()
        for outpoint, row, value, script in coins:
            if row not in gone:
                continue
            self._rows.remove("coins", "outpoint = ?", (outpoint,))
            query = "SELECT entry FROM matches WHERE outpoint = ? AND spend = 0 AND height IS NOT NULL"
            (paid,) = self._db.execute(query, (outpoint,)).fetchone() or (None,)
            if paid is None:  # the user gave the script, and the coin's block was not searched
                scripts = scripts or dict(self._db.execute(there, (int(EntryKind.SCRIPT),)))
                paid = scripts.get(script, row)
            owner = outpoints.get(outpoint, paid)
            if owner not in gone:
                self._rows.insert("coins", (outpoint, owner, value, script))

    def _write_coin(self, outpoint: bytes, coin: WatchedCoin) -> None:
        """Write the value and script of an outpoint. A stored coin keeps its entry, as in the watch list's table."""
        entry, value, script = self._ids[coin.entry], coin.value, coin.script
        if self._rows.insert_new("coins", (outpoint, entry, value, script)):
            return
        query = "SELECT entry, value, script FROM coins WHERE outpoint = ?"
        known = self._db.execute(query, (outpoint,)).fetchone()
        entry = known[0]
        value, script = known[1] if known[1] != NO_VALUE else value, known[2] if known[2] is not None else script
        if known != (entry, value, script):
            self._rows.put("coins", (outpoint, entry, value, script), "outpoint = ?", (outpoint,))


def _begin_account(watch: WatchList, name: str, path: Path) -> None:
    """Make the next entries belong to a stored account. Raises StoreCorruptError for a malformed name."""
    try:
        watch.begin_account(name)
    except ParameterError as error:
        raise StoreCorruptError(f"{path}: {error}") from error
