"""Basic values of Bitcoin's serialisation:

CompactSize, a bounds-checked reader, block header, outpoint, output, script pushes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol, SupportsBytes

from spvfilter._dataclass import dataclass
from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.protocol import HEADER_SIZE, MAX_COMPACT_SIZE

__all__ = [
    "Header",
    "OutPoint",
    "Serializable",
    "TxOut",
    "compact_size",
    "hash_from_hex",
    "hash_to_hex",
    "read_compact_size",
    "script_pushes",
]

_U32_MAX = 0xFFFFFFFF


class BitcoinlibObject(Protocol):
    """An object of python-bitcoinlib that serializes itself, witness included: a CTransaction or a CBlock."""

    def serialize(self) -> bytes:
        """The serialized bytes."""
        ...


Serializable = BitcoinlibObject | SupportsBytes
"""An object that serializes itself: a CTransaction or CBlock of python-bitcoinlib, a message, or a Transaction."""


def to_bytes(raw: bytes | bytearray | memoryview | Serializable) -> bytes:
    """The bytes of `raw`: bytes-like, with python-bitcoinlib's `serialize()`, or with `__bytes__`, as messages have it.

    Raises TypeError for anything else, including an int (`bytes(5)` would be five zero bytes).
    """
    if isinstance(raw, bytes):
        return raw
    if isinstance(raw, (bytearray, memoryview)):
        return bytes(raw)
    serialize = getattr(raw, "serialize", None)
    if serialize is not None:
        return bytes(serialize())
    if isinstance(raw, SupportsBytes):
        return bytes(raw)
    raise TypeError(f"expected bytes or an object with serialize() or __bytes__(), not {type(raw).__name__}")


def hash_to_hex(hash_: bytes) -> str:
    """The display form of a hash: its bytes reversed, in hex."""
    return hash_[::-1].hex()


def hash_from_hex(text: str) -> bytes:
    """The bytes, in wire order, of a hash in display form.

    Raises ParameterError unless `text` is 64 hex digits; it does not show them.
    """
    try:
        reversed_hash = bytes.fromhex(text)
    except ValueError:
        reversed_hash = b""
    if len(reversed_hash) != 32 or len(text) != 64:
        raise ParameterError(f"a hash is 64 hex digits; these {len(text)} characters are not")
    return reversed_hash[::-1]


def compact_size(value: int) -> bytes:
    """CompactSize encoding of a u64, else ParameterError: 1, 3, 5 or 9 bytes (Core serialize.h WriteCompactSize)."""
    if value < 0 or value > 0xFFFFFFFFFFFFFFFF:
        raise ParameterError(f"CompactSize out of range: {value}")
    if value < 0xFD:
        return bytes((value,))
    if value <= 0xFFFF:
        return b"\xfd" + value.to_bytes(2, "little")
    if value <= _U32_MAX:
        return b"\xfe" + value.to_bytes(4, "little")
    return b"\xff" + value.to_bytes(8, "little")


def read_compact_size(raw: bytes, at: int, field: str) -> tuple[int, int]:
    """The CompactSize at byte `at`, and the offset of the byte after it (Core serialize.h ReadCompactSize).

    Raises FormatError if it is truncated, not in its shortest form, or above MAX_COMPACT_SIZE.
    """
    if at >= len(raw):
        raise FormatError("truncated: no byte left", offset=at, field=field)
    first = raw[at]
    if first < 0xFD:
        return first, at + 1
    width = 1 << (first - 0xFC)  # fd → 2, fe → 4, ff → 8
    end = at + 1 + width
    if end > len(raw):
        raise FormatError(f"truncated: CompactSize wants {width} more bytes", offset=at, field=field)
    value = int.from_bytes(raw[at + 1 : end], "little")
    if value < (0xFD, 0x10000, 0x100000000)[first - 0xFD]:
        raise FormatError(f"non-canonical CompactSize for {value}", offset=at, field=field)
    if value > MAX_COMPACT_SIZE:
        raise FormatError(f"{value} is above the limit {MAX_COMPACT_SIZE}", offset=at, field=field)
    return value, end


class Reader:
    """A bounds-checked cursor over bytes.

    Every method raises FormatError, with offset and field, instead of reading past the end.
    """

    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes, at: int = 0) -> None:
        self.raw = raw
        self.at = at

    def take(self, size: int, field: str) -> bytes:
        end = self.at + size
        if end > len(self.raw):
            raise FormatError(
                f"truncated: {size} bytes wanted, {len(self.raw) - self.at} left", offset=self.at, field=field
            )
        piece = self.raw[self.at : end]
        self.at = end
        return piece

    def uint(self, size: int, field: str) -> int:
        return int.from_bytes(self.take(size, field), "little")

    def compact_size(self, field: str) -> int:
        value, self.at = read_compact_size(self.raw, self.at, field)
        return value

    def finish(self, field: str) -> None:
        if self.at != len(self.raw):
            raise FormatError(f"{len(self.raw) - self.at} trailing bytes", offset=self.at, field=field)


@dataclass(frozen=True, slots=True)
class OutPoint:
    """A reference to one output of a transaction: 36 bytes, txid (32, wire order) then index (u32 LE).

    Raises ParameterError for another length of the txid, or an index that is no u32.
    """

    txid: bytes
    index: int

    def __post_init__(self) -> None:
        if len(self.txid) != 32:
            raise ParameterError(f"a txid has 32 bytes, not {len(self.txid)}")
        if not 0 <= self.index <= _U32_MAX:
            raise ParameterError(f"output index out of range: {self.index}")

    @classmethod
    def parse(cls, raw: bytes) -> OutPoint:
        """From its 36 bytes. Raises FormatError for another length."""
        if len(raw) != 36:
            raise FormatError(f"an outpoint has 36 bytes, not {len(raw)}", offset=0, field="outpoint")
        return cls(bytes(raw[:32]), int.from_bytes(raw[32:], "little"))

    @classmethod
    def from_text(cls, text: str) -> OutPoint:
        """From `txid:index`, the txid in display order. Raises ParameterError."""
        txid, colon, index = text.partition(":")
        if not colon or not index.isascii() or not index.isdigit() or len(index) > 10:
            raise ParameterError("an outpoint is TXID:INDEX, where INDEX is a whole number")
        return cls(hash_from_hex(txid), int(index))

    def __bytes__(self) -> bytes:
        return self.txid + self.index.to_bytes(4, "little")

    def __str__(self) -> str:
        return f"{hash_to_hex(self.txid)}:{self.index}"

    def __repr__(self) -> str:
        return f"OutPoint({self})"


@dataclass(frozen=True, slots=True)
class TxOut:
    """An output: value in satoshi (i64) and scriptPubKey; 8 bytes LE, CompactSize, script.

    Raises ParameterError for a value that is no i64.
    """

    value: int
    """Satoshi."""
    script_pubkey: bytes

    def __post_init__(self) -> None:
        if not -(1 << 63) <= self.value < 1 << 63:
            raise ParameterError(f"value is not an i64: {self.value}")

    def __bytes__(self) -> bytes:
        return struct.pack("<q", self.value) + compact_size(len(self.script_pubkey)) + self.script_pubkey


@dataclass(frozen=True, slots=True)
class Header:
    """A block header, 80 bytes: version i32, previous hash 32, merkle root 32, time u32, bits u32, nonce u32.

    Integers are little endian, hashes in wire order. Raises ParameterError for values that do not fit.
    """

    version: int
    previous: bytes
    merkle_root: bytes
    time: int
    """Seconds since 1970."""
    bits: int
    nonce: int

    def __post_init__(self) -> None:
        if len(self.previous) != 32 or len(self.merkle_root) != 32:
            raise ParameterError(f"hashes have 32 bytes, not {len(self.previous)} and {len(self.merkle_root)}")
        if not -(1 << 31) <= self.version < 1 << 31:
            raise ParameterError(f"version is not an i32: {self.version}")
        for name in ("time", "bits", "nonce"):
            if not 0 <= getattr(self, name) <= _U32_MAX:
                raise ParameterError(f"{name} is not a u32: {getattr(self, name)}")

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """From its 80 bytes. Raises FormatError for another length."""
        if len(raw) != HEADER_SIZE:
            raise FormatError(f"a header has {HEADER_SIZE} bytes, not {len(raw)}", offset=0, field="header")
        return cls(*_HEADER.unpack(raw))

    def __bytes__(self) -> bytes:
        return _HEADER.pack(self.version, self.previous, self.merkle_root, self.time, self.bits, self.nonce)

    @property
    def hash(self) -> bytes:
        """Block hash, 32 bytes in wire order."""
        return sha256d(bytes(self))


_HEADER = struct.Struct("<i32s32sIII")


def chunks(view: memoryview) -> Iterator[memoryview]:
    """The pieces of a flat view, 1 MiB each; the last one may be shorter."""
    return (view[at : at + (1 << 20)] for at in range(0, len(view), 1 << 20))


def script_pushes(script: bytes) -> Iterator[bytes]:
    """The non-empty data pushes of a script, up to the first malformed one (Core CScript::GetOp).

    OP_0, OP_1NEGATE and OP_1…OP_16 do not count as pushes, as in Core's bloom.cpp.
    """
    at, size = 0, len(script)
    while at < size:
        opcode = script[at]
        at += 1
        if opcode > 0x4E or opcode == 0:
            continue
        if opcode <= 0x4B:
            length = opcode
        else:  # OP_PUSHDATA1, 2, 4
            width = 1 << (opcode - 0x4C)
            if at + width > size:
                return
            length = int.from_bytes(script[at : at + width], "little")
            at += width
        end = at + length
        if end > size:
            return
        if length:
            yield script[at:end]
        at = end
