"""Parquet's split-block filters: Arrow's bytes and DuckDB's answers as judges, and bytes that are no filter."""

from __future__ import annotations

import io
import pickle
import random
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom.exchange import SplitBlockFilter, column_filters, parquet
from spvfilter.bloom.exchange.splitblock import MAX_SIZE
from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.bloom.sizing import split_block_fp_rate
from spvfilter.errors import FormatError, MismatchError, ParameterError
from spvfilter.kernel import BitCore, Encoding, Family
from spvfilter.kernel.pure.foreign import xxhash64
from support.vectors import effort

ROWS = 600
GROUP = 200
OPTIONS = {"ndv": GROUP, "fpp": 0.05}
COLUMNS = {
    "text": "utf-8",
    "raw": "bytes",
    "i64": "int64",
    "i32": "int32",
    "u32": "uint32",
    "fixed": "bytes",
    "in.side": "int64",
}


def test_published_hashes_and_every_length_of_tail() -> None:
    assert xxhash64(b"") == 0xEF46DB3751D8E999
    assert xxhash64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxhash64(b"abc") == 0x44BC2CF5AD770999
    assert xxhash64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1
    assert len({xxhash64(b"x" * size) for size in range(200)}) == 200


def table() -> Any:
    import pyarrow as pa

    return pa.table(
        {
            "text": [f"grün {number}" + "x" * (number % 70) for number in range(ROWS)],
            "raw": pa.array([b"%d" % number for number in range(ROWS)], pa.binary()),
            "i64": pa.array([number * 1_234_567_891_011 - (1 << 40) for number in range(ROWS)], pa.int64()),
            "i32": pa.array([number - 300 for number in range(ROWS)], pa.int32()),
            "u32": pa.array([(1 << 32) - 1 - number for number in range(ROWS)], pa.uint32()),
            "fixed": pa.array([b"%05d" % number for number in range(ROWS)], pa.binary(5)),
            "in": [{"side": number} for number in range(ROWS)],
            "flag": [number % 2 == 0 for number in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyarrow.parquet as pq

    path: Path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    options = dict.fromkeys([*COLUMNS], OPTIONS)
    pq.write_table(table(), path, row_group_size=GROUP, bloom_filter_options=options)
    return path


@pytest.mark.few(2)
@pytest.mark.columns
@pytest.mark.parametrize("column", COLUMNS)
def test_filters_equal_those_of_arrow_bit_for_bit(written: Path, column: str) -> None:
    import pyarrow.parquet as pq

    keys: Any = COLUMNS[column]
    found = column_filters(written, column, keys=keys)
    values = [*range(ROWS)] if column == "in.side" else table()[column].to_pylist()
    file = pq.ParquetFile(written)
    for group, filter in enumerate(found):
        mine = SplitBlockFilter(GROUP, 0.05, keys=keys)
        part = values[group * GROUP : (group + 1) * GROUP]
        assert mine.update(part) > GROUP * 0.9
        assert filter == mine
        chunk = next(file.metadata.row_group(group).column(i) for i in range(8) if file.schema.column(i).path == column)
        start = chunk.bloom_filter_offset
        raw = written.read_bytes()[start : start + len(bytes(mine))]
        assert bytes(mine) == raw
        assert SplitBlockFilter.from_bytes(raw, keys=keys) == mine
        assert mine.contains_many(part) == b"\1" * GROUP
        assert 0 < mine.current_fp_rate < 0.05


def excluded(path: Path, key: int) -> list[bool]:
    """DuckDB's answer for each row group."""
    import duckdb

    asked = duckdb.sql(f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', 'i64', {key})")
    assert asked is not None
    return [row[0] for row in asked.fetchall()]


@pytest.mark.slow
@pytest.mark.columns
def test_duckdb_answers_the_same_for_its_and_arrows_filters(written: Path, tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "b.parquet"
    duckdb.sql(f"COPY (SELECT range % 300 AS i64 FROM range(20000)) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 5000)")
    rng = random.Random(4)
    for file, asked in (
        (path, range(0, 3_000, 40)),
        (written, [*range(-300, 0, 20), *(rng.randrange(1 << 40) for _ in range(30))]),
    ):
        filters = column_filters(file, "i64")
        assert all(filter is not None for filter in filters)
        for key in asked:
            assert excluded(file, key) == [filter is not None and key not in filter for filter in filters]


@pytest.mark.columns
def test_duckdb_reads_a_filter_of_this_package(written: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    start = pq.ParquetFile(written).metadata.row_group(1).column(2).bloom_filter_offset
    mine = SplitBlockFilter(GROUP, 0.05, keys="int64")
    mine.update(range(10**6, 10**6 + GROUP))
    raw = bytearray(written.read_bytes())
    raw[start : start + len(bytes(mine))] = bytes(mine)
    (tmp_path / "c.parquet").write_bytes(raw)
    for key in range(10**6 - 40, 10**6 + 10):
        told = excluded(tmp_path / "c.parquet", key)
        assert told[1] is (key not in mine)
        assert not told[1] or key < 10**6


@pytest.mark.columns
def test_columns_without_filters_and_of_other_types(written: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table(), tmp_path / "none.parquet")
    assert column_filters(tmp_path / "none.parquet", "text") == [None]
    with pytest.raises(ParameterError, match="no column 'nothing': the columns are text, raw, i64"):
        column_filters(written, "nothing")
    with pytest.raises(ParameterError, match="flag is of type BOOLEAN, which is not supported for keys"):
        column_filters(written, "flag")
    with pytest.raises(ParameterError, match="i64 is of type INT64: its keys must be int64 or uint64, not 'utf-8'"):
        column_filters(written, "i64", keys="utf-8")
    with pytest.raises(FileNotFoundError):
        column_filters(tmp_path / "missing", "text")


@pytest.mark.columns
def test_open_files_and_urls_are_read_like_paths(written: Path) -> None:
    expected = column_filters(written, "i64")
    with written.open("rb") as file, written.open("rb", buffering=0) as raw:
        for opened in (file, raw, io.BytesIO(written.read_bytes())):
            assert column_filters(opened, "i64") == expected
            assert not opened.closed
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://folder/a.parquet", "wb") as file:
        file.write(written.read_bytes())
    assert column_filters("memory://folder/a.parquet", "i64") == expected
    with pytest.raises(FileNotFoundError):
        column_filters("memory://folder/missing.parquet", "i64")


def test_other_objects_are_no_files() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    for other in (7, None, io.StringIO(), Pipe()):
        with pytest.raises(TypeError, match=f"open binary file that can seek, not {type(other).__name__}"):
            column_filters(other, "x")  # type: ignore[arg-type]


@pytest.mark.columns
@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"a.b": ["dot"], "a": [{"b": "nested"}]}, "a.b"),
        ({"a": [{"b": "nested", "c": "other"}], "a.b": ["dot"]}, "a.b"),
        ([("c", ["first"]), ("c", ["second"])], "c"),
        ([("x", ["first"]), ("c", ["y"]), ("c", ["z"]), ("d", ["third"]), ("c", ["fourth"])], "c"),
    ],
)
def test_name_of_several_columns_is_refused(tmp_path: Path, columns: Any, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pairs = [*columns.items()] if isinstance(columns, dict) else columns
    made = pa.table([pa.array(values) for _, values in pairs], names=[name for name, _ in pairs])
    pq.write_table(made, tmp_path / "f", bloom_filter_options={name: OPTIONS})
    with pytest.raises(ParameterError, match=f"'{name}' is the name of several columns, numbers"):
        column_filters(tmp_path / "f", name)


@pytest.mark.columns
def test_filters_of_many_columns_and_groups_are_found(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.table({f"c{number}": [f"{number} {row}" for row in range(40)] for number in range(50)})
    for name in ("c0", "c31", "c49"):
        pq.write_table(made, tmp_path / "f", row_group_size=2, bloom_filter_options={name: OPTIONS})
        filters = column_filters(tmp_path / "f", name, keys="utf-8")
        assert [key in filter for filter in filters if filter for key in made[name].to_pylist()].count(True) >= 40
        for group, filter in enumerate(filters):
            assert filter is not None
            assert filter.contains_many(made[name].to_pylist()[2 * group : 2 * group + 2]) == b"\1\1"


@pytest.mark.columns
def test_only_chunks_that_contain_the_name_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = pa.table({f"c{number}": list(range(6)) for number in range(200)})
    pq.write_table(made, tmp_path / "f", row_group_size=2, bloom_filter_options={"c77": OPTIONS})
    read: list[str] = []
    chunk = parquet.read_chunk

    def noted(cursor: Thrift, wire: Wire) -> Any:
        found = chunk(cursor, wire)
        read.append(found.path)
        return found

    monkeypatch.setattr(parquet, "read_chunk", noted)
    assert None not in column_filters(tmp_path / "f", "c77")
    assert read == ["c77"] * 3
    for name in ("c", "d", "c\\x77", "c\udcff", "c77."):
        with pytest.raises(ParameterError, match=r"no column .*: the columns are c0, c1"):
            column_filters(tmp_path / "f", name)


def test_row_groups_whose_columns_differ_are_refused(tmp_path: Path) -> None:
    whole = shortest(4, 4)
    at = whole.rindex(b"\x01x") + 1
    (tmp_path / "f").write_bytes(whole[:at] + b"y" + whole[at + 1 :])
    for name, said in (("x", "column 0 is 'x' in one row group and 'y' in another"), ("y", "no column 'y'")):
        with pytest.raises((FormatError, ParameterError), match=said):
            column_filters(tmp_path / "f", name)


@pytest.mark.columns
def test_damaged_files_have_their_own_errors(written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    path = tmp_path / "damaged"

    def ask(raw: bytes) -> None:
        path.write_bytes(raw)
        column_filters(path, "i64")

    for raw, said in [
        (b"", "not a Parquet file: it is only 0 bytes long"),
        (b"PAR1PAR1", "not a Parquet file: it is only 8 bytes long"),
        (whole[:-1], "it ends with"),
        (b"x" * 100, "it ends with"),
        (whole[:-4] + b"PARE", "the footer is encrypted"),
        (whole[:-8] + b"\xff" * 4 + b"PAR1", "the footer is 4294967295 bytes long"),
        (whole[-3_000:], "the offset of a filter is|the footer is|unknown"),
        (b"PAR1" + b"\x15" * 20 + (20).to_bytes(4, "little") + b"PAR1", "truncated|expected"),
    ]:
        with pytest.raises(FormatError, match=said):
            ask(raw)
    rng = random.Random(5)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(effort(40, 80, 20_000)):  # No other error is raised. Some files still have a readable filter.
        changed = bytearray(whole)
        changed[rng.randrange(start, len(whole))] = rng.randrange(256)
        try:
            ask(bytes(changed))
        except (FormatError, ParameterError):
            continue


def shortest(*offsets: int, keys: int = 1) -> bytes:
    """A file of row groups with one INT64 column, x, whose filters are at the offsets. The only filter is at byte 4."""

    def zigzag(number: int) -> bytes:
        value, out = number << 1 ^ number >> 63, b""
        while value > 0x7F:
            value, out = value >> 7, out + bytes([value & 0x7F | 0x80])
        return out + bytes([value])

    def group(offset: int) -> bytes:
        # columns: [meta_data: type, path, offset]
        return b"\x19\x1c\x3c\x15\x04\x29\x18\x01x\xb6" + zigzag(offset) + b"\0\0\0"

    footer = b"\x49" + bytes([len(offsets) << 4 | 12]) + b"".join(map(group, offsets)) + b"\0"
    return b"PAR1" + bytes(SplitBlockFilter(keys, 0.5)) + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_misplaced_or_overlapping_filters_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(shortest(4))
    assert column_filters(path, "x") == [SplitBlockFilter(1, 0.5, keys="int64")]
    for offsets, said in [
        ((0,), "the offset of a filter is 0,"),
        ((-5,), "the offset of a filter is -5,"),
        ((1 << 40,), "the offset of a filter is 1099511627776,"),
        ((60,), "filter header"),
        ((4, 4, 4, 4, 4, 4), "they overlap"),
    ]:
        path.write_bytes(shortest(*offsets))
        with pytest.raises(FormatError, match=said):
            column_filters(path, "x")
    path.write_bytes(shortest(4, 4, keys=1_000))  # of many blocks
    with pytest.raises(FormatError, match="they overlap"):
        column_filters(path, "x")
    path.write_bytes(shortest(4).replace(b"\x19\x1c\x3c", b"\x19\x0c\x00"))
    with pytest.raises(FormatError, match="a row group has no columns"):
        column_filters(path, "x")


def test_truncated_longer_and_foreign_bytes_are_refused() -> None:
    made = SplitBlockFilter(100, 0.01)
    made.update([b"a", b"b"])
    raw = bytes(made)
    for size in range(len(raw)):
        with pytest.raises(FormatError, match="truncated"):
            SplitBlockFilter.from_bytes(raw[:size])
    header = raw[: -32 * made.blocks]
    for wrong, said in [
        (raw + b"\0", "trailing bytes"),
        (b"\0" + raw, "lacks size, algorithm"),
        (raw.replace(b"\x1c\x1c\0\0", b"\x1c\x2c\0\0", 1), r"unknown algorithm \[2\]"),
        (header.replace(b"\x1c\x1c\0\0\0", b"\x1c\x2c\0\0\0"), r"unknown compression \[2\]"),
        (b"\x15\x42" + header[header.index(b"\x1c") :], "in total, got 33"),
        (b"\x15\x00" + header[header.index(b"\x1c") :], "in total, got 0"),
        (b"\x15\xff\xff\xff\xff\x0f" + header[header.index(b"\x1c") :], "in total, got -2147483648"),
        (b"\x15" + b"\xff" * 11, "a number is more than 10 bytes long"),
        (b"\x1f", "unknown type 15"),
        (b"\x1c" * 200, "unknown|truncated|expected|nested"),
    ]:
        with pytest.raises(FormatError, match=said):
            SplitBlockFilter.from_bytes(wrong)


def test_thrift_lengths_are_bounded_by_the_data() -> None:
    for raw, wire, said in [
        (b"\x1c" * 100, Wire.STRUCT, "structs are nested more than 16 deep"),
        (b"\xfc\xff\xff\xff\xff\x0f", Wire.LIST, "a list of 4294967295 items does not fit into 0 bytes"),
        (b"\xff\xff\xff\xff\x0f\x55", Wire.MAP, "a map of 4294967295 items does not fit into 1 byte"),
        (b"\x05", Wire.BINARY, "truncated: expected 5 bytes, got 0"),
        (b"\1\2", Wire.DOUBLE, "truncated: expected 8 bytes"),
    ]:
        with pytest.raises(FormatError, match=said):
            Thrift(memoryview(raw), 0, "test").skip(wire)
    every = (
        b"\x11\x12\x13\x01\x14\x02\x15\x02\x16\x02\x17"
        + bytes(8)
        + b"\x18\x01a\x19\x21\x01\x02\x1a\x15\x02\x1b\x01\x58\x02\x01a\x1b\x00\x0c\x7e\x00\x00"
    )
    cursor = Thrift(memoryview(every), 0, "test")
    cursor.skip(Wire.STRUCT)
    assert cursor.at == len(every)


def test_keys_of_another_type_and_bad_sizes_are_refused() -> None:
    wrong: dict[Any, list[tuple[object, type[Exception]]]] = {
        "bytes": [("text", TypeError), (1, TypeError), (None, TypeError)],
        "utf-8": [(b"raw", TypeError), (1, TypeError)],
        "int32": [(1 << 31, OverflowError), ("1", TypeError), (True, TypeError), (1.0, TypeError)],
        "uint32": [(-1, OverflowError), (1 << 32, OverflowError)],
        "int64": [(1 << 63, OverflowError), (None, TypeError)],
        "uint64": [(-1, OverflowError), (b"1", TypeError)],
    }
    for keys, cases in wrong.items():
        made = SplitBlockFilter(10, 0.1, keys=keys)
        for key, error in cases:
            for act in (
                made.add,
                made.__contains__,
                lambda key: made.update([key]),  # noqa: B023
                lambda key: made.contains_many([key]),  # noqa: B023
            ):
                with pytest.raises(error):
                    act(key)
        assert made == SplitBlockFilter(10, 0.1, keys=keys)
    sizes: list[tuple[Any, Any]] = [
        (0, 0.1),
        (True, 0.1),
        (1.0, 0.1),
        (1, 0.0),
        (1, 1.0),
        (1, 1),
        (1, float("nan")),
        (1 << 49, 0.1),
    ]
    for capacity, rate in [*sizes, (10**400, 0.1)]:
        with pytest.raises(ParameterError):
            SplitBlockFilter(capacity, rate)
    with pytest.raises(ParameterError, match=f"more than the {MAX_SIZE} bytes"):
        SplitBlockFilter(10**9, 0.01)
    for high in (1 - 2**-53, 0.999):
        assert SplitBlockFilter(1, high).blocks == 1
    with pytest.raises(ParameterError, match="more than the"):
        SplitBlockFilter(1, 5e-324)
    with pytest.raises(ParameterError, match="keys must be bytes, utf-8"):
        SplitBlockFilter(1, 0.1, keys="int8")  # type: ignore[arg-type]  # of a wrong type, and refused
    for batch in (b"one", "one"):
        with pytest.raises(TypeError, match="expected a batch of keys"):
            SplitBlockFilter(1, 0.1).update(batch)


@pytest.mark.parametrize(
    ("keys", "column"),
    [
        ("int32", np.arange(-50, 50, dtype=np.int16)),
        ("uint32", np.arange(2**32 - 100, 2**32, dtype=np.uint64)[::-1]),
        ("int64", np.arange(100, dtype=">i4")),
        ("utf-8", np.array([f"grün {number}" for number in range(100)])),
        ("bytes", np.array([b"%02d" % number for number in range(100)]).view("V2")),
    ],
)
def test_a_column_equals_its_keys(keys: Any, column: Any) -> None:
    by_column, by_key = SplitBlockFilter(1_000, 0.01, keys=keys), SplitBlockFilter(1_000, 0.01, keys=keys)
    half = column[::2]
    assert by_column.update(half) == sum(by_key.add(key) for key in half.tolist())
    assert by_column == by_key
    assert by_column.contains_many(column) == bytes(key in by_key for key in column.tolist())
    assert list(column[by_column.contains_many(column)][:3]) == list(half[:3])
    assert pickle.loads(pickle.dumps(by_column)) == by_column
    union = SplitBlockFilter(1_000, 0.01, keys=keys)
    union |= by_column
    assert union == by_column


@pytest.mark.columns
def test_a_column_of_arrow_with_nulls_is_asked() -> None:
    import pyarrow as pa

    made = SplitBlockFilter(1_000, 0.01, keys="int32")
    column = pa.chunked_array([pa.array([1, None], pa.int8()), pa.array([], pa.int8()), pa.array([3], pa.int8())])
    assert made.update(column, nulls="skip") == 2
    assert column.filter(made.contains_many(column, nulls="skip")).to_pylist() == [1, 3]
    with pytest.raises(TypeError, match="key 1 is null"):
        made.update(column)
    with pytest.raises(OverflowError, match="key 0: 2147483648 does not fit into int32"):
        made.contains_many(pa.array([2**31]))
    with pytest.raises(TypeError, match="a column of integers"):
        made.contains_many(pa.array(["1"]))


def test_filters_of_another_shape_are_not_split_blocks() -> None:
    shapes = [(0, 8, False), (255, 8, False), (257, 8, False), (256, 7, False), (256, 8, True), (2**40 + 256, 8, False)]
    for cells, functions, partitioned in shapes:
        with pytest.raises(
            ParameterError, match="a split-block filter must have 8 hash functions and 1 to 2\\^32 256-bit blocks"
        ):
            BitCore(cells, functions, Family.SPLIT_BLOCK, bytes(16), b"", Encoding.BYTES, partitioned)
    with pytest.raises(MismatchError):
        SplitBlockFilter(1, 0.1).__ior__(SplitBlockFilter(1, 0.1, keys="utf-8"))


@pytest.mark.parametrize(("capacity", "rate"), [(1, 0.5), (1_000, 0.1), (2_000, 0.01)])
def test_the_rate_is_at_most_the_requested_one(capacity: int, rate: float) -> None:
    made = SplitBlockFilter(capacity, rate, keys="int64")
    new = made.update(range(capacity))
    assert made.contains_many(range(capacity)) == b"\1" * capacity
    assert capacity * (1 - rate) - 1 <= new <= capacity
    assert made.current_fp_rate < 1.1 * rate
    asked = 3_000
    assert sum(made.contains_many(range(10**9, 10**9 + asked))) / asked < 1.1 * rate + 4 * (rate / asked) ** 0.5
    assert repr(made) == f"<SplitBlockFilter {made.blocks} blocks, keys int64>"


BLOCKS = 1 << 12


def most_keys(blocks: int, rate: float) -> int:
    """Return the largest number of keys that this number of blocks keeps at the rate."""
    return bisect_right(range(256 * blocks), rate, key=lambda items: split_block_fp_rate(blocks, items)) - 1


@pytest.mark.parametrize(
    ("rate", "bits_per_key"), [(1e-2, 10.53), (1e-3, 16.89), (1e-4, 26.34), (1e-5, 40.99), (1e-6, 64.66)]
)
def test_filter_that_is_just_large_enough_keeps_its_rate(rate: float, bits_per_key: float) -> None:
    capacity = most_keys(BLOCKS, rate)
    assert round(256 * BLOCKS / capacity, 2) == pytest.approx(bits_per_key, abs=0.02)
    made = SplitBlockFilter(capacity, rate, keys="int64")
    assert made.blocks == BLOCKS
    assert SplitBlockFilter(capacity + 1, rate).blocks == 2 * BLOCKS
    made.update(np.arange(capacity) * 7 + 1)
    assert 0.8 * rate < made.current_fp_rate < 1.15 * rate
    asked = 400_000
    found = np.count_nonzero(made.contains_many(-np.arange(1, asked + 1)))
    assert abs(found - asked * made.current_fp_rate) < 5 * (asked * made.current_fp_rate) ** 0.5 + 1


@given(st.integers(1, 1 << 22), st.integers(0, 1 << 40))
def test_rate_of_blocks_grows_with_keys_and_falls_with_blocks(blocks: int, items: int) -> None:
    rate = split_block_fp_rate(blocks, items)
    assert 0 <= rate <= 1
    assert split_block_fp_rate(blocks, items + 1) >= rate * (1 - 1e-12)
    assert split_block_fp_rate(2 * blocks, items) <= rate


@pytest.mark.parametrize(("blocks", "items"), [(0, 1), (1, -1), (1.0, 1), (1, "1")])
def test_rate_of_blocks_refuses_bad_counts(blocks: Any, items: Any) -> None:
    with pytest.raises(ParameterError, match=r"blocks|items"):
        split_block_fp_rate(blocks, items)


def test_split_block_filter_is_a_set_of_keys(tmp_path: Path) -> None:
    left, right = (SplitBlockFilter(4_000, 0.01, keys="int64") for _ in range(2))
    left.update(range(3_000))
    right.update(range(1_000, 4_000))
    both = left | right
    assert both == left.union(right)
    assert all(both.contains_many(range(4_000)))
    assert both != left == left.copy() is not left
    assert left <= both
    assert left.issubset(both)
    assert both.issuperset(right)
    assert len(both) == pytest.approx(4_000, rel=0.1)
    assert len(left) == pytest.approx(3_000, rel=0.1)
    assert left.union_len(right) == pytest.approx(4_000, rel=0.1)
    assert left.intersection_len(right) == pytest.approx(2_000, rel=0.25)
    assert all((left & right).contains_many(range(1_000, 3_000)))
    assert not SplitBlockFilter(4_000, 0.01)
    left.save(tmp_path / "f")
    assert SplitBlockFilter.open(tmp_path / "f", keys="int64") == left
    assert (tmp_path / "f").read_bytes() == bytes(left)
    (tmp_path / "f").write_bytes(bytes(left)[:-1])
    with pytest.raises(FormatError, match="truncated"):
        SplitBlockFilter.open(tmp_path / "f")
    with pytest.raises(TypeError, match="SplitBlockFilter"):
        left | {1}  # type: ignore[operator]
    with pytest.raises(MismatchError):
        left.union(SplitBlockFilter(4_000, 0.01))
