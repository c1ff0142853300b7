"""The file format of static filters.

A file is a 64-byte header, the table of fingerprints, and a 4-byte CRC. Integers are little endian.

    0   8  magic "SPVFUSED"
    8   2  version, 1
    10  1  bits of a fingerprint: 8, 16 or 32
    11  1  hash family: 2 fast, 3 SipHash, 255 custom
    12  1  encoding of keys: 0 bytes, 1 utf-8, 2 int64, 3 uint64, 4 int32, 5 uint32, 255 custom
    13  1  binary logarithm of the number of cells in a segment, from 0 to 18
    14  2  zero
    16  4  S, the number of segments in which a key's first cell can be; 0 if there are no keys
    20  4  number of the seed
    24  8  number of keys
    32 16  seed (u32, then zeros), SipHash key, or start of the SHA-256 of a custom family's name
    48 12  zero
    60  4  CRC-32 of bytes 0 to 59
    64  …  the cells of S + 2 segments, a fingerprint each; nothing if S is 0
    end 4  CRC-32 of everything before

The header determines the exact length of the file, and is validated before memory is allocated. A table has fewer than
2^32 cells. spvfilter.kernel.pure.fuse describes the table.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.bloom.fileformat import HEADER_SIZE, MAGIC as BLOOM_MAGIC, STATIC_MAGIC as MAGIC
from spvfilter.errors import FormatError
from spvfilter.kernel import Encoding, Family

VERSION = 1
MAX_CELLS = (1 << 32) - 1  # Most cells of a table: the kernel numbers them with 32 bits.
_LONGEST = 18  # Binary logarithm of the cells of the longest segment.
_HEADER = struct.Struct("<8sHBBBBHIIQ16s12s")
_FAMILIES = (Family.FAST, Family.SIPHASH, Family.CUSTOM)


@public
class StaticHeader(NamedTuple):
    """The header of a static filter's file."""

    fingerprint_bits: int
    """Number of bits in a fingerprint: 8, 16 or 32."""
    family: int
    """Number of the hash family (spvfilter.kernel.Family)."""
    encoding: int
    """Number of the encoding of keys (spvfilter.kernel.Encoding)."""
    segment_length: int
    """Number of cells in a segment, a power of two."""
    segments: int
    """Number of segments in which a key's first cell can be; 0 if there are no keys."""
    seed: int
    """Number of the seed, a u32."""
    keys: int
    """Number of keys."""
    key: bytes
    """Key of the hash family, 16 bytes."""

    @property
    def cells(self) -> int:
        """Number of cells in the table."""
        return (self.segments + 2) * self.segment_length if self.segments else 0

    @property
    def body_size(self) -> int:
        """Size of the table in bytes."""
        return self.cells * self.fingerprint_bits // 8

    def pack(self) -> bytes:
        """Return the 64 bytes of the header."""
        start = MAGIC, VERSION, self.fingerprint_bits, self.family, self.encoding, self.segment_length.bit_length() - 1
        raw = _HEADER.pack(*start, 0, self.segments, self.seed, self.keys, self.key, bytes(12))
        return raw + zlib.crc32(raw).to_bytes(4, "little")

    @classmethod
    def parse(cls, raw: bytes) -> StaticHeader:
        """Parse the header of a file.

        Raises FormatError if the header is too short, damaged, or of a different format or version. Also raised if its
        fingerprint size, family or encoding is unknown, or if its numbers are impossible.
        """
        if len(raw) < HEADER_SIZE:
            raise FormatError(f"truncated: expected {HEADER_SIZE} bytes, got {len(raw)}", offset=0, field="header")
        magic, version, bits, family, encoding, power, zero, segments, seed, keys, key, zeros = _HEADER.unpack_from(raw)
        if magic != MAGIC:
            hint = ": open it with the class of a Bloom filter" if magic == BLOOM_MAGIC else ""
            raise FormatError(f"not a static filter's file: it starts with {magic!r}{hint}", offset=0, field="magic")
        if version != VERSION:
            raise FormatError(
                f"unsupported version {version} (only version {VERSION} is supported)", offset=8, field="version"
            )
        if zlib.crc32(raw[:60]) != int.from_bytes(raw[60:64], "little"):
            raise FormatError("the header is damaged: its CRC does not match", offset=60, field="header CRC")
        if bits not in (8, 16, 32):
            raise FormatError(f"fingerprints must be 8, 16 or 32 bits, not {bits}", offset=10, field="fingerprint_bits")
        if family not in _FAMILIES:
            raise FormatError(f"unknown hash family {family}", offset=11, field="family")
        if encoding not in set(Encoding):
            raise FormatError(f"unknown encoding of keys {encoding}", offset=12, field="encoding")
        if power > _LONGEST:
            message = f"a segment must have at most 2^{_LONGEST} cells, not 2^{power}"
            raise FormatError(message, offset=13, field="segment_length")
        if zero or any(zeros):
            raise FormatError("reserved bytes must be zero", offset=14 if zero else 48, field="zero")
        header = cls(bits, family, encoding, 1 << power, segments, seed, keys, key)
        if header.cells > MAX_CELLS:
            raise FormatError(
                f"a table must have at most {MAX_CELLS} cells, not {header.cells}", offset=16, field="segments"
            )
        if keys > header.cells:
            raise FormatError(f"a table of {header.cells} cells cannot contain {keys} keys", offset=24, field="keys")
        if segments and not keys:
            raise FormatError("a table without keys must be empty", offset=24, field="keys")
        if family == Family.FAST and any(key[4:]):
            raise FormatError("a seed is 4 bytes long, so the remaining bytes must be zero", offset=36, field="key")
        return header
