"""Read and write the filters of RedisBloom, the BF commands of Redis Stack: chunks of BF.SCANDUMP and BF.LOADCHUNK.

A chunk is a pair of a number and bytes. The first chunk has the number 1 and contains the header, packed, little
endian:

    items u64, sub-filters u32, options u32 (1 no rounding, 2 sized by bits, 4 64-bit hashes, 8 does not grow,
    2^31 has a seed), expansion u32
    for each sub-filter: bytes u64, bits u64, items u64, rate f64, bits per key f64, hash functions u32,
    capacity u64, n2 u8
    if the options say so: seed of the hash functions, u64

The other chunks contain the bits of the sub-filters, in pieces of up to 16 MB. The number of a piece is 1 plus the
number of bytes up to its end. Bit b is 1 << (b % 8) of byte b // 8. Source: sb.c and bloom.c of RedisBloom 2.8.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import Encode, allocate, refuse_false_rate
from spvfilter.bloom.exchange.hashes import RedisBloomHash
from spvfilter.bloom.fileformat import KIND_BITS, MAX_CELLS, MAX_HASH_FUNCS, FileHeader
from spvfilter.bloom.filter import BloomFilter, refuse_other_kinds
from spvfilter.bloom.sizing import MAX_COUNT
from spvfilter.errors import FormatError, ParameterError, counted
from spvfilter.kernel import Encoding, Family

_HEADER, _LINK = struct.Struct("<QIII"), struct.Struct("<QQQddIQB")
_NO_ROUNDING, _LONG_HASHES, _FIXED, _SEEDED = 1, 4, 8, 1 << 31  # Options in the header.
_KNOWN = 15 | _SEEDED  # All options that are defined.
_SEED = 0xC6A4A7935BD1E995  # The seed that all filters had before filters had seeds of their own.
_MAX_FILTERS = 64  # Sub-filters (our choice): each one is as large as all previous ones, unless the expansion is 1.
PIECE = 16 << 20  # Bytes of a chunk, as in RedisBloom.
_LN2, _LN2_SQUARED = 0.693147180559945, 0.480453013918201  # With the digits that RedisBloom uses.
_ENCODINGS: dict[Encode, Encoding] = {None: Encoding.BYTES, "utf-8": Encoding.UTF8}


class _Link(NamedTuple):
    """The part of the header that describes one sub-filter."""

    bytes: int
    bits: int
    items: int
    fp_rate: float
    bits_per_key: float
    hash_funcs: int
    capacity: int
    n2: int


@public
def redisbloom_filter(capacity: int, fp_rate: float, *, encode: Encode = None) -> BloomFilter:
    """Return an empty filter of the size that `BF.RESERVE key fp_rate capacity NONSCALING` reserves in RedisBloom.

    Args:
        capacity: Number of keys.
        fp_rate: Highest false-positive rate at `capacity` keys, between 0 and 1.
        encode: Type of the keys: None for bytes, "utf-8" for strings.

    Raises:
        ParameterError: An argument is outside its domain.
        TooLargeError: The filter does not fit into memory.
    """
    capacity = sizing.whole("capacity", capacity, 1, MAX_COUNT)
    fp_rate = sizing.probability(fp_rate)
    _refuse_encoding(encode)
    each = -math.log(fp_rate) / _LN2_SQUARED
    bits = max(1, int(capacity * each))
    link = _Link(0, -(-bits // 64) * 64, 0, fp_rate, each, math.ceil(_LN2 * each), capacity, 0)
    if link.bits > MAX_CELLS or link.hash_funcs > MAX_HASH_FUNCS:
        raise ParameterError(
            f"{counted(capacity, 'key')} at {fp_rate:g} would need {link.bits} bits and {link.hash_funcs} hash"
            f" functions, but at most {MAX_CELLS} and {MAX_HASH_FUNCS} are supported"
        )
    refuse_false_rate(RedisBloomHash(), link.bits, link.hash_funcs, capacity, fp_rate)
    return _made(link, encode)


@public
def read_redisbloom(chunks: Iterable[tuple[int, bytes]], *, encode: Encode = None) -> list[BloomFilter]:
    """Read the chunks that BF.SCANDUMP returned, and return the sub-filters.

    A filter that has grown has several sub-filters. It contains a key if any of them does.

    Args:
        chunks: Number and bytes of each chunk, in order.
        encode: Type of the keys, which the chunks do not contain: None for bytes, "utf-8" for strings.

    Raises:
        FormatError: The chunks are truncated, damaged, too many or out of order. Also raised if the filter has a seed
            other than the default, or 32-bit hashes, which RedisBloom no longer makes.
        ParameterError: `encode` is a type that Redis does not have.
        TooLargeError: A sub-filter does not fit into memory.
    """
    _refuse_encoding(encode)
    given = iter(chunks)
    number, header = next(given, (0, b""))
    if number != 1:
        raise FormatError(f"the first chunk must have number 1, not {number}", offset=0, field="chunk")
    links = [*_links(header)]
    filters = [_made(link, encode) for link in links]
    bodies = [memoryview(made.buffer).cast("B") for made in filters]
    at, within = 0, 0  # the sub-filter to fill, and the number of its bytes that are filled
    done = 1
    for number, piece in given:
        if number != done + len(piece) or not piece:
            message = f"expected number {done + len(piece)} for a chunk of {counted(len(piece), 'byte')}, got {number}"
            raise FormatError(message if piece else "a chunk is empty", offset=0, field="chunk")
        if at == len(bodies) or len(piece) > len(bodies[at]) - within:
            raise FormatError(
                f"a chunk of {counted(len(piece), 'byte')} is longer than the remaining bits", offset=0, field="chunk"
            )
        bodies[at][within : within + len(piece)] = piece
        done, within = number, within + len(piece)
        if within == len(bodies[at]):
            at, within = at + 1, 0
    if at < len(bodies):
        raise FormatError(
            f"truncated: expected {sum(map(len, bodies))} bytes, got {done - 1}", offset=done - 1, field="chunk"
        )
    return filters


@public
def write_redisbloom(filter: BloomFilter) -> Iterator[tuple[int, bytes]]:
    """Yield the chunks of a filter for BF.LOADCHUNK. The filter in Redis does not grow (NONSCALING).

    The filter needs RedisBloomHash as its hash family, and a capacity: use one made by `redisbloom_filter` or
    `read_redisbloom`. Its item count, which BF.CARD returns, is an estimate.

    Raises ParameterError if these conditions are not met, and TypeError if `filter` is not a BloomFilter.
    """
    refuse_other_kinds(filter)
    capacity, rate = filter.capacity, filter.nominal_fp_rate
    if not isinstance(filter.hashing, RedisBloomHash) or capacity is None or rate is None:
        raise ParameterError(f"RedisBloom cannot load this filter; make it with redisbloom_filter: {filter!r}")
    each = -math.log(rate) / _LN2_SQUARED
    if filter.partitioned or filter.bits % 64 or filter.hash_funcs != math.ceil(_LN2 * each):
        raise ParameterError(f"RedisBloom cannot load this filter; make it with redisbloom_filter: {filter!r}")
    estimate = filter.approx_len
    items = capacity if math.isinf(estimate) else round(estimate)
    body = filter.dump()
    link = _Link(len(body), filter.bits, items, rate, each, filter.hash_funcs, capacity, 0)
    header = _HEADER.pack(items, 1, _NO_ROUNDING | _LONG_HASHES | _FIXED, 2) + _LINK.pack(*link)
    return iter(
        [
            (1, header),
            *((1 + min(at + PIECE, len(body)), body[at : at + PIECE]) for at in range(0, len(body), PIECE)),
        ]
    )


def redisbloom_bytes(filter: BloomFilter) -> bytes:
    """Concatenate the chunks of a filter without their numbers. Raises the same errors as `write_redisbloom`."""
    return b"".join(piece for _, piece in write_redisbloom(filter))


def redisbloom_chunks(raw: memoryview) -> Iterator[tuple[int, bytes]]:
    """Yield the chunks in the bytes of `redisbloom_bytes`. `read_redisbloom` checks them."""
    size = _HEADER.size
    if len(raw) >= size:
        _, count, options, _ = _HEADER.unpack_from(raw)
        size += min(count, _MAX_FILTERS) * _LINK.size + (8 if options & _SEEDED else 0)
    header = bytes(raw[:size])
    yield 1, header
    at = size
    for link in _links(header):
        if piece := bytes(raw[at : at + link.bytes]):
            yield 1 + at - size + len(piece), piece
        at += link.bytes
    if len(raw) > at:
        raise FormatError(counted(len(raw) - at, "trailing byte"), offset=at, field="file")


def _links(raw: bytes) -> Iterator[_Link]:
    """Yield the description of each sub-filter in the header. Raises FormatError."""
    if len(raw) < _HEADER.size:
        raise FormatError(f"truncated: expected {_HEADER.size} bytes, got {len(raw)}", offset=len(raw), field="header")
    _, count, options, _ = _HEADER.unpack_from(raw)
    if not 1 <= count <= _MAX_FILTERS:
        raise FormatError(f"expected 1 to {_MAX_FILTERS} sub-filters, not {count}", offset=8, field="sub-filters")
    if options & ~_KNOWN or not options & _LONG_HASHES:
        raise FormatError(
            f"unsupported options {options:#x} (only filters with 64-bit hashes are supported)",
            offset=12,
            field="options",
        )
    end = _HEADER.size + count * _LINK.size
    size = end + 8 if options & _SEEDED else end
    if len(raw) != size:
        seed = " and a seed" if options & _SEEDED else ""
        message = f"{count} sub-filters{seed} take {size} bytes, not {len(raw)}"
        raise FormatError(message, offset=min(len(raw), size), field="header")
    if options & _SEEDED and (seed_there := int.from_bytes(raw[end:], "little")) != _SEED:
        message = f"unsupported seed {seed_there:#x} (only filters with the default seed {_SEED:#x} are supported)"
        raise FormatError(message, offset=end, field="seed")
    for at in range(_HEADER.size, end, _LINK.size):
        link = _Link(*_LINK.unpack_from(raw, at))
        if (
            not 64 <= link.bits <= MAX_CELLS
            or link.bits % 64
            or link.bits != 8 * link.bytes
            or (link.n2 and link.bits != 1 << link.n2)
        ):
            message = f"a sub-filter cannot have {link.bits} bits in {link.bytes} bytes, rounded to 2^{link.n2}"
            raise FormatError(message, offset=at, field="bits")
        if not 1 <= link.hash_funcs <= MAX_HASH_FUNCS:
            message = f"expected 1 to {MAX_HASH_FUNCS} hash functions, not {link.hash_funcs}"
            raise FormatError(message, offset=at + 40, field="hash_funcs")
        if not 0 < link.fp_rate < 1 or not 1 <= link.capacity <= MAX_COUNT:  # also rejects NaN
            message = f"a sub-filter of capacity {link.capacity} cannot have the rate {link.fp_rate}"
            raise FormatError(message, offset=at + 24, field="fp_rate")
        yield link


def _made(link: _Link, encode: Encode) -> BloomFilter:
    shape = (_ENCODINGS[encode], 0, link.hash_funcs, link.bits, link.capacity, link.fp_rate, RedisBloomHash().key)
    header = FileHeader(KIND_BITS, Family.REDISBLOOM, *shape)
    return BloomFilter._made(header, RedisBloomHash(), None, allocate(link.bits // 8), private=True)


def _refuse_encoding(encode: Encode) -> None:
    if callable(encode) or encode not in _ENCODINGS:
        raise ParameterError(f"encode must be None or 'utf-8' for a RedisBloom filter, not {encode!r}")
