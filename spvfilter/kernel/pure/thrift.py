"""The end of a value in Thrift's compact protocol, which Parquet uses for its footer. This is the readable reference.

The caller skips most of a footer: statistics, encodings, and the chunks of other columns. bloom/exchange/thrift.py
describes the protocol, and explains what is wrong with a malformed value.
"""

from __future__ import annotations

from spvfilter.kernel.pure.arguments import offset, snapshot, whole

_BOOL, _I8, _I16, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 2, 3, 4, 6, 7, 8, 9, 10, 11, 12
_DEEPEST = 16  # Deepest nesting (our choice); a footer has about 6 levels.
_LONGEST = 10  # Bytes of the longest 64-bit varint.
_MOST = 15  # Types are 4-bit numbers.


class _MalformedError(Exception):
    """The value is malformed."""


def thrift_end(raw: bytes, at: int, kind: int, /) -> int:
    """Return the offset after a value of the given type that begins at an offset.

    Returns -1 if the value is malformed or truncated, or nested more than 16 deep.

    Raises:
        TypeError: An argument has the wrong type.
        ParameterError: The offset is negative, or the type is not between 0 and 15.
    """
    data, start, of = snapshot(raw), offset(at), whole(kind, 0, _MOST, "a type must be from 0 to 15")
    try:
        end = _end(data, start, of, 0, within=False)
    except (IndexError, _MalformedError):
        return -1
    return end if end <= len(data) else -1


def _end(raw: bytes, at: int, kind: int, deep: int, *, within: bool) -> int:
    """Return the end of a value. `within` is True inside a list or a map, where a boolean takes a byte."""
    if _LIST <= kind <= _STRUCT and deep > _DEEPEST:
        raise _MalformedError
    if 1 <= kind <= _BOOL:
        return at + within
    if kind == _I8:
        return at + 1
    if _I16 <= kind <= _I64:
        return _number(raw, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        size, at = _number(raw, at)
        return at + size
    if kind in (_LIST, _SET):
        head = raw[at]
        count, at = _number(raw, at + 1) if head >> 4 == 15 else (head >> 4, at + 1)
        return _items(raw, at, count, (head & 15,), deep)
    if kind == _MAP:
        count, at = _number(raw, at)
        if not count:
            return at
        if count > len(raw) - at:
            raise _MalformedError
        return _items(raw, at + 1, count, (raw[at] >> 4, raw[at] & 15), deep)
    if kind != _STRUCT:
        raise _MalformedError
    while head := raw[at]:
        at = at + 1 if head >> 4 else _number(raw, at + 1)[1]
        at = _end(raw, at, head & 15, deep + 1, within=False)
    return at + 1


def _items(raw: bytes, at: int, count: int, kinds: tuple[int, ...], deep: int) -> int:
    """Return the end of the items of a list or the entries of a map, each of which takes at least one byte."""
    if count > len(raw) - at:
        raise _MalformedError
    for _ in range(count):
        for kind in kinds:
            at = _end(raw, at, kind, deep + 1, within=True)
            if at > len(raw):
                raise _MalformedError
    return at


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number at an offset, and its end."""
    value = 0
    for place in range(_LONGEST):
        byte = raw[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _MalformedError
