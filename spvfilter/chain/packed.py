"""PackedHeaders: the headers of the best chain, stored compactly and indexed by height and by hash.

All chains in a process share their old headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakValueDictionary

from spvfilter.chain.difficulty import total_work
from spvfilter.kernel import find_header, index_headers, join_indexes
from spvfilter.protocol import HEADER_SIZE

_SUM_EVERY = 256  # headers between two stored sums of work (our choice)
_BLOCKS = 1 << 11  # headers of a segment (our choice)
_MANY = 16  # segments that one large index describes (our choice)
_SIZE = _BLOCKS * HEADER_SIZE


class _Segment:
    """2,048 headers that never change, with their index and sums of work."""

    __slots__ = ("__weakref__", "index", "raw", "sums")

    def __init__(self, raw: bytes, index: bytes, sums: Sequence[int]) -> None:
        self.raw = raw
        self.index = index
        self.sums = tuple(sums)
        """For every 256th header, the total work of the segment's headers before it."""


class _LargeIndex:
    """The index of 16 segments."""

    __slots__ = ("__weakref__", "index", "segments")

    def __init__(self, segments: Sequence[_Segment]) -> None:
        self.segments = tuple(segments)
        self.index = join_indexes([segment.index for segment in segments])


_SEGMENTS: WeakValueDictionary[bytes, _Segment] = WeakValueDictionary()
"""Segments of all chains in the process, keyed by the hash of the last header, which commits to all before it.

A segment is freed with the last chain that contains it.
"""
_INDEXES: WeakValueDictionary[bytes, _LargeIndex] = WeakValueDictionary()
"""Large indexes of all chains in the process, keyed in the same way."""


