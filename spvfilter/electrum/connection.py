"""ElectrumConnection: one socket of the Electrum server, with bounds on the number of waiting requests and on sizes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred
from spvfilter.electrum.budget import SMALL, ElectrumBudget, FairShare, size_of
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import Question
from spvfilter.electrum.rpcerrors import RpcError
from spvfilter.electrum.session import ElectrumSession, Notice
from spvfilter.electrum.status import METHOD, ElectrumStatus
from spvfilter.electrum.wallet import WalletLink
from spvfilter.errors import SpvFilterError

if TYPE_CHECKING:
    import aiorpcx
else:
    aiorpcx = deferred("aiorpcx")

_LOG = logging.getLogger(__name__)
_TURN_S = 0.002
"""Seconds for which a session answers requests before other sessions and other tasks get a turn (our choice)."""
_VALUES = 25
"""Largest number of values in a request: a package has up to 25 transactions."""
_NOTICES = 200
"""Number of changed scripts after which other sessions get a turn (our choice)."""
_OF_SCRIPTS = "blockchain.scripthash."
"""Prefix of the methods that are answered from the histories in memory."""
_ROOM_TIMES = 6
"""Longest time for which a message may hold room, as a multiple of the time allowed to send an answer (our choice)."""
_CLOSE_S = 1.0
"""Seconds to wait at the end for the other side to read the last answer (our choice)."""


class _Turn:
    """One task's turn on the event loop, which the task takes and gives up several times."""

    def __init__(self, turns: FairShare, host: str) -> None:
        self._turns = turns
        self._host = host
        self._is_held = False
        self._began = 0.0

    async def __aenter__(self) -> Self:
        await self.take()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.leave()

    async def take(self) -> None:
        """Wait for the turn, unless the task already has it."""
        if not self._is_held:
            await self._turns.acquire(self._host)
            self._is_held, self._began = True, time.monotonic()

    def leave(self) -> None:
        """End the turn if the task has it."""
        if self._is_held:
            self._is_held = False
            self._turns.release(self._host)

    async def share(self) -> None:
        """After two milliseconds, let the others have a turn."""
        if time.monotonic() - self._began > _TURN_S:
            self.leave()
            await asyncio.sleep(0)
            await self.take()


class _Message:
    """One line of input: a request or a batch. It holds room if it or its answers are large.

    A message that holds room has its own slots. If it waited for the slots of other messages, whose tasks may be
    waiting for room, two sessions could wait for each other.
    """

    def __init__(
        self,
        rooms: FairShare,
        host: str,
        slots: asyncio.Semaphore,
        limits: ElectrumLimits,
        too_late: Callable[[], object],
    ) -> None:
        """Begin a message. `too_late` is called if it has held room for too long."""
        self._rooms = rooms
        self._host = host
        self._limits = limits
        self._too_late = too_late
        self._timer: asyncio.TimerHandle | None = None
        self._asking = asyncio.Lock()
        self._users = 1
        self.slots: asyncio.Semaphore = slots
        """Limits the tasks that answer this message. All messages of a session that hold no room share it."""
        self.has_room = False
        self.size = 0  # of the answers so far

    async def take_room(self) -> None:
        """Wait for room, unless the message already holds it."""
        async with self._asking:
            if not self.has_room:
                await self._rooms.acquire(self._host)
                self.has_room, self.slots = True, asyncio.Semaphore(self._limits.concurrent)
                most_s = _ROOM_TIMES * self._limits.send_timeout_s
                self._timer = asyncio.get_running_loop().call_later(most_s, self._too_late)

    def share(self) -> Self:
        """Return the message for use by another task, which answers it and calls `done` at the end."""
        self._users += 1
        return self

    def done(self) -> None:
        """End one of the tasks that answer the message. The last one gives the room back."""
        self._users -= 1
        if not self._users and self._timer is not None:
            self._timer.cancel()
            self._rooms.release(self._host)


