"""RedisScalableBloomFilter against a real server: growth, the promised rate, many writers, and a local filter's
results.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from redis.asyncio import Redis

from spvfilter.bloom import CustomHash, FastHash, HashFamily, ScalableBloomFilter, SipHash
from spvfilter.bloom.redis import RedisBloomFilter, RedisScalableBloomFilter, connect
from spvfilter.errors import FormatError, MismatchError, ParameterError, RemoteExistsError, RemoteMissingError
from support.peers.redisserver import RedisServer

pytestmark = pytest.mark.redis

KIB = 1024
FAMILIES: list[HashFamily] = [
    FastHash(3),
    SipHash(bytes(range(16))),
    CustomHash("own", lambda data, i: int.from_bytes(blake2b(data, digest_size=8, salt=bytes([i])).digest(), "big")),
]


async def grown(client: Redis, count: int, name: str = "f", **options: Any) -> RedisScalableBloomFilter:
    made = await RedisScalableBloomFilter.create(client, name, 100, 0.01, encode="int64", **options)
    await made.update(range(count))
    return made


async def test_the_rate_keeps_its_promise_at_any_size(client: Redis) -> None:
    made = await RedisScalableBloomFilter.create(client, "f", 20, 0.01, encode="int64")
    for times in (1, 10, 100):
        await made.update(np.arange(20 * times))
        local = await made.snapshot()
        found = sum(local.contains_many(np.arange(1 << 40, (1 << 40) + 100_000))) / 100_000
        assert found <= 1.1 * 0.01 + 4 * (0.01 / 100_000) ** 0.5
        assert await made.current_fp_rate() == pytest.approx(local.current_fp_rate)
        assert local.current_fp_rate <= 1.1 * 0.01
        assert len(local.slices) == await made.slice_count() <= local.plan.slices_for(20 * times) + 1
        assert await made.approx_len() == local.approx_len == pytest.approx(20 * times, rel=0.05, abs=5)
    assert await made.contains_many(np.arange(2_000)) == b"\1" * 2_000
    assert await made.capacity() == local.capacity
    assert (await made.bits(), await made.set_bits(), await made.fill()) == (
        local.bits,
        sum(slice.set_bits() for slice in local.slices),
        local.fill,
    )


@pytest.mark.slow
async def test_only_one_of_many_writers_adds_a_key(server: RedisServer, client: Redis) -> None:
    batch = [b"key %d" % number for number in range(600)]
    await RedisScalableBloomFilter.create(client, "race", 10, 1e-6, shard_size=100)

    async def write(number: int) -> list[bytes]:
        turned = batch[number // 2 * 100 :] + batch[: number // 2 * 100]
        new = []
        async with connect(server.url) as own:
            remote = await RedisScalableBloomFilter.open(own, "race")
            for first in range(0, len(turned), 20 * number + 10):
                part = turned[first : first + 20 * number + 10]
                new += [key for key, is_new in zip(part, await remote.add_many(part), strict=True) if is_new]
        return new

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(write(number)) for number in range(6)]
    told = [task.result() for task in tasks]
    assert sorted(key for new in told for key in new) == sorted(batch)
    assert sum(map(bool, told)) > 1, "they did not write at the same time"
    remote = await RedisScalableBloomFilter.open(client, "race")
    assert await remote.contains_many(batch) == b"\1" * len(batch)
    slices = (await remote.snapshot()).slices
    assert len(slices) in (6, 7)  # a slice ends early if it has more set bits than the mean
    for slice in slices:
        assert slice.approx_len <= (slice.capacity or 0) + 1
    assert all(slice.approx_len > (slice.capacity or 0) - 1 for slice in slices[:-1])


@pytest.mark.few(1)
@pytest.mark.parametrize("hashing", FAMILIES, ids=lambda family: type(family).__name__)
@pytest.mark.parametrize("shard_size", [13, KIB, 1 << 20])
async def test_bits_are_copied_to_a_local_filter_and_back(client: Redis, hashing: HashFamily, shard_size: int) -> None:
    made = await grown(client, 500, hashing=hashing, shard_size=shard_size, growth=3, tightening=0.7)
    local = await made.snapshot()
    assert type(local) is ScalableBloomFilter
    assert local.plan == (100, 0.01, 3, 0.7)
    assert len(local.slices) == 3
    assert [number in local for number in range(-500, 500)] == [
        bool(x) for x in await made.contains_many(range(-500, 500))
    ]
    sent = await RedisScalableBloomFilter.create_from(client, "sent", local, shard_size=shard_size)
    assert bytes(await sent.snapshot()) == bytes(local)
    assert [key for key in await client.keys() if b"staged" in key] == []
    again = await RedisScalableBloomFilter.open(client, "sent", hashing=hashing)
    assert await again.update(range(700)) == await made.update(range(700)) >= 195
    assert await again.snapshot() == await made.snapshot()
    assert await again.set_bits() == await made.set_bits()


@pytest.mark.parametrize(
    ("encode", "values"),
    [
        (None, [b"a", b"", bytearray(b"b")]),
        ("utf-8", ["ä", "1", ""]),
        ("int64", [-1, 0, 1 << 62]),
        ("uint64", [0, (1 << 64) - 1]),
        (lambda value: repr(value).encode(), [(1, 2), None]),
    ],
)
async def test_keys_are_encoded_like_those_of_a_local_filter(client: Redis, encode: Any, values: list[object]) -> None:
    remote = await RedisScalableBloomFilter.create(client, "encoded", 100, 1e-6, encode=encode)
    local = ScalableBloomFilter(100, 1e-6, encode=encode)
    assert await remote.update(values) == local.update(values) == len(values)
    again = await RedisScalableBloomFilter.open(client, "encoded", encode=encode if callable(encode) else None)
    assert bytes(await again.snapshot()) == bytes(local)
    assert again.encoding == local.encoding


async def test_columns_are_added_and_get_their_masks(client: Redis) -> None:
    remote = await RedisScalableBloomFilter.create(client, "columns", 50, 1e-6, encode="utf-8")
    assert await remote.update(np.array([f"text {number % 150}" for number in range(250)])) == 150
    with_nulls = np.array(["text 7", None, "new", None, "text 8"], object)
    assert (await remote.add_many(with_nulls, nulls="skip")).tolist() == [False, False, True, False, False]
    mask = await remote.contains_many(with_nulls, nulls="skip")
    assert with_nulls[mask].tolist() == ["text 7", "new", "text 8"]
    with pytest.raises(TypeError, match="expected a column of text"):
        await remote.update(np.arange(5))


async def test_a_client_that_decodes_responses_gets_the_same_results(server: RedisServer, client: Redis) -> None:
    made = await grown(client, 300)
    async with Redis.from_url(server.url, decode_responses=True) as decoding:
        remote = await RedisScalableBloomFilter.open(decoding, "f")
        assert await remote.snapshot() == await made.snapshot()
        assert await remote.update(range(400)) > 95
        assert await remote.contains(399)
    with pytest.raises(RemoteExistsError):
        await grown(client, 0)


async def test_single_keys_and_batches_give_the_same_filter(client: Redis) -> None:
    one, many = await grown(client, 0), await grown(client, 0, "g")
    new = [await one.add(number) for number in [*range(300), *range(50)]]
    assert await many.add_many([*range(300), *range(50)]) == bytes(new)
    assert await one.snapshot() == await many.snapshot()
    assert await one.contains(299)
    assert not await one.contains(1 << 40)
    assert await many.add_many([]) == await many.contains_many([]) == b""


async def test_a_client_notices_new_slices_and_a_recreated_filter(server: RedisServer, client: Redis) -> None:
    made = await grown(client, 50)
    async with connect(server.url) as own:
        late = await RedisScalableBloomFilter.open(own, "f")
        await made.update(range(1_000))
        assert await late.contains_many(range(1_000)) == b"\1" * 1_000
        assert await late.slice_count() == 4
        await late.delete()
        await grown(client, 10)
        assert await made.contains_many(range(20)) == b"\1" * 10 + b"\0" * 10
        assert (await made.slice_count(), await made.capacity()) == (1, 100)


async def test_clear_keeps_the_slices_and_delete_removes_all_keys(client: Redis) -> None:
    made = await grown(client, 500)
    slices = await made.slice_count()
    await made.clear()
    assert (await made.slice_count(), await made.set_bits(), await made.approx_len()) == (slices, 0, 0)
    assert not await made.contains(1)
    assert (await made.snapshot()).approx_len == 0
    assert await made.update(range(500)) > 490
    await made.delete()
    assert await client.keys() == []
    with pytest.raises(RemoteMissingError):
        await made.add(1)


async def test_all_keys_expire_together_including_later_slices(client: Redis) -> None:
    made = await grown(client, 10, expire=100)
    await made.update(range(1_000))
    await made.clear()
    await made.update(range(2_000))
    assert 90 < (await made.ttl() or 0) <= 100
    assert len(await client.keys()) > 5
    # the callee has no types
    assert len({await client.execute_command("PEXPIRETIME", key) for key in await client.keys()}) == 1  # type: ignore[no-untyped-call]
    await made.expire(None)
    assert {await client.ttl(key) for key in await client.keys()} == {-1}
    assert await made.ttl() is None


async def test_create_accepts_only_an_equal_existing_filter(client: Redis) -> None:
    made = await grown(client, 300)
    options: dict[str, Any] = {"encode": "int64"}
    with pytest.raises(RemoteExistsError, match="'f'"):
        await grown(client, 0)
    with pytest.raises(RemoteExistsError):
        await RedisScalableBloomFilter.create_from(client, "f", await made.snapshot())
    taken = await RedisScalableBloomFilter.create(client, "f", 100, 0.01, exist_ok=True, **options)
    assert await taken.contains_many(range(300)) == b"\1" * 300
    others: dict[str, dict[str, Any]] = {
        "initial_capacity": {"initial_capacity": 101},
        "fp_rate": {"fp_rate": 0.0100001},
        "growth": {"growth": 3},
        "tightening": {"tightening": 0.6},
        "key": {"hashing": FastHash(1)},
        "family": {"hashing": SipHash(bytes(16))},
        "encoding": {"encode": "utf-8"},
        "shard_size": {"shard_size": KIB},
    }
    for name, other in others.items():
        arguments: dict[str, Any] = {"initial_capacity": 100, "fp_rate": 0.01, **options, **other}
        with pytest.raises(MismatchError, match=f"{name}: "):
            await RedisScalableBloomFilter.create(client, "f", exist_ok=True, **arguments)
    with pytest.raises(ParameterError, match="not made with"):
        await RedisScalableBloomFilter.open(client, "f", hashing=FastHash(1))
    await RedisBloomFilter.create(client, "plain", 100, 0.01)
    for wrong in (
        RedisBloomFilter.open(client, "f"),
        RedisBloomFilter.create(client, "f", 100, 0.01, exist_ok=True),
    ):
        with pytest.raises(FormatError, match="kind 3 is a RedisScalableBloomFilter, not a RedisBloomFilter"):
            await wrong
    for other_way in (
        RedisScalableBloomFilter.open(client, "plain"),
        RedisScalableBloomFilter.create(client, "plain", 100, 0.01, exist_ok=True),
    ):
        with pytest.raises(FormatError, match="kind 1 is a RedisBloomFilter, not a RedisScalableBloomFilter"):
            await other_way


def test_the_repr_shows_the_parameters() -> None:
    from spvfilter.bloom import Growth
    from spvfilter.bloom.redis.serieslayout import SeriesLayout

    # it sends no request
    made = RedisScalableBloomFilter(None, SeriesLayout("f", Growth(10, 0.1), 100, None, None))  # type: ignore[arg-type]
    assert (
        repr(made)
        == "<RedisScalableBloomFilter 'f' 10 keys first, at 0.1, growth 2, tightening 0.5, shards of 100 bytes>"
    )
