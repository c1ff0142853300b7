"""Filters of Parquet columns of floats, dates, times and timestamps, judged by pyarrow and DuckDB."""

from __future__ import annotations

import pickle
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom.exchange import ParquetDecimal, SplitBlockFilter, TypedBlockFilter, TypedKeys, column_filters
from spvfilter.bloom.exchange.typedblock import stored
from spvfilter.errors import KeyRangeError, MismatchError, ParameterError

DAY = date(2020, 1, 2)
MOMENT = datetime(2020, 1, 2, 3, 4, 5, 678_000)
ZONE = timezone(timedelta(hours=2))
FLOATS = [0.0, -0.0, 1.5, float("inf"), float("nan"), -3.25]


@pytest.mark.parametrize(
    ("kind", "key", "number"),
    [
        ("float", 1.5, 0x3FC00000),
        ("float", -0.0, -(1 << 31)),
        ("double", 0.0, 0),
        ("double", -0.0, -(1 << 63)),
        ("date", date(1969, 12, 31), -1),
        ("date", DAY, 18263),
        ("date", 18263, 18263),
        ("time-ms", time(1, 2, 3, 4000), 3723004),
        ("time-us", time(1, 2, 3, 4), 3723000004),
        ("time-ns", time(0, 0, 1), 10**9),
        ("timestamp-ms", MOMENT, 1577934245678),
        ("timestamp-us", MOMENT.replace(tzinfo=ZONE), 1577927045678000),
        (ParquetDecimal(2, "int32"), Decimal("-1.5"), -150),
        (ParquetDecimal(2, "int64"), Decimal("1E+3"), 100_000),
        (ParquetDecimal(2, "int64"), 7, 7),
        (ParquetDecimal(2, 3), Decimal("-0.01"), b"\xff\xff\xff"),
        (ParquetDecimal(2, 3), b"\0\0\1", b"\0\0\1"),
        (ParquetDecimal(0, None), Decimal(-128), b"\x80"),
        (ParquetDecimal(0, None), Decimal(128), b"\0\x80"),
        (ParquetDecimal(0, None), Decimal("0E-2000"), b"\0"),
        ("timestamp-ns", datetime(1969, 12, 31, 23, 59, 59), -(10**9)),
    ],
)
def test_stored_value_follows_the_format(kind: str, key: object, number: object) -> None:
    assert stored(key, kind) == number


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("float", 1),
        ("double", "1"),
        ("double", True),
        ("date", MOMENT),
        ("date", True),
        ("time-us", DAY),
        ("timestamp-us", DAY),
        ("timestamp-us", 1.5),
        (ParquetDecimal(2, "int64"), 1.5),
        (ParquetDecimal(2, "int64"), True),
        (ParquetDecimal(2, 4), 1),
    ],
)
def test_key_of_another_type_is_an_error(kind: TypedKeys, key: object) -> None:
    made = TypedBlockFilter(10, 0.01, keys=kind)
    for call in (made.add, made.__contains__, lambda key: made.update([key]), lambda key: made.contains_many([key])):
        with pytest.raises(TypeError, match=r"^the key must be .*\bkeys\b"):
            call(key)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("float", 1e300),
        ("timestamp-ms", MOMENT.replace(microsecond=1)),
        (ParquetDecimal(2, "int32"), Decimal("0.001")),
        (ParquetDecimal(2, "int32"), Decimal("1E-999999")),
        (ParquetDecimal(2, "int32"), Decimal("1E+999999")),
        (ParquetDecimal(2, "int32"), Decimal("0." + 5_000 * "1")),
        (ParquetDecimal(2, "int32"), Decimal(10**9)),
        (ParquetDecimal(2, 2), Decimal("327.68")),
        (ParquetDecimal(2, 2), Decimal("nan")),
    ],
)
def test_key_that_the_column_cannot_hold_is_an_error(kind: TypedKeys, key: object) -> None:
    with pytest.raises(KeyRangeError):
        TypedBlockFilter(10, 0.01, keys=kind).add(key)


@given(keys=st.lists(st.floats(), max_size=20))
def test_doubles_hash_as_their_plain_bytes(keys: list[float]) -> None:
    made, plain = TypedBlockFilter(20, 0.01, keys="double"), SplitBlockFilter(20, 0.01, keys="int64")
    made.update(keys)
    plain.update(struct.unpack("<q", struct.pack("<d", key))[0] for key in keys)
    assert made.body == plain.body
    assert made.contains_many(keys) == b"\1" * len(keys)
    assert all(key in made for key in keys)


@pytest.mark.parametrize("kind", get_args(TypedKeys))
def test_copies_keep_the_type_of_keys(kind: TypedKeys, tmp_path: Path) -> None:
    made = TypedBlockFilter(10, 0.01, keys=kind)
    made.add(1.5 if kind in ("float", "double") else 7)
    made.save(tmp_path / "saved")
    for other in (made.copy(), pickle.loads(pickle.dumps(made)), TypedBlockFilter.open(tmp_path / "saved", keys=kind)):
        assert isinstance(other, TypedBlockFilter)
        assert other == made
        assert str(other.keys) == kind
    assert made | made == made


