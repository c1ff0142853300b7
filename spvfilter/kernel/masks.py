"""The mask that contains_many returns for keys of NumPy and pandas; imported where NumPy is."""

from __future__ import annotations

from typing import Any, Self

import numpy


class BoolMask(numpy.ndarray[Any, Any]):
    """A one-dimensional array of NumPy's bool that also equals the bytes it consists of, as masks of other keys are
    bytes.
    """

    @classmethod
    def of(cls, mask: bytes) -> Self:
        """The same bytes, in memory of its own."""
        return numpy.frombuffer(bytearray(mask), numpy.bool_).view(cls)

    def __eq__(self, other: object) -> Any:
        return self.tobytes() == other if isinstance(other, (bytes, bytearray)) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return self.tobytes() != other if isinstance(other, (bytes, bytearray)) else super().__ne__(other)

    __hash__ = None  # as of other arrays

    def count(self, value: int) -> int:
        """As bytes.count: how many are 1, or 0."""
        return self.tobytes().count(value)
