"""The SQL schema of the wallet's database: its tables and columns, and the values that each column may contain."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from spvfilter.errors import StoreCorruptError, StoreForeignError
from spvfilter.silent.scanner import MAX_LABELS
from spvfilter.watch.keychain import MAX_REVEALED

APPLICATION_ID = 0x53505646  # "SPVF", in the header of the file (SQLite § Application ID)
SCHEMA_VERSION = 11
SECRET_SIZE = 32  # size of the wallet's secret in bytes
RELEASED = (6,)  # versions of earlier releases that `migrations` can migrate: 0.2.0
EVENTS_SINCE = 5  # first version of the schema with a table of events
_M31, _M32, _M63 = (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1


class Column(NamedTuple):
    """A column, with the values that it may contain.

    SQLite checks the values on writing, and `check_row` and `check_rows` check them on reading.
    """

    kind: type[bytes | int | str]
    """Type of the values."""
    low: int = 0
    """Smallest number, or smallest length in bytes."""
    high: int = _M63
    """Largest number, or largest length in bytes."""
    is_optional: bool = False
    """True if the value may be NULL."""
    choices: tuple[str, ...] = ()
    """The only strings allowed. If this is empty, any string is allowed."""
    constraint: str = ""
    """Additional SQL constraint, such as PRIMARY KEY."""

    def accepting(self) -> Callable[[object], bool]:
        """Return a function that checks whether the column may contain a value."""
        kind, low, high, is_optional, choices, _ = self
        if choices:
            return frozenset((*choices, None) if is_optional else choices).__contains__
        if kind is int:
            return lambda value: low <= value <= high if type(value) is int else value is None and is_optional
        if kind is bytes:
            return lambda value: low <= len(value) <= high if type(value) is bytes else value is None and is_optional
        return lambda value: type(value) is str or (value is None and is_optional)

    def is_accepted(self, name: str) -> str:
        """Return an SQL condition for a column with this name, equivalent to the check of `accepting`."""
        if self.choices:
            found = f"typeof({name}) = 'text' AND {name} IN ({', '.join(map(repr, self.choices))})"
        elif self.kind is str:
            found = f"typeof({name}) = 'text'"
        else:
            kind, measured = ("integer", name) if self.kind is int else ("blob", f"length({name})")
            found = f"typeof({name}) = '{kind}' AND {measured} BETWEEN {self.low} AND {self.high}"
        return f"({name} IS NULL OR {found})" if self.is_optional else f"({found})"

    def sql(self, name: str) -> str:
        """Return the SQL definition of the column."""
        kind = {bytes: "BLOB", int: "INTEGER", str: "TEXT"}[self.kind]
        parts = [name, kind, *([] if self.is_optional else ["NOT NULL"]), self.constraint, self._check(name)]
        return " ".join(part for part in parts if part)

    def _check(self, name: str) -> str:
        if self.choices:
            return f"CHECK ({name} IN ({', '.join(map(repr, self.choices))}))"
        measured = f"length({name})" if self.kind is bytes else name
        if self.kind is str or (self.low, self.high) == (0 if self.kind is bytes else -_M63 - 1, _M63):
            return ""
        if self.low == self.high:
            return f"CHECK ({measured} = {self.low})"
        return (
            f"CHECK ({measured} >= {self.low})"
            if self.high == _M63
            else (f"CHECK ({measured} BETWEEN {self.low} AND {self.high})")
        )


class Table(NamedTuple):
    """A table and its columns, except the `mark` column."""

    columns: Mapping[str, Column]
    """Columns, keyed by name, in order."""
    options: str = ""
    """End of the SQL statement, such as a primary key of several columns."""
    is_marked: bool = True
    """True if the rows carry a checksum in the `mark` column."""
    has_rowid: bool = True
    """False for a table that SQLite stores in the order of its primary key."""

    def sql(self, name: str) -> str:
        """Return the statement that creates the table."""
        parts = [column.sql(each) for each, column in self.columns.items()]
        if self.is_marked:
            parts.append(MARK.sql("mark"))
        if self.options:
            parts.append(self.options)
        body = ",\n    ".join(parts)
        return f"CREATE TABLE {name} (\n    {body}\n) STRICT{'' if self.has_rowid else ', WITHOUT ROWID'}"


MARK = Column(int)
_KEY = "PRIMARY KEY"
_TEXT, _TEXT_OR_NULL = Column(str), Column(str, is_optional=True)
_HASH, _HASH_OR_NULL = Column(bytes, 32, 32), Column(bytes, 32, 32, is_optional=True)
_OUTPOINT = Column(bytes, 36, 36)
_BYTES, _BYTES_OR_NULL = Column(bytes), Column(bytes, is_optional=True)
_COUNT, _ROW, _BOOL = Column(int), Column(int, 1), Column(int, 0, 1)
_PLACE = Column(int, -2)  # see ledger: -1 is in no list, -2 is waiting
_INDEX, _HEIGHT_OR_NULL = Column(int, 0, _M32), Column(int, 0, _M31, is_optional=True)
_INDEX_OR_NULL, _TIME_OR_NULL = Column(int, 0, _M32, is_optional=True), Column(int, is_optional=True)
_VALUE = Column(int, -1)  # satoshi; kernel.NO_VALUE is -1
_ACCOUNT_OR_NULL = Column(int, 1, is_optional=True)  # id of the account's row; for an event, it may be gone
_FEE_OR_NULL, _NET = Column(int, is_optional=True), Column(int, -_M63 - 1)
_STATUSES = ("confirmed", "pending", "replaced", "conflicted", "abandoned", "expired", "refused", "waiting")
_STATUS = Column(str, choices=_STATUSES)
_COMPLETENESS = Column(str, choices=("unproven", "1 peer", "proven"))

TABLES: Mapping[str, Table] = {
    "meta": Table({"key": _TEXT._replace(constraint=_KEY), "value": _BYTES}, has_rowid=False),
    "headers": Table({"first": _COUNT._replace(constraint=_KEY), "raw": Column(bytes, 80, 160_000)}, is_marked=False),
    "accounts": Table(
        {"id": _ROW._replace(constraint=_KEY), "name": _TEXT._replace(constraint="UNIQUE"), "totals": _BYTES}
    ),
    "watch": Table(
        {
            "id": _ROW._replace(constraint=_KEY),
            "kind": Column(int, 0, 3),
            "value": Column(bytes, 1),
            "label": _TEXT_OR_NULL,
            "account": _ACCOUNT_OR_NULL,
        },
        # scripts, public keys, data elements, outpoints: see kernel.EntryKind
        "CHECK (kind = 0 OR kind = 1 AND length(value) IN (33, 65)"
        " OR kind = 2 AND length(value) <= 520 OR kind = 3 AND length(value) = 36)",
    ),
    "keychains": Table(
        {
            "id": _ROW._replace(constraint=_KEY),
            "name": _TEXT._replace(constraint="UNIQUE"),
            "label": _TEXT_OR_NULL,
            "descriptor": _TEXT_OR_NULL,
            "lookahead": _COUNT,
            "size": _COUNT,
            "window": _COUNT,
            "account": _ACCOUNT_OR_NULL,
        }
    ),
    # sp() keychains: the descriptor with its private scan key, and the labels that blocks were searched for
    "sp_keys": Table(
        {
            "keychain": _ROW._replace(constraint=_KEY),
            "secret": _TEXT,
            "labels": _TEXT,
            "depth": Column(int, 0, MAX_LABELS),
        },
        has_rowid=False,
    ),
    # silent payments by the row of their script; the tweak is empty if it is not known
    "sp_outputs": Table(
        {"entry": _ROW._replace(constraint=_KEY), "tweak": Column(bytes, 0, 32), "label": _INDEX_OR_NULL},
        "CHECK (length(tweak) IN (0, 32))",
        has_rowid=False,
    ),
    "runs": Table(
        {"keychain": _ROW, "first": _COUNT, "entry": _ROW, "indexes": _ROW, "scripts": _ROW},
        "PRIMARY KEY (keychain, first, entry)",
        has_rowid=False,
    ),
    "used": Table({"keychain": _ROW, "place": _COUNT}, "PRIMARY KEY (keychain, place)", has_rowid=False),
    "revealed": Table(
        {"keychain": _HASH._replace(constraint=_KEY), "next": Column(int, 1, MAX_REVEALED), "exclusive": _BOOL},
        has_rowid=False,
    ),
    # scripts that removed keychains have revealed, so that no other keychain reveals them
    "revealed_scripts": Table({"script": _BYTES._replace(constraint=_KEY)}, has_rowid=False),
    "coins": Table(
        {"outpoint": _OUTPOINT._replace(constraint=_KEY), "entry": _ROW, "value": _VALUE, "script": _BYTES_OR_NULL},
        has_rowid=False,
    ),
    "matches": Table(
        {
            "spend": _BOOL,
            "txid": _HASH,
            "n": _INDEX,
            "position": _INDEX,
            "outpoint": _OUTPOINT,
            "value": _VALUE,
            "script": _BYTES_OR_NULL,
            "entry": _ROW,
            "block": _HASH_OR_NULL,
            "height": _HEIGHT_OR_NULL,
            "completeness": _COMPLETENESS,
        },
        "PRIMARY KEY (txid, spend, n), CHECK ((block IS NULL) = (height IS NULL))",
        has_rowid=False,
    ),
    "transactions": Table(
        {
            "txid": _HASH._replace(constraint=_KEY),
            "raw": _BYTES,
            "status": _STATUS,
            "broadcast_seq": Column(int, 1, is_optional=True),
            "first_seen": _TIME_OR_NULL,
            "first_height": Column(int, 0, _M31),
            "expires_at": _COUNT,
            "last_seen": _COUNT,
            "dropped": Column(str, is_optional=True, choices=("abandoned", "rejected", "expired")),
            "dropped_seq": _COUNT,
            "block": _HASH_OR_NULL,
            "height": _HEIGHT_OR_NULL,
            "position": _INDEX_OR_NULL,
            "conflicts_with": _HASH_OR_NULL,
            "place": _PLACE,
            "net": _NET,
            "fee": _FEE_OR_NULL,
            "signatures": Column(str, choices=("unknown", "valid")),
            "counts_since": Column(int, 1, is_optional=True),
            "announced_by": _TEXT,
            "was_requested": _BOOL,
        }
    ),
    # coins that the wallet's waiting transactions spend; nothing else may spend them in the meantime
    "held": Table({"outpoint": _OUTPOINT, "txid": _HASH}, "PRIMARY KEY (outpoint, txid)", has_rowid=False),
    # merkle branches of confirmed transactions; a branch for a block other than the transaction's is ignored
    "branches": Table(
        {"txid": _HASH._replace(constraint=_KEY), "block": _HASH, "branch": Column(bytes, 0, 480)},
        "CHECK (length(branch) % 32 = 0)",
        has_rowid=False,
    ),
    "tx_labels": Table({"txid": _HASH, "label": _TEXT, "place": _PLACE}, "PRIMARY KEY (txid, label)", has_rowid=False),
    "account_txs": Table(
        {"account": _ROW, "txid": _HASH, "place": _PLACE, "net": _NET, "fee": _FEE_OR_NULL, "labels": _TEXT},
        "PRIMARY KEY (account, txid)",
        has_rowid=False,
    ),
    "unspent": Table(
        {
            "outpoint": _OUTPOINT._replace(constraint=_KEY),
            "entry": _ROW,
            "value": _COUNT,
            "script": _BYTES_OR_NULL,
            "height": _HEIGHT_OR_NULL,
            "coinbase": _BOOL,
            "spender": _HASH_OR_NULL,
            "place": _COUNT,
            "trusted": _BOOL,
            "account": _ACCOUNT_OR_NULL,
        },
        has_rowid=False,
    ),
    # labels of BIP-329; the label of a watched address is in `watch`. `other` contains the other fields as a JSON
    # object
    "labels": Table(
        {"type": _TEXT, "ref": _TEXT, "origin": _TEXT, "label": _TEXT_OR_NULL, "other": _TEXT},
        "PRIMARY KEY (type, ref, origin)",
        has_rowid=False,
    ),
    "frozen": Table({"outpoint": _OUTPOINT._replace(constraint=_KEY)}, has_rowid=False),
    "events": Table(
        {
            "sequence": _ROW._replace(constraint=_KEY),
            "time": _COUNT,
            "kind": _TEXT,
            "data": _BYTES,
            "account": _ACCOUNT_OR_NULL,
        }
    ),
    "filter_hashes": Table(
        {"first": _COUNT._replace(constraint=_KEY), "hashes": Column(bytes, 32, 64_000)}, is_marked=False
    ),
}
# The tables below are not STRICT, and their rows are checked only when they are read. Otherwise, a migration would have
# to copy up to 13 GB of filters, and SQLite's check of a STRICT table would lock a user out because of a damaged
# address.
FILTERS = "CREATE TABLE filters (hash BLOB PRIMARY KEY, data BLOB NOT NULL)"
ADDRESSES = (
    "CREATE TABLE addresses (address TEXT PRIMARY KEY, services INTEGER NOT NULL, seen INTEGER NOT NULL,"
    " source TEXT NOT NULL, tried INTEGER NOT NULL, succeeded INTEGER NOT NULL, attempted INTEGER NOT NULL,"
    " failures INTEGER NOT NULL, faults INTEGER NOT NULL, speed INTEGER NOT NULL, mark INTEGER NOT NULL) WITHOUT ROWID"
)
ADDRESS_COLUMNS: Mapping[str, Column] = {
    "address": _TEXT,
    "services": _COUNT,
    "seen": _COUNT,
    "source": _TEXT,
    "tried": _BOOL,
    "succeeded": _COUNT,
    "attempted": _COUNT,
    "failures": _COUNT,
    "faults": _COUNT,
    "speed": _COUNT,
}
RUN_CLASSES = (*(16**number for number in range(1, 9)), 1 << 62)
"""Exclusive upper limit on the length of runs in each class, in entries. Runs of 1 to 15 entries are in class 0."""
RUN_CLASS = " + ".join(f"(runs.indexes * runs.scripts >= {least})" for least in RUN_CLASSES[:-1])
"""The class of a run, as SQL. With an index on the class, finding the runs that contain an entry requires checking only
a few runs.
"""
HAS_VALUE = "watch.value = {0} AND substr(watch.value, -16) = substr({0}, -16)"
"""SQL condition that an entry has a certain value. The index of entries contains only the end of each value."""
INDEXES = (
    "CREATE INDEX keychains_by_account ON keychains (account)",
    "CREATE INDEX matches_by_entry ON matches (entry, height)",
    "CREATE INDEX matches_by_height ON matches (height)",
    "CREATE INDEX matches_by_outpoint ON matches (outpoint)",
    f"CREATE INDEX runs_by_class ON runs ({RUN_CLASS.replace('runs.', '')}, entry)",
    "CREATE INDEX transactions_by_place ON transactions (place, txid)",
    "CREATE INDEX transactions_by_status ON transactions (status) WHERE status != 'confirmed'",
    "CREATE INDEX tx_labels_by_place ON tx_labels (label, place, txid)",
    "CREATE INDEX account_txs_by_place ON account_txs (account, place, txid)",
    "CREATE INDEX account_txs_by_txid ON account_txs (txid)",
    "CREATE INDEX held_by_txid ON held (txid)",
    "CREATE INDEX unspent_by_account ON unspent (account, place, outpoint)",
    "CREATE INDEX unspent_by_place ON unspent (place, outpoint)",
    "CREATE INDEX unspent_coinbases ON unspent (height) WHERE coinbase = 1",
    "CREATE INDEX unspent_spent ON unspent (account) WHERE spender > x''",
    "CREATE INDEX watch_by_end ON watch (substr(value, -16))",
)
STRICT_STATEMENTS = (*(table.sql(name) for name, table in TABLES.items()), *INDEXES)
STATEMENTS = (*STRICT_STATEMENTS, FILTERS, ADDRESSES)
SCHEMA = "".join(f"{statement};\n" for statement in STATEMENTS)
MARKED = {  # tables whose marks have a sum, and the columns that the marks cover
    name: ", ".join(table.columns) for name, table in TABLES.items() if table.is_marked
}


_ACCEPTING = {
    name: [column.accepting() for column in columns.values()]
    for name, columns in [*((name, table.columns) for name, table in TABLES.items()), ("addresses", ADDRESS_COLUMNS)]
}


ACCEPTED = {  # SQL condition that a row's values are allowed, which SQLite checks five times as fast as `check_row`
    name: " AND ".join(column.is_accepted(f"{name}.{each}") for each, column in table.columns.items())
    for name, table in TABLES.items()
}


def row_name(table: str, row: Sequence[object]) -> str:
    """Name a row in an error message by its table and its first value."""
    first = row[0].hex() if isinstance(row[0], bytes) else row[0]
    return f"table {table}, row {str(first)[:80]}"


def check_row(path: pathlib.Path, table: str, row: Sequence[object]) -> None:
    """Check the type and range of every value in a row. `row` does not include the mark.

    Raises StoreCorruptError, which names the table, the row's first value and the column.
    """
    for position, (accepts, value) in enumerate(zip(_ACCEPTING[table], row, strict=True)):
        if not accepts(value):
            name = [*TABLES[table].columns][position]
            raise StoreCorruptError(f"{path}: {row_name(table, row)}: column {name} contains an impossible value")


def check_rows(db: sqlite3.Connection, path: pathlib.Path, table: str) -> None:
    """Check every row of a table as `check_row` does, but within SQLite, which is ten times faster."""
    columns = TABLES[table].columns
    accepted = " AND ".join(column.is_accepted(name) for name, column in columns.items())
    for row in db.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE NOT ({accepted}) LIMIT 1"):
        check_row(path, table, row)


def is_row(table: str, row: Sequence[object]) -> bool:
    """Return True if every value in a row has the right type and range. `row` does not include the mark."""
    return all(accepts(value) for accepts, value in zip(_ACCEPTING[table], row, strict=True))


def check_statements(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Check that the file contains exactly the tables and indexes of this schema, and nothing else, such as a trigger.

    Raises StoreCorruptError.
    """
    found = {
        " ".join(str(sql).split()): name
        for sql, name in db.execute("SELECT sql, name FROM sqlite_master WHERE sql IS NOT NULL")
    }
    expected = {" ".join(statement.split()) for statement in STATEMENTS}
    if found.keys() != expected:
        names = sorted(str(found[sql]) for sql in found.keys() - expected)
        what = f"{', '.join(names)[:80]!r} differs" if names else "a table or an index is missing"
        raise StoreCorruptError(f"{path}: the schema is damaged: {what}")


