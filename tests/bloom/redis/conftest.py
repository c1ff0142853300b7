"""A private Redis server and its client, emptied before each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from support.peers.redisserver import RedisServer, running_redis

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from spvfilter.bloom.redis.filter import RedisBloomFilter


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Redis]:
    from spvfilter.bloom.redis.client import connect

    async with connect(server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def remote(client: Redis) -> RedisBloomFilter:
    """100 keys in ten shards of 1,000 bytes."""
    from spvfilter.bloom.redis.filter import RedisBloomFilter
    from support.filters.redisoperations import SHAPE, keys

    made = await RedisBloomFilter.create(client, "f", shard_size=1_000, **SHAPE)
    await made.update(keys(100))
    return made
