"""Columns of keys: arrays of NumPy, and columns of pandas, polars, pyarrow and DuckDB. A column equals its keys."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import BloomFilter, CountingBloomFilter, CustomHash, ScalableBloomFilter, StaticFilter
from spvfilter.errors import CapacityError, ColumnError, ParameterError
from support.vectors import EFFORT

TEXTS = ["alpha", "", "ünïcode", "a text of more than twelve bytes", "b", "alpha", "z\0z"]
NUMBERS = [0, 1, 127, 5, 1]


def own_hash(data: bytes, number: int) -> int:
    return int.from_bytes(hashlib.blake2b(data, salt=bytes([number])).digest()[:8])


WIDE = [b"abcd", b"ab\0\0", b"\0\0\0\0", b"\0xyz", b"ab\0c"]

MADE: dict[str, Callable[..., Any]] = {
    "bits": lambda **options: BloomFilter(60, 0.001, **options),
    "counters": lambda **options: CountingBloomFilter(60, 0.001, **options),
    "scalable": lambda **options: ScalableBloomFilter(2, 0.001, **options),
    "custom": lambda **options: BloomFilter(60, 0.001, hashing=CustomHash("own", own_hash), **options),
}
kinds = pytest.mark.parametrize("kind", MADE)


def same(kind: str, encode: Any, column: Callable[[], Any], keys: list[Any], **nulls: Any) -> Any:
    """A column gives the result of its keys, with None for skipped nulls. Returns the mask for half of the keys."""
    make = MADE[kind]
    by_column, by_key, half = make(encode=encode), make(encode=encode), make(encode=encode)
    there = [key for key in keys if key is not None]
    assert by_column.update(column(), **nulls) == sum(by_key.add(key) for key in there)
    assert by_column == by_key
    half.update(there[::2])
    mask = half.contains_many(column(), **nulls)
    assert (mask.to_pylist() if hasattr(mask, "to_pylist") else list(mask)) == [
        key is not None and key in half for key in keys
    ]
    return mask


# NumPy


def strided(dtype: str) -> Any:
    return np.arange(-9, 9, dtype=dtype)[::-2]


NUMPY: dict[str, tuple[Any, Callable[[], Any], list[Any]]] = {
    "U": ("utf-8", lambda: np.array(TEXTS), TEXTS),
    ">U": ("utf-8", lambda: np.array(TEXTS).astype(">U40"), TEXTS),
    "U strided": ("utf-8", lambda: np.array(TEXTS)[::-2], TEXTS[::-2]),
    "U wide": ("utf-8", lambda: np.array([*TEXTS, "x" * 70_000]), [*TEXTS, "x" * 70_000]),
    "StringDType": ("utf-8", lambda: np.array(TEXTS, np.dtypes.StringDType()), TEXTS),
    "object": ("utf-8", lambda: np.array(TEXTS, object), TEXTS),
    "object strided": ("utf-8", lambda: np.array(TEXTS, object)[1::3], TEXTS[1::3]),
    "V": (None, lambda: np.array(WIDE).view("V4"), WIDE),
    "V strided": (None, lambda: np.array(WIDE).view("V4")[::-2], WIDE[::-2]),
    "V of a record": (None, lambda: np.array([(1, 0)], "<u2,<u2").view("V4"), [b"\1\0\0\0"]),
    "object of bytes": (None, lambda: np.array([b"a", b"b\0"], object), [b"a", b"b\0"]),
    "rows strided": (
        None,
        lambda: np.arange(60, dtype="u1").reshape(6, 10)[::2, 2:5],
        [bytes([at, at + 1, at + 2]) for at in (2, 22, 42)],
    ),
    "rows by columns": (
        None,
        lambda: np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(3, 2)),
        [b"\0\1", b"\2\3", b"\4\5"],
    ),
    "rows backwards": (None, lambda: np.arange(6, dtype=np.uint8).reshape(3, 2)[:, ::-1], [b"\1\0", b"\3\2", b"\5\4"]),
    "rows repeated": (None, lambda: np.broadcast_to(np.arange(2, dtype=np.uint8), (3, 2)), [b"\0\1"] * 3),
    "int32 as bytes strided": (
        None,
        lambda: np.arange(6, dtype="<i4")[::2],
        [bytes([at, 0, 0, 0]) for at in (0, 2, 4)],
    ),
    "int8 of objects": ("int64", lambda: np.array([3, -1], object), [3, -1]),
    "bool memory": ("uint64", lambda: np.array([True]).view(np.uint8), [1]),
    **{
        f"{dtype} as {encode}": (encode, partial(np.array, NUMBERS, dtype), NUMBERS)
        for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i2", ">u4", ">i8")
        for encode in ("int64", "uint64")
    },
    **{f"{dtype} strided": ("int64", partial(strided, dtype), [*range(8, -9, -2)]) for dtype in ("i1", "i4", "i8")},
    "negative": ("int64", lambda: np.array([-1, -(2**63)], np.int64), [-1, -(2**63)]),
    "large": ("uint64", lambda: np.array([2**64 - 1, 2**63], np.uint64), [2**64 - 1, 2**63]),
}


@pytest.mark.few(76)
@kinds
@pytest.mark.parametrize("form", NUMPY)
def test_a_numpy_array_equals_its_keys_and_gets_a_mask(kind: str, form: str) -> None:
    encode, column, keys = NUMPY[form]
    mask = same(kind, encode, column, keys)
    assert mask.dtype == np.bool_
    assert len(column()[mask]) == sum(mask)
    assert len(column()[~mask]) == len(keys) - sum(mask)


@kinds
def test_byte_strings_of_numpy_need_to_say_whether_zeros_count(kind: str) -> None:
    column = np.array(WIDE, "S4")
    for array in (column, column[::2], np.ma.array(column, mask=[True, False, False, False, False])):
        for method in ("update", "contains_many"):
            with pytest.raises(TypeError) as error:
                getattr(MADE[kind](), method)(array, nulls="skip")
            for part in ("padding='keep'", "padding='strip'", ".view('V4')", "uint8[n, 4]"):
                assert part in str(error.value)
    same(kind, None, lambda: column, WIDE, padding="keep")
    same(kind, None, lambda: column[::-2], WIDE[::-2], padding="keep")
    same(kind, None, lambda: column, [key.rstrip(b"\0") for key in WIDE], padding="strip")
    same(kind, None, lambda: np.array(WIDE, "V4"), WIDE, padding="strip")
    with pytest.raises(ParameterError, match="padding must be 'keep' or 'strip', not 'both'"):
        MADE[kind]().update(column, padding="both")
    with pytest.raises(TypeError, match="unexpected keyword argument 'pads'"):
        MADE[kind]().update(column, pads="keep")


def test_the_encode_function_gets_the_padded_keys() -> None:
    taken: list[object] = []

    def encode(key: object) -> bytes:
        taken.append(key)
        return b"x"

    BloomFilter(10, 0.1, encode=encode).update(np.array(WIDE, "S4"), padding="keep")
    BloomFilter(10, 0.1, encode=encode).update(np.array(WIDE, "V4"))
    assert taken == WIDE * 2


def test_a_filter_of_texts_refuses_byte_strings_first() -> None:
    with pytest.raises(TypeError, match="expected a column of text"):
        BloomFilter(10, 0.1, encode="utf-8").update(np.array([b"a"]))


@pytest.mark.slow
@pytest.mark.columns
@given(
    st.integers(1, 33).flatmap(
        lambda width: st.lists(
            st.sampled_from([b"\0", b"\1", b"a"]).flatmap(
                lambda last: st.binary(min_size=width - 1, max_size=width - 1).map(lambda head: head + last)
            ),
            min_size=1,
            max_size=12,
        )
    )
)
def test_every_column_of_bytes_equals_its_keys(keys: list[bytes]) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    width = len(keys[0])
    flat = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, width)
    wide: Any = flat.view(f"V{width}")[:, 0]
    columns: list[tuple[Any, dict[str, Any]]] = [
        (keys, {}),
        (flat, {}),
        (wide, {}),
        (wide.view(f"S{width}"), {"padding": "keep"}),
        (memoryview(wide.view(f"S{width}")), {"padding": "keep"}),
        (pa.array(keys, pa.binary(width)), {}),
        (pa.array(keys, pa.binary()), {}),
        (pa.array(keys, pa.large_binary()), {}),
        (pa.chunked_array([pa.array(keys, pa.binary(width))]), {}),
        (pd.Series(keys), {}),
        (pd.Series(keys, dtype=pd.ArrowDtype(pa.binary(width))), {}),
        (pl.Series(keys), {}),
    ]
    expected = BloomFilter(60, 0.001)
    fresh = expected.update(keys)
    for column, options in columns:
        made = BloomFilter(60, 0.001)
        assert made.update(column, **options) == fresh
        assert made == expected
        assert all(key in made for key in keys)
        mask = expected.contains_many(column, **options)
        assert all(mask.to_pylist() if hasattr(mask, "to_pylist") else list(mask))
        for other in (StaticFilter(column, 16, **options), StaticFilter(keys, 16)):
            assert other == StaticFilter(keys, 16)
    counted = CountingBloomFilter(60, 0.001)
    counted.update(keys)
    assert all(counted.remove_many(wide.view(f"S{width}"), padding="keep"))


def test_random_arrays_equal_their_lists() -> None:
    for seed in range({"quick": 40, "ci": 100, "full": 2_000}[EFFORT]):
        rng = random.Random(seed)
        keys = ["".join(rng.choices("aé€😀\0", k=rng.randrange(9))).rstrip("\0") for _ in range(rng.randrange(50))]
        step = rng.choice([1, 1, -1, 2, -3])
        for array in (np.array(keys, "U8"), np.array(keys, object), np.array(keys, ">U9")):
            same("bits", "utf-8", lambda array=array, step=step: array[::step], keys[::step])  # type: ignore[misc]
        raw = [key.encode() for key in keys]
        same("bits", None, lambda: np.array(raw, "S40")[::step], raw[::step], padding="strip")  # noqa: B023


def test_a_mask_of_numpy_equals_its_bytes() -> None:
    made = BloomFilter(10, 0.001, encode="int64")
    made.update([1, 2])
    keys = np.array([1, 2, 10, 11])
    mask = made.contains_many(keys)
    assert mask == b"\1\1\0\0"
    assert mask == bytearray(b"\1\1\0\0")
    assert mask != b"\1"
    assert mask.count(1) == 2
    assert bytes(mask) == b"\1\1\0\0"
    assert np.frombuffer(mask, bool).tolist() == [True, True, False, False]
    assert keys[mask].tolist() == [1, 2]
    assert keys[~mask & (keys > 10)].tolist() == [11]
    assert (mask == [True, False, False, False]).tolist() == [True, False, True, True]
    mask[0] = False
    assert mask.sum() == 1


def test_a_masked_array_has_nulls() -> None:
    keys = np.ma.array([1, 2, 3], mask=[False, True, False])
    mask = same("bits", "int64", lambda: keys, [1, None, 3], nulls="skip")
    assert type(keys[mask]) is np.ma.MaskedArray
    with pytest.raises(TypeError, match="key 1 is null, which is not a key: nulls='skip' leaves nulls out"):
        BloomFilter(9, 0.1, encode="int64").update(keys)
    assert BloomFilter(9, 0.1, encode="int64").update(np.ma.array([1, 2])) == 2
    with pytest.raises(TypeError, match="a masked array of keys must have one dimension, not 2"):
        BloomFilter(9, 0.1).update(np.ma.array(np.zeros((2, 2), np.uint8), mask=[[True, False], [False, False]]))


@kinds
@pytest.mark.parametrize(
    "form", [list, tuple, iter, lambda keys: np.array(keys, object), lambda keys: (key for key in keys), dict.fromkeys]
)
def test_nulls_among_objects_are_refused_or_skipped(kind: str, form: Callable[[list[Any]], Any]) -> None:
    keys = ["a", None, float("nan"), "b"]
    same(kind, "utf-8", lambda: form(keys), ["a", None, None, "b"], nulls="skip")
    made = MADE[kind](encode="utf-8")
    with pytest.raises(TypeError, match="not NoneType"):
        made.update(form(keys))
    assert "a" in made


def test_the_users_function_gets_none_unless_nulls_are_skipped() -> None:
    made = BloomFilter(9, 0.001, encode=lambda key: repr(key).encode())
    assert made.update([None, 1]) == 2
    assert made.update([None, 2, 1.5], nulls="skip") == 2
    assert made.update(np.array([7, 8], "i2"), np.array([b"x"]), np.array(["y"]), padding="strip") == 4
    assert all(key in made for key in (None, 2, 1.5, 7, 8, b"x", "y"))


def test_several_batches_are_added_in_order() -> None:
    for kind in MADE:
        made = MADE[kind](encode="utf-8")
        assert made.update(["a"], np.array(["b", "a"]), iter("cd")) == 4
        assert made.update() == 0
        with pytest.raises(TypeError, match=r"expected a batch of keys, not one str"):
            made.update(["e"], "f")
        assert "e" in made


def test_invalid_text_is_named() -> None:
    for column, message in (
        (np.array(["a", "\ud800"]), "text of a column, key 1: U\\+D800 is not a character"),
        (np.array([0x61, 0x110000], "u4").view("U1"), "text of a column, key 1: U\\+110000 is not a character"),
    ):
        made = BloomFilter(9, 0.1, encode="utf-8")
        with pytest.raises(ColumnError, match=f"^{message}$"):
            made.update(column)
        assert "a" in made


def test_numbers_out_of_range_are_named() -> None:
    for encode, column in (("int64", np.array([5, 2**63], np.uint64)), ("uint64", np.array([5, -1], np.int8))):
        made = BloomFilter(9, 0.1, encode=encode)
        with pytest.raises(OverflowError, match=f"^key 1: {int(column[1])} does not fit into {encode}$"):
            made.update(column)
        assert 5 in made


def test_a_column_stops_where_the_filter_is_full() -> None:
    made = BloomFilter(1_000, 0.01, encode="int64")
    with pytest.raises(CapacityError):
        made.update(np.arange(5_000, dtype=np.int32))
    assert made.contains_many(np.arange(1_000, dtype=np.int16)).all()


def test_a_filter_is_built_from_a_column() -> None:
    updated = BloomFilter(60, 0.001, encode="utf-8")
    updated.update(TEXTS)
    for column in (np.array(TEXTS), np.array(TEXTS, object), np.array(TEXTS, np.dtypes.StringDType())):
        assert BloomFilter.build(column, 60, 0.001, encode="utf-8") == updated


def test_columns_import_no_library() -> None:
    code = (
        "import sys; from spvfilter import BloomFilter; f = BloomFilter(9, .1, encode='utf-8');"
        " f.update(iter('ab'));f.contains_many(iter('a')); libraries = {'numpy', 'pandas', 'polars', 'pyarrow',"
        " 'spvfilter.kernel.masks'};print(sorted(libraries & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Libraries

TWO = "keys: expected one column, got 2: choose one of them"


@pytest.fixture
def libraries() -> dict[str, ModuleType]:
    import duckdb
    import pandas
    import polars
    import pyarrow

    return {"duckdb": duckdb, "pandas": pandas, "polars": polars, "pyarrow": pyarrow}


RAW = [text.encode() for text in TEXTS]
FIXED = [b"0123", b"abcd", b"\0\0\0\0"]
COLUMNS: dict[str, tuple[Any, Callable[..., Any], list[Any]]] = {
    **{
        f"pyarrow {type}": (
            "utf-8",
            lambda pyarrow, type=type, **_: pyarrow.array(TEXTS, getattr(pyarrow, type)()),
            TEXTS,
        )
        for type in ("string", "large_string", "string_view")
    },
    **{
        f"pyarrow {type}": (None, lambda pyarrow, type=type, **_: pyarrow.array(RAW, getattr(pyarrow, type)()), RAW)
        for type in ("binary", "large_binary", "binary_view")
    },
    **{
        f"pyarrow {type}": (
            "uint64",
            lambda pyarrow, type=type, **_: pyarrow.array(NUMBERS, getattr(pyarrow, type)()),
            NUMBERS,
        )
        for type in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    },
    "pyarrow fixed": (None, lambda pyarrow, **_: pyarrow.array(FIXED, pyarrow.binary(4)), FIXED),
    "pyarrow dictionary": ("utf-8", lambda pyarrow, **_: pyarrow.array(TEXTS).dictionary_encode(), TEXTS),
    "pyarrow sliced": ("utf-8", lambda pyarrow, **_: pyarrow.array(TEXTS)[2:5], TEXTS[2:5]),
    "pyarrow nulls": ("utf-8", lambda pyarrow, **_: pyarrow.array([*TEXTS, None, "x"])[1:], [*TEXTS[1:], None, "x"]),
    "pyarrow null": ("utf-8", lambda pyarrow, **_: pyarrow.nulls(3), [None] * 3),
    "pyarrow chunks": (
        "utf-8",
        lambda pyarrow, **_: pyarrow.chunked_array([TEXTS, [], ["x", None]]),
        [*TEXTS, "x", None],
    ),
    "pyarrow chunks of none": ("utf-8", lambda pyarrow, **_: pyarrow.chunked_array([], pyarrow.string()), []),
    "pyarrow column": ("utf-8", lambda pyarrow, **_: pyarrow.table({"a": TEXTS, "b": TEXTS})["a"], TEXTS),
    "pyarrow table": ("utf-8", lambda pyarrow, **_: pyarrow.table({"a": TEXTS}).slice(2), TEXTS[2:]),
    "pyarrow batch": ("utf-8", lambda pyarrow, **_: pyarrow.RecordBatch.from_pydict({"a": TEXTS})[1:], TEXTS[1:]),
    "polars": ("utf-8", lambda polars, **_: polars.Series("a", TEXTS), TEXTS),
    "polars nulls": ("utf-8", lambda polars, **_: polars.Series([*TEXTS, None]), [*TEXTS, None]),
    "polars sliced": ("utf-8", lambda polars, **_: polars.Series([None, *TEXTS, None])[2:], [*TEXTS[1:], None]),
    "polars chunks": (
        "utf-8",
        lambda polars, **_: polars.concat([polars.Series(TEXTS), polars.Series(["x"])], rechunk=False),
        [*TEXTS, "x"],
    ),
    "polars categorical": (
        "utf-8",
        lambda polars, **_: polars.Series([*TEXTS, None], dtype=polars.Categorical),
        [*TEXTS, None],
    ),
    "polars binary": (None, lambda polars, **_: polars.Series(RAW), RAW),
    "polars int": ("int64", lambda polars, **_: polars.Series([1, None, -5]), [1, None, -5]),
    "polars uint8": ("int64", lambda polars, **_: polars.Series(NUMBERS, dtype=polars.UInt8), NUMBERS),
    "polars frame": ("utf-8", lambda polars, **_: polars.DataFrame({"a": TEXTS}), TEXTS),
    "pandas": ("utf-8", lambda pandas, **_: pandas.Series(TEXTS), TEXTS),
    "pandas index": ("utf-8", lambda pandas, **_: pandas.Series(TEXTS, index=[9, 9, 1, 2, 3, 4, 5]), TEXTS),
    "pandas object": (
        "utf-8",
        lambda pandas, **_: pandas.Series([*TEXTS, None, float("nan")], dtype=object),
        [*TEXTS, None, None],
    ),
    "pandas NA": ("utf-8", lambda pandas, **_: pandas.Series([*TEXTS, pandas.NA], dtype=object), [*TEXTS, None]),
    "pandas missing": ("utf-8", lambda pandas, **_: pandas.Series([None, *TEXTS]), [None, *TEXTS]),
    "pandas python": (
        "utf-8",
        lambda pandas, **_: pandas.Series([*TEXTS, None], dtype=pandas.StringDtype("python")),
        [*TEXTS, None],
    ),
    "pandas pyarrow": (
        "utf-8",
        lambda pandas, **_: pandas.Series([*TEXTS, None], dtype="string[pyarrow]"),
        [*TEXTS, None],
    ),
    "pandas category": ("utf-8", lambda pandas, **_: pandas.Series([*TEXTS, None], dtype="category"), [*TEXTS, None]),
    "pandas array": ("utf-8", lambda pandas, **_: pandas.Series(TEXTS).array, TEXTS),
    "pandas Index": ("utf-8", lambda pandas, **_: pandas.Index(TEXTS), TEXTS),
    "pandas frame": ("utf-8", lambda pandas, **_: pandas.DataFrame({"a": TEXTS}), TEXTS),
    "pandas int": ("int64", lambda pandas, **_: pandas.Series([1, -5]), [1, -5]),
    "pandas int8": ("uint64", lambda pandas, **_: pandas.Series(NUMBERS, dtype="int8")[::2], NUMBERS[::2]),
    "pandas Int64": (
        "int64",
        lambda pandas, **_: pandas.Series([1, None, -(2**63)], dtype="Int64"),
        [1, None, -(2**63)],
    ),
    "pandas arrow int": (
        "int64",
        lambda pandas, **_: pandas.Series([1, None, 2**62], dtype="int64[pyarrow]"),
        [1, None, 2**62],
    ),
    "pandas RangeIndex": ("int64", lambda pandas, **_: pandas.RangeIndex(2, 9), [*range(2, 9)]),
    "pandas bytes": (None, lambda pandas, **_: pandas.Series(RAW), RAW),
    "duckdb": (
        "utf-8",
        lambda duckdb, **_: duckdb.sql("select 'a' || i as a from range(5000) t(i)"),
        [f"a{i}" for i in range(5000)],
    ),
    "duckdb nulls": ("int64", lambda duckdb, **_: duckdb.sql("values (5), (NULL), (-7)"), [5, None, -7]),
}


@pytest.mark.few(28)
@pytest.mark.columns
@pytest.mark.parametrize("form", COLUMNS)
def test_a_librarys_column_equals_its_keys_and_gets_a_mask(libraries: dict[str, Any], form: str) -> None:
    encode, make, keys = COLUMNS[form]
    make_filter = MADE["scalable"] if len(keys) > 60 else MADE["bits"]
    MADE["now"] = make_filter
    try:
        mask = same("now", encode, lambda: make(**libraries), [*keys], nulls="skip")
    finally:
        del MADE["now"]
    column, pandas, polars, pyarrow = make(**libraries), libraries["pandas"], libraries["polars"], libraries["pyarrow"]
    match form.split()[0]:
        case "pyarrow":
            assert isinstance(mask, pyarrow.BooleanArray) or mask == []
            if not form.endswith("_view"):  # pyarrow cannot filter this type
                assert len(column.filter(mask)) == sum(mask.to_pylist())
        case "polars":
            assert isinstance(mask, polars.Series)
            assert mask.dtype == polars.Boolean
            assert len(column.filter(mask)) == mask.sum()
        case "pandas":
            assert isinstance(mask, np.ndarray)
            assert len(column[mask]) == mask.sum()
            assert len(column[~mask]) == len(column) - mask.sum()
            assert np.frombuffer(mask, bool).sum() == mask.sum()
            assert isinstance(
                column, (pandas.DataFrame, pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
            )
        case _:
            assert type(mask) is bytes
    if None in keys:
        with pytest.raises(
            TypeError, match=f"^key {keys.index(None)} is null, which is not a key: nulls='skip' leaves nulls out$"
        ):
            make_filter(encode=encode).update(make(**libraries))


# Each row is the encoding of the filter's keys, a column of a library that has no such keys, and the error
REFUSED: dict[str, tuple[Any, Callable[..., Any], str]] = {
    "pandas numbers": (
        None,
        lambda pandas, **_: pandas.Series([1, 2]),
        "expected a column of binary, not of integers: other keys need `encode`",
    ),
    "pandas floats": ("utf-8", lambda pandas, **_: pandas.Series([1.5]), "not a buffer of 'd' with 1"),
    "pandas bytes": (
        "utf-8",
        lambda pandas, **_: pandas.Series([b"a"]),
        "the key must be a str, not bytes: the filter encodes its keys as utf-8",
    ),
    "pandas booleans": (
        "int64",
        lambda pandas, **_: pandas.Series([True]),
        "integers in one dimension, not a buffer of '\\?' with 1",
    ),
    "pandas times": (
        "int64",
        lambda pandas, **_: pandas.to_datetime(pandas.Series(["2020-01-01"])),
        "text, byte strings or integers, not datetime64",
    ),
    "pyarrow booleans": ("int64", lambda pyarrow, **_: pyarrow.array([True]), "not of Arrow's type 'b'"),
    "polars lists": ("utf-8", lambda polars, **_: polars.Series([["a"]]), "not of Arrow's type '\\+L'"),
    "pandas frame": ("utf-8", lambda pandas, **_: pandas.DataFrame({"a": ["x"], "b": ["y"]}), TWO),
    "polars frame": ("utf-8", lambda polars, **_: polars.DataFrame({"a": ["x"], "b": ["y"]}), TWO),
    "pyarrow table": ("utf-8", lambda pyarrow, **_: pyarrow.table({"a": ["x"], "b": ["y"]}), TWO),
    "duckdb table": ("utf-8", lambda duckdb, **_: duckdb.sql("select 1 as a, 2 as b"), TWO),
}


@pytest.mark.columns
@pytest.mark.parametrize("case", REFUSED)
def test_a_column_of_invalid_keys_is_refused(libraries: dict[str, Any], case: str) -> None:
    encode, make, message = REFUSED[case]
    made = BloomFilter(9, 0.1, encode=encode)
    for call in (made.update, made.contains_many):
        with pytest.raises(TypeError, match=message):
            call(make(**libraries))
    assert not made


@pytest.mark.columns
def test_a_failing_stream_of_duckdb_reports_its_error(libraries: dict[str, Any]) -> None:
    made = BloomFilter(9, 0.1, encode="int64")
    with pytest.raises(Exception, match="Could not convert string 'b' to"):
        made.update(libraries["duckdb"].sql("select cast(a as bigint) from (values ('1'), ('b')) t(a)"))


@pytest.mark.columns
def test_a_filter_is_built_from_a_librarys_column(libraries: dict[str, Any]) -> None:
    updated = BloomFilter(60, 0.001, encode="utf-8")
    updated.update(TEXTS)
    for make in (libraries["pandas"].Series, libraries["polars"].Series, libraries["pyarrow"].array):
        assert BloomFilter.build(make(TEXTS), 60, 0.001, encode="utf-8") == updated
