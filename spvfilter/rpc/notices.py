"""Notifications that Bitcoin Core publishes over ZMQ when its chain changes (doc/zmq.md).

A notification proves nothing: it is only a reason to request the chain from the node.

A message has three parts: topic, body, and the number of the topic's messages so far, u32 LE. The bodies are:

- `rawblock`: the block of the new tip.
- `sequence`: a block hash in display order, then C for connected or D for disconnected. (A and R are about the
  mempool.)
- `hashblock`: the hash of the new tip.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from spvfilter._public import public
from spvfilter.hashes import sha256d
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.rpc.subscription import missing_between, subscription

_TOPICS = (b"rawblock", b"sequence", b"hashblock")
_WAITING = 50  # Number of messages of up to 4 MB that libzmq queues (our choice). It drops any more.
_BLOCKS_KEPT = 4  # Number of published blocks that are kept until the scan takes them (our choice).


@public
class TipNotices:
    """Notifications from a node that its chain has changed, or that messages were lost.

    Create one with `TipNotices.subscribed`.
    """

    def __init__(self) -> None:
        self.received: int = 0  # number of well-formed messages
        self.lost: int = 0  # number of missing messages, according to the counters
        self.malformed: int = 0  # number of malformed messages
        self._last: dict[bytes, int] = {}  # the last counter of each topic
        self._blocks: OrderedDict[bytes, bytes] = OrderedDict()
        self._news = asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def subscribed(cls, addresses: Sequence[str]) -> AsyncIterator[TipNotices]:
        """Subscribe to the notifications of a node, and return a TipNotices.

        If a publisher is down, the connection is retried. A publisher that sends a message larger than a block is
        disconnected.

        Args:
            addresses: tcp://HOST:PORT or ipc://PATH, as in the node's -zmqpubrawblock and -zmqpubsequence options.

        Raises:
            ParameterError: An address is malformed, or the `zmq` extra is not installed.
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
        """Wait up to `timeout_s` seconds for a notification. Return True if there was one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        found = self._news.is_set()
        self._news.clear()
        return found

    def block(self, digest: bytes) -> bytes | None:
        """Return the block with the hash `digest` if the node published it recently, else None.

        Only the hash of its header has been checked.
        """
        return self._blocks.pop(digest, None)

    def take(self, parts: Sequence[bytes]) -> None:
        """Process a message from the subscription, given as its parts."""
        if len(parts) != 3 or parts[0] not in _TOPICS or len(parts[2]) != 4:
            self.malformed += 1
            return
        topic, body, counter = parts[0], parts[1], int.from_bytes(parts[2], "little")
        self.received += 1
        before = self._last.get(topic)
        self._last[topic] = counter
        missing = missing_between(before, counter)
        # A lower counter means that the node was restarted, or that the message arrived twice.
        if missing and counter > (before or 0):
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
