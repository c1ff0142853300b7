"""The file format of scalable Bloom filters: a header, the parameters of growth, and a whole file for each slice.

Integers are little endian.

    0  64  header as in fileformat.py, of kind 3, with these differences: k is the number of slices; m is the number
           of bits between this header and the last CRC; capacity and rate are the initial capacity and the rate of
           the whole filter; flags are 0
    64  8  growth
    72  8  tightening, IEEE 754 double
    80  …  the files of the slices: headers of kind 1 with the same hash family, key and encoding, bits, CRC
    end 4  CRC-32 of everything before
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from spvfilter.bloom import fileformat
from spvfilter.bloom.base import allocate
from spvfilter.bloom.fileformat import HEADER_SIZE, KIND_BITS, KIND_SERIES, TRAILER_SIZE, FileHeader
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.growth import Growth
from spvfilter.errors import FormatError, ParameterError, counted
from spvfilter.kernel import MAX_SLICES
from spvfilter.primitives import chunks

_GROWTH = struct.Struct("<Qd")


class _Summed(io.RawIOBase):
    """A file that computes the CRC of everything that is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self.crc = 0

    def write(self, raw: bytes) -> int:  # type: ignore[override]  # the base class takes any buffer
        """Write the bytes."""
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
        fileformat.write_to(summed, slice.header(), slice.body)  # type: ignore[arg-type]  # only `write` is called
    file.write(summed.crc.to_bytes(TRAILER_SIZE, "little"))


def packed(plan: Growth, slices: Sequence[BloomFilter]) -> bytes:
    """Return the contents of the file of a scalable filter."""
    file = io.BytesIO()
    write_to(file, plan, slices)
    return file.getvalue()


def save(path: Path, plan: Growth, slices: Sequence[BloomFilter]) -> None:
    """Write the file of a scalable filter to `path`, as `fileformat.replaced` does."""
    with fileformat.replaced(path) as file:
        write_to(file, plan, slices)


def read(path: Path) -> memoryview:
    """Return the contents of the file of a scalable filter. Only its header is checked.

    Raises FormatError if it is not the file of a scalable filter, TooLargeError if it does not fit into memory, and
    OSError if it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header_of(file.read(HEADER_SIZE), size)
        whole = memoryview(allocate(size)).cast("B")
        file.seek(0)
        fileformat.read_into(file, whole)
    return whole


def mapped(file: IO[bytes]) -> memoryview:
    """Map the file of a scalable filter into memory. Only its header is checked. Raises OSError or FormatError."""
    size = os.fstat(file.fileno()).st_size
    header_of(file.read(HEADER_SIZE), size)
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def header_of(raw: bytes | memoryview, size: int) -> FileHeader:
    """Return the header of a scalable filter's file of `size` bytes. Raises FormatError if it is not such a file."""
    header = FileHeader.parse(bytes(raw[:HEADER_SIZE]))
    if header.kind != KIND_SERIES:
        raise fileformat.wrong_kind(header, "ScalableBloomFilter")
    if header.flags:
        raise FormatError(f"the flags of a series must be 0, not {header.flags:#x}", offset=13, field="flags")
    if header.hash_funcs > MAX_SLICES:
        message = f"a series must have at most {MAX_SLICES} slices, not {header.hash_funcs}"
        raise FormatError(message, offset=16, field="slices")
    if header.cells % 8 or header.cells < 8 * (_GROWTH.size + HEADER_SIZE):
        raise FormatError(f"the slices of a series cannot have {header.cells} bits", offset=20, field="bits")
    if not header.capacity:
        raise FormatError("a series needs an initial capacity above 0", offset=28, field="capacity")
    fileformat.check_size(header, size)
    return header


def parse(whole: memoryview, verify: bool) -> tuple[FileHeader, Growth, list[tuple[FileHeader, memoryview]]]:
    """Return the header, the growth, and the header and bits of each slice.

    If `verify` is True, the CRC is also checked. Raises FormatError if the file is malformed.
    """
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
        raise FormatError(f"{counted(end - at, 'trailing byte')} after the slices", offset=at, field="file")
    return header, plan, slices


def _slice(header: FileHeader, rest: memoryview) -> FileHeader:
    """Return the header of the slice at the start of `rest`. Raises FormatError if it does not match the series."""
    part = FileHeader.parse(bytes(rest[:HEADER_SIZE]))
    if part.kind != KIND_BITS or part.flags:
        raise FormatError(
            f"expected a slice, got kind {part.kind} with flags {part.flags:#04x}", offset=10, field="kind"
        )
    if (part.family, part.encoding, part.key) != (header.family, header.encoding, header.key):
        raise FormatError("the slice and the series differ in hash family, key or encoding", offset=11, field="family")
    if not part.capacity:
        raise FormatError("a slice needs a capacity above 0", offset=28, field="capacity")
    fileformat.check_size(part, min(len(rest), HEADER_SIZE + part.body_size + TRAILER_SIZE))
    fileformat.check_padding(part, rest[HEADER_SIZE + part.body_size - 1])
    return part


def _checksum(view: memoryview) -> bytes:
    crc = 0
    for chunk in chunks(view):
        crc = zlib.crc32(chunk, crc)
    return crc.to_bytes(TRAILER_SIZE, "little")
