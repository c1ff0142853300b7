"""Small filters, the keys that go into them, and one hash family of each kind."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import strategies as st

from spvfilter.bloom.exchange import SparkHash
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash

SECRET = bytes(range(16))
FAMILIES: list[HashFamily] = [
    FastHash(3),
    SipHash(SECRET),
    Bip37Hash(3),
    CustomHash("crc", zlib.crc32),
    SparkHash(2, 3),
]
every_family = pytest.mark.parametrize("hashing", FAMILIES, ids=lambda hashing: hashing.family.name)
KEYS = st.lists(st.binary(max_size=8), max_size=30)


def small(*keys: bytes, **options: Any) -> BloomFilter:
    made = BloomFilter(**({"bits": 256, "hash_funcs": 4} | options))
    made.update(keys)
    return made


def random_keys(seed: int, count: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(20) for _ in range(count)]
