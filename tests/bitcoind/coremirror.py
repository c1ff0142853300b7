"""Runs a functional test of Core against our node: coremirror.py TEST, with the variables CORE_TESTS and MIRROR.

The program MIRROR lets our node follow the Core of the test. Here the other direction is added: blocks that our node
takes go to Core, `setmocktime` moves our clock, and `getpeerinfo` and `ping` are about our connections.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import spvfilter.node
from spvfilter.node import server
from spvfilter.node.regtest import Regtest
from spvfilter.wire.codec import Frame
from spvfilter.wire.session import Session
from support.peers.sessionparts import ping, pings_sent_at

sys.path.insert(0, str(Path(os.environ["CORE_TESTS"], "test/functional")))
TestNode: Any = importlib.import_module("test_framework.test_node").TestNode
AuthServiceProxy: Any = importlib.import_module("test_framework.authproxy").AuthServiceProxy
_FAR_S = 1e6

nodes: list[Any] = []
connections: list[MockedConnection] = []
mocked: list[float] = []  # the time that `setmocktime` has set, if any


def now() -> float:
    return mocked[-1] if mocked else time.time()


class Loop:
    """An event loop whose time is Unix time, and may be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.real = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def time(self) -> float:
        return now()

    def call_at(self, when: float, call: Any) -> asyncio.TimerHandle:
        return self.real.call_later(min(max(0.0, when - now()), _FAR_S), call)


class MockedSession(Session):
    """A session that notes how long pongs took, in seconds."""

    delays: list[int]

    def _converse(self, frame: Frame) -> Any:
        before = dict(self._pings)
        event = super()._converse(frame)
        nonce = int.from_bytes(frame.payload[:8], "little")
        if frame.command == "pong" and nonce in before and nonce not in self._pings:
            self.delays = [*getattr(self, "delays", []), round(now() - before[nonce][0])]
        return event


class MockedConnection(server.ServerConnection):
    def __init__(self, node: server.Node) -> None:
        super().__init__(node)
        self._loop: Any = Loop(self._loop)
        connections.append(self)

    @property
    def is_open(self) -> bool:
        return not self._gone

    def report(self) -> dict[str, int]:
        """Return the fields of `getpeerinfo` that concern pings."""
        session = self.responder.session
        assert isinstance(session, MockedSession)
        delays: list[int] = getattr(session, "delays", [])
        found = {"pingtime": delays[-1], "minping": min(delays)} if delays else {}
        if waiting := pings_sent_at(session):
            found["pingwait"] = round(now() - min(waiting))
        return found

    def tick(self) -> None:
        if self.is_open:
            self._tick()

    def ping(self) -> None:
        if self.is_open:
            ping(self.responder.session, now())
            self.wake()


class MockedRegtest(Regtest):
    """A chain that tells Core of each block."""

    def __init__(self) -> None:
        super().__init__(clock=now)

    def submit_block(self, raw: bytes) -> None:
        super().submit_block(raw)
        AuthServiceProxy(nodes[-1].url, timeout=60).submitblock(raw.hex())


def on_each_connection(name: str) -> None:
    async def do() -> None:
        for connection in connections:
            getattr(connection, name)()

    if connections:
        asyncio.run_coroutine_threadsafe(do(), connections[-1]._loop.real).result(60)


def remember(node: Any, *arguments: Any, **named: Any) -> None:
    begin(node, *arguments, **named)
    nodes.append(node)
    mocked.clear()  # an earlier node made the blocks that several tests share


def setmocktime(node: Any, timestamp: int) -> None:
    node.__getattr__("setmocktime")(timestamp)
    mocked[:] = [float(timestamp)] if timestamp else []
    on_each_connection("tick")


begin, TestNode.__init__ = TestNode.__init__, remember
TestNode.setmocktime = setmocktime
TestNode.getpeerinfo = lambda node: [each.report() for each in connections if each.is_open]
TestNode.ping = lambda node: on_each_connection("ping")
setattr(spvfilter.node, "Regtest", MockedRegtest)  # noqa: B010
setattr(server, "ServerConnection", MockedConnection)  # noqa: B010
setattr(server, "Session", MockedSession)  # noqa: B010

mirror = os.environ["MIRROR"]
exec(compile(Path(mirror).read_bytes(), mirror, "exec"), {"__name__": "__main__", "__file__": mirror})
