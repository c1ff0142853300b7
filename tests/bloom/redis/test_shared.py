"""RedisBloomFilter against a real server: concurrent writers and readers, shards, names, expiry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, SipHash
from spvfilter.bloom.redis.client import connect
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.errors import MismatchError, ParameterError, RemoteExistsError, RemoteMissingError
from support.peers.redisserver import RedisServer
from support.vectors import effort

pytestmark = pytest.mark.redis

KIB = 1024


def keys(start: int, count: int) -> list[bytes]:
    return [b"key %d of this test" % number for number in range(start, start + count)]


@pytest.mark.slow
async def test_only_one_of_many_writers_adds_a_key(server: RedisServer, client: Redis) -> None:
    shape: dict[str, Any] = {"bits": 1 << 20, "hash_funcs": 7}  # 2,000 keys leave a rate of 10^-13
    batch, local = keys(0, 2_000), BloomFilter(**shape)
    assert local.update(batch) == 2_000
    await RedisBloomFilter.create(client, "race", shard_size=KIB, **shape)

    async def write(number: int) -> list[bytes]:
        turned = batch[number // 2 * 300 :] + batch[: number // 2 * 300]
        new = []
        async with connect(server.url) as own:
            remote = await RedisBloomFilter.open(own, "race")
            if number == 0:
                return [key for key in turned if await remote.add(key)]
            for first in range(0, 2_000, 10 * number):
                part = turned[first : first + 10 * number]
                new += [key for key, is_new in zip(part, await remote.add_many(part), strict=True) if is_new]
        return new

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(write(number)) for number in range(8)]
    told = [task.result() for task in tasks]
    assert sorted(key for new in told for key in new) == sorted(batch)
    assert sum(map(bool, told)) > 1, "they did not write at the same time"
    assert await (await RedisBloomFilter.open(client, "race")).snapshot() == local


_WRITER = """
import asyncio, sys
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.bloom.redis.client import connect

async def main():
    async with connect(sys.argv[1]) as client:
        remote = await RedisBloomFilter.create(client, "two", 20_000, 1e-6, exist_ok=True)
        print(await remote.update(b"%d" % number for number in range(int(sys.argv[2]), int(sys.argv[3]))))

