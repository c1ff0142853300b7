"""A filter in Redis that is replaced by one of another shape: no reader fails, and nothing of the old one stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import CustomHash, SipHash
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.bloom.redis.layout import MAX_MARKS
from spvfilter.bloom.redis.scalable import RedisScalableBloomFilter
from spvfilter.errors import MismatchError, RemoteMissingError, RemoteTypeError
from support.filters.redisoperations import OPERATIONS, SHAPE, keys

pytestmark = pytest.mark.redis

SHAPES: list[dict[str, Any]] = [
    {"capacity": 100_000, "fp_rate": 0.001},
    {"capacity": 50, "fp_rate": 0.1},
    {"bits": 80_000, "hash_funcs": 6},
    {"bits": 8_000, "hash_funcs": 5, "hashing": SipHash(bytes(16))},
    {"bits": 10_000, "hash_funcs": 5, "partitioned": True},
]


def filled(shape: dict[str, Any], count: int = 50) -> BloomFilter:
    made = BloomFilter(**shape)
    made.update(keys(count))
    return made


@pytest.mark.parametrize("shape", SHAPES)
async def test_filter_of_another_shape_takes_the_place(
    client: Redis, remote: RedisBloomFilter, shape: dict[str, Any]
) -> None:
    reader = await RedisBloomFilter.open(client, "f")
    await remote.expire(100)
    local = filled(shape)
    await remote.replace(local)
    for handle in (reader, remote, await RedisBloomFilter.open(client, "f")):
        assert await handle.contains_many(keys(50)) == b"\1" * 50
        assert await handle.snapshot() == local
        assert (handle.bits, handle.hash_funcs, handle.partitioned) == (local.bits, local.hash_funcs, local.partitioned)
        assert (handle.capacity, handle.nominal_fp_rate) == (local.capacity, local.nominal_fp_rate)
        assert handle.hashing == local.hashing
        assert 90 < (await handle.ttl() or 0) <= 100
    shards = -(-len(local.body) // 1_000)
    names = {b"{f}:header", b"{f}:replaced", *(b"{f}:bits:%d" % number for number in range(shards))}
    assert {*await client.keys()} == names
    await reader.expire(None)
    assert {await client.ttl(name) for name in names} == {-1}
    await reader.delete()
    assert await client.keys() == []


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_every_operation_notices_the_new_filter(client: Redis, remote: RedisBloomFilter, operation: str) -> None:
    reader = await RedisBloomFilter.open(client, "f")
    for hash_funcs in (3, 4, 5):
        await remote.replace(BloomFilter(bits=300, hash_funcs=hash_funcs))
    await remote.replace(BloomFilter(**{**SHAPE, "hash_funcs": 6}))
    if operation == "union_update of a local one":
        with pytest.raises(MismatchError, match="hash_funcs: 6 and 7"):
            await OPERATIONS[operation](reader)
    else:
        await OPERATIONS[operation](reader)


@pytest.mark.slow
async def test_reads_never_fail_while_other_sizes_take_the_place(client: Redis) -> None:
    local = filled({"capacity": 100, "fp_rate": 0.01})
    writer = await RedisBloomFilter.create_from(client, "f", local, shard_size=100)
    handle, done, reads = await RedisBloomFilter.open(client, "f"), asyncio.Event(), 0

    async def read(again: bool) -> None:
        nonlocal reads
        while not done.is_set():
            filter = await RedisBloomFilter.open(client, "f") if again else handle
            assert await filter.contains_many(keys(50)) == b"\1" * 50
            assert await filter.set_bits() > 0
            reads += 1

    async with asyncio.TaskGroup() as group:
        for again in (True, True, False, False):
            group.create_task(read(again))
        for number in range(40):
            await writer.replace(filled({"capacity": (50, 1_000, 200)[number % 3], "fp_rate": 0.01}))
        done.set()
    assert reads > 40


async def test_two_writers_replace_the_same_filter(client: Redis, remote: RedisBloomFilter) -> None:
    others = [await RedisBloomFilter.open(client, "f") for _ in range(3)]
    locals_ = [filled({"capacity": 100 * number, "fp_rate": 0.01}) for number in (1, 20, 3)]
    await asyncio.gather(*(other.replace(local) for other, local in zip(others, locals_, strict=True)))
    assert await remote.contains_many(keys(50)) == b"\1" * 50
    assert await remote.snapshot() in locals_
    assert not [key for key in await client.keys() if b"staged" in key]


async def test_filter_made_again_after_a_replacement_is_not_followed(client: Redis, remote: RedisBloomFilter) -> None:
    reader = await RedisBloomFilter.open(client, "f")
    await remote.replace(BloomFilter(bits=300, hash_funcs=3))
    await remote.delete()
    with pytest.raises(RemoteMissingError):
        await reader.contains(b"key")
    await RedisBloomFilter.create(client, "f", bits=300, hash_funcs=3)
    with pytest.raises(MismatchError, match="re-created"):
        await reader.contains(b"key")
    await client.delete("{f}:header")
    await RedisScalableBloomFilter.create(client, "f", 10, 0.1)
    with pytest.raises(MismatchError, match="re-created"):
        await reader.contains(b"key")


async def test_custom_hash_family_is_followed_only_under_its_own_name(client: Redis) -> None:
    def call(data: bytes, number: int) -> int:
        return int.from_bytes(data[-8:], "big") * (number + 1)

    own, other = CustomHash("own", call), CustomHash("other", call)
    remote = await RedisBloomFilter.create(client, "f", bits=800, hash_funcs=3, hashing=own)
    reader = await RedisBloomFilter.open(client, "f", hashing=own)
    await remote.replace(filled({"bits": 1_600, "hash_funcs": 4, "hashing": own}))
    assert await reader.contains_many(keys(50)) == b"\1" * 50
    await remote.replace(filled({"bits": 800, "hash_funcs": 4, "hashing": other}))
    with pytest.raises(MismatchError, match="re-created"):
        await reader.contains(b"key")


async def test_list_of_replaced_filters_is_bounded(client: Redis, remote: RedisBloomFilter) -> None:
    first = await RedisBloomFilter.open(client, "f")
    for number in range(MAX_MARKS + 5):
        await remote.replace(BloomFilter(bits=64 + number, hash_funcs=3))
    assert await client.strlen("{f}:replaced") == 8 * MAX_MARKS
    with pytest.raises(MismatchError, match="re-created"):
        await first.contains(b"key")
    recent = await RedisBloomFilter.open(client, "f")
    await remote.replace(BloomFilter(bits=1_000, hash_funcs=3))
    assert not await recent.contains(b"key")


async def test_replacement_that_cannot_be_stored_changes_nothing(client: Redis, remote: RedisBloomFilter) -> None:
    before = await remote.snapshot()
    await client.rpush("{f}:bits:12", "a list")
    with pytest.raises(RemoteTypeError, match=r"bits:12.*list"):
        await remote.replace(BloomFilter(bits=200_000, hash_funcs=3))
    assert await remote.snapshot() == before
    assert not [key for key in await client.keys() if b"staged" in key or b"replaced" in key]
