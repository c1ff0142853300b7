"""Golomb-coded sets (BIP-158): compact, immutable sets of hashes with a fixed false-positive rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import GcsQuery as GcsQuery, gcs_build, gcs_check

GcsQuery.__module__ = "spvfilter.filters"  # the name under which both kernels' classes are public


@public
class GolombCodedSet:
    """An immutable set of N items with a false-positive rate of 1/M.

    `bytes(s)` is N as a CompactSize, then the coded differences of the sorted hashes (BIP-158 § Golomb-Coded Sets). The
    constructor checks the whole encoding.

    Args:
        data: The encoded set.
        key: SipHash key, 16 bytes.
        p: Golomb-Rice parameter P in bits, from 1 to 32. The set is smallest for P ≈ log2(M) - 0.2.
        m: Inverse M of the false-positive rate, from 1 to 2^32 - 1.

    Raises:
        ParameterError: The key, P or M is out of range.
        FormatError: The encoded set is malformed.
    """

    __slots__ = ("_data", "key", "m", "n", "p")

    def __init__(self, data: bytes, key: bytes, p: int, m: int) -> None:
        if len(key) != 16:
            raise ParameterError(f"a SipHash key must be 16 bytes long, not {len(key)}")
        if not 1 <= m < 1 << 32:
            raise ParameterError(f"m must be from 1 to 2^32 - 1, not {m}")
        self.n: int = gcs_check(data, p)
        self._data = data
        self.key: bytes = key
        self.p: int = p
        self.m: int = m

    @classmethod
    def build(cls, items: Iterable[bytes], key: bytes, p: int, m: int) -> Self:
        """Build the set of `items`.

        Args:
            items: The items, at most 2^25; duplicates count once.
            key: SipHash key, 16 bytes.
            p: Golomb-Rice parameter P in bits, from 1 to 32.
            m: Inverse M of the false-positive rate, from 1 to 2^32 - 1.

        Raises:
            ParameterError: The key, P or M is out of range, or there are too many items.
        """
        return cls(gcs_build(items, key, p, m), key, p, m)

    @classmethod
    def parse(cls, data: bytes, key: bytes, p: int, m: int) -> Self:
        """Parse an encoded set. The arguments are the same as for the constructor.

        Raises:
            ParameterError: The key, P or M is out of range.
            FormatError: The data is truncated or has trailing bytes, or the number of items N is not a canonical
                CompactSize, is above 2^25, or is too large for the data.
        """
        return cls(bytes(data), key, p, m)

    def __bytes__(self) -> bytes:
        return self._data

    def __len__(self) -> int:
        return self.n

    def __contains__(self, item: bytes) -> bool:
        return self.match_any((item,))

    def match_any(self, items: Iterable[bytes] | GcsQuery) -> bool:
        """Return True if at least one item is in the set. False positives are possible.

        To look up the same items in many sets, make one `GcsQuery(items)` and pass it each time.
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
