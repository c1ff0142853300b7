"""Golomb-coded sets: published sets to the byte, oversized and truncated data refused, no false negatives."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError
from spvfilter.filters.gcs import GolombCodedSet
from spvfilter.kernel import GcsQuery, gcs_build, gcs_check
from spvfilter.kernel.pure.gcs import GcsQuery as PureQuery, gcs_values, rice_encode
from support.vectors import vector_cases

KEY = bytes(range(16))
P, M = 19, 784_931
ITEMS = [bytes((number,)) * 22 for number in range(30)]
SET = gcs_build(ITEMS, KEY, P, M)


def refusal(data: bytes, p: int = P) -> FormatError:
    with pytest.raises(FormatError) as caught:
        gcs_check(data, p)
    with pytest.raises(FormatError) as again:
        GcsQuery([b"x"]).match_any(data, KEY, p, M)
    assert (caught.value.offset, caught.value.field, caught.value.message) == (
        again.value.offset,
        again.value.field,
        again.value.message,
    )
    return caught.value


@vector_cases("09_siphash_gcs/gcs.json")
def test_published_sets_are_built_and_queried(case: dict[str, Any]) -> None:
    key, p, m = bytes.fromhex(case["key"]), case["P"], case["M"]
    made = GolombCodedSet.build(map(bytes.fromhex, case["items"]), key, p, m)
    assert bytes(made).hex() == case["filter"]
    assert len(made) == case["n"]
    read = GolombCodedSet.parse(bytes.fromhex(case["filter"]), key, p, m)
    assert read == made
    assert {query: bytes.fromhex(query) in read for query in case["queries"]} == case["queries"]
    assert read.match_any(map(bytes.fromhex, case["queries"])) == case["match_any"]
    assert all(bytes.fromhex(item) in read for item in case["items"])


@vector_cases("09_siphash_gcs/golomb_rice.json")
def test_published_golomb_rice_codes(case: dict[str, Any]) -> None:
    assert rice_encode(case["values"], case["P"]).hex() == case["bits"]


@given(
    st.lists(st.binary(max_size=40), max_size=60),
    st.binary(min_size=16, max_size=16),
    st.integers(1, 32),
    st.data(),
)
def test_every_element_is_found(items: list[bytes], key: bytes, p: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(max(1, (1 << p) // 4), min((1 << p) * 4, (1 << 32) - 1)))
    made = GolombCodedSet.build(items, key, p, m)
    assert len(made) == len(set(items))
    assert GolombCodedSet.parse(bytes(made), key, p, m) == made
    assert all(item in made for item in items)
    values = gcs_values(bytes(made), p)
    assert values == sorted(values)
    assert all(value < len(made) * m for value in values)
    strangers = [item for item in data.draw(st.lists(st.binary(max_size=40), max_size=20)) if item not in items]
    asked = [*strangers, *items[:1]]
    assert made.match_any(asked) == any(item in made for item in asked)


def test_queries_of_any_size_agree_with_single_items() -> None:
    items = [number.to_bytes(4, "little") * 6 for number in range(300)]
    made = GolombCodedSet.build(items, KEY, 6, 64)  # false positives, 1 in 64
    strangers = [number.to_bytes(4, "big") * 6 for number in range(1, 1_000)]
    passing = [item for item in strangers if item in made]
    assert 4 < len(passing) < 40
    absent = [item for item in strangers if item not in passing]
    for count in (1, 2, 100, 295, 296, 299, 300, 301, len(absent)):
        assert not made.match_any(absent[:count])
        assert made.match_any([*absent[:count], passing[-1]])
        assert made.match_any([items[17], *absent[:count]])


def test_one_query_can_search_many_sets() -> None:
    query = GcsQuery([ITEMS[3], b"stranger"])
    empty = gcs_build([], KEY, P, M)
    other = gcs_build(ITEMS[10:], KEY, P, M)
    assert len(query) == 2
    for rounds in range(1, 4):
        assert query.match_many([(KEY, SET), (KEY, empty), (KEY, other)] * rounds, P, M) == b"\x01\x00\x00" * rounds
    assert query.match_many([], P, M) == b""
    assert GcsQuery([]).match_many([(KEY, SET), (KEY, empty)], P, M) == b"\x00\x00"
    for number in range(4):
        sets = [(KEY, SET)] * 4
        sets[number] = (KEY, SET[:-1])
        with pytest.raises(FormatError, match=f"element of filter {number} at byte {len(SET) - 1}: truncated"):
            query.match_many(sets, P, M)
    with pytest.raises(FormatError, match="of filter 1 at"):
        query.match_many([(KEY, SET), (KEY, b""), (KEY, b"")], P, M)


def test_the_first_unsound_set_is_named() -> None:
    query = GcsQuery([b"stranger"])
    long = gcs_build([number.to_bytes(4, "little") for number in range(3_000)], KEY, P, M)
    for sets in (
        [long[:-1], SET, b""],
        [long[:-1], SET, SET[:-1]],
        [SET, long + b"x", SET, SET, b"\x00\x00"],
        [long[:-1], long + b"x"],
    ):
        broken = next(number for number, data in enumerate(sets) if data not in (SET, long))
        with pytest.raises(FormatError, match=f"of filter {broken} at byte"):
            query.match_many([(KEY, data) for data in sets], P, M)


def test_sets_and_quotients_of_any_size_match_together() -> None:
    source = random.Random(5)
    items = [source.randbytes(22) for _ in range(20)]
    for p in (1, 6, 19, 27, 28, 32):
        m, sets = 1 << p - 1, []
        for size in (0, 1, 15, 16, 47, 48, 49, 200, 201, 500, 50, 3, 300):
            longest = source.choice((2, 6, 20, 60, 300))
            small = [source.randrange(source.choice((2, longest)) << p) for _ in range(size)]
            count = bytes((size,)) if size < 0xFD else b"\xfd" + size.to_bytes(2, "little")
            sets.append((source.randbytes(16), count + rice_encode(small, p)))
            others = [source.randbytes(20) for _ in range(size)]
            key = source.randbytes(16)
            sets.append((key, gcs_build([*others, source.choice(items)], key, p, m)))
        mask = GcsQuery(items).match_many(sets, p, m)
        assert mask == PureQuery(items).match_many(sets, p, m)
        assert mask == bytes(GcsQuery(items).match_any(data, key, p, m) for key, data in sets)
        assert 0 in mask and mask.count(1) >= 13


def test_the_empty_set_is_one_zero_byte_and_matches_nothing() -> None:
    assert SET != gcs_build([], KEY, P, M) == b"\x00"
    assert not GolombCodedSet.parse(b"\x00", KEY, P, M).match_any([b"", b"x"])
    assert not GolombCodedSet.build(ITEMS, KEY, P, M).match_any([])


def test_every_truncation_is_an_error_and_never_no_match() -> None:
    for end in range(len(SET)):
        refusal(SET[:end])


@pytest.mark.parametrize(
    ("data", "offset", "field"),
    [
        (b"", 0, "element count"),
        (b"\xff" + b"\xff" * 8 + bytes(5), 0, "element count"),  # 2^64 - 1
        (b"\xfe\xff\xff\xff\xff" + bytes(5), 0, "element count"),  # 2^32 - 1 with only five bytes after it
        (b"\xfe\x01\x00\x00\x02" + bytes(5), 0, "element count"),  # above 2^25
        (b"\xfd\x01\x00" + bytes(3), 0, "element count"),  # not canonical
        (b"\x02" + bytes(4), 0, "element count"),
        (b"\x01" + b"\xff" * 3, 4, "element"),  # a quotient without an end
        (b"\x01" + b"\xff" * 100_000, 100_001, "element"),
        (b"\x01" + b"\xff" * 99 + b"\xfe\x00", 102, "element"),  # its remainder is truncated
        (b"\x00\x00", 1, "filter"),
        (SET + b"\x00", len(SET), "filter"),
        (SET + bytes(50), len(SET), "filter"),
    ],
)
def test_absurd_data_is_refused_without_an_allocation(data: bytes, offset: int, field: str) -> None:
    gcs_check(SET, P)
    tracemalloc.start()
    error = refusal(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (error.offset, error.field) == (offset, field)
    assert peak < 1 << 20


def test_padding_bits_are_ignored() -> None:
    used = 8 * len(SET) - 8
    assert gcs_values(SET, P)
    for p in range(1, 32):
        one = gcs_build([b"a"], KEY, p, 1 << p)
        padding = -(gcs_values(one, p)[0] >> p) - 1 - p & 7
        assert gcs_check(one[:-1] + bytes((one[-1] | (1 << padding) - 1,)), p) == 1
    assert used > 0


def test_a_long_quotient_is_read() -> None:
    for quotient in (*range(20), 55, 56, 57, 58, 63, 64, 65, 500):
        coded = b"\x02" + rice_encode([quotient << P | 5, 7], P)
        assert gcs_values(coded, P) == [quotient << P | 5, (quotient << P) + 12]
        assert gcs_check(coded, P) == 2


@pytest.mark.parametrize(
    ("p", "m", "key"), [(0, M, KEY), (33, M, KEY), (P, 0, KEY), (P, 1 << 32, KEY), (P, M, KEY[:15]), (P, M, b"")]
)
def test_parameters_out_of_range_are_refused(p: int, m: int, key: bytes) -> None:
    with pytest.raises(ParameterError):
        gcs_build(ITEMS, key, p, m)
    with pytest.raises(ParameterError):
        GcsQuery(ITEMS).match_any(SET, key, p, m)
    with pytest.raises(ParameterError):
        GolombCodedSet(SET, key, p, m)


def test_a_single_item_is_no_batch() -> None:
    for make in (GcsQuery, lambda items: gcs_build(items, KEY, P, M)):
        for wrong in (b"one item", "text", [1], ["text"], None):
            with pytest.raises(TypeError):
                make(wrong)  # type: ignore[arg-type]  # of a wrong type, and refused
    # of a wrong type, and refused
    assert gcs_build([bytearray(ITEMS[0]), memoryview(ITEMS[1])], KEY, P, M) == gcs_build(ITEMS[:2], KEY, P, M)  # type: ignore[list-item]
