"""Set operations by name, removal of many keys, raw cells, and the repr of a filter."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, FastHash, ScalableBloomFilter, SipHash, sample
from spvfilter.bloom.fileformat import MAGIC
from spvfilter.errors import FormatError, MismatchError, ParameterError, ReadOnlyError, TooLargeError
from spvfilter.filters import Bip37Filter

KEYS = [b"%d" % number for number in range(300)]


def filled(*keys: bytes) -> BloomFilter:
    made = BloomFilter(100, 0.01)
    made.update(keys)
    return made


def counted(*keys: bytes) -> CountingBloomFilter:
    made = CountingBloomFilter(100, 0.01)
    made.update(keys)
    return made


# Set operations


def test_named_operations_equal_the_operators() -> None:
    a, b, c = filled(b"a", b"x"), filled(b"b", b"x"), filled(b"c", b"x")
    assert a.union(b, c) == a | b | c
    assert a.intersection(b, c) == a & b & c
    assert a == filled(b"a", b"x")  # unchanged
    assert (a.union(), a.intersection()) == (a, a)
    assert a.union() is not a
    a.union_update(b)
    assert a == filled(b"a", b"x") | b
    assert b.issubset(a)
    assert a.issuperset(b)
    assert not a.issubset(b)
    assert not b.issuperset(a)
    a.intersection_update(b, c)
    assert a == (filled(b"a", b"x") | b) & b & c


def test_a_union_of_counting_filters_adds_their_counts() -> None:
    a, b = counted(b"a", b"a"), counted(b"a", b"b")
    assert a.union(b, b) == a | b | b
    a.union_update(b)
    assert (a.count(b"a"), a.count(b"b")) == (3, 1)


def test_bip37_filters_have_the_named_operations() -> None:
    a, b = (Bip37Filter(10, 0.01, tweak=5) for _ in range(2))
    a.insert(b"a")
    b.insert(b"b")
    assert a.union(b) == a | b
    assert a.issubset(a.union(b))


@pytest.mark.parametrize("operation", ["union", "intersection", "union_update", "intersection_update"])
def test_an_unsuitable_operand_changes_no_filter(operation: str) -> None:
    made, before = filled(b"a"), filled(b"a")
    fits: list[Any] = [filled(b"b"), counted(b"b"), {b"b"}, BloomFilter(100, 0.01, hashing=FastHash(1))]
    for other, error in zip(fits[1:], (TypeError, TypeError, MismatchError), strict=True):
        with pytest.raises(error):
            getattr(made, operation)(fits[0], other)
        assert made == before
    counting, unchanged = counted(b"a"), counted(b"a")
    for odd, error in ((filled(b"b"), TypeError), (CountingBloomFilter(101, 0.01), MismatchError)):
        if "union" in operation:
            with pytest.raises(error):
                getattr(counting, operation)(counted(b"b"), odd)
            assert counting == unchanged


@pytest.mark.parametrize("operation", ["issubset", "issuperset"])
def test_comparisons_refuse_other_shapes_and_types(operation: str) -> None:
    for other, error in (({b"a"}, TypeError), (counted(), TypeError), (BloomFilter(101, 0.01), MismatchError)):
        with pytest.raises(error):
            getattr(filled(b"a"), operation)(other)


# remove_many


def test_remove_many_removes_keys_and_reports_absent_ones() -> None:
    made = counted(*KEYS[:50], *KEYS[:10])
    assert made.remove_many([KEYS[0], b"absent", KEYS[0], KEYS[0], KEYS[20]]) == bytes([1, 0, 1, 0, 1])
    expected = counted(*KEYS[1:50], *KEYS[1:10])
    expected.remove(KEYS[20])
    assert made == expected
    assert made.remove_many(iter(KEYS[:50])) == bytes([0] + [1] * 19 + [0] + [1] * 29)
    assert made.remove_many([]) == b""
    assert made == counted(*KEYS[1:10])


def test_removing_absent_keys_changes_no_other_key() -> None:
    rng = random.Random(19)
    made = CountingBloomFilter(100, 0.5)  # many cells of an unknown key are set
    held = [rng.randbytes(8) for _ in range(60)]
    made.update(held)
    unknown = [key for key in (rng.randbytes(8) for _ in range(500)) if key not in made]
    before = made.dump()
    assert len(unknown) > 100
    assert made.remove_many(unknown) == bytes(len(unknown))
    assert made.dump() == before


def test_removing_a_batch_equals_removing_its_keys() -> None:
    rng = random.Random(20)
    one_by_one, batch = CountingBloomFilter(50, 0.1), CountingBloomFilter(50, 0.1)
    added = [bytes([rng.randrange(40)]) for _ in range(80)]
    gone = [bytes([rng.randrange(60)]) for _ in range(80)]
    one_by_one.update(added)
    batch.update(added)
    told = bytearray()
    for key in gone:
        try:
            one_by_one.remove(key)
            told.append(1)
        except KeyError:
            told.append(0)
    assert batch.remove_many(gone) == told
    assert batch == one_by_one


@pytest.mark.parametrize(
    ("encode", "batch"),
    [
        (None, np.arange(24, dtype=np.uint8).reshape(6, 4)),
        (None, np.arange(6, dtype=np.int32)),
        (None, np.zeros((3, 0), np.uint8)),
        ("int64", np.arange(-3, 3)),
        ("uint64", np.arange(6, dtype=np.uint64)),
        ("int64", np.arange(6, dtype=">i8")),
        ("int64", np.arange(6)[::-1]),
        ("int32", np.broadcast_to(np.int16(3), 1)),
        (None, np.arange(24, dtype=np.uint8).reshape(6, 4)[::-2]),
        (None, np.array([b"a", b"longer", b""]).view("V6")),
        ("utf-8", np.array(["a", "länger", ""])),
        ("utf-8", np.array(["a", "länger"], dtype=np.dtypes.StringDType())),
    ],
)
def test_a_buffer_that_was_added_can_be_removed(encode: Any, batch: Any) -> None:
    made = CountingBloomFilter(100, 0.001, encode=encode)
    made.update(batch)
    assert made.remove_many(batch) == bytes([1] * len(batch))
    assert not made
    assert made.remove_many(batch) == bytes(len(batch))


def test_removing_rows_of_byte_strings_changes_no_other_key() -> None:
    rows = np.array([b"a", b"bcd"])  # the two zeros after b"a" are padding and not part of the key
    for seed in range(40):
        made = CountingBloomFilter(bits=24, hash_funcs=2, hashing=FastHash(seed))
        made.update([b"other", b"bcd"])
        single = made.copy()
        assert made.remove_many(rows, padding="strip") == single.remove_many([b"a", b"bcd"])
        assert made == single


@pytest.mark.columns
@pytest.mark.parametrize("library", ["pyarrow", "polars", "pandas"])
def test_a_column_is_removed_and_gets_its_mask(library: str) -> None:
    texts = ["a", None, "longer than twelve", "b"]
    if library == "pyarrow":
        import pyarrow

        column: Any = pyarrow.chunked_array([texts[:1], [], texts[1:]])
    elif library == "polars":
        import polars

        column = polars.Series(texts)
    else:
        import pandas

        column = pandas.Series(texts)
    made = CountingBloomFilter(100, 0.001, encode="utf-8")
    made.update(column, nulls="skip")
    made.remove("b")
    with pytest.raises(TypeError, match="key 1 is null"):
        made.remove_many(column)
    mask: Any = made.remove_many(column, nulls="skip")
    left: Any = column[mask] if library == "pandas" else column.filter(mask)
    assert (left.to_pylist() if library == "pyarrow" else left.to_list()) == ["a", "longer than twelve"]
    assert not made


@pytest.mark.parametrize(
    "wrong", [b"a", bytearray(b"a"), "a", 5, [b"a", "a"], [b"a", None], np.arange(3.0), np.zeros((2, 2, 2), np.uint8)]
)
def test_an_invalid_batch_removes_no_key(wrong: Any) -> None:
    made = counted(b"a")
    with pytest.raises(TypeError):
        made.remove_many(wrong)
    assert made == counted(b"a")


def test_a_read_only_filter_refuses_removal() -> None:
    made = CountingBloomFilter(bits=64, hash_funcs=2, buffer=bytes(32))
    with pytest.raises(ReadOnlyError):
        made.remove_many([b"a"])


def test_removed_keys_leave_room_for_others() -> None:
    made = counted(*KEYS[:100])
    made.remove_many(KEYS[:10])
    made.update(KEYS[100:110])
    assert all(made.contains_many(KEYS[10:110]))


# Raw cells


@pytest.mark.parametrize("kind", [BloomFilter, CountingBloomFilter])
@pytest.mark.parametrize(
    "shape",
    [
        {"capacity": 300, "fp_rate": 0.01},
        {"capacity": 300, "fp_rate": 0.01, "hash_funcs": 3},
        {"bits": 2_003, "hash_funcs": 5, "hashing": SipHash(bytes(16))},
        {"capacity": 300, "fp_rate": 0.01, "partitioned": True, "encode": "utf-8"},
    ],
)
def test_raw_cells_and_shape_restore_the_filter(
    kind: type[BloomFilter] | type[CountingBloomFilter], shape: dict[str, Any]
) -> None:
    made = kind(**shape)
    keys = [key.decode() if "encode" in shape else key for key in KEYS]
    made.update(keys)
    raw = made.dump()
    assert raw == bytes(made.body)
    again = kind.load(bytearray(raw), **shape)
    assert again == made
    assert bytes(again) == bytes(made)  # capacity and rate, too
    again.clear()
    assert kind.load(raw, **shape) == made  # load copies the cells


def test_loaded_cells_count_against_the_capacity() -> None:
    raw = BloomFilter.build(KEYS, 300, 0.001).dump()
    again = BloomFilter.load(raw, 300, 0.001, on_full="warn")
    assert again.capacity == 300
    with pytest.warns(match="contains 317"):
        again.update(b"other %d" % number for number in range(200))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "2000 bits take 250 bytes, not 0"),
        (bytes(249), "2000 bits take 250 bytes, not 249"),
        (bytes(251), "2000 bits take 250 bytes, not 251"),
        (MAGIC + bytes(310), "2000 bits take 250 bytes, not 318: this starts like a filter file"),
    ],
)
def test_cells_of_another_size_are_refused(raw: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        BloomFilter.load(raw, bits=2_000, hash_funcs=3)


@pytest.mark.parametrize(
    ("load", "error"),
    [
        (lambda: BloomFilter.load(b"\xff\x02", bits=9, hash_funcs=2), FormatError),
        (lambda: CountingBloomFilter.load(b"\x11\x11", bits=3, hash_funcs=2), FormatError),
        (lambda: BloomFilter.load(bytes(250)), ParameterError),
        (lambda: BloomFilter.load(bytes(250), 100), ParameterError),
        (lambda: BloomFilter.load(bytes(250), bits=2_000), ParameterError),
        (lambda: BloomFilter.load(bytes(250), bits=0, hash_funcs=1), ParameterError),
        (lambda: BloomFilter.load(b"", bits=1 << 50, hash_funcs=1), FormatError),  # refused before an allocation
        # of a wrong type, and refused
        (lambda: BloomFilter.load("cells", bits=40, hash_funcs=1), TypeError),  # type: ignore[arg-type]
        (lambda: BloomFilter.load(bytes(250), bits=2_000, hash_funcs=3, encode="latin"), ParameterError),
        # same
        (lambda: BloomFilter.load(bytes(250), bits=2_000, hash_funcs=3, on_full="grow"), ParameterError),  # type: ignore[arg-type]
    ],
)
def test_cells_that_contradict_the_shape_are_refused(load: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        load()


@pytest.mark.posix
def test_cells_larger_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(TooLargeError):
        BloomFilter.load(bytes(250), bits=2_000, hash_funcs=3)


# Reprs


def test_a_repr_shows_fill_and_rate() -> None:
    made = BloomFilter(300, 0.01, 3)
    made.update(KEYS)
    assert repr(made).endswith(f"k=3, FastHash(seed=0), fill {made.fill:.1%}, rate {made.current_fp_rate:.3g}>")
    counting = CountingBloomFilter(300, 0.01, 3)
    counting.update(KEYS * 2)
    assert repr(counting).endswith(f"fill {counting.fill:.1%}, rate {counting.current_fp_rate:.3g}>")
    growing = ScalableBloomFilter(10, 0.01)
    growing.update(KEYS)
    assert repr(growing).endswith(
        f"slices, m={growing.bits}, FastHash(seed=0), fill {growing.fill:.1%}, rate {growing.current_fp_rate:.3g}>"
    )
    assert repr(BloomFilter(bits=9, hash_funcs=2, buffer=b"\xff\x01")).endswith("fill 100.0%, rate 1>")
    assert repr(CountingBloomFilter(bits=3, hash_funcs=2, buffer=b"\x80\x00")).endswith("fill 33.3%, rate 0.111>")


@pytest.mark.parametrize("kind", [BloomFilter, CountingBloomFilter, ScalableBloomFilter])
def test_a_repr_of_a_large_filter_estimates(kind: Any) -> None:
    made = kind(1 << 18, 1e-3)
    made.update(np.arange(1 << 17))
    told = repr(made)
    fill, rate = told.rpartition("fill ≈")[2].rstrip(">").split("%, rate ≈")
    assert float(fill) / 100 == pytest.approx(made.fill, rel=0.02)
    assert float(rate) == pytest.approx(made.current_fp_rate, rel=0.2)


def test_a_repr_reads_at_most_64_kib() -> None:
    class Body:
        looked = 0

        def __len__(self) -> int:
            return 5 << 20

        def __getitem__(self, piece: slice) -> memoryview:
            read = memoryview(bytes(5 << 20))[piece]
            self.looked += len(read)
            return read

    body: Any = Body()
    sample.glance(body, 40 << 20, 1)
    assert body.looked == 1 << 16
