"""The file format of Bloom filters and counting filters.

A file is a 64-byte header, the bits or counters, and a 4-byte CRC. Integers are little endian.

    0   8  magic "SPVBLOOM"
    8   2  version, 1
    10  1  kind: 1 bits, 2 counters of 4 bits, 3 a series of slices, 4 counters of 8 bits, 5 counters of 16 bits
    11  1  hash family: 1 BIP-37, 2 fast, 3 SipHash, 4 Spark version 1, 5 Spark version 2, 6 RedisBloom, 255 custom
    12  1  encoding of keys: 0 bytes, 1 utf-8, 2 int64, 3 uint64, 4 int32, 5 uint32, 255 custom
    13  1  flags: 1 partitioned, 2 open for writing (the last CRC is not valid until the file is closed)
    14  2  zero
    16  4  k, the number of hash functions
    20  8  m, the number of bits or counters
    28  8  capacity, 0 if none was given
    36  8  false-positive rate at capacity, IEEE 754 double, 0 if none was given
    44 16  tweak or seed (u32 or i32, then zeros), SipHash key, or start of the SHA-256 of a custom family's name
    60  4  CRC-32 of bytes 0 to 59, with flag 2 cleared
    64  …  ⌈m/8⌉ bytes of bits, bit b being 1 << (b & 7) of byte b >> 3;
           or ⌈m/2⌉ bytes of 4-bit counters, where those with an even number are in the low nibble;
           or m bytes of 8-bit counters; or 2m bytes of 16-bit counters
    end 4  CRC-32 of everything before, with flag 2 cleared

Bits beyond m are zero. The header determines the exact length of the file. It is validated before memory is allocated.
Scalable filters extend this format (seriesformat.py).
"""

from __future__ import annotations

import math
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from spvfilter._public import public
from spvfilter.bloom.sizing import MAX_COUNT, MAX_HASH_FUNCS as MAX_HASH_FUNCS
from spvfilter.errors import FormatError, counted
from spvfilter.files import replacing
from spvfilter.kernel import Encoding, Family
from spvfilter.primitives import chunks

MAGIC = b"SPVBLOOM"
STATIC_MAGIC = b"SPVFUSED"  # Start of the files of static filters (fuseformat.py).
VERSION = 1
HEADER_SIZE = 64  # Bytes of the header.
TRAILER_SIZE = 4  # Bytes of the CRC at the end.
KIND_BITS, KIND_SERIES = 1, 3
COUNTER_KINDS = {4: 2, 8: 4, 16: 5}  # The kind for each size of counters in bits.
# The name of the class that reads each kind.
_CLASSES = {
    KIND_BITS: "BloomFilter",
    KIND_SERIES: "ScalableBloomFilter",
    **dict.fromkeys(COUNTER_KINDS.values(), "CountingBloomFilter"),
}
_CELL_BITS = {KIND_BITS: 1, **{kind: size for size, kind in COUNTER_KINDS.items()}}
FLAG_PARTITIONED, FLAG_OPEN = 1, 2
MAX_CELLS = 1 << 56  # Largest m (our choice): more than any machine has, and sizes stay within 64 bits.
MAX_BIP37_BITS = 1 << 32  # Largest m with Bip37Hash: the range of a 32-bit hash.
_FAMILIES = frozenset(Family) - {Family.SPLIT_BLOCK}  # Parquet has a format of its own for it.
# Bytes of the family's key that are used. The rest of the 16 bytes is zero; families not listed use all of them.
_KEYED = {Family.BIP37: 4, Family.FAST: 4, Family.SPARK_V1: 0, Family.SPARK_V2: 4, Family.REDISBLOOM: 0}
_HEADER = struct.Struct("<8sHBBBBHIQQd16s")


def body_size(kind: int, cells: int) -> int:
    """Return the size in bytes of `cells` bits or counters."""
    return (cells * cell_bits(kind) + 7) // 8


def cell_bits(kind: int) -> int:
    """Return the size of a cell in bits: 1, or the size of a counter. A series consists of bits."""
    return _CELL_BITS.get(kind, 1)


