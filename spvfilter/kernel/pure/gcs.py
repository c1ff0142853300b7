"""Golomb-coded sets: building, checking and querying them. This is the readable reference.

A set of N items is N as a CompactSize, then the differences of the sorted values siphash(item) · N·M >> 64. A
difference is its quotient by 2^P in unary (ones, then a zero), then P bits of remainder, most significant bit first.
The last byte is padded.

Source: BIP-158 § Golomb-Coded Sets; Core blockfilter.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import siphash24
from spvfilter.kernel.pure.arguments import check_iterable, snapshot, snapshots, whole
from spvfilter.primitives import compact_size, read_compact_size
from spvfilter.protocol import MAX_COMPACT_SIZE


def check_parameters(p: int, m: int) -> tuple[int, int]:
    """Return P and M as ints.

    Raises ParameterError unless 1 ≤ P ≤ 32 and 1 ≤ M < 2^32. With N ≤ 2^25, every value then fits into 64 bits.
    """
    return whole(p, 1, 32, "p must be from 1 to 32"), whole(m, 1, 0xFFFFFFFF, "m must be from 1 to 2^32 - 1")


def gcs_build(items: Iterable[bytes], key: bytes, p: int, m: int) -> bytes:
    """Build the Golomb-coded set of the distinct `items`.

    Args:
        items: The items, as bytes.
        key: 16-byte SipHash key.
        p: P, the number of bits in a remainder, from 1 to 32.
        m: M, the inverse of the false-positive rate, from 1 to 2^32 - 1.

    Raises:
        ParameterError: An argument is out of range, the key has the wrong length, or there are more than 2^25 items.
    """
    p, m = check_parameters(p, m)
    key = _key(key, "key")
    distinct = set(snapshots(items, "items"))
    if len(distinct) > MAX_COMPACT_SIZE:
        raise ParameterError(f"a set can contain at most {MAX_COMPACT_SIZE} items")
    span = len(distinct) * m
    values = sorted(siphash24(item, key) * span >> 64 for item in distinct)
    return compact_size(len(distinct)) + rice_encode((value - last for last, value in pairwise((0, *values))), p)


def rice_encode(numbers: Iterable[int], p: int) -> bytes:
    """Return the Golomb-Rice code of non-negative integers, padded with zeros to a whole byte.

    The code of a number is its quotient by 2^P in unary, then P bits of remainder.
    """
    bits, length = 0, 0
    pieces = []
    for number in numbers:
        quotient, remainder = divmod(number, 1 << p)
        bits = (bits << quotient + 1 | (1 << quotient + 1) - 2) << p | remainder
        length += quotient + 1 + p
        if length >= 4096:  # remove whole bytes, because appending to one growing number takes quadratic time
            rest = length & 7
            pieces.append((bits >> rest).to_bytes(length >> 3, "big"))
            bits, length = bits & (1 << rest) - 1, rest
    pieces.append((bits << -length % 8).to_bytes((length + 7) // 8, "big"))
    return b"".join(pieces)


def gcs_values(data: bytes, p: int) -> list[int]:
    """Return the values in a set, ascending. Raises FormatError in the same cases as gcs_check."""
    count, at = read_compact_size(data, 0, "element count")
    if count * (p + 1) > 8 * (len(data) - at):
        message = f"truncated: {count} elements of at least {p + 1} bits claimed, {len(data) - at} bytes left"
        raise FormatError(message, offset=0, field="element count")
    values: list[int] = []
    value, bit, end = 0, 8 * at, 8 * len(data)
    for number in range(count):
        quotient = _ones(data, bit)
        bit += quotient + 1 + p
        if bit > end:
            raise FormatError(
                f"truncated: the bits end within element {number} of {count}", offset=len(data), field="element"
            )
        value += quotient << p | _bits(data, bit - p, p)
        values.append(value)
    used = (bit + 7) // 8
    if left := len(data) - used:
        raise FormatError(f"{left} trailing byte{'' if left == 1 else 's'}", offset=used, field="filter")
    return values


def _ones(data: bytes, at: int) -> int:
    """Return the number of ones from bit `at` to the next zero or the end."""
    ones, end = 0, 8 * len(data)
    while at + ones < end:
        width = min(64, end - at - ones)
        zeros = _bits(data, at + ones, width) ^ (1 << width) - 1
        ones += width - zeros.bit_length()
        if zeros:
            break
    return ones


def _bits(data: bytes, at: int, count: int) -> int:
    """Return the number in `count` bits from bit `at`, most significant bit first."""
    last = (at + count + 7) // 8
    return int.from_bytes(data[at >> 3 : last], "big") >> 8 * last - at - count & (1 << count) - 1


def gcs_check(data: bytes, p: int) -> int:
    """Decode a whole set and return N, the number of its values.

    Padding bits are ignored (Core GCSFilter).

    Raises:
        FormatError: N is not canonical, above 2^25, or more than the bytes can hold; the bits end within an element; or
            there are trailing bytes.
        ParameterError: P is not between 1 and 32.
    """
    p, _ = check_parameters(p, 1)
    return len(gcs_values(snapshot(data, "data"), p))


_PAIRS = "pairs (key, data) of bytes"


class GcsQuery:
    """Items to look for in many Golomb-coded sets.

    Each set has its own SipHash key, so the items are hashed again for each set.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[bytes]) -> None:
        self._items = snapshots(items, "items")

    def __len__(self) -> int:
        return len(self._items)

    def match_any(self, data: bytes, key: bytes, p: int, m: int) -> bool:
        """Return True if a set contains any of the items. False positives are possible.

        Args:
            data: The set.
            key: 16-byte SipHash key.
            p: P, the number of bits in a remainder, from 1 to 32.
            m: M, the inverse of the false-positive rate, from 1 to 2^32 - 1.

        Raises:
            FormatError: The set is malformed. This is checked even if there are no items.
            ParameterError: P or M is out of range, or the key has the wrong length.
        """
        p, m = check_parameters(p, m)
        key, data = _key(key, "key"), snapshot(data, "data")
        values = gcs_values(data, p)
        wanted, span = set(values), len(values) * m
        return bool(values) and any(siphash24(item, key) * span >> 64 in wanted for item in self._items)

    def match_many(self, sets: Sequence[tuple[bytes, bytes]], p: int, m: int) -> bytes:
        """Query many sets, and return one byte for each set: 1 if `match_any` returns True for it, else 0.

        Args:
            sets: Pairs (key, data) of bytes.
            p: P, the number of bits in a remainder, from 1 to 32.
            m: M, the inverse of the false-positive rate, from 1 to 2^32 - 1.

        Raises:
            FormatError: A set is malformed. The error's `field` names the set.
            ParameterError: P or M is out of range, or a key has the wrong length.
        """
        p, m = check_parameters(p, m)
        check_iterable(sets, "sets", _PAIRS)
        mask = bytearray()
        for number, (key, data) in enumerate([_pair(pair) for pair in sets]):
            try:
                mask.append(self.match_any(data, key, p, m))
            except FormatError as error:
                raise FormatError(
                    error.message, offset=error.offset, field=f"{error.field} of filter {number}"
                ) from None
        return bytes(mask)


def _key(key: object, argument: str) -> bytes:
    """Return a 16-byte SipHash key. Raises ParameterError for any other length."""
    taken = snapshot(key, argument)
    if len(taken) != 16:
        raise ParameterError(f"a SipHash key must be 16 bytes long, not {len(taken)}")
    return taken


def _pair(pair: object) -> tuple[bytes, bytes]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"sets: expected {_PAIRS}, not {type(pair).__name__}")
    return _key(pair[0], "sets"), snapshot(pair[1], "sets")
