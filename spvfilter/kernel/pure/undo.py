"""Undo records: the coins that a block spent, in Bitcoin Core's rev*.dat (undo.h, coins.h, compressor.h).

This is the readable reference.

    undo     CompactSize number of transactions without the coinbase;
             for each: CompactSize number of inputs, for each a coin
    coin     VARINT height × 2 + coinbase; above height 0 VARINT version (ignored);
             VARINT amount, compressed; script, compressed
    record   undo, then the check: sha256d(hash of the block's previous block, undo), 32 bytes

Height 0 means that the height is not known: before Core 0.15, only the last spend of a transaction's outputs stored it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spvfilter.errors import FormatError, UndoError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import snapshot
from spvfilter.kernel.values import SpentCoin, TxSpan
from spvfilter.primitives import read_compact_size
from spvfilter.protocol import HASH_SIZE, MAX_MONEY, MAX_SCRIPT_SIZE

MIN_COIN_SIZE = 3  # Bytes of the smallest coin: code, amount and script type, 1 each.
_U32, _U64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_P = 2**256 - 2**32 - 977  # The prime of secp256k1's field.
_SPECIAL = (20, 20, 32, 32, 32, 32)  # Bytes after the type of a script, for types below 6.
_TOO_LONG = b"\x6a"  # Core replaces a script above MAX_SCRIPT_SIZE, which nothing can spend, with OP_RETURN.


class PackedCoin(NamedTuple):
    """A coin of an undo record, with its script still compressed."""

    code: int
    """Height × 2, plus 1 if a coinbase created the coin."""
    value: int
    """Value in satoshi."""
    kind: int
    """Type of the script: 0 P2PKH, 1 P2SH, 2 and 3 P2PK, 4 and 5 P2PK with the uncompressed key, 6 any other script."""
    body: bytes
    """The hash, the x coordinate of the key, or the script itself."""

    def script(self) -> bytes | None:
        """Return the scriptPubKey, or None if its key is not on the curve."""
        match self.kind:
            case 0:
                return b"\x76\xa9\x14" + self.body + b"\x88\xac"
            case 1:
                return b"\xa9\x14" + self.body + b"\x87"
            case 2 | 3:
                return b"\x21" + bytes((self.kind,)) + self.body + b"\xac"
            case 4 | 5:
                key = full_key(bytes((self.kind - 2,)) + self.body)
                return None if key is None else b"\x41" + key + b"\xac"
        return self.body


def full_key(key: bytes) -> bytes | None:
    """Decompress a public key (33 bytes, 02 or 03 first) to 65 bytes, or return None if it is not on the curve."""
    x = int.from_bytes(key[1:], "big")
    square = (pow(x, 3, _P) + 7) % _P
    y = pow(square, (_P + 1) // 4, _P)
    if x >= _P or y * y % _P != square:
        return None
    if y & 1 != key[0] & 1:
        y = _P - y
    return b"\x04" + key[1:] + y.to_bytes(32, "big")


def compressed_key(key: bytes) -> bytes | None:
    """Compress a public key (65 bytes, 04 first) as Core does, or return None if it is not on the curve."""
    short = bytes((2 + (key[64] & 1),)) + key[1:33]
    return short if full_key(short) == key else None


def read_varint(raw: bytes, at: int, most: int, field: str) -> tuple[int, int]:
    """Return the VARINT at byte `at` and the offset after it (Core serialize.h ReadVarInt).

    The number is in base 128, with the most significant group first. The high bit of a byte says that another byte
    follows. 1 is subtracted from every group except the last. Raises UndoError if the number is truncated or above
    `most`.
    """
    number, cursor = 0, at
    while cursor < len(raw):
        byte = raw[cursor]
        cursor += 1
        if number > most >> 7:
            break
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            return number, cursor
        if number == most:
            break
        number += 1
    else:
        raise UndoError("truncated within a number", offset=at, field=field)
    raise UndoError(f"must be at most {most}", offset=at, field=field)


def expanded_amount(packed: int) -> int | None:
    """Decompress an amount to satoshi (Core compressor.cpp DecompressAmount), or return None above MAX_MONEY."""
    if not packed:
        return 0
    packed, zeros = divmod(packed - 1, 10)
    if zeros < 9:
        packed, digit = divmod(packed, 9)
        amount = packed * 10 + digit + 1
    else:
        amount = packed + 1
    amount *= 10**zeros
    return amount if amount <= MAX_MONEY else None


def read_coin(undo: bytes, at: int) -> tuple[PackedCoin, int]:
    """Return the coin at byte `at` and the offset after it. Raises UndoError if it is malformed."""
    code, cursor = read_varint(undo, at, _U32, "undo code")
    if code >> 1:
        _, cursor = read_varint(undo, cursor, _U32, "undo version")
    packed, kind_at = read_varint(undo, cursor, _U64, "undo amount")
    value = expanded_amount(packed)
    if value is None:
        raise UndoError("must be at most 21 million coins", offset=cursor, field="undo amount")
    kind, cursor = read_varint(undo, kind_at, _U32, "undo script type")
    size = _SPECIAL[kind] if kind < len(_SPECIAL) else kind - len(_SPECIAL)
    end = cursor + size
    if end > len(undo):
        raise UndoError(
            f"truncated: expected {size} bytes, {len(undo) - cursor} left", offset=cursor, field="undo script"
        )
    body = undo[cursor:end] if size <= MAX_SCRIPT_SIZE else _TOO_LONG
    return PackedCoin(code, value, min(kind, len(_SPECIAL)), body), end


def read_count(undo: bytes, at: int, least: int, field: str) -> tuple[int, int]:
    """Return a count of items of at least `least` bytes each, and the offset after it.

    Raises UndoError if it is too large.
    """
    try:
        count, cursor = read_compact_size(undo, at, field)
    except FormatError as error:
        raise UndoError(error.message, offset=error.offset, field=field) from None
    if count * least > len(undo) - cursor:
        message = f"truncated: {count} items of at least {least} bytes each, but only {len(undo) - cursor} bytes left"
        raise UndoError(message, offset=at, field=field)
    return count, cursor


def check_end(undo: bytes, at: int) -> None:
    """Raise UndoError if there are bytes after the last coin."""
    if left := len(undo) - at:
        raise UndoError(f"{left} trailing byte{'' if left == 1 else 's'}", offset=at, field="undo record")


def spent_coins(undo: bytes, /) -> list[list[SpentCoin]]:
    """Return the coins in an undo record. The record must not include its checksum.

    The result contains a list for each transaction except the coinbase, with the coins of its inputs in order. Raises
    UndoError if the record is truncated or has trailing bytes, if a number, count or amount is out of range, or if a
    key is not on the curve.
    """
    undo = snapshot(undo)
    total, cursor = read_count(undo, 0, 1, "undo transaction count")
    spent = []
    for _ in range(total):
        count, cursor = read_count(undo, cursor, MIN_COIN_SIZE, "undo input count")
        coins = []
        for _ in range(count):
            at = cursor
            coin, cursor = read_coin(undo, at)
            coins.append(_spent(coin, at))
        spent.append(coins)
    check_end(undo, cursor)
    return spent


def _spent(coin: PackedCoin, at: int) -> SpentCoin:
    height = coin.code >> 1
    return SpentCoin(coin.value, script_of(coin, at), height or None, bool(coin.code & 1) if height else None)


def script_of(coin: PackedCoin, at: int) -> bytes:
    """Return the script of the coin at byte `at`. Raises UndoError if its key is not on the curve."""
    script = coin.script()
    if script is None:
        raise UndoError("the key is not on the curve", offset=at, field="undo script")
    return script


def coins_of_block(record: bytes, raw: bytes, txs: Sequence[TxSpan]) -> list[list[tuple[PackedCoin, int]]]:
    """Return the coins that each transaction of a block spends, each with its offset in the record.

    The coinbase has none.

    Raises UndoError if

    - the checksum does not match the record and the block's previous block,
    - the counts differ from those of the block,
    - a transaction pays more than it spends, or
    - spent_coins would refuse the record.
    """
    size = len(record) - HASH_SIZE
    if size < 0:
        raise UndoError(f"truncated: expected {HASH_SIZE} bytes, {len(record)} left", offset=0, field="undo check")
    undo = record[:size]
    if sha256d(raw[4:36] + undo) != record[size:]:
        raise UndoError("does not match the record and the previous block", offset=size, field="undo check")
    total, cursor = read_count(undo, 0, 1, "undo transaction count")
    if total != len(txs) - 1:
        raise UndoError(
            f"must be {len(txs) - 1}, as in the block, not {total}", offset=0, field="undo transaction count"
        )
    spent: list[list[tuple[PackedCoin, int]]] = [[]]
    for position in range(1, len(txs)):
        coins, cursor = _coins_of_tx(undo, cursor, raw, txs[position], position)
        spent.append(coins)
    check_end(undo, cursor)
    return spent


def _coins_of_tx(
    undo: bytes, start: int, raw: bytes, tx: TxSpan, position: int
) -> tuple[list[tuple[PackedCoin, int]], int]:
    count, cursor = read_count(undo, start, MIN_COIN_SIZE, "undo input count")
    if count != len(tx.inputs):
        raise UndoError(
            f"must be {len(tx.inputs)}, as in transaction {position}, not {count}",
            offset=start,
            field="undo input count",
        )
    coins, total = [], 0
    for _ in range(count):
        at = cursor
        coin, cursor = read_coin(undo, at)
        total += coin.value
        if total > MAX_MONEY:
            raise UndoError(f"transaction {position} spends more than 21 million coins", offset=at, field="undo amount")
        coins.append((coin, at))
    paid = paid_by(raw, tx)
    if paid is None or paid > total:
        raise UndoError(f"transaction {position} pays more than it spends", offset=start, field="undo amount")
    return coins, cursor


def paid_by(raw: bytes, tx: TxSpan) -> int | None:
    """Return the satoshi that a transaction pays, or None if an output is negative or above MAX_MONEY."""
    values = [int.from_bytes(raw[at : at + 8], "little", signed=True) for at, _, _ in tx.outputs]
    return sum(values) if all(0 <= value <= MAX_MONEY for value in values) else None
