"""A scripted HTTP server that responds as BlindBit Oracle documents, with faults on demand. No assertions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from support.peers.corenode import JSON, response

Answer = Callable[[int], tuple[bytes, Sequence[bytes]]]
"""Returns the hash of a block by its height, and its tweaks."""


class HttpTweakServer:
    """Answers requests; `faults` has raw answers by the path."""

    def __init__(self, answer: Answer, tip: int) -> None:
        self.answer = answer
        self.tip = tip
        self.info: dict[str, Any] = {"network": "regtest", "height": tip, "tweaks_full_basic": True}
        self.faults: dict[str, bytes | None] = {}
        self.asked: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[HttpTweakServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to one request, and close the connection. An answer None never comes."""
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
            self.asked.append(path)
            if (raw := self.faults.get(path, self._usual(path))) is None:
                await reader.read()
            else:
                writer.write(raw)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _usual(self, path: str) -> bytes:
        if path == "/info":
            return response(200, json.dumps(self.info).encode(), JSON, Connection="close")
        height = int(path.removeprefix("/tweaks/"))
        if height > self.tip:
            return response(500, b'{"error": "could not fetch block hash"}', JSON, Connection="close")
        block, tweaks = self.answer(height)
        place = {"block_hash": block[::-1].hex(), "block_height": height}
        found = {"block_identifier": place, "index": [each.hex() for each in tweaks]}
        return response(200, json.dumps(found).encode(), JSON, Connection="close")