def test_filters_of_other_keys_are_not_equal_and_not_united() -> None:
    date_, float_ = TypedBlockFilter(10, 0.01, keys="date"), TypedBlockFilter(10, 0.01, keys="float")
    assert date_ != float_
    with pytest.raises(MismatchError, match="the filters have different types of keys: date and float"):
        _ = date_ | float_
    with pytest.raises(MismatchError, match="the filters have different types of keys: date and float"):
        date_ |= float_


def test_unknown_type_and_single_keys_are_errors() -> None:
    with pytest.raises(ParameterError, match="keys must be float, double"):
        TypedBlockFilter(10, 0.01, keys="int64")  # type: ignore[arg-type]
    for scale, form in ((-1, "int32"), (2, "int16"), (2, 0), (2, 513)):
        with pytest.raises(ParameterError, match="must be"):
            TypedBlockFilter(10, 0.01, keys=ParquetDecimal(scale, form))  # type: ignore[arg-type]
    made = TypedBlockFilter(10, 0.01, keys="date")
    with pytest.raises(TypeError, match="not one str"):
        made.update("2020-01-01")
    with pytest.raises(TypeError, match="an int, not"):
        made.update([None])
    assert made.contains_many([None, DAY], nulls="skip") == b"\0\0"


@pytest.fixture(scope="module")
def table() -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "f32": pa.array(FLOATS, pa.float32()),
            "f64": FLOATS,
            "day": [DAY + timedelta(days=number) for number in range(6)],
            "ms": pa.array([MOMENT + timedelta(days=number) for number in range(6)], pa.timestamp("ms")),
            "us": pa.array([MOMENT + timedelta(days=number) for number in range(6)], pa.timestamp("us", "UTC")),
            "ns": pa.array([MOMENT + timedelta(days=number) for number in range(6)], pa.timestamp("ns")),
            "t32": pa.array([time(number) for number in range(6)], pa.time32("ms")),
            "t64": pa.array([time(number) for number in range(6)], pa.time64("us")),
            "dec": pa.array([Decimal(number) / 4 for number in range(6)], pa.decimal128(9, 2)),
            "wide": pa.array([Decimal(number) / -4 for number in range(6)], pa.decimal256(50, 3)),
            "tns": pa.array([time(number) for number in range(6)], pa.time64("ns")),
        }
    )


@pytest.mark.columns
def test_columns_of_pyarrow_are_found_in_its_own_filters(table: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(table, path, bloom_filter_options={key: {"ndv": 60, "fpp": 1e-06} for key in table.column_names})
    kinds = {}
    for name in table.column_names:
        (found,) = column_filters(path, name)
        assert isinstance(found, TypedBlockFilter)
        kinds[name] = found.keys
        mask: Any = found.contains_many(table[name])  # of pyarrow, as the column
        assert mask.to_pylist() == [True] * 6
        made = found.copy()
        made.clear()
        assert made.update(table[name]) == 6
        assert made == found
    assert kinds == {
        "f32": "float",
        "f64": "double",
        "day": "date",
        "ms": "timestamp-ms",
        "us": "timestamp-us",
        "ns": "timestamp-ns",
        "t32": "time-ms",
        "t64": "time-us",
        "dec": ParquetDecimal(2, 4),
        "wide": ParquetDecimal(3, 21),
        "tns": "time-ns",
    }
    (plain,) = column_filters(path, "day", keys="int32")
    assert plain is not None and type(plain) is SplitBlockFilter and 18263 in plain
    with pytest.raises(ParameterError, match="its keys must be date or int32 or uint32"):
        column_filters(path, "day", keys="timestamp-us")


@pytest.mark.columns
def test_duckdb_hashes_floats_and_times_as_this_module(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "d.parquet"
    duckdb.sql(
        "copy (select case i % 3 when 0 then 'nan'::double when 1 then -0.0::double else 1.5 end as f,"
        " date '2020-01-02' + (i % 3)::int as d, timestamp '2020-01-02 03:04:05.678' + interval (i % 3) day as ts,"
        " (i % 3)::decimal(9,2) as m"
        f" from range(600) r(i)) to '{path}' (format parquet)"
    )
    found = {name: column_filters(path, name)[0] for name in ("f", "d", "ts", "m")}
    assert found["f"] is not None and found["d"] is not None and found["ts"] is not None
    assert 1.5 in found["f"] and float("nan") in found["f"]
    assert DAY in found["d"]
    assert found["m"] is not None and Decimal(2) in found["m"] and Decimal(7) not in found["m"]
    assert MOMENT in found["ts"]


@pytest.mark.columns
def test_polars_and_pandas_are_taken_but_dates_of_numpy_refused() -> None:
    import numpy as np
    import pandas as pd
    import polars as pl

    made = TypedBlockFilter(10, 0.01, keys="timestamp-us")
    made.update(pl.Series([MOMENT]))
    assert made.contains_many(pl.Series([MOMENT])).to_list() == [True]  # type: ignore[attr-defined]
    assert bytes(made.contains_many(pd.Series([MOMENT]))) == b"\1"
    with pytest.raises(TypeError, match="no fixed unit"):
        made.update(np.array(["2020-01-01"], "datetime64[ns]"))
    doubles = TypedBlockFilter(10, 0.01, keys="double")
    doubles.update(np.array([1.5, 2.5]))
    assert np.float64(2.5) in doubles
