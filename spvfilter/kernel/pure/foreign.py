"""The positions of a key in other programs' filters, computed with their hash functions.

The programs are Parquet (split-block filters), Spark, and RedisBloom. Sources:

- xxHash64: xxHash specification (xxhash_spec.md), version 0.1.1, "XXH64"
- split-block filters: parquet-format, BloomFilter.md
- Spark: BloomFilterImpl, BloomFilterImplV2 and Murmur3_x86_32 of Spark 4.3
- RedisBloom: bloom.c of RedisBloom 2.8
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from spvfilter.errors import ParameterError
from spvfilter.kernel.values import SPLIT_BLOCK_BITS, SPLIT_BLOCK_FUNCTIONS, Family

_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MULTIPLIER = 0xC6A4A7935BD1E995  # The multiplier of MurmurHash64A. RedisBloom also uses it as the seed.
_SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_MOST_BLOCKS = 1 << 32  # Largest number of blocks: 32 bits of the hash choose one.


def xxhash64(data: bytes) -> int:
    """Return the 64-bit xxHash of the data with seed 0."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [_P1 + _P2 & _M64, _P2, 0, -_P1 & _M64]
        while at + 32 <= size:
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)]
            at += 32
        hashed = sum(_left(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
        for lane in lanes:
            hashed = (hashed ^ _round(0, lane)) * _P1 + _P4 & _M64
    else:
        hashed = _P5
    hashed = hashed + size & _M64
    while at + 8 <= size:
        hashed = _left(hashed ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4 & _M64
        at += 8
    if at + 4 <= size:
        hashed = _left(hashed ^ int.from_bytes(data[at : at + 4], "little") * _P1 & _M64, 23) * _P2 + _P3 & _M64
        at += 4
    for byte in data[at:]:
        hashed = _left(hashed ^ byte * _P5 & _M64, 11) * _P1 & _M64
    hashed = (hashed ^ hashed >> 33) * _P2 & _M64
    hashed = (hashed ^ hashed >> 29) * _P3 & _M64
    return hashed ^ hashed >> 32


def _round(lane: int, word: int) -> int:
    return _left(lane + word * _P2 & _M64, 31) * _P1 & _M64


def _left(value: int, turn: int) -> int:
    return (value << turn | value >> 64 - turn) & _M64


def murmur64a(data: bytes, seed: int) -> int:
    """Return the MurmurHash64A of the data."""
    hashed = seed ^ len(data) * _MULTIPLIER & _M64
    whole = len(data) & ~7
    for word in struct.unpack(f"<{whole // 8}Q", data[:whole]):
        mixed = word * _MULTIPLIER & _M64
        hashed = (hashed ^ (mixed ^ mixed >> 47) * _MULTIPLIER & _M64) * _MULTIPLIER & _M64
    if len(data) > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _M64
    hashed = (hashed ^ hashed >> 47) * _MULTIPLIER & _M64
    return hashed ^ hashed >> 47


def spark_murmur(data: bytes, seed: int) -> int:
    """Return Spark's murmur3 x86_32 of the data.

    For whole words, it is the published murmur3. Each byte after the last whole word is hashed as a word of its own,
    sign-extended.
    """
    whole = len(data) & ~3
    hashed = seed
    for word in (
        *struct.unpack(f"<{whole // 4}I", data[:whole]),
        *struct.unpack(f"{len(data) - whole}b", data[whole:]),
    ):
        mixed = (word & _M32) * 0xCC9E2D51 & _M32
        mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _M32
        hashed ^= mixed
        hashed = (hashed << 13 | hashed >> 19) & _M32
        hashed = hashed * 5 + 0xE6546B64 & _M32
    hashed ^= len(data) & _M32
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _M32
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _M32
    return hashed ^ hashed >> 16


def check_blocks(cells: int, hash_funcs: int, partitioned: bool) -> None:
    """Raise ParameterError unless a split-block filter can have this shape."""
    if (
        hash_funcs != SPLIT_BLOCK_FUNCTIONS
        or partitioned
        or cells % SPLIT_BLOCK_BITS
        or not 1 <= cells // SPLIT_BLOCK_BITS <= _MOST_BLOCKS
    ):
        raise ParameterError(
            "a split-block filter must have 8 hash functions and 1 to 2^32 256-bit blocks, and cannot be partitioned"
        )


def position_function(family: Family, seed: int, spans: Sequence[tuple[int, int]]) -> Callable[[bytes], Iterator[int]]:
    """Return the function that maps an encoded key to an iterator over its cells, one for each hash function.

    `spans` contains the first cell and the number of cells of each hash function.
    """
    if family is Family.SPLIT_BLOCK:
        blocks = spans[0][1] // SPLIT_BLOCK_BITS
        return lambda data: _in_block(xxhash64(data), blocks)
    walk = {Family.SPARK_V1: _spark_v1, Family.SPARK_V2: _spark_v2, Family.REDISBLOOM: _redisbloom}[family]
    return lambda data: (first + place % span for place, (first, span) in zip(walk(data, seed), spans, strict=False))


def _in_block(hashed: int, blocks: int) -> Iterator[int]:
    """Yield the cells of a key in a split-block filter.

    The upper half h of the key's hash chooses block h * blocks >> 32. The lower half l sets bit l * SALT[i] >> 27 of
    word i.
    """
    first = (hashed >> 32) * blocks >> 32
    return (
        first * SPLIT_BLOCK_BITS + word * 32 + ((hashed & _M32) * salt >> 27 & 31) for word, salt in enumerate(_SALT)
    )


def _spark_v1(data: bytes, seed: int) -> Iterator[int]:
    """Yield h1 + i h2 in 32 bits, for i from 1, complemented if negative."""
    place = spark_murmur(data, seed)
    step = spark_murmur(data, place)
    while True:
        place = place + step & _M32
        yield place ^ _M32 if place >> 31 else place


def _spark_v2(data: bytes, seed: int) -> Iterator[int]:
    """Yield h1 (2^31 - 1) + i h2 in 64 bits, for i from 1, complemented if negative."""
    start = spark_murmur(data, seed)
    step = _signed(spark_murmur(data, start))
    place = _signed(start) * ((1 << 31) - 1) & _M64
    while True:
        place = place + step & _M64
        yield place ^ _M64 if place >> 63 else place


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _redisbloom(data: bytes, _: int) -> Iterator[int]:
    """Yield h1 + i h2 in 64 bits, for i from 0."""
    place = murmur64a(data, _MULTIPLIER)
    step = murmur64a(data, place)
    while True:
        yield place
        place = place + step & _M64
