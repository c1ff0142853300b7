"""Connection: one socket of the Electrum server, with bounds on waiting requests and on sizes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import Question
from spvfilter.electrum.rpcerrors import RpcError
from spvfilter.electrum.session import Notice, Session
from spvfilter.electrum.status import METHOD, ElectrumStatus
from spvfilter.electrum.wallet import WalletLink
from spvfilter.errors import SpvFilterError

if TYPE_CHECKING:
    import aiorpcx
else:
    aiorpcx = deferred("aiorpcx")

_LOG = logging.getLogger(__name__)
_BUFFER_SIZE = 65_536
"""Bytes of answers that may wait for the other side before the next request is read (asyncio's own limit)."""
_TURN_S = 0.002
"""Seconds that a session answers requests before other tasks get a turn of the event loop (our choice)."""
_VALUES = 25
"""Largest number of values in a request: a package has up to 25 transactions."""
_CLOSE_S = 1.0
"""Seconds to wait at the end until the other side has read the last answer (our choice)."""


class Connection:
    """Reads the requests of one program in their order, and answers them.

    A task answers a request that needs the database or a peer, while the next requests are read. If the largest number
    of tasks is open, the socket is not read until one of them ends.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: WalletLink,
        limits: ElectrumLimits,
        status: Callable[[], ElectrumStatus],
    ) -> None:
        self.session: Session = Session(link.state, limits)
        self._reader = reader
        self._writer = writer
        self._link = link
        self._limits = limits
        self._status = status
        self._rpc = aiorpcx.JSONRPCConnection(aiorpcx.JSONRPCAutoDetect)
        self._rpc.max_response_size = limits.response_size
        self._slots = asyncio.Semaphore(limits.concurrent)
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._is_ending = False
        self._changed: dict[str, None] = {}  # script hashes that may have changed since the last notification
        self._wake = asyncio.Event()
        self._turn_began = 0.0

    def close(self) -> asyncio.Task[None] | None:
        """End the connection. Returns the task that serves it, which ends soon."""
        if self._serving is not None and not self._is_ending:
            self._is_ending = True
            self._serving.cancel()
        return self._serving

    def note(self, changed: Collection[str]) -> None:
        """Note that the tip and these scripts may have changed. A task sends the notifications."""
        subscribed = self.session.subscriptions
        self._changed.update((each, None) for each in changed if each in subscribed)
        self._wake.set()

    async def serve(self) -> None:
        """Answer requests until the other side closes the connection, or breaks the rules of the transport."""
        self._serving = asyncio.current_task()
        notifying = asyncio.create_task(self._notify())
        self._tasks.add(notifying)
        try:
            while line := await self._line():
                if not await self._take(line):
                    break
        except asyncio.CancelledError:
            _LOG.debug("a connection was closed by the server")
        except Exception as error:
            self._is_ending = True
            self._fail(error)
        finally:
            self._is_ending = True  # from now on, `close` does not cancel this task
            for task in self._tasks:
                task.cancel()
            self._writer.close()
            with suppress(OSError, TimeoutError):  # the last answer may be under way
                async with asyncio.timeout(_CLOSE_S):
                    await self._writer.wait_closed()
            self._writer.transport.abort()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _line(self) -> bytes:
        """Return the next line; nothing at the end of the stream, after a long silence, or if a line is too long."""
        try:
            async with asyncio.timeout(self._limits.idle_timeout_s):
                return await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except TimeoutError:
            _LOG.debug("a connection was closed: no request for %d seconds", self._limits.idle_timeout_s)
            return b""
        except asyncio.LimitOverrunError:
            _LOG.info("a connection was closed: a request has more than %d bytes", self._limits.request_size)
            return b""

    async def _take(self, line: bytes) -> bool:
        """Answer the requests of a line. Returns False if the session ends."""
        if self._has_too_many(line):
            most = f"a message has at most {self._limits.batch} requests, with {_VALUES} values each"
            await self._send(aiorpcx.JSONRPCv2.response_message(aiorpcx.RPCError.invalid_request(most), None))
            return False
        try:
            requests = self._rpc.receive_message(line)
        except aiorpcx.ProtocolError as error:
            if error.error_message is not None:
                await self._send(error.error_message)
            # perhaps HTTP from a web browser: a web page could hide requests in the lines that follow
            return bool(error.code != aiorpcx.JSONRPC.PARSE_ERROR)
        except (ValueError, TypeError, RecursionError):  # brackets without end, a long number, or a strange "id"
            return False
        for request in requests:
            if not await self._answer(request):
                return False
        return True

    def _has_too_many(self, line: bytes) -> bool:
        """Return True if a line has more requests or more values than a batch may have. aiorpcX has no such bound."""
        most = self._limits.batch
        if line.count(b",") > _VALUES * (most + 1):
            return True
        if not line.lstrip().startswith(b"["):
            return False
        try:
            return len(json.loads(line)) > most
        except (ValueError, RecursionError):
            return False  # aiorpcX refuses it

    async def _answer(self, request: aiorpcx.Request) -> bool:
        """Answer a request now, or let a task answer it. Returns False if the session ends."""
        if time.monotonic() - self._turn_began > _TURN_S:
            await asyncio.sleep(0)
            self._turn_began = time.monotonic()
        try:
            answer = self._ask_session(request)
        except RpcError as refusal:
            await self._reply(request, aiorpcx.RPCError(int(refusal.code), refusal.message))
            return not refusal.ends_session
        if not isinstance(answer, Question):
            await self._reply(request, answer)
            return True
        await self._slots.acquire()
        task = asyncio.create_task(self._settle(request, answer))
        self._tasks.add(task)
        task.add_done_callback(self._settled)
        return True

    def _ask_session(self, request: aiorpcx.Request) -> object:
        if request.method == METHOD:
            return asdict(replace(self._status(), unknown=self.session.unknown))
        return self.session.answer(request.method, request.args)

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the connection: the other side has left or does not read, or the error is a bug."""
        if isinstance(error, OSError):  # TimeoutError is one
            _LOG.debug("a connection has ended: %r", error)
        else:
            _LOG.error("a session has failed, and the server continues", exc_info=error)
        self.close()

    async def _settle(self, request: aiorpcx.Request, question: Question) -> None:
        try:
            answer = await self._link.settle(question)
        except RpcError as refusal:
            answer = aiorpcx.RPCError(int(refusal.code), refusal.message)
        except SpvFilterError as error:
            _LOG.warning("a request cannot be answered: %s", type(error).__name__)
            answer = aiorpcx.RPCError(aiorpcx.JSONRPC.INTERNAL_ERROR, "the wallet cannot be read")
        await self._reply(request, answer)

    async def _reply(self, request: aiorpcx.Request, answer: object) -> None:
        if isinstance(request, aiorpcx.Request):  # a notification gets no answer
            message = request.send_result(answer)
            if message is not None:  # otherwise requests of the same batch have no answer yet
                await self._send(message)

    async def _send(self, message: bytes) -> None:
        """Send a message. Raises TimeoutError if the other side does not read."""
        self._writer.write(message + b"\n")
        if self._writer.transport.get_write_buffer_size() > _BUFFER_SIZE:
            async with asyncio.timeout(self._limits.send_timeout_s):
                await self._writer.drain()

    async def _notify(self) -> None:
        """Send notifications as long as the connection lasts."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                changed, self._changed = self._changed, {}
                made = [self._encoded(notice) for notice in self.session.header_notice()]
                variant = self._encoded(("", ()))  # the variant of JSON-RPC that the other side speaks
                for notice in self.session.script_notices(changed):
                    key = variant, notice
                    if key not in self._link.encoded:
                        self._link.encoded[key] = self._encoded(notice)
                    made.append(self._link.encoded[key])
                if made:
                    await self._send(b"\n".join(made))
        except Exception as error:
            self._fail(error)

    def _encoded(self, notice: Notice) -> bytes:
        message: bytes = self._rpc.send_notification(aiorpcx.Notification(*notice))
        return message
