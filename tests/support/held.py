"""How much an object keeps, for tests of bounds: none of its collections may outgrow one, whatever its name is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain

Kept = (dict, list, set, tuple, deque)


def _sizes(value: object) -> Iterator[int]:
    if isinstance(value, Kept) and not hasattr(value, "_fields"):  # no named tuple
        yield len(value)
        for each in value.values() if isinstance(value, dict) else value:
            yield from _sizes(each)


def sizes_of(thing: object) -> list[int]:
    """Numbers of items in the collections among the attributes of an object, and in collections within these."""
    return [*chain.from_iterable(map(_sizes, vars(thing).values()))]


def most_held(thing: object) -> int:
    """Number of items in the largest collection of an object."""
    return max(sizes_of(thing), default=0)
