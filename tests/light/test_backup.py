"""Copies of a running client's database by SQLite's backup: each is whole, and a client continues from it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import EventGapError
from spvfilter.light.events import Mode
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from support.client.lightworld import START, World, check_stored, running


def back_up(path: Path, copy: Path) -> None:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_client_continues_from_a_copy_of_a_running_one(mode: Mode, tmp_path: Path) -> None:
    world, path = World(3), tmp_path / "wallet.db"
    copies = [tmp_path / f"copy{number}.db" for number in range(6)]
    world.grow(60)
    async with Node(world.regtest) as node:
        async with running(world, node, store=path, mode=mode) as run:
            for copy in copies:
                await asyncio.to_thread(back_up, path, copy)  # the first ones while blocks are searched
                world.receive()
                world.grow(1)
            books = await run.synced(world)
            assert books.confirmed() == world.scan()
            last = (await run.client.balance()).sequence
        for copy in copies:
            check_stored(copy, world)
        world.regtest.reorg(2)
        later = Clock(wall=lambda: START + 60)  # numbers of events follow the clock
        world.grow(2)
        async with running(world, node, store=copies[3], mode=mode, since=0, clock=later) as run:
            books = await run.synced(world)
            assert books.confirmed() == world.scan()  # neither lost nor counted twice
            with pytest.raises(EventGapError):
                await anext(run.client.events(since=last))
