"""bcoin as a child process behind driver.js: calls go in, events come out. No assertions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

DRIVER = Path(__file__).parents[2] / "bcoin/driver.js"
PATIENCE_S = 60  # for anything
_LONGEST_LINE = 16_000_000  # bytes: a block in hex


class BcoinError(Exception):
    """bcoin refused a call, or has ended."""


class Bcoin:
    """A running node. `events` holds all events so far, oldest first."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.port = 0  # of a full node, on 127.0.0.1
        self.rpc_port = 0  # of its JSON-RPC, if it was started with a key
        self.events: list[dict[str, Any]] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Condition()
        self._ended = False
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, params: object = None) -> Any:
        """Call a method of driver.js (`params` is an object) or of bcoin's RPC (`params` is a list). Raises
        BcoinError.
        """
        if self._ended:
            raise BcoinError("bcoin has ended")
        assert self.process.stdin is not None
        number = len(self._waiting)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_S):
            return await answer

    async def event(self, kind: str, which: Callable[[dict[str, Any]], bool] = lambda event: True) -> dict[str, Any]:
        """The first event of a kind that `which` accepts, past or future. Raises BcoinError if bcoin ends."""

        def found() -> dict[str, Any] | None:
            return next((event for event in self.events if event["event"] == kind and which(event)), None)

        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(lambda: self._ended or found())
            if (event := found()) is None:
                raise BcoinError(f"bcoin has ended without a {kind} event")
            return event

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            told = json.loads(line)
            if "event" in told:
                async with self._news:
                    self.events.append(told)
                    self._news.notify_all()
            elif "error" in told:
                self._waiting[told["id"]].set_exception(BcoinError(told["error"]))
            else:
                self._waiting[told["id"]].set_result(told.get("result"))
        async with self._news:
            self._ended = True
            self._news.notify_all()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(BcoinError("bcoin has ended"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """End it: it goes when its standard input closes."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self.process.wait()
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await self._reading


@asynccontextmanager
async def running_bcoin(*arguments: str) -> AsyncIterator[Bcoin]:
    """Start driver.js with these arguments and wait until it is ready. Its standard error is the tests'."""
    pipe = asyncio.subprocess.PIPE
    words = ["node", str(DRIVER), *arguments]
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, limit=_LONGEST_LINE)
    async with Bcoin(process) as bcoin:
        ready = await bcoin.event("ready")
        bcoin.port, bcoin.rpc_port = ready.get("port", 0), ready.get("rpc", 0)
        yield bcoin
