"""Arrow's C data interface: the structs of a producer, read through ctypes and checked.

A producer is another library. It is not trusted: the values in its structs are checked before they are used. The
interface does not give the lengths of buffers, so this module, like every consumer, must trust that a buffer is as long
as the offsets and lengths say.

Source: https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from spvfilter.errors import ColumnError
from spvfilter.kernel.pure.kinds import Key, KeyColumn, Kind, text_of

_WIDEST = (1 << 31) - 1  # Bytes of a fixed-size binary: the limit of Arrow.
_LONGEST = ((1 << 63) - 1) // 32  # Largest length and offset of an array in rows (our choice).
_VIEW_INSIDE = 12  # Bytes of the longest value that a view contains itself.


class Schema(ctypes.Structure):
    """The struct ArrowSchema."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class Array(ctypes.Structure):
    """The struct ArrowArray."""


Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class Stream(ctypes.Structure):
    """The struct ArrowArrayStream."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


# CFUNCTYPE releases the GIL, because a producer may wait for threads; PYFUNCTYPE holds it.
_FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_TELL = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_RELEASE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_IS_VALID = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_POINTER = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class KeyLayout(NamedTuple):
    """The layout of the keys of an Arrow type."""

    name: str
    """"fixed", "numbers", "offsets", "views" or "nulls"."""
    kind: Kind
    """Type of the keys."""
    width: int
    """Size of an item in bytes."""
    signed: bool = False
    """True if the numbers are signed."""


_LAYOUTS = {
    "u": KeyLayout("offsets", Kind.TEXT, 4),
    "U": KeyLayout("offsets", Kind.TEXT, 8),
    "z": KeyLayout("offsets", Kind.BINARY, 4),
    "Z": KeyLayout("offsets", Kind.BINARY, 8),
    "vu": KeyLayout("views", Kind.TEXT, 16),
    "vz": KeyLayout("views", Kind.BINARY, 16),
    "n": KeyLayout("nulls", Kind.NOTHING, 0),
    **{letter: KeyLayout("numbers", Kind.INTEGERS, 1 << at // 2, at % 2 == 0) for at, letter in enumerate("cCsSiIlL")},
}
_BUFFERS = {"nulls": 0, "fixed": 2, "numbers": 2, "offsets": 3, "views": 3}


class Type(NamedTuple):
    """The type of a column of keys."""

    keys: KeyLayout
    """Layout of the keys, or of the numbers that refer to a dictionary."""
    values: KeyLayout | None
    """Layout of the dictionary's values, or None without a dictionary."""
    within: bool
    """True if the column is the only column of a table."""

    @property
    def kind(self) -> Kind:
        """Type of the keys."""
        return (self.values or self.keys).kind


def _layout_of(format: str) -> KeyLayout:
    if format in _LAYOUTS:
        return _LAYOUTS[format]
    digits = format[2:]
    if format.startswith("w:") and digits.isascii() and digits.isdecimal() and int(digits) <= _WIDEST:
        return KeyLayout("fixed", Kind.BINARY, int(digits))
    raise TypeError(f"keys: expected a column of text, binary or integers, not of Arrow's type '{format[:60]}'")


def _format_of(schema: Schema) -> str:
    return bytes(schema.format).decode("utf-8", "replace")


def type_of(schema: Schema) -> Type:
    """Return the type that a schema describes.

    Raises ColumnError if the schema is malformed, and TypeError if the type cannot contain keys.
    """
    if not schema.release or schema.format is None:
        raise ColumnError(
            "it has no format" if schema.release else "it has already been released", row=0, field="schema"
        )
    within = schema.format == b"+s"
    if within:
        if schema.n_children != 1:
            raise TypeError(f"keys: expected one column, got {schema.n_children}: choose one of them")
        child = schema.children[0] if schema.children else None
        if not child or not child[0].release or child[0].format is None:
            raise ColumnError("its column is missing", row=0, field="schema")
        schema = child[0]
    keys = _layout_of(_format_of(schema))
    if not schema.dictionary:
        return Type(keys, None, within)
    if keys.name != "numbers":
        raise ColumnError("a dictionary's numbers are not integers", row=0, field="schema")
    values = schema.dictionary[0]
    if not values.release or values.format is None:
        raise ColumnError("the schema of the dictionary is missing", row=0, field="schema")
    if values.dictionary:
        raise TypeError(
            f"keys: expected a column of text, binary or integers, not of Arrow's type '{_format_of(values)[:60]}'"
        )
    return Type(keys, _layout_of(_format_of(values)), within)


