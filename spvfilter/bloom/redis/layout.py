"""The layout of a Bloom filter in Redis: its keys, its header, and the offsets of its bits.

    {name}:header    64 bytes, the header of a filter's file (bloom/fileformat.py),
                     and the size of a shard in bytes, u64 little endian
    {name}:bits:0 …  the bits in contiguous shards of that size; each shard is at least one byte long,
                     and zeros at its end may be missing
    {name}:replaced  8 bytes for each filter that `replace` has replaced here, the last one last, up to 64: the
                     start of the SHA-256 of its header; missing if there is none

The braces are a hash tag of Redis, which keeps all keys in one slot of a cluster. A name that already contains a hash
tag is used unchanged.

Redis numbers the bits of a byte from the most significant one, the file from the least significant one. Bit b of the
file therefore has offset b ^ 7 in Redis, and the bytes are the same.
"""

from __future__ import annotations

import hashlib
import mmap
import re
import secrets
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spvfilter.bloom.base import Encode, OnFull, given_or_stored
from spvfilter.bloom.fileformat import HEADER_SIZE, KIND_BITS, KIND_SERIES, FileHeader, body_size
from spvfilter.bloom.filter import BloomFilter, refuse_other_kinds
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import FormatError, MismatchError, ParameterError, TooLargeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_SHARD_SIZE = 512 << 20  # Bytes of a string: Redis's default proto-max-bulk-len.
MAX_SHARDS = 1 << 14  # Strings that one script handles (our choice).
MARK_SIZE = 8  # Bytes of a filter in the list of replaced filters.
MAX_MARKS = 64  # Filters in that list (our choice): a client that missed more replacements opens the filter again.
_PIECE_SIZE = 1 << 20  # Bytes of one transfer: the smallest possible proto-max-bulk-len.
_COUNTED_SIZE = 64 << 20  # Bytes that one script counts (our choice).
_COUNTED_RANGES = 1 << 12  # Ranges that one script counts (our choice).
_KINDS = {KIND_BITS: "a RedisBloomFilter", KIND_SERIES: "a RedisScalableBloomFilter"}
_LENGTHS = (HEADER_SIZE + 8, HEADER_SIZE + 24)  # Bytes of a header key's value: of a filter, and of a scalable filter.
_TAGGED = re.compile(
    r"[^{]*\{[^}]+\}"
)  # A name with a hash tag: its first "{…}" is not empty (Redis Cluster specification, "Hash tags").


class BitlessFilter(BloomFilter):
    """A filter without bits, which maps keys to positions of bits.

    Its buffer is mapped read-only and never touched, so it takes no memory.
    """

    __slots__ = ()

    def _set_up(
        self,
        kind: int,
        cells: int,
        *shape: Any,
        buffer: Buffer | None,
        private: bool,
        on_full: OnFull = "raise",
        empty: bool = False,
    ) -> None:
        size = body_size(kind, cells)
        try:
            if sys.platform == "win32":
                untouched = mmap.mmap(-1, size, access=mmap.ACCESS_READ)
            else:
                untouched = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
        except (OSError, OverflowError) as error:
            raise TooLargeError(f"{size} bytes cannot be addressed: {error}") from None
        super()._set_up(kind, cells, *shape, buffer=untouched, private=private, on_full=on_full, empty=empty)

    @classmethod
    def of(cls, local: BloomFilter) -> BitlessFilter:
        """Return the shape of a local filter. Raises TypeError unless it is a BloomFilter."""
        refuse_other_kinds(local)
        return cls._made(local.header(), local.hashing, local._encode_with, b"", on_full=local.on_full)

    def filled(self, buffer: Buffer) -> BloomFilter:
        """Return a filter of this shape over `buffer`."""
        return BloomFilter._made(
            self.header(), self.hashing, self._encode_with, buffer, private=True, on_full=self.on_full
        )


