"""Columns of keys: buffers of every format that can contain keys, and the rows of any column as keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import iter_unpack
from typing import Any, Generic, TypeVar

from spvfilter.errors import ColumnError, KeyRangeError
from spvfilter.kernel import columns
from spvfilter.kernel.columns import Keys, Nulls, Padding
from spvfilter.kernel.pure import arrow
from spvfilter.kernel.pure.arguments import check_iterable
from spvfilter.kernel.pure.kinds import KeyColumn, Kind
from spvfilter.kernel.values import NUMBERS, Encoding

Encoded = TypeVar("Encoded")
_SIGNED = "bhilqn"  # Formats of signed integers in the buffer protocol.
_LAST = 0x10FFFF  # The last Unicode code point.
_ROWS_AT_ONCE = 1 << 12  # Number of rows that are copied in one step (our choice).
_RANGES = {  # Smallest and largest integer of each encoding.
    Encoding.INT64: (-(1 << 63), (1 << 63) - 1),
    Encoding.UINT64: (0, (1 << 64) - 1),
    Encoding.INT32: (-(1 << 31), (1 << 31) - 1),
    Encoding.UINT32: (0, (1 << 32) - 1),
}


def check_kind(kind: Kind, encoding: Encoding) -> None:
    """Raise TypeError if the encoding does not take keys of this kind."""
    if kind is Kind.NOTHING or encoding is Encoding.CALLABLE:
        return
    match encoding:
        case Encoding.BYTES if kind is not Kind.BINARY:
            raise TypeError(f"expected a column of binary, not of {kind}: other keys need `encode`")
        case Encoding.UTF8 if kind is not Kind.TEXT:
            raise TypeError(f"expected a column of text, not of {kind}: the filter encodes its keys as utf-8")
        case _ if encoding in NUMBERS and kind is not Kind.INTEGERS:
            raise TypeError(f"expected a column of integers, not of {kind}: the filter encodes its keys as integers")


def of_buffer(view: memoryview, encoding: Encoding, strict: bool, keeps: bool | None = None) -> KeyColumn:
    """Return the column in a buffer. Raises TypeError if the buffer cannot contain keys of this encoding.

    If `strict`, the items must have the type that `add` takes. Otherwise rows of bytes, and integers of a fixed size,
    are taken as their bytes.

    Byte strings (NumPy's S) keep the zeros at their end if `keeps` is True, and lose them if it is False. If it is
    None, they are refused, because it is not known whether these zeros belong to the keys.
    """
    if any(offset >= 0 for offset in view.suboffsets or ()):
        raise TypeError("a buffer of keys must not contain pointers (suboffsets)")
    kind = view.format.lstrip("@=<>!")
    digits, letter = kind[:-1], kind[-1:]
    swapped, bytes_ = view.format[:1] in (">", "!"), encoding is Encoding.BYTES
    legacy = bytes_ and not strict
    if digits and not digits.isdecimal():
        letter = "?"
    if legacy and view.ndim == 2 and letter in "Bbc" and not digits:
        return KeyColumn(Kind.BINARY, len(view), lambda first: _items(view))
    if view.ndim == 1 and letter == "s" and digits:
        check_kind(Kind.BINARY, encoding)
        if keeps is None:
            raise TypeError(
                f"NumPy's S hides zeros at the end of keys: pass padding='keep' if each key has the full width, or"
                f" padding='strip' for text; or pass .view('V{view.itemsize}') or uint8[n, {view.itemsize}]"
            )
        if not keeps:
            return KeyColumn(Kind.BINARY, len(view), lambda first: (item.rstrip(b"\0") for item in _items(view)))
    if view.ndim == 1 and letter in "sx" and digits:
        return KeyColumn(Kind.BINARY, len(view), lambda first: _items(view))
    if view.ndim == 1 and letter == "w" and not view.itemsize % 4:
        return KeyColumn(Kind.TEXT, len(view), lambda first: _texts(view, "big" if swapped else "little", first))
    if view.ndim == 1 and not digits and letter in "hHiIlLqQ" and legacy and not swapped:
        return KeyColumn(Kind.BINARY, len(view), lambda first: _items(view))
    if view.ndim == 1 and not digits and letter in "bBhHiIlLqQnN" and not legacy:
        order, signed = "big" if swapped else "little", letter in _SIGNED
        return KeyColumn(
            Kind.INTEGERS,
            len(view),
            lambda first: (int.from_bytes(item, order, signed=signed) for item in _items(view)),  # type: ignore[arg-type]
        )
    match encoding:
        case Encoding.BYTES:
            wanted = (
                "a row of byte strings" if strict else "n×w bytes in two dimensions, or integers or byte strings in one"
            )
        case _ if encoding in NUMBERS:
            wanted = "integers in one dimension"
        case Encoding.UTF8:
            wanted = "an iterable of keys for `encode`, or text in one dimension"
        case _:
            wanted = "an iterable of keys for `encode`, or a row of text, byte strings or integers"
    dimensions = f"{view.ndim} dimension{'' if view.ndim == 1 else 's'}"
    raise TypeError(
        f"a batch of keys for this filter must be {wanted}, not a buffer of {view.format!r} with {dimensions}"
    )


def _items(view: memoryview) -> Iterator[bytes]:
    """Yield the bytes of each row of a buffer with any strides."""
    width = view.itemsize * ((view.shape or ())[1] if view.ndim == 2 else 1)
    for at in range(0, len(view), _ROWS_AT_ONCE):
        rows = view[at : at + _ROWS_AT_ONCE]
        raw = rows.tobytes()
        yield from (raw[row * width : (row + 1) * width] for row in range(len(rows)))


def _texts(view: memoryview, order: str, first: int) -> Iterator[str]:
    """Yield the rows of UTF-32 text without the zeros at their end. Raises ColumnError for an invalid character."""
    for row, item in enumerate(_items(view), first):
        codes = [code for (code,) in iter_unpack(">I" if order == "big" else "<I", item)]
        while codes and not codes[-1]:
            codes.pop()
        for code in codes:
            if code > _LAST or 0xD800 <= code <= 0xDFFF:
                raise ColumnError(f"U+{code:04X} is not a character", row=row, field="text")
        yield "".join(map(chr, codes))


def opened(
    keys: Keys,
    nulls: Nulls,
    encode: Callable[[object], Encoded],
    encoding: Encoding,
    padding: Padding | None = None,
) -> tuple[Iterator[Encoded | None], Callable[[bytes], object]]:
    """Return an iterator over the encoded keys of a batch, and a function that makes the mask for the batch.

    The iterator yields None for each null that is skipped. The mask function takes one byte for each key.
    `BitCore.update` documents the formats.

    Raises TypeError for bytes, bytearray and str, which are single keys, and for a buffer that cannot contain keys.
    Raises ParameterError if `nulls` is neither "raise" nor "skip", or `padding` is neither "keep" nor "strip".
    """
    skip = columns.skips(nulls)
    reader = KeyReader(encode, encoding, skip, columns.keeps(padding))
    if isinstance(keys, (bytes, bytearray, str)):
        raise TypeError(f"expected a batch of keys, not one {type(keys).__name__}")
    batch = columns.batch_of(keys, skip)
    if batch is not None:
        return reader.read(batch.pieces), batch.answer
    try:
        view = memoryview(keys)  # type: ignore[arg-type]  # memoryview decides whether it has a buffer
    except TypeError:
        check_iterable(keys, "keys", "an iterable, a buffer or a column")
        return reader.iterable(keys), bytes  # type: ignore[arg-type]  # an object without a buffer is an iterable
    return reader.read([(columns.BUFFER, view)]), bytes


class KeyReader(Generic[Encoded]):
    """Reads the keys of a batch and encodes them. A null that is skipped becomes None."""

    def __init__(
        self, encode: Callable[[object], Encoded], encoding: Encoding, skip: bool, keeps: bool | None = None
    ) -> None:
        self._encode = encode
        self._encoding = encoding
        self._skip = skip
        self._keeps = keeps
        self._rows = 0  # number of rows read so far

    def read(self, pieces: Iterable[tuple[int, Any]]) -> Iterator[Encoded | None]:
        """Yield the keys in the pieces that columns.batch_of returned."""
        for kind, piece in pieces:
            match kind:
                case columns.KEYS:
                    yield from self.iterable(piece)
                case columns.BUFFER | columns.VALUES:
                    is_strict = kind == columns.VALUES
                    yield from self.column(of_buffer(memoryview(piece), self._encoding, is_strict, self._keeps))
                case columns.ARRAY:
                    with arrow.taken_array(piece[0], piece[1], self._check) as column:
                        yield from self.column(column(self._rows))
                case _:
                    with arrow.taken_stream(piece, self._check) as arrays:
                        for of in arrays:
                            yield from self.column(of(self._rows))

    def _check(self, kind: Kind) -> None:
        check_kind(kind, self._encoding)

    def iterable(self, keys: Iterable[object]) -> Iterator[Encoded | None]:
        """Yield the keys of an iterable."""
        for key in keys:
            yield None if self._skip and columns.is_missing(key) else self._encode(key)

    def column(self, column: KeyColumn) -> Iterator[Encoded | None]:
        """Yield the keys of a column.

        Raises TypeError for a null that is not skipped, and KeyRangeError for a number that does not fit the encoding.
        """
        check_kind(column.kind, self._encoding)
        for row, key in enumerate(column.rows(self._rows), self._rows):
            if key is None:
                if not self._skip:
                    raise TypeError(f"key {row} is null, which is not a key: nulls='skip' leaves nulls out")
                yield None
                continue
            if isinstance(key, int):
                self._check_range(key, row)
            yield self._encode(key)
        self._rows += column.length

    def _check_range(self, key: int, row: int) -> None:
        least, most = _RANGES.get(self._encoding, (key, key))
        if not least <= key <= most:
            raise KeyRangeError(f"key {row}: {key} does not fit into {self._encoding.name.lower()}")
