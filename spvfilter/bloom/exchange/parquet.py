"""Read the Bloom filters of a Parquet file through its footer, without reading any column.

A file ends with the footer (FileMetaData in Thrift's compact protocol), its size as u32 little endian, and PAR1.
Source: parquet-format, README.md and parquet.thrift.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple, cast

from spvfilter._public import public
from spvfilter.bloom.exchange.splitblock import BLOCK_SIZE, MAX_HEADER, ParquetType, SplitBlockFilter, header_of
from spvfilter.bloom.exchange.thrift import Thrift, Wire
from spvfilter.bloom.exchange.typedblock import ParquetDecimal, TypedBlockFilter, TypedKeys
from spvfilter.errors import FormatError, ParameterError, remedy

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PLAIN_NAME = re.compile(r"[^\\\ud800-\udfff]+")  # the end of a name whose bytes a chunk contains unchanged
_TAIL = 8  # Bytes at the end of a file: the footer's size and the magic.
_MAX_FOOTER = 1 << 28  # Bytes of a footer (our choice).
_SHOWN = 20  # Names of columns in an error message.
_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_TAKEN: dict[str, tuple[ParquetType | TypedKeys, ...]] = {  # Types of keys for each physical type, the default first.
    "INT32": ("int32", "uint32"),
    "INT64": ("int64", "uint64"),
    "BYTE_ARRAY": ("bytes", "utf-8"),
    "FIXED_LEN_BYTE_ARRAY": ("bytes",),
    "FLOAT": ("float",),
    "DOUBLE": ("double",),
}
# Types of keys for each converted type, and for each member of the union LogicalType. "-" stands for a unit.
_CONVERTED: dict[int, TypedKeys] = {
    6: "date",
    7: "time-ms",
    8: "time-us",
    9: "timestamp-ms",
    10: "timestamp-us",
}
_DECIMAL = 5  # Converted type of decimals.
_FORMS: dict[int, Literal["int32", "int64"] | None] = {1: "int32", 2: "int64", 6: None}  # For each physical type.
_LOGICAL = {6: "date", 7: "time-", 8: "timestamp-"}
_UNITS = {1: "ms", 2: "us", 3: "ns"}
_PLAIN = ("int32", "uint32", "int64", "uint64", "bytes", "utf-8")


class _Chunk(NamedTuple):
    """A column chunk: the part of a column in one row group."""

    path: str
    """Name of the column; the parts of a nested name are separated by dots."""
    type: str
    """Physical type of the column."""
    offset: int | None
    """Offset of the chunk's filter in the file; None if it has no filter."""
    logical: TypedKeys | ParquetDecimal | None = None
    """Type of the keys if the column has decimals, dates, times or timestamps."""


@public
def column_filters(
    path: str | os.PathLike[str] | IO[bytes],
    column: str,
    *,
    keys: ParquetType | TypedKeys | ParquetDecimal | None = None,
) -> list[SplitBlockFilter | None]:
    """Return the filters of a column: for each row group, one filter, or None if it has none.

    If a filter does not contain a key, no row of its row group does.

    Args:
        path: Path of the file, its URL (such as s3://bucket/file, with the `remote` extra), or an open binary file
            that can seek. A file that the caller opened stays open.
        column: Name of the column; the parts of a nested name are separated by dots.
        keys: Type of the keys if the column allows several: "bytes" (the default) or "utf-8" for a BYTE_ARRAY, signed
            (the default) or unsigned integers. By default a column of floats, decimals, dates, times or timestamps
            gives filters of the class TypedBlockFilter.

    Raises:
        FormatError: The file is truncated, damaged, encrypted or not a Parquet file.
        ParameterError: There is no such column, several columns have that name, or its type does not allow such keys.
            INT96 and BOOLEAN allow none. Also raised if fsspec is missing for a URL.
        TypeError: `path` is neither a path nor an open binary file that can seek.
        OSError: The file cannot be read.
    """
    with _opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        found: list[SplitBlockFilter | None] = []
        total = 0
        for chunk in _footer(file, size, column):
            kind = _kind(chunk, keys)
            found.append(None if chunk.offset is None else _read(file, size, chunk.offset, kind))
            total += 0 if (last := found[-1]) is None else last.blocks * BLOCK_SIZE
            if total > size:
                raise FormatError(
                    f"the filters take more than {size} bytes in total, so they overlap",
                    offset=chunk.offset or 0,
                    field="bloom_filter_offset",
                )
    return found


