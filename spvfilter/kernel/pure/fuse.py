"""Binary fuse filters: static filters of fingerprints. This is the readable reference.

Source: Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters" (2022), with three cells for a key.

The table has `segments` + 2 segments of `segment_length` cells, and a cell holds a fingerprint. A key's 64-bit hash and
the number of the seed are mixed into a number x. Its first cell is in one of the first `segments` segments, and its
other two cells are in the two segments after that:

    x      = mix(hash + seed * GOLDEN mod 2^64), mix being the last step of MurmurHash3 x64
    first  = x * (segments * segment_length) >> 64
    second = first + segment_length, its position in the segment XORed with bits 18 and above of x
    third  = first + 2 * segment_length, its position in the segment XORed with bits 0 and above of x
    print  = the highest bits of x * REMIX mod 2^64

A key is contained if the XOR of its three cells is its fingerprint.

Building looks for a cell that only one key uses, and removes that key, whose cell will be set last. It repeats this
until no such cell is left. If keys remain, the seed has failed; otherwise the cells are set in the opposite order.

Cells are visited in a fixed order, so the table depends only on the set of hashes, the seed and the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING, overload

from spvfilter.errors import ParameterError
from spvfilter.hashes import murmur3_x64_128, siphash24
from spvfilter.kernel.pure.arguments import snapshot, whole
from spvfilter.kernel.pure.cells import encoder_of, flat_view
from spvfilter.kernel.pure.columns import opened
from spvfilter.kernel.values import Encoding, Family

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray, Padding
    from spvfilter.kernel.masks import BoolMask

_M64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, odd.
_REMIX = 0xD6E8FEB86659FD93  # As in cells.py.
_MOST_KEYS = 255  # A seed fails if a cell has more keys: the compiled twin counts them in a byte.
_BLOCK = 1 << 12  # Number of cells that are processed together, to make use of the caches.
MAX_SEGMENT = 1 << 18  # Cells of the longest segment: x gives 18 bits to each position in a segment.
_MAX_CELLS = (1 << 32) - 1  # The compiled twin has 32-bit numbers of cells.


class _Shape:
    """The shape of a table. Raises ParameterError if a number is out of range."""

    __slots__ = ("length", "prints", "seed", "segments")

    def __init__(self, fingerprint_bits: int, seed: int, segment_length: int, segments: int) -> None:
        self.prints = whole(fingerprint_bits, 8, 32, "a fingerprint must be 8, 16 or 32 bits long")
        self.seed = whole(seed, 0, 0xFFFFFFFF, "seed must be from 0 to 2^32 - 1")
        self.length = whole(segment_length, 1, MAX_SEGMENT, "a segment must have 1 to 2^18 cells")
        self.segments = whole(segments, 0, 0xFFFFFFFF, "segments must be from 0 to 2^32 - 1")
        if self.prints not in (8, 16, 32):
            raise ParameterError(f"a fingerprint must be 8, 16 or 32 bits long, not {self.prints}")
        if self.length & (self.length - 1):
            raise ParameterError(f"the number of cells in a segment must be a power of two, not {self.length}")
        if self.cells > _MAX_CELLS:
            raise ParameterError(f"a table must have fewer than 2^32 cells, not {self.cells}")

    @property
    def cells(self) -> int:
        return (self.segments + 2) * self.length if self.segments else 0

    @property
    def size(self) -> int:
        """Size of the table in bytes."""
        return self.cells * self.prints // 8

    def mixed(self, hash: int) -> int:
        x = hash + self.seed * _GOLDEN & _M64
        x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & _M64
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & _M64
        return x ^ x >> 33

    def places(self, x: int) -> tuple[int, int, int]:
        first, mask = x * (self.segments * self.length) >> 64, self.length - 1
        return first, first + self.length ^ x >> 18 & mask, first + 2 * self.length ^ x & mask

    def fingerprint(self, x: int) -> int:
        return (x * _REMIX & _M64) >> 64 - self.prints


class FuseCore:
    """The table of a binary fuse filter, which `fuse_build` made, and the hash and encoding of its keys.

    A table without segments contains no key, and has no cells.

    - `fingerprint_bits` is 8, 16 or 32. A key that was not added is reported with probability 2^-fingerprint_bits.
    - `seed`, `segment_length` and `segments` are the arguments of `fuse_build`.
    - `family` is FAST, SIPHASH, or CUSTOM with the function `custom`; `key` is its key, 16 bytes.
    - `buffer` contains the fingerprints, little endian, and is used in place, not copied.

    Raises ParameterError for a number out of range, any other family, a key that is not 16 bytes long, or a buffer of
    the wrong size.
    """

    __slots__ = {
        "family": "The hash family, a `Family`.",
        "key": "Key of the hash family, 16 bytes.",
        "encoding": "Encoding of the keys, an `Encoding`.",
        **dict.fromkeys(("_cells", "_encode", "_hash", "_shape", "_view"), ""),
    }

    def __init__(
        self,
        fingerprint_bits: int,
        seed: int,
        segment_length: int,
        segments: int,
        family: int,
        key: bytes,
        buffer: Buffer,
        encoding: int = Encoding.BYTES,
        custom: Callable[[bytes], int] | None = None,
        encode: Callable[[object], bytes] | None = None,
    ) -> None:
        if hasattr(self, "_shape"):
            raise TypeError("a filter's core can be initialized only once")
        shape = _Shape(fingerprint_bits, seed, segment_length, segments)
        self.family: Family = Family(family)
        if self.family not in (Family.FAST, Family.SIPHASH, Family.CUSTOM):
            raise ParameterError("a static filter needs 64-bit hashes: use FastHash, SipHash or CustomHash")
        self.key: bytes = snapshot(key, "key")
        if len(self.key) != 16:
            raise ParameterError(f"a hash family's key must be 16 bytes long, not {len(self.key)}")
        self.encoding: Encoding = Encoding(encoding)
        self._encode = encoder_of(self.encoding, encode)
        if (self.family is Family.CUSTOM) != (custom is not None):
            raise ParameterError("the family must be CUSTOM if `custom` is given, and only then")
        self._view = flat_view(buffer, shape.size)
        self._hash = _hash_function(self.family, self.key, custom)
        self._cells = self._view if shape.prints == 8 else _Wide(self._view, shape.prints // 8)
        self._shape = shape

    @property
    def fingerprint_bits(self) -> int:
        """Number of bits in a fingerprint: 8, 16 or 32."""
        return self._shape.prints

    @property
    def seed(self) -> int:
        """Number of the seed."""
        return self._shape.seed

    @property
    def segment_length(self) -> int:
        """Number of cells in a segment, a power of two."""
        return self._shape.length

    @property
    def segments(self) -> int:
        """Number of segments in which a key's first cell can be, or 0 for a table without keys."""
        return self._shape.segments

    @property
    def body(self) -> memoryview:
        """The bytes of the table, as a read-only memoryview."""
        return self._view.toreadonly()

    def __contains__(self, key: object) -> bool:
        return self._has(self._hash(self._encode(key)))

    def _has(self, hash: int) -> bool:
        shape, cells = self._shape, self._cells
        if not shape.segments:
            return False
        x = shape.mixed(hash)
        first, second, third = shape.places(x)
        return cells[first] ^ cells[second] ^ cells[third] == shape.fingerprint(x)

    @overload
    def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    def contains_many(self, keys: Column, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    def contains_many(
        self, keys: Iterable[object] | Buffer, /, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    def contains_many(self, keys: Keys, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes | Mask:
        """Test a batch of keys and return a mask, as BloomFilter.contains_many does. Raises the same errors."""
        batch, answer = opened(keys, nulls, self._encode, self.encoding, padding)
        # the result is bytes or a mask
        return answer(bytes(key is not None and self._has(self._hash(key)) for key in batch))  # type: ignore[return-value]

    def hash_many(self, keys: Keys, /, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes:
        """Return the 64-bit hashes of a batch of keys, 8 bytes little endian for each key. Skipped nulls have none.

        Accepts the same batches as BloomFilter.update, and raises the same errors as BloomFilter.contains_many.
        """
        batch, _ = opened(keys, nulls, self._encode, self.encoding, padding)
        return b"".join(self._hash(key).to_bytes(8, "little") for key in batch if key is not None)


class _Wide:
    """Cells of several bytes, little endian."""

    __slots__ = ("_size", "_view")

    def __init__(self, view: memoryview, size: int) -> None:
        self._view, self._size = view, size

    def __getitem__(self, at: int) -> int:
        return int.from_bytes(self._view[at * self._size : (at + 1) * self._size], "little")


def _hash_function(family: Family, key: bytes, custom: Callable[[bytes], int] | None) -> Callable[[bytes], int]:
    """Return the function that maps an encoded key to its 64-bit hash."""
    if custom is not None:
        return lambda data: int.__and__(index(custom(data)), _M64)
    if family is Family.SIPHASH:
        return lambda data: siphash24(data, key)
    seed = int.from_bytes(key[:4], "little")
    return lambda data: murmur3_x64_128(data, seed)[0]


def _numbers(hashes: Buffer) -> Iterator[int]:
    raw = snapshot(hashes)
    if len(raw) % 8:
        raise ParameterError(f"hashes must be a multiple of 8 bytes long, not {len(raw)}")
    return (int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw), 8))


def fuse_merge(hashes: Buffer, /) -> bytes:
    """Return the distinct hashes among `hashes`, 8 bytes each, in no particular order.

    Raises TypeError if the object is not bytes-like, and ParameterError if its size is not a multiple of 8.
    """
    return b"".join(hash.to_bytes(8, "little") for hash in dict.fromkeys(_numbers(hashes)))


def fuse_build(
    hashes: Buffer, fingerprint_bits: int, seed: int, segment_length: int, segments: int, buffer: Buffer
) -> bool:
    """Build the table of a binary fuse filter in `buffer`. Return False if the seed fails; then try the next one.

    Args:
        hashes: Distinct 64-bit hashes of the keys, 8 bytes each, little endian.
        fingerprint_bits: Bits of a fingerprint: 8, 16 or 32.
        seed: Number of the seed, a u32.
        segment_length: Number of cells in a segment, a power of two up to 2^18.
        segments: Number of segments in which a key's first cell can be; the table has two more.
        buffer: Writable memory for the table, fingerprint_bits / 8 bytes for each cell. If the seed fails, its contents
            are undefined.

    Raises:
        TypeError: `hashes` is not bytes-like, or a number is not an int.
        BufferError: `buffer` is read-only or not contiguous.
        ParameterError: A number is out of range, or the size of `hashes` or `buffer` is wrong.
    """
    shape = _Shape(fingerprint_bits, seed, segment_length, segments)
    numbers = list(_numbers(hashes))
    view = memoryview(buffer)
    if view.readonly or not view.c_contiguous:
        raise BufferError("a table must be built in writable, contiguous memory")
    if view.nbytes != shape.size:
        raise ParameterError(f"expected a buffer of {shape.size} bytes, not {view.nbytes}")
    order, sums = _peeled(shape, numbers)
    if len(order) != len(numbers):
        return False
    table = [0] * shape.cells
    for at in reversed(order):
        x = sums[at]
        first, second, third = shape.places(x)
        table[at] = table[first] ^ table[second] ^ table[third] ^ shape.fingerprint(x)
    view.cast("B")[:] = b"".join(cell.to_bytes(shape.prints // 8, "little") for cell in table)
    return True


def _peeled(shape: _Shape, hashes: list[int]) -> tuple[list[int], list[int]]:
    """Return the cells to set, last one first, and a list with the x of each cell's key."""
    sums, counts = [0] * shape.cells, [0] * shape.cells
    order: list[int] = []
    for x in map(shape.mixed, hashes) if shape.cells else ():
        for at in shape.places(x):
            sums[at] ^= x
            counts[at] += 1
            if counts[at] > _MOST_KEYS:
                return order, sums
    for start in range(0, shape.cells, _BLOCK):
        queue = [at for at in range(start, min(start + _BLOCK, shape.cells)) if counts[at] == 1]
        for at in queue:  # the queue grows in the meantime
            if counts[at] != 1:
                continue
            order.append(at)
            for other in shape.places(sums[at]):
                counts[other] -= 1
                if other != at:
                    sums[other] ^= sums[at]
                    if counts[other] == 1:
                        queue.append(other)
    return order, sums
