"""kill -9 at random moments of a search with reorganizations: afterwards no match is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from light import lightprocess
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.store.events import StoredEvent
from spvfilter.store.store import Store
from support.client.lightworld import Run, World, check_stored, place, running, where
from support.vectors import effort

PATHS = os.pathsep.join(filter(None, [str(Path(lightprocess.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
MODES: dict[str, dict[str, Any]] = {
    "bip37": {"mode": "bip37"},
    "compact": {"mode": "compact"},
    "kept": {"mode": "compact", "keep_filters": True},
}


class Victims:
    """Successive clients, each in its own process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._output = process.stdin, process.stdout
        self._is_synced = False  # state of the running client

    @asynccontextmanager
    async def one(self, **order: object) -> AsyncIterator[Victims]:
        """Run a client, and kill it at the end."""
        self._is_synced = False
        self._orders.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(30):
            child = int((await self._output.readline()).lstrip(b".s"))
            try:
                yield self
            finally:
                os.kill(child, signal.SIGKILL)
            while await self._output.readline() != b"ended\n":
                pass

    async def told(self, events: int) -> int:
        """Wait for this number of events, or until a synced client has no more. Return the number of missing events."""
        while events > 0:
            try:
                async with asyncio.timeout(0.2 if self._is_synced else None):
                    read = await self._output.read(events)
            except TimeoutError:
                break
            assert read, "the process has ended"
            self._is_synced |= b"s" in read
            events -= len(read)
        return events


@asynccontextmanager
async def victims() -> AsyncIterator[Victims]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, lightprocess.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": PATHS},
    )
    try:
        yield Victims(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def events_of(path: Path) -> list[StoredEvent]:
    """Return all events of a database in the order of their numbers."""
    with Store.open(path, REGTEST) as store:
        return store.events.read(0, 1_000_000)


@pytest.mark.long
@pytest.mark.parametrize("name", MODES)
async def test_a_process_killed_at_any_moment_loses_and_repeats_nothing(name: str, tmp_path: Path) -> None:
    world = World(70)
    world.grow(60, share=0.6)
    rng = random.Random(name)
    path = tmp_path / "w.db"
    scripts = [lock.script_pubkey.hex() for lock in world.locks]
    in_the_middle = 0
    stored: list[StoredEvent] = []
    async with Node(world.regtest) as node, victims() as processes:
        for round in range(effort(4, 8, 200)):
            if round % 10 == 0:
                path.unlink(missing_ok=True)  # a new wallet, so that the kill interrupts a search
                stored = []
            events = rng.randrange(rng.choice([3, 40, 250]))
            async with processes.one(
                address=where(node), path=str(path), scripts=scripts, options=MODES[name]
            ) as process:
                left = await process.told(events // 2)
                if round % 2:
                    world.regtest.reorg(rng.randint(1, 6))
                left += await process.told(events - events // 2)
            in_the_middle += not left
            if path.exists():
                check_stored(path, world)
                before, stored = stored, events_of(path)
                assert stored[: len(before)] == before  # no number is used twice, and no event is lost
            world.grow(2, share=1.0)
        async with running(world, node, store=path, **MODES[name]) as run:
            found = await run.client.matches()
            later = Run(run.client, since=found.sequence)
            for each in found:
                later.books.take(each)  # fails if a match occurs twice
            await later.synced(world)
            assert later.books.confirmed() == world.scan()
            assert {
                place(each.match) for each in await run.client.matches() if each.match.height is not None
            } == world.scan()
    assert in_the_middle >= effort(1, 2, 50)
