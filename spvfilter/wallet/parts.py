"""Changes to the books that may be spread over several iterations of the event loop."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Parts = Generator[None, None, T]
"""A change to the books that pauses after each match or transaction. Nothing else may use the books until it ends."""
PIECE = 20
"""Number of items in a list that `pieces` yields (our choice)."""
CHEAP = 10
"""Number of cheap items between two pauses (our choice)."""


def whole(parts: Parts[T]) -> T:
    """Make a change without pausing, and return its result."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: T = end.value
            return result


def pieces(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield lists of successive items, `PIECE` at a time."""
    left = iter(items)
    while piece := list(islice(left, PIECE)):
        yield piece


def counted(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Yield cheap items, each with a bool that is True if a change should pause after it."""
    return ((item, number % CHEAP == 0) for number, item in enumerate(items, 1))