@contextmanager
def _opened(path: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """Context manager: open the file for reading, unless it is open already."""
    if isinstance(path, str) and _HAS_SCHEME.match(path):
        try:
            import fsspec
        except ImportError:
            raise ParameterError(f"reading a file from a URL needs fsspec; {remedy('remote')}") from None
        with fsspec.open(path, "rb") as file:
            yield file
    elif isinstance(path, (str, os.PathLike)):
        with Path(path).open("rb") as file:
            yield file
    elif _is_text(path) or not hasattr(path, "read") or not path.seekable():
        raise TypeError(f"expected a path, or an open binary file that can seek, not {type(path).__name__}")
    else:
        yield path


def _is_text(file: object) -> bool:
    return isinstance(file, io.TextIOBase)


def _bytes_at(file: IO[bytes], offset: int, size: int) -> bytes:
    """Return the bytes of a range. There are fewer only if the file ends within it."""
    file.seek(offset)
    parts = []
    while size and (part := file.read(size)):  # a file without a buffer may return less
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _kind(
    chunk: _Chunk, keys: ParquetType | TypedKeys | ParquetDecimal | None
) -> ParquetType | TypedKeys | ParquetDecimal:
    taken: tuple[ParquetType | TypedKeys | ParquetDecimal, ...] = _TAKEN.get(chunk.type, ())
    if not taken:
        raise ParameterError(f"{chunk.path} is of type {chunk.type}, which is not supported for keys")
    if chunk.logical is not None:
        taken = (chunk.logical, *taken)
    if keys is None:
        return taken[0]
    if keys not in taken:
        raise ParameterError(
            f"{chunk.path} is of type {chunk.type}: its keys must be {' or '.join(map(str, taken))}, not {keys!r}"
        )
    return keys


def _read(file: IO[bytes], size: int, offset: int, keys: ParquetType | TypedKeys | ParquetDecimal) -> SplitBlockFilter:
    if not len(_MAGIC) <= offset < size - _TAIL:
        message = f"the offset of a filter is {offset}, but the file is {size} bytes long"
        raise FormatError(message, offset=max(0, offset), field="bloom_filter_offset")
    length, start = header_of(memoryview(_bytes_at(file, offset, MAX_HEADER)), offset)
    if offset + start + length > size - _TAIL:
        message = f"truncated: expected {length} bytes, got {size - _TAIL - offset - start}"
        raise FormatError(message, offset=offset + start, field="blocks")
    blocks = _bytes_at(file, offset + start, length)
    if len(blocks) != length:
        raise FormatError(
            f"truncated: expected {length} bytes, got {len(blocks)}", offset=offset + start, field="blocks"
        )
    kind = SplitBlockFilter if keys in _PLAIN else TypedBlockFilter
    return kind._copied(memoryview(blocks), cast(ParquetType, keys))


def _footer(file: IO[bytes], size: int, column: str) -> list[_Chunk]:
    """Return the chunk of the column in each row group."""
    if size < len(_MAGIC) + _TAIL:
        raise FormatError(f"not a Parquet file: it is only {size} bytes long", offset=0, field="file")
    tail = _bytes_at(file, size - _TAIL, _TAIL)
    if tail[4:] == _ENCRYPTED:
        raise FormatError("the footer is encrypted", offset=size - len(_MAGIC), field="magic")
    if tail[4:] != _MAGIC:
        raise FormatError(f"not a Parquet file: it ends with {tail[4:]!r}", offset=size - len(_MAGIC), field="magic")
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL - length
    if start < len(_MAGIC) or length > _MAX_FOOTER:
        message = f"the footer is {length} bytes long, but the file is only {size}"
        raise FormatError(message, offset=size - _TAIL, field="footer")
    cursor = Thrift(_bytes_at(file, start, length), start, "footer")
    chunks: list[_Chunk] = []
    known = None
    leaves: list[TypedKeys | ParquetDecimal | None] = []
    for number, wire in cursor.fields():
        if number == 2:
            leaves = [leaf for item in cursor.items(wire) for leaf in _leaf(cursor, item)]
            continue
        if number != 4:
            cursor.skip(wire)
            continue
        for item in cursor.items(wire):
            known, chunk = _group(cursor, item, column, known)
            logical = leaves[known] if known < len(leaves) else None
            chunks.append(chunk._replace(logical=logical))
    return chunks


def _leaf(cursor: Thrift, wire: Wire) -> list[TypedKeys | ParquetDecimal | None]:
    """Return a list that contains an element's logical type, or None if it is unknown. The list of a group is empty."""
    logical: TypedKeys | None = None
    numbers: dict[int, int] = {}
    for number, field in cursor.fields(wire):
        if number in (1, 2, 6, 7):  # type, length of fixed bytes, converted type, scale
            numbers[number] = cursor.integer(field)
        elif number == 10:
            logical = _logical(cursor, field)
        else:
            cursor.skip(field)
    if 1 not in numbers:
        return []
    converted = numbers.get(6, -1)
    if converted != _DECIMAL:
        return [logical or _CONVERTED.get(converted)]
    form = _FORMS.get(numbers[1], numbers.get(2))
    return [ParquetDecimal(numbers.get(7, 0), form)]


def _logical(cursor: Thrift, wire: Wire) -> TypedKeys | None:
    """Return the type of keys that a LogicalType describes, or None for any other type."""
    found = None
    for number, member in cursor.fields(wire):
        name = _LOGICAL.get(number, "")
        if not name.endswith("-"):
            cursor.skip(member)
            found = name or None
            continue
        for inner, field in cursor.fields(member):
            if inner != 2:
                cursor.skip(field)
                continue
            for unit, empty in cursor.fields(field):
                cursor.skip(empty)
                found = f"{name}{_UNITS[unit]}" if unit in _UNITS else None
    return cast("TypedKeys | None", found)


def _group(cursor: Thrift, wire: Wire, column: str, known: int | None) -> tuple[int, _Chunk]:
    """Return the number and the chunk of the column in a row group.

    `known` is its number in an earlier row group; the other chunks are then skipped. Without it, chunks whose bytes do
    not contain the name are skipped. If none is found, all chunks are read, because the error lists their names.
    """
    start = cursor.at
    needle = column.rpartition(".")[2]
    if known is None and _PLAIN_NAME.fullmatch(needle):
        found, names = _chunks(cursor, wire, column, needle.encode())
        if len(found) == 1:
            return found[0]
        cursor.at = start
    found, names = _chunks(cursor, wire, column, None, known)
    if not names:
        raise cursor.wrong("a row group has no columns" if known is None else f"a row group has no column {known}")
    if not found:
        if known is not None:
            raise cursor.wrong(f"column {known} is {column!r} in one row group and {names[0]!r} in another")
        more = ", …" if len(names) > _SHOWN else ""
        raise ParameterError(f"no column {column!r}: the columns are {', '.join(names[:_SHOWN])}{more}")
    if len(found) > 1:
        places = " and ".join(str(at) for at, _ in found)
        raise ParameterError(f"{column!r} is the name of several columns, numbers {places}: rename one of them")
    return found[0]


def _chunks(
    cursor: Thrift, wire: Wire, column: str, needle: bytes | None, known: int | None = None
) -> tuple[list[tuple[int, _Chunk]], list[str]]:
    """Return the number and chunk of each column of this name in a row group, and the names of the chunks read.

    With `needle`, only chunks whose bytes contain it are read. With `known`, only the chunk with this number is read.
    """
    found: list[tuple[int, _Chunk]] = []
    names: list[str] = []
    for number, field in cursor.fields(wire):
        if number != 1:
            cursor.skip(field)
            continue
        for at, item in enumerate(cursor.items(field)):
            if known is not None and at != known:
                cursor.skip(item)
                continue
            if needle is not None and cursor.skip_without(item, needle):
                continue
            chunk = read_chunk(cursor, item)
            names.append(chunk.path)
            if chunk.path == column:
                found.append((at, chunk))
    return found, names


def read_chunk(cursor: Thrift, wire: Wire) -> _Chunk:
    """Read the metadata of one column chunk."""
    found = None
    for number, field in cursor.fields(wire):
        if number == 3:
            found = _metadata(cursor, field)
        else:
            cursor.skip(field)
    if found is None:
        raise cursor.wrong("a column chunk has no metadata, so the column is encrypted")
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
        raise cursor.wrong("a column chunk has no type or no name")
    return _Chunk(path, _TYPES[kind], offset)
