"""Files of filters built from the documented layout, and the small filters that they contain."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.exchange import RedisBloomHash, SparkHash
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash

Filter = BloomFilter | CountingBloomFilter
CRC = CustomHash("crc", zlib.crc32)
KEYS = [b"a", b"b", b"a"]
FAMILIES: dict[str, HashFamily] = {
    "bip37": Bip37Hash(0xDEADBEEF),
    "fast": FastHash(7),
    "siphash": SipHash(bytes(range(16))),
    "custom": CRC,
}
FAMILIES |= {"spark1": SparkHash(1), "spark2": SparkHash(2, -7), "redisbloom": RedisBloomHash()}
KINDS: dict[str, type[Filter]] = {"bits": BloomFilter, "counters": CountingBloomFilter}


def header(**changes: Any) -> bytes:
    """A header of 64 bytes built from the documented layout, with a valid CRC."""
    fields: dict[str, Any] = {
        "magic": b"SPVBLOOM",
        "version": 1,
        "kind": 1,
        "family": 2,
        "encoding": 0,
        "flags": 0,
        "zero": 0,
        "hash_funcs": 3,
        "bits": 20,
        "capacity": 0,
        "fp_rate": 0.0,
        "key": bytes(16),
    } | changes
    raw = struct.pack("<8sHBBBBHIQQd16s", *fields.values())
    assert len(raw) == 60
    closed = raw[:13] + bytes([raw[13] & ~2]) + raw[14:]
    return raw + zlib.crc32(closed).to_bytes(4, "little")


def whole(body: bytes = bytes(3), **changes: Any) -> bytes:
    """A file built from the documented layout."""
    raw = header(**changes)
    closed = raw[:13] + bytes([raw[13] & ~2]) + raw[14:]
    return raw + body + zlib.crc32(closed + body).to_bytes(4, "little")


def sample() -> BloomFilter:
    made = BloomFilter(5, 0.1, 3, hashing=FastHash(5))
    made.update(KEYS)
    return made
