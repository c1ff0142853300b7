"""RedisBloomFilter against a real server: results equal to those of a local filter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash
from spvfilter.bloom.redis.filter import RedisBloomFilter
from spvfilter.bloom.redis.scalable import RedisScalableBloomFilter
from spvfilter.bloom.scalable import ScalableBloomFilter
from spvfilter.errors import RemoteMissingError
from support.kernels.producers import Producer, integers
from support.peers.redisserver import RedisServer

pytestmark = pytest.mark.redis

KIB = 1024
FAMILIES: dict[str, HashFamily] = {
    "bip37": Bip37Hash(7),
    "fast": FastHash(3),
    "siphash": SipHash(bytes(range(16))),
    "custom": CustomHash("sum", lambda data, i: int.from_bytes(data[i : i + 8], "big") * (i + 1)),
}


def keys(start: int, count: int) -> list[bytes]:
    return [b"key %d of this test" % number for number in range(start, start + count)]


@pytest.mark.slow
async def test_add_reports_new_keys_and_contains_finds_them(client: Redis) -> None:
    remote, local = await RedisBloomFilter.create(client, "urls", 1_000, 0.001), BloomFilter(1_000, 0.001)
    for key in keys(0, 200) + keys(100, 200):
        assert await remote.add(key) == local.add(key)
    assert [await remote.contains(key) for key in keys(0, 600)] == [key in local for key in keys(0, 600)]
    assert repr(remote).endswith(", 1 shard of 16777216 bytes>")
    assert (remote.bits, remote.hash_funcs, remote.capacity, remote.nominal_fp_rate) == (
        local.bits,
        local.hash_funcs,
        1_000,
        0.001,
    )


async def test_columns_give_the_masks_of_a_local_filter(client: Redis) -> None:
    remote = await RedisBloomFilter.create(client, "columns", 5_000, 0.001, encode="utf-8")
    local = BloomFilter(5_000, 0.001, encode="utf-8")
    texts = np.array([f"text {number % 1_500}" for number in range(2_500)])
    assert await remote.update(texts) == local.update(texts) == 1_500
    with_nulls = np.array(["text 7", None, "new", None, "text 8"], object)
    mask = await remote.contains_many(with_nulls, nulls="skip")
    assert with_nulls[mask].tolist() == ["text 7", "text 8"]
    assert (await remote.add_many(with_nulls, nulls="skip")).tolist() == [False, False, True, False, False]
    assert local.update(with_nulls, nulls="skip") == 1
    assert await remote.contains_many([None, "new"], nulls="skip") == b"\0\1"
    column = Producer(b"u", 2, [None, integers(0, 3, 5), b"newno"])
    assert await remote.contains_many(column) == b"\1\0"
    assert column.released == 1
    with pytest.raises(
        TypeError, match="expected a column of text, not of integers: the filter encodes its keys as utf-8"
    ):
        await remote.update(np.arange(5))
    assert await remote.snapshot() == local


async def test_batches_of_any_length_agree_with_a_local_filter(client: Redis) -> None:
    remote, local = await RedisBloomFilter.create(client, "batch", 5_000, 0.01), BloomFilter(5_000, 0.01)
    for batch in ([], keys(0, 1), keys(0, 999), keys(500, 1_000), keys(0, 2) * 3, keys(900, 2_001)):
        assert await remote.add_many(iter(batch)) == bytes(local.add(key) for key in batch)
        assert await remote.contains_many(iter(batch)) == b"\1" * len(batch)
    assert await remote.contains_many(keys(0, 5_000)) == local.contains_many(keys(0, 5_000))
    assert await remote.update(keys(2_500, 1_500)) == local.update(keys(2_500, 1_500))
    assert await remote.snapshot() == local


async def test_a_batch_of_a_thousand_keys_is_one_round_trip(client: Redis) -> None:
    # a filter with a capacity counts its bits now and then
    remote = await RedisBloomFilter.create(client, "trips", 100_000, 0.001)
    await remote.add_many(keys(0, 1))
    sent = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await remote.add_many(keys(0, 1_000))
    assert (await client.info("commandstats"))["cmdstat_evalsha"]["calls"] == sent + 1


@pytest.mark.parametrize("hash_funcs", [1, 164, 1_075])
async def test_any_number_of_hash_functions_fits_into_a_script(client: Redis, hash_funcs: int) -> None:
    remote = await RedisBloomFilter.create(client, "many", bits=1 << 20, hash_funcs=hash_funcs, shard_size=KIB)
    local = BloomFilter(bits=1 << 20, hash_funcs=hash_funcs)
    assert await remote.add_many(keys(0, 40)) == bytes(map(local.add, keys(0, 40)))
    assert await remote.contains_many(keys(30, 20)) == local.contains_many(keys(30, 20))
    assert await remote.snapshot() == local


@pytest.mark.few(3)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shard_size", [1, 13, KIB, 1 << 20])
async def test_bits_equal_those_of_a_local_filter(
    client: Redis, family: str, partitioned: bool, shard_size: int
) -> None:
    hashing: HashFamily = FAMILIES[family]
    bits = 7 * 11_003 if shard_size > 13 else 7 * 103  # not a multiple of 8, so the last byte has padding
    shape: dict[str, Any] = {"bits": bits, "hash_funcs": 7, "hashing": hashing, "partitioned": partitioned}
    remote = await RedisBloomFilter.create(client, "bytes", shard_size=shard_size, **shape)
    local = BloomFilter(**shape)
    assert await remote.add_many(keys(0, 80)) == bytes(local.add(key) for key in keys(0, 80))
    taken = await remote.snapshot()
    assert bytes(taken) == bytes(local) and type(taken) is BloomFilter
    assert await remote.set_bits() == local.set_bits()
    assert await remote.current_fp_rate() == pytest.approx(local.current_fp_rate)

    sent = await RedisBloomFilter.create_from(client, "sent", local, shard_size=shard_size)
    assert await sent.contains_many(keys(0, 300)) == local.contains_many(keys(0, 300))
    assert bytes(await sent.snapshot()) == bytes(local)
    local.update(keys(80, 80))
    await remote.replace(local)
    assert bytes(await remote.snapshot()) == bytes(local)
    reopened = await RedisBloomFilter.open(client, "sent", hashing=hashing)
    assert await reopened.contains_many(keys(0, 80)) == b"\1" * 80
    assert {key for key in await client.keys() if b"staged" in key} == set()


@pytest.mark.parametrize(
    ("encode", "values"),
    [
        ("utf-8", ["ä", "1", ""]),
        ("int64", [-1, 0, 1 << 62]),
        ("uint64", [0, (1 << 64) - 1]),
        (lambda value: repr(value).encode(), [(1, 2), None]),
    ],
)
async def test_keys_are_encoded_like_those_of_a_local_filter(client: Redis, encode: Any, values: list[object]) -> None:
    remote = await RedisBloomFilter.create(client, "encoded", 100, 0.01, encode=encode)
    local = BloomFilter(100, 0.01, encode=encode)
    assert await remote.update(values) == local.update(values) == len(values)
    again = await RedisBloomFilter.open(client, "encoded", encode=encode if callable(encode) else None)
    assert bytes(await again.snapshot()) == bytes(local)


async def test_a_client_that_decodes_responses_gets_the_same_results(client: Redis, server: RedisServer) -> None:
    local = BloomFilter(2_000, 0.01)
    local.update(keys(0, 1_000))
    async with Redis.from_url(server.url, decode_responses=True) as decoding:
        remote = await RedisBloomFilter.create_from(decoding, "decoded", local)
        assert await remote.add_many(keys(999, 2)) == b"\0\1"
        local.update(keys(999, 2))
        again = await RedisBloomFilter.open(decoding, "decoded")
        assert await again.snapshot() == local
        assert await again.contains(keys(0, 1)[0])


@dataclass
class Pair:
    mine: RedisBloomFilter
    other: RedisBloomFilter
    local: BloomFilter


async def pair(client: Redis, shard_size: int) -> Pair:
    mine = await RedisBloomFilter.create(client, "mine", 2_000, 0.01, shard_size=shard_size)
    other = await RedisBloomFilter.create(client, "other", 2_000, 0.01, shard_size=shard_size)
    local = BloomFilter(2_000, 0.01)
    await mine.update(keys(0, 300))
    await other.update(keys(200, 400))
    local.update(keys(0, 600))
    return Pair(mine, other, local)


@pytest.mark.parametrize("shard_size", [100, KIB, 1 << 20])
async def test_a_union_on_the_server_equals_a_local_one(client: Redis, shard_size: int) -> None:
    both = await pair(client, shard_size)
    before = await both.other.snapshot()
    await both.mine.union_update(both.other)
    assert bytes(await both.mine.snapshot()) == bytes(both.local)
    assert await both.other.snapshot() == before
    await both.mine.union_update(both.mine)
    assert await both.mine.snapshot() == both.local


async def test_a_union_with_a_local_filter_keeps_earlier_keys(client: Redis) -> None:
    both = await pair(client, 100)
    await both.mine.union_update(await both.other.snapshot())
    assert await both.mine.snapshot() == both.local
    assert not [key for key in await client.keys() if b"staged" in key]


async def test_estimates_equal_those_of_a_local_filter(client: Redis) -> None:
    both = await pair(client, KIB)
    local = await both.mine.snapshot()
    assert await both.mine.set_bits() == local.set_bits()
    assert await both.mine.fill() == local.fill
    assert await both.mine.approx_len() == local.approx_len == pytest.approx(300, rel=0.1)
    assert await both.mine.current_fp_rate() == pytest.approx(local.current_fp_rate)
    full = BloomFilter(bits=20, hash_funcs=2, buffer=bytearray(b"\xff\xff\x0f"))
    assert await (await RedisBloomFilter.create_from(client, "full", full)).approx_len() == math.inf


async def test_clear_and_delete(client: Redis) -> None:
    remote = await RedisBloomFilter.create(client, "gone", 1_000, 0.01, shard_size=100)
    await remote.update(keys(0, 100))
    await remote.clear()
    assert await remote.set_bits() == 0 and await remote.snapshot() == BloomFilter(1_000, 0.01)
    assert await remote.add(b"again")
    await remote.delete()
    assert await client.keys() == []
    with pytest.raises(RemoteMissingError):
        await remote.add(b"again")


async def test_all_keys_of_a_filter_expire_together(client: Redis) -> None:
    both = await pair(client, KIB)
    assert await both.mine.ttl() is None
    await both.mine.expire(100)
    await both.mine.update(keys(1_000, 100))
    await both.mine.union_update(both.other)
    await both.mine.union_update(both.local)
    await both.mine.replace(both.local)
    await both.mine.clear()
    assert 90 < (await both.mine.ttl() or 0) <= 100
    # the callee has no types
    ends = {await client.execute_command("PEXPIRETIME", key) for key in await client.keys("{mine}*")}  # type: ignore[no-untyped-call]
    assert len(ends) == 1 and ends != {-1}
    await both.mine.expire(None)
    assert {await client.ttl(key) for key in await client.keys()} == {-1}


async def test_other_kinds_are_refused_before_bits_are_written(client: Redis) -> None:
    there = keys(0, 100)
    local, counting = BloomFilter.build(there, 100, 0.01), CountingBloomFilter(100, 0.01)
    counting.update(there)
    remote = await RedisBloomFilter.create_from(client, "good", local)
    for other in (counting, ScalableBloomFilter(100, 0.01), {b"key"}, None):
        said = f"not {type(other).__name__}"
        with pytest.raises(TypeError, match=said):
            await RedisBloomFilter.create_from(client, "other", other)  # type: ignore[arg-type]
        for operation in (remote.union_update, remote.replace):
            with pytest.raises(TypeError, match=said):
                await operation(other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a ScalableBloomFilter, not BloomFilter"):
        await RedisScalableBloomFilter.create_from(client, "other", local)  # type: ignore[arg-type]
    assert await client.keys("*other*") == []
    assert await remote.contains_many(there) == bytes([1]) * 100
    converted = await RedisBloomFilter.create_from(client, "bits", counting.to_bloom())
    assert await converted.contains_many(there) == bytes([1]) * 100


async def test_pipeline_is_no_client(client: Redis) -> None:
    await RedisBloomFilter.create(client, "f", 100, 0.01)
    for call in (RedisBloomFilter.open, RedisScalableBloomFilter.open):
        with pytest.raises(
            TypeError, match=r"expected a client of redis\.asyncio, not redis\.asyncio\.client\.Pipeline"
        ):
            await call(client.pipeline(), "f")