def version_of(db: sqlite3.Connection, path: pathlib.Path) -> int:
    """Return the schema version of a database.

    Raises StoreForeignError if it belongs to another program, or if this version of spvfilter can neither read nor
    migrate it.
    """
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreForeignError(f"{path}: this SQLite database belongs to another program")
    if version == SCHEMA_VERSION or version in RELEASED:
        return int(version)
    found = f"{path}: schema version {version} (this program reads version {SCHEMA_VERSION})"
    if version > SCHEMA_VERSION:
        raise StoreForeignError(f"{found}: written by a newer version of spvfilter; update this program")
    writer = "a development version" if version > RELEASED[0] else "a version before 0.2.0"
    raise StoreForeignError(
        f"{found}: written by {writer}; copy the file, then run `spvfilter watch --rebuild` with this --db (in Python:"
        " rebuild=True), which keeps the watch list and searches the chain again"
    )


def check_schema(db: sqlite3.Connection, path: pathlib.Path) -> None:
    """Raise StoreForeignError unless this is a database of this package with the current schema version.

    Raises StoreCorruptError if its tables are not those of this schema.
    """
    version = version_of(db, path)
    if version < SCHEMA_VERSION:
        raise StoreForeignError(
            f"{path}: schema version {version} (this program reads version {SCHEMA_VERSION}): start the client"
            " (LightClient or `spvfilter watch`) once to migrate the database"
        )
    check_statements(db, path)
