"""The kernel's values: classes and constants that both backends take and return, so that their results are equal."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from spvfilter._public import public, readable

UPDATE_NONE, UPDATE_ALL, UPDATE_P2PUBKEY_ONLY = 0, 1, 2  # BIP-37 nFlags, after masking with 3.
COUNTER_BITS = (4, 8, 16)  # Sizes of the counters of a counting filter.
MAX_PREFIX = 64  # Largest size of a data prefix in bytes (our choice).
SPLIT_BLOCK_BITS, SPLIT_BLOCK_FUNCTIONS = 256, 8  # Parquet's filters: bits of a block, and bits of a key in a block.
MAX_SLICES = 64  # Slices of a scalable filter (our choice): each is at least as large as the one before.
NO_ENTRY = -1  # Stands for the number of an entry if there is none.
NO_VALUE = -1  # Stands for a value or fee in satoshi that is not known.


@public
class TxSpan(NamedTuple):
    """The offsets of the parts of one serialized transaction, in bytes."""

    start: int
    """Start of the transaction."""
    end: int
    """End of the transaction."""
    inputs: list[tuple[int, int, int]]
    """For each input: start of the outpoint, start and end of the scriptSig."""
    outputs: list[tuple[int, int, int]]
    """For each output: start of the value, start and end of the scriptPubKey."""
    witness: int
    """Start of the witness stacks; 0 in a transaction without witness."""


@public
class TxMatch(NamedTuple):
    """A transaction that a filter matched."""

    position: int
    """Position of the transaction in the block, from 0."""
    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""
    start: int
    """Offset of its first byte in the block."""
    end: int
    """Offset of the byte after its last byte in the block."""


@public
class Place(NamedTuple):
    """The place of a block or of an undo record in an open file."""

    descriptor: int
    """File descriptor of the open file."""
    offset: int
    """Offset of the block or record in the file, in bytes."""
    size: int
    """Size in bytes: at most MAX_BLOCK_SIZE for a block, MAX_UNDO_SIZE for an undo record with its checksum."""
    key: bytes
    """8-byte key that is repeated from the start of the file and XORed with it, or empty."""
    hash: bytes
    """Hash of the block, 32 bytes, or for an undo record the hash of the previous block. It verifies what was read."""


@public
class Family(IntEnum):
    """Hash families, by their number in the file format.

    Each family has a class in bloom/hashing.py or bloom/exchange.
    """

    BIP37 = 1
    """Bip37Hash."""
    FAST = 2
    """FastHash."""
    SIPHASH = 3
    """SipHash."""
    SPARK_V1 = 4
    """SparkHash, version 1."""
    SPARK_V2 = 5
    """SparkHash, version 2."""
    REDISBLOOM = 6
    """RedisBloomHash."""
    SPLIT_BLOCK = 7
    """The family of Parquet's filters. It has no class, and no file of this package uses it."""
    CUSTOM = 255
    """CustomHash."""


@public
class Encoding(IntEnum):
    """The type of a filter's keys and their encoding as bytes. The numbers are part of the file format."""

    BYTES = 0
    """Bytes-like keys, used as they are."""
    UTF8 = 1
    """Keys of type str, encoded as UTF-8."""
    INT64 = 2
    """Keys of type int from -2^63 to 2^63 - 1, as 8 bytes little endian."""
    UINT64 = 3
    """Keys of type int from 0 to 2^64 - 1, as 8 bytes little endian."""
    INT32 = 4
    """Keys of type int from -2^31 to 2^31 - 1, as 4 bytes little endian."""
    UINT32 = 5
    """Keys of type int from 0 to 2^32 - 1, as 4 bytes little endian."""
    CALLABLE = 255
    """Any keys, encoded by a custom function."""


NUMBERS = (Encoding.INT64, Encoding.UINT64, Encoding.INT32, Encoding.UINT32)  # Encodings of int keys.


@public
class EntryKind(IntEnum):
    """The kind of an entry of a watch table. It determines which outputs and inputs match the entry."""

    SCRIPT = 0
    """Matches outputs with this scriptPubKey."""
    MULTISIG_KEY = 1
    """Matches bare multisig outputs with this public key."""
    DATA = 2
    """Matches outputs and scriptSigs that push exactly these bytes."""
    OUTPOINT = 3
    """Matches the input that spends this outpoint (36 bytes), which the user added."""
    DATA_PREFIX = 4
    """Matches OP_RETURN outputs whose first push begins with these bytes (1 to 64). The table does not learn them."""
    SCRIPT_TYPE = 5
    """Matches outputs of this type (one byte, a ScriptType) and, with undo records, their spends.

    The table does not learn such outputs.
    """


PATTERN_KINDS = (EntryKind.DATA_PREFIX, EntryKind.SCRIPT_TYPE)  # Entries that only a scan of blocks finds.


