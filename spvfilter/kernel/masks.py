"""The mask that `contains_many` returns for NumPy and pandas keys. This module is imported only if NumPy is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy


class BoolMask(numpy.ndarray[Any, Any]):
    """A one-dimensional NumPy array of bools that also compares equal to the bytes that it consists of.

    Masks for other keys are bytes, so code can compare both kinds in the same way.
    """

    @classmethod
    def of(cls, mask: bytes) -> Self:
        """Return a mask with a copy of the bytes."""
        return numpy.frombuffer(bytearray(mask), numpy.bool_).view(cls)

    def __eq__(self, other: object) -> Any:
        return self.tobytes() == other if isinstance(other, (bytes, bytearray)) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return self.tobytes() != other if isinstance(other, (bytes, bytearray)) else super().__ne__(other)

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[bool]: ...  # type: ignore[override]

    __hash__ = None  # NumPy arrays have no hash

    def count(self, value: int) -> int:
        """Return how many items are equal to `value` (0 or 1), as bytes.count does."""
        return self.tobytes().count(value)
