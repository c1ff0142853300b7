"""Messages that announce, request and carry headers, blocks and transactions."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Self

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import parse_tx
from spvfilter.primitives import Header, compact_size, hash_to_hex
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_HEADERS, MAX_INVENTORY, MAX_LOCATOR, MAX_PAYLOAD_SIZE
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.control import Empty
from spvfilter.wire.messages.fields import (
    PayloadReader,
    check_each,
    check_hashes,
    check_most,
    check_size,
    check_uint,
    printable,
    var_hashes,
)

MIN_TX_SIZE = 60  # bytes: one input, one output, no scripts
_COUNTED_HEADER = HEADER_SIZE + 1  # bytes: a header and its transaction count, which is zero
INVENTORY_SIZE = 3 + 36 * MAX_INVENTORY  # bytes, as are the following
HEADERS_SIZE = 3 + _COUNTED_HEADER * MAX_HEADERS
LOCATE_SIZE = 4 + 1 + HASH_SIZE * (MAX_LOCATOR + 1)


@public
class InvType(IntEnum):
    """The kind of object that an inventory item identifies (Core protocol.h GetDataMsg)."""

    TX = 1
    BLOCK = 2
    FILTERED_BLOCK = 3
    """BIP-37, only in getdata."""
    COMPACT_BLOCK = 4
    """BIP-152, only in getdata."""
    WTX = 5
    """BIP-339: the hash is a wtxid."""
    WITNESS_TX = 0x40000001
    """BIP-144, only in getdata."""
    WITNESS_BLOCK = 0x40000002
    """BIP-144, only in getdata."""


@public
class InvItem(NamedTuple):
    """An inventory item, 36 bytes: kind u32 (an InvType or an unknown one) and hash."""

    kind: int
    hash: bytes

    def __repr__(self) -> str:
        kind = InvType(self.kind).name if self.kind in _KINDS else hex(self.kind)
        return f"InvItem({kind}, {hash_to_hex(self.hash)})"


_KINDS = frozenset(InvType)
_ITEM = struct.Struct("<I32s")
_make_item = partial(tuple.__new__, InvItem)  # InvItem._make without its length check, since a message may hold 50,000


@dataclass(frozen=True, slots=True)
class _Inventory:
    items: tuple[InvItem, ...]

    def __post_init__(self) -> None:
        check_most(self.items, MAX_INVENTORY, "inventory")
        kinds, hashes = zip(*self.items, strict=True) if self.items else ((), ())
        check_each(hashes, HASH_SIZE, "inventory hashes")
        for extreme in (min(kinds, default=0), max(kinds, default=0)):
            check_uint(extreme, 4, "kind")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        items = reader.take(_ITEM.size * reader.count("inventory count", MAX_INVENTORY, _ITEM.size), "inventory")
        reader.finish("inventory")
        return cls(tuple(map(_make_item, _ITEM.iter_unpack(items))))

    def __bytes__(self) -> bytes:
        return compact_size(len(self.items)) + b"".join([_ITEM.pack(*item) for item in self.items])


@public
@dataclass(frozen=True, slots=True)
class Inv(_Inventory):
    """Announces objects that the sender has: CompactSize and items, at most 50,000."""


@public
@dataclass(frozen=True, slots=True)
class GetData(_Inventory):
    """Requests objects: CompactSize and items, at most 50,000."""


@public
@dataclass(frozen=True, slots=True)
class NotFound(_Inventory):
    """Lists the objects of a getdata that the sender does not have: CompactSize and items, at most 50,000."""


@dataclass(frozen=True, slots=True)
class _Locate:
    locator: tuple[bytes, ...]
    """Block hashes, newest first."""
    stop_hash: bytes = bytes(HASH_SIZE)
    """Zeros: as many as a message holds."""
    version: int = 70016
    """Ignored by receivers."""

    def __post_init__(self) -> None:
        check_hashes(self.locator, MAX_LOCATOR, "locator")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")
        check_uint(self.version, 4, "version")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        version = reader.uint(4, "version")
        locator = reader.hashes("locator", MAX_LOCATOR)
        stop_hash = reader.hash("stop hash")
        reader.finish("locator")
        return cls(locator, stop_hash, version)

    def __bytes__(self) -> bytes:
        return self.version.to_bytes(4, "little") + var_hashes(self.locator) + self.stop_hash


@public
@dataclass(frozen=True, slots=True)
class GetHeaders(_Locate):
    """Requests the headers after the first locator hash that is in the best chain, up to the stop hash.

    Version u32, CompactSize and hashes (at most 101), stop hash. An empty locator requests the header of the stop hash
    alone.
    """


@public
@dataclass(frozen=True, slots=True)
class GetBlocks(_Locate):
    """Requests an inv of at most 500 blocks; the payload and its meaning are those of getheaders."""


@public
@dataclass(frozen=True, slots=True)
class Headers:
    """Block headers in chain order, at most 2,000: CompactSize, then each header (80 bytes) followed by a zero byte."""

    headers: tuple[bytes, ...]
    """80 bytes each; primitives.Header.parse reads one."""

    def __post_init__(self) -> None:
        check_most(self.headers, MAX_HEADERS, "headers")
        check_each(self.headers, HEADER_SIZE, "headers")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The headers in a payload. Raises FormatError, also if the transaction count of a header is not zero."""
        reader = PayloadReader(payload)
        count = reader.count("header count", MAX_HEADERS, _COUNTED_HEADER)
        start, end = reader.at, reader.at + count * _COUNTED_HEADER
        if any(payload[start + HEADER_SIZE : end : _COUNTED_HEADER]):
            wrong = next(at for at in range(start + HEADER_SIZE, end, _COUNTED_HEADER) if payload[at])
            raise FormatError(f"must be 0, not {payload[wrong]}", offset=wrong, field="transaction count")
        reader.at = end
        reader.finish("headers")
        return cls(tuple([payload[at : at + HEADER_SIZE] for at in range(start, end, _COUNTED_HEADER)]))

    def __bytes__(self) -> bytes:
        return compact_size(len(self.headers)) + b"".join([header + b"\0" for header in self.headers])


