"""kill -9 at random points of a search with reorganisations: afterwards nothing is lost and nothing doubled."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import pytest

import lightprocess
import spvfilter
from lightworld import World, place, running, where
from spvfilter.aio.node import Node
from support import effort

PATHS = os.pathsep.join([str(Path(spvfilter.__file__).parent.parent), str(Path(lightprocess.__file__).parent)])


@pytest.mark.parametrize("seed", range(effort(1, 1, 20)))
async def test_a_process_killed_at_any_moment_loses_and_doubles_nothing(seed: int, tmp_path: Path) -> None:
    world = World(70 + seed)
    world.grow(40, share=0.6)
    rng = random.Random(seed)
    path = tmp_path / "w.db"
    scripts = [lock.script_pubkey.hex() for lock in world.locks]
    async with Node(world.regtest) as node:
        for round in range(effort(3, 6, 10)):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, lightprocess.__file__, where(node), str(path), *scripts),
                stdout=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": PATHS},
            )
            assert process.stdout is not None
            async with asyncio.timeout(60):
                assert await process.stdout.readline() == b"ready\n"
                blocks = rng.randrange(0, 30 if round else 120)
                if round % 2:
                    world.regtest.reorg(rng.randint(1, 6))
                while blocks > 0:  # until so many were told, or as many as there are
                    try:
                        async with asyncio.timeout(0.3):
                            blocks -= len(await process.stdout.read(blocks))
                    except TimeoutError:
                        break
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            world.grow(2, share=1.0)
        async with running(world, node, store=path) as run:
            kept = {place(each.match) for each in await run.client.matches()}
            run.books.matches = {}
            for each in await run.client.matches():
                run.books.take(each)  # refuses what is there twice
            assert {place(match) for match in run.books.matches.values()} == kept
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
