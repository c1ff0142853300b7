"""Values in Thrift's compact protocol end where a reader that takes them apart says, in both kernels."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.errors import FormatError, ParameterError
from support.kernels.kernelentries import native, outcome, reference

kernels = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        number, out = number >> 7, out + bytes([number & 0x7F | 0x80])
    return out + bytes([number])


NUMBERS = st.integers(0, (1 << 64) - 1).map(varint)
SCALARS = st.one_of(
    st.tuples(st.just(Wire.I8), st.binary(min_size=1, max_size=1)),
    st.tuples(st.sampled_from([Wire.I16, Wire.I32, Wire.I64]), NUMBERS),
    st.tuples(st.just(Wire.DOUBLE), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(Wire.BINARY), st.binary(max_size=200).map(lambda data: varint(len(data)) + data)),
)


def list_of(items: list[tuple[Wire, bytes]], wire: Wire) -> tuple[Wire, bytes]:
    """A list of the items that have the type of the first one."""
    same = [raw for kind, raw in items if kind is items[0][0]] if items else []
    kind = items[0][0] if items else 0
    head = bytes([len(same) << 4 | kind]) if len(same) < 15 else bytes([0xF0 | kind]) + varint(len(same))
    return wire, head + b"".join(same)


def map_of(items: list[tuple[Wire, bytes]]) -> tuple[Wire, bytes]:
    if not items:
        return Wire.MAP, b"\0"
    same = [raw for kind, raw in items if kind is items[0][0]]
    return Wire.MAP, varint(len(same)) + bytes([Wire.I8 << 4 | items[0][0]]) + b"".join(b"k" + raw for raw in same)


def struct_of(fields: list[tuple[Wire, bytes]], far: bool) -> tuple[Wire, bytes]:
    start = b"" if not far else b"\x01" + varint(2_000)  # a boolean, whose number follows
    return Wire.STRUCT, start + b"".join(bytes([1 << 4 | kind]) + raw for kind, raw in fields) + b"\0"


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(list_of, st.lists(inner, max_size=20), st.sampled_from([Wire.LIST, Wire.SET])),
        st.builds(map_of, st.lists(inner, max_size=4)),
        st.builds(struct_of, st.lists(inner, max_size=5), st.booleans()),
    ),
    max_leaves=30,
)


@kernels
@given(value=VALUES, before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_value_ends_after_its_last_byte(kernel: Any, value: tuple[Wire, bytes], before: bytes, after: bytes) -> None:
    wire, raw = value
    assert kernel().thrift_end(before + raw + after, len(before), wire) == len(before + raw)
    for size in range(len(raw)):
        assert kernel().thrift_end(before + raw[:size], len(before), wire) == -1


@kernels
@pytest.mark.parametrize(
    ("raw", "wire", "end"),
    [
        (b"\x1c" * 16 + bytes(17), Wire.STRUCT, 33),
        (b"\x1c" * 17 + bytes(18), Wire.STRUCT, -1),
        (b"\x19" * 16 + b"\x08", Wire.LIST, 17),
        (b"\x19" * 17 + b"\x08", Wire.LIST, -1),
        (b"\x21\1\2", Wire.LIST, 3),
        (b"\x11\x12\0", Wire.STRUCT, 3),
        (b"\x0f", Wire.LIST, 1),
        (b"\x1f\0", Wire.LIST, -1),
        (b"\x1f\0", Wire.STRUCT, -1),
        (b"\xff" * 9 + b"\x7f", Wire.I64, 10),
        (b"\xff" * 10 + b"\x01", Wire.I64, -1),
        (b"\x80" * 9 + b"\x7e", Wire.BINARY, -1),
        (b"\xf8" + b"\x80" * 9 + b"\x02", Wire.LIST, -1),
        (b"", Wire.TRUE, 0),
    ],
)
def test_limits(kernel: Any, raw: bytes, wire: Wire, end: int) -> None:
    assert kernel().thrift_end(raw, 0, wire) == end


@kernels
def test_bad_arguments_are_errors(kernel: Any) -> None:
    assert outcome(kernel().thrift_end, b"", 0, 16) == (ParameterError, "a type must be from 0 to 15, not 16")
    assert outcome(kernel().thrift_end, b"", -1, 8) == (
        ParameterError,
        "an offset or a count must be from 0 to sys.maxsize, not -1",
    )
    assert [kernel().thrift_end(b"a", at, kind) for at, kind in ((0, 0), (0, 13), (2, 1), (9, 8))] == [-1] * 4


NESTED = st.lists(st.sampled_from([b"\x1c", b"\x19", b"\x1c\x1c", b"\x13", b"\0"]), max_size=60).map(b"".join)


@pytest.mark.native
@given(raw=st.one_of(st.binary(max_size=60), NESTED), kind=st.integers(1, 12))
def test_any_bytes_end_where_the_reader_says(raw: bytes, kind: int) -> None:
    ends = {kernel.thrift_end(raw, 0, kind) for kernel in (native(), reference())}
    cursor = Thrift(raw, 0, "test")
    try:
        with patch("spvfilter.bloom.exchange.thrift.thrift_end", lambda *arguments: -1):  # it takes the value apart
            cursor.skip(Wire(kind))
        expected = cursor.at
    except FormatError:
        expected = -1
    assert ends == {expected}
