"""Which transactions no block may contain, judging by their bytes alone (Core CheckTransaction)."""

from __future__ import annotations

import pytest

from spvfilter.protocol import MAX_BLOCK_WEIGHT, MAX_MONEY
from spvfilter.store.validity import why_impossible
from spvfilter.transaction import Transaction
from support.blocks.build import TxIn, TxOut, tx

COIN, OTHER, NULL = TxIn(b"\x01" * 32, 0), TxIn(b"\x01" * 32, 1), TxIn(bytes(32), 0xFFFFFFFF)
SIZE = MAX_BLOCK_WEIGHT // 4
BASE = len(tx([COIN], [TxOut(0, bytes(SIZE - 100))]))  # with a script of SIZE - 100 bytes
FULL = bytes(SIZE - 100 + SIZE - BASE)


@pytest.mark.parametrize(
    ("inputs", "values", "reason"),
    [
        ([COIN], [MAX_MONEY], None),
        ([COIN, OTHER], [0, MAX_MONEY - 1, 1], None),
        ([COIN], [MAX_MONEY + 1], "the values of its outputs are out of range"),
        ([COIN], [-1], "the values of its outputs are out of range"),
        ([COIN], [MAX_MONEY, 1], "the values of its outputs are out of range"),
        ([COIN], [], "it has no outputs"),
        ([], [], "it has no inputs"),
        ([NULL], [1], "it is a coinbase"),
        ([COIN, NULL], [1], "it spends the null outpoint"),
        ([NULL, NULL], [1], "it spends the null outpoint"),
        ([COIN, OTHER, COIN], [1], "it spends an output twice"),
    ],
)
def test_form_and_amounts_of_a_transaction(inputs: list[TxIn], values: list[int], reason: str | None) -> None:
    raw = tx(inputs, [TxOut(value, b"\x51") for value in values])
    assert why_impossible(Transaction.parse(raw)) == reason


@pytest.mark.parametrize(
    ("script", "witness", "reason"),
    [
        (FULL, b"", None),
        (FULL + b"\0", b"", "its weight of 4,000,004 is above 4,000,000"),
        (b"\x51", bytes(SIZE), None),  # a witness counts a quarter
    ],
)
def test_weight_of_a_transaction_fits_into_a_block(script: bytes, witness: bytes, reason: str | None) -> None:
    spent = TxIn(COIN.txid, 0, witness=(witness,) if witness else ())
    assert why_impossible(Transaction.parse(tx([spent], [TxOut(0, script)]))) == reason
