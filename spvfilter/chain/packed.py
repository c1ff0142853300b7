"""The active chain's headers in little memory, found by height and by hash. Nothing is judged here, and forks are elsewhere."""

from __future__ import annotations

import struct

from spvfilter.chain.difficulty import total_work
from spvfilter.protocol import HEADER_SIZE

_SUM_EVERY = 256  # headers; the work below each such one is kept
_BUCKETS = 1 << 12  # of the index, by the first 12 bits of a hash
_ENTRY = 8  # bytes: four more of the hash, the header's number u32
_KEYS = struct.Struct("<H4s26x")  # of a hash: its bucket, with 4 bits too many, and what stands in it


class PackedHeaders:
    """Headers of consecutive heights, 80 bytes each in one piece; a hash is the previous hash of the header above it.

    The index has buckets of (part of the hash, number): about 9 bytes for a header, with no moment at which all of it moves.
    """

    __slots__ = ("_buckets", "_raw", "_sums", "first", "tip_hash", "work")

    def __init__(self, first: int, headers: bytes, hashes: bytes, chain_work: int) -> None:
        """`first` is the first header's height, `chain_work` the work up to the last one, that included; at least one header."""
        self.first = first
        self.work = chain_work - total_work(headers)  # up to the tip
        self.tip_hash = b""
        self._raw = bytearray()
        self._sums: list[int] = []
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self.append(headers, hashes)

    @property
    def height(self) -> int:
        """Of the last header."""
        return self.first + len(self._raw) // HEADER_SIZE - 1

    def append(self, headers: bytes, hashes: bytes) -> None:
        """Add headers that follow the last one and each other, with their hashes."""
        buckets, first = self._buckets, len(self._raw) // HEADER_SIZE
        for number, (bucket, part) in enumerate(_KEYS.iter_unpack(hashes), first):
            buckets[bucket % _BUCKETS] += part + number.to_bytes(4, "little")
        at, end = 0, -first % _SUM_EVERY * HEADER_SIZE
        while end < len(headers):
            self.work += total_work(headers[at:end])
            self._sums.append(self.work)
            at, end = end, end + _SUM_EVERY * HEADER_SIZE
        self.work += total_work(headers[at:])
        self.tip_hash = hashes[-32:]
        self._raw += headers

    def cut(self, height: int) -> tuple[bytes, bytes]:
        """Take off the headers above one that stays; they and their hashes."""
        number = height - self.first + 1
        self.work = self.work_at(height)
        headers = bytes(self._raw[HEADER_SIZE * number :])
        hashes = b"".join([headers[at : at + 32] for at in range(HEADER_SIZE + 4, len(headers), HEADER_SIZE)]) + self.tip_hash
        for bucket, _ in _KEYS.iter_unpack(hashes):
            del self._buckets[bucket % _BUCKETS][-_ENTRY:]  # numbers ascend: as many entries as are cut off lie at the end
        self.tip_hash = headers[4:36]
        del self._raw[HEADER_SIZE * number :]
        del self._sums[-(-number // _SUM_EVERY) :]
        return headers, hashes

    def headers(self, height: int, count: int) -> bytes:
        """Headers from a height on, 80 bytes each, fewer than asked at the end."""
        at = HEADER_SIZE * (height - self.first)
        return bytes(self._raw[at : at + HEADER_SIZE * count])

    def hash_at(self, height: int) -> bytes:
        """The hash of the header at a height from `first` to `height`."""
        at = HEADER_SIZE * (height - self.first + 1) + 4
        return bytes(self._raw[at : at + 32]) or self.tip_hash

    def height_of(self, block_hash: bytes) -> int | None:
        """The height of the header with this hash; None where it is not here."""
        bucket, part = _KEYS.unpack(block_hash)
        entries = self._buckets[bucket % _BUCKETS]
        at = entries.find(part)
        while at >= 0:
            if not at % _ENTRY:
                height = self.first + int.from_bytes(entries[at + 4 : at + 8], "little")
                if self.hash_at(height) == block_hash:
                    return height
            at = entries.find(part, at + 1)
        return None

    def work_at(self, height: int) -> int:
        """Expected hashes of the chain up to a height, that included."""
        number = height - self.first + 1
        if number == len(self._raw) // HEADER_SIZE:
            return self.work
        start = number - number % _SUM_EVERY
        return self._sums[start // _SUM_EVERY] + total_work(self.headers(self.first + start, number - start))
