"""Salvage the undamaged rows of a damaged wallet database, and move the file aside.

Databases of other programs are never touched.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter.errors import (
    FormatError,
    ParameterError,
    StoreCorruptError,
    StoreError,
    StoreForeignError,
    StoreLockedError,
    StoreReadOnlyError,
)
from spvfilter.files import replacing
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.store.batch import Bip37Parameters
from spvfilter.store.events import EventLog
from spvfilter.store.joining import add_keychains, inherited, take_outputs
from spvfilter.store.keychains import SilentKeys, salvaged
from spvfilter.store.labels import is_sound
from spvfilter.store.ledger import StoredTx, stored_tx
from spvfilter.store.migrations import COLUMNS_6, FIRST_VALUES
from spvfilter.store.networkrows import check_network, network_of
from spvfilter.store.schema import APPLICATION_ID, EVENTS_SINCE, MARKED, SECRET_SIZE, check_row, is_row
from spvfilter.store.sqlite import COMPANIONS, mark, translated
from spvfilter.transaction import Transaction
from spvfilter.watch.watchlist import WatchList

_UNKNOWN_LAST = 1 << 32
"""Number assumed for the last event if it cannot be read. The numbers of real events are lower, unless a clock set
them.
"""
_OF_THE_USER = {
    "watch": "addresses",
    "accounts": "accounts",
    "keychains": "descriptors",
    "sp_keys": "scan keys",
    "labels": "labels",
    "frozen": "frozen outputs",
    "revealed": "revealed addresses",
}
"""Contents of the tables whose rows no search of the chain finds again."""
_LOG = logging.getLogger(__name__)


class Salvage(NamedTuple):
    """The undamaged rows of a damaged database."""

    meta: dict[str, bytes]
    """Named values: the network, the secret and the filter parameters."""
    watch: WatchList
    """Watch list of the readable entries."""
    last_event: int
    """Number of the last event, or a number above every possible one if it cannot be read."""
    own: dict[bytes, StoredTx]
    """The wallet's own transactions that no block contains, keyed by txid."""
    labels: list[tuple[Any, ...]]
    """Rows of labels that do not belong to an entry of the watch list."""
    frozen: list[tuple[Any, ...]]
    """Rows of frozen outputs."""
    revealed: list[tuple[bytes, int]]
    """Identities of keychains, each with the end of its revealed indexes."""
    revealed_scripts: list[bytes]
    """Scripts that removed keychains have revealed."""


def salvage(file: Path, network: Network) -> Salvage:
    """Read the undamaged rows of the watch list and the named values.

    The result is empty if the file is not a database.

    Raises StoreForeignError if the database belongs to another program or network, and StoreLockedError or
    StoreReadOnlyError if it cannot be read.
    """
    if _is_of_another(file):
        raise StoreForeignError(f"{file}: this SQLite database belongs to another program")
    lost = set[str]()
    read = partial(_rows, file, lost=lost)
    meta = {key: value for key, value in read("meta") if _is_sound(key, value)}
    if "network" in meta:
        check_network(network_of(meta), network, file)
    watch, numbers, rows = WatchList(network), dict[int, int](), sorted(read("watch"))
    silent = dict[int, SilentKeys]()
    for owner, *keys in read("sp_keys"):
        with suppress(StoreCorruptError):
            silent[owner] = SilentKeys.parse(*keys)
    present = {row for row, *_ in rows}
    keychains = salvaged(read("keychains"), read("runs"), read("used"), present, silent)
    labels, owners = inherited(keychains)
    accounts = {account: name for account, name, _ in sorted(read("accounts"))}
    for name in accounts.values():
        with suppress(ParameterError), watch.within_account(name):
            pass
    for row, kind, value, label, owner in rows:
        account = accounts.get(owner) if owner != owners.get(row) else None
        with suppress(ParameterError, FormatError), watch.within_account(account):  # bytes that no entry can have
            numbers[row] = watch.add_entry(EntryKind(kind), value, label if label != labels.get(row) else None)
    outputs = {row: (label, tweak) for row, tweak, label in read("sp_outputs")}
    for each in keychains:
        try:
            add_keychains(watch, [each], numbers, accounts)
            take_outputs(watch, [each], numbers, outputs)
        except (StoreCorruptError, KeyError):  # its entries stay, without a keychain
            lost.add("keychains")
    try:
        last = _last_event(file, meta)
    except (FormatError, TypeError):
        last = _UNKNOWN_LAST
    bip329 = [row for row in read("labels") if is_sound(row)]
    revealed = [(identity, number) for identity, number, _ in read("revealed")]
    scripts = [script for (script,) in read("revealed_scripts")]
    found = Salvage(meta, watch, last, _own_transactions(file), bip329, read("frozen"), revealed, scripts)
    if names := [what for table, what in _OF_THE_USER.items() if table in lost]:
        _LOG.warning("%s: the rebuild lost damaged rows of %s: add what is missing", file, ", ".join(names))
    return found


