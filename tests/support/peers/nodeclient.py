"""A P2P client from struct and hashlib alone, which exchanges messages with a node over a socket. No assertions."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from spvfilter.node.server import Node
from support.blocks.build import sha256d, var_bytes, var_int

MAGIC = bytes.fromhex("fabfb5da")  # regtest
TX, BLOCK, FILTERED_BLOCK, COMPACT_BLOCK, WTX = 1, 2, 3, 4, 5
WITNESS_TX, WITNESS_BLOCK = 0x40000001, 0x40000002
TIMEOUT_S = 20

Received = tuple[str, bytes]  # command, payload


def message(command: str, payload: bytes = b"", checksum: bytes | None = None) -> bytes:
    name = command.encode().ljust(12, b"\0")
    return MAGIC + name + struct.pack("<I", len(payload)) + (checksum or sha256d(payload)[:4]) + payload


def version_payload(
    *, relay: bool = True, version: int = 70016, nonce: int = 7, services: int = 0, height: int = 0
) -> bytes:
    head = struct.pack("<iQq", version, services, 1_700_000_000) + bytes(52) + struct.pack("<Q", nonce)
    return head + var_bytes(b"/raw:1/") + struct.pack("<i?", height, relay)


def locate(locator: Sequence[bytes], stop: bytes = bytes(32)) -> bytes:
    """The payload of getheaders and getblocks."""
    return struct.pack("<I", 70016) + var_int(len(locator)) + b"".join(locator) + stop


def inventory(*items: tuple[int, bytes]) -> bytes:
    """The payload of inv, getdata and notfound."""
    return var_int(len(items)) + b"".join(struct.pack("<I", kind) + hash_ for kind, hash_ in items)


def parse_inventory(payload: bytes) -> list[tuple[int, bytes]]:
    start = {0xFD: 3, 0xFE: 5}.get(payload[0], 1)
    return [
        (int.from_bytes(payload[at : at + 4], "little"), payload[at + 4 : at + 36])
        for at in range(start, len(payload), 36)
    ]


def parse_headers(payload: bytes) -> list[bytes]:
    start = 3 if payload[0] == 0xFD else 1
    return [payload[at : at + 80] for at in range(start, len(payload), 81)]


@dataclass
class Client:
    """One connection; it keeps the messages of the handshake."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: list[Received] = field(default_factory=list)
    _nonce: int = 1_000

    async def send(self, command: str, payload: bytes = b"") -> None:
        await self.send_bytes(message(command, payload))

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(TIMEOUT_S):
            await self.writer.drain()

    async def receive(self) -> Received:
        """The next message that is not a ping. Raises EOFError at the end, ConnectionError if the connection is cut."""
        while (received := await self.receive_any())[0] == "ping":
            pass
        return received

    async def receive_any(self) -> Received:
        """The next message, which may be a ping. Raises the same errors as `receive`."""
        async with asyncio.timeout(TIMEOUT_S):
            envelope = await self.reader.readexactly(24)
            magic, name, size, checksum = struct.unpack("<4s12sI4s", envelope)
            payload = await self.reader.readexactly(size)
        assert (magic, checksum) == (MAGIC, sha256d(payload)[:4])
        return name.rstrip(b"\0").decode(), payload

    async def answers(self) -> list[Received]:
        """All answers of the node to earlier messages: sends a ping and reads up to its pong."""
        self._nonce += 1
        await self.send("ping", struct.pack("<Q", self._nonce))
        found = []
        while (received := await self.receive()) != ("pong", struct.pack("<Q", self._nonce)):
            found.append(received)
        return found

    async def ask(self, command: str, payload: bytes = b"") -> list[Received]:
        await self.send(command, payload)
        return await self.answers()

    async def is_cut(self) -> bool:
        """Whether the node ends the connection instead of answering a ping."""
        try:
            await self.answers()
        except (EOFError, ConnectionError):
            return True
        return False

    async def greet(self, *offers: str, **version: object) -> None:
        await self.send("version", version_payload(**version))  # type: ignore[arg-type]  # by name
        for offer in offers:
            await self.send(offer)
        await self.send("verack")
        while ("verack", b"") not in self.greeting:
            self.greeting.append(await self.receive())


@asynccontextmanager
async def connection(node: Node) -> AsyncIterator[Client]:
    """A socket to the node, before any message."""
    reader, writer = await asyncio.open_connection(node.host, node.port, limit=1 << 20)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def client(node: Node, *offers: str, **version: object) -> AsyncIterator[Client]:
    """A client after its handshake."""
    async with connection(node) as made:
        await made.greet(*offers, **version)
        yield made
