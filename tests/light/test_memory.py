"""A simulated day of blocks, mempool and reorganizations: the memory of the client grows only by its records."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from light import worldprocess
from light.worldprocess import BLOCK_S
from spvfilter.light import stream
from spvfilter.light.client import LightClient
from spvfilter.light.engine import broadcaster
from spvfilter.light.events import Event, Synced
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.wallet import books, orphanage
from spvfilter.wallet.events import MatchFound
from support.client.engineparts import engine_of, tracked_txs
from support.client.lightworld import FAST, START, TIMEOUT_S, World, running
from support.held import most_held
from support.vectors import effort

PATHS = os.pathsep.join(filter(None, [str(Path(worldprocess.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
WARM_UP = 40  # Blocks.
BLOCKS = effort(20, 144, 1_008)  # A day of blocks; at most a week.
PER_BLOCK = 6  # Allocations kept for blocks that no second peer has confirmed. Headers are in arrays.
PER_MATCH = 17  # Allocations of the books in memory: the hit with its numbers and bytes, and its position.
SLACK = 1_000  # Allocations: cancelled timers, and one-time work of Python.


class Day:
    """A client whose events are dropped, and a node in another process."""

    def __init__(self, client: LightClient, process: asyncio.subprocess.Process, now: list[float]) -> None:
        self.found = 0
        self._events = client.events()
        self._process = process
        self._now = now

    async def order(self, order: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n".encode())
        return bytes.fromhex((await self._process.stdout.readline()).decode())

    async def until(self, tip: bytes) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not self._is_tip(await anext(self._events), tip):
                pass

    def _is_tip(self, event: Event, tip: bytes) -> bool:
        self.found += isinstance(event, MatchFound)
        return isinstance(event, Synced) and event.hash == tip

    async def pass_by(self, blocks: int) -> None:
        for number in range(blocks):
            await self.order("mempool")
            if number % 50 == 25:
                await self.until(await self.order("reorg 3"))
            self._now[0] += BLOCK_S
            await self.until(await self.order("mine"))


def census() -> tuple[int, Counter[str]]:
    """Return the number of allocations, and the objects by type to find the cause of growth."""
    gc.collect()
    return sys.getallocatedblocks(), Counter(type(each).__name__ for each in gc.get_objects())


@pytest.mark.long
@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_a_day_of_blocks_leaves_memory_unchanged(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_HELD", 50)  # events; this bound and the next two were reached before
    monkeypatch.setattr(orphanage, "MAX_ORPHANS", 50)  # transactions
    monkeypatch.setattr(books, "KEPT_DEPTH", 20)  # blocks
    now = [float(START)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, worldprocess.__file__, "1"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": PATHS},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watch = World(mature=0).watch()
    peer = f"127.0.0.1:{int(await process.stdout.readline())}"
    clock = Clock(monotonic=lambda: now[0], wall=lambda: now[0])
    try:
        async with LightClient(watch, peers=[peer], mode=mode, limits=FAST, clock=clock) as client:
            day = Day(client, process, now)
            await day.until(await day.order("tip"))
            await day.pass_by(WARM_UP)
            (before, objects), found = census(), day.found
            await day.pass_by(BLOCKS)
            after, more = census()
            assert after - before < PER_BLOCK * BLOCKS + PER_MATCH * (day.found - found) + SLACK, (
                more - objects
            ).most_common(20)
            assert day.found - found > BLOCKS
    finally:
        process.stdin.close()
        await process.wait()


async def test_confirmed_own_transactions_are_dropped_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcaster, "MAX_SERVED", 3)
    world = World(20)
    for _ in range(8):
        world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        for _ in range(7):
            await run.client.broadcast(world.spending())
            world.regtest.mine()
            await run.synced(world)
        last = (await run.client.broadcast(world.spending())).txid
        watch = engine_of(run.client).broadcaster
        assert watch.find(last) is not None
        assert len(tracked_txs(engine_of(run.client))) == 1
        assert most_held(watch) <= 6  # the latest three that were served, by txid and wtxid
