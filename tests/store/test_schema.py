"""Checks of stored values: SQL refuses exactly the rows that Python refuses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import StoreCorruptError
from spvfilter.store.schema import TABLES, check_row, check_rows, is_row

PATH = Path("wallet.db")
VALUES = (
    *(None, -(1 << 63), -2, -1, 0, 1, 2, 3, 4, 7, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1),
    *(0.0, 0.5, float("inf"), "", "0", "confirmed", "pending", "proven", "abandoned", "unknown", "Confirmed"),
    "confirmed\0",
    *(bytes(size) for size in (0, 1, 31, 32, 33, 36, 37, 79, 80, 81, 64_000, 64_001, 160_000, 160_001)),
)


def accepted(table: str) -> list[object]:
    """Return a row with a value that each column accepts."""
    columns = TABLES[table].columns.values()
    return [next(value for value in VALUES if each.accepting()(value)) for each in columns]


@pytest.mark.parametrize("table", TABLES)
def test_sql_refuses_the_same_rows_as_python(table: str) -> None:
    names = list(TABLES[table].columns)
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE TABLE {table} ({', '.join(names)})")  # without types and checks
        for position in range(len(names)):
            for value in VALUES:
                row = accepted(table)
                row[position] = value
                db.execute(f"DELETE FROM {table}")
                for each in (accepted(table), row):
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", each)
                if is_row(table, row):
                    check_rows(db, PATH, table)
                    check_row(PATH, table, row)
                    continue
                message = f"{table}, row .*: column {names[position]} contains"
                with pytest.raises(StoreCorruptError, match=message):
                    check_rows(db, PATH, table)
                with pytest.raises(StoreCorruptError, match=message):
                    check_row(PATH, table, row)
