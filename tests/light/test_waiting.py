"""Waits for Synced and for confirmations, numbered events across restarts, and calls of a client that has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spvfilter.errors import EventGapError, NotConfirmedError, NotRunningError, ParameterError, StoreFullError
from spvfilter.light.client import LightClient
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.events import Synced
from spvfilter.light.stream import EventHub
from spvfilter.light.waiting import wait_synced
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound, RunStarted, WalletEvent
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import build_tx
from support.client.engineparts import store_of
from support.client.lightworld import STRANGER, Books, World, running


async def test_a_wait_for_confirmations_survives_a_reorganization() -> None:
    world = World(2)
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node) as run:
        await run.client.wait_synced()
        txid = world.receive()
        waits = [asyncio.create_task(run.client.wait_confirmed(txid, number)) for number in (1, 3)]
        await run.until(lambda books: txid in books.waiting())
        world.regtest.mine()
        assert (await waits[0]).confirmations >= 1
        world.regtest.reorg(1)
        assert (await run.client.wait_synced()).hash == run.client.chain.tip_hash
        await run.synced(world)
        assert not waits[1].done()
        world.regtest.mine(3)
        entry = await waits[1]
        assert (entry.txid, entry.confirmations >= 3) == (txid, True)
        assert (await run.client.wait_confirmed(txid, 2)).txid == txid


async def test_a_confirmed_conflict_ends_the_wait_for_a_transaction() -> None:
    world = World(4)
    world.receive()
    world.receive()
    world.regtest.mine()
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        ((outpoint, value, lock), *_) = world.coins
        raw = build_tx([lock.spends(outpoint, value)], [STRANGER.pays(value - 500)])
        txid = (await run.client.broadcast(raw)).txid
        wait = asyncio.create_task(run.client.wait_confirmed(txid, 2))
        conflict = build_tx([lock.spends(outpoint, value)], [STRANGER.pays(value - 700)])
        world.regtest.mine(transactions=[conflict])
        await run.synced(world)
        assert not wait.done()
        world.regtest.mine(transactions=[])
        with pytest.raises(NotConfirmedError) as caught:
            await wait
        assert (caught.value.txid, caught.value.status) == (txid, "conflicted")
        conflict_txid = Transaction.parse(conflict).txid
        assert (caught.value.txid_hex, caught.value.rival_hex) == (txid[::-1].hex(), conflict_txid[::-1].hex())
        for wrong in ((b"x", 1), (txid, 0), (txid, 1.5)):
            with pytest.raises(ParameterError):
                await run.client.wait_confirmed(*wrong)


async def test_abandoning_ends_the_wait_for_a_foreign_transaction() -> None:
    world = World(4)
    world.receive()
    world.regtest.mine()
    ((outpoint, value, lock),) = world.coins
    watch = WatchList(REGTEST)
    watch.add_script(next(each for each in world.locks if each is not lock).script_pubkey)
    async with asyncio.timeout(20), Node(world.regtest) as node, running(world, node, watch=watch) as run:
        await run.client.wait_synced()
        txid = (await run.client.broadcast(build_tx([lock.spends(outpoint, value)], [STRANGER.pays(value - 500)]))).txid
        wait = asyncio.create_task(run.client.wait_confirmed(txid))
        entry = await run.client.transaction(txid)  # the wait has looked at the transaction before
        assert entry is not None
        assert (entry.status, entry.labels) == ("pending", ())
        await run.client.abandon(txid)
        with pytest.raises(NotConfirmedError, match="abandoned"):
            await asyncio.wait_for(wait, 5)


async def test_waits_end_when_the_client_is_left() -> None:
    world = World(2)
    async with Node(world.regtest) as node:
        async with running(world, node) as run:
            wait = asyncio.create_task(run.client.wait_confirmed(bytes(32)))
            await run.client.wait_synced()
        with pytest.raises(NotRunningError, match="is closed"):
            await wait


async def test_an_outdated_synced_does_not_end_a_wait() -> None:
    """Blocks were searched again for the same tip. The new Synced comes when the results are stored."""
    tip = bytes(32)
    old, new = Synced(7, tip, ("10.1.0.1:1",)), Synced(7, tip, ("10.2.0.2:1",))
    hub = EventHub(0, cast(Any, None))
    hub.put([old])
    engine = SimpleNamespace(status=SimpleNamespace(told=new, is_synced=lambda now: True))
    run = SimpleNamespace(check=hub.check, hub=hub, engine=engine, now=lambda: Instant(0.0, 0.0))
    waiting = asyncio.create_task(wait_synced(cast(Any, run)))
    await asyncio.sleep(0)
    assert not waiting.done()
    hub.put([new])
    assert await waiting is new


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_events_continue_after_a_snapshot_and_across_restarts(mode: str, tmp_path: Path) -> None:
    world, path = World(3), tmp_path / "w.db"
    world.grow(10, share=1.0)
    told: list[WalletEvent] = []
    async with asyncio.timeout(30), Node(world.regtest) as node:
        for _ in range(3):
            async with running(world, node, store=path, mode=mode) as run:
                snapshot = await run.client.matches()
                follower = Books()
                for found in snapshot:
                    follower.take(found)
                events = run.client.events(since=snapshot.sequence)
                world.grow(2, share=1.0)
                world.regtest.reorg(2)
                await run.client.wait_synced()
                while follower.synced is None or follower.synced.hash != world.regtest.chain.tip.hash:
                    follower.take(await anext(events))
                assert follower.confirmed() == world.scan()
                last = (await run.client.balance()).sequence
                replayed = run.client.events(since=told[-1].sequence if told else 0)
                while not told or told[-1].sequence < last:
                    event = await anext(replayed)
                    told += [event] if isinstance(event, WalletEvent) else []
                await run.client.set_bookmark("test", told[-1].sequence)
                assert await run.client.bookmark("test") == told[-1].sequence
                for wrong in (-1, last + 10**9):
                    with pytest.raises(ParameterError if wrong < 0 else EventGapError):
                        run.client.events(since=wrong)
                    with pytest.raises(ParameterError):
                        await run.client.set_bookmark("test", wrong)
                for name in ("\ud800", None, b"test"):
                    with pytest.raises(ParameterError, match="a reader's name"):
                        await run.client.bookmark(name)  # type: ignore[arg-type]  # wrong types
                    with pytest.raises(ParameterError, match="a reader's name"):
                        await run.client.set_bookmark(name, 0)  # type: ignore[arg-type]
        assert sum(isinstance(event, RunStarted) for event in told) == 3
        for before, event in pairwise(told):
            is_next = event.sequence == before.sequence + 1
            assert is_next or (isinstance(event, RunStarted) and event.sequence > before.sequence)
        books = Books()
        for each in told:
            books.take(each)
        assert books.confirmed() == world.scan()


CALLS: list[Callable[[LightClient], Awaitable[object]]] = [
    lambda client: client.matches(),
    lambda client: client.balance(),
    lambda client: client.coins(),
    lambda client: client.history(),
    lambda client: client.transaction(bytes(32)),
    lambda client: client.broadcast(bytes(60)),
    lambda client: client.abandon(bytes(32)),
    lambda client: client.add_script(b"\x51"),
    lambda client: client.bookmark("a"),
    lambda client: client.set_bookmark("a", 0),
    lambda client: client.wait_synced(),
    lambda client: client.wait_confirmed(bytes(32)),
    lambda client: anext(client.events()),
]


async def test_a_failed_client_raises_its_error_at_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(2)
    client: LightClient | None = None
    async with asyncio.timeout(20), Node(world.regtest) as node:
        with pytest.raises(StoreFullError, match="full"):
            async with running(world, node) as run:
                client = run.client
                await run.synced(world)

                def full(*batches: object) -> None:
                    raise StoreFullError("the disk is full")

                monkeypatch.setattr(store_of(client), "commit", full)
                wait = asyncio.create_task(client.wait_confirmed(bytes(32)))
                world.receive()
                world.regtest.mine()
                with pytest.raises(StoreFullError):
                    await wait
                with pytest.raises(StoreFullError):
                    async for event in client.events():
                        assert not isinstance(event, MatchFound)
                for call in CALLS:
                    with pytest.raises(StoreFullError):
                        await call(client)
                for name in ("tip_height", "searched_height", "chain", "observed_fp_rate"):
                    with pytest.raises(StoreFullError):
                        getattr(client, name)
                for method in (client.fee_floor, client.fee_rates):
                    with pytest.raises(StoreFullError):
                        method()
        assert client is not None
        with pytest.raises(NotRunningError):
            await client.balance()


async def test_a_wait_logs_its_reason_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    watch = WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST)
    store = tmp_path / "wallet.db"
    async with asyncio.timeout(60):
        async with Node() as node:
            node.regtest.mine(3)
            async with LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store) as client:
                await client.wait_synced()
        assert caplog.messages == []
        async with Node() as node:  # another, shorter chain
            node.regtest.mine(1)
            address = f"{node.host}:{node.port}"
            async with LightClient(watch, peers=[address, address], store=store) as client:
                waits = [asyncio.create_task(client.wait_synced()) for _ in range(2)]
                expected = f"not synced yet: {address}: does not know block 3 of the best chain"
                while caplog.messages != [expected, expected]:  # one message per wait
                    assert set(caplog.messages) <= {expected}
                    await asyncio.sleep(0.01)
                for wait in waits:
                    assert not wait.done()
                    wait.cancel()


@pytest.mark.long
@pytest.mark.parametrize("height", [20, 150, 200])
async def test_a_restarted_node_has_another_chain(
    height: int, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The three chains have too little work to be stored, enough to be stored as a fork, and as much as the best."""
    watch = WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST)
    store = tmp_path / "wallet.db"
    async with asyncio.timeout(60):
        async with Node() as node:
            node.regtest.mine(200)
            async with LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store) as client:
                await client.wait_synced()
        async with Node(Regtest(clock=lambda: int(time.time()) - 3_600)) as node:
            node.regtest.mine(height)
            address = f"{node.host}:{node.port}"
            async with LightClient(watch, peers=[address], store=store) as client:
                wait = asyncio.create_task(client.wait_synced())
                while not caplog.messages:
                    assert not wait.done()
                    await asyncio.sleep(0.01)
                wait.cancel()
    assert caplog.messages == [
        f"not synced yet: {address}: has a different chain, of height {height}: it lacks blocks 1 to 200 of the chain"
        " that this client follows, and does not have more work."
        " To follow this node, start with a new database (--db)"
    ]
