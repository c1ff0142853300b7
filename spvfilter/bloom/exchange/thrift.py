"""Read Thrift's compact protocol, which Parquet uses for its footer and for the headers of its filters.

A struct is a sequence of fields that ends with a zero byte. A field is a byte and a value. The high half of the byte is
the difference from the previous field's number, the low half is the type. If the difference is 0, the number follows as
a zigzag varint.

Integers are zigzag varints. Source: Apache Thrift, thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from spvfilter.errors import FormatError, counted
from spvfilter.kernel import thrift_end

_DEEPEST = 16  # Deepest nesting of structs (our choice); a footer has about 6 levels.
_LONGEST = 10  # Bytes of the longest 64-bit varint.
_TOO_LONG = f"a number is more than {_LONGEST} bytes long"


class Wire(IntEnum):
    """Types of values in the compact protocol."""

    TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)


_WIRES = {wire.value: wire for wire in Wire}  # looked up for each field, faster than by Wire(number)
_CONTAINERS = (Wire.LIST, Wire.SET, Wire.MAP, Wire.STRUCT)
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
        """Return an error whose offset is that of the value just read."""
        return FormatError(said, offset=self._offset + self.at, field=self._name)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if size > len(self._raw) - self.at:
            raise self.wrong(f"truncated: expected {size} bytes, got {len(self._raw) - self.at}")
        self.at += size
        return self._raw[self.at - size : self.at]

    def varint(self) -> int:
        """Return the next unsigned number."""
        value = 0
        for shift in range(0, 7 * _LONGEST, 7):
            if self.at >= len(self._raw):
                raise self.wrong("truncated: expected 1 byte, got 0")
            byte = self._raw[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.wrong(_TOO_LONG)

    def integer(self, wire: Wire) -> int:
        """Return the signed number of a field of type `wire`."""
        if wire not in _INTEGERS:
            raise self.wrong(f"expected an integer, got {wire.name}")
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def binary(self, wire: Wire) -> bytes:
        """Return the bytes of a field of type `wire`."""
        if wire is not Wire.BINARY:
            raise self.wrong(f"expected a string, got {wire.name}")
        return self.take(self.varint())

    def fields(self, wire: Wire = Wire.STRUCT) -> Iterator[tuple[int, Wire]]:
        """Yield the number and type of each field of a struct. The caller must read or skip one to get the next."""
        if wire is not Wire.STRUCT:
            raise self.wrong(f"expected a struct, got {wire.name}")
        number = 0
        while start := self.take(1)[0]:
            if start >> 4:
                number += start >> 4
            else:
                number = self.integer(Wire.I16)
            yield number, self._wire(start & 15)

    def items(self, wire: Wire) -> Iterator[Wire]:
        """Yield the type of each item of a list. The caller must read or skip an item to get the next one."""
        if wire not in (Wire.LIST, Wire.SET):
            raise self.wrong(f"expected a list, got {wire.name}")
        start = self.take(1)[0]
        count = self.varint() if start >> 4 == 15 else start >> 4
        if count > len(self._raw) - self.at:  # each item has at least one byte
            raise self.wrong(f"a list of {count} items does not fit into {counted(len(self._raw) - self.at, 'byte')}")
        for _ in range(count):
            yield self._wire(start & 15)

    def skip_without(self, wire: Wire, needle: bytes) -> bool:
        """Skip a value of type `wire` and return True, unless its bytes contain `needle`."""
        end = thrift_end(self._raw, self.at, wire)
        if end < 0 or self._raw.find(needle, self.at, end) >= 0:
            return False
        self.at = end
        return True

    def skip(self, wire: Wire) -> None:
        """Skip a value of type `wire`."""
        end = thrift_end(self._raw, self.at, wire)
        if end < 0:
            self._walk(wire, 0, within=False)  # raises the error of the value
        else:
            self.at = end

    def _walk(self, wire: Wire, deep: int, *, within: bool) -> None:
        """Skip a value step by step. `within` is True inside a list or a map, where a boolean takes a byte."""
        if deep > _DEEPEST and wire in _CONTAINERS:
            raise self.wrong(f"structs are nested more than {_DEEPEST} deep")
        match wire:
            case Wire.TRUE | Wire.FALSE:
                self.take(int(within))
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
                    self._walk(item, deep + 1, within=True)
            case Wire.MAP:
                self._walk_map(deep)
            case Wire.STRUCT:
                for _, field in self.fields(wire):
                    self._walk(field, deep + 1, within=False)

    def _walk_map(self, deep: int) -> None:
        count = self.varint()
        if not count:
            return
        if count > len(self._raw) - self.at:
            raise self.wrong(f"a map of {count} items does not fit into {counted(len(self._raw) - self.at, 'byte')}")
        types = self.take(1)[0]
        for _ in range(count):
            for kind in (types >> 4, types & 15):
                self._walk(self._wire(kind), deep + 1, within=True)

    def _wire(self, number: int) -> Wire:
        wire = _WIRES.get(number)
        if wire is None:
            raise self.wrong(f"unknown type {number}")
        return wire
