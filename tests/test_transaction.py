"""Transaction: ids and parts of published and made-up transactions, equality, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError
from spvfilter.primitives import TxOut, hash_to_hex
from spvfilter.transaction import NULL_OUTPOINT, Transaction
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn
from support.vectors import vector_cases

FUNDING = build.tx(
    [TxIn(b"\x11" * 32, 5, b"\x51", sequence=7)],
    [build.TxOut(5_000, b"\x51"), build.TxOut(0, b"")],
    version=-1,
    lock_time=9,
)
SEGWIT = build.tx(
    [TxIn(b"\x22" * 32, 0, witness=(b"sig", b"key")), TxIn(b"\x33" * 32, 1)], [build.TxOut(7, b"\x00\x14" + bytes(20))]
)

inputs = st.builds(TxIn, st.binary(min_size=32, max_size=32), st.integers(0, 0xFFFFFFFF), st.binary(max_size=9))
outputs = st.builds(build.TxOut, st.integers(0, 2**63 - 1), st.binary(max_size=9))


@vector_cases("07_transactions/core_tx_valid.json")
def test_published_transactions_have_their_ids_and_sizes(case: dict[str, object]) -> None:
    raw = bytes.fromhex(str(case["raw"]))
    tx = Transaction.parse(raw)
    assert (hash_to_hex(tx.txid), hash_to_hex(tx.wtxid)) == (case["txid"], case["wtxid"])
    assert (len(tx.stripped), tx.weight, tx.virtual_size) == (case["stripped_size"], case["weight"], -(-tx.weight // 4))
    assert (tx.version, tx.lock_time) == (case["version"], case["lock_time"])
    assert (len(tx.inputs), len(tx.sequences), len(tx.outputs)) == (
        case["n_inputs"],
        case["n_inputs"],
        case["n_outputs"],
    )


def test_a_parsed_transaction_has_its_parts() -> None:
    tx = Transaction.parse(FUNDING)
    assert (tx.version, tx.lock_time, tx.sequences) == (-1, 9, (7,))
    assert tx.inputs == (b"\x11" * 32 + b"\x05\0\0\0",)
    assert tx.outputs == (TxOut(5_000, b"\x51"), TxOut(0, b"")) == (tx.output(0), tx.output(1))
    assert tx.outpoint(1) == tx.txid + b"\x01\0\0\0"
    with pytest.raises(IndexError):
        tx.output(2)


@pytest.mark.parametrize("value", [-1, -(1 << 63), 1 << 56, (1 << 63) - 1])
def test_impossible_values_are_read_as_they_are(value: int) -> None:
    tx = Transaction.parse(build.tx([TxIn(b"\x11" * 32, 0)], [build.TxOut(value, b"\x51")]))
    assert tx.outputs[0].value == tx.output(0).value == value


def test_without_witness_both_ids_are_equal() -> None:
    legacy, segwit = Transaction.parse(FUNDING), Transaction.parse(SEGWIT)
    assert legacy.wtxid == legacy.txid == build.txid(FUNDING)
    assert (segwit.txid, segwit.wtxid) == (build.txid(SEGWIT), build.wtxid(SEGWIT))
    assert segwit.txid != segwit.wtxid
    assert Transaction.parse(segwit.stripped).wtxid == segwit.txid


def test_transactions_are_equal_by_their_bytes() -> None:
    first, twin, stripped = (
        Transaction.parse(SEGWIT),
        Transaction.parse(bytes(SEGWIT)),
        Transaction.parse(build.stripped(SEGWIT)),
    )
    assert first == twin and hash(first) == hash(twin)
    assert first != stripped and first.txid == stripped.txid
    assert repr(first) == f"<Transaction {hash_to_hex(first.txid)}>"


@pytest.mark.parametrize(
    ("outpoints", "is_coinbase"),
    [([NULL_OUTPOINT], True), ([NULL_OUTPOINT] * 2, False), ([bytes(36)], False), ([b"\1" + NULL_OUTPOINT[1:]], False)],
)
def test_a_coinbase_spends_the_null_outpoint_alone(outpoints: list[bytes], is_coinbase: bool) -> None:
    spends = [TxIn(outpoint[:32], int.from_bytes(outpoint[32:], "little")) for outpoint in outpoints]
    assert Transaction.parse(build.tx(spends, [build.TxOut(1, b"")])).is_coinbase is is_coinbase


@given(st.lists(inputs, min_size=1, max_size=4), st.lists(outputs, max_size=4))
def test_any_transaction_returns_its_parts(spends: list[TxIn], paid: list[build.TxOut]) -> None:
    tx = Transaction.parse(build.tx(spends, paid))
    assert tx.inputs == tuple(each.outpoint for each in spends)
    assert tx.outputs == tuple(TxOut(each.value, each.script_pubkey) for each in paid)
    assert (tx.txid, tx.stripped) == (build.txid(tx.raw), build.stripped(tx.raw))


@pytest.mark.parametrize("raw", [FUNDING, SEGWIT])
def test_truncated_or_longer_transactions_raise(raw: bytes) -> None:
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            Transaction.parse(raw[:size])
    with pytest.raises(FormatError):
        Transaction.parse(raw + b"\0")


def test_psbt_in_base64_is_named() -> None:
    with pytest.raises(FormatError, match="this is a PSBT in base64, not a transaction: sign and finalize it first"):
        Transaction.parse(b"cHNidP8BAHECAAAA")


def test_psbt_is_named() -> None:
    psbt = b"psbt\xff\x01\x00"
    for read in (Transaction.parse, WatchList().match_tx):
        with pytest.raises(FormatError, match="this is a PSBT, not a transaction: sign and finalize it first"):
            read(psbt)