class ArrayRows:
    """The rows of one array, which are checked when they are read.

    No value of the array can make it read outside the ranges that the other values of the array allow.
    """

    def __init__(self, layout: KeyLayout, array: Array, skipped: int, length: int, first: int) -> None:
        self.layout = layout
        self.first = first  # number of row 0 among the caller's keys
        self.length = length
        self._array = array
        self._check_rows(skipped)
        self._bit = array.offset + skipped
        if layout.width and self._bit + length > _LONGEST // layout.width:
            raise self._error("length", f"{self._bit + length} rows of {layout.width} bytes are too many")
        self._validity: int | None = None
        self._items = self._end = 0
        self._blocks: list[tuple[int | None, int]] = []
        self._check_buffers()

    def _error(self, field: str, message: str, row: int = 0) -> ColumnError:
        return ColumnError(message, row=self.first + row, field=field)

    def _check_rows(self, skipped: int) -> None:
        array = self._array
        if not array.release:
            raise self._error("array", "it has already been released")
        if array.length < 0 or array.offset < 0 or array.length > _LONGEST or array.offset > _LONGEST:
            raise self._error("length", f"{array.length} rows at offset {array.offset} are out of range")
        if skipped > array.length or self.length > array.length - skipped:
            raise self._error("length", f"expected at least {skipped + self.length}, got {array.length}")
        if array.null_count < -1 or array.null_count > array.length:
            raise self._error("null_count", f"must be from -1 to {array.length}, not {array.null_count}")
        if array.n_children:
            raise self._error("children", f"expected none, got {array.n_children}")

    def _check_buffers(self) -> None:
        array, layout = self._array, self.layout
        wanted, views, parts = _BUFFERS[layout.name], layout.name == "views", layout.name == "offsets"
        if not (wanted <= array.n_buffers <= _WIDEST if views else array.n_buffers == wanted):
            raise self._error("buffers", f"expected {wanted}, got {array.n_buffers}")
        if not wanted:
            return
        if not array.buffers:
            raise self._error("buffers", "they are missing")
        self._validity = array.buffers[0] if array.null_count else None
        if array.null_count > 0 and not self._validity:
            raise self._error("null_count", f"must be at most 0 without a validity buffer, not {array.null_count}")
        if not self.length:
            return
        if not array.buffers[1] and layout.width:
            raise self._error("offsets" if parts else "data", "the buffer is missing")
        self._items = (array.buffers[1] or 0) + self._bit * layout.width
        if parts:
            self._end = self._integer(self._items + self.length * layout.width, layout.width)
            if self._end < 0:
                raise self._error("offsets", f"the last one must not be negative, but is {self._end}")
        elif views:
            self._read_blocks()

    def _read_blocks(self) -> None:
        array = self._array
        count, sizes = array.n_buffers - 3, array.buffers[array.n_buffers - 1]
        if count and not sizes:
            raise self._error("sizes", "the buffer is missing")
        for number in range(count):
            size = self._integer(sizes + 8 * number, 8)
            if size < 0:
                raise self._error("sizes", f"the size of buffer {number} must not be negative, but is {size}")
            self._blocks.append((array.buffers[2 + number], size))

    @staticmethod
    def _integer(address: int, width: int, signed: bool = True) -> int:
        return int.from_bytes(ctypes.string_at(address, width), "little", signed=signed)

    def _is_valid(self, row: int) -> bool:
        bit = self._bit + row
        return not self._validity or bool(ctypes.string_at(self._validity + (bit >> 3), 1)[0] >> (bit & 7) & 1)

    def number(self, row: int) -> int:
        """Return the integer in a row."""
        width = self.layout.width
        return self._integer(self._items + row * width, width, self.layout.signed)

    def key(self, row: int, shown: int) -> Key:
        """Return the key in a row, or None if it is null. Error messages name the row `shown`."""
        if self.layout.name == "nulls" or not self._is_valid(row):
            return None
        match self.layout.name:
            case "numbers":
                return self.number(row)
            case "fixed":
                raw = ctypes.string_at(self._items + row * self.layout.width, self.layout.width)
            case "offsets":
                raw = self._part(row, shown)
            case _:
                raw = self._view(row, shown)
        return text_of(raw, self.first + shown) if self.layout.kind is Kind.TEXT else raw

    def _part(self, row: int, shown: int) -> bytes:
        width = self.layout.width
        at = self._items + row * width
        start, end = self._integer(at, width), self._integer(at + width, width)
        if not 0 <= start <= end <= self._end:
            raise self._error("offsets", f"bytes {start} to {end} are not a range within 0 to {self._end}", shown)
        data = self._array.buffers[2]
        if not data and start < end:
            raise self._error("data", "the buffer is missing", shown)
        return ctypes.string_at(data + start, end - start) if data else b""

    def _view(self, row: int, shown: int) -> bytes:
        item = ctypes.string_at(self._items + row * 16, 16)
        size, block, at = (int.from_bytes(item[from_ : from_ + 4], "little", signed=True) for from_ in (0, 8, 12))
        if size < 0:
            raise self._error("view", f"its size must not be negative, but is {size}", shown)
        if size <= _VIEW_INSIDE:
            return item[4 : 4 + size]
        if not 0 <= block < len(self._blocks):
            raise self._error(
                "view", f"buffer {block} does not exist: the number of data buffers is {len(self._blocks)}", shown
            )
        address, whole = self._blocks[block]
        if at < 0 or at + size > whole:
            message = f"bytes {at} to {at + size} are outside buffer {block}, which is {whole} bytes long"
            raise self._error("view", message, shown)
        if not address:
            raise self._error("view", f"buffer {block} is missing", shown)
        raw = ctypes.string_at(address + at, size)
        if raw[:4] != item[4:8]:
            raise self._error("view", "its prefix does not match the value", shown)
        return raw

    def keys(self) -> Iterator[Key]:
        """Yield the keys of all rows."""
        return (self.key(row, row) for row in range(self.length))

    def named(self, values: ArrayRows) -> Iterator[Key]:
        """Yield the keys of all rows. Each row contains the number of a row in the dictionary `values`."""
        for row in range(self.length):
            if not self._is_valid(row):
                yield None
                continue
            number = self.number(row)
            if not 0 <= number < values.length:
                raise self._error(
                    "dictionary", f"number {number} is outside the dictionary, whose length is {values.length}", row
                )
            yield values.key(number, row)


