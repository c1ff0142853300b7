"""Hash families: hashes against published answers, positions against an independent implementation, uniformity."""

from __future__ import annotations

import dataclasses
import mmap
import random
import zlib
from collections.abc import Callable
from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash
from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.hashes import murmur3_x64_128, siphash24
from spvfilter.kernel import Family
from support.vectors import effort, vector_cases

M64 = 2**64 - 1
REMIX = 0xD6E8FEB86659FD93
SECRET = bytes(range(16))
FAMILIES = [FastHash(7), SipHash(SECRET), Bip37Hash(7)]
by_name = pytest.mark.parametrize("hashing", FAMILIES, ids=lambda hashing: hashing.family.name)


# The hashes


@vector_cases("09_siphash_gcs/siphash24.json")
def test_siphash_equals_the_published_value(case: Any) -> None:
    key = int(case["k0"], 16).to_bytes(8, "little") + int(case["k1"], 16).to_bytes(8, "little")
    assert siphash24(bytes.fromhex(case["data"]), key) == int(case["hash"], 16)


@pytest.mark.parametrize(
    ("data", "hashes"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
        (b"The quick brown fox jumps over the lazy dog", "e34bbc7bbc071b6c7a433ca9c49a9347"),
    ],
)
def test_murmur3_x64_128_known_answers(data: bytes, hashes: str) -> None:
    assert murmur3_x64_128(data, 0) == (int(hashes[:16], 16), int(hashes[16:], 16))


