"""Filter hashes and filter headers of the best chain, in memory (64 bytes per block)."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.kernel import chain_filter_headers
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER

_SIZE = 32  # bytes of a hash


class FilterRows:
    """Filter hashes from the genesis block on; each filter header follows from the ones below (BIP-157)."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        """`pieces` are the saved filter hashes, 32 bytes each, any number in an item."""
        self._hashes = bytearray()
        self._headers = bytearray()
        for hashes in pieces:
            self.append(hashes, chain_filter_headers(hashes, self.header_at(self.height)))

    @property
    def height(self) -> int:
        """Height of the last block with a known filter header; -1 for none."""
        return len(self._headers) // _SIZE - 1

    def header_at(self, height: int) -> bytes:
        """The filter header at a height; 32 zeros at height -1."""
        return (
            bytes(self._headers[_SIZE * height : _SIZE * height + _SIZE])
            if height >= 0
            else GENESIS_PREVIOUS_FILTER_HEADER
        )

    def hash_at(self, height: int) -> bytes:
        """The filter hash at a height."""
        return bytes(self._hashes[_SIZE * height : _SIZE * height + _SIZE])

    def hashes(self, first: int, last: int) -> list[bytes]:
        """The filter hashes at a range of heights."""
        rows = bytes(self._hashes[_SIZE * first : _SIZE * (last + 1)])
        return [rows[at : at + _SIZE] for at in range(0, len(rows), _SIZE)]

    def append(self, hashes: bytes, headers: bytes) -> None:
        """Add the filter hashes of the next blocks, 32 bytes each, and the filter headers that follow from them."""
        self._hashes += hashes
        self._headers += headers

    def cut(self, height: int) -> None:
        """Remove what is above a height."""
        del self._hashes[_SIZE * (height + 1) :], self._headers[_SIZE * (height + 1) :]
