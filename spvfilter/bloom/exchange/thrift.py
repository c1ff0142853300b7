"""Reading Thrift's compact protocol, in which Parquet writes its footer and the headers of its filters.

A struct is fields up to a zero byte; a field is a byte, the difference to the last field's number in its high half and
its type in the low one (a difference of 0: the number follows, zigzag), and a value. Integers are zigzag varints.
Source: Apache Thrift, thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from spvfilter.errors import FormatError

_DEEPEST = 16  # structs in structs; a footer has about 6
_LONGEST = 10  # bytes of a varint of 64 bits


class Wire(IntEnum):
    """Types of values."""

    TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


_INTEGERS = (Wire.I16, Wire.I32, Wire.I64)


class Thrift:
    """A cursor over bytes, every step of which is checked. `offset` is where the bytes start in their file.

    Raises FormatError.
    """

    def __init__(self, raw: memoryview, offset: int, name: str) -> None:
        self._raw = raw
        self._offset = offset
        self._name = name  # of what is read, for errors
        self.at = 0

    def wrong(self, said: str) -> FormatError:
        """The error of what was read last."""
        return FormatError(said, offset=self._offset + self.at, field=self._name)

    def take(self, size: int) -> memoryview:
        """So many bytes."""
        if size > len(self._raw) - self.at:
            raise self.wrong(f"truncated: {size} bytes wanted, {len(self._raw) - self.at} present")
        self.at += size
        return self._raw[self.at - size : self.at]

    def varint(self) -> int:
        """An unsigned number."""
        value = 0
        for shift in range(0, 7 * _LONGEST, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.wrong(f"a number of more than {_LONGEST} bytes")

    def integer(self, wire: Wire) -> int:
        """A signed number of a field of that type."""
        if wire not in _INTEGERS:
            raise self.wrong(f"{wire.name} where an integer is expected")
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def binary(self, wire: Wire) -> bytes:
        """Bytes, of a field of that type."""
        if wire is not Wire.BINARY:
            raise self.wrong(f"{wire.name} where a string is expected")
        return bytes(self.take(self.varint()))

    def fields(self, wire: Wire = Wire.STRUCT) -> Iterator[tuple[int, Wire]]:
        """Numbers and types of a struct's fields, each of which the caller reads or skips before the next."""
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
        """The types of a list's items, each of which the caller reads or skips before the next."""
        if wire not in (Wire.LIST, Wire.SET):
            raise self.wrong(f"{wire.name} where a list is expected")
        start = self.take(1)[0]
        count = self.varint() if start >> 4 == 15 else start >> 4
        if count > len(self._raw) - self.at:  # an item has at least one byte
            raise self.wrong(f"a list of {count} items in {len(self._raw) - self.at} bytes")
        item = self._wire(start & 15)
        for _ in range(count):
            yield item

    def skip(self, wire: Wire, deep: int = 0, *, within: bool = False) -> None:
        """Pass over a value; `within` a list or map, where a bool takes a byte."""
        if deep > _DEEPEST:
            raise self.wrong(f"structs nested more than {_DEEPEST} deep")
        match wire:
            case Wire.TRUE | Wire.FALSE:
                self.take(within)
            case Wire.I8:
                self.take(1)
            case Wire.I16 | Wire.I32 | Wire.I64:
                self.varint()
            case Wire.DOUBLE:
                self.take(8)
            case Wire.BINARY:
                self.take(self.varint())
            case Wire.LIST | Wire.SET:
                for item in self.items(wire):
                    self.skip(item, deep + 1, within=True)
            case Wire.MAP:
                self._skip_map(deep)
            case Wire.STRUCT:
                for _, field in self.fields():
                    self.skip(field, deep + 1)

    def _skip_map(self, deep: int) -> None:
        count = self.varint()
        if not count:
            return
        if count > len(self._raw) - self.at:
            raise self.wrong(f"a map of {count} items in {len(self._raw) - self.at} bytes")
        types = self.take(1)[0]
        for _ in range(count):
            self.skip(self._wire(types >> 4), deep + 1, within=True)
            self.skip(self._wire(types & 15), deep + 1, within=True)

    def _wire(self, number: int) -> Wire:
        try:
            return Wire(number)
        except ValueError:
            raise self.wrong(f"unknown type {number}") from None
