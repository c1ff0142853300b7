"""Changes a wallet's database as an attacker or a damaged disk can, past the types and checks of its STRICT tables."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_TYPELESS = "UPDATE sqlite_master SET sql = replace(replace(sql, ') STRICT, WITHOUT', ') WITHOUT'), ') STRICT', ')')"


def forge(path: Path, statement: str, values: tuple[object, ...] = ()) -> None:
    """Execute a statement while no table checks types or ranges. The schema has the same text afterwards."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        schema = db.execute("SELECT sql, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("PRAGMA writable_schema = ON")
        db.execute(_TYPELESS)
        db.execute("PRAGMA writable_schema = RESET")
        try:
            db.execute(statement, values)
        finally:
            db.execute("PRAGMA writable_schema = ON")
            db.executemany("UPDATE sqlite_master SET sql = ? WHERE name = ?", schema)
            db.execute("PRAGMA writable_schema = RESET")