def murmur3_x64_128_again(data: bytes, seed: int) -> tuple[int, int]:
    """MurmurHash3 x64_128 after Appleby's description, written for this test."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotl(x: int, r: int) -> int:
        return (x << r | x >> 64 - r) & M64

    def finish(x: int) -> int:
        x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & M64
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & M64
        return x ^ x >> 33

    h1 = h2 = seed
    body = len(data) // 16 * 16
    for at in range(0, body, 16):
        k1, k2 = int.from_bytes(data[at : at + 8], "little"), int.from_bytes(data[at + 8 : at + 16], "little")
        h1 = (rotl(h1 ^ rotl(k1 * c1 & M64, 31) * c2 & M64, 27) + h2) * 5 + 0x52DCE729 & M64
        h2 = (rotl(h2 ^ rotl(k2 * c2 & M64, 33) * c1 & M64, 31) + h1) * 5 + 0x38495AB5 & M64
    h2 ^= rotl(int.from_bytes(data[body + 8 :], "little") * c2 & M64, 33) * c1 & M64
    h1 ^= rotl(int.from_bytes(data[body : body + 8], "little") * c1 & M64, 31) * c2 & M64
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & M64
    h2 = h2 + h1 & M64
    h1, h2 = finish(h1), finish(h2)
    h1 = h1 + h2 & M64
    return h1, h2 + h1 & M64


@given(st.binary(max_size=80), st.integers(0, 2**32 - 1))
def test_murmur3_x64_128_equals_a_second_implementation(data: bytes, seed: int) -> None:
    assert murmur3_x64_128(data, seed) == murmur3_x64_128_again(data, seed)


# The positions


def remixed(h1: int, h2: int, cells: int, hash_funcs: int, planes: bool) -> list[int]:
    span = cells // hash_funcs if planes else cells
    positions = []
    for i in range(hash_funcs):
        x = (h1 + i * (h2 | 1)) % 2**64
        x = (x ^ (x >> 32)) * REMIX % 2**64
        positions.append(x * span // 2**64 + (i * span if planes else 0))
    return positions


shapes = given(
    st.binary(max_size=40), st.integers(1, 60), st.integers(1, 2**40), st.booleans(), st.integers(0, 2**32 - 1)
)


def positions(data: bytes, hash_funcs: int, plane: int, planes: bool, hashing: HashFamily) -> tuple[list[int], int]:
    """A filter's positions of a key, and its m. The bits are mapped and never used, so they cost no memory."""
    cells = plane * hash_funcs if planes else plane
    untouched = mmap.mmap(-1, (cells + 7) // 8, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    made = BloomFilter(bits=cells, hash_funcs=hash_funcs, hashing=hashing, partitioned=planes, buffer=untouched)
    return made.positions(data), cells


@pytest.mark.posix
@shapes
def test_fast_positions_are_as_documented(data: bytes, hash_funcs: int, plane: int, planes: bool, seed: int) -> None:
    found, cells = positions(data, hash_funcs, plane, planes, FastHash(seed))
    assert found == remixed(*murmur3_x64_128(data, seed), cells, hash_funcs, planes)


@pytest.mark.posix
@shapes
def test_siphash_positions_are_as_documented(data: bytes, hash_funcs: int, plane: int, planes: bool, seed: int) -> None:
    key = seed.to_bytes(16, "big")
    first = siphash24(data, key)
    found, cells = positions(data, hash_funcs, plane, planes, SipHash(key))
    assert found == remixed(first, first * REMIX % 2**64, cells, hash_funcs, planes)


@pytest.mark.posix
@shapes
def test_bip37_positions_are_those_of_the_bip(
    data: bytes, hash_funcs: int, plane: int, planes: bool, tweak: int
) -> None:
    plane = min(plane, 2**32 // hash_funcs)
    found, cells = positions(data, hash_funcs, plane, planes, Bip37Hash(tweak))
    span = plane if planes else cells
    seeds = [(i * 0xFBA4C795 + tweak) % 2**32 for i in range(hash_funcs)]
    assert found == [
        mmh3.hash(data, seed, signed=False) % span + (i * span if planes else 0) for i, seed in enumerate(seeds)
    ]


def test_bip37_bits_equal_those_of_a_bip37_filter() -> None:
    generic, wire = BloomFilter(bits=360, hash_funcs=4, hashing=Bip37Hash(99)), Bip37Filter(50, 0.03, 99)
    assert (wire.bits, wire.hash_funcs) == (360, 4)
    for key in (b"", b"a", bytes(20), bytes(36)):
        assert generic.positions(key) == wire.positions(key)


def test_a_users_function_is_called_for_each_index() -> None:
    made = BloomFilter(bits=1000, hash_funcs=4, hashing=CustomHash("crc", zlib.crc32))
    assert made.positions(b"key") == [zlib.crc32(b"key", i) % 1000 for i in range(4)]
    planes = BloomFilter(bits=1000, hash_funcs=4, hashing=CustomHash("crc", zlib.crc32), partitioned=True)
    assert planes.positions(b"key") == [zlib.crc32(b"key", i) % 250 + 250 * i for i in range(4)]


def test_a_users_functions_are_called_in_order() -> None:
    made = BloomFilter(
        bits=1000, hash_funcs=3, hashing=CustomHash("three", [zlib.crc32, zlib.adler32, lambda key: -1 - len(key)])
    )
    assert made.positions(b"key") == [zlib.crc32(b"key") % 1000, zlib.adler32(b"key") % 1000, 996]


def test_a_wrong_number_of_functions_raises() -> None:
    with pytest.raises(ParameterError, match="expected 3 hash functions, but 'two' has 2"):
        BloomFilter(bits=1000, hash_funcs=3, hashing=CustomHash("two", [zlib.crc32, zlib.adler32]))


def test_a_users_function_must_return_an_int() -> None:
    # refused
    made = BloomFilter(bits=1000, hash_funcs=2, hashing=CustomHash("floats", [zlib.crc32, lambda key: 0.5]))  # type: ignore[list-item,return-value]
    with pytest.raises(TypeError):
        made.add(b"key")
    assert not made


# The values


def test_families_have_stable_numbers() -> None:
    assert {family.name: family.value for family in Family} == {
        "BIP37": 1,
        "FAST": 2,
        "SIPHASH": 3,
        "SPARK_V1": 4,
        "SPARK_V2": 5,
        "REDISBLOOM": 6,
        "SPLIT_BLOCK": 7,
        "CUSTOM": 255,
    }


@pytest.mark.parametrize(
    ("hashing", "same", "other"),
    [
        (FastHash(1), FastHash(1), FastHash(2)),
        (Bip37Hash(1), Bip37Hash(1), Bip37Hash(2)),
        (SipHash(SECRET), SipHash(SECRET), SipHash(bytes(16))),
        (CustomHash("a", zlib.crc32), CustomHash("a", zlib.adler32), CustomHash("b", zlib.crc32)),
        (FastHash(0), FastHash(), Bip37Hash(0)),
    ],
)
def test_families_are_frozen_hashable_values(hashing: Any, same: Any, other: Any) -> None:
    assert hashing == same
    assert hash(hashing) == hash(same)
    assert len({hashing, same, other}) == 2
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(hashing, dataclasses.fields(hashing)[0].name, 3)
    assert len(hashing.key) == 16


def test_a_siphash_key_is_random_and_hidden() -> None:
    first, second = SipHash(), SipHash()
    assert first != second
    assert len(first.key) == 16
    secret = SipHash(b"secret of 16 b!!")
    shown = f"{secret!r} {secret} {BloomFilter(10, 0.1, hashing=secret)!r}"
    assert "secret" not in shown
    assert secret.key.hex() not in shown


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FastHash(-1), "seed must be a whole number from 0 to 2^32 - 1, not -1"),
        (lambda: FastHash(2**32), "seed must be a whole number from 0 to 2^32 - 1, not 4294967296"),
        (lambda: FastHash(1.0), "seed must be a whole number from 0 to 2^32 - 1, not 1.0"),  # type: ignore[arg-type]  # of a wrong type, and refused
        (lambda: Bip37Hash(2**32), "tweak must be a whole number from 0 to 2^32 - 1, not 4294967296"),
        (lambda: SipHash(b"short"), "a SipHash key must be 16 bytes long"),
        # of a wrong type, and refused
        (lambda: SipHash("0123456789abcdef"), "a SipHash key must be 16 bytes long"),  # type: ignore[arg-type]
        (lambda: CustomHash("", zlib.crc32), "a custom hash family needs a name"),
    ],
)
def test_families_out_of_range_raise(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        make()
    assert str(caught.value) == message


# Uniformity


def chi_square(observed: np.ndarray[Any, Any]) -> float:
    """The chi-square statistic of uniform bins, in standard deviations above its mean."""
    expected = observed.sum() / observed.size
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = observed.size - 1
    return float((statistic - freedom) / (2 * freedom) ** 0.5)


def keys(kind: str, count: int) -> list[bytes]:
    match kind:
        case "sequential":
            return [i.to_bytes(8, "little") for i in range(count)]
        case "shifted":
            return [(i << 40).to_bytes(8, "little") for i in range(count)]
        case _:
            rng = random.Random(40)
            return [rng.randbytes(20) for _ in range(count)]


@pytest.mark.few(16)
@pytest.mark.parametrize("kind", ["sequential", "shifted", "random"])
@pytest.mark.parametrize("bits", [128, 1000, 10**6 + 3])
@by_name
def test_positions_are_uniform_and_independent(hashing: HashFamily, bits: int, kind: str) -> None:
    made = BloomFilter(bits=bits, hash_funcs=7, hashing=hashing)
    slow = hashing.family == Family.SIPHASH
    count = effort(1_500, 3_000, 100_000) if slow else effort(5_000, 10_000, 200_000)
    found = np.array([made.positions(key) for key in keys(kind, count)])
    assert found.min() >= 0
    assert found.max() < bits
    bins = 125 if bits == 1000 else 128  # 1000 bits fill 125 bins evenly
    binned = found * bins // bits
    assert abs(chi_square(np.bincount(binned.ravel(), minlength=bins))) < 5
    for i in range(7):
        assert abs(chi_square(np.bincount(binned[:, i], minlength=bins))) < 5
    octants = found * 8 // bits
    for i, j in ((0, 1), (0, 6), (2, 4)):
        assert abs(chi_square(np.bincount(octants[:, i] * 8 + octants[:, j], minlength=64))) < 5
