"""Changes a wallet's database as an attacker or a damaged disk can, past the types and checks of its STRICT tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from spvfilter.store.sqlite import mark, number, numbers

_TYPELESS = (
    "UPDATE sqlite_master SET sql = replace(replace(replace(sql, ') STRICT, WITHOUT', ') WITHOUT'), ') STRICT', ')'),"
    " ' NOT NULL', '')"
)


@contextmanager
def unchecked(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection on which no table checks types or ranges. The schema has the same text afterwards."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        schema = db.execute("SELECT sql, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("PRAGMA writable_schema = ON")
        db.execute(_TYPELESS)
        db.execute("PRAGMA writable_schema = RESET")
        try:
            yield db
        finally:
            db.execute("PRAGMA writable_schema = ON")
            db.executemany("UPDATE sqlite_master SET sql = ? WHERE name = ?", schema)
            db.execute("PRAGMA writable_schema = RESET")


def forge(path: Path, statement: str) -> None:
    """Execute a statement while no table checks types or ranges."""
    with unchecked(path) as db:
        db.execute(statement)


def remark(db: sqlite3.Connection, table: str, marked: Mapping[str, str]) -> None:
    """Write right checksums for the rows of a table, and the right sum: they have no key.

    Args:
        db: Connection to the database, whose tables check nothing.
        table: Name of the table.
        marked: Columns of each table that its checksums cover.
    """
    names = marked[table].split(", ")
    for row in db.execute(f"SELECT {marked[table]} FROM {table}").fetchall():
        where = " AND ".join(f"{name} IS ?" for name in names)
        db.execute(f"UPDATE {table} SET mark = ? WHERE {where}", (mark(table, row), *row))
    (raw,) = db.execute("SELECT value FROM meta WHERE key = 'sums'").fetchone()
    tables = sorted(marked.keys() - {"meta"})
    sums = dict(zip(tables, numbers(raw), strict=True))
    if table in sums:
        sums[table] = sum(stated for (stated,) in db.execute(f"SELECT mark FROM {table}")) & (1 << 63) - 1
        value = b"".join(map(number, sums.values()))
        db.execute("UPDATE meta SET value = ?, mark = ? WHERE key = 'sums'", (value, mark("meta", ("sums", value))))
