"""A reader of Thrift's compact protocol, which Parquet uses for its footer and for the headers of its filters.

A struct is a sequence of fields that ends with a zero byte. A field is a byte and a value. The byte has the difference
to the last field's number in its high half and the type in its low half. If the difference is 0, the number follows as
a zigzag varint.

Integers are zigzag varints. Source: Apache Thrift, thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from spvfilter.errors import FormatError

_DEEPEST = 16  # Deepest nesting of structs (our choice); a footer has about 6 levels.
_LONGEST = 10  # Bytes of the longest varint of 64 bits.
_TOO_LONG = f"a number of more than {_LONGEST} bytes"


class Wire(IntEnum):
    """Types of values in the compact protocol."""

    TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


_INTEGERS = (Wire.I16, Wire.I32, Wire.I64)


class Thrift:
    """A cursor over bytes that checks every step.

    Every method raises FormatError if the bytes are malformed.
    """

    def __init__(self, raw: bytes | memoryview, offset: int, name: str) -> None:
        """Start at the beginning of `raw`.

        Args:
            raw: The bytes to read.
            offset: Offset of `raw` in its file, for errors.
            name: Name of the structure, for errors.
        """
        self._raw = bytes(raw)
        self._offset = offset
        self._name = name
        self.at: int = 0

    def wrong(self, said: str) -> FormatError:
        """Return the error for the value that was read last."""
        return FormatError(said, offset=self._offset + self.at, field=self._name)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if size > len(self._raw) - self.at:
            raise self.wrong(f"truncated: {size} bytes wanted, {len(self._raw) - self.at} present")
        self.at += size
        return self._raw[self.at - size : self.at]

    def varint(self) -> int:
        """Return the next unsigned number."""
        value = 0
        for shift in range(0, 7 * _LONGEST, 7):
            if self.at >= len(self._raw):
                raise self.wrong("truncated: 1 bytes wanted, 0 present")
            byte = self._raw[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.wrong(_TOO_LONG)

    def integer(self, wire: Wire) -> int:
        """Return the signed number of a field of type `wire`."""
        if wire not in _INTEGERS:
            raise self.wrong(f"{wire.name} where an integer is expected")
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def binary(self, wire: Wire) -> bytes:
        """Return the bytes of a field of type `wire`."""
        if wire is not Wire.BINARY:
            raise self.wrong(f"{wire.name} where a string is expected")
        return self.take(self.varint())

    def fields(self, wire: Wire = Wire.STRUCT) -> Iterator[tuple[int, Wire]]:
        """Yield number and type of each field of a struct. The caller must read or skip a field before the next one."""
        if wire is not Wire.STRUCT:
            raise self.wrong(f"{wire.name} where a struct is expected")
        number = 0
        while start := self.take(1)[0]:
            if start >> 4:
                number += start >> 4
            else:
                number = self.integer(Wire.I16)
            yield number, self._wire(start & 15)

    def items(self, wire: Wire) -> Iterator[Wire]:
        """Yield the type of each item of a list. The caller must read or skip an item before the next one."""
        if wire not in (Wire.LIST, Wire.SET):
            raise self.wrong(f"{wire.name} where a list is expected")
        start = self.take(1)[0]
        count = self.varint() if start >> 4 == 15 else start >> 4
        if count > len(self._raw) - self.at:  # each item has at least one byte
            raise self.wrong(f"a list of {count} items in {len(self._raw) - self.at} bytes")
        item = self._wire(start & 15)
        for _ in range(count):
            yield item

    def skip(self, wire: Wire, deep: int = 0) -> None:
        """Skip a value of type `wire`."""
        try:
            end = self._end(self.at, wire, deep)
            if end > len(self._raw):
                raise IndexError
            self.at = end
        except IndexError:
            self.at = len(self._raw)
            raise self.wrong("truncated: 1 bytes wanted, 0 present") from None

    # The following methods skip most of a footer. They work on plain numbers, because that takes a tenth of the time.

    def _end(self, at: int, wire: int, deep: int, within: bool = False) -> int:
        """Return the end of the value at `at`. `within` is True inside a list or a map, where a bool takes a byte.

        Raises IndexError if a part of it is beyond the end of the bytes.
        """
        if deep > _DEEPEST:
            self.at = at
            raise self.wrong(f"structs nested more than {_DEEPEST} deep")
        match wire:
            case Wire.TRUE | Wire.FALSE:
                return self._past(at, int(within))
            case Wire.I8:
                return self._past(at, 1)
            case Wire.I16 | Wire.I32 | Wire.I64:
                return self._number(at)[1]
            case Wire.DOUBLE:
                return self._past(at, 8)
            case Wire.BINARY:
                size, at = self._number(at)
                return self._past(at, size)
            case Wire.LIST | Wire.SET:
                return self._end_of_list(at, deep)
            case Wire.MAP:
                return self._end_of_map(at, deep)
            case Wire.STRUCT:
                return self._end_of_struct(at, deep)
        self.at = at
        raise self.wrong(f"unknown type {wire}")

    def _end_of_struct(self, at: int, deep: int) -> int:
        if deep > _DEEPEST:
            self.at = at
            raise self.wrong(f"structs nested more than {_DEEPEST} deep")
        raw = self._raw
        while start := raw[at]:
            at += 1
            kind = start & 15
            if start < 16:  # the number of the field follows
                at = self._number(at)[1]
            if 4 <= kind <= 6:
                last = at + _LONGEST
                while raw[at] > 127:
                    at += 1
                at += 1
                if at > last:
                    self.at = at
                    raise self.wrong(_TOO_LONG)
            elif kind == 8:
                size = raw[at]
                at = at + 1 + size if size < 0x80 else sum(self._number(at))
            elif kind == 12:
                at = self._end_of_struct(at, deep + 1)
            elif kind == 9:
                at = self._end_of_list(at, deep + 1)
            elif kind > 2:
                at = self._end(at, kind, deep + 1)
        return at + 1

    def _end_of_list(self, at: int, deep: int) -> int:
        if deep > _DEEPEST:
            self.at = at
            raise self.wrong(f"structs nested more than {_DEEPEST} deep")
        start = self._raw[at]
        count, at = self._number(at + 1) if start >> 4 == 15 else (start >> 4, at + 1)
        if count > len(self._raw) - at:  # each item has at least one byte
            self.at = at
            raise self.wrong(f"a list of {count} items in {len(self._raw) - at} bytes")
        kind = start & 15
        if kind == 8:
            for _ in range(count):
                size = self._raw[at]
                at = at + 1 + size if size < 0x80 else sum(self._number(at))
        elif kind == 12:
            for _ in range(count):
                at = self._end_of_struct(at, deep + 1)
        elif 4 <= kind <= 6:
            for _ in range(count):
                at = at + 1 if self._raw[at] < 0x80 else self._number(at)[1]
        else:
            for _ in range(count):
                at = self._end(at, kind, deep + 1, True)
        return at

    def _end_of_map(self, at: int, deep: int) -> int:
        count, at = self._number(at)
        if not count:
            return at
        if count > len(self._raw) - at:
            self.at = at
            raise self.wrong(f"a map of {count} items in {len(self._raw) - at} bytes")
        types, at = self._raw[at], at + 1
        for _ in range(count):
            at = self._end(at, types >> 4, deep + 1, True)
            at = self._end(at, types & 15, deep + 1, True)
        return at

    def _past(self, at: int, size: int) -> int:
        self.at = at
        self.take(size)
        return self.at

    def _number(self, at: int) -> tuple[int, int]:
        """Return the unsigned number at `at`, and its end."""
        self.at = at
        value = self.varint()
        return value, self.at

    def _wire(self, number: int) -> Wire:
        try:
            return Wire(number)
        except ValueError:
            raise self.wrong(f"unknown type {number}") from None
