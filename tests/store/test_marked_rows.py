"""Rows with checksums: a row replaces the one with its key, and the sums of the tables follow."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spvfilter.store.schema import MARKED, TABLES
from spvfilter.store.sqlite import MarkedRows

_WRITES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)  # key and contents


def database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    for name, table in TABLES.items():
        db.execute(table.sql(name))
    return db


def put(rows: MarkedRows, key: int, branch: bytes) -> None:
    rows.put("branches", (bytes([key]) * 32, bytes(32), branch), "txid = ?", (bytes([key]) * 32,))


@given(_WRITES)
def test_last_row_of_each_key_stays(writes: list[tuple[int, int]]) -> None:
    with closing(database()) as db:
        rows = MarkedRows(db, Path("memory"), MARKED)
        with rows.transaction():
            for key, content in writes:
                put(rows, key, bytes([content]) * 32)
        rows.verify()
        found = db.execute("SELECT txid, branch FROM branches").fetchall()
        assert {(key[0], branch[0]) for key, branch in found} == set(dict(writes).items())


def test_row_that_breaks_a_rule_is_an_error() -> None:
    with closing(database()) as db:
        rows = MarkedRows(db, Path("memory"), MARKED)
        with pytest.raises(sqlite3.IntegrityError), rows.transaction():
            put(rows, 1, bytes(31))  # not a whole number of hashes
        rows.count()
        assert not db.execute("SELECT * FROM branches").fetchall()


@given(st.sets(st.integers(0, 255), max_size=12), st.integers(0, 255))
def test_rows_written_together_equal_rows_written_alone(keys: set[int], other: int) -> None:
    states = []
    for is_together in (False, True):
        with closing(database()) as db:
            rows = MarkedRows(db, Path("memory"), MARKED)
            wanted = [(bytes([key]) * 32, bytes(32), bytes([key]) * 32) for key in keys]
            with rows.transaction():
                # its bytes are not all equal, so it is none of the wanted keys
                rows.insert("branches", (bytes([other]) * 31 + bytes([other ^ 1]), bytes(32), b""))
                if is_together:
                    rows.insert_all("branches", iter(wanted))
                else:
                    for row in wanted:
                        rows.insert("branches", row)
            rows.verify()
            states.append((db.execute("SELECT * FROM branches").fetchall(), rows.numbers("sums")))
    assert states[0] == states[1]


@given(st.integers(0, 255), st.integers(0, 255))
def test_new_row_never_replaces_one_with_its_key(first: int, second: int) -> None:
    with closing(database()) as db:
        rows = MarkedRows(db, Path("memory"), MARKED)
        with rows.transaction():
            written = [
                rows.insert_new("branches", (bytes(32), bytes(32), bytes([each]) * 32)) for each in (first, second)
            ]
        rows.verify()
        assert (written, db.execute("SELECT branch FROM branches").fetchall()) == (
            [True, False],
            [(bytes([first]) * 32,)],
        )
