"""The shape of a new filter, its m cells and k hash functions, as the constructor's arguments determine it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from spvfilter.bloom import fileformat, sizing
from spvfilter.errors import ParameterError

_GIVE = "give capacity and fp_rate (and hash_funcs), or bits and hash_funcs"


class Shape(NamedTuple):
    """The numbers that define a new filter, in Python's own types."""

    cells: int
    """Number of cells m."""
    hash_funcs: int
    """Number of hash functions k."""
    capacity: int
    """Number of keys that the filter is made for; 0 if the caller gave a number of bits."""
    fp_rate: float
    """False-positive rate that the filter is made for; 0 if the caller gave a number of bits."""


def shape_of(
    capacity: int | None, fp_rate: float | None, hash_funcs: int | None, bits: int | None, partitioned: bool
) -> Shape:
    """Return the shape for the arguments of a filter. Raises ParameterError unless they determine it."""
    if bits is not None:
        if capacity is not None or fp_rate is not None or hash_funcs is None:
            raise ParameterError(_GIVE)
        cells = _from_one("bits", bits, fileformat.MAX_CELLS)
        functions = _from_one("hash_funcs", hash_funcs, fileformat.MAX_HASH_FUNCS)
        if partitioned and cells % functions:
            raise ParameterError(
                "the number of bits of a partitioned filter must be a multiple of its number of hash functions, but"
                f" {bits} is not a multiple of {hash_funcs}"
            )
        return Shape(cells, functions, 0, 0.0)
    if capacity is None or fp_rate is None:
        raise ParameterError(_GIVE)
    if type(capacity) is not int or type(fp_rate) is not float or not (hash_funcs is None or type(hash_funcs) is int):
        # the cache must not see other types: they may be invalid, or equal to an argument that it has (1.0 == 1)
        capacity = sizing.whole("capacity", capacity, 1, sizing.MAX_COUNT)
        fp_rate = sizing.probability(fp_rate)
        hash_funcs = None if hash_funcs is None else sizing.whole("hash_funcs", hash_funcs, 1, sizing.MAX_HASH_FUNCS)
    return _sized(capacity, fp_rate, hash_funcs, bool(partitioned))


def _from_one(name: str, value: int, most: int) -> int:
    try:
        return sizing.whole(name, value, 1, most)
    except ParameterError:
        raise ParameterError(f"{name} must be from 1 to {most}, not {value!r}") from None


@lru_cache(maxsize=256)
def _sized(capacity: int, fp_rate: float, hash_funcs: int | None, partitioned: bool) -> Shape:
    """Return the shape for a capacity and a rate. It is cached, because many small filters have the same size."""
    if hash_funcs is None:
        cells, functions = sizing.optimal(capacity, fp_rate)
    else:
        cells, functions = sizing.bits_for(capacity, fp_rate, hash_funcs), hash_funcs
    cells = sizing.align_bits(cells)
    if partitioned:
        cells += -cells % functions
    return Shape(cells, functions, capacity, fp_rate)
