"""Messages that announce, request and carry headers, blocks and transactions."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Self

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

MIN_TX_SIZE = 60  # bytes of a transaction with one input, one output and no scripts
_COUNTED_HEADER = HEADER_SIZE + 1  # bytes of a header and its transaction count, which is zero

# Bytes of the longest payload of each message.
INVENTORY_SIZE = 3 + 36 * MAX_INVENTORY
HEADERS_SIZE = 3 + _COUNTED_HEADER * MAX_HEADERS
LOCATE_SIZE = 4 + 1 + HASH_SIZE * (MAX_LOCATOR + 1)


@public
class InvType(IntEnum):
    """The kind of object that an item of inv, getdata or notfound identifies (Core protocol.h GetDataMsg)."""

    TX = 1
    """A transaction, identified by its txid."""
    BLOCK = 2
    """A block, identified by its hash."""
    FILTERED_BLOCK = 3
    """A block to be sent as a merkleblock (BIP-37). This kind occurs only in getdata."""
    COMPACT_BLOCK = 4
    """A block to be sent as a compact block (BIP-152). This kind occurs only in getdata."""
    WTX = 5
    """A transaction, identified by its wtxid (BIP-339)."""
    WITNESS_TX = 0x40000001
    """A transaction to be sent with its witness (BIP-144). This kind occurs only in getdata."""
    WITNESS_BLOCK = 0x40000002
    """A block to be sent with its witnesses (BIP-144). This kind occurs only in getdata."""


@public
class InvItem(NamedTuple):
    """One item of an inv, getdata or notfound message: the kind and the hash of an object.

    | bytes | field |
    |---|---|
    | 4 | kind u32 LE |
    | 32 | hash |
    """

    kind: int
    """Kind of object: an InvType, or the number of an unknown kind (u32)."""
    hash: bytes
    """Hash of the object that the item identifies, 32 bytes in wire order."""

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)

    def __repr__(self) -> str:
        kind = InvType(self.kind).name if self.kind in _KINDS else hex(self.kind)
        return f"InvItem({kind}, {hash_to_hex(self.hash)})"


_KINDS = frozenset(InvType)
_ITEM = struct.Struct("<I32s")
_make_item = partial(tuple.__new__, InvItem)  # InvItem._make without its check of the length, for up to 50,000 items


@dataclass(frozen=True, slots=True)
class _Inventory:
    """Base class of the messages inv, getdata and notfound."""

    items: tuple[InvItem, ...]
    """The items that identify objects, at most 50,000."""

    def __post_init__(self) -> None:
        check_most(self.items, MAX_INVENTORY, "inventory")
        kinds, hashes = zip(*self.items, strict=True) if self.items else ((), ())
        check_each(hashes, HASH_SIZE, "inventory hashes")
        for extreme in (min(kinds, default=0), max(kinds, default=0)):
            check_uint(extreme, 4, "kind")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of an inv, getdata or notfound message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        items = reader.take(_ITEM.size * reader.count("inventory count", MAX_INVENTORY, _ITEM.size), "inventory")
        reader.finish("inventory")
        return cls(tuple(map(_make_item, _ITEM.iter_unpack(items))))

    def __bytes__(self) -> bytes:
        return compact_size(len(self.items)) + b"".join([_ITEM.pack(*item) for item in self.items])


@public
@dataclass(frozen=True, slots=True)
class Inv(_Inventory):
    """A message that announces transactions or blocks that the sender has.

    | bytes | field |
    |---|---|
    | 1 to 3 | number of items, CompactSize, at most 50,000 |
    | 36 each | items |
    """


@public
@dataclass(frozen=True, slots=True)
class GetData(_Inventory):
    """A message that requests transactions or blocks.

    | bytes | field |
    |---|---|
    | 1 to 3 | number of items, CompactSize, at most 50,000 |
    | 36 each | items |
    """


@public
@dataclass(frozen=True, slots=True)
class NotFound(_Inventory):
    """A message that lists the objects that the peer requested with getdata but the sender does not have.

    | bytes | field |
    |---|---|
    | 1 to 3 | number of items, CompactSize, at most 50,000 |
    | 36 each | items |
    """


@dataclass(frozen=True, slots=True)
class _Locate:
    """Base class of the messages getheaders and getblocks."""

    locator: tuple[bytes, ...]
    """Hashes of at most 101 blocks that the sender has, newest first, 32 bytes each."""
    stop_hash: bytes = bytes(HASH_SIZE)
    """Hash of the last block to send, 32 bytes. Zeros ask for as many blocks as fit in one message."""
    version: int = 70016
    """Protocol version of the sender (u32). Receivers ignore it."""

    def __post_init__(self) -> None:
        check_hashes(self.locator, MAX_LOCATOR, "locator")
        check_size(self.stop_hash, HASH_SIZE, "stop hash")
        check_uint(self.version, 4, "version")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a getheaders or getblocks message. Raises FormatError if it is malformed."""
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
    """A message that requests headers of the peer's best chain, up to the stop hash.

    | bytes | field |
    |---|---|
    | 4 | protocol version u32 LE |
    | 1 | number of locator hashes, CompactSize, at most 101 |
    | 32 each | locator hashes, newest first |
    | 32 | stop hash |

    The peer sends the headers after the first locator hash that is in its best chain. An empty locator requests only
    the header of the stop hash.
    """


