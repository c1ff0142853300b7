"""Build a filter from the keys in a Dask bag: workers fill the bits for their partitions, which are then merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self  # Any: Dask has no type hints

from spvfilter.bloom.base import allocate

if TYPE_CHECKING:
    from typing_extensions import Buffer

_AT_ONCE = 8  # Filters that one task merges (our choice).


class BufferFilter(Protocol):
    """A filter whose bits are in a given buffer."""

    def update(self, keys: Iterable[object], /) -> object:
        """Add the keys."""
        ...

    def __ior__(self, other: Any, /) -> Self:
        """Add the keys of another filter."""
        ...


def is_bag(keys: object) -> bool:
    """Return True if a batch is a Dask bag. This does not import Dask: a program with a bag has already imported it."""
    return type(keys).__module__.startswith("dask.bag") and hasattr(keys, "reduction")


def bits_of_bag(bag: Any, over: Callable[[Buffer], BufferFilter], size: int) -> bytes:
    """Return the bits of a filter that contains all keys in a bag.

    The bag is computed where `bag.compute()` computes it: on a cluster if the program has a Dask client, otherwise in
    local processes.

    Args:
        bag: The Dask bag.
        over: Picklable function that makes a filter over a buffer of bits. The filter must accept every key: a
            filter with a capacity would raise CapacityError.
        size: Size of the bits in bytes.
    """
    merged: bytes = bag.reduction(
        partial(_filled, over, size), partial(_merged, over, size), split_every=_AT_ONCE
    ).compute()
    return merged


def _filled(over: Callable[[Buffer], BufferFilter], size: int, keys: Iterable[object]) -> bytes:
    bits = allocate(size)
    over(bits).update(keys)
    return bytes(bits)


def _merged(over: Callable[[Buffer], BufferFilter], size: int, several: Iterable[bytes]) -> bytes:
    bits = allocate(size)
    both = over(bits)
    for other in several:
        both |= over(other)
    return bytes(bits)
