"""Cancellation at every step of the event loop: no task is left, the database is consistent, and the next run
completes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.store.store import Store
from support.client.lightworld import START, World, place, running, where
from support.vectors import effort

MODES: dict[str, dict[str, Any]] = {
    "bip37": {"mode": "bip37"},
    "compact": {"mode": "compact"},
    "kept": {"mode": "auto", "keep_filters": True},
}


async def follow(world: World, node: Node, path: Path, options: dict[str, Any]) -> None:
    limits, clock = Limits(flight=15, filters=15), Clock(wall=lambda: START)
    async with LightClient(
        world.watch(), peers=[where(node)], store=path, limits=limits, clock=clock, **options
    ) as client:
        async for _ in client.events():
            pass


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODES)
async def test_a_run_cancelled_at_any_step_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    world = World(60)
    world.grow(40, share=0.6)
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        steps = 0
        for round in range(effort(10, 20, 400)):
            before = asyncio.all_tasks()
            task = asyncio.create_task(follow(world, node, path, MODES[name]))
            for _ in range(steps):
                await asyncio.sleep(0)
                if task.done():
                    break
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == before
            with Store.open(path, REGTEST) as store:  # it opens: its contents are consistent
                watch = world.watch()
                store.attach(watch)
                known = {(found.hit.txid, found.hit.n, found.hit.spend) for found in store.matches(confirmed=True)}
                expected = {
                    (digest, index, kind == "input")
                    for kind, digest, index, height, *_ in world.scan()
                    if (height or 0) <= store.cursor
                }
                assert known == expected
            if round % 5 == 4:
                world.regtest.reorg(1 + round % 7)
                path.unlink()
            steps += 1 + round * effort(60, 30, 1)
        async with running(world, node, store=path, **MODES[name]) as run:
            await run.synced(world)
            found = {place(each.match) for each in await run.client.matches() if each.match.height is not None}
            assert found == world.scan()


async def test_a_consumer_that_gives_up_waiting_misses_nothing() -> None:
    world = World(61)
    world.grow(20, share=0.8)
    async with Node(world.regtest) as node, running(world, node) as run:
        while run.books.synced is None:
            task = asyncio.ensure_future(anext(run.client.events()))  # cancelled in the middle, then called again
            await asyncio.sleep(0)
            if not task.done():
                task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(result, BaseException):
                run.books.take(result)
        assert run.books.confirmed() == world.scan()


async def test_database_is_free_when_a_cancelled_client_has_left(tmp_path: Path) -> None:
    world = World(61)
    world.grow(10, share=0.6)
    async with Node(world.regtest) as node:
        for steps in range(effort(8, 16, 60)):
            path, leaving = tmp_path / f"{steps}.db", asyncio.Event()

            async def use(path: Path = path, leaving: asyncio.Event = leaving) -> None:
                clock = Clock(wall=lambda: START)
                async with LightClient(world.watch(), peers=[where(node)], store=path, clock=clock):
                    leaving.set()

            task = asyncio.create_task(use())
            await leaving.wait()
            for _ in range(steps):
                await asyncio.sleep(0)
            was_done = task.done()
            task.cancel()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled() or was_done
            Store.open(path, REGTEST).close()  # raises StoreLockedError otherwise
