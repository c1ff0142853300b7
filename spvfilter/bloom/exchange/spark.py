"""Read and write the bytes of Spark's BloomFilter (org.apache.spark.util.sketch).

All integers are big endian:

    version, i32: 1 or 2
    number of hash functions, i32
    seed, i32, only in version 2
    number of words, i32
    64-bit words

Bit b is bit b % 64 of word b // 64. Source: BloomFilterImpl, BloomFilterImplV2 and BitArray of Spark 4.3.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import Encode, allocate, refuse_false_rate
from spvfilter.bloom.exchange.hashes import SparkHash
from spvfilter.bloom.exchange.parts import WORD, check_functions, check_length, number, swap, viewed
from spvfilter.bloom.fileformat import KIND_BITS, FileHeader
from spvfilter.bloom.filter import BloomFilter, refuse_other_kinds
from spvfilter.errors import FormatError, ParameterError, counted
from spvfilter.kernel import Encoding

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAX_INT = (1 << 31) - 1  # Largest int of Java.
_ENCODINGS: dict[Encode, Encoding] = {None: Encoding.BYTES, "utf-8": Encoding.UTF8, "int64": Encoding.INT64}


@public
def spark_filter(
    capacity: int, fp_rate: float, *, version: int = 2, seed: int = 0, encode: Encode = None
) -> BloomFilter:
    """Return an empty filter of the size that Spark's BloomFilter.create(capacity, fp_rate) chooses.

    The new filter can be combined with a Spark filter. It is never full.

    Args:
        capacity: Number of keys.
        fp_rate: Highest false-positive rate at `capacity` keys, between 0 and 1.
        version: 1 or 2, the version of Spark's hash functions (SparkHash).
        seed: Seed of version 2, an i32.
        encode: Type of the keys: None for bytes, "utf-8" for strings, "int64" for integers.

    Raises:
        ParameterError: An argument is outside its domain, or version 1 is not uniform over that many bits.
        TooLargeError: The filter does not fit into memory.
    """
    capacity = sizing.whole("capacity", capacity, 1, 1 << 48)
    fp_rate = sizing.probability(fp_rate)
    _refuse_encoding(encode)
    bits = int(-capacity * math.log(fp_rate) / (math.log(2) * math.log(2)))
    if bits < 1:
        raise ParameterError(
            f"a filter for {counted(capacity, 'key')} at fp_rate {fp_rate:g} would have no bits, which Spark does not"
            " allow: choose a lower fp_rate"
        )
    functions = max(1, math.floor(bits / capacity * math.log(2) + 0.5))
    whole = -(-bits // WORD) * WORD
    hashing = SparkHash(version, seed)
    refuse_false_rate(hashing, whole, functions, capacity, fp_rate)
    return BloomFilter(bits=whole, hash_funcs=functions, hashing=hashing, encode=encode)


@public
def read_spark(raw: Buffer, *, encode: Encode = None) -> BloomFilter:
    """Return the filter in the bytes that Spark's BloomFilter.writeTo wrote. Its hash family is SparkHash.

    Args:
        raw: The bytes.
        encode: Type of the keys, which the bytes do not contain: None for bytes, "utf-8" for strings, "int64" for
            integers.

    Raises:
        FormatError: The bytes are truncated or too long, or have a different version or an impossible size.
        ParameterError: `encode` is a type that Spark does not have.
        TooLargeError: The filter does not fit into memory.
    """
    _refuse_encoding(encode)
    view = viewed(raw)
    version = number(view, 0, 4, "version", signed=True)
    if version not in (1, 2):
        raise FormatError(f"unsupported version {version} (only 1 and 2 are supported)", offset=0, field="version")
    functions = number(view, 4, 4, "hash_funcs", signed=True)
    check_functions(functions, 4)
    at = 4 + 4 * version
    seed = number(view, 8, 4, "seed", signed=True) if version == 2 else 0
    words = number(view, at, 4, "words", signed=True)
    start = at + 4
    if words < 1:
        raise FormatError(f"expected at least 1 word, not {words}", offset=at, field="words")
    check_length(view, start + 8 * words, "words")
    buffer = allocate(8 * words)
    swap(view[start:], memoryview(buffer).cast("B"))
    hashing = SparkHash(version, seed)
    header = FileHeader(KIND_BITS, hashing.family, _ENCODINGS[encode], 0, functions, words * WORD, 0, 0.0, hashing.key)
    return BloomFilter._made(header, hashing, None, buffer, private=True)


@public
def write_spark(filter: BloomFilter) -> bytes:
    """Return the bytes of a filter that Spark's BloomFilter.readFrom can read.

    The filter must have SparkHash as its hash family, keys of bytes, utf-8 or int64, and whole 64-bit words. It must
    not be partitioned. Raises ParameterError if these conditions are not met, and TypeError if `filter` is not a
    BloomFilter.
    """
    refuse_other_kinds(filter)
    hashing = filter.hashing
    if not isinstance(hashing, SparkHash):
        raise ParameterError(
            f"a filter for Spark needs SparkHash as its hash family, not {hashing!r}: make it with spark_filter"
        )
    if (
        filter.partitioned
        or filter.bits % WORD
        or filter.bits // WORD > _MAX_INT
        or filter.encoding not in _ENCODINGS.values()
    ):
        raise ParameterError(f"Spark cannot read this filter; make it with spark_filter: {filter!r}")
    seed = struct.pack(">i", hashing.seed) if hashing.version == 2 else b""
    head = struct.pack(">ii", hashing.version, filter.hash_funcs) + seed + struct.pack(">i", filter.bits // WORD)
    body = bytearray(filter.bits // 8)
    swap(filter.body, memoryview(body))
    return head + bytes(body)


def _refuse_encoding(encode: Encode) -> None:
    if callable(encode) or encode not in _ENCODINGS:
        raise ParameterError(f"encode must be None, 'utf-8' or 'int64' for a Spark filter, not {encode!r}")
