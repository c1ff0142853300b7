"""A connection over loopback: addresses, clocks, back-pressure, fences, and peers that violate the protocol."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spvfilter.errors import EnvelopeError, ParameterError, PeerError, SessionError
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.wire.events import Cause, Fenced, Received, Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.session import MAX_SEND_BUFFER
from support.peers.nodeclient import MAGIC, message, version_payload
from support.peers.sessionparts import prompt, writer_of

SETTINGS = Settings(REGTEST)


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("1.2.3.4", "1.2.3.4", 18444, "1.2.3.4:18444"),
        ("1.2.3.4:5", "1.2.3.4", 5, "1.2.3.4:5"),
        (" node.example.org:8333 ", "node.example.org", 8333, "node.example.org:8333"),
        ("::1", "::1", 18444, "[::1]:18444"),
        ("[::1]", "::1", 18444, "[::1]:18444"),
        ("[::1]:7", "::1", 7, "[::1]:7"),
        ("abcdefghij234567.onion", "abcdefghij234567.onion", 18444, "abcdefghij234567.onion:18444"),
    ],
)
def test_an_address_is_parsed_and_shown(text: str, host: str, port: int, shown: str) -> None:
    address = Address.parse(text, 18444)
    assert (address.host, address.port, str(address)) == (host, port, shown)


@pytest.mark.parametrize(
    "text",
    ["", ":1", "[::1", "[::1]x", "host:", "host:0", "host:65536", "host:１", "host:-1", "a b", "a..b", "http://x"],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        Address.parse(text, 18444)


@pytest.mark.parametrize("given", [("127.0.0.1", 8333), b"127.0.0.1", 8333, None])
def test_an_address_of_another_type_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=f"a str such as 'HOST:PORT', not {type(given).__name__}$"):
        Address.parse(given, 18444)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"reply_s": value} for value in (0, -1, float("nan"), "2", None, True)),
        *({name: value} for name in ("flight", "flights", "filters", "filter_flights") for value in (0, -1, 1.5, True)),
        {"filters": 1_001},
        {"flight": 50_001},
    ],
)
def test_limits_must_be_valid_numbers(wrong: dict[str, Any]) -> None:
    """With zero requests in flight, the client would silently request nothing. Other values caused an
    internal error.
    """
    (name,) = wrong
    with pytest.raises(ParameterError, match=f"^{name} (is|must be) "):
        Limits(**wrong)


def to(node: Node) -> Address:
    return Address(node.host, node.port)


async def test_messages_and_fences_are_answered_in_order() -> None:
    regtest = Regtest(clock=lambda: 1_700_000_000)
    regtest.mine(5)
    async with Node(regtest) as node:
        connection = await Connection.open(to(node), SETTINGS)
        assert connection.ready.version.start_height == 5
        await connection.send(wire.GetHeaders((REGTEST.genesis_hash,)))
        nonce = connection.fence()
        received = await connection.receive()
        while not (isinstance(received, Received) and isinstance(received.message, wire.Headers)):
            received = await connection.receive()
        assert len(received.message.headers) == 5
        assert await connection.receive() == Fenced(nonce)
        connection.close()
        with pytest.raises(ConnectionAbortedError):
            await connection.receive()


def test_a_resolver_that_hangs_blocks_no_other_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A laptop without network has such a resolver. In an earlier version, Ctrl-C waited for it, and filter matching
    waited for its thread.
    """
    answers, threads = threading.Event(), list[str]()

    def getaddrinfo(*args: Any, **named: Any) -> Any:
        threads.append(threading.current_thread().name)
        answers.wait(30.0)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    async def connect() -> None:
        with pytest.raises(TimeoutError, match=r"no connection within 0\.05 s"):
            await Connection.open(Address("node.example", 1), SETTINGS, limits=Limits(connect_s=0.05))

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    begun = time.monotonic()
    asyncio.run(connect())
    assert time.monotonic() - begun < 20.0
    answers.set()
    assert threads == ["spvfilter-dns"]


async def test_the_first_reachable_address_of_a_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    def getaddrinfo(*args: Any, **named: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in found]

    async with Node() as node:
        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        found[:] = ["127.0.0.9", "127.0.0.9", node.host]
        connection = await Connection.open(Address("node.example", node.port), SETTINGS)
        assert connection.host == node.host
        connection.close()
        for left, why in ((["127.0.0.9"], "127.0.0.9"), ([], "no IP address")):
            found[:] = left
            with pytest.raises(OSError, match=why):
                await Connection.open(Address("node.example", node.port), SETTINGS)


