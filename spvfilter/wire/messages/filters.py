"""Messages of BIP-37 (filterload, filteradd, filterclear) and of BIP-157 (compact filters and their headers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import (
    HASH_SIZE,
    MAX_CFHEADERS,
    MAX_ELEMENT_SIZE,
    MAX_FILTER_SIZE,
    MAX_HASH_FUNCS,
)
from spvfilter.wire.messages.control import Empty
from spvfilter.wire.messages.fields import (
    PayloadReader,
    check_hashes,
    check_most,
    check_size,
    check_uint,
    var_bytes,
    var_hashes,
)

MAX_CHECKPOINTS = 20_000  # filter headers in a cfcheckpt (our choice): enough for 20,000,000 blocks

# Bytes of a compact filter (our choice): no block has a larger filter. A block has 1 MB without witnesses. An output
# whose script has n bytes takes n + 9 bytes, and at most 2^16 outputs have the same n. A block therefore has fewer than
# 90,000 different scripts. Each script takes 20 bits, and on average less than 1.5 bits more.
MAX_CFILTER_SIZE = 250_000

# Bytes of the longest payload of each message.
FILTERLOAD_SIZE = 3 + MAX_FILTER_SIZE + 9
FILTERADD_SIZE = 3 + MAX_ELEMENT_SIZE
CFILTER_SIZE = 1 + HASH_SIZE + 5 + MAX_CFILTER_SIZE
CFHEADERS_SIZE = 1 + 2 * HASH_SIZE + 3 + HASH_SIZE * MAX_CFHEADERS
CFCHECKPT_SIZE = 1 + HASH_SIZE + 3 + HASH_SIZE * MAX_CHECKPOINTS


@public
@dataclass(frozen=True, slots=True)
class FilterLoad:
    """A message with the BIP-37 filter that the peer uses from now on. The payload is `bytes(Bip37Filter)`.

    | bytes | field |
    |---|---|
    | 1 or 3 | size of the filter, CompactSize, at most 36,000 |
    | size | bits of the filter |
    | 4 | number of hash functions u32 LE, at most 50 |
    | 4 | tweak u32 LE |
    | 1 | flags u8 |
    """

    data: bytes
    """Bits of the filter, at most 36,000 bytes."""
    hash_funcs: int
    """Number of hash functions of the filter, 0 to 50."""
    tweak: int
    """Number that the filter adds to the seed of each hash function (u32)."""
    flags: int
    """Number that tells the peer how to update the filter, as listed in BIP-37 (u8)."""

    def __post_init__(self) -> None:
        check_most(self.data, MAX_FILTER_SIZE, "filter")
        if not 0 <= self.hash_funcs <= MAX_HASH_FUNCS:
            raise ParameterError(f"hash_funcs must be at most {MAX_HASH_FUNCS}, not {self.hash_funcs}")
        check_uint(self.tweak, 4, "tweak")
        check_uint(self.flags, 1, "flags")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a filterload message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        data = reader.var_bytes("filter", MAX_FILTER_SIZE)
        at = reader.at
        hash_funcs = reader.uint(4, "hash_funcs")
        if hash_funcs > MAX_HASH_FUNCS:
            raise FormatError(f"must be at most {MAX_HASH_FUNCS}, not {hash_funcs}", offset=at, field="hash_funcs")
        tweak = reader.uint(4, "tweak")
        flags = reader.uint(1, "flags")
        reader.finish("filterload")
        return cls(data, hash_funcs, tweak, flags)

    def __bytes__(self) -> bytes:
        tail = self.hash_funcs.to_bytes(4, "little") + self.tweak.to_bytes(4, "little") + bytes((self.flags,))
        return var_bytes(self.data) + tail


@public
@dataclass(frozen=True, slots=True)
class FilterAdd:
    """A message that adds an element to the filter that the peer has loaded (BIP-37).

    | bytes | field |
    |---|---|
    | 1 or 3 | size of the element, CompactSize, at most 520 |
    | size | element |
    """

    data: bytes
    """The element to add to the loaded filter, at most 520 bytes."""

    def __post_init__(self) -> None:
        check_most(self.data, MAX_ELEMENT_SIZE, "element")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a filteradd message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        data = reader.var_bytes("element", MAX_ELEMENT_SIZE)
        reader.finish("filteradd")
        return cls(data)

    def __bytes__(self) -> bytes:
        return var_bytes(self.data)


@public
@dataclass(frozen=True, slots=True)
class FilterClear(Empty):
    """A message that removes the loaded filter, so the peer relays all transactions (BIP-37).

    The payload is empty.
    """


@dataclass(frozen=True, slots=True)
class _Range:
    """Base class of the messages getcfilters and getcfheaders, which request data of consecutive blocks."""

    filter_type: int
    """Type of the compact filters (u8): 0 is the basic filter."""
    start_height: int
    """Height of the first block of the request (u32)."""
    stop_hash: bytes
    """Hash of the last block of the request, 32 bytes in wire order."""

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_uint(self.start_height, 4, "start height")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a getcfilters or getcfheaders message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        filter_type = reader.uint(1, "filter type")
        start_height = reader.uint(4, "start height")
        stop_hash = reader.hash("stop hash")
        reader.finish("range")
        return cls(filter_type, start_height, stop_hash)

    def __bytes__(self) -> bytes:
        return bytes((self.filter_type,)) + self.start_height.to_bytes(4, "little") + self.stop_hash


@public
@dataclass(frozen=True, slots=True)
class GetCFilters(_Range):
    """A message that requests the compact filters of at most 1,000 consecutive blocks (BIP-157).

    | bytes | field |
    |---|---|
    | 1 | filter type u8 |
    | 4 | start height u32 LE |
    | 32 | stop hash |
    """


@public
@dataclass(frozen=True, slots=True)
class GetCFHeaders(_Range):
    """A message that requests the filter headers of at most 2,000 consecutive blocks (BIP-157).

    | bytes | field |
    |---|---|
    | 1 | filter type u8 |
    | 4 | start height u32 LE |
    | 32 | stop hash |
    """


@public
@dataclass(frozen=True, slots=True)
class CFilter:
    """A cfilter message: the compact filter of one block (BIP-157).

    | bytes | field |
    |---|---|
    | 1 | filter type u8 |
    | 32 | block hash |
    | 1 to 5 | size of the filter, CompactSize, at most 250,000 |
    | size | filter |
    """

    filter_type: int
    """Type of the compact filter (u8): 0 is the basic filter."""
    block_hash: bytes
    """Hash of the block that the filter describes, 32 bytes in wire order."""
    data: bytes
    """The encoded compact filter, at most 250,000 bytes."""

    @property
    def block_hash_hex(self) -> str:
        """The field `block_hash` in hex, as block explorers show it."""
        return hash_to_hex(self.block_hash)

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.block_hash, HASH_SIZE, "block hash")
        check_most(self.data, MAX_CFILTER_SIZE, "filter")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a cfilter message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        filter_type = reader.uint(1, "filter type")
        block_hash = reader.hash("block hash")
        data = reader.var_bytes("filter", MAX_CFILTER_SIZE)
        reader.finish("cfilter")
        return cls(filter_type, block_hash, data)

    def __bytes__(self) -> bytes:
        return bytes((self.filter_type,)) + self.block_hash + var_bytes(self.data)


@public
@dataclass(frozen=True, slots=True)
class CFHeaders:
    """A cfheaders message: filter hashes of consecutive blocks, and the filter header before them (BIP-157).

    | bytes | field |
    |---|---|
    | 1 | filter type u8 |
    | 32 | stop hash |
    | 32 | filter header of the block before the first requested block |
    | 1 or 3 | number of filter hashes, CompactSize, at most 2,000 |
    | 32 each | filter hashes, in chain order up to the stop hash |
    """

    filter_type: int
    """Type of the compact filters (u8): 0 is the basic filter."""
    stop_hash: bytes
    """Hash of the last block whose filter hash is listed, 32 bytes in wire order."""
    previous: bytes
    """Filter header of the block before the first requested block, 32 bytes."""
    filter_hashes: tuple[bytes, ...]
    """Filter hashes of the blocks up to the stop hash, 32 bytes each, at most 2,000."""

    @property
    def stop_hash_hex(self) -> str:
        """The field `stop_hash` in hex, as block explorers show it."""
        return hash_to_hex(self.stop_hash)

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")
        check_size(self.previous, HASH_SIZE, "previous filter header")
        check_hashes(self.filter_hashes, MAX_CFHEADERS, "filter hashes")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a cfheaders message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        filter_type = reader.uint(1, "filter type")
        stop_hash = reader.hash("stop hash")
        previous = reader.hash("previous filter header")
        filter_hashes = reader.hashes("filter hash", MAX_CFHEADERS)
        reader.finish("cfheaders")
        return cls(filter_type, stop_hash, previous, filter_hashes)

    def __bytes__(self) -> bytes:
        return bytes((self.filter_type,)) + self.stop_hash + self.previous + var_hashes(self.filter_hashes)


@public
@dataclass(frozen=True, slots=True)
class GetCFCheckpt:
    """A message that requests the filter headers of every 1,000th block up to the stop hash (BIP-157).

    | bytes | field |
    |---|---|
    | 1 | filter type u8 |
    | 32 | stop hash |
    """

    filter_type: int
    """Type of the compact filters (u8): 0 is the basic filter."""
    stop_hash: bytes
    """Hash of the block at which the request ends, 32 bytes in wire order."""

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a getcfcheckpt message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        filter_type = reader.uint(1, "filter type")
        stop_hash = reader.hash("stop hash")
        reader.finish("getcfcheckpt")
        return cls(filter_type, stop_hash)

    def __bytes__(self) -> bytes:
        return bytes((self.filter_type,)) + self.stop_hash


@public
@dataclass(frozen=True, slots=True)
class CFCheckpt:
    """A cfcheckpt message: filter headers of every 1,000th block, up to the stop hash (BIP-157).

    | bytes | field |
    |---|---|
    | 1 | filter type u8 |
    | 32 | stop hash |
    | 1 or 3 | number of filter headers, CompactSize, at most 20,000 |
    | 32 each | filter headers, lowest height first |
    """

    filter_type: int
    """Type of the compact filters (u8): 0 is the basic filter."""
    stop_hash: bytes
    """Hash of the block at which the request ended, 32 bytes in wire order."""
    filter_headers: tuple[bytes, ...]
    """Filter headers of the blocks at heights 1000, 2000 and so on, 32 bytes each, at most 20,000."""

    @property
    def stop_hash_hex(self) -> str:
        """The field `stop_hash` in hex, as block explorers show it."""
        return hash_to_hex(self.stop_hash)

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")
        check_hashes(self.filter_headers, MAX_CHECKPOINTS, "filter headers")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a cfcheckpt message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        filter_type = reader.uint(1, "filter type")
        stop_hash = reader.hash("stop hash")
        filter_headers = reader.hashes("filter header", MAX_CHECKPOINTS)
        reader.finish("cfcheckpt")
        return cls(filter_type, stop_hash, filter_headers)

    def __bytes__(self) -> bytes:
        return bytes((self.filter_type,)) + self.stop_hash + var_hashes(self.filter_headers)
