"""The shape of a new filter: the numbers of cells m and hash functions k, from the arguments of the constructor."""

from __future__ import annotations

from functools import lru_cache

from spvfilter.bloom import fileformat, sizing
from spvfilter.errors import ParameterError


def cells_and_functions(
    capacity: int | None, fp_rate: float | None, hash_funcs: int | None, bits: int | None, partitioned: bool
) -> tuple[int, int]:
    """Return (m, k) for the arguments of a filter. Raises ParameterError unless they determine both."""
    if bits is not None:
        if capacity is not None or fp_rate is not None or hash_funcs is None:
            raise ParameterError("give capacity and fp_rate (and hash_funcs), or bits and hash_funcs")
        if not isinstance(bits, int) or not 1 <= bits <= fileformat.MAX_CELLS:
            raise ParameterError(f"bits must be from 1 to {fileformat.MAX_CELLS}: {bits!r}")
        if not isinstance(hash_funcs, int) or not 1 <= hash_funcs <= fileformat.MAX_HASH_FUNCS:
            raise ParameterError(f"hash_funcs must be from 1 to {fileformat.MAX_HASH_FUNCS}: {hash_funcs!r}")
        cells, functions = bits, hash_funcs
        if partitioned and cells % functions:
            raise ParameterError(
                f"the bits of a partitioned filter must be a multiple of its hash_funcs: {bits} and {hash_funcs}"
            )
        return cells, functions
    if capacity is None or fp_rate is None:
        raise ParameterError("give capacity and fp_rate (and hash_funcs), or bits and hash_funcs")
    if type(capacity) is int and type(fp_rate) is float and (hash_funcs is None or type(hash_funcs) is int):
        return _sized(capacity, fp_rate, hash_funcs, bool(partitioned))
    # without the cache: other types may be invalid, or equal to a cached argument (1.0 == 1)
    return _sized.__wrapped__(capacity, fp_rate, hash_funcs, bool(partitioned))


@lru_cache(maxsize=256)
def _sized(capacity: int, fp_rate: float, hash_funcs: int | None, partitioned: bool) -> tuple[int, int]:
    """Return (m, k) for a capacity and a rate. It is cached, because many small filters have the same size."""
    if hash_funcs is None:
        cells, functions = sizing.optimal(capacity, fp_rate)
    else:
        cells, functions = sizing.bits_for(capacity, fp_rate, hash_funcs), hash_funcs
    cells = sizing.align_bits(cells)
    if partitioned:
        cells += -cells % functions
    return cells, functions
