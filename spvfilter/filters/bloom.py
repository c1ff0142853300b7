"""BloomFilter, the generic core under BIP-37: bits, hash functions and what can be said of them. Nothing of Bitcoin is in here."""

from __future__ import annotations

import math

from spvfilter.kernel import BitCore


class BloomFilter(BitCore):
    """A set that may say yes to what was never added, at a known rate, and never says no to what was."""

    __slots__ = ()

    @property
    def fill(self) -> float:
        """Share of the bits that are set, 0 to 1. An empty bit field counts as full: it contains everything."""
        return self.set_bits() / self.bits if self.bits else 1.0

    @property
    def current_fp_rate(self) -> float:
        """Probability that an item never added is contained, as the filter stands: (X/m)^k."""
        return self.fill**self.hash_funcs

    @property
    def estimated_elements(self) -> float:
        """How many items were probably added: -(m/k) ln(1 - X/m); infinite when every bit is set."""
        fill = self.fill
        if fill >= 1 or not self.hash_funcs:
            return math.inf
        return -self.bits / self.hash_funcs * math.log1p(-fill)
