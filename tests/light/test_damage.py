"""A client on a damaged database: it raises the right error, or it finds the matches of a full scan. Also a rebuild."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import StoreError
from spvfilter.node.server import Node
from spvfilter.store.sqlite import COMPANIONS
from support.client.lightworld import World, place, running
from support.vectors import effort

MODES: dict[str, dict[str, Any]] = {"bip37": {"mode": "bip37"}, "kept": {"mode": "compact", "keep_filters": True}}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Flip a bit, replace a byte, zero a piece, or cut off the end."""
    at = rng.randrange(len(data))
    match rng.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]
        case 2:
            return data[:at] + rng.randbytes(1) + data[at + 1 :]
        case _:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MODES)
async def test_a_client_refuses_a_damaged_database_or_finds_all_matches(name: str, tmp_path: Path) -> None:
    world = World(95)
    world.grow(30, share=0.6)
    rng = random.Random(name)
    path = tmp_path / "w.db"
    refused = 0
    async with Node(world.regtest) as node:
        async with running(world, node, store=path, **MODES[name]) as run:
            await run.synced(world)
        whole = path.read_bytes()
        world.grow(3, share=1.0)
        expected = world.scan()
        for _ in range(effort(8, 30, 500)):
            for suffix in COMPANIONS:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            path.write_bytes(damaged(whole, rng))
            try:
                async with running(world, node, store=path, **MODES[name]) as run:
                    snapshot = await run.client.matches()
                    for each in snapshot:
                        run.books.take(each)
                    run.follow(since=snapshot.sequence)
                    assert run.books.confirmed() <= expected
                    await run.synced(world)
                    assert run.books.confirmed() == expected
            except StoreError:
                refused += 1
        assert refused >= effort(2, 8, 150)
        async with running(world, node, store=path, rebuild=True, **MODES[name]) as run:  # of the last one
            await run.synced(world)
            assert {place(each.match) for each in await run.client.matches()} == expected
