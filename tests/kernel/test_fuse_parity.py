"""The compiled FuseCore, fuse_merge and fuse_build against their reference: the same bytes, answers and errors."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import sizing
from spvfilter.errors import ParameterError
from spvfilter.kernel import Encoding, Family
from support.kernels.kernelentries import FUSED, Kernel, native, reference
from support.vectors import effort

pytestmark = pytest.mark.native
M64 = (1 << 64) - 1


def outcome(kernel: Kernel, name: str, *arguments: Any) -> object:
    try:
        result: object = getattr(kernel, name)(*arguments)
    except Exception as error:
        return type(error), str(error)
    return result


def built(kernel: Kernel, hashes: bytes, bits: int, seed: int, shape: tuple[int, int]) -> tuple[object, bytes]:
    length, segments = shape
    table = bytearray((segments + 2) * length * bits // 8 if segments else 0)
    done = kernel.fuse_build(hashes, bits, seed, length, segments, table)
    return done, bytes(table) if done else b""


@pytest.mark.slow
@given(st.integers(0, 400), st.sampled_from([8, 16, 32]), st.integers(0, 0xFFFFFFFF), st.randoms())
def test_both_kernels_build_the_same_table(count: int, bits: int, seed: int, rng: random.Random) -> None:
    numbers = [rng.randbytes(8) for _ in range(count)]
    shape = sizing.fuse_segments(count) if rng.random() < 0.8 else (1 << rng.randrange(8), rng.randrange(1, 30))
    made = built(native(), b"".join(numbers), bits, seed, shape)
    assert made == built(reference(), b"".join(numbers), bits, seed, shape)
    rng.shuffle(numbers)
    assert built(native(), b"".join(numbers), bits, seed, shape) == made  # the order of hashes does not count


@given(st.lists(st.sampled_from([*range(50), *range(M64 - 50, M64)])), st.integers(1, 3))
def test_merging_keeps_each_hash_once(numbers: list[int], times: int) -> None:
    raw = b"".join(number.to_bytes(8, "little") for number in numbers * times)
    for kernel in (native(), reference()):
        merged = memoryview(kernel.fuse_merge(raw)).cast("Q").tolist()
        assert sorted(merged) == sorted(set(numbers))


def unmixed(x: int) -> int:
    """The hash that seed 0 mixes to x."""
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        x = (x ^ x >> 33) * pow(factor, -1, 1 << 64) & M64
    return x ^ x >> 33


def test_merging_takes_hashes_that_belong_to_one_part() -> None:
    numbers = [unmixed(number) for number in range(20_000)]  # the highest bits of x are 0
    raw = b"".join(number.to_bytes(8, "little") for number in numbers + numbers[::-1])
    assert sorted(memoryview(native().fuse_merge(raw)).cast("Q")) == sorted(numbers)
    assert len(native().fuse_merge(raw[:8] * 100_000)) == 8


@pytest.mark.parametrize("keys", [255, 256, 600])
def test_a_cell_of_too_many_keys_fails_the_seed(keys: int) -> None:
    raw = b"".join(number.to_bytes(8, "little") for number in range(keys))
    for kernel in (native(), reference()):
        assert kernel.fuse_build(raw, 8, 0, 1, 1, bytearray(3)) is False


def test_hashes_that_are_not_distinct_only_fail_the_seed() -> None:
    rng = random.Random(4)
    for _ in range(effort(50, 200, 2_000)):
        numbers = [rng.randbytes(8) for _ in range(rng.randrange(1, 60))]
        raw = b"".join(numbers + rng.choices(numbers, k=rng.randrange(1, 9)))
        results = [built(kernel, raw, 8, 0, (16, 9)) for kernel in (native(), reference())]
        assert results == [(False, b"")] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"", 12, 0, 4, 1, bytearray(12)), "a fingerprint must be 8, 16 or 32 bits long, not 12"),
        ((b"", 64, 0, 4, 1, bytearray(12)), "a fingerprint must be 8, 16 or 32 bits long, not 64"),
        ((b"", 8, 1 << 32, 4, 1, bytearray(12)), "seed must be from 0 to 2^32 - 1, not 4294967296"),
        ((b"", 8, 0, 3, 1, bytearray(9)), "the number of cells in a segment must be a power of two, not 3"),
        ((b"", 8, 0, 1 << 19, 1, bytearray(12)), "a segment must have 1 to 2^18 cells, not 524288"),
        ((b"", 8, 0, 0, 1, bytearray(12)), "a segment must have 1 to 2^18 cells, not 0"),
        ((b"", 8, 0, 1 << 18, 1 << 14, bytearray(12)), "a table must have fewer than 2^32 cells, not 4295491584"),
        ((b"", 8, 0, 4, 1, bytearray(13)), "expected a buffer of 12 bytes, not 13"),
        ((b"1234567", 8, 0, 4, 1, bytearray(12)), "hashes must be a multiple of 8 bytes long, not 7"),
    ],
)
def test_both_kernels_refuse_the_same_shapes(arguments: tuple[Any, ...], message: str) -> None:
    for kernel in (native(), reference()):
        with pytest.raises(ParameterError) as caught:
            kernel.fuse_build(*arguments)
        assert str(caught.value) == message


def test_a_table_is_not_built_in_read_only_memory() -> None:
    for kernel in (native(), reference()):
        with pytest.raises(BufferError):
            kernel.fuse_build(b"", 8, 0, 4, 1, bytes(12))


@pytest.mark.parametrize("family", [Family.BIP37, Family.SPARK_V1, Family.REDISBLOOM, Family.SPLIT_BLOCK])
def test_families_of_short_hashes_are_refused(family: Family) -> None:
    for kernel in (native(), reference()):
        with pytest.raises(ParameterError, match="64-bit hashes"):
            kernel.FuseCore(*FUSED[:4], family, bytes(16), bytes(384))


def refuses(data: bytes) -> int:
    raise RuntimeError("no hash today")


BATCHES: list[tuple[Encoding, Any, dict[str, Any]]] = [
    (Encoding.BYTES, [b"key %d" % number for number in range(3_000)], {}),
    (Encoding.BYTES, (bytearray(b"%d" % number) for number in range(50)), {}),
    (Encoding.BYTES, np.arange(5_000, dtype=np.uint8).reshape(1_000, 5), {}),
    (Encoding.BYTES, [b"a", None, b"b"], {"nulls": "skip"}),
    (Encoding.BYTES, [b"a", None, b"b"], {}),
    (Encoding.UTF8, [f"key {number}" for number in range(3_000)], {}),
    (Encoding.UTF8, np.array(["a", "bc", ""]), {}),
    (Encoding.UTF8, ["a", b"b"], {}),
    (Encoding.INT64, np.arange(-4_000, 4_000), {}),
    (Encoding.INT64, np.ma.masked_array(np.arange(9), mask=[True, False] * 4 + [True]), {"nulls": "skip"}),
    (Encoding.INT64, [1, -1, 1 << 63], {}),
    (Encoding.UINT32, np.arange(3_000, dtype=np.uint32), {}),
    (Encoding.CALLABLE, [1, "a", b"c"], {}),
    (Encoding.BYTES, b"one key", {}),
]


@pytest.mark.few(3)
@pytest.mark.parametrize("family", [Family.FAST, Family.SIPHASH, Family.CUSTOM])
@pytest.mark.parametrize("number", range(len(BATCHES)))
@pytest.mark.parametrize("method", ["contains_many", "hash_many"])
def test_both_kernels_answer_batches_alike(family: Family, number: int, method: str) -> None:
    encoding, batch, options = BATCHES[number]
    if not isinstance(batch, (list, bytes, np.ndarray)):
        batch = list(batch)
    for custom in (zlib.crc32, lambda data: -(1 << 80) - len(data), refuses) if family is Family.CUSTOM else (None,):
        encode = (lambda key: repr(key).encode()) if encoding is Encoding.CALLABLE else None
        for bits in (8, 16, 32):
            table = random.Random(bits).randbytes(6 * 64 * bits // 8)
            results = []
            for kernel in (native(), reference()):
                made = kernel.FuseCore(bits, 3, 64, 4, family, bytes(range(16)), table, encoding, custom, encode)
                try:
                    answer = getattr(made, method)(batch, **options)
                except Exception as error:
                    answer = type(error), str(error)
                results.append(bytes(answer) if isinstance(answer, (np.ndarray, bytes)) else answer)
            assert results[0] == results[1]


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_single_keys_are_found_as_batches_find_them(bits: int) -> None:
    table = random.Random(1).randbytes(6 * 64 * bits // 8)
    keys = [b"%d" % number for number in range(4_000 if bits == 8 else 100)]
    for kernel in (native(), reference()):
        made = kernel.FuseCore(bits, 0, 64, 4, Family.FAST, bytes(16), table)
        assert bytes(key in made for key in keys) == made.contains_many(keys)


def test_a_core_without_segments_contains_nothing() -> None:
    for kernel in (native(), reference()):
        made = kernel.FuseCore(8, 0, 1, 0, Family.FAST, bytes(16), b"")
        assert b"key" not in made
        assert made.contains_many([b"key", b""]) == bytes(2)
        assert made.hash_many([]) == b""
        with pytest.raises(TypeError, match="only once"):
            made.__init__(8, 0, 1, 0, Family.FAST, bytes(16), b"")
