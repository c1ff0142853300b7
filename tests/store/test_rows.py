"""Headers and filter hashes in the database, 2,000 in a row: appended and cut in random steps, refused if damaged."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError, StoreCorruptError
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from support.blocks.build import sha256d
from support.blocks.headerchains import chain_of
from support.vectors import effort
from support.wallets.forgery import forge
from support.wallets.storesqlite import connected_by, sqlite_of

ROW = 2_000
MOST = 3 * ROW + 10


hash_of = lru_cache(maxsize=8 * MOST)(sha256d)  # headers and filters are hashed again after each step


def branch(seed: int, count: int, below: bytes = bytes(32)) -> list[bytes]:
    """Headers that follow a hash. The database does not check their proof of work."""
    rng, raw = random.Random(seed), list[bytes]()
    for _ in range(count):
        raw.append(bytes(4) + below + rng.randbytes(44))
        below = hash_of(raw[-1])
    return raw


def check(store: Store, raw: list[bytes], hashes: list[bytes], rng: random.Random) -> None:
    start = rng.randrange(len(raw) + 1)
    assert b"".join(store.headers(start)) == b"".join(raw[start:])
    fork = rng.randrange(-1, len(raw))
    assert list(store.hashes_down(fork)) == [(height, hash_of(raw[height])) for height in range(len(raw) - 1, fork, -1)]
    rows = store.compact_filters
    known = list(accumulate(hashes, lambda below, each: hash_of(each + below), initial=bytes(32)))
    assert (store.tip, rows.height) == (len(raw) - 1, len(hashes) - 1)
    assert b"".join(rows.pieces()) == b"".join(hashes)
    for height in {0, ROW - 1, ROW, len(hashes) - 1, *(rng.randrange(MOST) for _ in range(5))}:
        assert rows.hash_at(height) == (hashes[height] if 0 <= height < len(hashes) else b"")
        if height < len(hashes):
            assert rows.header_at(height) == known[height + 1]


def edges(rng: random.Random, most: int) -> int:
    """A number up to `most`, often near the end of a row."""
    near = ROW * rng.randrange(MOST // ROW + 1) + rng.randrange(-2, 3)
    return min(max(near if rng.random() < 0.6 else rng.randrange(MOST), 0), most)


@pytest.mark.parametrize("seed", range(effort(10, 10, 200)))
def test_random_steps_give_the_same_as_a_list(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    raw, hashes = branch(0, 1 + edges(rng, MOST - 1)), list[bytes]()
    path = tmp_path / "w.db"
    store = Store.open(path, REGTEST)
    store.commit(Batch(headers=b"".join(raw)))
    for step in range(12):
        fork = filter_fork = None
        if rng.random() < 0.5:
            fork = edges(rng, len(raw) - 1)
            more = branch(10 * seed + step, rng.choice((0, 1, edges(rng, MOST - fork))), hash_of(raw[fork]))
            raw, hashes = [*raw[: fork + 1], *more], hashes[: fork + 1]
        else:
            more = branch(10 * seed + step, rng.choice((0, 1, edges(rng, MOST - len(raw)))), hash_of(raw[-1]))
            raw += more
        if rng.random() < 0.3 and hashes:
            filter_fork = edges(rng, len(hashes)) - 1
            hashes = hashes[: filter_fork + 1]
        fresh = [rng.randbytes(32) for _ in range(edges(rng, len(raw) - len(hashes)))]
        hashes += fresh
        batch = Batch(
            fork=fork, headers=b"".join(more), compact_filters=CompactFilterBatch(fork=filter_fork, hashes=fresh)
        )
        if rng.random() < 0.3:
            with pytest.raises(Exception, match=r".*"):
                store.commit(batch, Batch(notes={"no bytes": object()}))  # type: ignore[dict-item]  # on purpose
        store.commit(batch)
        check(store, raw, hashes, rng)
        if rng.random() < 0.3:
            store.close()
            store = Store.open(path, REGTEST)
            check(store, raw, hashes, rng)
    store.close()


def test_all_rows_can_be_removed_and_added_again() -> None:
    raw, hashes = branch(0, MOST), [bytes([number % 256]) * 32 for number in range(ROW + 5)]
    with Store.open(MEMORY, REGTEST) as store:
        for _ in range(2):
            store.commit(Batch(headers=b"".join(raw[: ROW + 5]), compact_filters=CompactFilterBatch(hashes=hashes)))
            check(store, raw[: ROW + 5], hashes, random.Random(1))
            store.commit(Batch(fork=-1))
            assert (store.tip, store.compact_filters.height, list(store.headers())) == (-1, -1, [])


def flips(size: int) -> Iterator[int]:
    """Positions in a row: its ends and the middle."""
    return iter({0, 4, 79, 80, size // 2, size - 1})


@pytest.mark.parametrize(("table", "column"), [("headers", "raw"), ("filter_hashes", "hashes")])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_flipped_bit_is_noticed(table: str, column: str, row: int, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    hashes = [sha256d(number.to_bytes(2, "little")) for number in range(2 * ROW + 7)]
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(headers=b"".join(branch(0, 2 * ROW + 7)), compact_filters=CompactFilterBatch(hashes=hashes)))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        ((true,),) = db.execute(f"SELECT {column} FROM {table} WHERE first = ?", (ROW * row,))
    for at in flips(len(true)):
        false = true[:at] + bytes([true[at] ^ 0x10]) + true[at + 1 :]
        for value, is_refused in ((false, True), (true, False)):
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute(f"UPDATE {table} SET {column} = ? WHERE first = ?", (value, ROW * row))
            if is_refused:
                with pytest.raises(StoreCorruptError):
                    Store.open(path, REGTEST)
            else:
                Store.open(path, REGTEST).close()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM {} WHERE first = 2000",
        "UPDATE {} SET first = 1999 WHERE first = 2000",
        "UPDATE {} SET first = first + 100000",
        "UPDATE {0} SET {1} = (SELECT {1} FROM {0} WHERE first = 0) WHERE first = 2000",
        "DELETE FROM {} WHERE first = 4000",
        "UPDATE {} SET {} = x'' WHERE first = 4000",
        "UPDATE {0} SET {1} = CAST({1} || (SELECT {1} FROM {0} WHERE first = 4000) AS BLOB) WHERE first = 2000",
    ],
)
@pytest.mark.parametrize(("table", "column"), [("headers", "raw"), ("filter_hashes", "hashes")])
def test_missing_or_misplaced_rows_are_noticed(table: str, column: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    hashes = [sha256d(number.to_bytes(2, "little")) for number in range(2 * ROW + 7)]
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(headers=b"".join(branch(0, 2 * ROW + 7)), compact_filters=CompactFilterBatch(hashes=hashes)))
    forge(path, damage.format(table, column))
    with pytest.raises(StoreCorruptError):
        Store.open(path, REGTEST)


class Interrupted:
    """A connection that gets a signal right after a commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        done = self._db.execute(statement, *values)  # type: ignore[arg-type]
        if statement == "COMMIT":
            raise KeyboardInterrupt
        return done

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction


def test_a_signal_after_the_commit_leaves_memory_and_database_alike(tmp_path: Path) -> None:
    headers = chain_of(5).headers(0, 6)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(headers=headers[:80]))
        with connected_by(store, Interrupted(sqlite_of(store))), pytest.raises(KeyboardInterrupt):
            store.commit(Batch(headers=headers[80:160], notes={"a": b"1"}))
        assert store.tip == 1
        store.commit(Batch(headers=headers[160:], notes={"b": b"2"}))
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        assert b"".join(store.headers()) == headers


@pytest.mark.parametrize("cut", [79, 81, 120])
def test_bad_headers_are_refused_before_they_are_written(cut: int, tmp_path: Path) -> None:
    headers = chain_of(5).headers(0, 6)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.commit(Batch(headers=headers[:80]))
        for wrong in (headers[80 : 80 + cut], headers[160:], headers[80:160] + headers[240:]):
            with pytest.raises(ParameterError):
                store.commit(Batch(headers=wrong))
        with pytest.raises(ParameterError):
            store.commit(Batch(compact_filters=CompactFilterBatch(hashes=[bytes(31)])))
        assert store.tip == 0
        store.commit(Batch(headers=headers[80:]))
    Store.open(tmp_path / "w.db", REGTEST).close()
