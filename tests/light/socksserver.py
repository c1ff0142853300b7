"""A SOCKS5 proxy on loopback for tests (RFC 1928, 1929), which resolves the given names and fails on demand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

IPV4, NAME, IPV6 = 1, 3, 4


@dataclass
class SocksProxy:
    """`names` are resolved only here. `reply` replaces the answer to a request; b"" closes, None is an honest
    answer.
    """

    names: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    user: tuple[str, str] | None = None
    reply: bytes | None = None
    silent: bool = False
    greeting: bytes | None = None  # in place of the first answer
    asked: list[tuple[int, str, int]] = field(default_factory=list)  # kind of address, host, port
    failed_logins: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        credentials = f"{self.user[0]}:{self.user[1]}@" if self.user else ""
        return f"socks5://{credentials}127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[SocksProxy]:
        """Run the server in a thread with its own loop, so that all tasks of the test's loop are the client's."""
        stop, ready = asyncio.Event(), threading.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await stop.wait()
            server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        with closing(loop):
            thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
            thread.start()
            try:
                assert ready.wait(10)
                yield self
            finally:
                loop.call_soon_threadsafe(stop.set)
                thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                if await self._greet(reader, writer):
                    await self._relay(reader, writer)
        finally:
            writer.transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        if self.silent:
            await reader.read()  # until the client gives up
            return False
        wanted = 2 if self.user else 0
        writer.write(self.greeting if self.greeting is not None else bytes((5, wanted if wanted in methods else 0xFF)))
        if self.greeting is not None or wanted not in methods:
            return False
        if self.user is None:
            return True
        await reader.readexactly(1)
        said = [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
        good = said == list(self.user)
        self.failed_logins += not good
        writer.write(bytes((1, not good)))
        return good

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, command, _, kind = await reader.readexactly(4)
        assert (version, command) == (5, 1)
        if kind == NAME:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
        else:
            host = ".".join(map(str, await reader.readexactly({IPV4: 4, IPV6: 16}[kind])))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((kind, host, port))
        if self.reply is not None:
            writer.write(self.reply)
            return
        if kind == NAME and host not in self.names:
            writer.write(b"\x05\x04\x00\x01" + bytes(6))  # host unreachable
            return
        try:
            there, back = await asyncio.open_connection(*self.names.get(host, (host, port)))
        except OSError:
            writer.write(b"\x05\x05\x00\x01" + bytes(6))  # refused
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, back))
                group.create_task(_pump(there, writer))
        finally:
            back.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        sink.write(data)
        await sink.drain()
    sink.close()
