"""Difficulty arithmetic: compact bits, targets, work, and the retarget of a difficulty period."""

from __future__ import annotations

from spvfilter._public import public
from spvfilter.kernel import header_bits

PERIOD = 2_016  # headers with the same difficulty; Core chainparams nPowTargetTimespan / nPowTargetSpacing
SPACING = 600  # seconds: the target interval between blocks; Core nPowTargetSpacing
TIMESPAN = PERIOD * SPACING  # seconds: the target duration of a period; Core nPowTargetTimespan


@public
def decode_bits(bits: int) -> tuple[int, bool, bool]:
    """Decode compact bits into an absolute value, a sign and an overflow flag (Core SetCompact).

    The highest byte is the length of the number in bytes, the next bit is its sign, and the other 23 bits are its
    leading three bytes.

    Returns:
        The absolute value; True if the bits are negative; True if they overflow 256 bits.
    """
    length, mantissa = bits >> 24, bits & 0x007FFFFF
    value = mantissa << 8 * (length - 3) if length >= 3 else mantissa >> 8 * (3 - length)
    return value, bool(value and bits & 0x00800000), value >= 1 << 256


@public
def encode_bits(value: int) -> int:
    """Return a target, 0 ≤ value < 2^256, as compact bits, rounded down (Core GetCompact)."""
    length = (value.bit_length() + 7) // 8
    mantissa = value >> 8 * (length - 3) if length >= 3 else value << 8 * (3 - length)
    if mantissa & 0x00800000:  # this bit would be the sign
        mantissa, length = mantissa >> 8, length + 1
    return length << 24 | mantissa


@public
def target(bits: int) -> int:
    """Return the target that compact bits encode: the highest value that a block hash may have.

    The target is 0 if the bits are negative, zero, or overflow 256 bits.
    """
    value, negative, overflow = decode_bits(bits)
    return 0 if negative or overflow else value


@public
def work(bits: int) -> int:
    """Return the expected number of hashes for a block with these compact bits: 2^256 // (target + 1).

    The number is 1 if the bits encode no valid target.
    """
    limit = target(bits)
    return (1 << 256) // (limit + 1) if limit else 1


@public
def total_work(headers: bytes) -> int:
    """Return the total number of hashes expected for serialized headers, 80 bytes each."""
    return sum(count * work(bits) for bits, count in header_bits(headers))


@public
def retarget(bits: int, span: int, pow_limit: int) -> int:
    """Return the compact bits of a difficulty period, given the previous one (Core CalculateNextWorkRequired).

    Core measures the span one interval too short: from the first to the last of the 2,016 headers. The span is clamped
    to between a quarter of a period and four periods.

    Args:
        bits: Compact bits of the previous period.
        span: Seconds between the first and the last header of the previous period. It may be negative.
        pow_limit: The easiest target that the network allows.
    """
    span = min(max(span, TIMESPAN // 4), TIMESPAN * 4)
    return encode_bits(min(target(bits) * span // TIMESPAN, pow_limit))
