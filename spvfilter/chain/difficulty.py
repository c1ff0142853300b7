"""Difficulty: compact bits, targets, work, and the retarget. Which bits a header must have is decided in rules.py."""

from __future__ import annotations


def target(bits: int) -> int:
    """The number a block's hash must not exceed, from its compact bits; 0 where they are negative, zero or overflow (Core SetCompact)."""
    exponent, mantissa = bits >> 24, bits & 0x007FFFFF
    expanded = mantissa << 8 * (exponent - 3) if exponent >= 3 else mantissa >> 8 * (3 - exponent)
    return 0 if bits & 0x00800000 or expanded >= 1 << 256 else expanded


def work(bits: int) -> int:
    """Expected hashes for a block with these compact bits, 2^256 // (target + 1); 1 where the target is no target."""
    limit = target(bits)
    return (1 << 256) // (limit + 1) if limit else 1
