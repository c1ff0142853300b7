"""The file format of scalable Bloom filters: the header of fileformat.py, the parameters of growth, and a whole file
for each slice.

0  64  a header of kind 3: k is the number of slices, m the number of bits of all that is between this header and the
last CRC; capacity and rate are the initial capacity and the rate of the whole; flags are 0 64  8  growth 72  8
tightening, IEEE 754 double 80  …  the slices' files, one after the other: headers of kind 1 of the same hash family,
key and encoding, bits, CRC end 4  CRC-32 of everything before
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.bloom import fileformat
from spvfilter.bloom.base import allocate
from spvfilter.bloom.fileformat import HEADER_SIZE, KIND_BITS, KIND_SERIES, TRAILER_SIZE, FileHeader
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.growth import Growth
from spvfilter.errors import FormatError, ParameterError
from spvfilter.files import replacing
from spvfilter.kernel import MAX_SLICES
from spvfilter.primitives import chunks

if TYPE_CHECKING:
    import mmap
else:
    mmap = deferred("mmap")

_GROWTH = struct.Struct("<Qd")


class _Summed(io.RawIOBase):
    """A file and the CRC of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.crc = 0

    def write(self, raw: bytes) -> int:  # type: ignore[override]  # of any buffer
        self.crc = zlib.crc32(raw, self.crc)
        return self._file.write(raw)


def write_to(file: IO[bytes], plan: Growth, slices: Sequence[BloomFilter]) -> None:
    """Write a scalable filter."""
    first = slices[0].header()
    size = _GROWTH.size + sum(HEADER_SIZE + slice.header().body_size + TRAILER_SIZE for slice in slices)
    header = first._replace(
        kind=KIND_SERIES, hash_funcs=len(slices), cells=8 * size, capacity=plan.capacity, fp_rate=plan.fp_rate
    )
    summed = _Summed(file)
    summed.write(header.pack() + _GROWTH.pack(plan.growth, plan.tightening))
    for slice in slices:
        fileformat.write_to(summed, slice.header(), slice.body)  # type: ignore[arg-type]  # it only writes
    file.write(summed.crc.to_bytes(TRAILER_SIZE, "little"))


def packed(plan: Growth, slices: Sequence[BloomFilter]) -> bytes:
    """The contents of a file."""
    file = io.BytesIO()
    write_to(file, plan, slices)
    return file.getvalue()


def save(path: Path, plan: Growth, slices: Sequence[BloomFilter]) -> None:
    """Write a file of mode 0600 that atomically replaces `path`."""
    with replacing(path) as file:
        write_to(file, plan, slices)


def read(path: Path) -> memoryview:
    """The contents of a file that starts like a scalable filter. Raises OSError, FormatError, TooLargeError."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header_of(file.read(HEADER_SIZE), size)
        whole = memoryview(allocate(size)).cast("B")
        file.seek(0)
        fileformat.read_into(file, whole)
    return whole


def mapped(file: IO[bytes]) -> memoryview:
    """The contents of such a file, mapped into memory. Raises OSError, FormatError."""
    size = os.fstat(file.fileno()).st_size
    header_of(file.read(HEADER_SIZE), size)
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def header_of(raw: bytes | memoryview, size: int) -> FileHeader:
    """The header of a scalable filter's file of `size` bytes. Raises FormatError."""
    header = FileHeader.parse(bytes(raw[:HEADER_SIZE]))
    if header.kind != KIND_SERIES:
        raise FormatError(f"kind {header.kind} is not a ScalableBloomFilter", offset=10, field="kind")
    if header.flags:
        raise FormatError(f"flags {header.flags:#04x} of a series", offset=13, field="flags")
    if header.hash_funcs > MAX_SLICES:
        raise FormatError(f"{header.hash_funcs} slices, at most {MAX_SLICES}", offset=16, field="slices")
    if header.cells % 8 or header.cells < 8 * (_GROWTH.size + HEADER_SIZE):
        raise FormatError(f"{header.cells} bits", offset=20, field="bits")
    if not header.capacity:
        raise FormatError("a series has an initial capacity", offset=28, field="capacity")
    fileformat.check_size(header, size)
    return header


def parse(whole: memoryview, verify: bool) -> tuple[FileHeader, Growth, list[tuple[FileHeader, memoryview]]]:
    """Header, growth, and the header and bits of each slice. `verify` also checks the CRC. Raises FormatError."""
    header = header_of(whole, len(whole))
    end = len(whole) - TRAILER_SIZE
    if verify and _checksum(whole[:end]) != bytes(whole[end:]):
        raise FormatError("the file is damaged: its CRC does not match", offset=end, field="CRC")
    plan = Growth(header.capacity, header.fp_rate, *_GROWTH.unpack_from(whole, HEADER_SIZE))
    try:
        plan.checked()
    except ParameterError as error:
        raise FormatError(str(error), offset=HEADER_SIZE, field="growth") from None
    slices, at = [], HEADER_SIZE + _GROWTH.size
    for number in range(header.hash_funcs):
        try:
            part = _slice(header, whole[at:end])
        except FormatError as error:
            raise FormatError(
                error.message, offset=at + error.offset, field=f"{error.field} of slice {number}"
            ) from None
        slices.append((part, whole[at + HEADER_SIZE : at + HEADER_SIZE + part.body_size]))
        at += HEADER_SIZE + part.body_size + TRAILER_SIZE
    if at != end:
        raise FormatError(f"{end - at} trailing bytes after the slices", offset=at, field="file")
    return header, plan, slices


def _slice(header: FileHeader, rest: memoryview) -> FileHeader:
    """The header of the slice at the start of the rest of a file. Raises FormatError."""
    part = FileHeader.parse(bytes(rest[:HEADER_SIZE]))
    if part.kind != KIND_BITS or part.flags:
        raise FormatError(
            f"kind {part.kind} with flags {part.flags:#04x}, where a slice is expected", offset=10, field="kind"
        )
    if (part.family, part.encoding, part.key) != (header.family, header.encoding, header.key):
        raise FormatError(
            "the slice has another hash family, key or encoding than the series", offset=11, field="family"
        )
    if not part.capacity:
        raise FormatError("a slice has a capacity", offset=28, field="capacity")
    fileformat.check_size(part, min(len(rest), HEADER_SIZE + part.body_size + TRAILER_SIZE))
    fileformat.check_padding(part, rest[HEADER_SIZE + part.body_size - 1])
    return part


def _checksum(view: memoryview) -> bytes:
    crc = 0
    for chunk in chunks(view):
        crc = zlib.crc32(chunk, crc)
    return crc.to_bytes(TRAILER_SIZE, "little")
