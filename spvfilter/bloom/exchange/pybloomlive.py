"""Read the files that BloomFilter.tofile and ScalableBloomFilter.tofile of pybloom-live write.

All integers are u64, little endian:

    false-positive rate, f64
    number of slices, one for each hash function
    bits of a slice
    capacity
    number of keys
    bits of all slices

Bit b is 1 << (b % 8) of byte b // 8. The file of a ScalableBloomFilter is:

    growth, i32; ratio of two rates, f64; capacity of the first filter, u64; rate, f64
    number of filters n, i32
    length of the file of each filter, n u64
    the files of the filters

Source: pybloom.py of versions 3.1 and 4.0, which write the same file.
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.bloom.exchange.foreignhashes import PybloomLiveHash
from spvfilter.bloom.exchange.parts import check_functions, check_length, filter_over, viewed
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.sizing import MAX_COUNT
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import Encoding

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEADER = struct.Struct("<dQQQQ")
_SCALABLE = struct.Struct("<idQdi")
_RATIO = 0.9  # of the rates of two successive filters
_MOST = 64  # Filters of a ScalableBloomFilter (our choice): each holds at least twice as many keys as the one before.
_SHORT = 128  # Total bits of all hash functions up to which the two versions use different digests.


@public
def read_pybloom_live(raw: Buffer, *, version: int | None = None) -> BloomFilter:
    """Return the filter in the bytes that BloomFilter.tofile of pybloom-live wrote.

    Its hash family is PybloomLiveHash, and its keys are text. The library hashes any other key as str(key).

    Args:
        raw: The bytes of the file.
        version: Major version of pybloom-live that wrote the file, 3 or 4. Needed only if all hash functions together
            take 128 bits or less, because the versions then hash differently.

    Raises:
        FormatError: The bytes are truncated, too long or malformed, or have an impossible size.
        ParameterError: `version` is needed and missing, or unknown; or version 4 needs the xxhash package.
        TooLargeError: The filter does not fit into memory.
    """
    try:
        rate, slices, span, capacity = _shape(memoryview(raw).cast("B"))
    except FormatError:
        viewed(raw)  # names a file of another program; a rate may begin like one by chance
        raise
    size = 8 if span >= 1 << 31 else 4 if span >= 1 << 15 else 2
    if 8 * size * slices > _SHORT:
        version = 4 if version in (None, 3) else version  # both hash alike
    elif version is None:
        raise ParameterError(
            "this file is from version 3 or 4 of pybloom-live, which hash differently: pass version=3 or version=4"
        )
    hashing = PybloomLiveHash(version, size)
    shape = slices * span, slices, hashing, Encoding.UTF8
    return filter_over(
        memoryview(raw).cast("B")[_HEADER.size :], *shape, partitioned=True, capacity=capacity, fp_rate=rate
    )


@public
def read_scalable_pybloom_live(raw: Buffer, *, version: int | None = None) -> list[BloomFilter]:
    """Return the filters of a pybloom-live ScalableBloomFilter, oldest first.

    The scalable filter contains a key if any of them does. The list is empty if no key was added.

    Args:
        raw: The bytes that ScalableBloomFilter.tofile of pybloom-live wrote.
        version: Major version of pybloom-live that wrote the file, 3 or 4, as for `read_pybloom_live`.

    Raises:
        FormatError: The bytes are truncated, too long or malformed, or have an impossible size.
        ParameterError: `version` is needed and missing, or unknown; or version 4 needs the xxhash package.
        TooLargeError: A filter does not fit into memory.
    """
    view = memoryview(raw).cast("B")
    if len(view) < _SCALABLE.size:
        message = f"truncated: expected {_SCALABLE.size} bytes, got {len(view)}"
        raise FormatError(message, offset=len(view), field="header")
    if not is_scalable(view):
        viewed(view)
        raise FormatError("this is not a pybloom-live ScalableBloomFilter", offset=4, field="ratio")
    *_, count = _SCALABLE.unpack_from(view)
    if not 0 <= count <= _MOST:
        raise FormatError(
            f"expected 0 to {_MOST} filters, not {count}: did another program write this file?",
            offset=28,
            field="filters",
        )
    at = _SCALABLE.size + 8 * count
    if len(view) < at:
        raise FormatError(f"truncated: expected {at} bytes, got {len(view)}", offset=len(view), field="lengths")
    ends = [*accumulate(struct.unpack_from(f"<{count}Q", view, _SCALABLE.size), initial=at)]
    check_length(view, ends[-1], "filters")
    return [read_pybloom_live(view[start:end], version=version) for start, end in pairwise(ends)]


def is_scalable(raw: Buffer) -> bool:
    """Return True if bytes start like the file of a ScalableBloomFilter."""
    start = memoryview(raw).cast("B")[: _SCALABLE.size]
    return len(start) == _SCALABLE.size and _SCALABLE.unpack(start)[1] == _RATIO


def _shape(view: memoryview) -> tuple[float, int, int, int]:
    """Return the rate, the slices, the bits per slice and the capacity. Raises FormatError for a wrong file length."""
    if len(view) < _HEADER.size:
        message = f"truncated: expected {_HEADER.size} bytes, got {len(view)}"
        raise FormatError(message, offset=len(view), field="header")
    rate, slices, span, capacity, _ = _HEADER.unpack_from(view)
    if not 0 < rate < 1:
        message = f"expected a rate between 0 and 1, not {rate!r}: did another program write this file?"
        raise FormatError(message, offset=0, field="rate")
    check_functions(slices, 8)
    if span < 1:
        raise FormatError(f"expected at least 1 bit per slice, got {span}", offset=16, field="bits_per_slice")
    if not 1 <= capacity <= MAX_COUNT:
        raise FormatError(f"the capacity must be 1 to {MAX_COUNT}, not {capacity}", offset=24, field="capacity")
    check_length(view, _HEADER.size + (slices * span + 7) // 8, "bits")
    return rate, slices, span, capacity
