"""RedisBloomFilter with full, read-only, unreachable or restarted servers, a cluster, and cancelled operations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis as redis_py
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import ResponseError

from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.redis.client import connect, translated
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.bloom.redis.scalable import RedisScalableBloomFilter
from spvfilter.errors import (
    ReadOnlyError,
    RemoteConnectionError,
    RemoteError,
    RemoteFullError,
    RemoteReadOnlyError,
    RemoteTypeError,
)
from support.filters.redisoperations import OPERATIONS, SHAPE, contents, keys
from support.peers.redisserver import RedisServer, running_redis

pytestmark = pytest.mark.redis


@pytest.fixture
async def full(client: Redis, remote: RedisBloomFilter) -> AsyncIterator[RedisBloomFilter]:
    await client.config_set("maxmemory", 1)
    yield remote
    await client.config_set("maxmemory", 0)


async def test_without_memory_no_key_is_partly_added(client: Redis, full: RedisBloomFilter) -> None:
    before = await contents(client)
    for operation in ("add", "add_many", "union_update", "union_update of a local one", "replace", "clear"):
        with pytest.raises(RemoteFullError, match="maxmemory"):
            await OPERATIONS[operation](full)
    for make in (
        RedisBloomFilter.create(client, "g", **SHAPE),
        RedisBloomFilter.create_from(client, "g", BloomFilter(**SHAPE)),
    ):
        with pytest.raises(RemoteFullError) as caught:
            await make
        assert isinstance(caught.value.__cause__, redis_py.RedisError)
    assert await contents(client) == before
    assert await full.contains_many([*keys(100), b"new"]) == b"\1" * 100 + b"\0"
    assert not await full.add(keys(1)[0])
    await client.config_set("maxmemory", 0)
    assert await full.add(b"new")


async def test_a_replica_answers_but_refuses_writes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with (
        running_redis(folders[0], "--repl-diskless-sync-delay", "0", tcp=True) as first,
        running_redis(folders[1], "--replicaof", "127.0.0.1", str(first.port), tcp=True) as second,
    ):
        async with connect(first.url) as writer, connect(second.url) as reader, asyncio.timeout(20):
            made = await RedisBloomFilter.create(writer, "f", shard_size=1_000, **SHAPE)
            await made.update(keys(100))
            # the callee has no types
            while await writer.execute_command("WAIT", 1, 100) < 1:  # type: ignore[no-untyped-call]
                pass
            replica = await RedisBloomFilter.open(reader, "f")
            assert await replica.contains_many(keys(100)) == b"\1" * 100
            assert await replica.snapshot() == await made.snapshot()
            for operation in (
                "add",
                "add_many",
                "union_update",
                "union_update of a local one",
                "replace",
                "clear",
                "delete",
                "expire",
            ):
                with pytest.raises(RemoteReadOnlyError, match="replica") as caught:
                    await OPERATIONS[operation](replica)
                assert isinstance(caught.value, ReadOnlyError)
            with pytest.raises(RemoteReadOnlyError):
                await RedisBloomFilter.create(reader, "g", **SHAPE)
            assert await replica.snapshot() == await made.snapshot()


async def test_a_server_that_dies_is_a_connection_error(tmp_path: Path) -> None:
    def endless(server: RedisServer) -> AsyncIterator[bytes] | object:
        number = 0
        while True:
            if number == 5_000:
                server.kill()
            yield b"%d" % number
            number += 1

    with running_redis(tmp_path) as server:
        async with connect(server.url) as client, asyncio.timeout(20):
            remote = await RedisBloomFilter.create(client, "f", **SHAPE)
            with pytest.raises(RemoteConnectionError) as caught:
                await remote.update(endless(server))  # type: ignore[arg-type]  # redis-py's union types
            assert isinstance(caught.value.__cause__, redis_py.ConnectionError)
            for operation in OPERATIONS.values():
                with pytest.raises(RemoteConnectionError, match="no answer from the Redis server for the filter 'f': "):
                    await operation(remote)
            with pytest.raises(RemoteConnectionError, match="for the filter 'f': "):
                await RedisBloomFilter.open(client, "f")
            with pytest.raises(RemoteConnectionError, match=re.escape("for the filter '{crawl}:seen': ")):
                await RedisBloomFilter.open(client, "{crawl}:seen")


async def test_a_server_that_dies_unanswered_is_a_connection_error(tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        async with connect(server.url) as client, connect(server.url) as pausing, asyncio.timeout(20):
            remote = await RedisBloomFilter.create(client, "f", **SHAPE)
            # the callee has no types
            await pausing.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")  # type: ignore[no-untyped-call]
            adding = asyncio.create_task(remote.add(b"new"))
            while (await pausing.info("clients"))["blocked_clients"] < 1:
                pass
            server.kill()
            with pytest.raises(RemoteConnectionError):
                await adding


@pytest.mark.parametrize("single", [False, True])
async def test_a_cancelled_operation_leaves_the_connection_usable(
    server: RedisServer, client: Redis, remote: RedisBloomFilter, single: bool
) -> None:
    async with Redis.from_url(server.url, single_connection_client=single) as own:
        mine = await RedisBloomFilter.open(own, "f")
        for round_ in range(3):
            # the callee has no types
            await client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")  # type: ignore[no-untyped-call]
            adding = asyncio.create_task(mine.add(b"cancelled %d" % round_))
            while (await client.info("clients"))["blocked_clients"] < 1:
                pass
            adding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await adding
            # the callee has no types
            await client.execute_command("CLIENT", "UNPAUSE")  # type: ignore[no-untyped-call]
            assert await mine.contains_many([*keys(100), b"never"]) == b"\1" * 100 + b"\0"
            await mine.add(b"cancelled %d" % round_)
            assert await mine.contains(b"cancelled %d" % round_)


async def test_a_cancelled_upload_is_complete_or_leaves_no_key(client: Redis, remote: RedisBloomFilter) -> None:
    before, full, cancelled = await contents(client), await remote.set_bits(), 0
    for steps in range(200):
        await client.script_flush()
        loading = asyncio.create_task(remote.replace(BloomFilter(**SHAPE)))
        for _ in range(steps):
            await asyncio.sleep(0)
        if loading.done():
            await loading
            break
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        cancelled += 1
        assert (await contents(client)).keys() == before.keys()
        assert await remote.set_bits() in (0, full)
    else:  # the server was too slow for these steps: let the last upload complete
        await remote.replace(BloomFilter(**SHAPE))
    assert cancelled > 6
    assert await remote.set_bits() == 0


async def test_forgotten_scripts_are_sent_again(client: Redis, remote: RedisBloomFilter) -> None:
    for operation in OPERATIONS:
        if operation not in ("delete", "expire"):
            await client.script_flush()
            await OPERATIONS[operation](remote)
    await client.script_flush()
    assert await remote.add(b"another")
    assert not await remote.add(b"another")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("-READONLY You can't write against a read only replica.", RemoteReadOnlyError),
        ("-OOM command not allowed when used memory > 'maxmemory'.", RemoteFullError),
        ("-WRONGTYPE Operation against a key holding the wrong kind of value", RemoteTypeError),
        ("-MISCONF Redis is configured to save RDB snapshots", RemoteError),
    ],
)
def test_script_errors_in_redis_6_wording_are_recognized(words: str, wanted: type[RemoteError]) -> None:
    error = ResponseError(f"Error running script (call to f_7b2c): @user_script:7: @user_script: 7: {words} ")
    assert type(translated(error, [b"{f}:header"])) is wanted


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[RedisServer, Redis]]:
    """A cluster of one node with all slots."""
    with running_redis(folder, "--cluster-enabled", "yes", tcp=True) as server:
        async with connect(server.url) as client:
            # the callee has no types
            await client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))  # type: ignore[no-untyped-call]
            async with asyncio.timeout(20):
                # the callee has no types
                while (await client.execute_command("CLUSTER INFO"))["cluster_state"] != "ok":  # type: ignore[no-untyped-call]
                    pass
            yield server, client


@pytest.mark.slow
async def test_a_filter_in_a_cluster_is_in_one_slot(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, plain), RedisCluster(host="127.0.0.1", port=server.port) as client:
        local = BloomFilter(**SHAPE)
        local.update(keys(200))
        for one in (plain, client):
            await plain.flushall()
            made = await RedisBloomFilter.create_from(one, "{shop}:a", local, shard_size=1_000)
            other = await RedisBloomFilter.create(one, "{shop}:b", shard_size=1_000, **SHAPE)
            assert await other.add_many(keys(100)) == b"\1" * 100
            await other.union_update(made)
            assert await other.snapshot() == local
            elsewhere = await RedisBloomFilter.create(one, "elsewhere", shard_size=1_000, **SHAPE)
            with pytest.raises(RemoteError, match="same hash tag"):
                await elsewhere.union_update(made)
            assert await elsewhere.set_bits() == 0
            await made.delete()
            grows = await RedisScalableBloomFilter.create(one, "{shop}:c", 20, 0.01, shard_size=50)
            await grows.update(keys(200))
            assert await grows.contains_many(keys(200)) == b"\1" * 200
            assert await grows.slice_count() == 4
