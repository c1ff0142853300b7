"""Compact filters in the database: chained with the headers, whole or refused, cut back with them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import StoreCorruptError
from spvfilter.filters.bip158 import filter_hash, filter_headers
from spvfilter.network import REGTEST
from spvfilter.store import Batch, Store
from spvfilter.storefilters import FilterBatch

DATA = [b"\x01" + bytes((number,)) * 4 for number in range(9)]
HASHES = [filter_hash(data) for data in DATA]
HEADERS = list(filter_headers(HASHES, bytes(32)))


def filled(path: Path) -> None:
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(filters=FilterBatch(hashes=HASHES[:4])))
        store.commit(Batch(filters=FilterBatch(hashes=HASHES[4:], kept=list(enumerate(DATA)))))


def test_headers_and_kept_filters_are_there_again_after_a_restart(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.filters.height == 8
        assert store.filters.headers(-1, 8) == [bytes(32), *HEADERS]
        assert store.filters.kept(2, 5) == {height: DATA[height] for height in range(2, 6)}


def test_what_is_above_a_fork_is_forgotten(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(filters=FilterBatch(fork=5, hashes=[HASHES[0]])))
        assert store.filters.height == 6
        assert store.filters.headers(5, 6) == [HEADERS[5], *filter_headers([HASHES[0]], HEADERS[5])]
        assert store.filters.kept(0, 8).keys() == set(range(6))
        store.commit(Batch(filters=FilterBatch(fork=-1)))
        assert store.filters.height == -1
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.filters.height == -1


def test_a_commit_that_fails_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        with pytest.raises(Exception, match=r".*"):
            store.commit(Batch(filters=FilterBatch(fork=3, hashes=HASHES, kept=[(0, object())])))  # type: ignore[list-item]  # on purpose
        assert store.filters.headers(0, 8) == HEADERS


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE filter_hashes SET hash = zeroblob(32) WHERE height = 3",
        "DELETE FROM filter_hashes WHERE height = 3",
        "DELETE FROM filter_hashes WHERE height = 8",
        "UPDATE filter_hashes SET hash = x'00' WHERE height = 8",
        "INSERT INTO filter_hashes VALUES (9, zeroblob(32))",
        "DELETE FROM filter_hashes",
    ],
)
def test_damage_is_refused(tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "w.db")
    with closing(sqlite3.connect(tmp_path / "w.db", isolation_level=None)) as db:
        db.execute(damage)
    with pytest.raises(StoreCorruptError):
        Store.open(tmp_path / "w.db", REGTEST)


def test_a_kept_filter_that_is_damaged_counts_as_not_kept(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with closing(sqlite3.connect(tmp_path / "w.db", isolation_level=None)) as db:
        db.execute("UPDATE filters SET data = x'00' WHERE height = 4")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.filters.kept(3, 5).keys() == {3, 5}