class ElectrumConnection:
    """Reads the requests of one program in order, and answers them.

    A request that needs the database or a peer is answered by a task, while the next requests are read. Once the
    maximum number of tasks is running, the socket is not read until one of them ends. On the event loop, the connection
    takes turns with the others.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        link: WalletLink,
        limits: ElectrumLimits,
        budget: ElectrumBudget,
        status: Callable[[], ElectrumStatus],
    ) -> None:
        self._host: str = (writer.get_extra_info("peername") or ("",))[0]
        self.session: ElectrumSession = ElectrumSession(link.state, limits, budget, self._host)
        self._reader = reader
        self._writer = writer
        self._link = link
        self._limits = limits
        self._budget = budget
        self._status = status
        self._rpc = aiorpcx.JSONRPCConnection(aiorpcx.JSONRPCAutoDetect)
        self._rpc.max_response_size = limits.response_size
        self._slots = asyncio.Semaphore(limits.concurrent)
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._is_ending = False
        self._changed: dict[str, None] = {}  # script hashes that may have changed since the last notification
        self._wake = asyncio.Event()

    def close(self) -> asyncio.Task[None] | None:
        """End the connection. Returns the task that serves it, which will end soon."""
        if self._serving is not None and not self._is_ending:
            self._serving.cancel()
        return self._serving

    def note(self, changed: Collection[str]) -> None:
        """Record that the tip and these scripts may have changed. A task sends the notifications."""
        subscribed = self.session.subscriptions
        self._changed.update((each, None) for each in changed if each in subscribed)
        self._wake.set()

    async def serve(self) -> None:
        """Answer requests until the other side closes the connection, or breaks the rules of the transport."""
        self._serving = asyncio.current_task()
        notifying = asyncio.create_task(self._notify())
        self._tasks.add(notifying)
        try:
            while True:
                message = _Message(self._budget.rooms, self._host, self._slots, self._limits, self.close)
                try:
                    line = await self._line(message)
                    if not line or not await self._take(line, message):
                        break
                    del line
                finally:
                    message.done()
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
            with suppress(OSError, TimeoutError):  # the last answer may still be on its way
                async with asyncio.timeout(_CLOSE_S):
                    await self._writer.wait_closed()
            self._writer.transport.abort()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.session.end()

    async def _line(self, message: _Message) -> bytes:
        """Return the next line, or b"" at the end of the stream, after a long silence, or if the line is too long.

        The rest of a large line is read once there is room for it, and must then arrive soon.
        """
        parts, size = list[bytes](), 0
        try:
            while size <= self._limits.request_size:
                waits_s = self._limits.send_timeout_s if message.has_room else self._limits.idle_timeout_s
                async with asyncio.timeout(waits_s):
                    try:
                        parts.append(await self._reader.readuntil(b"\n"))
                        if size + len(parts[-1]) > self._limits.request_size:
                            break
                        return b"".join(parts)
                    except asyncio.LimitOverrunError as error:
                        parts.append(await self._reader.readexactly(error.consumed))
                        size += error.consumed
                await message.take_room()
        except asyncio.IncompleteReadError:
            return b""
        except TimeoutError:
            _LOG.debug("a connection was closed: no request for %d seconds", waits_s)
            return b""
        _LOG.info("a connection was closed: a request was longer than %d bytes", self._limits.request_size)
        return b""

    async def _take(self, line: bytes, message: _Message) -> bool:
        """Answer the requests in a line. Returns False if the session ends."""
        async with _Turn(self._budget.turns, self._host) as turn:
            if self._has_too_many(line):
                most = f"a message may contain at most {self._limits.batch} requests, with up to {_VALUES} values each"
                refusal = aiorpcx.JSONRPCv2.response_message(aiorpcx.RPCError.invalid_request(most), None)
                await self._send(refusal, turn)
                return False
            try:
                requests = self._rpc.receive_message(line)
            except aiorpcx.ProtocolError as error:
                if error.error_message is not None:
                    await self._send(error.error_message, turn)
                # this may be HTTP from a web browser: a web page could hide requests in the lines that follow
                return bool(error.code != aiorpcx.JSONRPC.PARSE_ERROR)
            except (ValueError, TypeError, RecursionError):  # brackets without end, a long number, or a strange "id"
                return False
            for request in requests:
                await turn.share()
                if not await self._answer(request, message, turn):
                    return False
        return True

    def _has_too_many(self, line: bytes) -> bool:
        """Return True if a line contains more requests or values than a batch may. aiorpcX has no such limit."""
        most = self._limits.batch
        if line.count(b",") > (_VALUES + 4) * most:  # a request also has a version, an id, a method and a flag
            return True
        if not line.lstrip().startswith(b"["):
            return False
        try:
            return len(json.loads(line)) > most
        except (ValueError, RecursionError):
            return False  # aiorpcX refuses it

    async def _answer(self, request: aiorpcx.Request, message: _Message, turn: _Turn) -> bool:
        """Answer a request now, or start a task that answers it. Returns False if the session ends."""
        try:
            if request.method.startswith(_OF_SCRIPTS) and not self._link.is_current:
                turn.leave()
                await self._link.catch_up()
                await turn.take()
            answer = self._ask_session(request)
            if not isinstance(answer, Question):
                if self._is_too_large(answer, message):
                    del answer  # it is made again later, so that a session keeps nothing while it waits for room
                    turn.leave()
                    await message.take_room()
                    await turn.take()
                    answer = self._ask_session(request)
                await self._reply(request, answer, message, turn)
                return True
        except RpcError as refusal:
            await self._reply(request, aiorpcx.RPCError(int(refusal.code), refusal.message), message, turn)
            return not refusal.ends_session
        slots = message.slots
        if slots.locked():
            turn.leave()
        await slots.acquire()
        task = asyncio.create_task(self._settle(request, answer, message.share()))
        self._tasks.add(task)
        task.add_done_callback(self._settled)
        task.add_done_callback(lambda _: slots.release())
        task.add_done_callback(lambda _: message.done())
        await turn.take()
        return True

    def _is_too_large(self, answer: object, message: _Message) -> bool:
        """Return True if the answers to a message need room that it does not hold."""
        return not message.has_room and message.size + size_of(answer) > SMALL

    def _ask_session(self, request: aiorpcx.Request) -> object:
        if request.method == METHOD:
            return asdict(replace(self._status(), unknown=self.session.unknown))
        return self.session.answer(request.method, request.args)

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the connection, because the other side has left or does not read, or because the error is a bug."""
        if isinstance(error, OSError):  # TimeoutError is one
            _LOG.debug("a connection has ended: %r", error)
        else:
            _LOG.error("a session failed; the server continues", exc_info=error)
        self.close()

    async def _settle(self, request: aiorpcx.Request, question: Question, message: _Message) -> None:
        answer = await self._found(question)
        if self._is_too_large(answer, message):
            del answer
            await message.take_room()
            answer = await self._found(question)
        async with _Turn(self._budget.turns, self._host) as turn:
            await self._reply(request, answer, message, turn)

    async def _found(self, question: Question) -> object:
        """Return the answer to a question, or the error to answer with."""
        try:
            return await self._link.settle(question)
        except RpcError as refusal:
            return aiorpcx.RPCError(int(refusal.code), refusal.message)
        except SpvFilterError as error:
            _LOG.warning("could not answer a request: %s", type(error).__name__)
            return aiorpcx.RPCError(aiorpcx.JSONRPC.INTERNAL_ERROR, "the wallet cannot be read")

    async def _reply(self, request: aiorpcx.Request, answer: object, message: _Message, turn: _Turn) -> None:
        if isinstance(request, aiorpcx.Request):  # a notification gets no answer
            message.size += size_of(answer)
            encoded = request.send_result(answer)
            if encoded is not None:  # otherwise, requests of the same batch still lack an answer
                await self._send(encoded, turn)

    async def _send(self, message: bytes, turn: _Turn) -> None:
        """Send a message.

        If it is large, wait until all of it has been sent. Raises TimeoutError if nobody reads it.
        """
        self._writer.write(message + b"\n")
        del message
        if self._writer.transport.get_write_buffer_size() > SMALL:
            turn.leave()
            async with asyncio.timeout(self._limits.send_timeout_s):
                await self._writer.drain()
            await turn.take()

    async def _notify(self) -> None:
        """Send notifications for as long as the connection lasts."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                changed, self._changed = [*self._changed], {}
                async with _Turn(self._budget.turns, self._host) as turn:
                    for at in range(0, max(len(changed), 1), _NOTICES):
                        await turn.share()
                        if made := self._notices(changed[at : at + _NOTICES]):
                            await self._send(b"\n".join(made), turn)
        except Exception as error:
            self._fail(error)

    def _notices(self, changed: Collection[str]) -> list[bytes]:
        """Return the notifications about a new tip, and about scripts that have changed."""
        made = [self._encoded(notice) for notice in self.session.header_notice()]
        variant = self._encoded(("", ()))  # the variant of JSON-RPC that the other side speaks
        for notice in self.session.script_notices(changed):
            key = variant, notice
            if key not in self._link.encoded:
                self._link.encoded[key] = self._encoded(notice)
            made.append(self._link.encoded[key])
        return made

    def _encoded(self, notice: Notice) -> bytes:
        message: bytes = self._rpc.send_notification(aiorpcx.Notification(*notice))
        return message
