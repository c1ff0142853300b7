"""Filter hashes and filter headers of the best chain, in memory: 64 bytes per block, shared by all clients."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

from spvfilter.kernel import chain_filter_headers
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER

_SIZE = 32  # bytes of a hash
_BLOCKS = 2_048
"""Number of blocks in a segment (our choice)."""
_PIECE = _SIZE * _BLOCKS


class _Segment:
    """Filter hashes and filter headers of 2,048 blocks, which never change."""

    __slots__ = ("__weakref__", "hashes", "headers")

    def __init__(self, hashes: bytes, headers: bytes) -> None:
        self.hashes = hashes
        self.headers = headers


_SEGMENTS: WeakValueDictionary[bytes, _Segment] = WeakValueDictionary()
"""Segments of all clients in this process, by their last filter header, which commits to everything below it.

A segment is freed along with the last client that uses it.
"""


class FilterRows:
    """Filter hashes, starting at the genesis block. Each filter header follows from the hashes up to it (BIP-157)."""

    def __init__(self, pieces: Iterable[bytes] = ()) -> None:
        """`pieces` contain the saved filter hashes, 32 bytes each. One piece may contain any number of them."""
        self._segments: list[_Segment] = []
        self._hashes = bytearray()  # after the segments
        self._headers = bytearray()
        for hashes in pieces:
            self.append(hashes, chain_filter_headers(hashes, self.header_at(self.height)))

    @property
    def height(self) -> int:
        """Height of the last block with a known filter header; -1 if there is none."""
        return _BLOCKS * len(self._segments) + len(self._headers) // _SIZE - 1

    def header_at(self, height: int) -> bytes:
        """Return the filter header at a height; 32 zero bytes at height -1."""
        if height < 0:
            return GENESIS_PREVIOUS_FILTER_HEADER
        number = min(height // _BLOCKS, len(self._segments))
        headers = self._segments[number].headers if number < len(self._segments) else self._headers
        at = _SIZE * (height - _BLOCKS * number)
        return bytes(headers[at : at + _SIZE])

    def hash_at(self, height: int) -> bytes:
        """Return the filter hash at a height."""
        return b"".join(self.hashes(height, height))

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the filter hashes from height `first` to `last`."""
        found = list[bytes]()
        for number in range(min(first // _BLOCKS, len(self._segments)), len(self._segments) + 1):
            base = _BLOCKS * number
            if base > last:
                break
            rows = self._segments[number].hashes if number < len(self._segments) else self._hashes
            part = bytes(rows[_SIZE * max(first - base, 0) : _SIZE * (last + 1 - base)])
            found += (part[at : at + _SIZE] for at in range(0, len(part), _SIZE))
        return found

    def append(self, hashes: bytes, headers: bytes) -> None:
        """Add the filter hashes of the next blocks, 32 bytes each, and the filter headers that follow from them."""
        self._hashes += hashes
        self._headers += headers
        self._seal()

    def _seal(self) -> None:
        """Move complete segments out of the buffers, and share them."""
        at = 0
        while len(self._headers) - at >= _PIECE:
            made = _Segment(bytes(self._hashes[at : at + _PIECE]), bytes(self._headers[at : at + _PIECE]))
            at += _PIECE
            name = made.headers[-_SIZE:]
            known = _SEGMENTS.get(name)
            if known is None or (known.hashes, known.headers) != (made.hashes, made.headers):
                known = _SEGMENTS[name] = made
            self._segments.append(known)
        del self._hashes[:at], self._headers[:at]

    def cut(self, height: int) -> None:
        """Remove everything above a height."""
        while self._segments and height + 1 < _BLOCKS * len(self._segments):
            segment = self._segments.pop()
            self._hashes, self._headers = bytearray(segment.hashes), bytearray(segment.headers)
        left = _SIZE * (height + 1 - _BLOCKS * len(self._segments))
        del self._hashes[left:], self._headers[left:]
