"""A disk that is full from some write on: the client ends with that error, and a later run neither loses nor repeats a
match.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import StoreFullError
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.store.store import Store
from support.client.lightworld import FAST, Run, World, check_stored, place, running
from support.vectors import effort

MODES: dict[str, dict[str, Any]] = {
    "bip37": {"mode": "bip37"},
    "compact": {"mode": "compact"},
    "kept": {"mode": "compact", "keep_filters": True},
}
WRITES = ("CREATE", "INSERT", "DELETE", "COMMIT", "PRAGMA journal_mode", "PRAGMA user_version")


class Disk:
    """Has room for a number of writes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.refused = 0

    def write(self, sql: str) -> None:
        if not sql.lstrip().startswith(WRITES):
            return
        if self.room <= 0:
            self.refused += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        self.room -= 1

    @contextmanager
    def used(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        disk = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                disk.write(sql)
                return super().execute(sql, *args)

            def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
                disk.write(sql)
                return super().executemany(sql, rows)

        connect = sqlite3.connect
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", lambda *args, **named: connect(*args, **named, factory=Connection))
            yield


async def live(run: Run, world: World) -> None:
    """Sync, receive and spend a payment, follow a reorganization, broadcast a transaction, and add an entry."""
    await run.synced(world)
    world.receive()
    world.grow(1, share=1.0)
    await run.synced(world)
    world.regtest.reorg(2)
    await run.synced(world)
    world.receive()
    world.regtest.mine()
    await run.synced(world)
    await run.client.broadcast(world.spending())
    await run.client.add_script(p2wpkh(b"\x02" + world.rng.randbytes(32)).script_pubkey)
    world.regtest.mine()
    await run.synced(world)


def kept(path: Path, world: World) -> set[tuple[str, bytes, int, int | None]]:
    """Return the confirmed matches of a database: kind, txid, position and height."""
    if not path.exists():
        return set()
    with Store.open(path, REGTEST) as store:
        store.attach(world.watch())
        found = store.matches(confirmed=True)
        return {("input" if hit.spend else "output", hit.txid, hit.n, height) for hit, _, height, *_ in found}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODES)
async def test_a_full_disk_ends_the_client_and_loses_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(90)
    world.grow(20, share=0.6)
    rng = random.Random(name)
    refused = 0
    async with Node(world.regtest) as node:
        enough = Disk(1_000_000)
        with enough.used(monkeypatch):
            async with running(world, node, store=tmp_path / "w.db", limits=FAST, **MODES[name]) as run:
                await live(run, world)
        total = 1_000_000 - enough.room
        assert total > 100
        for room in sorted(rng.sample(range(total), effort(4, 8, min(total, 200)))):
            path = tmp_path / f"{room}.db"
            disk = Disk(room)
            told = set()
            with disk.used(monkeypatch), suppress(StoreFullError):
                async with running(world, node, store=path, limits=FAST, **MODES[name]) as run:
                    try:
                        await live(run, world)
                        assert not disk.refused
                    finally:
                        told = run.books.confirmed()
            refused += bool(disk.refused)
            if path.exists():
                check_stored(path, world)
            assert {(str(kind), txid, n, height) for kind, txid, n, height, *_ in told} <= kept(path, world)
            async with running(world, node, store=path, limits=FAST, **MODES[name]) as run:
                snapshot = await run.client.matches()
                for each in snapshot:
                    run.books.take(each)  # fails if a match occurs twice
                run.follow(since=snapshot.sequence)
                run.books.events.clear()
                await run.synced(world)
                assert {
                    place(each.match) for each in await run.client.matches() if each.match.height is not None
                } == world.scan()
                assert run.books.confirmed() == world.scan()
            path.unlink()
    assert refused >= effort(3, 6, 150)
