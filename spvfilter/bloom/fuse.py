"""StaticFilter: a binary fuse filter of a list of keys that does not change."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from spvfilter._public import public
from spvfilter.bloom import fileformat, sizing
from spvfilter.bloom.attributes import pickled, with_attributes_of
from spvfilter.bloom.base import Encode, allocate, encoding_of, given_or_stored
from spvfilter.bloom.fileformat import HEADER_SIZE, TRAILER_SIZE
from spvfilter.bloom.fuseformat import StaticHeader
from spvfilter.bloom.hashing import FastHash, HashFamily, refuse_other_objects
from spvfilter.errors import ParameterError
from spvfilter.kernel import Family, FuseCore, fuse_build, fuse_merge
from spvfilter.kernel.columns import Keys, Nulls, Padding

if TYPE_CHECKING:
    from typing_extensions import Buffer


_SEEDS = 100  # Number of seeds that are tried before a larger table.
_TABLES = 10  # Number of tables that are tried: each fails with a probability below 2^-100.


@public
class StaticFilter(FuseCore):
    """A filter of a list of keys that does not change: a binary fuse filter.

    With a million keys or more, it takes 9.0 bits per key at a rate of 0.39 %; a BloomFilter takes 11.5. It takes 9.5
    bits at 100,000 keys and 11.3 at 1,000; with fewer keys a BloomFilter is smaller. It is never full, and you cannot
    add keys to it.

    The methods `in` and `contains_many` are documented at spvfilter.kernel.FuseCore.

    Building it takes 24 bytes of memory for each key (27 with 32-bit fingerprints), in addition to the keys. The same
    keys in any order give the same filter.

    Args:
        keys: A batch of keys as BloomFilter.update accepts it: an iterable, a buffer or a column. Equal keys count
            once.
        fingerprint_bits: 8, 16 or 32, for a false-positive rate of 2^-8, 2^-16 or 2^-32.
        hashing: FastHash by default, SipHash if an attacker can choose the keys, or a CustomHash, whose function
            returns 64 bits for number 0.
        encode: Type of the keys, as for BloomFilter.
        nulls: How to handle nulls, as for BloomFilter.update.
        padding: How to handle zeros at the end of NumPy's byte strings, as for BloomFilter.update.

    Raises:
        ParameterError: An argument is outside its domain.
        TooLargeError: The filter does not fit into memory. It is a ParameterError and a MemoryError.
        TypeError: A key has the wrong type, or `hashing` is not a hash family.
    """

    __slots__ = ("__weakref__", "_encode_with", "_keys", "hashing")

    hashing: HashFamily
    """The hash family of the filter."""
    _encode_with: Callable[[object], bytes] | None
    """Custom function that encodes a key as bytes; None for the built-in encodings."""
    _keys: int
    """Number of keys."""

    def __init__(
        self,
        keys: Keys,
        fingerprint_bits: Literal[8, 16, 32] = 8,
        *,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        nulls: Nulls = "raise",
        padding: Padding | None = None,
    ) -> None:
        family = FastHash() if hashing is None else hashing
        refuse_other_objects(family)
        encoding, function = encoding_of(encode)
        empty = StaticHeader(fingerprint_bits, family.family, encoding, 1, 0, 0, 0, family.key)
        hasher = FuseCore.__new__(FuseCore)
        _initialize(hasher, empty, family, function, b"")
        hashes = hasher.hash_many(keys, nulls=nulls, padding=padding)
        hashes = fuse_merge(hashes)  # the first hashes are freed
        header, table = _built(hashes, empty)
        self._set_up(header, family, function, table)

    def _set_up(
        self, header: StaticHeader, family: HashFamily, function: Callable[[object], bytes] | None, table: Buffer
    ) -> None:
        _initialize(self, header, family, function, table)
        self.hashing = family
        self._encode_with = function
        self._keys = header.keys

    def header(self) -> StaticHeader:
        """Return the header of the filter's file."""
        return StaticHeader(
            self.fingerprint_bits,
            self.family,
            self.encoding,
            self.segment_length,
            self.segments,
            self.seed,
            self._keys,
            self.key,
        )

    @classmethod
    def from_bytes(cls, raw: Buffer, *, hashing: HashFamily | None = None, encode: Encode = None) -> Self:
        """Make a filter from the bytes of a file. The bytes are copied.

        Args:
            raw: The bytes, as `bytes(filter)` returns them.
            hashing: The hash family. Needed only for a custom family.
            encode: The encoding of keys. Needed only for a custom function.

        Raises:
            FormatError: The data is truncated, too long, damaged or not a static filter, or has an unknown version,
                family or encoding.
            ParameterError: `hashing` or `encode` differs from the file's.
            TooLargeError: The filter does not fit into memory.
        """
        view = memoryview(raw).cast("B")
        return cls._over(view, _header_of(view[:HEADER_SIZE], len(view)), hashing, encode, True).copy()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        verify: bool = True,
        hashing: HashFamily | None = None,
        encode: Encode = None,
    ) -> Self:
        """Open the filter in a file.

        While a file is mapped, replace it as a whole, as `save` does. Never truncate it: the operating system ends a
        process that reads beyond the end of a mapped file.

        Args:
            path: Path of the file.
            mmap: True leaves the table in the file. All filters that map it share the memory.
            verify: True reads the whole file once to check the CRC. False checks only the header.
            hashing: The hash family. Needed only for a custom family.
            encode: The encoding of keys. Needed only for a custom function.

        Raises:
            FormatError: The file is malformed, as for `from_bytes`.
            ParameterError: `hashing` or `encode` differs from the file's.
            TooLargeError: The filter does not fit into memory.
            OSError: The file cannot be read.
        """
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = _header_of(file.read(HEADER_SIZE), size)
            if mmap:
                whole = _mapped(file.fileno(), size)
            else:
                whole = memoryview(allocate(size)).cast("B")
                file.seek(0)
                fileformat.read_into(file, whole)
        return cls._over(whole, header, hashing, encode, verify)

    @classmethod
    def _over(
        cls, whole: memoryview, header: StaticHeader, hashing: HashFamily | None, encode: Encode, verify: bool
    ) -> Self:
        """Make a filter over the table in the contents of a file."""
        family, function = given_or_stored(header, hashing, encode)
        body = whole[HEADER_SIZE:-TRAILER_SIZE]
        if verify:
            fileformat.check_crc(header, body, whole[-TRAILER_SIZE:])
        return cls._made(header, family, function, body)

    @classmethod
    def _made(
        cls, header: StaticHeader, family: HashFamily, function: Callable[[object], bytes] | None, table: Buffer
    ) -> Self:
        made = cls.__new__(cls)
        made._set_up(header, family, function, table)
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the filter to a file, which is replaced as a whole. Raises OSError if it cannot be written.

        A symbolic link and the mode of an existing file are kept. A new file has the mode 0600.
        """
        fileformat.save(Path(path), self.header(), self.body)

    def __bytes__(self) -> bytes:
        """Return the bytes of the filter's file."""
        header = self.header()
        return b"".join((header.pack(), self.body, fileformat.checksum(header, self.body)))

    def copy(self) -> Self:
        """Return an independent filter in memory. Raises TooLargeError if it does not fit into memory."""
        header = self.header()
        table = allocate(header.body_size)
        memoryview(table).cast("B")[:] = self.body
        return with_attributes_of(self._made(header, self.hashing, self._encode_with, table), self)

    def __reduce__(self) -> tuple[object, ...]:
        own = self.hashing if self.family == Family.CUSTOM else None
        return pickled(partial(type(self).from_bytes, hashing=own, encode=self._encode_with), (bytes(self),), self)

    def __len__(self) -> int:
        """Return the number of keys. Keys with equal 64-bit hashes count once."""
        return self._keys

    @property
    def fp_rate(self) -> float:
        """False-positive rate, 2^-fingerprint_bits. A filter without keys contains nothing, so its rate is 0."""
        return 2.0**-self.fingerprint_bits if self._keys else 0.0

    def __eq__(self, other: object) -> bool:
        """Return True if both filters have the same table, hash family and encoding."""
        if not isinstance(other, StaticFilter):
            return NotImplemented
        return self.header() == other.header() and self.body == other.body

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as for all filters of this package

    def __repr__(self) -> str:
        """Return a string that shows the number of keys, the size and the hash family of the filter."""
        size = f"{self._keys} keys, {self.fingerprint_bits}-bit fingerprints in {self.header().body_size} bytes"
        return f"<{type(self).__name__} {size}, {self.hashing!r}>"


