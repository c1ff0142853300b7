"""Golomb-coded sets: compact, immutable sets of hashes with a bounded false-positive rate, as BIP-158 encodes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import GcsQuery as GcsQuery, gcs_build, gcs_check

GcsQuery.__module__ = "spvfilter.filters"  # of either kernel


@public
class GolombCodedSet:
    """An immutable set of N items with a false-positive rate of 1/M; it is smallest for P ≈ log2(M) - 0.2.

    `bytes(s)` is N as CompactSize, then the coded differences (BIP-158 § Golomb-Coded Sets). `key` is a SipHash key of
    16 bytes. The constructor checks the whole encoding, so every object is valid. Raises ParameterError unless the key
    has 16 bytes, 1 ≤ P ≤ 32 and 1 ≤ M < 2^32, FormatError for a malformed set.
    """

    __slots__ = ("_data", "key", "m", "n", "p")

    def __init__(self, data: bytes, key: bytes, p: int, m: int) -> None:
        if len(key) != 16:
            raise ParameterError(f"a SipHash key has 16 bytes, not {len(key)}")
        if not 1 <= m < 1 << 32:
            raise ParameterError(f"M must be from 1 to 2^32 - 1: {m}")
        self.n = gcs_check(data, p)
        self._data = data
        self.key = key
        self.p = p
        self.m = m

    @classmethod
    def build(cls, items: Iterable[bytes], key: bytes, p: int, m: int) -> Self:
        """The set of `items`, duplicates counting once.

        Raises ParameterError unless 1 ≤ P ≤ 32, 1 ≤ M < 2^32 and N ≤ 2^25.
        """
        return cls(gcs_build(items, key, p, m), key, p, m)

    @classmethod
    def parse(cls, data: bytes, key: bytes, p: int, m: int) -> Self:
        """The set in its encoding.

        Raises FormatError if N is not canonical, above 2^25 or too large for the data, or if the data is truncated or
        has trailing bytes.
        """
        return cls(bytes(data), key, p, m)

    def __bytes__(self) -> bytes:
        return self._data

    def __len__(self) -> int:
        return self.n

    def __contains__(self, item: bytes) -> bool:
        return self.match_any((item,))

    def match_any(self, items: Iterable[bytes] | GcsQuery) -> bool:
        """Whether any of the items is in the set; false positives are possible.

        To query many sets, make `GcsQuery(items)` once.
        """
        query = items if isinstance(items, GcsQuery) else GcsQuery(items)
        return query.match_any(self._data, self.key, self.p, self.m)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GolombCodedSet):
            return NotImplemented
        return (self._data, self.key, self.p, self.m) == (other._data, other.key, other.p, other.m)

    def __hash__(self) -> int:
        return hash((self._data, self.key, self.p, self.m))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} N={self.n}, P={self.p}, M={self.m}, {len(self._data)} bytes>"
