"""A light client and nodes over loopback: it finds the same matches as a full scan of the chain."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from spvfilter.light.client import LightClient
from spvfilter.light.events import PeerWarning, Synced
from spvfilter.network import MAINNET, REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import SERVICES, Node
from spvfilter.p2p.clock import Clock
from spvfilter.store.batch import Batch, Bip37Parameters
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Settings
from spvfilter.wire.messages.inventory import GetHeaders, Headers
from support.client.lightworld import FAST, START, TIMEOUT_S, World, running, where


@pytest.mark.parametrize("ahead_s", [-5 * 86_400, 3 * 3_600, 86_400])
async def test_a_regtest_node_with_its_own_clock_is_followed(ahead_s: float) -> None:
    """Its blocks are from the future, as with Core's -mocktime."""
    regtest = Regtest(clock=lambda: time.time() + ahead_s)
    regtest.mine(3)
    watch = WatchList(REGTEST)
    watch.add_script(bytes(22))
    async with Node(regtest) as node, LightClient(watch, peers=[where(node)]) as client, asyncio.timeout(TIMEOUT_S):
        assert (await client.wait_synced()).height == 3
        regtest.mine()
        async for event in client.events():
            if isinstance(event, Synced) and event.height == 4:
                break


@pytest.mark.slow
async def test_the_observed_false_positive_rate_counts_foreign_transactions(tmp_path: Path) -> None:
    """The filters are chosen: one in a hundred filters matches the miner's script by chance, which is in every
    transaction.
    """
    world = World(11)
    for _ in range(40):
        world.others(20)
        world.receive()
        world.regtest.mine()
    tested = sum(len(block.txids) for block in world.regtest.chain.active)
    for rate, least, most in ((0.02, 0.02, 0.6), (1e-7, 0.0, 0.002)):
        with Store.open(tmp_path / f"{rate}.db", REGTEST) as store:
            store.commit(
                Batch(bip37_parameters=Bip37Parameters(tweak=7, elements=1_024, fp_rate=rate, decoy_key=bytes(32)))
            )
        async with (
            Node(world.regtest) as node,
            running(world, node, fp_rate=rate, store=tmp_path / f"{rate}.db") as run,
        ):
            await run.synced(world)
            assert least <= run.client.observed_fp_rate <= most
            foreign = round(run.client.observed_fp_rate * tested)
            assert run.client.observed_fp_rate == foreign / tested
            assert run.books.confirmed() == world.scan()


class HasNoHeaders(Responder):
    """A node in its initial block download by its own answers: it answers getheaders with no headers."""

    def on_getheaders(self, asked: GetHeaders) -> None:
        self.send(Headers(()))


CLOCK = Clock(wall=lambda: START)


async def test_a_chain_below_the_networks_minimum_work_is_not_synced() -> None:
    watch = WatchList(MAINNET)
    watch.add_address("1BoatSLRHtKNngkdXEeobR76b53LETtpyT")
    regtest = Regtest(clock=lambda: START)
    settings = Settings(MAINNET, SERVICES, relay=True)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(TIMEOUT_S))
        node = await stack.enter_async_context(Node(regtest, responder=HasNoHeaders, settings=settings))
        client = await stack.enter_async_context(
            LightClient(watch, peers=[where(node)], mode="bip37", limits=FAST, from_height=900_000, clock=CLOCK)
        )
        async for event in client.events():
            assert not isinstance(event, Synced)
            if isinstance(event, PeerWarning):
                assert (
                    str(event.error)
                    == "does not have a chain with the network's minimum work; it may be in its initial block download"
                )
                assert not event.banned
                break