@public
@dataclass(frozen=True, slots=True)
class Tx:
    """One serialised transaction, with or without witness (BIP-144).

    `parse` validates the serialisation, the constructor does not.
    """

    raw: bytes

    @property
    def txid(self) -> bytes:
        """The txid, 32 bytes in wire order; computed on every access."""
        return Transaction.parse(self.raw).txid

    @property
    def wtxid(self) -> bytes:
        """The wtxid, 32 bytes in wire order; computed on every access."""
        return Transaction.parse(self.raw).wtxid

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The transaction in a payload. Raises FormatError unless the payload is exactly one transaction."""
        parse_tx(payload)
        return cls(payload)

    def __bytes__(self) -> bytes:
        return self.raw


@public
@dataclass(frozen=True, slots=True)
class Block:
    """One serialised block: header, CompactSize and at least one transaction.

    `parse` does not read the transactions, which may take long; kernel.walk_block, check_block and the scans do.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) < HEADER_SIZE + 1 + MIN_TX_SIZE:
            raise ParameterError(f"a block has at least {HEADER_SIZE + 1 + MIN_TX_SIZE} bytes, not {len(self.raw)}")

    @property
    def header(self) -> Header:
        """Its first 80 bytes."""
        return Header.parse(self.raw[:HEADER_SIZE])

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
        reader = PayloadReader(payload)
        reader.take(HEADER_SIZE, "header")
        if not reader.count("transaction count", MAX_PAYLOAD_SIZE // MIN_TX_SIZE, MIN_TX_SIZE):
            raise FormatError("a block has at least its coinbase", offset=HEADER_SIZE, field="transaction count")
        return cls(payload)

    def __bytes__(self) -> bytes:
        return self.raw


@public
@dataclass(frozen=True, slots=True)
class Mempool(Empty):
    """Requests an inv of the peer's unconfirmed transactions that match the loaded filter (BIP-35, BIP-37)."""


@public
@dataclass(frozen=True, slots=True)
class Unknown:
    """A message with an unknown command and its unparsed payload."""

    command: str
    payload: bytes

    def __bytes__(self) -> bytes:
        return self.payload

    def __repr__(self) -> str:
        shown = printable(self.payload[:32]) + ("…" if len(self.payload) > 32 else "")
        return f"Unknown({self.command!r}, {len(self.payload)} bytes: {shown})"
