"""The light client in programs: enter, leave, calls at the wrong time, timeouts and broadcasts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from spvfilter.errors import (
    FormatError,
    NotRunningError,
    ParameterError,
    PrivacyError,
)
from spvfilter.light.client import LightClient
from spvfilter.light.events import Synced
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.primitives import OutPoint
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import build_tx
from support.client.lightworld import FAST, LOCKS, START, STRANGER, World, running, where


def client_of(world: World, *nodes: Node) -> LightClient:
    return LightClient(
        world.watch(), peers=[where(node) for node in nodes], limits=FAST, clock=Clock(wall=lambda: START)
    )


@pytest.mark.parametrize("watch", [["bc1"], "bc1", None, WatchList])
def test_a_watch_list_of_a_wrong_type_is_refused(watch: Any) -> None:
    with pytest.raises(TypeError, match=r"^watch: expected a WatchList, .*from_addresses.*, not (list|str|None|type)"):
        LightClient(watch, peers=["127.0.0.1:8333"])


@pytest.mark.parametrize("peer", [("127.0.0.1", 8333), 8333, b"127.0.0.1"])
def test_a_peer_of_a_wrong_type_is_refused(peer: Any) -> None:
    message = rf"^peers\[1\]: expected a str such as 'HOST:PORT', not {type(peer).__name__}$"
    with pytest.raises(TypeError, match=message):
        LightClient(World(mature=0).watch(), peers=["127.0.0.1", peer])


def test_a_watch_list_of_another_network_is_refused() -> None:
    with pytest.raises(ParameterError, match="the watch list belongs to regtest, not to mainnet"):
        LightClient(World(mature=0).watch(), peers=["127.0.0.1:8333"], network="mainnet")


async def test_calls_of_a_client_that_is_not_running_raise() -> None:
    world = World()
    async with Node(world.regtest) as node:
        client = client_of(world, node)
        for round_ in range(2):
            for ask in (client.matches, lambda: client.broadcast(b""), lambda: client.add_script(b"\x51")):
                with pytest.raises(NotRunningError, match="is closed" if round_ else "with `async with` first"):
                    await ask()
            for name in ("tip_height", "searched_height", "observed_fp_rate"):
                with pytest.raises(NotRunningError):
                    getattr(client, name)
            if not round_:
                with pytest.raises(NotRunningError):
                    client.events()
                async with client:
                    pass
        assert [event async for event in client.events() if isinstance(event, Synced)] == []


async def test_a_client_is_entered_once_at_a_time() -> None:
    world = World()
    async with Node(world.regtest) as node:
        client, before = client_of(world, node), asyncio.all_tasks()
        for _ in range(2):
            entered, refused = await asyncio.gather(client.__aenter__(), client.__aenter__(), return_exceptions=True)
            assert entered is client
            assert isinstance(refused, NotRunningError)
            with pytest.raises(NotRunningError, match="already running"):
                await client.__aenter__()
            await client.wait_synced()
            await client.__aexit__(None, None, None)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() - before == set()
        client.watch.add_script(b"\x51")  # the watch list is not locked


async def test_a_peer_that_answers_no_pings_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(6)
    fence, refused = Connection.fence, [True]

    def overdue(self: Connection) -> int:
        if refused and world.regtest.height > 101:
            refused.clear()
            raise ParameterError("1024 pings are unanswered")
        return fence(self)

    monkeypatch.setattr(Connection, "fence", overdue)
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, mode="auto") as run:
        await run.until(lambda books: books.warnings)
        assert "pings are unanswered" in str(run.books.warnings[0].error)
        assert not run.books.warnings[0].banned
        await run.synced(world)
        assert run.books.confirmed() == world.scan()


async def test_a_transaction_that_no_block_can_contain_is_not_broadcast() -> None:
    world = World()
    coin = OutPoint(world.receive(LOCKS[0]), 0)
    spend, null = LOCKS[0].spends(coin, 20_000), STRANGER.spends(OutPoint(bytes(32), 0xFFFFFFFF))
    paid = [STRANGER.pays(1)]
    async with Node(world.regtest) as node, client_of(world, node) as client:
        for raw, reason in (
            (bytes(10), "it has no inputs"),
            (build_tx([spend], []), "it has no outputs"),
            (build_tx([null], paid), "it is a coinbase"),
            (build_tx([null, spend], paid), "it spends the null outpoint"),
            (build_tx([spend] * 2, paid), "it spends an output twice"),
            (
                build_tx([spend], [STRANGER.pays(21_000_000 * 100_000_000), *paid]),
                "the values of its outputs are out of range",
            ),
            (build_tx([replace(spend, script_sig=bytes(1_000_001), spent=None)], paid), "its weight of 4,000,"),
        ):
            with pytest.raises(ParameterError, match=f"no block can contain the transaction: {reason}"):
                await client.broadcast(raw)
        with pytest.raises(FormatError):
            await client.broadcast(b"")


async def test_a_private_transaction_reaches_only_another_host() -> None:
    world = World(17)
    world.receive()
    world.regtest.mine()
    other = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1:]:
        other.submit_block(block.raw)
    async with Node(world.regtest) as node, Node(other, host="127.0.0.2") as stranger:
        async with running(world, node, stranger, mode="compact", max_peers=1) as run:
            await run.synced(world)
            known = await run.client.broadcast(world.spending(), private=True)
            there, regtest = (stranger, other) if where(stranger) in known.sent else (node, world.regtest)
            assert known.sent == (where(there),)
            assert known.txid in regtest.mempool
            assert len(world.regtest.mempool) + len(other.mempool) == 1
        async with running(world, node, mode="compact") as run:
            await run.synced(world)
            with pytest.raises(PrivacyError, match="already connected to every known address"):
                await run.client.broadcast(
                    build_tx([STRANGER.spends(OutPoint(bytes(32), 1))], [STRANGER.pays(1)]), private=True
                )
