"""The embedded node under load and at shutdown: many connections, bounded memory, peers that flood or do not read."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from spvfilter.errors import ParameterError
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock, p2wpkh
from spvfilter.node.server import SETTINGS, Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from support.blocks.build import var_int
from support.peers.nodeclient import (
    BLOCK,
    FILTERED_BLOCK,
    TX,
    WTX,
    Client,
    client,
    connection,
    inventory,
    locate,
    message,
    version_payload,
)
from support.vectors import effort

LOCK = p2wpkh(b"\x03" + bytes(32))
CONNECTIONS = 500
MOST_BETWEEN = 10  # messages from or to one connection between a ping of another and its pong; the buffers hold some


def regtest(blocks: int = 101) -> Regtest:
    made = Regtest(clock=lambda: 1_700_000_000)
    made.mine(blocks)
    return made


def with_large_block() -> Regtest:
    made = regtest()
    large = Lock(b"", bytes(900_000)).spends(OutPoint(made.chain.active[1].txids[0], 0))
    made.mine(transactions=[build_tx([large], [TxOut(1, LOCK.script_pubkey)])])
    return made


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files to hold both ends of 500 connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * CONNECTIONS
    if soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_500_connections_get_announcements_and_responses(many_files: None) -> None:
    made = regtest()
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node(made))
        peers = [await stack.enter_async_context(connection(node)) for _ in range(CONNECTIONS)]
        async with asyncio.TaskGroup() as tasks:
            for peer in peers:
                tasks.create_task(peer.greet())
        assert len(node.responders) == CONNECTIONS
        paid = made.pay(LOCK.pays(5))
        made.mine()
        locator = locate([made.chain.active[-3].hash])
        answers = await asyncio.gather(*(peer.ask("getheaders", locator) for peer in peers))
        assert paid not in made.mempool
        told = inventory((BLOCK, made.chain.tip.hash))
        assert all([command for command, _ in answer] in (["headers", "inv"], ["inv", "headers"]) for answer in answers)
        assert all(("inv", told) in answer for answer in answers)


@asynccontextmanager
async def greedy(node: Node) -> AsyncIterator[socket.socket]:
    """A client that requests as much as it can and reads nothing."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        await loop.sock_connect(sock, (node.host, node.port))
        await loop.sock_sendall(sock, message("version", version_payload()) + message("verack"))
        asked = message("getdata", inventory(*[(BLOCK, node.regtest.chain.tip.hash)] * 1_000)) * 20
        await loop.sock_sendall(sock, asked[: 1 << 16])
        yield sock


async def test_peers_that_do_not_read_are_disconnected() -> None:
    made = with_large_block()
    async with Node(made, stall_s=0.5) as node, client(node) as other, AsyncExitStack() as stack:
        tracemalloc.start()
        try:
            count = 20
            for _ in range(count):
                await stack.enter_async_context(greedy(node))
            while len(node.responders) > 1:  # each of them received at most 1 MB and one block more
                await other.answers()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # 1 MB, one more block, and asyncio's copy of a partly sent block, which is complete since Python 3.12
        assert peak < count * 3_000_000
        assert len(await other.ask("getheaders", locate([REGTEST.genesis_hash]))) == 1


async def test_a_claimed_length_takes_no_memory() -> None:
    async with Node() as node, client(node) as other, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(client(node)) for _ in range(50)]
        envelope = message("tx", bytes(4_000_000))[:24]
        tracemalloc.start()
        try:
            for peer in peers:
                await peer.send_bytes(envelope)
            await other.answers()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4_000_000


@pytest.mark.parametrize(
    ("command", "count"), [("junk", effort(20, 80, 400)), ("block", effort(5, 20, 80)), ("tx", effort(2, 4, 80))]
)
async def test_a_flood_of_4_mb_messages_delays_no_pongs(command: str, count: int) -> None:
    txin = bytes(36) + b"\x00" + bytes(4)
    many = 90_000
    tx = b"\x02\0\0\0" + var_int(many) + txin * many + b"\x01" + bytes(9) + bytes(4)
    payload = {"junk": bytes(4_000_000), "block": bytes(80) + b"\x01" + bytes(3_999_919), "tx": tx}[command]
    flood = message(command, payload)
    poured = 0
    async with Node() as node, client(node) as flooder, client(node) as other:

        async def pour() -> None:
            nonlocal poured
            for _ in range(count):
                await flooder.send_bytes(flood)
                poured += 1
            await flooder.answers()

        pouring, pongs = asyncio.create_task(pour()), 0
        while not pouring.done():
            before = poured
            assert await other.answers() == []
            assert poured - before <= MOST_BETWEEN
            pongs += 1
        await pouring
        assert pongs > 0


async def test_a_flood_of_small_requests_delays_no_pongs() -> None:
    made = regtest(2_000)
    came = 0
    async with Node(made) as node, client(node) as flooder, client(node) as other:
        flood = message("getheaders", locate([REGTEST.genesis_hash])) * 100

        async def pour() -> None:
            nonlocal came
            await flooder.send_bytes(flood)
            while came < 100:
                assert (await flooder.receive())[0] == "headers"
                came += 1

        pouring = asyncio.create_task(pour())
        while not pouring.done():
            before = came
            assert await other.answers() == []
            assert came - before <= MOST_BETWEEN
        await pouring


