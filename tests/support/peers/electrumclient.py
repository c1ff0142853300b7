"""A bare client of the Electrum protocol for tests: lines of JSON, and the notifications that have come."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from typing import Any, Self


class ElectrumError(Exception):
    """An answer is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]


class ElectrumClient:
    """One connection. Notifications are kept in the order in which they came."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.notices: list[tuple[str, list[Any]]] = []
        self.changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._tls, limit=1 << 24)
        self.reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.reading.cancel()
        await closed(self.writer)
        await asyncio.gather(self.reading, return_exceptions=True)

    async def _read(self) -> None:
        while line := await self.reader.readline():
            message = json.loads(line)
            for each in message if isinstance(message, list) else [message]:
                if "method" in each:
                    self.notices.append((each["method"], each["params"]))
                else:
                    self._waiting.pop(each["id"]).set_result(each)
            self.changed.set()
            self.changed = asyncio.Event()
        for future in self._waiting.values():
            future.set_exception(ConnectionError("the server has closed the connection"))

    def _request(self, method: str, arguments: object) -> dict[str, Any]:
        self._number += 1
        self._waiting[self._number] = asyncio.get_running_loop().create_future()
        return {"jsonrpc": "2.0", "id": self._number, "method": method, "params": arguments}

    async def _answer(self, future: asyncio.Future[Any]) -> Any:
        answer = await asyncio.wait_for(future, 30)
        if answer.get("error") is not None:
            raise ElectrumError(answer["error"])
        return answer["result"]

    async def ask(self, method: str, *arguments: object, **named: object) -> Any:
        request = self._request(method, named or arguments)
        future = self._waiting[request["id"]]
        self.writer.write(json.dumps(request).encode() + b"\n")
        return await self._answer(future)

    async def batch(self, *requests: tuple[Any, ...]) -> list[Any]:
        made = [self._request(method, arguments) for method, *arguments in requests]
        futures = [self._waiting[each["id"]] for each in made]
        self.writer.write(json.dumps(made).encode() + b"\n")
        return [await self._answer(future) for future in futures]

    async def until(self, condition: Any) -> None:
        """Wait for notifications until a condition is true."""
        async with asyncio.timeout(30):
            while not condition():
                await self.changed.wait()


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait until it is closed."""
    writer.close()
    with suppress(OSError):  # the server may have closed it first
        await writer.wait_closed()
