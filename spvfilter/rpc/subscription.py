"""A subscription to the messages that Bitcoin Core publishes over ZMQ (doc/zmq.md).

A message has three parts: topic, body, and a counter of the topic's messages, u32 LE.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from spvfilter.errors import ParameterError, remedy
from spvfilter.protocol import MAX_BLOCK_SIZE

_ADDRESS = re.compile(r"(?:tcp://(?:\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):[0-9]{1,5}|ipc://[ -~]{1,100})")
_LONGEST_RECONNECT_MS = 30_000
_COUNTERS = 1 << 32

Receive = Callable[[], Awaitable[list[bytes]]]


@asynccontextmanager
async def subscription(addresses: Sequence[str], topics: Sequence[bytes], waiting: int) -> AsyncIterator[Receive]:
    """Subscribe to topics. Entering the context returns a function that waits for the parts of the next message.

    Addresses have the form tcp://HOST:PORT or ipc://PATH. libzmq queues at most `waiting` messages and drops any more.
    If a publisher is down, the connection is retried. A publisher that sends a message larger than a block is
    disconnected.

    Raises ParameterError if an address is malformed or the `zmq` extra is not installed.
    """
    try:
        import zmq
        import zmq.asyncio
    except ImportError:
        raise ParameterError(f"receiving ZMQ notifications from a node needs pyzmq; {remedy('zmq')}") from None
    if not addresses:
        raise ParameterError("pass at least one address for ZMQ notifications")
    for address in addresses:
        if _ADDRESS.fullmatch(address) is None or (
            address.startswith("tcp") and not 0 < int(address.rpartition(":")[2]) <= 65_535
        ):
            raise ParameterError(f"a ZMQ address must be tcp://HOST:PORT or ipc://PATH, not {address[:120]!r}")
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    try:
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.IPV6, 1),
            (zmq.RCVHWM, waiting),
            (zmq.MAXMSGSIZE, MAX_BLOCK_SIZE),
            (zmq.RECONNECT_IVL_MAX, _LONGEST_RECONNECT_MS),
        ):
            socket.setsockopt(option, value)
        for topic in topics:
            socket.subscribe(topic)
        for address in addresses:
            try:
                socket.connect(address)
            except zmq.ZMQError as error:
                raise ParameterError(f"{address}: {error}") from None
        yield socket.recv_multipart
    finally:
        socket.close(0)
        context.destroy(0)


def missing_between(before: int | None, counter: int) -> int:
    """Return the number of messages that are missing between two values of a topic's counter.

    The result is also nonzero after the node has restarted.
    """
    return 0 if before is None else (counter - before - 1) % _COUNTERS
