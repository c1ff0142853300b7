"""Convert the outputs that a block spends to an undo record.

The answer of Bitcoin Core 30 over REST (rest.cpp SerializeBlockUndo) is:

    answer        CompactSize number of transactions, coinbase included; then each transaction
    transaction   CompactSize number of outputs that it spends; then each output
    output        value i64 LE, CompactSize length, scriptPubKey

The coinbase spends no outputs. The answer for the genesis block contains one transaction, the coinbase.

Unlike an undo record, the answer has no checksum. The client trusts the node's claim that the block spends these
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spvfilter.errors import FormatError, counted
from spvfilter.hashes import sha256d
from spvfilter.primitives import TxOut, compact_size, read_compact_size
from spvfilter.protocol import MAX_BLOCK_TRANSACTIONS, MAX_MONEY

_LEAST_OUTPUT = 9  # Size of the smallest output in bytes: a value and an empty script.
_OTHER_SCRIPT = 6  # First type of a script that is not compressed (Core compressor.h nSpecialScripts).
_UNKNOWN_HEIGHT = b"\x00"  # VARINT of height 0, because the answer contains no heights.
_VERSION = b"\x00"  # VARINT that follows a known height (Core undo.h TxInUndoFormatter).


class SpentOutput(NamedTuple):
    """An output that a block spends."""

    output: TxOut
    """The output."""
    height: int
    """Height of the block that created it, or 0 if unknown."""
    is_coinbase: bool
    """True if a coinbase created it. Meaningless if the height is unknown."""


def record_of_outputs(spent: Sequence[Sequence[SpentOutput]], previous: bytes) -> bytes:
    """Return the undo record, with its checksum, of a block that spends these outputs.

    `spent` contains the outputs for each transaction except the coinbase. `previous` is the hash of the block's parent.
    """
    pieces = [compact_size(len(spent))]
    for of_tx in spent:
        pieces.append(compact_size(len(of_tx)))
        for output, height, is_coinbase in of_tx:
            pieces.append(_varint(2 * height + is_coinbase) + _VERSION if height else _UNKNOWN_HEIGHT)
            pieces += _packed_output(output.value, output.script_pubkey)
    return _with_checksum(b"".join(pieces), previous)


def undo_record(answer: bytes, previous: bytes) -> bytes:
    """Convert an answer to an undo record with its checksum. Raises FormatError if the answer is malformed.

    `previous` is the hash of the block's parent, which the checksum covers. The numbers of transactions and inputs are
    compared with the block's when the record is used.
    """
    total, at = read_compact_size(answer, 0, "spent transaction count")
    if not 1 <= total <= MAX_BLOCK_TRANSACTIONS:
        raise FormatError(
            f"a block must contain 1 to {MAX_BLOCK_TRANSACTIONS} transactions, not {total}",
            offset=0,
            field="spent transaction count",
        )
    of_coinbase, at = read_compact_size(answer, at, "spent output count")
    if of_coinbase:
        raise FormatError("the coinbase must not spend outputs", offset=1, field="spent output count")
    pieces = [compact_size(total - 1)]
    for _ in range(total - 1):
        start = at
        count, at = read_compact_size(answer, at, "spent output count")
        if count * _LEAST_OUTPUT > len(answer) - at:
            raise FormatError(
                f"truncated: {count} outputs, but only {len(answer) - at} bytes left",
                offset=start,
                field="spent output count",
            )
        pieces.append(compact_size(count))
        for _ in range(count):
            at = _put_coin(answer, at, pieces)
    if at != len(answer):
        raise FormatError(counted(len(answer) - at, "trailing byte"), offset=at, field="spent outputs")
    return _with_checksum(b"".join(pieces), previous)


def _with_checksum(undo: bytes, previous: bytes) -> bytes:
    return undo + sha256d(previous + undo)


def _packed_output(value: int, script: bytes) -> tuple[bytes, bytes, bytes]:
    """Return an output in the form used in undo records, with its script uncompressed."""
    return _varint(_packed_amount(value)), _varint(len(script) + _OTHER_SCRIPT), script


def _put_coin(answer: bytes, at: int, pieces: list[bytes]) -> int:
    """Append the output at offset `at` in the form used in undo records, and return the offset after the output."""
    value = int.from_bytes(answer[at : at + 8], "little")
    if value > MAX_MONEY:
        raise FormatError(
            f"an output must be worth 0 to {MAX_MONEY} satoshi, not {value}", offset=at, field="spent value"
        )
    size, script = read_compact_size(answer, at + 8, "spent script")
    end = script + size
    if end > len(answer):
        raise FormatError(
            f"truncated: expected {size} bytes, {len(answer) - script} left", offset=script, field="spent script"
        )
    pieces += (_UNKNOWN_HEIGHT, *_packed_output(value, answer[script:end]))
    return end


def _packed_amount(satoshi: int) -> int:
    """Compress an amount by removing up to nine decimal zeros (Core compressor.cpp CompressAmount)."""
    if not satoshi:
        return 0
    zeros = 0
    while zeros < 9 and satoshi % 10 == 0:
        satoshi //= 10
        zeros += 1
    if zeros < 9:
        return 1 + 10 * (9 * (satoshi // 10) + satoshi % 10 - 1) + zeros
    return 1 + 10 * (satoshi - 1) + 9


def _varint(number: int) -> bytes:
    """Encode a VARINT (Core serialize.h WriteVarInt)."""
    if number < 0x80:
        return number.to_bytes(1, "big")
    groups = bytearray((number & 0x7F,))
    while number > 0x7F:
        number = (number >> 7) - 1
        groups.append(number & 0x7F | 0x80)
    groups.reverse()
    return bytes(groups)
