"""Our sans-IO session on a socket, driven by a test. No assertions."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from spvfilter.wire.events import Fenced, Misbehaved, Ready, Received, Role, SessionEnded, SessionEvent, Settings
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session

PATIENCE_S = 60  # for anything
M = TypeVar("M")


class Conversation:
    """A connection driven by a test, which sends, then reads until it has what it needs."""

    def __init__(self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.session = session
        self._reader = reader
        self._writer = writer

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.session.send(message)

    async def event(self) -> SessionEvent:
        """The next event. Raises the peer's error when the session has ended, or when something was dropped."""
        while (event := self.session.next_event()) is None:
            self._writer.write(self.session.data_to_send())
            await self._writer.drain()
            if data := await self._reader.read(1 << 16):
                self.session.receive_data(data)
            else:
                self.session.receive_eof()
        if isinstance(event, (Misbehaved, SessionEnded)):
            raise event.error or EOFError
        return event

    async def ready(self) -> Ready:
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(event := await self.event(), Ready):
                pass
            return event

    async def message(self, kind: type[M], which: Callable[[M], bool] = lambda message: True) -> M:
        """The next message of a kind that `which` accepts; earlier ones are skipped."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event = await self.event()
                if isinstance(event, Received) and isinstance(event.message, kind) and which(event.message):
                    return event.message

    async def answers(self, *messages: Message) -> list[Message]:
        """Send messages and a ping, and return everything received before its pong."""
        self.send(*messages)
        nonce = self.session.fence(time.monotonic())
        told: list[Message] = []
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(event := await self.event(), Fenced) or event.nonce != nonce:
                if isinstance(event, Received):
                    told.append(event.message)
        return told


@asynccontextmanager
async def conversation(port: int, settings: Settings) -> AsyncIterator[Conversation]:
    """A connection to 127.0.0.1 before the handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        session = Session(
            settings,
            Role.OUTBOUND,
            draw_nonce=lambda: secrets.randbits(64),
            now=time.monotonic(),
            timestamp=int(time.time()),
        )
        yield Conversation(session, reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
