"""Several peers: slow, silent, half-open, lost, behind, or too many. The search continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import UselessPeerError
from spvfilter.filters.bip37 import MatchedTx
from spvfilter.light.client import LightClient
from spvfilter.light.events import PeerChanged
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import SETTINGS, Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.wire.events import Service
from support import lightworld
from support.engineparts import engine_of
from support.lightworld import FAST, START, Run, World, place, running, where
from support.regtests import wake
from support.vectors import effort


class Stalls(Responder):
    """Answers no requests for blocks above height 40, but stays connected."""

    def step(self) -> bool:
        if self._requests and self.regtest.chain.blocks[self._requests[0].hash].height > 40:
            return False
        return super().step()


class IsSilent(Responder):
    """Sends nothing after the handshake."""

    def on_message(self, message: object) -> None:
        pass


class Dies(Responder):
    """Disconnects in the middle of a block: the payment has arrived, its spend has not."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        if block.height > 105 and matched:
            self.end("gone")
        else:
            super().send_merkleblock(block, matched)


@pytest.mark.few(1)
@pytest.mark.parametrize("responder", [Stalls, IsSilent, Dies])
async def test_a_failing_peer_is_replaced_and_not_banned(responder: type[Responder]) -> None:
    world = World(40)
    world.grow(25, share=0.8)
    async with (
        Node(world.regtest, responder=responder) as bad,
        Node(world.regtest) as good,
        running(world, bad, good) as run,
    ):
        await run.synced(world)
        await run.until(lambda books: books.warnings)
        assert run.books.confirmed() == world.scan()
        assert not any(warning.banned for warning in run.books.warnings)
        world.grow(3, share=1.0)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()


async def test_a_peer_lost_between_payment_and_spend_loses_neither(tmp_path: Path) -> None:
    world = World(41)
    world.receive()
    world.regtest.mine()
    path = tmp_path / "w.db"
    async with Node(world.regtest) as first, running(world, first, store=path) as run:
        await run.synced(world)
    world.spend()
    world.regtest.mine()
    async with Node(world.regtest) as second, running(world, second, store=path) as run:
        await run.synced(world)
        assert {place(found.match) for found in await run.client.matches()} == world.scan()
        assert [match.kind for match in run.books.matches.values()] == ["input"]


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


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RAW)
async def test_a_server_that_is_no_node_stops_no_search(name: str) -> None:
    world = World(42)
    world.grow(10, share=0.8)
    async with listening(RAW[name]) as address, Node(world.regtest) as node, running(world, address, node) as run:
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        if name in ("closes", "garbage", "http", "four gigabytes"):
            await run.until(lambda books: books.warnings)


async def test_more_addresses_than_slots_are_tried_in_turn() -> None:
    world = World(43)
    world.grow(5)
    async with AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(listening(RAW["closes"])) for _ in range(5)]
        node = await stack.enter_async_context(Node(world.regtest))
        run = await stack.enter_async_context(running(world, *dead, node, max_peers=2))
        await run.synced(world)
        assert {warning.address for warning in run.books.warnings} == set(dead)


async def test_a_peer_without_filters_is_replaced_by_one_with_filters() -> None:
    world = World(44)
    world.grow(5)
    plain = replace(SETTINGS, services=Service.NETWORK | Service.WITNESS)
    async with (
        Node(world.regtest, settings=plain) as without,
        Node(world.regtest) as node,
        running(world, without, node, max_peers=1) as run,
    ):
        await run.synced(world)
        assert any("NODE_BLOOM" in str(warning.error) for warning in run.books.warnings)


async def test_control_characters_in_a_user_agent_are_escaped() -> None:
    """Otherwise a peer could control the user's terminal or log."""
    world = World(47)
    world.grow(2)
    named = replace(SETTINGS, user_agent=b"/\x1b]0;owned\x07\r\nfake: line\xff/")
    async with Node(world.regtest, settings=named) as node, running(world, node) as run:
        await run.synced(world)
        told = {event.user_agent for event in run.books.events if isinstance(event, PeerChanged) and event.address}
        (peer,) = (await run.client.status()).peers
        assert told == {peer.user_agent} == {"/\\x1b]0;owned\\x07\\x0d\\x0afake: line\\xff/"}


async def test_a_returning_peer_is_used_again() -> None:
    world = World(45)
    world.grow(5)
    node = Node(world.regtest)
    async with node:
        port = node.port
        async with running(world, node) as run:
            await run.synced(world)
            await node.__aexit__(None, None, None)
            await run.until(lambda books: PeerChanged(None) in books.events)
            world.grow(3, share=1.0)
            async with Node(world.regtest, port=port):
                await run.synced(world)
                assert run.books.confirmed() == world.scan()
        await node.__aenter__()


