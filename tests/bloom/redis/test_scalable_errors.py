"""Errors of RedisScalableBloomFilter, against real servers: every failure has its own error and changes no key."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from spvfilter.bloom import BloomFilter, Growth, ScalableBloomFilter
from spvfilter.bloom.redis import RedisScalableBloomFilter, connect
from spvfilter.bloom.redis.serieslayout import SeriesLayout
from spvfilter.errors import (
    CapacityError,
    FormatError,
    MismatchError,
    ParameterError,
    RemoteConnectionError,
    RemoteError,
    RemoteFullError,
    RemoteMissingError,
    RemoteReadOnlyError,
    RemoteTypeError,
)
from support.filters.redisoperations import contents, grow
from support.peers.redisserver import RedisServer, running_redis

pytestmark = pytest.mark.redis

SHAPE: dict[str, Any] = {"initial_capacity": 50, "fp_rate": 0.01, "encode": "int64", "shard_size": 50}
Operation = Callable[[RedisScalableBloomFilter], Awaitable[object]]
READING: dict[str, Operation] = {
    "contains": lambda remote: remote.contains(1 << 40),
    "contains_many": lambda remote: remote.contains_many([1 << 40]),
    "snapshot": lambda remote: remote.snapshot(),
    "set_bits": lambda remote: remote.set_bits(),
    "current_fp_rate": lambda remote: remote.current_fp_rate(),
    "ttl": lambda remote: remote.ttl(),
}
WRITING: dict[str, Operation] = {
    "add": lambda remote: remote.add(1 << 40),
    "update": lambda remote: remote.update([1 << 40]),
    "grow": grow,
    "clear": lambda remote: remote.clear(),
    "delete": lambda remote: remote.delete(),
    "expire": lambda remote: remote.expire(1),
}
OPERATIONS = READING | WRITING
operations = pytest.mark.parametrize("operation", OPERATIONS)


@pytest.fixture
async def remote(client: Redis) -> RedisScalableBloomFilter:
    return await make(client)


async def make(client: Redis) -> RedisScalableBloomFilter:
    made = await RedisScalableBloomFilter.create(client, "f", **SHAPE)
    await made.update(range(200))
    assert await made.slice_count() == 3
    return made


async def plant(client: Redis, *numbers: int) -> None:
    await client.set("{f}:slices", struct.pack(f"<{len(numbers)}Q", *numbers))


@pytest.mark.few(12)
@operations
@pytest.mark.parametrize("key", ["{f}:header", "{f}:slices", "{f}:slice:*"])
@pytest.mark.parametrize("other", [False, True], ids=["gone", "of another type"])
async def test_a_changed_key_is_an_error_and_changes_no_other(
    client: Redis, remote: RedisScalableBloomFilter, operation: str, key: str, other: bool
) -> None:
    if key.endswith("*") and operation in ("set_bits", "current_fp_rate", "ttl"):
        return  # these need no bits
    for name in await client.keys(key):
        await client.delete(name)
        if other:
            await client.rpush(name, "a list")
    before = await contents(client)
    with pytest.raises(RemoteTypeError if other else RemoteMissingError, match=key[:5]):
        await OPERATIONS[operation](remote)
    assert await contents(client) == before


@operations
async def test_a_filter_recreated_with_other_parameters_is_refused(
    client: Redis, remote: RedisScalableBloomFilter, operation: str
) -> None:
    await remote.delete()
    await RedisScalableBloomFilter.create(client, "f", **{**SHAPE, "growth": 4})
    before = await contents(client)
    with pytest.raises(MismatchError, match="re-created"):
        await OPERATIONS[operation](remote)
    assert await contents(client) == before


@pytest.mark.few(3)
@operations
async def test_a_malformed_state_is_a_format_error(
    client: Redis, remote: RedisScalableBloomFilter, operation: str
) -> None:
    good = await client.get("{f}:slices")
    assert isinstance(good, bytes)
    wrong: list[bytes] = [
        b"",
        b"?",
        good[:-1],
        good[:-8],
        good + bytes(8),
        bytes(16),
        struct.pack("<Q", 65) + bytes(65 * 8),
    ]
    for raw in [*wrong, struct.pack("<Q", 1 << 63) + good[8:]]:
        await client.set("{f}:slices", raw)
        before = await contents(client)
        with pytest.raises(FormatError, match=r"\{f\}:slices.*not the state"):
            await OPERATIONS[operation](remote)
        assert await contents(client) == before


async def test_an_impossible_state_is_a_format_error(client: Redis, remote: RedisScalableBloomFilter) -> None:
    await plant(client, 3, 1 << 40, 0, 0)
    with pytest.raises(FormatError, match="slice 0 has 576 bits, but 1099511627776 of them are set"):
        await remote.set_bits()
    await plant(client, 60, *range(60))
    with pytest.raises(FormatError, match="60 slices are more than the filter can contain"):
        await remote.add(1)


async def test_a_snapshot_notices_a_truncated_shard(client: Redis, remote: RedisScalableBloomFilter) -> None:
    await client.set("{f}:slice:1:0", b"\0")
    with pytest.raises(FormatError, match=r"slice 1 has \d+ set bits, but \d+ were set: another program has truncated"):
        await remote.snapshot()


async def test_a_malformed_header_is_a_format_error(client: Redis, remote: RedisScalableBloomFilter) -> None:
    good = await client.get("{f}:header")
    assert isinstance(good, bytes)

    def patched(at: int, layout: str, value: object) -> bytes:
        raw = bytearray(good)
        struct.pack_into(layout, raw, at, value)
        return bytes(raw)

    header = SeriesLayout("f", Growth(51, 0.01), 50, None, "int64").header
    damaged = [patched(at, "B", good[at] ^ 1) for at in range(64)]
    absurd = [
        patched(64, "<Q", 1),
        patched(72, "<d", 1.0),
        patched(80, "<Q", 0),
        patched(80, "<Q", 1 << 40),
        header[:72] + bytes(16),
    ]
    foreign = bytearray(header)
    first = BloomFilter(50, 0.02).header()._replace(kind=3, capacity=51, fp_rate=0.01, encoding=2)
    foreign[:64] = first.pack()
    for raw in (b"", b"?", good[:-1], good + b"\0", bytes(88), *damaged, *absurd, bytes(foreign)):
        await client.set("{f}:header", raw)
        with pytest.raises(FormatError):
            await RedisScalableBloomFilter.open(client, "f")
    with pytest.raises(FormatError):
        await RedisScalableBloomFilter.create(client, "f", **SHAPE, exist_ok=True)


async def test_without_memory_no_key_is_partly_added(client: Redis, remote: RedisScalableBloomFilter) -> None:
    local = await remote.snapshot()
    await client.config_set("maxmemory", 1)
    try:
        before = await contents(client)
        for operation in ("add", "update", "clear"):
            with pytest.raises(RemoteFullError, match="maxmemory"):
                await OPERATIONS[operation](remote)
        layout = SeriesLayout("f", Growth(50, 0.01), 50, None, "int64")
        layout.know(3)
        full = layout.full_at(2)
        with pytest.raises(RemoteFullError):
            await RedisScalableBloomFilter.create(client, "g", **SHAPE)
        with pytest.raises(RemoteFullError):
            await RedisScalableBloomFilter.create_from(client, "g", local)
        assert await contents(client) == before
        assert await remote.contains_many(range(200)) == b"\1" * 200
        assert not await remote.add(0)
        await client.config_set("maxmemory", 0)
        await plant(client, 3, *(slice.set_bits() for slice in local.slices[:2]), full)
        before = await contents(client)
        await client.config_set("maxmemory", 1)
        with pytest.raises(RemoteFullError):
            await remote.add(1 << 40)  # needs another slice
        assert await contents(client) == before
    finally:
        await client.config_set("maxmemory", 0)
    assert await remote.add(1 << 40)
    assert await remote.slice_count() == 4


async def test_a_replica_answers_but_refuses_writes(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with (
        running_redis(folders[0], "--repl-diskless-sync-delay", "0", tcp=True) as first,
        running_redis(folders[1], "--replicaof", "127.0.0.1", str(first.port), tcp=True) as second,
    ):
        async with connect(first.url) as writer, connect(second.url) as reader, asyncio.timeout(20):
            made = await make(writer)
            # the callee has no types
            while await writer.execute_command("WAIT", 1, 100) < 1:  # type: ignore[no-untyped-call]
                pass
            replica = await RedisScalableBloomFilter.open(reader, "f")
            assert await replica.snapshot() == await made.snapshot()
            for name in ("add", "update", "clear", "delete", "expire"):
                with pytest.raises(RemoteReadOnlyError, match="replica"):
                    await WRITING[name](replica)
            with pytest.raises(RemoteReadOnlyError):
                await RedisScalableBloomFilter.create(reader, "g", **SHAPE)
            assert await replica.snapshot() == await made.snapshot()


async def test_a_lost_connection_has_its_own_error(tmp_path: Path) -> None:
    def endless(server: RedisServer) -> Any:
        for number in range(1 << 30):
            if number == 2_500:
                server.kill()
            yield number

    with running_redis(tmp_path) as server:
        async with connect(server.url) as client, asyncio.timeout(20):
            remote = await make(client)
            with pytest.raises(RemoteConnectionError):
                await remote.update(endless(server))
            for operation in OPERATIONS.values():
                with pytest.raises(RemoteConnectionError):
                    await operation(remote)
            with pytest.raises(RemoteConnectionError):
                await RedisScalableBloomFilter.open(client, "f")


async def test_a_cancelled_addition_is_complete_or_absent(client: Redis, remote: RedisScalableBloomFilter) -> None:
    for steps in range(200):
        adding = asyncio.create_task(remote.update(range(200, 300)))
        for _ in range(steps):
            await asyncio.sleep(0)
        if adding.done():
            break
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        state = await client.get("{f}:slices")
        assert isinstance(state, bytes)
        _, *counted = struct.unpack(f"<{len(state) // 8}Q", state)
        assert [slice.set_bits() for slice in (await remote.snapshot()).slices] == counted
    assert steps > 3
    await remote.update(range(200, 300))
    assert await remote.contains_many(range(300)) == b"\1" * 300


async def test_forgotten_scripts_are_sent_again(client: Redis, remote: RedisScalableBloomFilter) -> None:
    for name, operation in OPERATIONS.items():
        await client.script_flush()
        await operation(remote)
        if name == "delete":
            remote = await make(client)


async def test_an_oversized_shard_is_refused_at_creation(client: Redis) -> None:
    await client.config_set("proto-max-bulk-len", 1 << 20)
    try:
        with pytest.raises(RemoteError, match="out of range"):
            await RedisScalableBloomFilter.create(client, "f", 50, 0.01)
        assert await client.keys() == []
        await RedisScalableBloomFilter.create(client, "f", 50, 0.01, shard_size=1 << 20)
    finally:
        await client.config_set("proto-max-bulk-len", 512 << 20)


async def test_growth_ends_with_the_number_of_shards(client: Redis) -> None:
    remote = await RedisScalableBloomFilter.create(client, "f", 20, 0.01, 1_024, encode="int64", shard_size=1)
    first = SeriesLayout("f", Growth(20, 0.01, 1_024), 1, None, "int64")
    await plant(client, 1, first.full_at(0))
    with pytest.raises(
        CapacityError, match=r"with another slice, it would have more than 16384 shards of 1 bytes"
    ) as caught:
        await remote.add(1)
    assert (caught.value.count, caught.value.capacity) == (19, 20)
    assert 0 < (caught.value.fp_rate or 0) < 0.01
    assert len(await client.keys()) == 2 + first.slices[0].shards


async def test_bad_arguments_are_refused_before_a_request(client: Redis, remote: RedisScalableBloomFilter) -> None:
    before = await contents(client)
    wrong = [
        ("initial_capacity", 0),
        ("fp_rate", 1.0),
        ("growth", 1),
        ("tightening", 1.0),
        ("shard_size", 0),
        ("expire", 0),
        ("encode", 3),
    ]
    for name, value in wrong:
        with pytest.raises(ParameterError):
            await RedisScalableBloomFilter.create(client, "g", **{**SHAPE, name: value})
    for key in (b"1", "1", True, None):
        with pytest.raises(TypeError):
            await remote.add(key)
    with pytest.raises(OverflowError):
        await remote.update([1 << 70])
    for batch in (b"one", "one"):
        with pytest.raises(TypeError, match="batch"):
            await remote.update(batch)
    with pytest.raises(ParameterError, match="name"):
        await RedisScalableBloomFilter.create(client, "", **SHAPE)
    odd = ScalableBloomFilter(50, 0.01)
    odd.nominal_fp_rate = 0.02
    with pytest.raises(MismatchError, match="slice 0 does not follow from the filter's parameters"):
        await RedisScalableBloomFilter.create_from(client, "g", odd)
    with pytest.raises(TypeError, match="redis"):
        await RedisScalableBloomFilter.open(object(), "f")  # type: ignore[arg-type]  # of a wrong type, and refused
    assert await contents(client) == before
