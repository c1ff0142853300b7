"""Filters imported into the database of a light client: they are used if peers commit to them, and never requested
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spvfilter.filters.bip158 import basic_data
from spvfilter.network import REGTEST
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.store.importer import FilterImport
from spvfilter.store.store import Store
from support.client.compactworld import LIMITS, counting, grown, reach_tip
from support.client.lightworld import World, place, running

LATE = p2wpkh(b"\x03" + bytes(32))
Change = Callable[[int, bytes, bytes], bytes]


def told(height: int, block: bytes, data: bytes) -> bytes:
    return data


def paid_late() -> World:
    world = grown()
    for _ in range(3):
        world.regtest.pay(LATE.pays(700))
        world.grow(3)
    return world


def bring(path: Path, world: World, change: Change = told, heights: Sequence[int] | None = None) -> None:
    """Import the filters of the world's chain."""
    index = FilterIndex(world.regtest.chain)
    with Store.open(path, REGTEST) as store:
        importing = FilterImport(store)
        for block in world.regtest.chain.active:
            if heights is None or block.height in heights:
                importing.add(
                    block.hash, change(block.height, block.hash, index.data(block)), previous=block.header.previous
                )
        importing.flush()


@pytest.mark.slow
async def test_filters_imported_before_the_first_run_are_not_requested(tmp_path: Path) -> None:
    world, path = paid_late(), tmp_path / "w.db"
    bring(path, world)
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(world, node, limits=LIMITS, mode="compact", store=path) as run:
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
            await run.client.add_script(LATE.script_pubkey)
            world.locks.append(LATE)
            await run.until(lambda books: len(books.confirmed()) == len(world.scan()))
            assert run.books.confirmed() == world.scan()
            assert not responder.asked["GetCFilters"]
            world.grow(2)
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
            assert responder.asked["GetCFilters"]


async def test_filters_imported_later_serve_new_addresses(tmp_path: Path) -> None:
    world, path = paid_late(), tmp_path / "w.db"
    async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode="compact", store=path) as run:
        await run.synced(world)
    bring(path, world)
    world.locks.append(LATE)
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(world, node, limits=LIMITS, mode="compact", store=path) as run:
            await reach_tip(run, world)
            assert {place(found.match) for found in await run.client.matches()} == world.scan()
            assert not responder.asked["GetCFilters"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "change",
    [
        lambda height, block, data: basic_data(block, [b"nothing of ours"]),
        lambda height, block, data: b"\0",
        lambda height, block, data: data if height % 15 else b"\0",
    ],
)
async def test_false_imported_filters_are_requested_from_peers(tmp_path: Path, change: Change) -> None:
    world, path = grown(), tmp_path / "w.db"
    bring(path, world, change)
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(world, node, limits=LIMITS, mode="compact", store=path) as run:
            await run.synced(world)
            assert run.books.confirmed() == world.scan() != set()
            assert not run.books.warnings  # the peer did not lie
    assert responder.asked["GetCFilters"] == -(-(world.regtest.height + 1) // 15)


async def test_missing_filters_are_requested_and_kept_beside_imported_ones(tmp_path: Path) -> None:
    world, path = grown(), tmp_path / "w.db"
    bring(path, world, heights=range(60))
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(world, node, limits=LIMITS, mode="compact", keep_filters=True, store=path) as run:
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
            assert responder.asked["GetCFilters"] == -(-(world.regtest.height + 1 - 60) // 15)
            world.regtest.reorg(80)  # below the first height that was requested
            world.coins.clear()
            world.grow(2)
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
    with Store.open(path, REGTEST) as store:
        assert store.compact_filters.kept(0, world.regtest.height).keys() == set(range(world.regtest.height + 1))
