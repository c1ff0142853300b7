"""Messages of BIP-37 (filterload, filteradd, filterclear) and of BIP-157 (compact filters, their headers and
checkpoints).
"""

from __future__ import annotations

from typing import Self

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError
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

MAX_CHECKPOINTS = 20_000  # ours: one every 1,000 blocks
FILTERLOAD_SIZE = 3 + MAX_FILTER_SIZE + 9  # bytes, as are the following
FILTERADD_SIZE = 3 + MAX_ELEMENT_SIZE
# bytes, ours: no block's is larger. In its 1 MB without witnesses are fewer than 90,000 different scripts: an
MAX_CFILTER_SIZE = 250_000
# output of n bytes of script takes n + 9, so there are 2^16 of 11 bytes at most. Each takes 20 bits, and less than 1.5
# more on average.
CFILTER_SIZE = 1 + HASH_SIZE + 5 + MAX_CFILTER_SIZE
CFHEADERS_SIZE = 1 + 2 * HASH_SIZE + 3 + HASH_SIZE * MAX_CFHEADERS
CFCHECKPT_SIZE = 1 + HASH_SIZE + 3 + HASH_SIZE * MAX_CHECKPOINTS


@public
@dataclass(frozen=True, slots=True)
class FilterLoad:
    """Loads a BIP-37 filter, which the peer uses from now on; the payload is `bytes(Bip37Filter)`.

    CompactSize and the filter's bytes (at most 36,000), hash functions u32 (at most 50), tweak u32, flags u8.
    """

    data: bytes
    hash_funcs: int
    tweak: int
    flags: int

    def __post_init__(self) -> None:
        check_most(self.data, MAX_FILTER_SIZE, "filter")
        if not 0 <= self.hash_funcs <= MAX_HASH_FUNCS:
            raise ParameterError(f"at most {MAX_HASH_FUNCS} hash functions, not {self.hash_funcs}")
        check_uint(self.tweak, 4, "tweak")
        check_uint(self.flags, 1, "flags")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        data = reader.var_bytes("filter", MAX_FILTER_SIZE)
        at = reader.at
        hash_funcs = reader.uint(4, "hash_funcs")
        if hash_funcs > MAX_HASH_FUNCS:
            raise FormatError(f"{hash_funcs}, at most {MAX_HASH_FUNCS}", offset=at, field="hash_funcs")
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
    """Adds an element to the loaded filter: CompactSize and at most 520 bytes (BIP-37)."""

    data: bytes

    def __post_init__(self) -> None:
        check_most(self.data, MAX_ELEMENT_SIZE, "element")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        data = reader.var_bytes("element", MAX_ELEMENT_SIZE)
        reader.finish("filteradd")
        return cls(data)

    def __bytes__(self) -> bytes:
        return var_bytes(self.data)


@public
@dataclass(frozen=True, slots=True)
class FilterClear(Empty):
    """Removes the loaded filter and enables the relay of all transactions (BIP-37)."""


@dataclass(frozen=True, slots=True)
class _Range:
    filter_type: int
    start_height: int
    stop_hash: bytes

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_uint(self.start_height, 4, "start height")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
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
    """Asks for the filters of at most 1,000 blocks: type u8, start height u32, stop hash (BIP-157)."""


@public
@dataclass(frozen=True, slots=True)
class GetCFHeaders(_Range):
    """Asks for the filter headers of at most 2,000 blocks: type u8, start height u32, stop hash (BIP-157)."""


@public
@dataclass(frozen=True, slots=True)
class CFilter:
    """The filter of one block: type u8, block hash, CompactSize and the filter's bytes (BIP-157)."""

    filter_type: int
    block_hash: bytes
    data: bytes

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.block_hash, HASH_SIZE, "block hash")
        check_most(self.data, MAX_CFILTER_SIZE, "filter")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
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
    """The filter header before the first requested block, and the filter hashes of the blocks up to the stop hash
    (BIP-157).

    Type u8, stop hash, previous filter header (32 bytes), CompactSize and filter hashes, at most 2,000.
    """

    filter_type: int
    stop_hash: bytes
    previous: bytes
    filter_hashes: tuple[bytes, ...]

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")
        check_size(self.previous, HASH_SIZE, "previous filter header")
        check_hashes(self.filter_hashes, MAX_CFHEADERS, "filter hashes")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
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
    """Asks for the filter headers of every 1,000th block up to the stop hash: type u8, stop hash (BIP-157)."""

    filter_type: int
    stop_hash: bytes

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
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
    """The filter headers at heights 1000, 2000 … up to the stop hash: type u8, stop hash, CompactSize and headers
    (BIP-157).
    """

    filter_type: int
    stop_hash: bytes
    filter_headers: tuple[bytes, ...]

    def __post_init__(self) -> None:
        check_uint(self.filter_type, 1, "filter type")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")
        check_hashes(self.filter_headers, MAX_CHECKPOINTS, "filter headers")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        filter_type = reader.uint(1, "filter type")
        stop_hash = reader.hash("stop hash")
        filter_headers = reader.hashes("filter header", MAX_CHECKPOINTS)
        reader.finish("cfcheckpt")
        return cls(filter_type, stop_hash, filter_headers)

    def __bytes__(self) -> bytes:
        return bytes((self.filter_type,)) + self.stop_hash + var_hashes(self.filter_headers)
