"""Arguments of the kernel's functions: bytes that nobody changes meanwhile, and whole numbers in a range.

The twin is csrc/binding/arguments.h; the rule for bytes is in binding.h.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from operator import index

from spvfilter.errors import ParameterError


def snapshot(data: object) -> bytes:
    """The bytes of `data`: itself where it is bytes, else a copy of its buffer, which may change. Raises TypeError for what has none."""
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]  # whether it has a buffer is the question
    except TypeError:
        raise TypeError(f"a bytes-like object expected, not {type(data).__name__}") from None


def snapshots(items: Iterable[object]) -> list[bytes]:
    """The bytes of each item. Raises TypeError for items that are not bytes-like, and for one such object in place of an iterable."""
    if isinstance(items, (bytes, bytearray, str)):  # which give ints, or texts
        raise TypeError("an iterable of bytes expected, not one")
    return [snapshot(item) for item in items]


def whole(value: object, least: int, most: int, expected: str) -> int:
    """An int, or what has __index__, from `least` to `most`. Raises TypeError, and ParameterError that begins with `expected`."""
    number = int(index(value))  # type: ignore[arg-type]  # or TypeError
    if not least <= number <= most:
        raise ParameterError(f"{expected}: {number}")
    return number


def offset(value: object) -> int:
    """A place within bytes, or behind them."""
    return whole(value, 0, sys.maxsize, "not an offset")