@public
class FileHeader(NamedTuple):
    """The header of a filter's file."""

    kind: int
    """1 for bits, 3 for a series of slices; 2, 4 or 5 for counters of 4, 8 or 16 bits."""
    family: int
    """Number of the hash family (spvfilter.kernel.Family)."""
    encoding: int
    """Number of the encoding of keys (spvfilter.kernel.Encoding)."""
    flags: int
    """1 if partitioned, plus 2 if the file is open for writing."""
    hash_funcs: int
    """Number of hash functions k; in a series the number of slices."""
    cells: int
    """Number of bits or counters m; in a series the number of bits between this header and the last CRC."""
    capacity: int
    """Number of keys that the filter was made for; 0 if it was made with a number of bits."""
    fp_rate: float
    """False-positive rate at capacity; 0 if there is no capacity."""
    key: bytes
    """Key of the hash family, 16 bytes."""

    @property
    def body_size(self) -> int:
        """Size of the bits or counters in bytes."""
        return body_size(self.kind, self.cells)

    @property
    def partitioned(self) -> bool:
        """True if each hash function has its own plane of cells."""
        return bool(self.flags & FLAG_PARTITIONED)

    def pack(self, *, writing: bool = False) -> bytes:
        """Return the 64 bytes of the header. `writing` marks the file as open for writing."""
        closed = self._pack(self.flags & ~FLAG_OPEN)
        flags = self.flags | FLAG_OPEN if writing else self.flags & ~FLAG_OPEN
        return self._pack(flags) + zlib.crc32(closed).to_bytes(4, "little")

    def _pack(self, flags: int) -> bytes:
        numbers = (
            self.kind,
            self.family,
            self.encoding,
            flags,
            0,
            self.hash_funcs,
            self.cells,
            self.capacity,
            self.fp_rate,
            self.key,
        )
        return _HEADER.pack(MAGIC, VERSION, *numbers)

    @classmethod
    def parse(cls, raw: bytes) -> FileHeader:
        """Parse the header of a file.

        Raises FormatError if the header is too short, damaged, or of a different format or version. Also raised if its
        kind, family, encoding or a flag is unknown, or if its numbers are impossible.
        """
        if len(raw) < HEADER_SIZE:
            raise FormatError(f"truncated: expected {HEADER_SIZE} bytes, got {len(raw)}", offset=0, field="header")
        magic, version, kind, family, encoding, flags, zero, *rest = _HEADER.unpack_from(raw)
        if magic != MAGIC:
            hint = ": open it with StaticFilter" if magic == STATIC_MAGIC else ""
            raise FormatError(f"not a filter file: it starts with {magic!r}{hint}", offset=0, field="magic")
        if version != VERSION:
            raise FormatError(
                f"unsupported version {version} (only version {VERSION} is supported)", offset=8, field="version"
            )
        header = cls(kind, family, encoding, flags, *rest)
        if zlib.crc32(header._pack(flags & ~FLAG_OPEN)[:14] + raw[14:60]) != int.from_bytes(raw[60:64], "little"):
            raise FormatError("the header is damaged: its CRC does not match", offset=60, field="header CRC")
        if kind != KIND_SERIES and kind not in _CELL_BITS:
            raise FormatError(f"unknown kind {kind}", offset=10, field="kind")
        if family not in _FAMILIES:
            raise FormatError(f"unknown hash family {family}", offset=11, field="family")
        if encoding not in set(Encoding):
            raise FormatError(f"unknown encoding of keys {encoding}", offset=12, field="encoding")
        if flags & ~(FLAG_PARTITIONED | FLAG_OPEN) or zero:
            raise FormatError(f"unknown flags {flags:#04x} {zero:#06x}", offset=13, field="flags")
        if not 1 <= header.hash_funcs <= MAX_HASH_FUNCS:
            message = f"expected 1 to {MAX_HASH_FUNCS} hash functions, not {header.hash_funcs}"
            raise FormatError(message, offset=16, field="hash_funcs")
        if not 1 <= header.cells <= MAX_CELLS or (header.partitioned and header.cells % header.hash_funcs):
            said = f", a multiple of {header.hash_funcs} (hash_funcs)" if header.partitioned else ""
            message = f"the number of bits must be 1 to {MAX_CELLS}{said}, not {header.cells}"
            raise FormatError(message, offset=20, field="bits")
        if family == Family.BIP37 and kind != KIND_SERIES and header.cells > MAX_BIP37_BITS:
            message = f"murmur3 can address at most {MAX_BIP37_BITS} bits, not {header.cells}"
            raise FormatError(message, offset=20, field="bits")
        if header.capacity > MAX_COUNT:
            message = f"the capacity must be at most {MAX_COUNT}, not {header.capacity}"
            raise FormatError(message, offset=28, field="capacity")
        is_rate = 0 <= header.fp_rate < 1 and math.copysign(1.0, header.fp_rate) > 0  # neither NaN nor -0.0
        if not is_rate or (header.fp_rate > 0) != (header.capacity > 0):
            message = f"a filter of capacity {header.capacity} cannot have the rate {header.fp_rate}"
            raise FormatError(message, offset=36, field="fp_rate")
        keyed = _KEYED.get(Family(family), 16)
        if any(header.key[keyed:]):
            known = "a tweak or seed is 4 bytes long" if keyed else "the family has no seed"
            said = f"{known}, so the remaining bytes must be zero"
            raise FormatError(said, offset=44 + keyed, field="key")
        return header