def _initialize(
    core: FuseCore, header: StaticHeader, family: HashFamily, function: Callable[[object], bytes] | None, table: Buffer
) -> None:
    own = family.functions(1)
    FuseCore.__init__(
        core,
        header.fingerprint_bits,
        header.seed,
        header.segment_length,
        header.segments,
        family.family,
        family.key,
        table,
        header.encoding,
        own[0] if own is not None else None,
        function,
    )


def _built(hashes: bytes, empty: StaticHeader) -> tuple[StaticHeader, Buffer]:
    """Return the table for distinct hashes, and its header."""
    keys = len(hashes) // 8
    length, usual = sizing.fuse_segments(keys)
    for number in range(_TABLES):
        segments = usual + number * max(1, usual // 8) if usual else 0
        header = empty._replace(segment_length=length, segments=segments, keys=keys)
        table = allocate(header.body_size)
        for seed in range(number * _SEEDS, (number + 1) * _SEEDS):
            if fuse_build(hashes, header.fingerprint_bits, seed, length, segments, table):
                return header._replace(seed=seed), table
    raise ParameterError(f"no table found for {keys} keys with {_TABLES * _SEEDS} seeds: report this as a bug")


def _header_of(raw: bytes | memoryview, size: int) -> StaticHeader:
    header = StaticHeader.parse(bytes(raw))
    fileformat.check_size(header, size)
    return header


def _mapped(descriptor: int, size: int) -> memoryview:
    return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
