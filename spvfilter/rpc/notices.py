"""What Bitcoin Core publishes by ZMQ when its chain changes (doc/zmq.md): a reason to look at the chain, and never
proof of anything.

A message has three parts: topic, body, and a counter of the topic's messages, u32 LE. `rawblock` has the new tip's
block as its body, `sequence` a block hash in display order and C or D for connected or disconnected (A and R are of the
mempool), `hashblock` a hash.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_BLOCK_SIZE

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_ADDRESS = re.compile(r"(?:tcp://(?:\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}|ipc://[ -~]{1,100})")
_TOPICS = (b"rawblock", b"sequence", b"hashblock")
_WAITING = 50  # messages, of at most 4 MB, that libzmq keeps before it drops more
_BLOCKS_KEPT = 4
_LONGEST_RECONNECT_MS = 30_000
_COUNTERS = 1 << 32


@public
class TipNotices:
    """Wakes when a node publishes that its chain has changed, or when messages were lost.

    Made by `TipNotices.subscribed`.
    """

    def __init__(self) -> None:
        self.received = 0  # messages of a known form
        self.lost = 0  # messages that the counters say are missing
        self.malformed = 0
        self._last: dict[bytes, int] = {}  # the last counter of each topic
        self._blocks: OrderedDict[bytes, bytes] = OrderedDict()
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def subscribed(cls, addresses: Sequence[str]) -> AsyncIterator[TipNotices]:
        """Subscribe to tcp://HOST:PORT or ipc://PATH, one or several, as -zmqpubrawblock and -zmqpubsequence have them.

        A publisher that is down is tried again for ever; one that sends more than a block has is not listened to any
        more. Raises ParameterError for a bad address, and without the extra `zmq`.
        """
        try:
            import zmq
            import zmq.asyncio
        except ImportError:
            raise ParameterError("notices of a node need pyzmq: pip install 'spvfilter[zmq]'") from None
        if not addresses:
            raise ParameterError("no address of ZMQ notices given")
        for address in addresses:
            if _ADDRESS.fullmatch(address) is None or (
                address.startswith("tcp") and not 0 < int(address.rpartition(":")[2]) <= 65_535
            ):
                raise ParameterError(f"not an address of ZMQ notices, tcp://HOST:PORT or ipc://PATH: {address[:120]!r}")
        notices = cls()
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB)
        try:
            for option, value in (
                (zmq.LINGER, 0),
                (zmq.IPV6, 1),
                (zmq.RCVHWM, _WAITING),
                (zmq.MAXMSGSIZE, MAX_BLOCK_SIZE),
                (zmq.RECONNECT_IVL_MAX, _LONGEST_RECONNECT_MS),
            ):
                socket.setsockopt(option, value)
            for topic in _TOPICS:
                socket.subscribe(topic)
            for address in addresses:
                try:
                    socket.connect(address)
                except zmq.ZMQError as error:
                    raise ParameterError(f"{address}: {error}") from None

            async def receive() -> None:
                while True:
                    notices.take(await socket.recv_multipart())

            receiving = asyncio.create_task(receive())
            try:
                yield notices
            finally:
                receiving.cancel()
                with suppress(asyncio.CancelledError):
                    await receiving
        finally:
            socket.close(0)
            context.destroy(0)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for news, at most that long; whether there were any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        found = self._news.is_set()
        self._news.clear()
        return found

    def block(self, digest: bytes) -> bytes | None:
        """The bytes that were published lately as the block with this hash, which is that of their header; nothing else
        was checked.
        """
        return self._blocks.pop(digest, None)

    def take(self, parts: Sequence[bytes]) -> None:
        """Take a message."""
        if len(parts) != 3 or parts[0] not in _TOPICS or len(parts[2]) != 4:
            self.malformed += 1
            return
        topic, body, counter = parts[0], parts[1], int.from_bytes(parts[2], "little")
        self.received += 1
        before = self._last.get(topic)
        self._last[topic] = counter
        missing = 0 if before is None else (counter - before - 1) % _COUNTERS
        if missing and counter > (before or 0):  # a lower one: the node was started again, or the message came twice
            self.lost += missing
        if missing or self._is_news(topic, body):
            self._news.set()

    def _is_news(self, topic: bytes, body: bytes) -> bool:
        if topic == b"sequence":
            return len(body) == HASH_SIZE + 1 and body[HASH_SIZE:] in (b"C", b"D")
        if topic == b"rawblock" and len(body) > HEADER_SIZE:
            self._blocks[sha256d(body[:HEADER_SIZE])] = body
            while len(self._blocks) > _BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        return True