async def test_a_peer_that_learns_of_blocks_later_is_kept() -> None:
    world = World(46)
    world.grow(5, share=1.0)
    late = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1:]:
        late.submit_block(block.raw)
    async with (
        Node(late) as slow,
        Node(world.regtest) as quick,
        running(world, slow, quick, limits=replace(FAST, stall_s=5)) as run,
    ):
        await run.synced(world)
        for _ in range(5):
            world.grow(1, share=1.0)
            await asyncio.sleep(0)
            late.submit_block(world.regtest.chain.tip.raw)
            await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert not run.books.warnings


async def test_the_longer_chain_of_two_peers_wins() -> None:
    world = World(47)
    world.grow(20, share=0.8)
    short = Regtest(clock=lambda: START)
    for block in world.regtest.chain.active[1:-5]:
        short.submit_block(block.raw)
    async with Node(short) as behind, Node(world.regtest) as ahead, running(world, behind, ahead) as run:
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert not any(warning.banned for warning in run.books.warnings)


async def test_two_honest_peers_agree() -> None:
    world = World(48)
    world.grow(40, share=0.8)
    async with Node(world.regtest) as one, Node(world.regtest) as two, running(world, one, two) as run:
        await run.synced(world)
        for _ in range(5):
            world.grow(1, share=1.0)
            await run.synced(world)
        world.regtest.reorg(3)
        await run.synced(world)
        await run.until(lambda books: books.confirmed() == world.scan())
        assert not run.books.warnings
        assert any(responder.filter is not None for responder in one.responders)
        assert any(responder.filter is not None for responder in two.responders)


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


async def test_a_lone_stalling_peer_is_disconnected_with_a_warning() -> None:
    world = World(51)
    async with (
        Node(world.regtest, responder=Stalls) as node,
        running(world, node, limits=replace(FAST, reply_s=0.3)) as run,
    ):
        await run.until(lambda books: books.warnings)
        assert isinstance(run.books.warnings[0].error, UselessPeerError)
        assert "no answer for" in str(run.books.warnings[0].error)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(2, 4, 40)))
async def test_a_witness_that_joins_a_running_search_is_not_accused(seed: int) -> None:
    """Coins of open requests may be spent in later blocks. A witness that was not asked for the earlier blocks cannot
    know them.
    """
    world = World(seed, mature=110)
    for number in range(30):
        world.receive()
        if number % 3 == 0:
            world.regtest.mine()
    world.regtest.mine(300)
    for _ in range(30):
        world.spend()
        world.regtest.mine(10)
    async with Node(world.regtest) as one, Node(world.regtest, "127.1.0.1") as two, running(world, one, two) as run:
        await run.synced(world)
        world.regtest.mine()
        await run.synced(world)
        world.regtest.reorg(7)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert not run.books.warnings
        # every block was compared
        assert all(len(span.witnesses.groups) == 2 for span in engine_of(run.client).coverage.unwitnessed)


async def test_blocks_after_a_reorganization_are_still_compared() -> None:
    world = World(3, mature=110)
    world.grow(21, share=1)
    done: list[bool] = []

    class Omits(Responder):
        def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
            if block.height == 131 and not done:
                done.append(True)
                self.regtest.reorg(3, blocks=4)
            super().send_merkleblock(block, () if 120 <= block.height <= 125 else matched)

    async with (
        Node(world.regtest, responder=Omits) as liar,
        Node(world.regtest) as honest,
        running(world, liar, honest) as run,
    ):
        await run.until(lambda _: done)
        await run.synced(world)
        world.regtest.mine()
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert {warning.address for warning in run.books.warnings if warning.banned} <= {where(liar)}


@pytest.mark.parametrize("honest", [0, 1])
async def test_a_request_without_its_last_block_is_not_awaited(honest: int) -> None:
    world = World(3, mature=110)
    world.grow(20, share=1)
    forgotten: list[int] = []

    class Forgets(Responder):
        def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
            if block.height == self.regtest.height and not forgotten:
                forgotten.append(block.height)
            else:
                super().send_merkleblock(block, matched)

    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(Node(world.regtest, responder=responder))
            for responder in [Forgets, *[Responder] * honest]
        ]
        limits = replace(FAST, stall_s=3_600, reply_s=3_600)
        run = await stack.enter_async_context(running(world, *nodes, limits=limits))
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
