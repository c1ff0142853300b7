"""What a scan runs with and must not leave behind; a Redis of the tests' own and its client, emptied before each test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from matching import scanning, threads
from redisserver import RedisServer, running_redis
from spvfilter.aio import feed, scan
from spvfilter.kernel import BACKEND

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from spvfilter.aio.redis import RedisBloomFilter


@pytest.fixture
async def nothing_is_left() -> AsyncIterator[None]:
    """No test may hang, and none may leave a task or a thread behind."""
    async with asyncio.timeout(60):
        yield
    await asyncio.sleep(0)
    if others := asyncio.all_tasks() - {asyncio.current_task()}:  # the loop's, closing an asynchronous generator of the test's own
        await asyncio.wait(others, timeout=10)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for thread in scanning():
        await asyncio.to_thread(thread.join, 10)  # one may be ending its last next()
    assert not threads()


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as jobs, whatever the kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")


@pytest.fixture
def threads_of_this_kernel(many_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the kernel makes use of, whatever `many_threads` said."""
    monkeypatch.setattr(scan, "BACKEND", BACKEND)


@pytest.fixture
def small_batches_and_many_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of few blocks, so that short chains have many; and as many threads as jobs, whatever the kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")
    seed = request.node.callspec.params.get("seed", 0) if hasattr(request.node, "callspec") else 0
    monkeypatch.setattr(feed, "BATCH_BLOCKS", (1, 2, 5, 256)[seed % 4])


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Redis]:
    from spvfilter.aio.redis_client import connect

    async with connect(server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def remote(client: Redis) -> RedisBloomFilter:
    """100 keys in ten shards of 1,000 bytes."""
    from redisoperations import SHAPE, keys
    from spvfilter.aio.redis import RedisBloomFilter

    made = await RedisBloomFilter.create(client, "f", shard_size=1_000, **SHAPE)
    await made.update(keys(100))
    return made