def column_of(type: Type, array: Array, first: int) -> KeyColumn:
    """Return the column that an array of this type contains. Raises ColumnError if it is malformed.

    `first` is the number of its first row among the caller's keys.
    """
    skipped, keys = 0, array
    if type.within:
        _check_table(array, first)
        skipped, keys = array.offset, array.children[0][0]
    rows = ArrayRows(type.keys, keys, skipped, array.length, first)
    if bool(keys.dictionary) != (type.values is not None):
        raise ColumnError(
            "the array has one, but its type has none"
            if keys.dictionary
            else "its type has one, but the array has none",
            row=first,
            field="dictionary",
        )
    if type.values is None:
        return KeyColumn(type.kind, rows.length, lambda _: rows.keys())
    dictionary = keys.dictionary[0]
    values = ArrayRows(type.values, dictionary, 0, dictionary.length, first)
    if dictionary.dictionary:
        raise ColumnError("it must not have a dictionary itself", row=first, field="dictionary")
    return KeyColumn(type.kind, rows.length, lambda _: rows.named(values))


def _check_table(table: Array, first: int) -> None:
    """Raise ColumnError unless this is a table with one column and without nulls of its own."""

    def refusal(field: str, message: str) -> ColumnError:
        return ColumnError(message, row=first, field=field)

    if not table.release:
        raise refusal("array", "it has already been released")
    if table.n_children != 1 or not table.children or not table.children[0]:
        raise refusal("children", f"expected 1, got {table.n_children}")
    if table.length < 0 or table.offset < 0 or table.length > _LONGEST or table.offset > _LONGEST:
        raise refusal("length", f"{table.length} rows at offset {table.offset} are out of range")
    if table.null_count and table.n_buffers > 0 and table.buffers and table.buffers[0]:
        raise refusal("null_count", "the table itself contains null rows; only its column may contain nulls")


