"""Broadcasts of a real client whose node is away: cancelled calls, timeouts, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spvfilter.errors import NotRunningError, PrivacyError, UselessPeerError
from spvfilter.node.server import Node
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from support.client.lightworld import IMPATIENT, World, running


@pytest.fixture
def world() -> World:
    world = World(30)
    for _ in range(2):
        world.receive()
    world.regtest.mine()
    return world


async def has_none(node: Node, world: World) -> bool:
    """Give the client time to announce a transaction, and return True if the node has none."""
    for _ in range(30):
        await asyncio.sleep(0.01)
    return not world.regtest.mempool


@pytest.mark.few(2)
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 50])
async def test_cancelling_a_broadcast_stops_only_the_wait(world: World, steps: int, tmp_path: Path) -> None:
    store = tmp_path / "w.db"
    raw = world.spending()
    tx = Transaction.parse(raw)
    async with running(world, "127.0.0.1:1", store=store, limits=IMPATIENT) as run:
        calls = [asyncio.create_task(run.client.broadcast(raw)) for _ in range(2)]
        for _ in range(steps + 1):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        entry = await run.client.transaction(tx.txid)
        assert entry is not None
        assert (entry.status, entry.is_own) == (TxStatus.PENDING, True)
        assert not [
            coin for coin in await run.client.coins() if bytes(coin.outpoint) in tx.inputs and coin.is_spendable
        ]
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node, store=store) as run:
        await run.synced(world)
        while tx.txid not in world.regtest.mempool:  # noqa: ASYNC110  # the node has no event for it
            await asyncio.sleep(0.01)


@pytest.mark.few(1)
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_cancelled_broadcast_can_be_abandoned(world: World, restarts: bool, tmp_path: Path) -> None:
    store = tmp_path / "w.db"
    raw = world.spending()
    txid = Transaction.parse(raw).txid
    async with running(world, "127.0.0.1:1", store=store, limits=IMPATIENT) as run:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.client.broadcast(raw), 0.05)
        if not restarts:
            await run.client.abandon(txid)
    async with asyncio.timeout(20), Node(world.regtest) as node:
        if restarts:
            async with running(world, "127.0.0.1:1", store=store, limits=IMPATIENT) as run:
                await run.client.abandon(txid)
        async with running(world, node, store=store) as run:
            await run.synced(world)
            assert await has_none(node, world)
            entry = await run.client.transaction(txid)
            assert entry is not None
            assert entry.status is TxStatus.ABANDONED


async def test_the_error_without_a_peer_says_what_happens_next(world: World) -> None:
    raw = world.spending()
    async with running(world, "127.0.0.1:1", limits=IMPATIENT) as run:
        with pytest.raises(UselessPeerError, match=r"no connected peer \(0 now\).* the wallet keeps it"):
            await run.client.broadcast(raw)
        with pytest.raises(UselessPeerError):
            await run.client.broadcast(raw)  # the same transaction again, without a second record
        assert [entry.status for entry in await run.client.history()] == [TxStatus.PENDING]


async def test_a_waiting_broadcast_ends_when_the_client_is_left(world: World) -> None:
    async with running(world, "127.0.0.1:1") as run:
        call = asyncio.create_task(run.client.broadcast(world.spending()))
        while not await run.client.history():  # noqa: ASYNC110  # no event tells of it
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not call.done()
    with pytest.raises(NotRunningError):
        await asyncio.wait_for(call, 5)


async def test_a_refused_second_call_leaves_the_first_waiting(world: World) -> None:
    raw = world.spending()
    async with running(world, "127.0.0.1:1", limits=IMPATIENT) as run:
        first = asyncio.create_task(run.client.broadcast(raw))
        for _ in range(10):
            await asyncio.sleep(0)
        with pytest.raises(PrivacyError):
            await run.client.broadcast(raw, private=True)
        assert not first.done()
        with pytest.raises(UselessPeerError):
            await first
