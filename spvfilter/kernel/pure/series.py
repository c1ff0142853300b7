"""A series of bit arrays that is one set and grows: the kernel of scalable Bloom filters. The readable reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, overload

from spvfilter.errors import CapacityError, MismatchError, ParameterError
from spvfilter.kernel.pure.arguments import whole
from spvfilter.kernel.pure.bits import BitCore
from spvfilter.kernel.pure.cells import MOST_TRIES
from spvfilter.kernel.values import MAX_SLICES

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray
    from spvfilter.kernel.masks import BoolMask


class SeriesCore:
    """A series of BitCores, its slices, that is one set: a key is contained if any slice contains it, and is added to
    the last one.

    All slices have one hash family, key and encoding, so that a key is encoded and hashed once; they may differ in
    everything else. While the last slice has no room, a new key first calls `make_room`. Raises ParameterError for less
    than one slice or more than 64, MismatchError for slices that differ, TypeError for other objects.
    """

    __slots__ = ("_slices",)

    def __init__(self, slices: Iterable[BitCore]) -> None:
        if hasattr(self, "_slices"):
            raise TypeError("a series is made once")
        made = tuple(slices)
        if not 1 <= len(made) <= MAX_SLICES:
            raise ParameterError(f"a series has from 1 to {MAX_SLICES} slices, not {len(made)}")
        for slice in made:
            _check(made[0], slice)
        self._slices = made

    @property
    def slices(self) -> tuple[BitCore, ...]:
        """The slices, from the first to the one that keys are added to."""
        return self._slices

    def append(self, slice: BitCore, count: int, /) -> bool:
        """Add a slice unless there are more than `count`, as another thread may have added one meanwhile.

        Whether it was added.

        Raises CapacityError if there are 64, ParameterError for a negative count, MismatchError and TypeError as the
        constructor does.
        """
        _check(self._slices[0], slice)
        count = whole(count, 0, (1 << 63) - 1, "count is from 0 to 2^63 - 1")
        if len(self._slices) > count:
            return False
        if len(self._slices) == MAX_SLICES:
            raise CapacityError(f"a series has at most {MAX_SLICES} slices")
        self._slices = (*self._slices, slice)
        return True

    def make_room(self) -> None:
        """Called before a new key is added if the last slice's `room` is 0 or unknown: derived classes append one or
        set it, or raise.

        Raises CapacityError.
        """
        raise CapacityError("there is no room for another key")

    def add(self, key: object, /) -> bool:
        """Add a key to the last slice unless a slice contains it. True if it was new.

        Raises TypeError or OverflowError for a key that the encoding does not take, ReadOnlyError, and what `make_room`
        raises.
        """
        return self._add(self._slices[0]._encode(key))

    def _add(self, data: bytes) -> bool:
        tries = 0
        while True:
            *earlier, last = self._slices
            if any(slice._all_set(slice._positions(data)) for slice in reversed(earlier)):
                return False
            cells = list(last._positions(data))
            last._writable()
            if last.room is None or last.room > 0 or last._all_set(cells):
                return last._set(cells)
            self.make_room()
            room = self._slices[-1].room
            tries += room is not None and room <= 0
            if tries == MOST_TRIES:
                SeriesCore.make_room(self)

    def __contains__(self, key: object) -> bool:
        return self._has(self._slices[0]._encode(key))

    def _has(self, data: bytes) -> bool:
        return any(slice._all_set(slice._positions(data)) for slice in reversed(self._slices))

    def update(self, *keys: Keys, nulls: Nulls = "raise") -> int:
        """Add a batch of keys, as BloomFilter.update takes it, and return how many were new.

        Raises the same errors, and what `make_room` raises, after adding the keys before.
        """
        return sum(
            self._add(key) for batch in keys for key in self._slices[0]._batch(batch, nulls)[0] if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable, too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    def contains_many(self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise") -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Test a batch of keys, and return a mask, as BloomFilter.contains_many does. Raises the same errors."""
        batch, answer = self._slices[0]._batch(keys, nulls)
        # it is one of the two
        return answer(bytes(key is not None and self._has(key) for key in batch))  # type: ignore[no-any-return]


def _check(first: BitCore, slice: object) -> None:
    if not isinstance(slice, BitCore):
        raise TypeError("the slices of a series are bits")
    if (first.family, first.key, first.encoding) != (slice.family, slice.key, slice.encoding):
        raise MismatchError("the slices of a series have one hash family, key and encoding")