class RedisLayout:
    """The layout of one filter, or of one slice of a scalable filter: name, shape and shards.

    The keys of the shards are {name}:stem:0 and so on. Raises ParameterError if the name, the shard size or the number
    of shards is invalid.
    """

    def __init__(self, name: str, shape: BitlessFilter, shard_size: int, stem: bytes = b"bits") -> None:
        if not isinstance(shard_size, int) or not 1 <= shard_size <= MAX_SHARD_SIZE:
            raise ParameterError(f"shard_size must be from 1 to {MAX_SHARD_SIZE} bytes, not {shard_size!r}")
        self.name = name
        self.shape = shape
        self.shard_size = shard_size
        self.size: int = shape.header().body_size  # bytes of all shards together
        self.shards: int = -(-self.size // shard_size)
        if self.shards > MAX_SHARDS:
            raise ParameterError(
                f"at most {MAX_SHARDS} shards are possible, not {self.shards}: choose a shard_size above {shard_size}"
            )
        self.stem = stem
        self.header_key: bytes = header_key(name)
        self.header: bytes = shape.header().pack() + shard_size.to_bytes(8, "little")
        self.replaced_key: bytes = prefix(name) + b":replaced"
        self.mark: bytes = hashlib.sha256(self.header).digest()[:MARK_SIZE]  # of this filter in such a list

    @classmethod
    def parse(
        cls, name: str, raw: bytes, hashing: HashFamily | None, encode: Encode, on_full: OnFull = "raise"
    ) -> RedisLayout:
        """Parse the value of the header key.

        Raises FormatError if it is malformed, and ParameterError if `hashing` or `encode` is not the filter's.
        """
        header, shard_size = _parse(raw)
        return cls(
            name,
            BitlessFilter._made(header, *given_or_stored(header, hashing, encode), b"", on_full=on_full),
            shard_size,
        )

    def refuse_another(self, raw: bytes) -> None:
        """Raise MismatchError, which names the first difference, unless the header `raw` equals this filter's.

        Raises FormatError if the header is malformed.
        """
        header, shard_size = _parse(raw)
        mine = {**self.shape.header()._asdict(), "shard_size": self.shard_size}
        for field, value in {**header._asdict(), "shard_size": shard_size}.items():
            if value != mine[field]:
                shown = "the keys differ" if field == "key" else f"{value!r}, not {mine[field]!r}"
                raise MismatchError(f"the filter at {self.name!r} was made with different arguments: {field}: {shown}")

    def shard_key(self, shard: int) -> bytes:
        """Return the key of a shard."""
        return b"%b:%b:%d" % (prefix(self.name), self.stem, shard)

    def shard_keys(self) -> list[bytes]:
        """Return the keys of all shards."""
        return [self.shard_key(shard) for shard in range(self.shards)]

    def all_keys(self) -> list[bytes]:
        """Return the keys of all shards, and of the list of replaced filters."""
        return [*self.shard_keys(), self.replaced_key]

    def staging_keys(self) -> list[bytes]:
        """Return unique keys for an upload of all shards."""
        upload = secrets.token_hex(8).encode()
        return [b"%b:staged:%b:%d" % (prefix(self.name), upload, shard) for shard in range(self.shards)]

    def probes(self, keys: Iterable[object]) -> tuple[list[bytes], bytes]:
        """Return where the bits of some keys of the filter are.

        The result is the Redis keys of the shards, and for each bit, key by key, two u32: the index of its shard in
        KEYS (from 2) and its offset.
        """
        shard_bits = self.shard_size * 8
        number_of: dict[int, int] = {}
        packed: list[int] = []
        for key in keys:
            for position in self.shape.positions(key):
                shard, bit = divmod(position, shard_bits)
                packed += (number_of.setdefault(shard, len(number_of) + 2), bit ^ 7)
        return [self.shard_key(shard) for shard in number_of], struct.pack(f"<{len(packed)}I", *packed)

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yield the pieces in which all bytes are transferred.

        A piece is (shard, start, end). Both are byte offsets in the shard, and `end` is the offset after the last byte.
        """
        for shard in range(self.shards):
            size = min(self.shard_size, self.size - shard * self.shard_size)
            for at in range(0, size, _PIECE_SIZE):
                yield shard, at, min(at + _PIECE_SIZE, size)

    def counts(self) -> Iterator[tuple[list[bytes], bytes, list[int]]]:
        """Yield the arguments of each counting script: shards, ranges of bits, and the planes of the ranges.

        A range is three u32: the index of the shard in KEYS (from 2), the first bit and the last bit.
        """
        shards: list[bytes] = []
        ranges: list[int] = []
        planes: list[int] = []
        for plane, shard, first, end in self._ranges():
            if shards and (len(planes) == _COUNTED_RANGES or len(shards) * self.shard_size > _COUNTED_SIZE):
                yield shards, struct.pack(f"<{len(ranges)}I", *ranges), planes
                shards, ranges, planes = [], [], []
            key = self.shard_key(shard)
            if not shards or shards[-1] != key:
                shards.append(key)
            ranges += (len(shards) + 1, first, end - 1)
            planes.append(plane)
        yield shards, struct.pack(f"<{len(ranges)}I", *ranges), planes

    def _ranges(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the ranges of bits of each plane, split at the borders of shards.

        A range is (plane, shard, first, end). `first` and `end` count bits in the shard, and `end` is after the last.
        """
        shard_bits = self.shard_size * 8
        planes = self.shape.hash_funcs if self.shape.partitioned else 1
        span = self.shape.bits // planes
        for plane in range(planes):
            at, plane_end = plane * span, (plane + 1) * span
            while at < plane_end:
                shard, first = divmod(at, shard_bits)
                end = min(plane_end - shard * shard_bits, shard_bits)
                yield plane, shard, first, end
                at = shard * shard_bits + end


def header_key(name: str) -> bytes:
    """Return the key of a filter's header. Raises ParameterError if the name cannot be a hash tag."""
    return prefix(name) + b":header"


def prefix(name: str) -> bytes:
    """Return the prefix of all Redis keys of a filter. It contains their hash tag.

    Raises TypeError if the name is not a str, and ParameterError if it cannot be a hash tag.
    """
    if not isinstance(name, str):
        raise TypeError(f"a filter's name must be a str, not {type(name).__name__}")
    if _TAGGED.match(name):
        return name.encode()
    if not name or name.startswith("}"):
        raise ParameterError(f"a filter's name must not be empty or start with '}}': {name!r}")
    return b"{%b}" % name.encode()


def _parse(raw: bytes) -> tuple[FileHeader, int]:
    header = header_in(raw, KIND_BITS, 8)
    shard_size = int.from_bytes(raw[HEADER_SIZE:], "little")
    check_shard_size(shard_size, HEADER_SIZE)
    return header, shard_size


def kind_of(raw: bytes) -> int | None:
    """Return the kind of filter in the value of a header key, or None for any other value.

    Raises FormatError if the header is damaged.
    """
    return FileHeader.parse(raw).kind if len(raw) in _LENGTHS else None


def header_in(raw: bytes, kind: int, more: int) -> FileHeader:
    """Return the header in the value of a header key. `more` bytes must follow it.

    Raises FormatError if it is malformed or belongs to a filter of a different kind.
    """
    there = kind_of(raw)
    if there is not None and there != kind:
        raise FormatError(
            f"kind {there} is {_KINDS.get(there, 'no filter in Redis')}, not {_KINDS[kind]}", offset=10, field="kind"
        )
    if len(raw) != HEADER_SIZE + more:
        raise FormatError(
            f"not a filter in Redis: expected {HEADER_SIZE + more} bytes, not {len(raw)}", offset=0, field="header"
        )
    return FileHeader.parse(raw)


def check_shard_size(shard_size: int, offset: int) -> None:
    """Raise FormatError if a shard size is impossible. `offset` is its offset in the header."""
    if not 1 <= shard_size <= MAX_SHARD_SIZE:
        message = f"shards must be 1 to {MAX_SHARD_SIZE} bytes long, not {shard_size}"
        raise FormatError(message, offset=offset, field="shard_size")
