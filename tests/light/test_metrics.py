"""Counters and gauges of a running client, compared with the node, the status and the events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import FrozenInstanceError, fields

import pytest

from spvfilter.errors import NotRunningError, PeerError
from spvfilter.light import LightClient, Metrics
from spvfilter.light.counters import Counters
from spvfilter.light.engine.effects import Emit
from spvfilter.light.engine.inputs import Tick
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from support.client.lightworld import START, World, running, where

COUNTERS = [field.name for field in fields(Metrics)][-13:]


class Relay:
    """Forwards a TCP connection to a node and counts its bytes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.up = self.down = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_node, to_node = await asyncio.open_connection(self.node.host, self.node.port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, name: str) -> None:
            while data := await source.read(1 << 16):
                setattr(self, name, getattr(self, name) + len(data))
                target.write(data)
            target.close()

        await asyncio.gather(pump(reader, to_node, "up"), pump(from_node, writer, "down"))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1")
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def until(there: Callable[[], object]) -> None:
    """Let the event loop run until a condition holds, which no event reports."""
    async with asyncio.timeout(30):
        while not there():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_metrics_agree_with_status_and_events(mode: Mode) -> None:
    world = World()
    world.grow(20)
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        await run.synced(world)
        first = run.client.metrics()
        world.regtest.reorg(3)
        world.grow(2, share=1.0)
        await run.synced(world)
        found, status = run.client.metrics(), await run.client.status()
        balance = await run.client.balance()
    assert (found.tip_height, found.tip_time) == (status.tip_height, status.tip_time)
    assert (found.searched_height, found.is_synced) == (status.searched_height, True)
    assert found.last_heard is not None
    assert (found.peers, found.connections, found.bans) == (1, 1, 0)
    assert found.watched_entries == len(world.locks)
    assert found.last_event == balance.sequence
    assert (first.reorganizations, found.reorganizations) == (0, 1)
    assert first.headers_received == 121
    assert found.headers_received - first.headers_received >= 6
    assert found.filters_received >= 121 if mode is Mode.COMPACT else not found.filters_received
    assert found.blocks_received - first.blocks_received >= (2 if mode is Mode.COMPACT else 6)
    assert found.transactions_received > 0 or mode is Mode.COMPACT
    assert found.commits > first.commits > 0
    assert found.uptime_s > first.uptime_s > 0
    for name in COUNTERS:
        assert getattr(found, name) >= getattr(first, name)


async def test_bytes_are_counted_as_on_the_connection() -> None:
    world = World()
    async with Node(world.regtest) as node:
        relay = Relay(node)
        clock = Clock(wall=lambda: START)
        async with relay.open() as address, LightClient(world.watch(), peers=[address], clock=clock) as client:
            await client.wait_synced()

            def has_all() -> bool:
                found = client.metrics()
                return (found.bytes_received, found.bytes_sent) == (relay.down, relay.up)

            await until(has_all)
            assert client.metrics().bytes_received > 80 * 101
            assert client.metrics().bytes_sent > 200


async def test_bytes_of_ended_connections_still_count() -> None:
    world = World()
    async with Node(world.regtest) as node:
        client = running(world, where(node), mode=Mode.COMPACT)
        run = await client.__aenter__()
        await run.synced(world)
        before = run.client.metrics()
    await run.until(lambda books: books.warnings)
    after = run.client.metrics()
    assert after.bytes_received >= before.bytes_received
    assert (after.peers, after.connections, after.is_synced) == (0, 1, False)
    await client.__aexit__(None, None, None)


async def test_transactions_without_room_are_counted() -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, max_pending_matches=2) as run:
        await run.synced(world)
        for _ in range(6):
            world.receive()
        await until(lambda: run.client.metrics().transactions_turned_away)
        found = run.client.metrics()
    assert found.pending_transactions == found.pending_matches <= 2
    assert found.pending_bytes > 0
    assert found.transactions_received >= 1


def test_bans_are_counted() -> None:
    counters = Counters()
    warnings = [Emit(PeerWarning("1.2.3.4:8333", PeerError("a lie"), banned)) for banned in (True, False, True)]
    counters.step(Tick(), warnings)
    assert counters.bans == 2


async def test_metrics_are_frozen_and_need_a_running_client() -> None:
    world = World(mature=1)
    async with running(world, "127.0.0.1:1") as run:
        found = run.client.metrics()
        with pytest.raises(FrozenInstanceError):
            found.peers = 3  # type: ignore[misc]
        assert [getattr(found, name) for name in COUNTERS if name != "commits"] == [0] * 12
    with pytest.raises(NotRunningError):
        run.client.metrics()
    with pytest.raises(NotRunningError):
        LightClient(world.watch(), peers=["127.0.0.1:1"]).metrics()
