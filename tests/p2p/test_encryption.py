"""Encrypted connections (BIP-324) to nodes with and without them: which transport is used, and when it falls back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from spvfilter.errors import EnvelopeError, ParameterError, PeerError, SessionError
from spvfilter.network import REGTEST, SIGNET
from spvfilter.node.server import SERVICES, SETTINGS as NODE_SETTINGS, Node
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.wire import v2
from spvfilter.wire.events import Cause, Fenced, Service, Settings
from spvfilter.wire.transport import Transport, V2Policy
from support.peers.nodeclient import message, version_payload
from support.peers.v2peers import without_extra

pytestmark = pytest.mark.v2

SETTINGS = Settings(REGTEST)
PLAIN = replace(NODE_SETTINGS, services=SERVICES & ~Service.P2P_V2)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@dataclass
class Server:
    """A server that is no node: `connections` has the first bytes of each connection."""

    address: Address
    connections: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Server]:
    """A server that reads the first bytes of each connection and then calls `serve`."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        found.connections.append(await reader.readexactly(24))
        serve(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    found = Server(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        yield found
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)
        await server.wait_closed()


def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def is_plain(first: bytes) -> bool:
    return first.startswith(REGTEST.magic + b"version")


async def opened(address: Address, policy: V2Policy, **options: object) -> Connection:
    async with asyncio.timeout(20):
        return await Connection.open(address, SETTINGS, v2=policy, **options)  # type: ignore[arg-type]  # by name


def to(node: Node) -> Address:
    return Address(node.host, node.port)


@pytest.mark.parametrize(
    ("policy", "settings", "transport"),
    [
        (V2Policy.PREFER, NODE_SETTINGS, Transport.V2),
        (V2Policy.REQUIRE, NODE_SETTINGS, Transport.V2),
        (V2Policy.OFF, NODE_SETTINGS, Transport.V1),
        (V2Policy.PREFER, PLAIN, Transport.V1),
        (V2Policy.OFF, PLAIN, Transport.V1),
    ],
)
async def test_the_policy_decides_the_transport(policy: V2Policy, settings: Settings, transport: Transport) -> None:
    async with Node(settings=settings) as node:
        connection = await opened(to(node), policy)
        assert connection.transport is transport
        nonce = connection.fence()
        while await connection.receive() != Fenced(nonce):
            pass
        (responder,) = node.responders
        assert responder.session.transport is transport
        connection.close()


async def test_a_required_encryption_never_falls_back() -> None:
    async with Node(settings=PLAIN) as node:
        with pytest.raises(
            SessionError, match=r"before its first byte: it does not support v2 transport \(BIP-324\)"
        ) as told:
            await opened(to(node), V2Policy.REQUIRE)
        assert told.value.cause == Cause.NO_V2
        assert node.responders == []


async def test_a_peer_that_closes_is_connected_once_more_without_encryption() -> None:
    async with serving(close) as server:
        with pytest.raises(SessionError, match="before its first message") as told:
            await opened(server.address, V2Policy.PREFER)
        assert told.value.cause == Cause.LOST
        assert [is_plain(first) for first in server.connections] == [False, True]


@pytest.mark.parametrize("answer", [b"\xfa", b"HTTP/1.1 400", bytes(64), bytes(200), bytes(6_000)])
async def test_no_fallback_follows_a_received_byte(answer: bytes) -> None:
    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with serving(serve) as server:
        with pytest.raises(PeerError):
            await opened(server.address, V2Policy.PREFER)
        assert [is_plain(first) for first in server.connections] == [False]


async def test_no_fallback_follows_silence() -> None:
    async with serving(lambda reader, writer: None) as server:
        with pytest.raises(SessionError, match=r"sent nothing within .* which needs v2='off'"):
            await opened(server.address, V2Policy.PREFER, limits=Limits(first_byte_s=0.05))
        assert [is_plain(first) for first in server.connections] == [False]


async def test_no_fallback_follows_a_handshake_that_takes_too_long() -> None:
    now = [0.0]

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now[0] += 61.0
        writer.write(bytes(64))

    async with serving(serve) as server:
        with pytest.raises(SessionError) as told:
            await opened(server.address, V2Policy.PREFER, clock=Clock(monotonic=lambda: now[0]))
        assert told.value.cause == Cause.HANDSHAKE_TIMEOUT
        assert [is_plain(first) for first in server.connections] == [False]


async def test_no_fallback_follows_a_refused_connection() -> None:
    async with serving(close) as server:
        pass
    with pytest.raises(ConnectionRefusedError):
        await opened(server.address, V2Policy.PREFER)


async def test_an_http_server_is_named_on_an_encrypted_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.p2p.connection.PROMPT_S", 0.05)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with pytest.raises(EnvelopeError, match="answered as an HTTP server, not as a Bitcoin node"):
            await opened(Address("127.0.0.1", server.server_port), V2Policy.PREFER, draw_bytes=_dull)
        server.shutdown()
        thread.join()


def _dull(size: int) -> bytes:
    """Bytes for a key and for 257 bytes of garbage, without a line end."""
    return b"\1" * size


async def test_a_slow_node_takes_the_line_end_as_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.p2p.connection.PROMPT_S", 0.0)
    async with Node() as node:
        connection = await opened(to(node), V2Policy.REQUIRE)
        assert connection.transport is Transport.V2
        connection.close()


async def test_both_attempts_share_the_time_of_one_handshake() -> None:
    now_s = 1_000.0
    clock = Clock(lambda: now_s)

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now_s
        now_s += 40
        if len(server.connections) == 1:
            writer.close()  # the client connects again without encryption
        else:
            writer.write(b"\0")  # a drop of a version message

    async with serving(serve) as server:
        with pytest.raises(PeerError, match="no version message within 80 s"):
            await opened(server.address, V2Policy.PREFER, clock=clock)
        assert [is_plain(each) for each in server.connections] == [False, True]


async def test_the_injected_random_bytes_determine_the_sent_bytes() -> None:
    starts = []
    for _ in range(2):
        async with serving(close) as server:
            with pytest.raises(SessionError):
                await opened(server.address, V2Policy.REQUIRE, draw_bytes=_dull)
            starts += server.connections
    assert starts[0] == starts[1]


# The node


async def exchange(node: Node, data: bytes) -> bytes:
    """The answer of a node to these bytes, up to the end of the connection."""
    reader, writer = await asyncio.open_connection(node.host, node.port)
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_the_node_answers_each_transport_in_its_own_way() -> None:
    async with Node() as node:
        plain = await exchange(node, message("version", version_payload()))
        assert is_plain(plain)
        assert len(await exchange(node, b"\1")) >= v2.KEY_SIZE
        assert len(await exchange(node, REGTEST.magic + b"versio_")) >= v2.KEY_SIZE
        assert await exchange(node, REGTEST.magic + b"version") == b""


async def test_the_node_drops_a_plain_peer_of_another_network() -> None:
    async with Node() as node:
        wrong = SIGNET.magic + message("version", version_payload())[4:]
        assert not is_plain(await exchange(node, wrong))
        assert node.responders == []


async def test_the_node_states_the_service() -> None:
    async with Node() as node:
        connection = await opened(to(node), V2Policy.OFF)
        assert connection.services & Service.P2P_V2
        connection.close()


def test_a_node_with_the_service_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    with pytest.raises(ParameterError, match=r"extra `bip324`"):
        Node(settings=NODE_SETTINGS)
    Node(settings=PLAIN)
