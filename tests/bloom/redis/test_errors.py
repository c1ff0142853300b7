"""Errors of RedisBloomFilter, against real servers: every failure has its own error and leaves no key partly added."""

from __future__ import annotations

import sys

import pytest
import redis as redis_py
from redis.asyncio import Redis

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.redis.client import connect
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.errors import (
    FormatError,
    MismatchError,
    ParameterError,
    RemoteError,
    RemoteMissingError,
    RemoteTypeError,
    TooLargeError,
)
from support.filters.redisoperations import OPERATIONS, SHAPE, contents, keys
from support.peers.redisserver import RedisServer

pytestmark = pytest.mark.redis

operations = pytest.mark.parametrize("operation", OPERATIONS)


@operations
async def test_a_filter_created_again_with_another_shape_is_refused(
    client: Redis, remote: RedisBloomFilter, operation: str
) -> None:
    await remote.delete()
    await RedisBloomFilter.create(client, "f", **{**SHAPE, "hash_funcs": 6}, shard_size=1_000)
    before = await contents(client)
    with pytest.raises(MismatchError, match="re-created"):
        await OPERATIONS[operation](remote)
    assert await contents(client) == before


@operations
async def test_a_missing_filter_is_refused(client: Redis, remote: RedisBloomFilter, operation: str) -> None:
    await client.flushall()
    with pytest.raises(RemoteMissingError, match="header"):
        await OPERATIONS[operation](remote)
    assert await client.keys() == []
    with pytest.raises(RemoteMissingError, match="'f'"):
        await RedisBloomFilter.open(client, "f")


@pytest.mark.few(13)
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "ttl"])  # ttl needs only the header
@pytest.mark.parametrize("other", [False, True], ids=["evicted", "of another type"])
async def test_a_changed_shard_is_an_error_and_changes_no_key(
    client: Redis, remote: RedisBloomFilter, operation: str, other: bool
) -> None:
    shards = {position // 8_000 for position in BloomFilter(**SHAPE).positions(b"new")}
    key = f"{{f}}:bits:{max(shards)}"
    await client.delete(key)
    if other:
        await client.rpush(key, "a list")
    before = await contents(client)
    with pytest.raises(RemoteTypeError if other else RemoteMissingError, match=key):
        await OPERATIONS[operation](remote)
    assert await contents(client) == before


@operations
async def test_a_header_of_another_type_is_an_error(client: Redis, remote: RedisBloomFilter, operation: str) -> None:
    await client.delete("{f}:header")
    await client.sadd("{f}:header", "a set")
    with pytest.raises(RemoteTypeError, match=r"\{f\}:header.*set"):
        await OPERATIONS[operation](remote)
    with pytest.raises(RemoteTypeError):
        await RedisBloomFilter.open(client, "f")
    with pytest.raises(RemoteTypeError):
        await RedisBloomFilter.create(client, "f", **SHAPE, exist_ok=True)


async def test_create_overwrites_only_old_bits(client: Redis, remote: RedisBloomFilter) -> None:
    await client.delete("{f}:header")
    assert await (await RedisBloomFilter.create(client, "f", shard_size=1_000, **SHAPE)).set_bits() == 0
    await client.delete("{f}:header", "{f}:bits:3")
    await client.rpush("{f}:bits:3", "a list")
    before = await contents(client)
    with pytest.raises(RemoteTypeError, match=r"bits:3.*list"):
        await RedisBloomFilter.create(client, "f", shard_size=1_000, **SHAPE)
    assert await contents(client) == before


async def test_a_malformed_header_is_a_format_error(client: Redis, remote: RedisBloomFilter) -> None:
    good = await client.get("{f}:header")
    assert isinstance(good, bytes)
    damaged = [good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :] for at in range(64)]
    counting = CountingBloomFilter(1_000, 0.01)
    absurd = (good[:64] + (0).to_bytes(8, "little"), good[:64] + b"\xff" * 8, counting.header().pack() + good[64:])
    for raw in (b"", b"?", good[:-1], good + b"\0", bytes(72), *damaged, *absurd):
        await client.set("{f}:header", raw)
        with pytest.raises(FormatError):
            await RedisBloomFilter.open(client, "f")
    with pytest.raises(FormatError):
        await RedisBloomFilter.create(client, "f", **SHAPE, exist_ok=True)


async def test_bits_set_beyond_the_last_one_are_a_format_error(client: Redis) -> None:
    remote = await RedisBloomFilter.create(client, "f", bits=12, hash_funcs=2)
    await client.setbit("{f}:bits:0", 9, 1)
    with pytest.raises(FormatError, match="padding bits are set"):
        await remote.snapshot()


