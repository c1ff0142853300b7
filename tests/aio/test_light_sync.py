"""A light client against nodes over loopback: what it finds is what a full scan of the same chain finds."""

from __future__ import annotations

from pathlib import Path

from lightworld import World, place, running
from spvfilter.aio.node import Node
from support import effort


async def test_a_long_chain_gives_what_a_full_scan_gives(tmp_path: Path) -> None:
    world = World(1)
    world.grow(effort(150, 250, 900))
    async with Node(world.regtest) as node:
        async with running(world, node, store=tmp_path / "w.db") as run:
            books = await run.synced(world)
            assert books.confirmed() == world.scan()
            assert len(books.confirmed()) > 100
            assert not books.warnings
        async with running(world, node, store=tmp_path / "w.db") as again:  # nothing is told twice, all is kept
            await again.synced(world)
            assert not again.books.matches
            kept = {place(found.match) for found in await again.client.matches()}
            assert kept == world.scan()


async def test_the_observed_rate_of_false_positives_is_that_of_foreign_transactions() -> None:
    world = World(11)
    for _ in range(40):
        world.others(20)
        world.receive()
        world.regtest.mine()
    tested = sum(len(block.txids) for block in world.regtest.chain.active)
    for rate, least, most in ((0.02, 0.02, 0.6), (1e-7, 0.0, 0.002)):
        async with Node(world.regtest) as node, running(world, node, fp_rate=rate) as run:
            await run.synced(world)
            assert least <= run.client.observed_fp_rate <= most
            foreign = round(run.client.observed_fp_rate * tested)
            assert run.client.observed_fp_rate == foreign / tested
            assert run.books.confirmed() == world.scan()
