"""Checksums of rows are BLAKE2b over kind, size and value of each column, in both kernels."""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from spvfilter.store.ledger import TxStatus
from support.kernels.kernelentries import native, reference

kernels = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])

VALUES = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(),
    st.booleans(),
    st.binary(max_size=400),
    st.text(st.characters(), max_size=200),  # surrogates are among them
    st.floats(),
)


class Number(IntEnum):
    SEVEN = 7


def hashed(table: str, row: tuple[object, ...]) -> int:
    data = table.encode()
    for value in row:
        kind, raw = type(value).__name__[:1], str(value)
        if isinstance(value, int):
            kind, raw = "i", f"{int(value)}"
        if isinstance(value, str):
            kind = "s"
        found = value if isinstance(value, bytes) else raw.encode("utf-8", "surrogatepass")
        data += kind.encode() + len(found).to_bytes(8, "little") + found
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


@kernels
@given(table=st.text(st.characters(codec="utf-8"), max_size=200), row=st.lists(VALUES, max_size=20).map(tuple))
@example(table="watch", row=())
@example(table="", row=(0, -1, 1 << 63, -(1 << 63), (1 << 63) - 1, 255, 256, b"", ""))
@example(table="events", row=(b"\0" * 100_000, "\ud800", "x" * 256, b"y" * 255))
@example(table="transactions", row=(Number.SEVEN, True, 1.5))
def test_mark_is_the_hash_of_all_columns(kernel: Any, table: str, row: tuple[object, ...]) -> None:
    marked = kernel().row_mark(table, row)
    assert marked == kernel().row_mark(table, list(row)) == hashed(table, row)
    assert 0 <= marked < 1 << 63


@kernels
def test_rows_of_every_length_have_their_hash(kernel: Any) -> None:
    for size in range(110, 290):
        row = (b"\x51" * size, size)
        assert kernel().row_mark("watch", row) == hashed("watch", row), size


@kernels
def test_status_counts_by_its_text(kernel: Any) -> None:
    assert kernel().row_mark("t", (TxStatus.PENDING,)) == kernel().row_mark("t", ("pending",))


@kernels
@pytest.mark.parametrize(("table", "row"), [(b"watch", ()), (None, ()), ("watch", 5), ("watch", None), ("\ud800", ())])
def test_other_arguments_are_errors(kernel: Any, table: object, row: object) -> None:
    with pytest.raises((TypeError, UnicodeEncodeError)):
        kernel().row_mark(table, row)
