"""A light client at the tip: mempool, conflicts, expiry, reorganizations and new entries.

It finds the same matches as a full scan.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from spvfilter.errors import AddressError, InexpressibleError, ParameterError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchUnconfirmed, MatchWithdrawn, Reason
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages import table as wire
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


async def test_public_keys_find_payments_to_every_script_type() -> None:
    world = World(20, locks=LOCKS[:3])
    keys = WatchList(REGTEST)
    for number in (1, 2, 3):
        keys.add_pubkey(key(number))
    world.grow(30)
    async with Node(world.regtest) as node, running(world, node, watch=keys) as run:
        await run.synced(world)
        assert {each[:4] for each in run.books.confirmed()} == {each[:4] for each in world.scan()}


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
async def test_a_mempool_answer_after_a_reorganization_matches_once(mode: Mode) -> None:
    """A match of the mempool may be reported before or after the new tip. It may not precede the disconnection of its
    block.
    """
    world = World(3, mature=110)
    returning = world.receive()
    world.regtest.mine()
    asked = asyncio.Event()

    class TellsLater(Responder):
        late: wire.Mempool | None = None

        def on_bloom(self, message: wire.Message) -> None:
            if isinstance(message, wire.Mempool) and not asked.is_set():
                asked.set()
                self.late = message
            else:
                super().on_bloom(message)

        def announce(self) -> None:
            super().announce()
            if self.late is not None:
                super().on_bloom(self.late)
                self.late = None

    async with Node(world.regtest, responder=TellsLater) as node, running(world, node, mode=mode) as run:
        await asked.wait()
        world.regtest.reorg(1)
        await run.until(lambda books: books.waiting() == {returning})
        await run.synced(world)
        kinds = (MatchFound, MatchUnconfirmed, MatchWithdrawn)
        assert [type(event) for event in run.books.events if isinstance(event, kinds)] == [MatchFound, MatchUnconfirmed]