asyncio.run(main())
"""


@pytest.mark.slow
async def test_two_processes_share_a_filter(server: RedisServer, client: Redis) -> None:
    words = [
        (sys.executable, "-c", _WRITER, server.url, first, last) for first, last in (("0", "900"), ("300", "1200"))
    ]
    environment: dict[str, Any] = {"PYTHONPATH": ":".join(sys.path)}
    running = [await asyncio.create_subprocess_exec(*word, stdout=subprocess.PIPE, env=environment) for word in words]
    async with asyncio.timeout(60):
        counts = [int((await process.communicate())[0]) for process in running]
    assert sum(counts) == 1_200 and max(counts) <= 900
    remote = await RedisBloomFilter.open(client, "two")
    assert await remote.contains_many(b"%d" % number for number in range(1_200)) == b"\1" * 1_200


async def test_a_reader_never_sees_part_of_a_key(server: RedisServer, client: Redis) -> None:
    rounds = effort(100, 300, 3_000)
    # key n is bit n of each plane, and no other key has that bit
    own_bits = CustomHash("number", lambda data, i: int.from_bytes(data, "little"))
    shape: dict[str, Any] = {
        "bits": 8 * rounds,
        "hash_funcs": 8,
        "partitioned": True,
        "hashing": own_bits,
        "encode": "uint64",
    }
    remote = await RedisBloomFilter.create(client, "part", shard_size=rounds // 16, **shape)

    async def write() -> None:
        for number in range(rounds):
            assert await remote.add(number)

    seen = set()
    async with connect(server.url) as own, asyncio.TaskGroup() as group:
        reader = await RedisBloomFilter.open(own, "part", hashing=own_bits)
        writing = group.create_task(write())
        while not writing.done():
            count, part = divmod(await reader.set_bits(), 8)
            assert not part
            seen.add(count)
    assert len(seen) > 10, "it did not read while the other wrote"


async def test_an_expired_filter_can_be_created_again(client: Redis) -> None:
    remote = await RedisBloomFilter.create(client, "short", 1_000, 0.01, shard_size=100, expire=0.3)
    assert 0 < (await remote.ttl() or 0) <= 0.3
    async with asyncio.timeout(5):
        while await client.exists("{short}:header"):
            pass
    with pytest.raises(RemoteMissingError, match="expired"):
        await remote.contains(b"x")
    assert await (await RedisBloomFilter.create(client, "short", 1_000, 0.01)).ttl() is None


async def test_a_large_filter_needs_memory_only_for_used_shards(client: Redis) -> None:
    bits = 1 << 33
    remote = await RedisBloomFilter.create(client, "large", bits=bits, hash_funcs=3, shard_size=1 << 20)
    assert await remote.update(keys(0, 5)) == 5
    assert await remote.contains_many(keys(0, 10)) == b"\1" * 5 + b"\0" * 5
    assert await remote.set_bits() == 15
    local = BloomFilter(bits=bits, hash_funcs=3)  # its memory is never touched
    positions = {position for key in keys(0, 5) for position in local.positions(key)}
    assert max(positions) > 1 << 32
    for position in positions:
        shard, bit = divmod(position, 8 << 20)
        assert await client.getbit(f"{{large}}:bits:{shard}", bit & ~7 | 7 - (bit & 7)) == 1
    assert (await client.info("memory"))["used_memory"] < 64 << 20
    again = await RedisBloomFilter.open(client, "large")
    assert await again.add(keys(0, 1)[0]) is False


async def test_a_name_with_a_hash_tag_keeps_it(client: Redis) -> None:
    await RedisBloomFilter.create(client, "{shop}:a", 100, 0.01)
    await RedisBloomFilter.create(client, "plain", 100, 0.01)
    assert set(await client.keys()) == {b"{shop}:a:header", b"{shop}:a:bits:0", b"{plain}:header", b"{plain}:bits:0"}
    # redis-py's union types
    assert len({key_slot(key) for key in await client.keys("{shop}*")}) == 1  # type: ignore[arg-type]
    # redis-py's union types
    assert len({key_slot(key) for key in await client.keys("{plain}*")}) == 1  # type: ignore[arg-type]


async def test_create_accepts_only_an_equal_existing_filter(client: Redis) -> None:
    made = await RedisBloomFilter.create(client, "there", 1_000, 0.01)
    await made.add(b"x")
    with pytest.raises(RemoteExistsError, match="'there'"):
        await RedisBloomFilter.create(client, "there", 1_000, 0.01)
    with pytest.raises(RemoteExistsError):
        await RedisBloomFilter.create_from(client, "there", BloomFilter(1_000, 0.01))
    taken = await RedisBloomFilter.create(client, "there", 1_000, 0.01, exist_ok=True)
    assert await taken.contains(b"x")
    for name, options in {
        "cells": {"capacity": 2_000},
        "fp_rate": {"fp_rate": 0.0100001},
        "hash_funcs": {"hash_funcs": 3},
        "key": {"hashing": FastHash(1)},
        "family": {"hashing": Bip37Hash()},
        "encoding": {"encode": "utf-8"},
        "shard_size": {"shard_size": KIB},
    }.items():
        with pytest.raises(MismatchError, match=name):
            await RedisBloomFilter.create(
                client,
                "there",
                **{"capacity": 1_000, "fp_rate": 0.01, **options},  # type: ignore[arg-type, dict-item]
                exist_ok=True,
            )  # redis-py's union types
    with pytest.raises(ParameterError, match="utf8"):
        await RedisBloomFilter.open(client, "there", encode="utf-8")
    with pytest.raises(ParameterError, match="not made with"):
        await RedisBloomFilter.open(client, "there", hashing=SipHash(bytes(16)))
    assert await taken.contains(b"x")
