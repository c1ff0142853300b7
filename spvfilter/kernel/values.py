"""The kernel's values: classes and constants that both backends take and return, so that their results compare
equal.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from spvfilter._public import public

UPDATE_NONE, UPDATE_ALL, UPDATE_P2PUBKEY_ONLY = 0, 1, 2  # BIP-37 nFlags, after masking with 3
COUNTER_LIMIT = 15  # 4 bits
SPLIT_BLOCK_BITS, SPLIT_BLOCK_FUNCTIONS = 256, 8  # of Parquet's filters: bits of a block, and of a key in it
MAX_SLICES = 64  # of a series: each is at least as large as the one before
NO_ENTRY = -1
NO_VALUE = -1  # satoshi; the value of an output that has not been seen


@public
class TxSpan(NamedTuple):
    """The offsets of the parts of one serialised transaction."""

    start: int
    end: int
    inputs: list[tuple[int, int, int]]
    """(outpoint, scriptSig start, scriptSig end)."""
    outputs: list[tuple[int, int, int]]
    """(value, scriptPubKey start, scriptPubKey end)."""
    witness: int
    """Offset of the witness stacks; 0 in a transaction without them."""


@public
class TxMatch(NamedTuple):
    """A transaction that a filter matched: its position in the block, its txid, and its bytes, raw[start:end]."""

    position: int
    txid: bytes
    start: int
    end: int


@public
class Place(NamedTuple):
    """The place of a block in an open file, and its hash, which shows whether the block is still there.

    Or that of an undo record with its check, and the hash of the block before its block, which the check commits to.
    """

    descriptor: int
    offset: int
    """Bytes."""
    size: int
    """Bytes, at most MAX_BLOCK_SIZE, of an undo record MAX_UNDO_SIZE."""
    key: bytes
    """8 bytes, repeated from the start of the file, with which it is XORed; or empty."""
    hash: bytes
    """32 bytes."""


@public
class Family(IntEnum):
    """Hash families by the numbers of the file format; bloom/hashing.py has a class for each."""

    BIP37 = 1
    FAST = 2
    SIPHASH = 3
    SPARK_V1 = 4
    SPARK_V2 = 5
    REDISBLOOM = 6
    SPLIT_BLOCK = 7
    """Of Parquet's filters, which have no class and no file of this package."""
    CUSTOM = 255


@public
class Encoding(IntEnum):
    """The type of a filter's keys and how they become bytes; the numbers are part of the file format."""

    BYTES = 0
    """Bytes-like, as they are."""
    UTF8 = 1
    """Str."""
    INT64 = 2
    """Int, -2^63 to 2^63 - 1, as 8 bytes little endian."""
    UINT64 = 3
    """Int, 0 to 2^64 - 1, as 8 bytes little endian."""
    INT32 = 4
    """Int, -2^31 to 2^31 - 1, as 4 bytes little endian."""
    UINT32 = 5
    """Int, 0 to 2^32 - 1, as 4 bytes little endian."""
    CALLABLE = 255
    """Anything that the user's own function turns into bytes."""


NUMBERS = (Encoding.INT64, Encoding.UINT64, Encoding.INT32, Encoding.UINT32)  # encodings of ints


@public
class EntryKind(IntEnum):
    """The kind of a table's entry, which determines what matches it."""

    SCRIPT = 0
    """Outputs whose scriptPubKey is equal."""
    MULTISIG_KEY = 1
    """Bare multisig outputs with this public key."""
    DATA = 2
    """Outputs and scriptSigs that push exactly these bytes."""
    OUTPOINT = 3
    """An outpoint watched by hand; its bytes are the 36 of the outpoint."""


@public
class Coin(NamedTuple):
    """What is known about a watched outpoint."""

    entry: int
    """The entry on whose behalf it is watched."""
    value: int
    """Satoshi or NO_VALUE."""
    script: bytes | None


@public
class Hit(NamedTuple):
    """An output or input that concerns the table, without labels and addresses."""

    spend: bool
    """An input; else an output."""
    position: int
    """Of the transaction in its block, 0 without a block."""
    txid: bytes
    n: int
    """Of the output or input in its transaction."""
    outpoint: bytes
    """36 bytes: the output itself, or the one spent."""
    value: int
    """Satoshi or NO_VALUE."""
    script: bytes | None
    """scriptPubKey of that output, where known."""
    entry: int
    fee: int = NO_VALUE
    """Satoshi, of the transaction; NO_VALUE without an undo record, and for a coinbase."""


@public
class SpentCoin(NamedTuple):
    """A coin that an input spends, from an undo record."""

    value: int
    """Satoshi."""
    script: bytes
    height: int | None
    """Of the block that made it; None where the record does not have it (Bitcoin Core before 0.15)."""
    coinbase: bool | None
    """Whether a coinbase made it; None as with the height."""


class Flaw(StrEnum):
    """The `cause` of a ProofError: what is wrong with a proof."""

    NO_TRANSACTIONS = "no transactions"
    TOO_MANY_TRANSACTIONS = "too many transactions for a block"
    TOO_MANY_HASHES = "more hashes than transactions"
    TOO_FEW_BITS = "fewer flag bits than hashes"
    BITS_EXHAUSTED = "flag bits exhausted"
    HASHES_EXHAUSTED = "hashes exhausted"
    EQUAL_SIBLINGS = "equal siblings"
    """CVE-2012-2459."""
    UNUSED_BITS = "unused flag bits"
    UNUSED_HASHES = "unused hashes"
    WRONG_ROOT = "wrong merkle root"


class ProvedTx(NamedTuple):
    """A transaction that is proven to be in the block: its position and its txid (32 bytes, wire order)."""

    position: int
    txid: bytes


Flaw.__module__ = ProvedTx.__module__ = "spvfilter.wire.messages"  # which exports them
