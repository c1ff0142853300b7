"""What Bitcoin Core publishes by ZMQ when its chain changes (doc/zmq.md): a reason to look at the chain, and never
proof of anything.

A message has three parts: topic, body, and a counter of the topic's messages, u32 LE. `rawblock` has the new tip's
block as its body, `sequence` a block hash in display order and C or D for connected or disconnected (A and R are of the
mempool), `hashblock` a hash.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.hashes import sha256d
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.rpc.subscription import missing_between, subscription

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_TOPICS = (b"rawblock", b"sequence", b"hashblock")
_WAITING = 50  # messages, of at most 4 MB, that libzmq keeps before it drops more
_BLOCKS_KEPT = 4


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
        notices = cls()
        async with subscription(addresses, _TOPICS, _WAITING) as receive_parts:

            async def receive() -> None:
                while True:
                    notices.take(await receive_parts())

            receiving = asyncio.create_task(receive())
            try:
                yield notices
            finally:
                receiving.cancel()
                with suppress(asyncio.CancelledError):
                    await receiving

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
        missing = missing_between(before, counter)
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
