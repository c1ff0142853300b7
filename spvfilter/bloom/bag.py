"""A filter of the keys in a Dask bag: each partition fills bits where it is, and the bits are merged on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self  # Any: dask has no types

from spvfilter.bloom.base import allocate

if TYPE_CHECKING:
    from typing_extensions import Buffer

_AT_ONCE = 8  # bits that are merged by one task


class Bits(Protocol):
    """A filter over bits that were given."""

    def update(self, keys: Iterable[object], /) -> object: ...

    def __ior__(self, other: Any, /) -> Self: ...


def is_bag(keys: object) -> bool:
    """Whether a batch is a Dask bag. Dask is imported already where one is."""
    return type(keys).__module__.startswith("dask.bag") and hasattr(keys, "reduction")


def bits_of_bag(bag: Any, over: Callable[[Buffer], Bits], size: int) -> bytes:
    """The bits of a filter of all keys. `over` makes such a filter, never full, over `size` bytes, which may be given.

    It is computed as `compute()` of the bag would be: by a cluster if the program has a client, else in processes of
    this machine.
    """
    merged: bytes = bag.reduction(
        partial(_filled, over, size), partial(_merged, over, size), split_every=_AT_ONCE
    ).compute()
    return merged


def _filled(over: Callable[[Buffer], Bits], size: int, keys: Iterable[object]) -> bytes:
    bits = allocate(size)
    over(bits).update(keys)
    return bytes(bits)


def _merged(over: Callable[[Buffer], Bits], size: int, several: Iterable[bytes]) -> bytes:
    bits = allocate(size)
    both = over(bits)
    for other in several:
        both |= over(other)
    return bytes(bits)
