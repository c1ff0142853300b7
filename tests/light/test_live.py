"""A light client at the tip: mempool, conflicts, expiry, reorganizations, new entries and broadcasts. It finds the same
matches as a full scan.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import AddressError, InexpressibleError, ParameterError
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.wallet.events import MatchConfirmed, Reason
from spvfilter.watch.watchlist import WatchList
from support.client.lightworld import LOCKS, START, World, key, running


async def test_a_payment_is_found_in_the_mempool_and_then_confirmed() -> None:
    world = World(2)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        digest = world.receive()
        await run.until(lambda books: digest in books.waiting())
        spent = world.spend()
        await run.until(lambda books: spent in books.waiting())
        world.regtest.mine()
        books = await run.synced(world)
        assert books.confirmed() == world.scan()
        assert not books.waiting()
        assert sum(isinstance(event, MatchConfirmed) for event in books.events) == 2


async def test_a_transaction_without_a_block_expires_after_336_hours() -> None:
    now = [float(START)]
    world = World(6, clock=lambda: now[0])
    lived = Clock(monotonic=lambda: time.monotonic() + now[0] - START, wall=lambda: now[0])
    async with Node(world.regtest) as node, running(world, node, clock=lived) as run:
        await run.synced(world)
        digest = world.receive()
        await run.until(lambda books: digest in books.waiting())
        now[0] += 336 * 3600 - 100
        world.regtest.mine(transactions=[])
        await run.synced(world)
        assert digest in run.books.waiting()
        now[0] += 200
        world.regtest.mine(transactions=[])
        await run.until(lambda books: books.withdrawn)
        assert [event.reason for event in run.books.withdrawn] == [Reason.EXPIRED]


async def test_an_address_added_while_running_is_searched_from_its_height(tmp_path: Path) -> None:
    world = World(11)
    new = p2wpkh(b"\x03" + bytes(32))
    for _ in range(20):
        world.receive()
        world.regtest.pay(new.pays(5_000))
        world.regtest.mine()
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, store=path) as run:
            await run.synced(world)
            address = script_to_address(new.script_pubkey, REGTEST)
            assert address is not None
            await run.client.add_address(address, "new", from_height=120)
            run.books.synced = None
            await run.synced(world)
            later = world.watch()
            later.add_script(new.script_pubkey)
            expected = {each for each in world.scan(later) if (each[3] or 0) >= 120 or each in world.scan()}
            assert run.books.confirmed() == expected
        async with running(world, node, store=path) as again:  # the address is stored
            assert address in {match.match.address for match in await again.client.matches()}
            assert new.script_pubkey in again.client.watch


async def test_an_entry_that_cannot_be_found_is_refused_without_effect(tmp_path: Path) -> None:
    world = World(16)
    async with Node(world.regtest) as node:
        async with running(world, node, store=tmp_path / "w.db") as run:
            await run.synced(world)
            with pytest.raises(InexpressibleError):
                await run.client.add_script(b"\x51")
            with pytest.raises(AddressError):
                await run.client.add_address("nonsense")
            world.grow(3, share=1.0)
            await run.synced(world)
        async with running(world, node, store=tmp_path / "w.db") as run:
            await run.synced(world)
        silent = WatchList(REGTEST)
        silent.add_script(b"\x51")
        with pytest.raises(InexpressibleError):
            await LightClient(silent, peers=["127.0.0.1:1"], mode="bip37", store=tmp_path / "w.db").__aenter__()
        with pytest.raises(ParameterError, match="nothing to watch for"):
            await LightClient(WatchList(REGTEST), peers=["127.0.0.1:1"]).__aenter__()
        async with running(world, node, store=tmp_path / "w.db") as run:  # the refused entry was not stored
            await run.synced(world)


async def test_a_broadcast_is_a_pending_and_then_a_confirmed_match(tmp_path: Path) -> None:
    world = World(17)
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, store=tmp_path / "w.db") as run:
        await run.synced(world)
        digest = (await run.client.broadcast(world.spending(change=LOCKS[0]))).txid
        assert digest in world.regtest.mempool
        await run.until(lambda books: digest in books.waiting())
        world.regtest.mine()
        books = await run.synced(world)
        assert books.confirmed() == world.scan()


async def test_public_keys_find_payments_to_every_script_type() -> None:
    world = World(20, locks=LOCKS[:3])
    keys = WatchList(REGTEST)
    for number in (1, 2, 3):
        keys.add_pubkey(key(number))
    world.grow(30)
    async with Node(world.regtest) as node, running(world, node, watch=keys) as run:
        await run.synced(world)
        assert {each[:4] for each in run.books.confirmed()} == {each[:4] for each in world.scan()}
