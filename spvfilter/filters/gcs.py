"""Golomb-coded sets: hashes in few bits, to be sent and asked, not changed. The coding is the kernel's; nothing of Bitcoin is here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import GcsQuery as GcsQuery, gcs_build, gcs_check

GcsQuery.__module__ = "spvfilter.filters"  # of either kernel


@public
class GolombCodedSet:
    """A set of N items that may say yes to what is not in it, at a rate of 1/M; P ≈ log2(M) - 0.2 makes it smallest.

    `bytes(s)` is N as CompactSize and the coded differences (BIP-158 § Golomb-Coded Sets). `key` is a SipHash key of 16 bytes. An object
    that exists is sound: `parse` reads the whole set.
    """

    __slots__ = ("_data", "key", "m", "n", "p")

    def __init__(self, data: bytes, key: bytes, p: int, m: int) -> None:
        if len(key) != 16:
            raise ParameterError(f"a SipHash key has 16 bytes, not {len(key)}")
        if not 1 <= m < 1 << 32:
            raise ParameterError(f"M is from 1 to 2^32 - 1: {m}")
        self.n = gcs_check(data, p)
        self._data = data
        self.key = key
        self.p = p
        self.m = m

    @classmethod
    def build(cls, items: Iterable[bytes], key: bytes, p: int, m: int) -> Self:
        """The set of `items`; equal ones count once. Raises ParameterError for 1 ≤ P ≤ 32, 1 ≤ M < 2^32 and 2^25 items exceeded."""
        return cls(gcs_build(items, key, p, m), key, p, m)

    @classmethod
    def parse(cls, data: bytes, key: bytes, p: int, m: int) -> Self:
        """The set in its bytes. Raises FormatError: N not canonical, above 2^25 or more than fit; bits missing; bytes left over."""
        return cls(bytes(data), key, p, m)

    def __bytes__(self) -> bytes:
        return self._data

    def __len__(self) -> int:
        return self.n

    def __contains__(self, item: bytes) -> bool:
        return self.match_any((item,))

    def match_any(self, items: Iterable[bytes] | GcsQuery) -> bool:
        """Whether any of the items is in the set, or seems to be. For many sets make the query once: `GcsQuery(items)`."""
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
