"""BitCore, the bits and operations of a generic filter: the readable reference. The rest of the pure kernel is in pure.py."""

from __future__ import annotations

from spvfilter.hashes import murmur3

_SEED_STEP = 0xFBA4C795  # BIP-37 § Bloom filter format: seed of function i is i * this + tweak, mod 2^32


class BitCore:
    """A bit array with k hash functions; bit b is `1 << (b & 7)` of byte `b >> 3`, as BIP-37 lays it out.

    Function i is murmur3(item, i * 0xFBA4C795 + tweak) mod `bits`. With no bits or no functions everything is
    contained and adding does nothing, as in Core since 0.21 (CVE-2013-5700: never divide by the size).
    """

    __slots__ = ("_buffer", "_seeds", "bits", "hash_funcs", "tweak")

    def __init__(self, bits: int, hash_funcs: int, tweak: int, buffer: bytearray) -> None:
        self.bits = bits
        self.hash_funcs = hash_funcs
        self.tweak = tweak
        self._buffer = buffer
        self._seeds = [(i * _SEED_STEP + tweak) & 0xFFFFFFFF for i in range(hash_funcs)]

    @property
    def buffer(self) -> bytearray:
        """The bits themselves, not a copy."""
        return self._buffer

    def add(self, item: bytes) -> bool:
        """Set the item's bits; True if it was new, that is, if any of them was not set before."""
        if not self.bits:
            return False
        new = False
        for seed in self._seeds:
            at = murmur3(item, seed) % self.bits
            mask = 1 << (at & 7)
            if not self._buffer[at >> 3] & mask:
                self._buffer[at >> 3] |= mask
                new = True
        return new

    def __contains__(self, item: bytes) -> bool:
        if not self.bits:
            return True
        for seed in self._seeds:
            at = murmur3(item, seed) % self.bits
            if not self._buffer[at >> 3] >> (at & 7) & 1:
                return False
        return True

    def set_bits(self) -> int:
        """How many bits are 1."""
        return int.from_bytes(self._buffer, "little").bit_count()
