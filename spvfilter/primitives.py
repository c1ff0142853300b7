"""Basic values of Bitcoin's serialization: CompactSize, block header, outpoint, output, script pushes."""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from time import gmtime
from typing import Protocol, Self, SupportsBytes

from spvfilter._arguments import named
from spvfilter._public import naming, readable
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
    """Return the bytes of `raw`: bytes-like, or an object with `serialize()` (python-bitcoinlib) or `__bytes__()`.

    Raises TypeError for anything else. This includes an int, because `bytes(5)` would be five zero bytes.
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
    advice = ": bytes.fromhex decodes hex digits" if isinstance(raw, str) else ""
    raise TypeError(f"expected bytes or an object with serialize() or __bytes__(), not {type(raw).__name__}{advice}")


def hash_to_hex(hash_: bytes) -> str:
    """Return a hash as block explorers show it: its bytes in reversed order, in hex."""
    try:
        return hash_[::-1].hex()
    except (TypeError, AttributeError) as error:
        raise named(hash_to_hex, error, hash_) from None


@naming
def hash_from_hex(text: str) -> bytes:
    """Return the bytes, in wire order, of a hash in the form that block explorers show.

    Raises ParameterError unless `text` is 64 hex digits. The message does not repeat `text`, which may be a secret.
    """
    try:
        reversed_hash = bytes.fromhex(text)
    except ValueError:
        reversed_hash = b""
    if len(reversed_hash) != 32 or len(text) != 64:
        raise ParameterError(f"a hash must be 64 hex digits, but these {len(text)} characters are not")
    return reversed_hash[::-1]


def hash_of(value: bytes | str, name: str) -> bytes:
    """Return a hash as 32 bytes in wire order. It may also be given as 64 hex digits, as block explorers show it.

    `name` says what the hash is, for the error. Raises ParameterError for any other value.
    """
    if isinstance(value, str):
        return hash_from_hex(value)
    if not isinstance(value, bytes) or len(value) != 32:
        raise ParameterError(f"a {name} must be 32 bytes or 64 hex digits, not {reprlib.repr(value)}")
    return value


def utc_of(seconds: int) -> str:
    """Return a Unix time as text, such as "2024-01-31T00:00:00Z"."""
    year, month, day, hour, minute, second, *_ = gmtime(seconds)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def compact_size(value: int) -> bytes:
    """Encode a u64 as CompactSize, in 1, 3, 5 or 9 bytes (Core serialize.h WriteCompactSize).

    Raises ParameterError if `value` is negative or does not fit into 64 bits.
    """
    try:
        if value < 0 or value > 0xFFFFFFFFFFFFFFFF:
            raise ParameterError(f"a CompactSize must be from 0 to 2^64 - 1, not {value}")
        if value < 0xFD:
            return bytes((value,))
        if value <= 0xFFFF:
            return b"\xfd" + value.to_bytes(2, "little")
        if value <= _U32_MAX:
            return b"\xfe" + value.to_bytes(4, "little")
        return b"\xff" + value.to_bytes(8, "little")
    except (TypeError, AttributeError) as error:
        raise named(compact_size, error, value) from None


def read_compact_size(raw: bytes, at: int, field: str) -> tuple[int, int]:
    """Decode the CompactSize at byte `at` (Core serialize.h ReadCompactSize).

    Args:
        raw: The bytes to read from.
        at: Offset of the first byte of the CompactSize.
        field: Name of the field, for error messages.

    Returns:
        The value, and the offset of the byte after it.

    Raises:
        FormatError: The CompactSize is truncated, not in its shortest form, or above 33,554,432 (Core's MAX_SIZE).
    """
    try:
        if at >= len(raw):
            raise FormatError("truncated: no byte left", offset=at, field=field)
        first = raw[at]
        if first < 0xFD:
            return first, at + 1
    except TypeError as error:
        raise named(read_compact_size, error, raw, at, field) from None
    width = 1 << (first - 0xFC)  # fd → 2, fe → 4, ff → 8
    end = at + 1 + width
    if end > len(raw):
        raise FormatError(f"truncated: CompactSize needs {width} more bytes", offset=at, field=field)
    value = int.from_bytes(raw[at + 1 : end], "little")
    if value < (0xFD, 0x10000, 0x100000000)[first - 0xFD]:
        raise FormatError(f"non-canonical CompactSize for {value}", offset=at, field=field)
    if value > MAX_COMPACT_SIZE:
        raise FormatError(f"{value} is above the limit {MAX_COMPACT_SIZE}", offset=at, field=field)
    return value, end


class Reader:
    """A bounds-checked cursor over bytes: `at` is the offset of the next byte of `raw`.

    Every method raises FormatError, with offset and field, instead of reading past the end.
    """

    __slots__ = ("at", "raw")

    def __init__(self, raw: bytes, at: int = 0) -> None:
        self.raw: bytes = raw
        self.at: int = at

    def take(self, size: int, field: str) -> bytes:
        """Return the next `size` bytes."""
        end = self.at + size
        if end > len(self.raw):
            raise FormatError(
                f"truncated: expected {size} bytes, {len(self.raw) - self.at} left", offset=self.at, field=field
            )
        piece = self.raw[self.at : end]
        self.at = end
        return piece

    def uint(self, size: int, field: str) -> int:
        """Return the next `size` bytes as an unsigned integer, little endian."""
        return int.from_bytes(self.take(size, field), "little")

    def compact_size(self, field: str) -> int:
        """Return the next CompactSize."""
        value, self.at = read_compact_size(self.raw, self.at, field)
        return value

    def finish(self, field: str) -> None:
        """Raise FormatError unless all bytes have been read."""
        if left := len(self.raw) - self.at:
            raise FormatError(f"{left} trailing byte{'' if left == 1 else 's'}", offset=self.at, field=field)


def check_int(name: str, value: object, unit: str = "") -> None:
    """Raise TypeError, with the name of the argument or field, unless a value is an int and not a bool."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: expected a whole number{unit}, not {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class OutPoint:
    """A reference to one output of a transaction.

    It is serialized in 36 bytes: the txid (32 bytes), then the index (u32 little endian). Raises ParameterError if
    the txid is not 32 bytes long or the index is not a u32.
    """

    txid: bytes
    """The transaction, 32 bytes in wire order."""
    index: int
    """Position of the output in the transaction, from 0."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    def __post_init__(self) -> None:
        if not isinstance(self.txid, bytes):
            raise TypeError(f"txid: expected 32 bytes, not {type(self.txid).__name__}: OutPoint.from_text takes text")
        if len(self.txid) != 32:
            raise ParameterError(f"a txid must be 32 bytes long, not {len(self.txid)}")
        check_int("index", self.index)
        if not 0 <= self.index <= _U32_MAX:
            raise ParameterError(f"an output index must be from 0 to {_U32_MAX}, not {self.index}")

    @classmethod
    def parse(cls, raw: bytes) -> OutPoint:
        """Parse the 36 bytes of an outpoint. Raises FormatError for any other length."""
        try:
            if len(raw) != 36:
                raise FormatError(f"an outpoint must be 36 bytes long, not {len(raw)}", offset=0, field="outpoint")
            return cls(bytes(raw[:32]), int.from_bytes(raw[32:], "little"))
        except TypeError as error:
            raise named(cls.parse, error, raw) from None

    @classmethod
    @naming
    def from_text(cls, text: str) -> OutPoint:
        """Parse `TXID:INDEX`, with the txid as block explorers show it. Raises ParameterError for any other text."""
        txid, colon, index = text.partition(":")
        if not colon or not index.isascii() or not index.isdigit() or len(index) > 10:
            raise ParameterError("an outpoint must be TXID:INDEX, where INDEX is a whole number of at most 10 digits")
        return cls(hash_from_hex(txid), int(index))

    def __bytes__(self) -> bytes:
        return self.txid + self.index.to_bytes(4, "little")

    def __str__(self) -> str:
        return f"{hash_to_hex(self.txid)}:{self.index}"

    def __repr__(self) -> str:
        return f"OutPoint({self})"


def outpoint_of(value: OutPoint | str) -> OutPoint:
    """Return an OutPoint unchanged, or parse a string TXID:INDEX. Raises ParameterError for anything else."""
    if isinstance(value, OutPoint):
        return value
    if not isinstance(value, str):
        raise ParameterError(f"an outpoint must be an OutPoint or a string TXID:INDEX, not {type(value).__name__}")
    return OutPoint.from_text(value)


@readable
@dataclass(frozen=True, slots=True)
class TxOut:
    """An output of a transaction.

    It is serialized as the value (i64 little endian), the length of the script (CompactSize), and the script. Raises
    ParameterError if the value is negative or above an i64, and TypeError if it is not a whole number or the script is
    not bytes. `parsed` takes any i64, because transactions that break the rules contain negative values.
    """

    value: int
    """Value in satoshi."""
    script_pubkey: bytes
    """The script that locks the output."""

    def __post_init__(self) -> None:
        if not isinstance(self.script_pubkey, bytes):
            raise TypeError(
                "script_pubkey: expected bytes, such as address_to_script returns, not"
                f" {type(self.script_pubkey).__name__}"
            )
        check_int("value", self.value, " of satoshi")
        if not 0 <= self.value < 1 << 63:
            raise ParameterError(f"value: expected 0 to 2^63 - 1 satoshi, not {self.value}")

    @classmethod
    def parsed(cls, value: int, script_pubkey: bytes) -> Self:
        """Return an output exactly as its bytes describe it, with any i64 as its value."""
        made = object.__new__(cls)
        object.__setattr__(made, "value", value)
        object.__setattr__(made, "script_pubkey", script_pubkey)
        return made

    def __bytes__(self) -> bytes:
        return struct.pack("<q", self.value) + compact_size(len(self.script_pubkey)) + self.script_pubkey


@readable
@dataclass(frozen=True, slots=True)
class Header:
    """A block header.

    It is serialized in 80 bytes: version (i32), previous hash (32 bytes), merkle root (32 bytes), time (u32), bits
    (u32), nonce (u32). Integers are little endian. Raises ParameterError for values that do not fit.
    """

    version: int
    """Version, an i32. Miners also use its bits to signal for upgrades."""
    previous: bytes
    """Hash of the previous block, 32 bytes in wire order."""
    merkle_root: bytes
    """Root of the merkle tree over the block's txids, 32 bytes in wire order."""
    time: int
    """Unix time that the miner claims, a u32."""
    bits: int
    """Target of the proof of work in compact form, a u32."""
    nonce: int
    """Number that the miner varies, a u32."""

    @property
    def previous_hex(self) -> str:
        """The field `previous` in hex, as block explorers show it."""
        return hash_to_hex(self.previous)

    @property
    def merkle_root_hex(self) -> str:
        """The field `merkle_root` in hex, as block explorers show it."""
        return hash_to_hex(self.merkle_root)

    @property
    def hash_hex(self) -> str:
        """The hash of the block in hex, as block explorers show it."""
        return hash_to_hex(self.hash)

    def __post_init__(self) -> None:
        for name, hash_ in (("previous", self.previous), ("merkle_root", self.merkle_root)):
            if not isinstance(hash_, bytes):
                raise TypeError(f"{name}: expected 32 bytes, not {type(hash_).__name__}")
        check_int("version", self.version)
        if len(self.previous) != 32 or len(self.merkle_root) != 32:
            raise ParameterError(f"hashes must be 32 bytes long, not {len(self.previous)} and {len(self.merkle_root)}")
        if not -(1 << 31) <= self.version < 1 << 31:
            raise ParameterError(f"version must be from -2^31 to 2^31 - 1, not {self.version}")
        for name, value in (("time", self.time), ("bits", self.bits), ("nonce", self.nonce)):
            check_int(name, value)
            if not 0 <= value <= _U32_MAX:
                raise ParameterError(f"{name} must be from 0 to 2^32 - 1, not {value}")

    @classmethod
    def parse(cls, raw: bytes) -> Header:
        """Parse the 80 bytes of a header. Raises FormatError for any other length."""
        try:
            if len(raw) != HEADER_SIZE:
                raise FormatError(
                    f"a header must be {HEADER_SIZE} bytes long, not {len(raw)}", offset=0, field="header"
                )
            return cls(*_HEADER.unpack(raw))
        except TypeError as error:
            raise named(cls.parse, error, raw) from None

    def __bytes__(self) -> bytes:
        return _HEADER.pack(self.version, self.previous, self.merkle_root, self.time, self.bits, self.nonce)

    @property
    def hash(self) -> bytes:
        """Hash of the block, 32 bytes in wire order."""
        return sha256d(bytes(self))


_HEADER = struct.Struct("<i32s32sIII")


def chunks(view: memoryview) -> Iterator[memoryview]:
    """Split a one-dimensional view into pieces of 1 MiB; the last piece may be shorter."""
    return (view[at : at + (1 << 20)] for at in range(0, len(view), 1 << 20))


def script_pushes(script: bytes) -> Iterator[bytes]:
    """Yield the non-empty data pushes of a script, up to the first malformed push (Core CScript::GetOp).

    OP_0, OP_1NEGATE and OP_1 to OP_16 do not count as pushes, as in Core's bloom.cpp.
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