async def test_connections_above_the_limit_are_refused() -> None:
    async with Node(max_connections=2) as node, client(node) as one, client(node):
        async with connection(node) as third:
            with pytest.raises((EOFError, ConnectionError)):
                await third.greet()
        assert len(node.responders) == 2
        one.writer.close()
        await one.writer.wait_closed()
        async with client(node) as fourth:
            assert await fourth.answers() == []
    with pytest.raises(ParameterError, match="max_connections must be at least 1, not 0"):
        Node(max_connections=0)


async def test_a_peer_without_a_handshake_is_disconnected() -> None:
    async with (
        Node(settings=replace(SETTINGS, handshake_s=0.05)) as node,
        connection(node) as silent,
        client(node) as prompt,
    ):
        assert await silent.reader.read() == b""
        assert await prompt.answers() == []


async def test_a_node_sends_a_ping_after_the_handshake() -> None:
    async with Node() as node, client(node) as peer:
        assert (await peer.receive_any())[0] == "ping"


async def test_a_peer_that_sends_no_pongs_is_disconnected() -> None:
    async with (
        Node(settings=replace(SETTINGS, ping_interval_s=0.05, ping_timeout_s=0.05)) as node,
        client(node) as peer,
    ):
        assert (await peer.receive_any())[0] == "ping"
        assert await peer.reader.read() == b""


async def test_a_failing_responder_ends_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from spvfilter.node.responder import Responder

    class Broken(Responder):
        def send_headers(self, blocks: object) -> None:
            raise RuntimeError("on purpose")

    async with Node(responder=Broken) as node, client(node) as peer, client(node) as other:
        await peer.send("getheaders", locate([REGTEST.genesis_hash]))
        assert await peer.is_cut()
        assert await other.answers() == []
    assert "on purpose" in caplog.text


async def test_a_responder_may_lie() -> None:
    from spvfilter.node.responder import Responder
    from spvfilter.wire.messages.table import Message, Tx

    class Omitting(Responder):
        def send(self, message: Message) -> None:
            if not isinstance(message, Tx):
                super().send(message)

    made = regtest()
    paid = made.pay(LOCK.pays(5))
    async with (
        Node(made, responder=Omitting) as liar,
        Node(made) as honest,
        client(liar) as cheated,
        client(honest) as served,
    ):
        assert await cheated.ask("getdata", inventory((TX, paid))) == []
        assert len(await served.ask("getdata", inventory((TX, paid)))) == 1


async def test_leaving_closes_every_connection_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    made = with_large_block()
    async with AsyncExitStack() as stack:
        async with Node(made) as node:
            peers = [await stack.enter_async_context(client(node)) for _ in range(5)]
            half = await stack.enter_async_context(connection(node))
            await stack.enter_async_context(greedy(node))
            await peers[0].answers()
        for peer in (*peers, half):
            assert await is_over(peer)
        assert node.responders == []
        assert made.listeners == []
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(node.host, node.port)
    assert asyncio.all_tasks() == before


async def is_over(peer: Client) -> bool:
    try:
        await peer.receive()
    except (EOFError, ConnectionError):
        return True
    return False


async def test_cancelling_the_nodes_task_closes_the_node() -> None:
    before = asyncio.all_tasks()
    started: asyncio.Future[Node] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with Node() as node:
            started.set_result(node)
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    node = await started
    async with client(node) as peer:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await is_over(peer)
    assert asyncio.all_tasks() == before


async def test_a_used_port_is_an_error() -> None:
    async with Node() as node:
        with pytest.raises(OSError, match="address already in use"):
            async with Node(port=node.port):
                pass
    async with node, client(node) as peer:
        assert await peer.answers() == []


async def test_mutated_messages_never_break_the_node(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(1)
    made = with_large_block()
    pending = made.find_tx(made.pay(LOCK.pays(5)))
    assert pending is not None
    tip = made.chain.tip.hash
    samples = [
        ("getheaders", locate([tip, REGTEST.genesis_hash])),
        ("getblocks", locate([REGTEST.genesis_hash])),
        (
            "getdata",
            inventory((BLOCK, REGTEST.genesis_hash), (FILTERED_BLOCK, tip), (TX, pending.txid), (WTX, pending.wtxid)),
        ),
        ("inv", inventory((TX, tip), (BLOCK, tip))),
        ("tx", pending.raw),
        ("filterload", b"\x05abcde" + bytes((5, 0, 0, 0)) + bytes(4) + b"\x01"),
        ("filteradd", b"\x03abc"),
        ("filterclear", b""),
        ("mempool", b""),
        ("feefilter", bytes(8)),
        ("sendheaders", b""),
        ("headers", b"\x01" + made.chain.tip.raw[:80] + b"\0"),
        ("version", version_payload()),
        ("ping", bytes(8)),
    ]
    async with Node(made) as node, client(node) as other:
        left = effort(300, 3_000, 100_000)
        while left:
            async with client(node) as peer:
                for _ in range(min(left, 100)):
                    left -= 1
                    command, payload = rng.choice(samples)
                    mutated = bytearray(payload)
                    for _ in range(rng.choice((0, 1, 1, 3))):
                        if mutated:
                            mutated[rng.randrange(len(mutated))] = rng.choice(
                                (0, 1, 0x7F, 0xFD, 0xFF, rng.randrange(256))
                            )
                    if rng.random() < 0.2:
                        del mutated[rng.randrange(1 + len(mutated)) :]
                    peer.writer.write(message(command, bytes(mutated)))
                await peer.is_cut()
        assert await is_answered(other)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def is_answered(peer: Client) -> bool:
    """Return True if the node still answers getheaders."""
    return "headers" in [command for command, _ in await peer.ask("getheaders", locate([REGTEST.genesis_hash]))]