@public
class ScriptType(IntEnum):
    """The type of a scriptPubKey (Core script/solver.cpp, Solver)."""

    NONSTANDARD = 0
    """None of the types below."""
    P2PK = 1
    """Pay to public key."""
    P2PKH = 2
    """Pay to public key hash."""
    P2SH = 3
    """Pay to script hash (BIP-16)."""
    P2MS = 4
    """Bare multisig with at most 20 keys."""
    P2WPKH = 5
    """Pay to witness public key hash (BIP-141)."""
    P2WSH = 6
    """Pay to witness script hash (BIP-141)."""
    P2TR = 7
    """Pay to taproot (BIP-341)."""
    P2A = 8
    """Pay to anchor."""
    NULLDATA = 9
    """OP_RETURN, followed only by pushes."""
    WITNESS_UNKNOWN = 10
    """A witness program other than those above, of version 1 to 16."""


@public
class WatchedCoin(NamedTuple):
    """The facts that a watch table stores about a watched outpoint."""

    entry: int
    """Number of the entry for which the outpoint is watched."""
    value: int
    """Value of the output in satoshi; NO_VALUE if it is not known."""
    script: bytes | None
    """scriptPubKey of the output, or None if it is not known."""


@public
class Hit(NamedTuple):
    """An output or an input that matches an entry of a watch table. It contains no label and no address."""

    spend: bool
    """True for an input, False for an output."""
    position: int
    """Position of the transaction in its block, from 0; 0 without a block."""
    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""
    n: int
    """Position of the output or the input in its transaction, from 0."""
    outpoint: bytes
    """Outpoint of the output, or the outpoint that the input spends, 36 bytes."""
    value: int
    """Value of the output, or of the spent output, in satoshi; NO_VALUE if it is not known."""
    script: bytes | None
    """scriptPubKey of the output, or of the spent output. None if it is not known."""
    entry: int
    """Number of the entry that it matches."""
    fee: int = NO_VALUE
    """Fee of the transaction in satoshi; NO_VALUE for a coinbase, and without an undo record."""


@public
class SpentCoin(NamedTuple):
    """A coin that an input spends, from an undo record."""

    value: int
    """Value of the coin in satoshi."""
    script: bytes
    """scriptPubKey of the coin."""
    height: int | None
    """Height of the block that created the coin, or None if the record lacks it (Bitcoin Core before 0.15)."""
    coinbase: bool | None
    """True if a coinbase created the coin, or None if the record lacks this (Bitcoin Core before 0.15)."""


@public
class SilentCandidate(NamedTuple):
    """The input keys that a transaction reveals, and its taproot outputs (BIP-352).

    The x-only keys and the compressed keys may be off the curve. A caller that parses the keys must leave out those off
    the curve.
    """

    outpoint: bytes
    """The smallest outpoint of all inputs, 36 bytes, compared as bytes."""
    taproot_keys: bytes
    """The x-only output keys of the eligible P2TR inputs, 32 bytes each, concatenated."""
    keys: bytes
    """The compressed keys of the P2WPKH and P2SH-P2WPKH inputs, 33 bytes each, concatenated."""
    hashed: list[tuple[bytes, bytes]]
    """scriptSig and key hash (20 bytes) of each P2PKH input, whose key is the last matching one in the scriptSig."""
    paths: list[tuple[bytes, bytes]]
    """Control block and script of each input that reveals a taproot script path and whose spent script is not known."""
    outputs: list[tuple[int, bytes]]
    """Index and x-only key (32 bytes) of each taproot output."""
    unknown: int
    """Number of inputs that may be eligible, but whose keys are unknown without the scripts that they spend."""


class Flaw(StrEnum):
    """The `cause` of a ProofError, which is the rule that a merkle proof violates."""

    NO_TRANSACTIONS = "no transactions"
    """The block has no transactions."""
    TOO_MANY_TRANSACTIONS = "too many transactions for a block"
    """The proof claims more transactions than a block can contain."""
    TOO_MANY_HASHES = "more hashes than transactions"
    """The proof contains more hashes than the block has transactions."""
    TOO_FEW_BITS = "fewer flag bits than hashes"
    """The proof contains fewer flag bits than hashes."""
    BITS_EXHAUSTED = "flag bits exhausted"
    """The tree needs more flag bits than the proof contains."""
    HASHES_EXHAUSTED = "hashes exhausted"
    """The tree needs more hashes than the proof contains."""
    EQUAL_SIBLINGS = "equal siblings"
    """Two sibling nodes of the tree are equal (CVE-2012-2459)."""
    UNUSED_BITS = "unused flag bits"
    """The proof contains flag bits that the tree does not need."""
    UNUSED_HASHES = "unused hashes"
    """The proof contains hashes that the tree does not need."""
    WRONG_ROOT = "wrong merkle root"
    """The root of the tree is not the merkle root of the header."""


@readable
class ProvedTx(NamedTuple):
    """A transaction that is proven to be in the block."""

    position: int
    """Position of the transaction in the block, from 0."""
    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return self.txid[::-1].hex()


Flaw.__module__ = ProvedTx.__module__ = "spvfilter.wire.messages"  # the package that exports them
