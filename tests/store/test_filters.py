"""Compact filters in the database: they form a chain like headers, are refused if damaged, and are cut in a
reorganization.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import StoreCorruptError
from spvfilter.filters.bip158 import filter_hash, filter_headers
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Store
from support.wallets.forgery import forge

DATA = [b"\x01" + bytes((number,)) * 4 for number in range(9)]
HASHES = [filter_hash(data) for data in DATA]
HEADERS = list(filter_headers(HASHES, bytes(32)))


def filled(path: Path) -> None:
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=HASHES[:4])))
        store.commit(
            Batch(compact_filters=CompactFilterBatch(hashes=HASHES[4:], kept=list(zip(HASHES, DATA, strict=True))))
        )


def test_headers_and_filters_survive_a_restart(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.compact_filters.height == 8
        assert store.compact_filters.headers(-1, 8) == [bytes(32), *HEADERS]
        assert store.compact_filters.hashes(2, 5) == HASHES[2:6]
        assert store.compact_filters.hashes(7, 20) == HASHES[7:]
        assert store.compact_filters.kept(2, 5) == {height: DATA[height] for height in range(2, 6)}


def test_hashes_of_several_rows_are_one_list(tmp_path: Path) -> None:
    hashes = [number.to_bytes(32, "little") for number in range(4_010)]
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=hashes)))
        for first, last in ((0, 4_009), (1_999, 2_000), (1_990, 4_000), (2_000, 3_999), (4_009, 9_000), (5_000, 9_000)):
            assert store.compact_filters.hashes(first, last) == hashes[first : last + 1]


def test_the_store_knows_whether_it_keeps_a_filter(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=HASHES)))
        assert not store.compact_filters.has_any
        store.commit(Batch(compact_filters=CompactFilterBatch(kept=[(bytes(32), DATA[0])])))
        assert store.compact_filters.has_any


def test_a_fork_removes_filter_headers_but_no_filters(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(compact_filters=CompactFilterBatch(fork=5, hashes=[HASHES[0], bytes(32)])))
        assert store.compact_filters.height == 7
        assert store.compact_filters.headers(5, 6) == [HEADERS[5], *filter_headers([HASHES[0]], HEADERS[5])]
        assert store.compact_filters.kept(0, 8) == {**{height: DATA[height] for height in range(6)}, 6: DATA[0]}
        store.commit(Batch(compact_filters=CompactFilterBatch(fork=-1)))
        assert (store.compact_filters.height, store.compact_filters.kept(0, 8)) == (-1, {})
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert (store.compact_filters.height, store.compact_filters.kept(0, 8)) == (-1, {})
        store.commit(Batch(compact_filters=CompactFilterBatch(hashes=HASHES)))  # the chain has come back
        assert store.compact_filters.kept(0, 8) == dict(enumerate(DATA))


def test_a_filter_with_another_filters_hash_is_never_returned(tmp_path: Path) -> None:
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(
            Batch(compact_filters=CompactFilterBatch(hashes=HASHES, kept=[(HASHES[3], DATA[4]), (HASHES[5], DATA[5])]))
        )
        assert store.compact_filters.kept(0, 8) == {5: DATA[5]}
        assert not store.compact_filters.is_kept(HASHES[3], DATA[3])
        store.commit(Batch(compact_filters=CompactFilterBatch(kept=[(HASHES[3], DATA[3])])))
        assert store.compact_filters.kept(0, 8) == {3: DATA[3], 5: DATA[5]}


def test_a_commit_that_fails_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        with pytest.raises(Exception, match=r".*"):
            # on purpose
            store.commit(Batch(compact_filters=CompactFilterBatch(fork=3, hashes=HASHES, kept=[(HASHES[0], object())])))  # type: ignore[list-item]
        assert store.compact_filters.headers(0, 8) == HEADERS


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE filter_hashes SET hashes = CAST(substr(hashes, 1, 96) || zeroblob(32) || substr(hashes, 129) AS BLOB)",
        "UPDATE filter_hashes SET hashes = CAST(substr(hashes, 1, 96) || substr(hashes, 129) AS BLOB)",
        "UPDATE filter_hashes SET hashes = substr(hashes, 1, 256)",
        "UPDATE filter_hashes SET hashes = substr(hashes, 1, 257)",
        "UPDATE filter_hashes SET hashes = 'text'",
        "UPDATE filter_hashes SET first = 2000",
        "INSERT INTO filter_hashes VALUES (9, zeroblob(32))",
        "INSERT INTO filter_hashes VALUES (2000, zeroblob(32))",
        "DELETE FROM filter_hashes",
    ],
)
def test_damage_is_refused(tmp_path: Path, damage: str) -> None:
    filled(tmp_path / "w.db")
    forge(tmp_path / "w.db", damage)
    with pytest.raises(StoreCorruptError):
        Store.open(tmp_path / "w.db", REGTEST)


def test_a_damaged_filter_counts_as_missing(tmp_path: Path) -> None:
    filled(tmp_path / "w.db")
    with closing(sqlite3.connect(tmp_path / "w.db", isolation_level=None)) as db:
        db.execute("UPDATE filters SET data = x'00' WHERE hash = ?", (HASHES[4],))
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert store.compact_filters.kept(3, 5).keys() == {3, 5}


def test_a_filter_of_another_type_counts_as_missing(tmp_path: Path) -> None:
    """One flipped bit of a row's header turns bytes into a text or a number."""
    path = tmp_path / "w.db"
    filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE filters SET data = 'text' WHERE hash = ?", (HASHES[5],))
        db.execute("UPDATE filters SET data = 7 WHERE hash = ?", (HASHES[6],))
    with Store.open(path, REGTEST) as store:
        assert list(store.compact_filters.kept(4, 8)) == [4, 7, 8]


def test_damaged_filters_are_missing_and_never_returned(tmp_path: Path) -> None:
    data = [bytes((number,)) * 9_000 for number in range(40)]
    hashes = [filter_hash(each) for each in data]
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(
            Batch(compact_filters=CompactFilterBatch(hashes=hashes, kept=list(zip(hashes, data, strict=True))))
        )
    with closing(sqlite3.connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'filters'")
        ((size,),) = db.execute("PRAGMA page_size")
    raw = bytearray(path.read_bytes())
    raw[raw.index(bytes((7,)) * 1_000) + 100] ^= 1
    path.write_bytes(raw)
    with Store.open(path, REGTEST) as store:
        assert store.compact_filters.kept(0, 39).keys() == set(range(40)) - {7}
    raw[size * (root - 1) : size * root] = b"\xff" * size
    path.write_bytes(raw)
    with Store.open(path, REGTEST) as store:
        with pytest.raises(StoreCorruptError, match=f"{path}: damaged"):
            store.compact_filters.kept(0, 39)
        with pytest.raises(StoreCorruptError, match=f"{path}: damaged"):
            store.compact_filters.is_kept(hashes[0], data[0])
