"""Filter hashes and filter headers of the best chain, in memory (64 bytes per block)."""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER

_SIZE = 32  # bytes of a hash


class FilterRows:
    """Filter hashes from the genesis block on; each filter header follows from the ones below (BIP-157)."""

    def __init__(self, hashes: bytes = b"", headers: bytes = b"") -> None:
        self._hashes = bytearray(hashes)
        self._headers = bytearray(headers)

    @property
    def height(self) -> int:
        """Height of the last block with a known filter header; -1 for none."""
        return len(self._headers) // _SIZE - 1

    def header_at(self, height: int) -> bytes:
        """The filter header at a height; 32 zeros at height -1."""
        return bytes(self._headers[_SIZE * height : _SIZE * height + _SIZE]) if height >= 0 else GENESIS_PREVIOUS_FILTER_HEADER

    def hash_at(self, height: int) -> bytes:
        """The filter hash at a height."""
        return bytes(self._hashes[_SIZE * height : _SIZE * height + _SIZE])

    def append(self, hashes: Sequence[bytes], headers: Sequence[bytes]) -> None:
        """Add the filter hashes of the next blocks, and the filter headers that follow from them."""
        self._hashes += b"".join(hashes)
        self._headers += b"".join(headers)

    def cut(self, height: int) -> None:
        """Remove what is above a height."""
        del self._hashes[_SIZE * (height + 1) :], self._headers[_SIZE * (height + 1) :]
