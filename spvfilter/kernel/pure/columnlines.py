"""Columns as lines of CSV or JSON. This is the readable reference."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from spvfilter.errors import ParameterError
from spvfilter.kernel.blocktables import ColumnBuffers, Layout
from spvfilter.kernel.pure.arguments import snapshot, whole
from spvfilter.protocol import HASH_SIZE

_CSV, _FORMS = 0, 2
_MOST_ROWS = 0x7FFFFFFF
_CODES = {Layout.INT8: "b", Layout.INT32: "i", Layout.INT64: "q"}
_LAYOUTS = (Layout.INT8, Layout.INT32, Layout.INT64, Layout.BITS, Layout.HASH, Layout.BINARY, Layout.TEXT)
_SPECIAL = re.compile(rb'[,"\r\n]')  # a cell with one of these bytes gets quotes
_ESCAPED = re.compile(rb'["\\\x00-\x1f]')  # bytes that a string of JSON escapes


def column_lines(
    form: int,
    names: Iterable[str],
    layouts: Iterable[str],
    columns: Iterable[tuple[int, bytes | None, bytes | None, bytes]],
    /,
) -> bytes:
    """Return the rows of columns as lines of CSV without a header (0), or as JSON lines (1).

    Bytes and hashes are in hex. Booleans are true or false. A row without a value has an empty cell, or null. A CSV
    cell is quoted only if necessary.

    Args:
        form: 0 for CSV, 1 for JSON lines.
        names: The names of the columns, which appear in JSON lines.
        layouts: The layout of each column, as in blocktables.Layout, but not FLOAT64.
        columns: The columns, as `block_columns` returns them. Text is UTF-8.

    Raises:
        ParameterError: The arguments differ in their number of columns, a layout cannot be written, or a column does
            not match its number of rows.
        TypeError: An argument has the wrong type.
    """
    chosen = whole(form, 0, _FORMS - 1, "a form must be 0 or 1")
    shown, kinds, given = [_encoded(name) for name in names], [_layout(each) for each in layouts], list(columns)
    if not len(shown) == len(kinds) == len(given):
        raise ParameterError(
            f"the numbers of names ({len(shown)}), layouts ({len(kinds)}) and columns ({len(given)}) must be equal"
        )
    values: list[list[bytes | None]] = []
    rows = 0
    for number, (kind, column) in enumerate(zip(kinds, given, strict=True)):
        if not isinstance(column, tuple) or len(column) != 4:
            raise TypeError(f"a column must be a tuple of four items, not {type(column).__name__}")
        length = whole(column[0], 0, _MOST_ROWS, "a number of rows must be from 0 to 2^31 - 1")
        rows = length if not number else rows
        found = _values(kind, length, column, is_csv=chosen == _CSV) if length == rows else None
        if found is None:
            raise ParameterError(f"column {number} does not have {rows} rows")
        values.append(found)
    if not values:
        return b""
    if chosen == _CSV:
        return b"".join(b",".join(value or b"" for value in row) + b"\n" for row in zip(*values, strict=True))
    keys = [b'"%b":' % _json_escaped(name) for name in shown]
    return b"".join(
        b"{%b}\n" % b",".join(key + (b"null" if value is None else value) for key, value in zip(keys, row, strict=True))
        for row in zip(*values, strict=True)
    )


def _encoded(name: object) -> bytes:
    if not isinstance(name, str):
        raise TypeError(f"the name of a column must be a str, not {type(name).__name__}")
    return name.encode("utf-8", "replace")


def _layout(given: object) -> Layout:
    """Return a layout. Raises TypeError if it is not a str, and ParameterError if it cannot be written as lines."""
    if not isinstance(given, str):
        raise TypeError(f"a layout must be a str, not {type(given).__name__}")
    found = next((layout for layout in _LAYOUTS if layout == given), None)
    if found is None:
        raise ParameterError(f"cannot write lines of the layout {given[:100]}")
    return found


def _values(
    kind: Layout, rows: int, column: ColumnBuffers | tuple[object, ...], *, is_csv: bool
) -> list[bytes | None] | None:
    """Return the values of a column as lines show them, or None if the column does not match its number of rows."""
    validity, offsets = (None if each is None else snapshot(each) for each in column[1:3])
    data = snapshot(column[3])
    if validity is not None and len(validity) < (rows + 7) // 8:
        return None
    found = _pieces(kind, rows, offsets, data)
    if found is None:
        return None
    return [
        None if validity is not None and not validity[row >> 3] >> (row & 7) & 1 else _shown(kind, value, is_csv=is_csv)
        for row, value in enumerate(found)
    ]


def _pieces(kind: Layout, rows: int, offsets: bytes | None, data: bytes) -> list[bytes | int | bool] | None:
    """Return the values of a column, or None if the column does not match its number of rows."""
    if kind in (Layout.BINARY, Layout.TEXT):
        if offsets is None or len(offsets) != 4 * (rows + 1):
            return None
        at = struct.unpack(f"<{rows + 1}i", offsets)
        if at[0] < 0 or at[-1] > len(data) or any(at[row] > at[row + 1] for row in range(rows)):
            return None
        return [data[at[row] : at[row + 1]] for row in range(rows)]
    width = {Layout.HASH: HASH_SIZE * rows, Layout.BITS: (rows + 7) // 8}
    code = _CODES.get(kind)
    if len(data) < (width[kind] if code is None else struct.calcsize(code) * rows):
        return None
    if code is not None:
        return list(struct.unpack_from(f"<{rows}{code}", data))
    if kind is Layout.BITS:
        return [bool(data[row >> 3] >> (row & 7) & 1) for row in range(rows)]
    return [data[HASH_SIZE * row : HASH_SIZE * (row + 1)] for row in range(rows)]


def _shown(kind: Layout, value: bytes | int | bool, *, is_csv: bool) -> bytes:
    """Format a value for a line."""
    if not isinstance(value, bytes):
        return str(value).lower().encode()
    text = value if kind is Layout.TEXT else value.hex().encode()
    if is_csv:
        return b'"%b"' % text.replace(b'"', b'""') if _SPECIAL.search(text) else text
    return b'"%b"' % _json_escaped(text)


def _json_escaped(text: bytes) -> bytes:
    """Escape text for use between the quotes of a JSON string."""
    return _ESCAPED.sub(lambda found: b"\\" + found[0] if found[0] in b'"\\' else b"\\u%04x" % found[0][0], text)
