"""The Bloom filters of a Parquet file, found through its footer, without reading a column.

A file ends with the footer (FileMetaData in Thrift's compact protocol), its size as u32 little endian, and PAR1.
Source: parquet-format, README.md and parquet.thrift.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, NamedTuple

from spvfilter._public import public
from spvfilter.bloom.exchange.splitblock import BLOCK_SIZE, ParquetType, SplitBlockFilter, header_of
from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.errors import FormatError, ParameterError

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL = 8  # Bytes at the end of a file: the footer's size and the magic.
_MAX_FOOTER = 1 << 28  # Bytes of a footer (our choice).
_SHOWN = 20  # Names of columns in an error message.
_HEADER = 256  # Bytes to read for the header of a filter: more than any header has.
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_TAKEN: dict[str, tuple[ParquetType, ...]] = {  # Types of keys for each physical type, the default first.
    "INT32": ("int32", "uint32"),
    "INT64": ("int64", "uint64"),
    "BYTE_ARRAY": ("bytes", "utf-8"),
    "FIXED_LEN_BYTE_ARRAY": ("bytes",),
}


class _Chunk(NamedTuple):
    """A column chunk: the part of a column in one row group."""

    path: str
    """Name of the column; the parts of a nested name are separated by dots."""
    type: str
    """Physical type of the column."""
    offset: int | None
    """Offset of the chunk's filter in the file; None if it has no filter."""


@public
def column_filters(
    path: str | os.PathLike[str], column: str, *, keys: ParquetType | None = None
) -> list[SplitBlockFilter | None]:
    """Return the filters of a column, one for each row group; None for a row group without a filter.

    A row group has no row with a key that its filter does not contain.

    Args:
        path: Path of the file.
        column: Name of the column; the parts of a nested name are separated by dots.
        keys: Type of the keys if the column allows several: "bytes" (the default) or "utf-8" for a BYTE_ARRAY, signed
            (the default) or unsigned integers.

    Raises:
        FormatError: The file is truncated, damaged, encrypted or not a Parquet file.
        ParameterError: There is no such column, or its type does not allow such keys. FLOAT, DOUBLE, INT96 and BOOLEAN
            allow none.
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found: list[SplitBlockFilter | None] = []
        total = 0
        for chunk in _footer(file, size, column):
            kind = _kind(chunk, keys)
            found.append(None if chunk.offset is None else _read(file, size, chunk.offset, kind))
            total += 0 if (last := found[-1]) is None else last.blocks * BLOCK_SIZE
            if total > size:
                raise FormatError(
                    f"filters of more than {size} bytes: they overlap",
                    offset=chunk.offset or 0,
                    field="bloom_filter_offset",
                )
    return found


def _kind(chunk: _Chunk, keys: ParquetType | None) -> ParquetType:
    taken = _TAKEN.get(chunk.type, ())
    if not taken:
        raise ParameterError(f"{chunk.path} is of {chunk.type}, whose keys are not supported")
    if keys is None:
        return taken[0]
    if keys not in taken:
        raise ParameterError(f"{chunk.path} is of {chunk.type}: its keys are {' or '.join(taken)}, not {keys!r}")
    return keys


def _read(file: IO[bytes], size: int, offset: int, keys: ParquetType) -> SplitBlockFilter:
    if not len(_MAGIC) <= offset < size - _TAIL:
        raise FormatError(
            f"a filter at byte {offset} of {size}", offset=offset if offset >= 0 else 0, field="bloom_filter_offset"
        )
    file.seek(offset)
    length, start = header_of(memoryview(file.read(_HEADER)), offset)
    if offset + start + length > size - _TAIL:
        message = f"truncated: {length} bytes wanted, {size - _TAIL - offset - start} present"
        raise FormatError(message, offset=offset + start, field="blocks")
    file.seek(offset + start)
    blocks = file.read(length)
    if len(blocks) != length:
        raise FormatError(
            f"truncated: {length} bytes wanted, {len(blocks)} present", offset=offset + start, field="blocks"
        )
    return SplitBlockFilter._over(bytearray(blocks), keys)


def _footer(file: IO[bytes], size: int, column: str) -> list[_Chunk]:
    """Return the chunk of the column in each row group."""
    if size < len(_MAGIC) + _TAIL:
        raise FormatError(f"not a Parquet file: {size} bytes", offset=0, field="file")
    file.seek(size - _TAIL)
    tail = file.read(_TAIL)
    if tail[4:] == _ENCRYPTED:
        raise FormatError("the footer is encrypted", offset=size - len(_MAGIC), field="magic")
    if tail[4:] != _MAGIC:
        raise FormatError(f"not a Parquet file: it ends with {tail[4:]!r}", offset=size - len(_MAGIC), field="magic")
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL - length
    if start < len(_MAGIC) or length > _MAX_FOOTER:
        raise FormatError(f"a footer of {length} bytes in a file of {size}", offset=size - _TAIL, field="footer")
    file.seek(start)
    cursor = Thrift(memoryview(file.read(length)), start, "footer")
    chunks: list[_Chunk] = []
    for number, wire in cursor.fields():
        if number == 4:
            chunks = [_group(cursor, item, column) for item in cursor.items(wire)]
        else:
            cursor.skip(wire)
    return chunks


def _group(cursor: Thrift, wire: Wire, column: str) -> _Chunk:
    found: _Chunk | None = None
    names: list[str] = []
    for number, field in cursor.fields(wire):
        if number != 1:
            cursor.skip(field)
            continue
        for item in cursor.items(field):
            chunk = _chunk(cursor, item)
            if chunk.path == column:
                found = chunk
            elif len(names) < _SHOWN:
                names.append(chunk.path)
    if found is None:
        if not names:
            raise cursor.wrong("a row group without columns")
        raise ParameterError(
            f"no column {column!r}: there are {', '.join(names)}{', …' if len(names) == _SHOWN else ''}"
        )
    return found


def _chunk(cursor: Thrift, wire: Wire) -> _Chunk:
    found = None
    for number, field in cursor.fields(wire):
        if number == 3:
            found = _metadata(cursor, field)
        else:
            cursor.skip(field)
    if found is None:
        raise cursor.wrong("a column chunk without metadata: the column is encrypted")
    return found


def _metadata(cursor: Thrift, wire: Wire) -> _Chunk:
    kind, path, offset = None, None, None
    for number, field in cursor.fields(wire):
        match number:
            case 1:
                kind = cursor.integer(field)
            case 3:
                path = b".".join(cursor.binary(item) for item in cursor.items(field)).decode(errors="backslashreplace")
            case 14:
                offset = cursor.integer(field)
            case _:
                cursor.skip(field)
    if kind is None or path is None or not 0 <= kind < len(_TYPES):
        raise cursor.wrong("a column chunk without type or name")
    return _Chunk(path, _TYPES[kind], offset)
