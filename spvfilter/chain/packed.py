"""PackedHeaders: the headers of the best chain in little memory, indexed by height and by hash."""

from __future__ import annotations

import struct

from spvfilter.chain.difficulty import total_work
from spvfilter.protocol import HEADER_SIZE

_SUM_EVERY = 256  # headers between two stored sums of work
_BUCKETS = 1 << 12  # of the index, by the first 12 bits of a hash
_ENTRY = 8  # bytes of an index entry: four more bytes of the hash, the header's number u32
_KEYS = struct.Struct("<H4s26x")  # of a hash: its bucket, with 4 bits too many, and the part in its entry


class PackedHeaders:
    """Headers of consecutive heights in one buffer, 80 bytes each. A header's hash is stored once: as the previous hash of the next header.

    The index has buckets of (part of the hash, number). It takes about 9 bytes per header and is never rehashed as a whole.
    """

    __slots__ = ("_buckets", "_raw", "_sums", "first", "tip_hash", "work")

    def __init__(self, first: int, headers: bytes, hashes: bytes, chain_work: int) -> None:
        """At least one header; `first` is the height of the first, `chain_work` the work up to and including the last."""
        self.first = first
        self.work = chain_work - total_work(headers)  # up to the tip
        self.tip_hash = b""
        self._raw = bytearray()
        self._sums: list[int] = []
        self._buckets = [bytearray() for _ in range(_BUCKETS)]
        self.append(headers, hashes)

    @property
    def height(self) -> int:
        """The height of the last header."""
        return self.first + len(self._raw) // HEADER_SIZE - 1

    def append(self, headers: bytes, hashes: bytes) -> None:
        """Append headers that follow the last one and each other, with their hashes."""
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
        """Remove the headers above a height, and return them and their hashes."""
        number = height - self.first + 1
        self.work = self.work_at(height)
        headers = bytes(self._raw[HEADER_SIZE * number :])
        hashes = b"".join([headers[at : at + 32] for at in range(HEADER_SIZE + 4, len(headers), HEADER_SIZE)]) + self.tip_hash
        for bucket, _ in _KEYS.iter_unpack(hashes):
            del self._buckets[bucket % _BUCKETS][-_ENTRY:]  # numbers ascend within a bucket, so the removed headers' entries are the last
        self.tip_hash = headers[4:36]
        del self._raw[HEADER_SIZE * number :]
        del self._sums[-(-number // _SUM_EVERY) :]
        return headers, hashes

    def headers(self, height: int, count: int) -> bytes:
        """Up to `count` headers from a height on, 80 bytes each; fewer at the end."""
        at = HEADER_SIZE * (height - self.first)
        return bytes(self._raw[at : at + HEADER_SIZE * count])

    def hash_at(self, height: int) -> bytes:
        """The block hash at a height from `first` to `height`."""
        at = HEADER_SIZE * (height - self.first + 1) + 4
        return bytes(self._raw[at : at + 32]) or self.tip_hash

    def height_of(self, block_hash: bytes) -> int | None:
        """The height of the header with this hash, or None."""
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
        """The expected number of hashes for the chain up to and including a height."""
        number = height - self.first + 1
        if number == len(self._raw) // HEADER_SIZE:
            return self.work
        start = number - number % _SUM_EVERY
        return self._sums[start // _SUM_EVERY] + total_work(self.headers(self.first + start, number - start))