def _own_transactions(file: Path) -> dict[bytes, StoredTx]:
    """Return the wallet's own transactions that no block contains. The search of the chain finds the others again."""
    found = dict[bytes, StoredTx]()
    for row in _rows(file, "transactions"):
        with suppress(FormatError, StoreCorruptError, TypeError, ValueError):
            check_row(file, "transactions", row)
            tx = stored_tx(row)
            is_own = tx.broadcast_seq is not None and tx.block_hash is None
            if is_own and Transaction.parse(tx.raw).txid == row[0]:
                found[row[0]] = tx._replace(conflicts_with=None)
    return found


def _is_sound(key: str, value: bytes) -> bool:
    """Return True if the new database may take over a named value."""
    if key == "secret":
        return len(value) == SECRET_SIZE
    if key == "filter":
        try:
            Bip37Parameters.parse(value)
        except StoreCorruptError:
            return False
    return True


def _last_event(file: Path, meta: dict[str, bytes]) -> int:
    """Return the number of the last event, or a higher one: a program that stored a number must not see it reused."""
    if "events" in meta:
        with suppress(FormatError):
            return EventLog.parse(meta["events"]).last
    try:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error:
        return _UNKNOWN_LAST
    return 0 if 0 < version < EVENTS_SINCE else _UNKNOWN_LAST


def _is_of_another(file: Path) -> bool:
    """Return True if this is a readable SQLite database that has neither our application id nor our tables.

    An empty database belongs to no program.
    """
    try:
        with translated(file), closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as db:
            (application,) = db.execute("PRAGMA application_id").fetchone()
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (StoreLockedError, StoreReadOnlyError):
        raise
    except StoreError:  # damaged, or not a database
        return False
    return application != APPLICATION_ID and bool(tables or application) and not tables >= COLUMNS_6.keys()


def _rows(file: Path, table: str, lost: set[str] | None = None) -> list[tuple[Any, ...]]:
    """Return those rows of a table whose checksums are correct. If there are others, add the table to `lost`."""
    lost = set() if lost is None else lost
    rows: list[tuple[Any, ...]] = []
    try:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=0)) as db:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA writable_schema = ON")  # lets reading continue if the schema check fails
            columns = MARKED[table].split(", ")
            there = {name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")}
            if not there:  # an older version lacks some tables
                return rows
            present = [name for name in columns if name in there]  # and some columns
            first = FIRST_VALUES.get(table, {})
            for *values, stated in db.execute(f"SELECT {', '.join(present)}, mark FROM {table}"):
                named = first | dict(zip(present, values, strict=True))
                row = tuple(named.get(name) for name in columns)
                if stated == mark(table, values) and is_row(table, row):
                    rows.append(row)
                else:
                    lost.add(table)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreLockedError(f"{file}: in use by another process") from error
        lost.add(table)
    return rows


def beside(file: Path) -> Path:
    """Return the path for the new database, after removing files that an interrupted rebuild left behind.

    Raises StoreError.
    """
    made = file.with_name(f"{file.name}.rebuilt")
    with translated(made):
        for suffix in COMPANIONS:
            made.with_name(made.name + suffix).unlink(missing_ok=True)
    return made


def damaged(file: Path) -> Path:
    """Return the path to which a damaged database is moved."""
    return file.with_name(f"{file.name}.damaged")


def replace(file: Path, made: Path) -> None:
    """Move the damaged database and its companion files aside, and put the new one in its place. Raises StoreError.

    At every moment, one of the two files is in place: otherwise the next run could start with an empty database.
    """
    with translated(file):
        aside = damaged(file)
        for suffix in reversed(COMPANIONS[1:]):
            old = file.with_name(file.name + suffix)
            if old.exists():
                old.replace(aside.with_name(aside.name + suffix))
        aside.unlink(missing_ok=True)
        try:
            os.link(file, aside)
        except OSError:  # a file system without links
            with replacing(aside) as copy, file.open("rb") as source:
                shutil.copyfileobj(source, copy)
        made.replace(file)