@pytest.mark.parametrize("host", ["abcdefghij234567.onion", "ABCDEFGHIJ234567.Onion"])
async def test_onion_addresses_are_never_resolved(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def getaddrinfo(*args: Any, **named: Any) -> Any:
        asked.append(args)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(OSError, match="Tor"):
        await Connection.open(Address(host, 8333), SETTINGS)
    assert not asked


async def test_a_port_without_a_server_refuses_the_connection() -> None:
    async with Node() as node:
        address = to(node)
    with pytest.raises(OSError):
        await Connection.open(address, SETTINGS)


async def served(first: bytes, *, read: bool = True) -> tuple[asyncio.Server, Address, list[asyncio.StreamWriter]]:
    """A server that sends `first` after version and verack to each client, and nothing more."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(message("version", version_payload()) + message("verack") + first)
        while read and await reader.read(1 << 16):
            pass

    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    server = await asyncio.start_server(serve, sock=listening)
    return server, Address("127.0.0.1", listening.getsockname()[1]), writers


async def closed(server: asyncio.Server, writers: list[asyncio.StreamWriter]) -> None:
    server.close()
    for writer in writers:
        writer.transport.abort()
    await asyncio.sleep(0)
    await server.wait_closed()


@pytest.mark.parametrize(
    ("first", "error"),
    [
        (b"\x00" * 24, EnvelopeError),
        (MAGIC + b"tx".ljust(12, b"\0") + b"\xff\xff\xff\xff" + bytes(4), EnvelopeError),
        (message("wtxidrelay"), SessionError),
    ],
)
async def test_a_peer_that_breaks_the_stream_is_disconnected(first: bytes, error: type[PeerError]) -> None:
    server, address, writers = await served(first)
    connection = await Connection.open(address, SETTINGS)
    with pytest.raises(error):
        await connection.receive()
    await closed(server, writers)


async def test_a_peer_without_pongs_is_disconnected() -> None:
    server, address, writers = await served(b"")
    now, step = [0.0], [0.0]

    def monotonic() -> float:
        now[0] += step[0]  # at each reading of the clock
        return now[0]

    connection = await Connection.open(address, SETTINGS, clock=Clock(monotonic=monotonic))
    step[0] = 5_000
    with pytest.raises(SessionError) as told:
        await connection.receive()
    assert told.value.cause == Cause.PING_TIMEOUT
    await closed(server, writers)


async def test_silence_during_the_handshake_ends_the_connection() -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(SessionError) as told:
        await Connection.open(address, replace(SETTINGS, handshake_s=0.05))
    assert told.value.cause == Cause.HANDSHAKE_TIMEOUT
    await closed(server, writers)


async def test_a_silent_peer_is_named_before_the_handshake_times_out() -> None:
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(SessionError, match=r"sent nothing within 0\.05 s: it is not a Bitcoin node, or") as told:
        async with asyncio.timeout(10):
            await Connection.open(address, SETTINGS, limits=Limits(first_byte_s=0.05))
    assert told.value.cause == Cause.HANDSHAKE_TIMEOUT
    await closed(server, writers)


async def test_a_line_end_makes_an_http_server_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.p2p.connection.PROMPT_S", 0.05)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        with pytest.raises(EnvelopeError, match="answered as an HTTP server, not as a Bitcoin node"):
            async with asyncio.timeout(10):
                await Connection.open(Address("127.0.0.1", server.server_port), SETTINGS, draw_nonce=lambda: 1)
        server.shutdown()
        serving.join()


async def test_a_slow_node_ignores_the_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.p2p.connection.PROMPT_S", 0.0)
    async with Node() as node:
        connection = await Connection.open(to(node), SETTINGS)
        prompt(connection)
        connection.received = 0
        prompt(connection)
        nonce = connection.fence()
        while await connection.receive() != Fenced(nonce):
            pass
        connection.close()


async def test_pongs_to_a_peer_that_does_not_read_are_bounded() -> None:
    flood = message("ping", bytes(8)) * 60_000  # 2 MB of pongs
    server, address, writers = await served(flood, read=False)
    connection = await Connection.open(address, SETTINGS, limits=Limits(send_s=0.2))
    writer_of(connection).get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    with pytest.raises(SessionError, match="did not read our messages"):
        await connection.receive()
    assert writer_of(connection).transport.get_write_buffer_size() < 2_000_000
    await closed(server, writers)


async def test_messages_to_a_peer_that_does_not_read_are_bounded() -> None:
    """A peer may request a large own transaction many times before the client notices that it does not read."""
    server, address, writers = await served(b"", read=False)
    connection = await Connection.open(address, SETTINGS)
    transport, large = writer_of(connection).transport, wire.Tx(bytes(3_000_000))
    with pytest.raises(ParameterError, match="does not read"):
        for _ in range(100):
            connection.post(large)
    assert transport.get_write_buffer_size() < MAX_SEND_BUFFER + 4_000_000
    connection.close()
    connection.post(large)  # as on any closed connection
    await closed(server, writers)


async def test_cancelled_opening_leaves_no_connection() -> None:
    async with Node() as node:
        for steps in range(30):
            task = asyncio.create_task(Connection.open(to(node), SETTINGS))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(result, Connection):
                result.close()
                with pytest.raises(ConnectionAbortedError):
                    await result.receive()
