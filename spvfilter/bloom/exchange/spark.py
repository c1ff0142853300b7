"""Spark's BloomFilter (org.apache.spark.util.sketch): its bytes, and its hash functions for a BloomFilter of this package.

All integers are big endian:

    version, i32: 1 or 2 · number of hash functions, i32 · seed, i32, in version 2 alone · number of words, i32 · words of 64 bits

Bit b is bit b % 64 of word b // 64. Source: BloomFilterImpl, BloomFilterImplV2, BitArray and Murmur3_x86_32 of
Spark 4.3.
"""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.bloom.base import Encode, allocate
from spvfilter.bloom.fileformat import KIND_BITS, MAX_HASH_FUNCS, FileHeader
from spvfilter.bloom.filter import BloomFilter
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import Encoding, Family

if TYPE_CHECKING:
    from typing_extensions import Buffer

_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1
_MAX_INT = (1 << 31) - 1  # of Java
_WORD = 64  # bits
_ENCODINGS: dict[Encode, Encoding] = {None: Encoding.BYTES, "utf-8": Encoding.UTF8, "int64": Encoding.INT64}


@public
@dataclass(frozen=True, slots=True)
class SparkHash:
    """The hash functions of Spark's BloomFilter: a hash family whose functions, in Python, take some 10 µs a key.

    Version 1 is that of Spark before 4.1, version 2, which has a seed, an i32, of later ones; it needs a filter's whole 64-bit range. Keys
    that are encoded as int64 are Spark's integers (putLong), as utf-8 its strings, bytes its binaries. Raises ParameterError for other
    versions, a seed in version 1, and one that is no i32.
    """

    version: int = 2
    seed: int = 0
    family = Family.CUSTOM

    def __post_init__(self) -> None:
        if self.version not in (1, 2):
            raise ParameterError(f"version must be 1 or 2: {self.version!r}")
        if not isinstance(self.seed, int) or not -_MAX_INT - 1 <= self.seed <= _MAX_INT:
            raise ParameterError(f"seed is not an i32: {self.seed!r}")
        if self.version == 1 and self.seed:
            raise ParameterError(f"version 1 has no seed: {self.seed!r}")

    @property
    def key(self) -> bytes:
        """The first 16 bytes of the SHA-256 of what it is."""
        return hashlib.sha256(b"org.apache.spark.util.sketch.BloomFilter %d %d" % (self.version, self.seed)).digest()[:16]

    def functions(self, hash_funcs: int) -> list[Callable[[bytes], int]]:
        """The functions, of which those of one key are computed together."""
        places = lru_cache(maxsize=1)(partial(_first if self.version == 1 else _second, self.seed & _M32, hash_funcs))
        return [partial(_place, places, number) for number in range(hash_funcs)]


def _place(places: Callable[[bytes], list[int]], number: int, data: bytes) -> int:
    return places(data)[number]


def _first(seed: int, hash_funcs: int, data: bytes) -> list[int]:
    """Version 1: h1 + i h2 in 32 bits, negative ones complemented."""
    start = _murmur(data, seed)
    step = _murmur(data, start)
    places = []
    for number in range(1, hash_funcs + 1):
        place = start + number * step & _M32
        places.append(place ^ _M32 if place >> 31 else place)
    return places


def _second(seed: int, hash_funcs: int, data: bytes) -> list[int]:
    """Version 2: h1 (2^31 - 1) + i h2 in 64 bits, negative ones complemented."""
    start = _murmur(data, seed)
    step = _signed(_murmur(data, start))
    places, place = [], _signed(start) * _MAX_INT & _M64
    for _ in range(hash_funcs):
        place = place + step & _M64
        places.append(place ^ _M64 if place >> 63 else place)
    return places


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


def _murmur(data: bytes, seed: int) -> int:
    """Spark's murmur3 x86_32: as the published one for whole words, but each byte after them is a word of its own, sign extended."""
    whole = len(data) & ~3
    hashed = seed
    for word in (*struct.unpack(f"<{whole // 4}I", data[:whole]), *struct.unpack(f"{len(data) - whole}b", data[whole:])):
        mixed = (word & _M32) * 0xCC9E2D51 & _M32
        mixed = (mixed << 15 | mixed >> 17) * 0x1B873593 & _M32
        hashed ^= mixed
        hashed = (hashed << 13 | hashed >> 19) & _M32
        hashed = hashed * 5 + 0xE6546B64 & _M32
    hashed ^= len(data) & _M32
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _M32
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _M32
    return hashed ^ hashed >> 16


