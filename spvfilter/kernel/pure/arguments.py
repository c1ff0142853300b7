"""Arguments of the kernel's functions: snapshots of bytes, which cannot change during a call, and integers in a range.

The C twin is csrc/binding/arguments.h; binding.h explains the rule for bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import index

from spvfilter.errors import ParameterError


def snapshot(data: object, argument: str = "") -> bytes:
    """Return `data` itself if it is bytes, else a copy of its buffer, because the buffer may change.

    Raises TypeError if it has no buffer. The message begins with the name of the argument, if that is given.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]  # memoryview decides whether it has a buffer
    except TypeError:
        named = f"{argument}: " if argument else ""
        raise TypeError(f"{named}expected a bytes-like object, not {type(data).__name__}") from None


def check_iterable(value: object, argument: str, wanted: str) -> None:
    """Raise TypeError unless a value is iterable. The message gives the argument's name and what it must be."""
    if hasattr(type(value), "__iter__"):
        return
    try:
        iter(value)  # type: ignore[call-overload]  # some sequences have no __iter__
    except TypeError:
        raise TypeError(f"{argument}: expected {wanted}, not {type(value).__name__}") from None


def snapshots(items: Iterable[object], argument: str) -> list[bytes]:
    """Return a snapshot of each item of the argument with this name.

    Raises TypeError for an item that is not bytes-like, and for an iterable that is itself bytes, bytearray or str.
    """
    wanted = "an iterable of bytes"
    if isinstance(items, (bytes, bytearray, str)):  # iterating over these yields ints or strings
        raise TypeError(f"{argument}: expected {wanted}, not {type(items).__name__}")
    check_iterable(items, argument, wanted)
    return [snapshot(item, argument) for item in items]


def hashes_of(items: Iterable[object], argument: str) -> list[bytes]:
    """Return the bytes of each item. Each item must be 32 bytes long.

    Raises TypeError in the same cases as `snapshots`, and ParameterError for the wrong number of bytes.
    """
    return [hash_of(item) for item in snapshots(items, argument)]


def hash_of(given: object) -> bytes:
    """Return a hash as bytes. Raises TypeError unless it is bytes-like, ParameterError unless it is 32 bytes long."""
    taken = snapshot(given)
    if len(taken) != 32:
        raise ParameterError(f"a hash must be 32 bytes long, not {len(taken)}")
    return taken


def has_index(kind: type) -> bool:
    """Return True if a type, or a class that it derives from, defines __index__."""
    return any("__index__" in vars(base) for base in kind.__mro__)


def whole(value: object, least: int, most: int, expected: str) -> int:
    """Return an integer, or an object with __index__, as an int.

    Raises TypeError for other objects, and ParameterError if the number is out of range. Both messages begin with
    `expected`.
    """
    if not isinstance(value, int) and not has_index(type(value)):
        raise TypeError(f"{expected}: expected an int, not {type(value).__name__}")
    number = int(index(value))  # type: ignore[arg-type]  # its type has an __index__
    if not least <= number <= most:
        raise ParameterError(f"{expected}, not {number}")
    return number


def offset(value: object) -> int:
    """Return an offset into bytes as an int. It may be beyond the end of the bytes."""
    return whole(value, 0, sys.maxsize, "an offset or a count must be from 0 to sys.maxsize")
