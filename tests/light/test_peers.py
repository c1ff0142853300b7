"""Sockets of peers: servers that are no nodes, one node with several names, and many clients of one node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from spvfilter.light.client import LightClient
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from support.client import lightworld
from support.client.engineparts import engine_of
from support.client.lightworld import START, Run, World, running, where
from support.client.regtests import wake
from support.vectors import effort


@asynccontextmanager
async def listening(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]) -> AsyncIterator[str]:
    """Yield the address of a raw socket that calls `talk` for each client."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        talk(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
        await server.wait_closed()


RAW: dict[str, Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]] = {
    "half-open": lambda reader, writer: None,
    "closes": lambda reader, writer: writer.close(),
    "garbage": lambda reader, writer: writer.write(b"\xff" * 100_000),
    "http": lambda reader, writer: writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "half a message": lambda reader, writer: writer.write(bytes.fromhex("fabfb5da") + b"version\0\0\0\0\0\x66\0\0\0"),
    "four gigabytes": lambda reader, writer: writer.write(
        bytes.fromhex("fabfb5da") + b"version\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0"
    ),
}


async def test_servers_that_are_no_nodes_stop_no_search() -> None:
    world = World(42)
    world.grow(10, share=0.8)
    async with AsyncExitStack() as stack:
        addresses = {name: await stack.enter_async_context(listening(talk)) for name, talk in RAW.items()}
        node = await stack.enter_async_context(Node(world.regtest))
        run = await stack.enter_async_context(running(world, *addresses.values(), node))
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        talking = {addresses[name] for name in ("closes", "garbage", "http", "four gigabytes")}
        await run.until(lambda books: talking <= {warning.address for warning in books.warnings})


@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_a_node_with_three_names_is_connected_once(
    mode: str,
) -> None:
    world = World(52)
    world.grow(5)
    async with Node(world.regtest) as node:
        names = [f"{host}:{node.port}" for host in ("127.0.0.1", "localhost", "127.1")]
        async with running(world, *names, mode=mode) as run:
            await run.synced(world)
            await run.until(lambda books: len(books.warnings) >= 2)
            assert all(
                "the same node as" in str(warning.error) and not warning.banned for warning in run.books.warnings
            )
            assert len(engine_of(run.client).pool.ready()) == 1
            for _ in range(3):
                world.grow(1, share=1.0)
                await run.synced(world)
                assert len(node.responders) == 1
            assert run.books.synced is not None
            assert run.books.synced.proven_height == -1
            for responder in node.responders:
                responder.end("gone")
            wake(node)
            world.grow(1, share=1.0)
            await run.synced(world)
            assert run.books.confirmed() == world.scan()


@pytest.mark.long
async def test_many_clients_of_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightworld, "TIMEOUT_S", 300)  # all clients run at once and slow each other down
    world = World(50)
    world.grow(10, share=0.8)
    expected = world.scan()
    clock = Clock(wall=lambda: START)

    async def one(node: Node) -> None:
        async with LightClient(
            world.watch(), peers=[where(node)], from_height=95, limits=Limits(), clock=clock, mode="bip37"
        ) as client:
            run = Run(client)
            await run.synced(world)
            assert run.books.confirmed() == expected

    async with Node(world.regtest) as node, asyncio.TaskGroup() as group:
        for _ in range(effort(10, 100, 500)):
            group.create_task(one(node))
