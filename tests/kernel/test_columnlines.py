"""Columns as lines: those of Python's csv and json, and the same bytes and errors in both kernels."""

from __future__ import annotations

import csv
import io
import json
import struct
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.kernel.blocktables import Layout
from support.kernels.kernelentries import Kernel, native, outcome, reference

kernels = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
CODES = {Layout.INT8: "b", Layout.INT32: "i", Layout.INT64: "q"}
LAYOUTS = [*CODES, Layout.BITS, Layout.HASH, Layout.BINARY, Layout.TEXT]
CSV, JSON_LINES = 0, 1
Column = tuple[int, bytes | None, bytes | None, bytes]


def value_of(layout: Layout) -> st.SearchStrategy[Any]:
    match layout:
        case Layout.BITS:
            return st.booleans()
        case Layout.HASH:
            return st.binary(min_size=32, max_size=32)
        case Layout.BINARY:
            return st.binary(max_size=40)
        case Layout.TEXT:
            return st.text(st.characters(codec="utf-8"), max_size=20)
    bits = 8 * struct.calcsize(CODES[layout])
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def bits(values: list[bool]) -> bytes:
    packed = bytearray((len(values) + 7) // 8)
    for number, value in enumerate(values):
        packed[number >> 3] |= value << (number & 7)
    return bytes(packed)


def column_of(layout: Layout, values: list[Any]) -> Column:
    validity = bits([value is not None for value in values]) if None in values else None
    match layout:
        case Layout.BITS:
            return len(values), validity, None, bits([bool(value) for value in values])
        case Layout.HASH:
            return len(values), validity, None, b"".join(value or bytes(32) for value in values)
        case Layout.BINARY | Layout.TEXT:
            pieces = [value.encode() if isinstance(value, str) else value or b"" for value in values]
            offsets = [sum(map(len, pieces[:row])) for row in range(len(pieces) + 1)]
            return len(values), validity, struct.pack(f"<{len(offsets)}i", *offsets), b"".join(pieces)
    return len(values), validity, None, struct.pack(f"<{len(values)}{CODES[layout]}", *(value or 0 for value in values))


def shown(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def cell(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[Layout], list[list[Any]]]:
    rows = draw(st.integers(0, 20))
    layouts = draw(st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=6))
    names = [f"{draw(st.text(st.characters(codec='utf-8'), max_size=5))}{number}" for number in range(len(layouts))]
    return (
        names,
        layouts,
        [draw(st.lists(st.one_of(st.none(), value_of(layout)), min_size=rows, max_size=rows)) for layout in layouts],
    )


@pytest.mark.few(1)
@kernels
@given(table=tables())
def test_lines_are_read_by_python(kernel: Any, table: tuple[list[str], list[Layout], list[list[Any]]]) -> None:
    names, layouts, values = table
    columns = list(map(column_of, layouts, values))
    rows = list(zip(*values, strict=True))
    found = kernel().column_lines(JSON_LINES, names, layouts, columns)
    lines = found.split(b"\n")
    assert lines.pop() == b""
    assert [json.loads(line) for line in lines] == [
        {name: shown(value) for name, value in zip(names, row, strict=True)} for row in rows
    ]
    found = kernel().column_lines(CSV, names, layouts, columns)
    if len(layouts) > 1:  # Python's reader skips empty lines
        text = io.StringIO(found.decode(), newline="")
        assert list(csv.reader(text)) == [[cell(shown(value)) for value in row] for row in rows]


NUMBERS = column_of(Layout.INT32, [1, -2, None])
TEXTS = column_of(Layout.TEXT, ["a", 'b,"', None])


def bad(change: dict[int, Any], column: Column = TEXTS) -> list[Any]:
    return [tuple(change.get(number, each) for number, each in enumerate(column))]


@kernels
@pytest.mark.parametrize(
    ("layouts", "columns", "kind", "message"),
    [
        ([], [NUMBERS], ParameterError, "the numbers of names (1), layouts (0) and columns (1) must be equal"),
        (["int32"], [], ParameterError, "the numbers of names (1), layouts (1) and columns (0) must be equal"),
        (["float64"], [NUMBERS], ParameterError, "cannot write lines of the layout float64"),
        ([b"int32"], [NUMBERS], TypeError, "a layout must be a str, not bytes"),
        (["int32"], [b""], TypeError, "a column must be a tuple of four items, not bytes"),
        (["int32"], bad({0: -1}), ParameterError, "a number of rows must be from 0 to 2^31 - 1, not -1"),
        (["int64"], [NUMBERS], ParameterError, "column 0 does not have 3 rows"),
        (["hash"], [NUMBERS], ParameterError, "column 0 does not have 3 rows"),
        (["text"], [NUMBERS], ParameterError, "column 0 does not have 3 rows"),
        (["int32"], bad({1: b""}, NUMBERS), ParameterError, "column 0 does not have 3 rows"),
        (["text"], bad({3: b"a"}), ParameterError, "column 0 does not have 3 rows"),
        (["text"], bad({2: struct.pack("<4i", 0, 2, 1, 2)}), ParameterError, "column 0 does not have 3 rows"),
        (["text"], bad({2: struct.pack("<4i", -1, 1, 2, 2)}), ParameterError, "column 0 does not have 3 rows"),
        (["text"], bad({2: struct.pack("<5i", 0, 1, 2, 2, 2)}), ParameterError, "column 0 does not have 3 rows"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    kernel: Any, layouts: list[Any], columns: list[Any], kind: type[Exception], message: str
) -> None:
    for form in (CSV, JSON_LINES):
        assert outcome(kernel().column_lines, form, ["name"], layouts, columns) == (kind, message)


@kernels
def test_columns_have_the_same_number_of_rows(kernel: Any) -> None:
    several = [TEXTS, column_of(Layout.INT32, [1])]
    assert outcome(kernel().column_lines, CSV, ["a", "b"], ["text", "int32"], several) == (
        ParameterError,
        "column 1 does not have 3 rows",
    )
    assert outcome(kernel().column_lines, 2, [], [], []) == (ParameterError, "a form must be 0 or 1, not 2")
    assert outcome(kernel().column_lines, CSV, [5], [], []) == (
        TypeError,
        "the name of a column must be a str, not int",
    )


@pytest.mark.slow
@pytest.mark.native
@given(table=tables(), at=st.integers(0, 3), cut=st.integers(0, 9), form=st.sampled_from([CSV, JSON_LINES]))
def test_both_kernels_agree_on_cut_columns(
    table: tuple[list[str], list[Layout], list[list[Any]]], at: int, cut: int, form: int
) -> None:
    names, layouts, values = table
    columns: list[Any] = list(map(column_of, layouts, values))
    changed = columns[0][at]
    part = changed[:-cut] if cut and isinstance(changed, bytes) else changed
    columns[0] = tuple(part if number == at else each for number, each in enumerate(columns[0]))
    several: list[Kernel] = [native(), reference()]
    one, other = (outcome(kernel.column_lines, form, names, layouts, columns) for kernel in several)
    assert one == other