async def test_an_oversized_shard_is_refused_at_creation(client: Redis) -> None:
    await client.config_set("proto-max-bulk-len", 1 << 20)
    try:
        with pytest.raises(RemoteError, match="out of range"):
            await RedisBloomFilter.create(client, "f", bits=1 << 26, hash_funcs=2)
        assert await client.keys() == []
        local = BloomFilter(bits=(1 << 24) + 1, hash_funcs=2)
        local.update(keys(50))
        assert await (await RedisBloomFilter.create_from(client, "f", local, shard_size=1 << 20)).snapshot() == local
    finally:
        await client.config_set("proto-max-bulk-len", 512 << 20)


async def test_unsuitable_operands_are_refused(server: RedisServer, client: Redis, remote: RedisBloomFilter) -> None:
    before = await contents(client)
    for local in (
        BloomFilter(bits=80_000, hash_funcs=6),
        BloomFilter(bits=80_008, hash_funcs=7),
        BloomFilter(**SHAPE, encode="utf-8"),
    ):
        with pytest.raises(MismatchError):
            await remote.union_update(local)
    with pytest.raises(MismatchError, match="the filters differ in encoding: BYTES and UTF8"):
        await remote.replace(BloomFilter(**SHAPE, encode="utf-8"))
    assert await contents(client) == before
    with pytest.raises(MismatchError, match="1000 and 2000"):
        await remote.union_update(await RedisBloomFilter.create(client, "g", shard_size=2_000, **SHAPE))
    with pytest.raises(MismatchError, match="hash_funcs"):
        await remote.union_update(
            await RedisBloomFilter.create(client, "h", bits=80_000, hash_funcs=6, shard_size=1_000)
        )
    async with connect(server.url) as own:
        with pytest.raises(ParameterError, match="different clients"):
            await remote.union_update(await RedisBloomFilter.open(own, "f"))


async def test_a_union_with_a_missing_or_recreated_filter_is_refused(client: Redis, remote: RedisBloomFilter) -> None:
    other = await RedisBloomFilter.create(client, "g", shard_size=1_000, **SHAPE)
    await other.delete()
    with pytest.raises(RemoteMissingError, match="g"):
        await remote.union_update(other)
    await RedisBloomFilter.create(client, "g", bits=80_000, hash_funcs=6, shard_size=1_000)
    before = await contents(client)
    with pytest.raises(MismatchError, match=r"\{g\}:header"):
        await remote.union_update(other)
    assert await contents(client) == before


async def test_bad_arguments_are_refused_before_a_request(client: Redis, remote: RedisBloomFilter) -> None:
    before = await contents(client)
    for options in (
        {"shard_size": 0},
        {"shard_size": (512 << 20) + 1},
        {"shard_size": 1.5},
        {"bits": 8 * 16_385, "shard_size": 1},
        {"bits": 1 << 50},
        {"bits": 0},
        {"hash_funcs": 0},
        {"expire": 0},
        {"expire": -1},
        {"expire": float("nan")},
        {"expire": float("inf")},
        {"partitioned": True},
    ):
        with pytest.raises(ParameterError):
            await RedisBloomFilter.create(client, "g", **{**SHAPE, **options})
    with pytest.raises(TooLargeError):
        await RedisBloomFilter.create(client, "g", bits=1 << 56, hash_funcs=2)
    for name in ("", "}", "}x{"):
        with pytest.raises(ParameterError, match="name"):
            await RedisBloomFilter.create(client, name, **SHAPE)
    with pytest.raises(TypeError, match="str, not bytes"):
        await RedisBloomFilter.open(client, b"f")  # type: ignore[arg-type]  # of a wrong type, and refused
    for batch in (b"one", "one", bytearray(b"one")):
        with pytest.raises(TypeError, match="batch"):
            await remote.update(batch)
    for key in ("text", 1, None):
        with pytest.raises(TypeError):
            await remote.add(key)
        with pytest.raises(TypeError):
            await remote.add_many([b"bytes", key])
    with pytest.raises(ParameterError):
        await remote.expire(0)
    with pytest.raises(TypeError, match=r"redis\.client\.Redis"):
        # of a wrong type, and refused
        await RedisBloomFilter.create(redis_py.Redis(), "g", **SHAPE)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="URL"):
        connect("http://localhost")
    assert await contents(client) == before


async def test_without_redis_py_the_error_names_the_extra(client: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match=r"extra `redis`"):
        await RedisBloomFilter.open(client, "f")
    with pytest.raises(ImportError, match=r"extra `redis`"):
        connect("redis://localhost")
