"""A real ZMQ publisher that numbers its messages as Bitcoin Core does. No assertions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

import zmq
import zmq.asyncio

TOPICS = 3  # that TipNotices subscribes to
PATIENCE_S = 30.0


class Publisher:
    """An XPUB socket, so that it learns of subscriptions; used with `with`."""

    def __init__(self, address: str, topics: int = TOPICS) -> None:
        self.topics = topics
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._socket.bind(address)
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.counters: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close(0)
        self._context.destroy(0)

    async def subscribed(self, sign: bytes = b"\x01") -> None:
        """Wait until a subscriber has all its topics; with the sign 0, until it has left them."""
        async with asyncio.timeout(PATIENCE_S):
            subscriptions = 0
            while subscriptions < self.topics:
                subscriptions += (await self._socket.recv())[:1] == sign

    async def send(self, topic: str, body: bytes) -> None:
        number = self.counters.get(topic, 0)
        self.counters[topic] = (number + 1) % (1 << 32)
        await self.send_parts([topic.encode(), body, number.to_bytes(4, "little")])

    def lose(self, topic: str, messages: int) -> None:
        """Count messages that are never sent."""
        self.counters[topic] = self.counters.get(topic, 0) + messages

    async def send_parts(self, parts: Sequence[bytes]) -> None:
        await self._socket.send_multipart(list(parts))
