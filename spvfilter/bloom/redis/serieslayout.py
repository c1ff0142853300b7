"""The layout of a scalable Bloom filter in Redis: its keys, its header and its state, and the offsets of its bits.

    {name}:header      64 bytes, a header of kind 3 (bloom/fileformat.py): k and m of the first slice, capacity and
                       rate that the whole filter was made for, flags 0; then growth, u64 little endian;
                       tightening, IEEE 754 double; the size of a shard in bytes, u64 little endian
    {name}:slices      the number of slices, and for each slice the number of its set bits, u64 little endian
    {name}:slice:0:0 … the bits of the first slice in shards, like those of a RedisBloomFilter (layout.py)
    {name}:slice:1:0 … the bits of the next slice

Everything about a slice follows from its number and the header, which never changes. Only scripts add slices and count
set bits, so all clients always agree on the number of slices, and on whether the last one is full.
"""

from __future__ import annotations

import math
import secrets
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spvfilter.bloom.base import ENCODES, Encode, given_or_stored
from spvfilter.bloom.fileformat import HEADER_SIZE, KIND_SERIES, MAX_BIP37_BITS
from spvfilter.bloom.growth import Growth
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.redis.layout import (
    MAX_SHARDS,
    BitlessFilter,
    RedisLayout,
    check_shard_size,
    header_in,
    header_key,
    prefix,
)
from spvfilter.bloom.shape import shape_of
from spvfilter.errors import CapacityError, FormatError, MismatchError, ParameterError
from spvfilter.kernel import MAX_SLICES, Encoding, Family

_GROWTH = struct.Struct("<QdQ")  # The end of the header: growth, tightening, shard_size.


class SeriesState(NamedTuple):
    """The state of a scalable filter in Redis."""

    set_bits: tuple[int, ...]
    """Number of set bits of each slice."""

    def pack(self) -> bytes:
        """Return the value of the state's key."""
        return struct.pack(f"<{len(self.set_bits) + 1}Q", len(self.set_bits), *self.set_bits)


