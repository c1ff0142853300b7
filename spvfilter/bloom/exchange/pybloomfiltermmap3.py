"""Read pybloomfiltermmap3 files.

All integers are little endian, as on the 64-bit machines that the library supports:

    MBITARRAY
    bits m, u64
    size of the next structure, u32: 1200
    capacity u64, rate f64, hash functions k u32, 256 seeds u32, 12 bytes, version u8, 143 bytes
    zero bytes up to byte 1280
    bits

Bit b is 1 << (b % 8) of byte b // 8. Source: bloomfilter.h and mmapbitarray.c of version 0.6.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.bloom.base import Encode
from spvfilter.bloom.exchange.foreignhashes import Pybloomfiltermmap3Hash
from spvfilter.bloom.exchange.parts import check_length, filter_over, text_encoding, viewed
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.sizing import MAX_COUNT
from spvfilter.errors import FormatError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"MBITARRAY"
"""Start of a pybloomfiltermmap3 file."""
_HEADER = struct.Struct("<9sQIQdI1024s12xB")
_STRUCTURE = 1200  # Size of the structure on 64-bit machines.
_START = 1280  # Offset of the bits.
_MAX_SEEDS = 256
_VERSION = 1


@public
def read_pybloomfiltermmap3(raw: Buffer, *, encode: Encode = None) -> BloomFilter:
    """Return the filter in the bytes of a pybloomfiltermmap3 file. Its hash family is Pybloomfiltermmap3Hash.

    The filter's own file does not contain the seeds: to open it again, pass `hashing`.

    Args:
        raw: The bytes of the file.
        encode: Type of the keys: None for bytes, "utf-8" for text. Both give the same hashes. Keys of other types are
            not supported, because the library hashes their Python hash.

    Raises:
        FormatError: The bytes are truncated, too long or malformed, or have a different version or an impossible size.
        ParameterError: `encode` is any other type.
        TooLargeError: The filter does not fit into memory.
    """
    encoding = text_encoding(encode)
    view = viewed(raw, MAGIC)
    if len(view) < _START:
        raise FormatError(f"truncated: expected {_START} bytes, got {len(view)}", offset=len(view), field="header")
    magic, bits, size, capacity, rate, functions, seeds, version = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise FormatError(f"not a pybloomfiltermmap3 file: it starts with {magic!r}", offset=0, field="magic")
    if size != _STRUCTURE:
        raise FormatError(f"expected a structure of {_STRUCTURE} bytes, got {size}", offset=17, field="structure")
    if version != _VERSION:
        raise FormatError(
            f"unsupported version {version} (only version {_VERSION} is supported)", offset=1077, field="version"
        )
    if not 1 <= functions <= _MAX_SEEDS:
        raise FormatError(f"expected 1 to {_MAX_SEEDS} hash functions, not {functions}", offset=37, field="hash_funcs")
    if bits < 1 or not 0 < rate < 1 or not 1 <= capacity <= MAX_COUNT:
        message = f"a filter of capacity {capacity} cannot have {bits} bits and the rate {rate!r}"
        raise FormatError(message, offset=9, field="shape")
    check_length(view, _START + (bits + 7) // 8, "bits")
    hashing = Pybloomfiltermmap3Hash(struct.unpack_from(f"<{functions}I", seeds))
    shape = bits, functions, hashing, encoding
    return filter_over(view[_START:], *shape, capacity=capacity, fp_rate=rate)