@contextmanager
def _moved(struct: type[Any], capsule: object, name: str) -> Iterator[Any]:
    """Move the struct out of a capsule, yield it, and release it at the end. Raises TypeError for any other object."""
    if not _IS_VALID(capsule, name.encode()):
        raise TypeError(f"expected a capsule '{name}' of Arrow's C data interface, not {capsule!r}")
    given = struct.from_address(_POINTER(capsule, name.encode()))
    mine = struct.from_buffer_copy(given)
    given.release = None
    try:
        yield mine
    finally:
        _release(mine)


def _release(struct: Any) -> None:
    if struct.release:
        _RELEASE(struct.release)(ctypes.addressof(struct))


@contextmanager
def taken_array(schema: object, array: object, check: Callable[[Kind], None]) -> Iterator[Callable[[int], KeyColumn]]:
    """Yield the column in the capsules that __arrow_c_array__ returned. They are released at the end."""
    for capsule, name in ((schema, b"arrow_schema"), (array, b"arrow_array")):
        if not _IS_VALID(capsule, name):
            raise TypeError(f"expected a capsule '{name.decode()}' of Arrow's C data interface, not {capsule!r}")
    with _moved(Schema, schema, "arrow_schema") as described, _moved(Array, array, "arrow_array") as moved:
        type = type_of(described)
        check(type.kind)
        yield lambda first: column_of(type, moved, first)


@contextmanager
def taken_stream(capsule: object, check: Callable[[Kind], None]) -> Iterator[Iterator[Callable[[int], KeyColumn]]]:
    """Yield the columns in the capsule that __arrow_c_stream__ returned. Each column is released before the next one.

    Raises OSError if the stream fails.
    """
    with _moved(Stream, capsule, "arrow_array_stream") as stream:
        if not stream.release or not stream.get_schema or not stream.get_next:
            raise ColumnError("it has already been released, or is incomplete", row=0, field="stream")
        schema = Schema()
        try:
            _fill(stream, stream.get_schema, schema)
            type = type_of(schema)
            check(type.kind)
            yield _arrays(stream, type)
        finally:
            _release(schema)


def _arrays(stream: Stream, type: Type) -> Iterator[Callable[[int], KeyColumn]]:
    while True:
        array = Array()
        _fill(stream, stream.get_next, array)
        if not array.release:
            return
        try:
            yield lambda first, array=array: column_of(type, array, first)  # type: ignore[misc]
        finally:
            _release(array)


def _fill(stream: Stream, function: int, struct: ctypes.Structure) -> None:
    code = _FILL(function)(ctypes.addressof(stream), ctypes.addressof(struct))
    if code:
        said = _TELL(stream.get_last_error)(ctypes.addressof(stream)) if stream.get_last_error else None
        why = "it does not say why" if said is None else said.decode("utf-8", "replace")
        raise OSError(code, f"a stream of Arrow arrays failed: {why}")