class SeriesLayout:
    """The layout of one scalable filter.

    Raises ParameterError if the name, the shard size or the number of shards is invalid, and TooLargeError if the first
    slice is too large to address.
    """

    def __init__(self, name: str, plan: Growth, shard_size: int, hashing: HashFamily | None, encode: Encode) -> None:
        self.name = name
        self.plan: Growth = plan.checked()
        self.shard_size = shard_size
        self._encode = encode
        shape = BitlessFilter(*plan.shape(0), buffer=b"", hashing=hashing, encode=encode)
        self.hashing: HashFamily = shape.hashing
        self.slices: list[RedisLayout] = [
            RedisLayout(name, shape, shard_size, b"slice:0")
        ]  # the slices that this client knows of
        self.header_key: bytes = header_key(name)
        self.state_key: bytes = prefix(name) + b":slices"
        described = shape.header()._replace(kind=KIND_SERIES, capacity=plan.capacity, fp_rate=plan.fp_rate)
        self.header: bytes = described.pack() + _GROWTH.pack(plan.growth, plan.tightening, shard_size)

    @classmethod
    def parse(cls, name: str, raw: bytes, hashing: HashFamily | None, encode: Encode) -> SeriesLayout:
        """Parse the value of the header key.

        Raises FormatError if it is malformed, and ParameterError if `hashing` or `encode` is not the filter's.
        """
        plan, shard_size = _parse(raw)
        header = header_in(raw, KIND_SERIES, _GROWTH.size)
        family, function = given_or_stored(header, hashing, encode)
        return cls(name, plan, shard_size, family, function or ENCODES[Encoding(header.encoding)])

    def refuse_another(self, raw: bytes) -> None:
        """Raise MismatchError, which names the first difference, unless the header `raw` equals this filter's.

        Raises FormatError if the header is malformed.
        """
        mine, theirs = ([*_fields(header)] for header in (self.header, raw))
        for (field, value), (_, other) in zip(mine, theirs, strict=True):
            if value != other:
                shown = "the keys differ" if field == "key" else f"{other!r}, not {value!r}"
                raise MismatchError(f"the filter at {self.name!r} was made with different arguments: {field}: {shown}")

    def know(self, count: int) -> None:
        """Compute the layouts of the first `count` slices.

        Raises CapacityError if there would be more than 64 slices, or more shards than a script can handle. Raises
        ParameterError if the size of a slice is too large to compute, and TooLargeError if it is too large to address.
        """
        while len(self.slices) < count:
            number = len(self.slices)
            if number == MAX_SLICES:
                raise CapacityError(f"{self.name!r} already has the maximum of {MAX_SLICES} slices")
            shape = BitlessFilter(*self.plan.shape(number), buffer=b"", hashing=self.hashing, encode=self._encode)
            if -(-shape.header().body_size // self.shard_size) + sum(each.shards for each in self.slices) > MAX_SHARDS:
                raise CapacityError(
                    f"{self.name!r} cannot grow: with another slice, it would have more than {MAX_SHARDS} shards of"
                    f" {self.shard_size} bytes"
                )
            self.slices.append(RedisLayout(self.name, shape, self.shard_size, b"slice:%d" % number))

    def shard_keys(self, count: int) -> list[bytes]:
        """Return the keys of the shards of the first `count` slices."""
        return [key for layout in self.slices[:count] for key in layout.shard_keys()]

    def staging_keys(self, count: int) -> list[bytes]:
        """Return unique keys for an upload of all shards of `count` slices."""
        upload = secrets.token_hex(8).encode()
        return [
            b"%b:staged:%b:%d" % (prefix(self.name), upload, number) for number in range(len(self.shard_keys(count)))
        ]

    def functions(self, count: int) -> list[int]:
        """Return how many hash functions each of the first `count` slices has."""
        return [layout.shape.hash_funcs for layout in self.slices[:count]]

    def last_offset(self, number: int) -> int:
        """Return the offset of the last bit in the longest shard of a slice."""
        return min(self.shard_size, self.slices[number].size) * 8 - 1

    def full_at(self, number: int) -> int:
        """Return the number of set bits at which a slice counts as full.

        The estimate from this number of bits is the slice's capacity, to within one key.
        """
        shape = self.slices[number].shape
        assert shape.capacity is not None
        return math.floor(shape.bits * -math.expm1(-shape.hash_funcs * (shape.capacity - 1) / shape.bits)) + 1

    def probes(self, keys: Iterable[object], count: int) -> tuple[list[bytes], bytes]:
        """Return where the bits of some keys of the filter are.

        The result is the Redis keys of the shards, and for each bit two u32: the index of its shard in KEYS (from 3)
        and its offset. The bits of a key are adjacent, and those in the last slice come first.
        """
        layouts = self.slices[:count][::-1]
        shard_bits = self.shard_size * 8
        number_of: dict[tuple[int, int], int] = {}
        packed: list[int] = []
        for key in keys:
            for at, layout in enumerate(layouts):
                for position in layout.shape.positions(key):
                    shard, bit = divmod(position, shard_bits)
                    packed += (number_of.setdefault((at, shard), len(number_of) + 3), bit ^ 7)
        return [layouts[at].shard_key(shard) for at, shard in number_of], struct.pack(f"<{len(packed)}I", *packed)

    def parse_state(self, raw: bytes) -> SeriesState:
        """Parse the value of the state's key, whose length the script has checked. Raises FormatError."""
        count, *set_bits = struct.unpack(f"<{len(raw) // 8}Q", raw)
        assert count == len(set_bits) <= len(self.slices)
        for number, (bits, layout) in enumerate(zip(set_bits, self.slices, strict=False)):
            if bits > layout.shape.bits:
                message = f"slice {number} has {layout.shape.bits} bits, but {bits} of them are set"
                raise FormatError(message, offset=8 + 8 * number, field="slices")
        return SeriesState(tuple(set_bits))

    def check_slices(self, headers: Sequence[object]) -> None:
        """Raise MismatchError unless these are the headers of the slices that follow from the parameters."""
        self.know(len(headers))
        for number, (header, layout) in enumerate(zip(headers, self.slices, strict=False)):
            if header != layout.shape.header():
                raise MismatchError(f"slice {number} does not follow from the filter's parameters")


def _parse(raw: bytes) -> tuple[Growth, int]:
    header = header_in(raw, KIND_SERIES, _GROWTH.size)
    growth, tightening, shard_size = _GROWTH.unpack_from(raw, HEADER_SIZE)
    if header.flags:
        raise FormatError(f"the flags of a series must be 0, not {header.flags:#x}", offset=13, field="flags")
    if not header.capacity:
        raise FormatError("a series needs an initial capacity above 0", offset=28, field="capacity")
    plan = Growth(header.capacity, header.fp_rate, growth, tightening)
    try:
        first = shape_of(*plan.checked().shape(0), None, False)[:2]
    except ParameterError as error:
        raise FormatError(str(error), offset=HEADER_SIZE, field="growth") from None
    if (header.cells, header.hash_funcs) != first or (header.family == Family.BIP37 and header.cells > MAX_BIP37_BITS):
        raise FormatError(
            "m and k of the first slice do not follow from capacity and rate", offset=16, field="hash_funcs"
        )
    check_shard_size(shard_size, HEADER_SIZE + 16)
    return plan, shard_size


def _fields(raw: bytes) -> Iterable[tuple[str, object]]:
    """Yield each value in a header, with the name of the argument that sets it."""
    plan, shard_size = _parse(raw)
    header = header_in(raw, KIND_SERIES, _GROWTH.size)
    yield "initial_capacity", plan.capacity
    yield "fp_rate", plan.fp_rate
    yield "growth", plan.growth
    yield "tightening", plan.tightening
    yield from header._replace(capacity=0, fp_rate=0.0)._asdict().items()
    yield "shard_size", shard_size
