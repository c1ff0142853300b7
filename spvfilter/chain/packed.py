"""PackedHeaders: the headers of the best chain in little memory, indexed by height and by hash."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.chain.difficulty import total_work
from spvfilter.kernel import find_header, index_headers, join_indexes
from spvfilter.protocol import HEADER_SIZE

_SUM_EVERY = 256  # headers between two stored sums of work (our choice)
_SMALL, _LARGE = 1 << 11, 1 << 15  # headers of a small and of a large index (our choice)


class PackedHeaders:
    """Headers of consecutive heights in one buffer, 80 bytes each.

    A header's hash is not stored again: the next header contains it as its previous hash.

    Indexes by hash take 6 bytes a header. An index is immutable. The oldest headers have indexes of 32,768 headers,
    newer headers have indexes of 2,048, and the newest headers have one small index. Every change replaces the small
    index.
    """

    __slots__ = ("_indexes", "_places", "_raw", "_sums", "first", "tip_hash", "work")

    def __init__(self, first: int, headers: bytes, tip_hash: bytes, chain_work: int) -> None:
        """Store at least one header.

        Args:
            first: Height of the first header.
            headers: Consecutive headers, 80 bytes each.
            tip_hash: Block hash of the last header.
            chain_work: Expected number of hashes of the chain up to and including the last header.
        """
        self.first: int = first
        self.work: int = chain_work - total_work(
            headers
        )  # of the chain up to the tip; `append` adds the work of `headers`
        self.tip_hash: bytes = b""
        self._raw = bytearray()
        self._sums: list[int] = []
        self._indexes: tuple[bytes, ...] = ()
        self._places: list[tuple[int, int]] = []  # by index: number of its first header, and its last number + 1
        self.append(headers, tip_hash)

    @property
    def height(self) -> int:
        """Height of the last stored header."""
        return self.first + len(self._raw) // HEADER_SIZE - 1

    def append(self, headers: bytes, tip_hash: bytes) -> None:
        """Append consecutive headers after the last header. `tip_hash` is the block hash of the last new header."""
        self._append(headers, tip_hash)
        self._index()

    def extend(self, pieces: Iterable[tuple[bytes, bytes]]) -> None:
        """Append many pieces of headers; each piece is (headers, tip_hash) as in `append`.

        The headers cannot be found by their hashes until the last piece is appended.
        """
        try:
            for headers, tip_hash in pieces:
                self._append(headers, tip_hash)
        finally:
            self._index()

    def _append(self, headers: bytes, tip_hash: bytes) -> None:
        first = len(self._raw) // HEADER_SIZE
        at, end = 0, -first % _SUM_EVERY * HEADER_SIZE
        while end < len(headers):
            self.work += total_work(headers[at:end])
            self._sums.append(self.work)
            at, end = end, end + _SUM_EVERY * HEADER_SIZE
        self.work += total_work(headers[at:])
        self.tip_hash = tip_hash
        self._raw += headers

    def cut(self, height: int) -> tuple[bytes, bytes]:
        """Remove the headers above a height, and return their bytes and their block hashes."""
        number = height - self.first + 1
        self.work = self.work_at(height)
        headers = bytes(self._raw[HEADER_SIZE * number :])
        hashes = (
            b"".join([headers[at : at + 32] for at in range(HEADER_SIZE + 4, len(headers), HEADER_SIZE)])
            + self.tip_hash
        )
        self.tip_hash = headers[4:36]
        del self._raw[HEADER_SIZE * number :]
        del self._sums[-(-number // _SUM_EVERY) :]
        self._index()
        return headers, hashes

    def _index(self) -> None:
        """Bring the indexes up to date after headers were appended or removed."""
        count, places = len(self._raw) // HEADER_SIZE, self._places
        kept = len(places)
        while kept and (places[kept - 1][1] > count or places[kept - 1][1] % _SMALL):
            kept -= 1
        indexes, places = list(self._indexes[:kept]), places[:kept]
        at = places[-1][1] if places else 0
        while at < count:
            end = min(at + _SMALL, count)
            with memoryview(self._raw) as every, every[HEADER_SIZE * at : HEADER_SIZE * end] as headers:
                indexes.append(index_headers(bytes(headers), self.hash_at(self.first + end - 1)))
            places.append((at, end))
            if not end % _LARGE:
                many = _LARGE // _SMALL
                indexes[-many:] = [join_indexes(indexes[-many:])]
                places[-many:] = [(end - _LARGE, end)]
            at = end
        self._indexes, self._places = tuple(indexes), places

    def headers(self, height: int, count: int) -> bytes:
        """Return up to `count` headers from a height on, 80 bytes each; fewer at the end."""
        at = HEADER_SIZE * (height - self.first)
        return bytes(self._raw[at : at + HEADER_SIZE * count])

    def hash_at(self, height: int) -> bytes:
        """Return the block hash at a height from `first` to `height`, 32 bytes in wire order."""
        at = HEADER_SIZE * (height - self.first + 1) + 4
        return bytes(self._raw[at : at + 32]) or self.tip_hash

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the block hashes from height `first` to height `last`, both inclusive and both stored."""
        rows = self.headers(first + 1, last - first + 1)
        found = [rows[at : at + 32] for at in range(4, len(rows), HEADER_SIZE)]
        return found if last < self.height else [*found, self.tip_hash]

    def height_of(self, block_hash: bytes) -> int | None:
        """Return the height of the header with this hash; None if no header with this hash is stored."""
        if block_hash == self.tip_hash:
            return self.height
        for place, number in find_header(self._indexes, block_hash):
            height = self.first + self._places[place][0] + number
            if self.hash_at(height) == block_hash:
                return height
        return None

    def work_at(self, height: int) -> int:
        """Return the expected number of hashes of the chain up to and including a height."""
        number = height - self.first + 1
        if number == len(self._raw) // HEADER_SIZE:
            return self.work
        start = number - number % _SUM_EVERY
        return self._sums[start // _SUM_EVERY] + total_work(self.headers(self.first + start, number - start))