@public
@dataclass(frozen=True, slots=True)
class GetBlocks(_Locate):
    """A message that requests an inv of at most 500 blocks, after the first locator hash in the peer's best chain.

    | bytes | field |
    |---|---|
    | 4 | protocol version u32 LE |
    | 1 | number of locator hashes, CompactSize, at most 101 |
    | 32 each | locator hashes, newest first |
    | 32 | stop hash |
    """


@public
@dataclass(frozen=True, slots=True)
class Headers:
    """A headers message: at most 2,000 block headers in chain order.

    | bytes | field |
    |---|---|
    | 1 or 3 | number of headers, CompactSize |
    | for each header: 80 | header |
    | 1 | number of transactions, always 0 |
    """

    headers: tuple[bytes, ...]
    """Serialized block headers in chain order, 80 bytes each. `Header.parse` parses one of them."""

    def __post_init__(self) -> None:
        check_most(self.headers, MAX_HEADERS, "headers")
        check_each(self.headers, HEADER_SIZE, "headers")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a headers message.

        Raises FormatError if it is malformed. A header with a transaction count other than zero is malformed.
        """
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
    """A tx message: one serialized transaction, with or without witness (BIP-144).

    `parse` validates the serialization; the constructor does not.
    """

    raw: bytes
    """The serialized transaction."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def wtxid_hex(self) -> str:
        """The field `wtxid` in hex, as block explorers show it."""
        return hash_to_hex(self.wtxid)

    @property
    def txid(self) -> bytes:
        """The txid of the transaction, 32 bytes in wire order. It is computed on every access."""
        return Transaction.parse(self.raw).txid

    @property
    def wtxid(self) -> bytes:
        """The wtxid of the transaction, 32 bytes in wire order. It is computed on every access."""
        return Transaction.parse(self.raw).wtxid

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a tx message. Raises FormatError unless the payload is exactly one transaction."""
        parse_tx(payload)
        return cls(payload)

    def __bytes__(self) -> bytes:
        return self.raw


@public
@dataclass(frozen=True, slots=True)
class Block:
    """A block message: one serialized block.

    | bytes | field |
    |---|---|
    | 80 | header |
    | 1 to 9 | number of transactions, CompactSize, at least 1 |
    | the rest | transactions |

    `parse` does not parse the transactions, because that can take long. To parse them, call spvfilter.kernel.walk_block
    or check_block.
    """

    raw: bytes
    """The serialized block: header, transaction count and transactions."""

    def __post_init__(self) -> None:
        if len(self.raw) < HEADER_SIZE + 1 + MIN_TX_SIZE:
            raise ParameterError(f"a block must be at least {HEADER_SIZE + 1 + MIN_TX_SIZE} bytes, not {len(self.raw)}")

    @property
    def header(self) -> Header:
        """The parsed header of the block, from its first 80 bytes."""
        return Header.parse(self.raw[:HEADER_SIZE])

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the header and the transaction count of a block message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        reader.take(HEADER_SIZE, "header")
        if not reader.count("transaction count", MAX_PAYLOAD_SIZE // MIN_TX_SIZE, MIN_TX_SIZE):
            raise FormatError(
                "a block must contain at least its coinbase", offset=HEADER_SIZE, field="transaction count"
            )
        return cls(payload)

    def __bytes__(self) -> bytes:
        return self.raw


@public
@dataclass(frozen=True, slots=True)
class Mempool(Empty):
    """A message that requests an inv of the peer's unconfirmed transactions (BIP-35).

    If a BIP-37 filter is loaded, the inv lists only transactions that match it. The payload is empty.
    """


@public
@dataclass(frozen=True, slots=True)
class Unknown:
    """A message whose command is not in the table of messages."""

    command: str
    """Command of the message, as the sender wrote it."""
    payload: bytes
    """Payload of the message, not parsed."""

    def __bytes__(self) -> bytes:
        return self.payload

    def __repr__(self) -> str:
        shown = printable(self.payload[:32]) + ("…" if len(self.payload) > 32 else "")
        return f"Unknown({self.command!r}, {len(self.payload)} bytes: {shown})"