class PackedHeaders:
    """Headers of consecutive heights, 80 bytes each.

    A header's hash is not stored again: the next header contains it as its previous hash.

    Old headers are in segments of 2,048, which all chains of the process share. The newest headers are in a buffer.

    Indexes by hash take 6 bytes per header. An index covers 32,768 of the oldest headers, or a segment of newer ones.
    The buffer has a small index, which every change replaces.
    """

    __slots__ = ("_indexes", "_large", "_raw", "_segments", "_sums", "_works", "first", "height", "tip_hash", "work")

    def __init__(self, first: int, headers: bytes, tip_hash: bytes, chain_work: int) -> None:
        """Store at least one header.

        Args:
            first: Height of the first header.
            headers: Consecutive headers, 80 bytes each.
            tip_hash: Block hash of the last header.
            chain_work: Expected number of hashes needed to mine the chain up to and including the last header.
        """
        self.first: int = first
        self.height: int = first - 1
        """Height of the last stored header."""
        self.work: int = chain_work - total_work(
            headers
        )  # of the chain up to the tip; `append` adds the work of `headers`
        self.tip_hash: bytes = b""
        self._segments: list[_Segment] = []
        self._large: list[_LargeIndex] = []  # of the oldest segments
        self._works: list[int] = []  # of the chain before each segment
        self._raw = bytearray()  # the headers after the segments

        self._sums: list[int] = []  # work of the chain before each 256th header of the buffer
        self._indexes: tuple[bytes, ...] = ()
        self.append(headers, tip_hash)

    def append(self, headers: bytes, tip_hash: bytes) -> None:
        """Append consecutive headers after the last header. `tip_hash` is the block hash of the last new header."""
        self._append(headers, tip_hash)
        self._index_newest()

    def extend(self, pieces: Iterable[tuple[bytes, bytes]]) -> None:
        """Append many pieces of headers; each piece is (headers, tip_hash) as in `append`.

        You can find the headers by hash only once the last piece has been appended.
        """
        try:
            for headers, tip_hash in pieces:
                self._append(headers, tip_hash)
        finally:
            self._index_newest()

    def _append(self, headers: bytes, tip_hash: bytes) -> None:
        at, end = 0, -(len(self._raw) // HEADER_SIZE) % _SUM_EVERY * HEADER_SIZE
        while end < len(headers):
            self.work += total_work(headers[at:end])
            self._sums.append(self.work)
            at, end = end, end + _SUM_EVERY * HEADER_SIZE
        self.work += total_work(headers[at:])
        self.tip_hash = tip_hash
        self.height += len(headers) // HEADER_SIZE
        self._raw += headers
        self._seal()

    def _seal(self) -> None:
        """Move whole segments out of the buffer, and share them."""
        sums, at = _BLOCKS // _SUM_EVERY, 0
        while len(self._raw) - at >= _SIZE:
            with memoryview(self._raw) as every:
                raw = bytes(every[at : at + _SIZE])
            at += _SIZE
            tip_hash, work = bytes(self._raw[at + 4 : at + 36]) or self.tip_hash, self._sums[0]
            segment = _SEGMENTS.get(tip_hash)
            if segment is None or segment.raw != raw:
                segment = _Segment(raw, index_headers(raw, tip_hash), [each - work for each in self._sums[:sums]])
                _SEGMENTS[tip_hash] = segment
            del self._sums[:sums]
            self._segments.append(segment)
            self._works.append(work)
            if not len(self._segments) % _MANY:
                segments = self._segments[-_MANY:]
                large = _INDEXES.get(tip_hash)
                if large is None or large.segments != tuple(segments):
                    large = _INDEXES[tip_hash] = _LargeIndex(segments)
                self._large.append(large)
        del self._raw[:at]

    def cut(self, height: int) -> tuple[bytes, bytes]:
        """Remove the headers above a height, and return their bytes and their block hashes."""
        number = height - self.first + 1
        work = self.work_at(height)
        headers = self.headers(height + 1, self.height - height)
        hashes = (
            b"".join([headers[at : at + 32] for at in range(HEADER_SIZE + 4, len(headers), HEADER_SIZE)])
            + self.tip_hash
        )
        while number < _BLOCKS * len(self._segments):
            segment, base = self._segments.pop(), self._works.pop()
            self._raw, self._sums = bytearray(segment.raw), [base + each for each in segment.sums]
        del self._large[len(self._segments) // _MANY :]
        kept = number - _BLOCKS * len(self._segments)
        del self._raw[HEADER_SIZE * kept :]
        del self._sums[-(-kept // _SUM_EVERY) :]
        self.tip_hash, self.height, self.work = headers[4:36], height, work
        self._index_newest()
        return headers, hashes

    def _index_newest(self) -> None:
        """Index the buffer, after headers were appended or removed."""
        middle = (segment.index for segment in self._segments[_MANY * len(self._large) :])
        newest = [index_headers(bytes(self._raw), self.tip_hash)] if self._raw else []
        self._indexes = (*(large.index for large in self._large), *middle, *newest)

    def headers(self, height: int, count: int) -> bytes:
        """Return up to `count` headers, 80 bytes each, starting at a height. There are fewer at the end."""
        number, parts = height - self.first, list[bytes]()
        for place in range(min(number // _BLOCKS, len(self._segments)), len(self._segments) + 1):
            raw = self._segments[place].raw if place < len(self._segments) else self._raw
            at = HEADER_SIZE * (number - _BLOCKS * place)
            parts.append(bytes(raw[at : at + HEADER_SIZE * count]))
            found = len(parts[-1]) // HEADER_SIZE
            number, count = number + found, count - found
            if count <= 0:
                break
        return b"".join(parts)

    def hash_at(self, height: int) -> bytes:
        """Return the block hash at a height from `first` to `height`, 32 bytes in wire order."""
        return self.headers(height + 1, 1)[4:36] or self.tip_hash

    def time_at(self, height: int) -> int:
        """Return the time of the header at a stored height (Unix time)."""
        place, number = divmod(height - self.first, _BLOCKS)
        raw = self._segments[place].raw if place < len(self._segments) else self._raw
        return int.from_bytes(raw[HEADER_SIZE * number + 68 : HEADER_SIZE * number + 72], "little")

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the block hashes from height `first` to height `last`, both inclusive and both stored."""
        rows = self.headers(first + 1, last - first + 1)
        found = [rows[at : at + 32] for at in range(4, len(rows), HEADER_SIZE)]
        return found if last < self.height else [*found, self.tip_hash]

    def height_of(self, block_hash: bytes) -> int | None:
        """Return the height of the header with this hash, or None if no header with this hash is stored."""
        if block_hash == self.tip_hash:
            return self.height
        for place, number in find_header(self._indexes, block_hash):
            before = place + (_MANY - 1) * min(place, len(self._large))  # segments before this index
            height = self.first + _BLOCKS * before + number
            if self.hash_at(height) == block_hash:
                return height
        return None

    def work_at(self, height: int) -> int:
        """Return the expected number of hashes needed to mine the chain up to and including a height."""
        if height == self.height:
            return self.work
        number = height - self.first + 1
        place = min(number // _BLOCKS, len(self._segments))
        at = number - _BLOCKS * place
        start = at - at % _SUM_EVERY
        if place < len(self._segments):
            before = self._works[place] + self._segments[place].sums[start // _SUM_EVERY]
        else:
            before = self._sums[start // _SUM_EVERY]
        return before + total_work(self.headers(height - (at - start) + 1, at - start))
