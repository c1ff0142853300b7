"""Arguments of the kernel's functions: snapshots of bytes, which cannot change during a call, and integers in a range.

The C twin is csrc/binding/arguments.h. The rule for bytes is in binding.h.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import index

from spvfilter.errors import ParameterError


def snapshot(data: object) -> bytes:
    """Return `data` itself if it is bytes, else a copy of its buffer, because the buffer may change.

    Raises TypeError if it has no buffer.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]  # memoryview decides whether it has a buffer
    except TypeError:
        raise TypeError(f"expected a bytes-like object, not {type(data).__name__}") from None


def snapshots(items: Iterable[object]) -> list[bytes]:
    """Return a snapshot of each item.

    Raises TypeError for an item that is not bytes-like, and for an iterable that is itself bytes, bytearray or str.
    """
    if isinstance(items, (bytes, bytearray, str)):  # iterating over these yields ints or strings
        raise TypeError("expected an iterable of bytes, not a single object")
    return [snapshot(item) for item in items]


def hashes_of(items: Iterable[object]) -> list[bytes]:
    """Return the bytes of each item. Each item must be 32 bytes long.

    Raises TypeError as `snapshots` does, and ParameterError for the wrong number of bytes.
    """
    hashes = snapshots(items)
    for hash in hashes:
        if len(hash) != 32:
            raise ParameterError(f"a hash must be 32 bytes long, not {len(hash)}")
    return hashes


def whole(value: object, least: int, most: int, expected: str) -> int:
    """Return an integer, or an object with __index__, as an int.

    Raises TypeError for other objects. If the number is out of range, raises ParameterError, whose message begins with
    `expected`.
    """
    number = int(index(value))  # type: ignore[arg-type]  # raises TypeError
    if not least <= number <= most:
        raise ParameterError(f"{expected}: {number}")
    return number


def offset(value: object) -> int:
    """Return an offset into bytes as an int. It may be beyond the end of the bytes."""
    return whole(value, 0, sys.maxsize, "not an offset")
