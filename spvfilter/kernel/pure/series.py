"""A growing series of bit arrays that form one set: the kernel of scalable Bloom filters (readable reference)."""

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

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray, Padding
    from spvfilter.kernel.masks import BoolMask


class SeriesCore:
    """A series of BitCores, the slices, that form one set.

    The set contains a key if any slice contains it. A new key is added to the last slice. If the last slice has no
    room, a derived class first appends another.

    All slices have the same hash family, key and encoding, so that a key is encoded and hashed only once. They may
    differ in everything else. Raises ParameterError for no slice or more than 64, MismatchError for slices that differ,
    TypeError for other objects.
    """

    __slots__ = ("_slices",)

    def __init__(self, slices: Iterable[BitCore]) -> None:
        if hasattr(self, "_slices"):
            raise TypeError("a series can be initialized only once")
        made = tuple(slices)
        if not 1 <= len(made) <= MAX_SLICES:
            raise ParameterError(f"a series must have 1 to {MAX_SLICES} slices, not {len(made)}")
        for slice in made:
            _check(made[0], slice)
        self._slices = made

    @property
    def slices(self) -> tuple[BitCore, ...]:
        """The slices. Keys are added to the last one."""
        return self._slices

    def append(self, slice: BitCore, count: int, /) -> bool:
        """Add a slice, unless there are more than `count` slices because another thread has added one.

        Returns True if it was added.

        Raises CapacityError if there are 64 slices, ParameterError for a negative count, MismatchError if the slice
        differs from the others, TypeError for other objects.
        """
        _check(self._slices[0], slice)
        count = whole(count, 0, (1 << 63) - 1, "count must be from 0 to 2^63 - 1")
        if len(self._slices) > count:
            return False
        if len(self._slices) == MAX_SLICES:
            raise CapacityError(f"a series can have at most {MAX_SLICES} slices")
        self._slices = (*self._slices, slice)
        return True

    def _make_room(self) -> None:
        """Make space for a new key, before it is added, if the `room` of the last slice is 0 or unknown.

        A derived class appends a slice, sets the `room` or raises an error; the base class raises CapacityError.
        """
        raise CapacityError("there is no room for another key")

    def add(self, key: object, /) -> bool:
        """Add a key to the last slice unless a slice contains it, and return True if it was new.

        Raises TypeError or KeyRangeError for a key that does not fit the encoding, ReadOnlyError if the memory is
        read-only, CapacityError if there is no room.
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
                return last._set_bits(cells)  # another thread may have taken the room meanwhile: one key too many
            self._make_room()
            room = self._slices[-1].room
            tries += room is not None and room <= 0
            if tries == MOST_TRIES:
                SeriesCore._make_room(self)

    def __contains__(self, key: object) -> bool:
        return self._has(self._slices[0]._encode(key))

    def _has(self, data: bytes) -> bool:
        return any(slice._all_set(slice._positions(data)) for slice in reversed(self._slices))

    def update(self, *keys: Keys, nulls: Nulls = "raise", padding: Padding | None = None) -> int:
        """Add one or more batches of keys, as BloomFilter.update accepts them, and return how many keys were new.

        Raises the same errors as BloomFilter.update, and CapacityError if there is no room. The keys before the error
        have been added.
        """
        return sum(
            self._add(key)
            for batch in keys
            for key in self._slices[0]._batch(batch, nulls, padding)[0]
            if key is not None
        )

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    def contains_many(
        self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes | Mask:
        """Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."""
        batch, answer = self._slices[0]._batch(keys, nulls, padding)
        # the result is bytes or a mask
        return answer(bytes(key is not None and self._has(key) for key in batch))  # type: ignore[no-any-return]


def _check(first: BitCore, slice: object) -> None:
    if not isinstance(slice, BitCore):
        raise TypeError("every slice of a series must be a BitCore")
    if (first.family, first.key, first.encoding) != (slice.family, slice.key, slice.encoding):
        raise MismatchError("the slices of a series must have the same hash family, key and encoding")