@public
def spark_filter(capacity: int, fp_rate: float, *, version: int = 2, seed: int = 0, encode: Encode = None) -> BloomFilter:
    """An empty filter of the size that Spark's BloomFilter.create(capacity, fp_rate) has, so that the two can be united.

    It is never full. `encode` is None for bytes, "utf-8" for strings or "int64" for integers. Raises ParameterError, TooLargeError.
    """
    if not isinstance(capacity, int) or isinstance(capacity, bool) or not 1 <= capacity <= 1 << 48:
        raise ParameterError(f"capacity must be a whole number from 1 to 2^48: {capacity!r}")
    if not isinstance(fp_rate, float) or not 0 < fp_rate < 1:
        raise ParameterError(f"fp_rate must be a number between 0 and 1, both excluded: {fp_rate!r}")
    _refuse_encoding(encode)
    bits = int(-capacity * math.log(fp_rate) / (math.log(2) * math.log(2)))
    if bits < 1:
        raise ParameterError(f"{capacity} keys at {fp_rate:g} take no bit, which Spark refuses")
    functions = max(1, math.floor(bits / capacity * math.log(2) + 0.5))
    whole = -(-bits // _WORD) * _WORD
    return BloomFilter(bits=whole, hash_funcs=functions, hashing=SparkHash(version, seed), encode=encode)


@public
def read_spark(raw: Buffer, *, encode: Encode = None) -> BloomFilter:
    """The filter in what Spark's BloomFilter.writeTo has written, with SparkHash as its hash family.

    The bytes do not tell the type of keys: `encode` is None for bytes, "utf-8" for strings or "int64" for integers. Raises FormatError if
    they are truncated, too long, or of another version or an absurd size; ParameterError for other encodings, TooLargeError.
    """
    _refuse_encoding(encode)
    view = memoryview(raw).cast("B")
    version = _int(view, 0, "version")
    if version not in (1, 2):
        raise FormatError(f"version {version}, only 1 and 2 are supported", offset=0, field="version")
    functions = _int(view, 4, "hash_funcs")
    if not 1 <= functions <= MAX_HASH_FUNCS:
        raise FormatError(f"{functions} hash functions", offset=4, field="hash_funcs")
    at = 4 + 4 * version
    seed = _int(view, 8, "seed") if version == 2 else 0
    words = _int(view, at, "words")
    start = at + 4
    if words < 1:
        raise FormatError(f"{words} words", offset=at, field="words")
    if len(view) != start + 8 * words:
        size = start + 8 * words
        said = f"truncated: {size} bytes wanted, {len(view)} present" if len(view) < size else f"{len(view) - size} trailing bytes"
        raise FormatError(said, offset=min(len(view), size), field="words")
    buffer = allocate(8 * words)
    _swap(view[start:], memoryview(buffer).cast("B"))
    hashing = SparkHash(version, seed)
    header = FileHeader(KIND_BITS, Family.CUSTOM, _ENCODINGS[encode], 0, functions, words * _WORD, 0, 0.0, hashing.key)
    return BloomFilter._made(header, hashing, None, buffer, private=True)


@public
def write_spark(filter: BloomFilter) -> bytes:
    """What Spark's BloomFilter.readFrom reads. Raises ParameterError for a filter that Spark cannot have.

    Such a filter has SparkHash as its hash family and keys of bytes, utf-8 or int64, is not partitioned, and has whole words of 64 bits.
    """
    hashing = filter.hashing
    if not isinstance(hashing, SparkHash):
        raise ParameterError(f"a filter for Spark has SparkHash as its hash family, not {hashing!r}: make it with spark_filter")
    if filter.partitioned or filter.bits % _WORD or filter.bits // _WORD > _MAX_INT or filter.encoding not in _ENCODINGS.values():
        raise ParameterError(f"Spark has no such filter: {filter!r}")
    seed = struct.pack(">i", hashing.seed) if hashing.version == 2 else b""
    head = struct.pack(">ii", hashing.version, filter.hash_funcs) + seed + struct.pack(">i", filter.bits // _WORD)
    body = bytearray(filter.bits // 8)
    _swap(filter.body, memoryview(body))
    return head + bytes(body)


def _refuse_encoding(encode: Encode) -> None:
    if callable(encode) or encode not in _ENCODINGS:
        raise ParameterError(f"encode must be None, 'utf-8' or 'int64', which Spark has, not {encode!r}")


def _int(view: memoryview, at: int, field: str) -> int:
    if len(view) < at + 4:
        raise FormatError(f"truncated: {at + 4} bytes wanted, {len(view)} present", offset=len(view), field=field)
    return int.from_bytes(view[at : at + 4], "big", signed=True)


def _swap(source: memoryview, target: memoryview) -> None:
    """Turn each word of 8 bytes around."""
    for at in range(0, len(source), 1 << 20):
        words = array("Q", bytes(source[at : at + (1 << 20)]))
        words.byteswap()
        target[at : at + 8 * len(words)] = words.tobytes()
