"""BloomFilter as a set: operations on two filters, estimates, planes, BIP-37 filters, read-only bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import CountingBloomFilter, ScalableBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import Bip37Hash, FastHash, HashFamily, SipHash
from spvfilter.errors import MismatchError, ParameterError, ReadOnlyError
from spvfilter.filters.bip37 import Bip37Filter
from support.filters.smallfilters import KEYS, SECRET, every_family, random_keys, small

# Two filters


@given(KEYS, KEYS)
def test_union_and_intersection_work_on_bits(first: list[bytes], second: list[bytes]) -> None:
    left, right = small(*first), small(*second)
    mine, theirs = (int.from_bytes(bytes(of.buffer), "little") for of in (left, right))
    assert int.from_bytes(bytes((left | right).buffer), "little") == mine | theirs
    assert int.from_bytes(bytes((left & right).buffer), "little") == mine & theirs
    assert left | right == small(*first, *second)
    assert all(key in left | right for key in first + second)
    assert all(key in left & right for key in set(first) & set(second))
    assert (left <= right) == (mine & ~theirs == 0)
    assert (left >= right) == (theirs & ~mine == 0)
    assert (left == right) == (mine == theirs)
    both, common = left.copy(), left.copy()
    both |= right
    common &= right
    assert (both, common) == (left | right, left & right)
    assert left & right <= left <= left | right


def test_operations_work_across_chunk_borders() -> None:
    shape: dict[str, Any] = {"bits": (1 << 23) * 2 + 77, "hash_funcs": 3}  # 2 MiB and a little
    left, right = BloomFilter(**shape), BloomFilter(**shape)
    left.update(random_keys(1, 3000))
    right.update(random_keys(2, 3000))
    mine, theirs = (int.from_bytes(bytes(of.buffer), "little") for of in (left, right))
    assert int.from_bytes(bytes((left | right).buffer), "little") == mine | theirs
    assert int.from_bytes(bytes((left & right).buffer), "little") == mine & theirs
    assert left.set_bits() == mine.bit_count()
    assert left.union_set_bits(right) == (mine | theirs).bit_count()
    assert left <= left | right
    assert not left | right <= left
    left.clear()
    assert bytes(left.buffer) == bytes(len(right.buffer))  # type: ignore[arg-type]


def test_in_place_operations_keep_the_object() -> None:
    made = same = small(b"a")
    made |= small(b"b")
    made &= made
    made |= made
    assert made is same
    assert made == small(b"a", b"b")


def test_a_copy_is_independent() -> None:
    made = small(b"a", encode=None)
    twin = made.copy()
    assert twin == made
    twin.add(b"b")
    assert b"b" not in made
    made.clear()
    assert b"a" in twin
    assert (twin.hashing, twin.capacity) == (made.hashing, made.capacity)


def test_a_cleared_filter_is_empty() -> None:
    made = small(b"a", b"b")
    made.clear()
    assert made == small()
    assert not made
    assert (len(made), made.fill, made.current_fp_rate) == (0, 0.0, 0.0)


def test_equality_compares_shape_and_bits_only() -> None:
    sized = BloomFilter(100, 0.01)
    assert sized == BloomFilter(bits=sized.bits, hash_funcs=sized.hash_funcs)
    assert sized != BloomFilter(bits=sized.bits, hash_funcs=sized.hash_funcs, hashing=FastHash(1))
    assert sized != BloomFilter(bits=sized.bits + 32, hash_funcs=sized.hash_funcs)
    assert small(b"a") != small(b"b")
    assert small() != b""
    with pytest.raises(TypeError, match="unhashable"):
        hash(sized)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"bits": 264}, "the filters differ in cells: 256 and 264"),
        ({"hash_funcs": 8}, "the filters differ in hash_funcs: 4 and 8"),
        ({"hashing": SipHash(SECRET)}, "the filters differ in family: FAST and SIPHASH"),
        ({"hashing": FastHash(1)}, "the filters differ in key"),
        ({"encode": "utf-8"}, "the filters differ in encoding: BYTES and UTF8"),
        ({"encode": bytes}, "the filters differ in encoding: BYTES and CALLABLE"),
        ({"partitioned": True}, "the filters differ in partitioned: False and True"),
    ],
)
@pytest.mark.parametrize(
    "operation",
    [
        lambda a, b: a | b,
        lambda a, b: a & b,
        lambda a, b: a.__ior__(b),
        lambda a, b: a.__iand__(b),
        lambda a, b: a <= b,
        lambda a, b: a.union_len(b),
        lambda a, b: a.intersection_len(b),
        lambda a, b: a.union_set_bits(b),
    ],
    ids=["or", "and", "ior", "iand", "le", "union_len", "intersection_len", "union_set_bits"],
)
def test_filters_of_different_shape_raise_with_the_difference(
    operation: Callable[..., object], other: Any, message: str
) -> None:
    made, strange = small(b"a"), small(**other)
    with pytest.raises(MismatchError) as caught:
        operation(made, strange)
    assert str(caught.value) == message
    assert made == small(b"a")


def test_a_mismatch_of_secret_keys_hides_them() -> None:
    with pytest.raises(MismatchError) as caught:
        _ = small(hashing=SipHash(SECRET)) | small(hashing=SipHash(bytes(16)))
    assert str(caught.value) == "the filters differ in key"


def test_other_types_are_refused_as_operands() -> None:
    made = small()
    # of a wrong type, and refused
    for operation in (lambda: made | {b"a"}, lambda: made & 1, lambda: made <= set(), lambda: made.__ior__("a") | 1):  # type: ignore[arg-type,operator]
        with pytest.raises(TypeError):
            operation()


# Estimates


def test_estimates_are_near_the_truth() -> None:
    keys = random_keys(5, 3000)
    left, right = BloomFilter(3000, 0.01), BloomFilter(3000, 0.01)
    assert left.update(keys[:2000]) == pytest.approx(2000, abs=10)
    right.update(keys[1500:])
    assert len(left) == round(left.approx_len) == pytest.approx(2000, rel=0.02)
    assert left.union_len(right) == pytest.approx(3000, rel=0.02)
    assert left.intersection_len(right) == pytest.approx(500, rel=0.1)
    assert left.fill == left.set_bits() / left.bits
    assert left.current_fp_rate == left.fill**left.hash_funcs


def test_a_full_filter_has_no_estimated_length() -> None:
    made = BloomFilter(bits=8, hash_funcs=1, buffer=bytearray(b"\xff"))
    assert made.approx_len == math.inf
    assert made.union_len(made) == math.inf
    with pytest.raises(OverflowError):
        len(made)
    with pytest.raises(ParameterError, match="the intersection cannot be estimated"):
        made.intersection_len(made)
    assert made
    assert (made.fill, made.current_fp_rate) == (1.0, 1.0)


def test_disjoint_filters_have_no_negative_intersection() -> None:
    pairs = [(small(f"a{i}".encode()), small(f"b{i}".encode())) for i in range(50)]
    assert all(left.intersection_len(right) >= 0 for left, right in pairs)


# Planes


@every_family
def test_each_function_stays_in_its_plane(hashing: HashFamily) -> None:
    made = BloomFilter(bits=7 * 13, hash_funcs=7, hashing=hashing, partitioned=True)
    seen = [set[int]() for _ in range(7)]
    for key in random_keys(9, 300):
        for i, at in enumerate(made.positions(key)):
            assert 13 * i <= at < 13 * (i + 1)
            seen[i].add(at)
    assert [len(of) for of in seen] == [13] * 7  # and it uses the complete plane


@given(KEYS, st.integers(1, 40), st.integers(1, 20))
def test_plane_fills_are_counted_bit_by_bit(keys: list[bytes], plane: int, hash_funcs: int) -> None:
    made = BloomFilter(bits=plane * hash_funcs, hash_funcs=hash_funcs, partitioned=True)
    made.update(keys)
    bits = int.from_bytes(bytes(made.buffer), "little")
    counts = [sum(bits >> at & 1 for at in range(i * plane, (i + 1) * plane)) for i in range(hash_funcs)]
    assert made.plane_set_bits() == counts
    assert made.current_fp_rate == pytest.approx(math.prod(count / plane for count in counts))
    assert made.fill == sum(counts) / made.bits


def test_planes_are_united_and_estimated() -> None:
    keys = random_keys(6, 1500)
    left, right = BloomFilter(1500, 0.01, partitioned=True), BloomFilter(1500, 0.01, partitioned=True)
    left.update(keys[:1000])
    right.update(keys[1000:])
    assert (left | right).approx_len == pytest.approx(1500, rel=0.03)
    assert all((left | right).contains_many(keys))


# Bip37Filter has the same operations


def test_bip37_filters_are_united_as_such() -> None:
    left, right = Bip37Filter(50, 0.01, 7, 2), Bip37Filter(50, 0.01, 7, 2)
    left.insert(b"a" * 20)
    right.insert(b"b" * 20)
    both = left | right
    assert type(both) is Bip37Filter
    assert (both.tweak, both.flags, both.capacity) == (7, 2, 50)
    assert b"a" * 20 in both
    assert b"b" * 20 in both
    assert left <= both
    assert b"b" * 20 not in left
    assert (left & right) <= left
    assert both.union_len(left) == both.approx_len
    assert Bip37Filter.parse(bytes(both)) == both


def test_bip37_filters_of_other_tweaks_or_sizes_are_refused() -> None:
    for other, message in (
        (Bip37Filter(50, 0.01, 8), "the filters differ in key"),
        (Bip37Filter(60, 0.01, 7), "the filters differ in cells"),
    ):
        with pytest.raises(MismatchError, match=message):
            _ = Bip37Filter(50, 0.01, 7) | other


def test_a_generic_filter_accepts_an_equal_bip37_filter() -> None:
    wire = Bip37Filter(50, 0.01, 7)
    wire.insert(b"a" * 20)
    generic = BloomFilter(bits=wire.bits, hash_funcs=wire.hash_funcs, hashing=Bip37Hash(7))
    generic |= wire
    assert b"a" * 20 in generic
    assert generic <= wire <= generic
    assert generic != wire


def test_bip37_filters_accept_only_bytes() -> None:
    with pytest.raises(TypeError):
        Bip37Filter(50, 0.01).add("address")


# Read-only bits


def test_a_read_only_buffer_is_never_written() -> None:
    filled = small(b"a")
    frozen = BloomFilter(bits=256, hash_funcs=4, buffer=bytes(filled.buffer))
    assert b"a" in frozen
    assert frozen == filled
    for change in (
        lambda: frozen.add(b"a"),
        lambda: frozen.add(b"b"),
        lambda: frozen.update([b"b"]),
        lambda: frozen.clear(),
        lambda: frozen.__ior__(filled),
        lambda: frozen.__iand__(filled),
    ):
        with pytest.raises(ReadOnlyError, match=r"read-only: change a copy of it, or open its file with writable"):
            change()
    assert frozen == filled
    writable = frozen.copy()
    assert writable.add(b"b")
    assert frozen | writable == writable


@given(KEYS, KEYS)
def test_proper_subset_is_a_subset_with_fewer_bits(first: list[bytes], second: list[bytes]) -> None:
    left, right = small(*first), small(*second)
    assert (left < right) == (left <= right and left != right)
    assert (left > right) == (right < left)
    assert not left < left.copy()


@given(KEYS, KEYS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_disjoint_filters_have_no_common_key(partitioned: bool, first: list[bytes], second: list[bytes]) -> None:
    left, right = (BloomFilter(bits=96, hash_funcs=3, partitioned=partitioned) for _ in range(2))
    left.update(first)
    right.update(second)
    if left.isdisjoint(right):
        assert not set(first) & set(second)
        assert not any(key in left and key in right for key in [*first, *second])
    assert left.isdisjoint(right) == right.isdisjoint(left)
    assert left.isdisjoint(BloomFilter(bits=96, hash_funcs=3, partitioned=partitioned))


@pytest.mark.parametrize("name", ["isdisjoint", "__lt__"])
def test_new_comparisons_refuse_other_shapes_and_kinds(name: str) -> None:
    mine = BloomFilter(100, 0.01)
    with pytest.raises(MismatchError):
        getattr(mine, name)(BloomFilter(100, 0.01, encode="utf-8"))
    with pytest.raises(TypeError, match="set"):
        mine < {1} if name == "__lt__" else mine.isdisjoint({1})  # type: ignore[operator,arg-type]


def test_internals_are_private() -> None:
    for kind in (BloomFilter, CountingBloomFilter, ScalableBloomFilter):
        assert not {"make_room", "same_shape", "KIND"} & {*dir(kind)}


@pytest.mark.parametrize("key", ["text", 7])
def test_the_error_for_a_key_explains_encode(key: object) -> None:
    with pytest.raises(
        TypeError, match="keys of other types need `encode`, such as 'utf-8' for str or 'int64' for int"
    ):
        BloomFilter(10, 0.1).add(key)
