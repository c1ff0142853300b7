"""The errors of SOCKS5 proxies explain Tor's codes, and name programs that are no SOCKS5 proxy."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from spvfilter.p2p.proxy import Proxy

REPLIES = {
    b"\x05\xf0": "cannot find the descriptor of this onion service",
    b"\x05\xf1": "descriptor of this onion service is invalid",
    b"\x05\xf2": "introduction points",
    b"\x05\xf3": "rendezvous",
    b"\x05\xf4": "requires client authorization",
    b"\x05\xf5": "rejects Tor's client authorization",
    b"\x05\xf6": "not a valid onion address",
    b"\x05\xf7": "took too long",
    b"\x05\x05": "the proxy cannot connect: Connection refused",
    b"\x05\xee": "the proxy cannot connect: Invalid reply code: 0XEE",
}


async def refusal(greeting: bytes, reply: bytes) -> str:
    """Return the error of a connection through a program that answers with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readexactly(3)
            writer.write(greeting)
            await reader.readexactly(5)
            writer.write(reply)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionRefusedError) as caught:
            (await Proxy("127.0.0.1", port).connect("a" * 56 + ".onion", 8333, 20)).close()
    return str(caught.value)


@pytest.mark.parametrize("code", REPLIES)
async def test_codes_of_tor_are_explained(code: bytes) -> None:
    assert REPLIES[code] in await refusal(b"\x05\x00", code + b"\x00\x01" + bytes(6))


async def test_program_without_socks_is_named() -> None:
    assert "it answered like HTTP" in await refusal(b"HTTP/1.1 400 Bad Request\r\n\r\n", b"")
    assert "this is not a SOCKS5 proxy" in await refusal(b"SSH-2.0-x\r\n", b"")
