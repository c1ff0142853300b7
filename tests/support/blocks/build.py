"""Synthetic transactions and blocks from struct and hashlib alone, independent of the package. No scripts are checked
or signed.

    funding = tx([TxIn(bytes(32), 0)], [TxOut(5_000, p2wpkh(bytes(20)))])
    spending = tx([TxIn(txid(funding), 0, witness=(b"signature", b"key"))], [TxOut(4_000, b"")])
    raw = block(GENESIS, [coinbase(1), funding, spending])

Hashes are bytes in wire order; every transaction and block is `bytes`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

GENESIS = bytes(32)  # the previous hash of a first block
EASY_BITS = 0x207FFFFF  # regtest's target: every second hash meets it
COINBASE_VALUE = 50 * 100_000_000  # satoshi
WITNESS_NONCE = bytes(32)
_COMMITMENT = bytes.fromhex("6a24aa21a9ed")


@dataclass(frozen=True)
class TxIn:
    """An input: the spent outpoint, scriptSig, sequence, and the items of its witness stack."""

    txid: bytes  # 32, wire order
    index: int
    script_sig: bytes = b""
    sequence: int = 0xFFFFFFFF
    witness: tuple[bytes, ...] = ()

    @property
    def outpoint(self) -> bytes:
        return outpoint(self.txid, self.index)


@dataclass(frozen=True)
class TxOut:
    """An output: value in satoshi and scriptPubKey."""

    value: int
    script_pubkey: bytes

    def __bytes__(self) -> bytes:
        return struct.pack("<q", self.value) + var_bytes(self.script_pubkey)


# Transactions


def sha256d(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def var_int(value: int) -> bytes:
    """CompactSize, shortest form, any u64."""
    if value < 0xFD:
        return struct.pack("<B", value)
    if value < 1 << 16:
        return b"\xfd" + struct.pack("<H", value)
    return b"\xfe" + struct.pack("<I", value) if value < 1 << 32 else b"\xff" + struct.pack("<Q", value)


def var_bytes(data: bytes) -> bytes:
    return var_int(len(data)) + data


def outpoint(tx_hash: bytes, index: int) -> bytes:
    return tx_hash + struct.pack("<I", index)


def tx(
    inputs: Sequence[TxIn], outputs: Sequence[TxOut], version: int = 2, lock_time: int = 0, *, stripped: bool = False
) -> bytes:
    """A serialised transaction: segwit form if an input has a witness, unless `stripped`; else the legacy form."""
    segwit = not stripped and any(txin.witness for txin in inputs)
    raw = struct.pack("<i", version) + (b"\x00\x01" if segwit else b"")
    raw += var_int(len(inputs))
    raw += b"".join(txin.outpoint + var_bytes(txin.script_sig) + struct.pack("<I", txin.sequence) for txin in inputs)
    raw += var_int(len(outputs)) + b"".join(map(bytes, outputs))
    if segwit:
        raw += b"".join(var_int(len(txin.witness)) + b"".join(map(var_bytes, txin.witness)) for txin in inputs)
    return raw + struct.pack("<I", lock_time)


def coinbase(
    height: int, outputs: Sequence[TxOut] | None = None, script_sig: bytes = b"", *, witness: bool = False
) -> bytes:
    """A coinbase with the height as its first push (BIP-34), then `script_sig`; `witness` adds the 32-byte nonce."""
    size = (height.bit_length() + 8) // 8  # a sign bit, so 128 takes two bytes
    number = (
        bytes((0x50 + height,))
        if 1 <= height <= 16
        else bytes((size,)) + height.to_bytes(size, "little")
        if height
        else b"\x00"
    )
    script = (number + script_sig).ljust(2, b"\x00")  # consensus: at least 2 bytes
    nonce = (WITNESS_NONCE,) if witness else ()
    paid = [TxOut(COINBASE_VALUE, b"\x51")] if outputs is None else outputs
    return tx([TxIn(bytes(32), 0xFFFFFFFF, script, witness=nonce)], paid, version=1)


def is_segwit(raw: bytes) -> bool:
    """Whether a transaction of this module is in segwit form: marker 00, flag 01."""
    return raw[4:6] == b"\x00\x01"


def txid(raw: bytes) -> bytes:
    """Txid of a transaction in either form, 32 bytes in wire order."""
    return sha256d(stripped(raw))


def wtxid(raw: bytes) -> bytes:
    return sha256d(raw)


def stripped(raw: bytes) -> bytes:
    """A transaction without marker, flag and witness."""
    if not is_segwit(raw):
        return raw
    at = 6
    count, at = _read_var_int(raw, at)
    for _ in range(count):
        length, at = _read_var_int(raw, at + 36)
        at += length + 4
    count, at = _read_var_int(raw, at)
    for _ in range(count):
        length, at = _read_var_int(raw, at + 8)
        at += length
    return raw[:4] + raw[6:at] + raw[-4:]


def _read_var_int(raw: bytes, at: int) -> tuple[int, int]:
    width = {0xFD: 2, 0xFE: 4, 0xFF: 8}.get(raw[at], 0)
    return (int.from_bytes(raw[at + 1 : at + 1 + width], "little") if width else raw[at]), at + 1 + width


# Blocks


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    level = list(leaves)
    while len(level) > 1:
        level += level[-1:] * (len(level) % 2)
        level = [sha256d(a + b) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def commitment_script(txs: Sequence[bytes], nonce: bytes = WITNESS_NONCE) -> bytes:
    """The witness commitment's scriptPubKey for a block of these transactions; the first, its coinbase, counts as
    zeros.
    """
    root = merkle_root([bytes(32), *map(wtxid, txs[1:])])
    return _COMMITMENT + sha256d(root + nonce)


def segwit_coinbase(height: int, others: Sequence[bytes], outputs: Sequence[TxOut] | None = None) -> bytes:
    """A coinbase that commits to the witnesses of the transactions after it."""
    paid = [TxOut(COINBASE_VALUE, b"\x51")] if outputs is None else list(outputs)
    return coinbase(height, [*paid, TxOut(0, commitment_script([b"", *others]))], witness=True)


def header(
    previous: bytes, root: bytes, time: int = 1_300_000_000, bits: int = EASY_BITS, version: int = 4, nonce: int = 0
) -> bytes:
    return struct.pack("<i", version) + previous + root + struct.pack("<III", time, bits, nonce)


def block(
    previous: bytes,
    txs: Sequence[bytes],
    time: int = 1_300_000_000,
    bits: int = EASY_BITS,
    version: int = 4,
    *,
    mined: bool = False,
) -> bytes:
    """A block of these transactions as they are; `mined` looks for a nonce whose hash meets `bits`, which must be
    easy.
    """
    root = merkle_root([txid(raw) for raw in txs])
    target = (bits & 0xFFFFFF) << 8 * ((bits >> 24) - 3)
    nonce = 0
    while mined and int.from_bytes(sha256d(header(previous, root, time, bits, version, nonce)), "little") > target:
        nonce += 1
    return header(previous, root, time, bits, version, nonce) + var_int(len(txs)) + b"".join(txs)


def block_of(
    previous: bytes, height: int, txs: Sequence[bytes] = (), paid: Sequence[TxOut] | None = None, time: int = 0
) -> bytes:
    """A valid-looking mined block at a height: a coinbase (with a witness commitment where needed), then the
    transactions.
    """
    segwit = any(map(is_segwit, txs))
    first = segwit_coinbase(height, txs, paid) if segwit else coinbase(height, paid)
    return block(previous, [first, *txs], time or 1_300_000_000 + 600 * height, mined=True)


def block_hash(raw: bytes) -> bytes:
    """Hash of a block or header, 32 bytes in wire order."""
    return sha256d(raw[:80])


def chain_of(bodies: Sequence[Sequence[bytes]], previous: bytes = GENESIS, height: int = 0) -> list[bytes]:
    """A chain of blocks, one for each list of transactions."""
    blocks: list[bytes] = []
    for number, body in enumerate(bodies):
        blocks.append(block_of(previous, height + number, body))
        previous = block_hash(blocks[-1])
    return blocks


# Scripts


def push(data: bytes) -> bytes:
    """The shortest push opcode for data of 1 byte or more (no OP_n form)."""
    if len(data) <= 75:
        return bytes((len(data),)) + data
    return b"\x4c" + bytes((len(data),)) + data if len(data) <= 255 else b"\x4d" + struct.pack("<H", len(data)) + data


def p2pk(key: bytes) -> bytes:
    return push(key) + b"\xac"


def p2pkh(key_hash: bytes) -> bytes:
    return b"\x76\xa9" + push(key_hash) + b"\x88\xac"


def p2sh(script_hash: bytes) -> bytes:
    return b"\xa9" + push(script_hash) + b"\x87"


def p2wpkh(key_hash: bytes) -> bytes:
    return b"\x00" + push(key_hash)


def p2wsh(script_hash: bytes) -> bytes:
    return b"\x00" + push(script_hash)


def p2tr(output_key: bytes) -> bytes:
    return b"\x51" + push(output_key)


def multisig(required: int, keys: Sequence[bytes], total: int | None = None) -> bytes:
    """Bare multisig; `total` may lie about the number of keys."""
    count = len(keys) if total is None else total
    return bytes((0x50 + required,)) + b"".join(map(push, keys)) + bytes((0x50 + count, 0xAE))