class SizedHeader(Protocol):
    """The header of a file that has a header, a body and a 4-byte CRC."""

    @property
    def body_size(self) -> int:
        """Size of the body in bytes."""
        ...

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        ...


def write_to(file: IO[bytes], header: SizedHeader, body: memoryview) -> None:
    """Write header, bits and CRC.

    The CRC covers the bytes that were written, even if another process changes the bits at the same time.
    """
    raw = header.pack()
    file.write(raw)
    crc = zlib.crc32(raw)
    for chunk in chunks(body):
        raw = bytes(chunk)
        file.write(raw)
        crc = zlib.crc32(raw, crc)
    file.write(crc.to_bytes(TRAILER_SIZE, "little"))


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Context manager: write a new file that atomically replaces `path`, or the target of a symbolic link.

    It has the mode of the old file, or 0600 if there was none. Raises OSError.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode = None
    with replacing(target) as file:
        yield file
        if mode is not None and hasattr(os, "fchmod"):  # Windows has no such modes
            os.fchmod(file.fileno(), mode)


def save(path: Path, header: SizedHeader, body: memoryview) -> None:
    """Write the file of a filter to `path`, as `replaced` does."""
    with replaced(path) as file:
        write_to(file, header, body)


def check_size(header: SizedHeader, size: int) -> None:
    """Raise FormatError unless a file of `size` bytes has the length that its header determines."""
    expected = HEADER_SIZE + header.body_size + TRAILER_SIZE
    if size < expected:
        raise FormatError(f"truncated: expected {expected} bytes, got {size}", offset=size, field="file")
    if size > expected:
        raise FormatError(counted(size - expected, "trailing byte"), offset=expected, field="file")


def checksum(header: SizedHeader, body: memoryview) -> bytes:
    """Return the CRC at the end of the file, 4 bytes."""
    return zlib.crc32(body, zlib.crc32(header.pack())).to_bytes(TRAILER_SIZE, "little")


def check_crc(header: SizedHeader, body: memoryview, trailer: memoryview) -> None:
    """Raise FormatError if the CRC at the end of the file does not match."""
    if checksum(header, body) != trailer:
        raise FormatError(
            "the file is damaged: its CRC does not match", offset=HEADER_SIZE + header.body_size, field="CRC"
        )


def wrong_kind(header: FileHeader, wanted: str) -> FormatError:
    """Return the error for a file that belongs to another class than `wanted`."""
    stored = _CLASSES[header.kind]
    message = f"the file contains a {stored} (kind {header.kind}), not a {wanted}: open it with {stored}"
    return FormatError(message, offset=10, field="kind")


def check_cells(header: FileHeader, cells: memoryview) -> None:
    """Raise FormatError unless `cells` has the length that the header determines and no bits beyond m are set."""
    if len(cells) != header.body_size:
        hint = ": this starts like a filter file, so use open() or from_bytes()" if cells[: len(MAGIC)] == MAGIC else ""
        kind = "bits" if header.kind == KIND_BITS else f"{cell_bits(header.kind)}-bit counters"
        message = f"{header.cells} {kind} take {header.body_size} bytes, not {len(cells)}{hint}"
        raise FormatError(message, offset=min(len(cells), header.body_size), field="cells")
    check_padding(header, cells[-1])


def check_padding(header: FileHeader, last: int) -> None:
    """Raise FormatError if bits beyond m are set in the last byte."""
    used = header.cells * cell_bits(header.kind) % 8
    if used and last >> used:
        raise FormatError("padding bits are set", offset=HEADER_SIZE + header.body_size - 1, field="bits")


def read_into(file: IO[bytes], view: memoryview) -> None:
    """Fill the view from the file. Raises FormatError if the file ends too soon."""
    at = 0
    while at < len(view):
        # every raw or buffered binary file has readinto
        count = file.readinto(view[at : at + (1 << 20)])  # type: ignore[attr-defined]
        if not count:
            raise FormatError(f"truncated: expected {len(view)} bytes, got {at}", offset=at, field="file")
        at += count
