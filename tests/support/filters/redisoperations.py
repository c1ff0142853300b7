"""Every operation of a RedisBloomFilter, and the filter on which the tests of errors call them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.bloom.redis.scalable import RedisScalableBloomFilter

SHAPE: dict[str, Any] = {"bits": 80_000, "hash_funcs": 7}
OPERATIONS: dict[str, Callable[[RedisBloomFilter], Awaitable[object]]] = {
    "add": lambda remote: remote.add(b"new"),
    "contains": lambda remote: remote.contains(b"new"),
    "add_many": lambda remote: remote.add_many([b"new"]),
    "contains_many": lambda remote: remote.contains_many([b"new"]),
    "union_update": lambda remote: remote.union_update(remote),
    "union_update of a local one": lambda remote: remote.union_update(BloomFilter(**SHAPE)),
    "replace": lambda remote: remote.replace(BloomFilter(**SHAPE)),
    "snapshot": lambda remote: remote.snapshot(),
    "set_bits": lambda remote: remote.set_bits(),
    "clear": lambda remote: remote.clear(),
    "delete": lambda remote: remote.delete(),
    "expire": lambda remote: remote.expire(1),
    "ttl": lambda remote: remote.ttl(),
}


def keys(count: int) -> list[bytes]:
    return [b"key %d" % number for number in range(count)]


async def grow(remote: RedisScalableBloomFilter) -> None:
    """Make the next slice, as `add` does once the last one is full. Something may have happened in between."""
    await remote._grow()


async def contents(client: Redis) -> dict[Any, Any]:
    return {key: await client.dump(key) for key in await client.keys()}
