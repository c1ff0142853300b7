"""Walking transactions and blocks: published and real ones, and synthetic ones part by part."""

from __future__ import annotations

import struct

import pytest
from bitcoin.core import CBlock
from hypothesis import given, strategies as st

from spvfilter import kernel
from spvfilter.errors import FormatError, ParameterError
from spvfilter.primitives import Header, hash_to_hex
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.realdata import RealBlock, real_block_cases, runs
from support.vectors import vector_cases, vector_file, vector_path

KEY = b"\x02" + bytes(32)
SEGWIT = build.tx(
    [TxIn(b"\x33" * 32, 0, witness=(b"sig", KEY)), TxIn(b"\x44" * 32, 1)], [TxOut(7, build.p2wpkh(bytes(20)))]
)


def walk(raw: bytes) -> list[kernel.TxSpan]:
    return list(kernel.walk_block(raw))


def refusal(raw: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        kernel.parse_tx(raw)
    return caught.value


# Published transactions


@vector_cases("07_transactions/core_tx_valid.json")
def test_valid_transactions_of_core_are_read(case: dict[str, object]) -> None:
    check_transaction(case)


@vector_cases("07_transactions/core_tx_invalid.json")
def test_transactions_that_break_a_rule_are_still_read(case: dict[str, object]) -> None:
    check_transaction(case)


@pytest.mark.vectors
@pytest.mark.parametrize("name", ["real_transactions", "sighash_random", "size_64_bytes", "taproot_reference"])
def test_published_transactions_are_read(name: str) -> None:
    cases = vector_file(f"07_transactions/{name}.json")["vectors"]
    assert len(cases) >= 13
    for case in cases:
        check_transaction(case)


def check_transaction(case: dict[str, object]) -> None:
    raw = bytes.fromhex(str(case["raw"]))
    tx = kernel.parse_tx(raw)
    assert hash_to_hex(kernel.txid(raw, tx)) == case["txid"]
    assert hash_to_hex(kernel.wtxid(raw, tx)) == case["wtxid"]
    assert (len(tx.inputs), len(tx.outputs)) == (case["n_inputs"], case["n_outputs"])
    assert bool(tx.witness) == case["segwit"]
    assert (tx.start, tx.end) == (0, case["size"])
    stripped = kernel.strip_witness(raw, tx)
    assert len(stripped) == case["stripped_size"]
    assert 3 * len(stripped) + len(raw) == case["weight"]
    assert int.from_bytes(raw[:4], "little", signed=True) == case["version"]
    assert int.from_bytes(raw[-4:], "little") == case["lock_time"]
    # u64 in the vectors
    assert sum(int.from_bytes(raw[at : at + 8], "little") for at, _, _ in tx.outputs) == case["output_total"]
    again = kernel.parse_tx(stripped)
    assert (kernel.txid(stripped, again), again.witness) == (kernel.txid(raw, tx), 0)


@vector_cases("07_transactions/malformed.json")
def test_malformed_transactions_are_refused(case: dict[str, str]) -> None:
    refusal(bytes.fromhex(case["raw"]))


@pytest.mark.vectors
def test_a_transaction_of_half_a_megabyte_of_witness_is_read() -> None:
    raw = vector_path("07_transactions/huge_witness.bin").read_bytes()
    tx = kernel.parse_tx(raw)
    assert hash_to_hex(kernel.txid(raw, tx)) == "73be398c4bdc43709db7398106609eea2a7841aaf3a4fa2000dc18184faa2a7e"
    assert hash_to_hex(kernel.wtxid(raw, tx)) == "48b0f5ea87a2a7acbd7e7d9a44821f0cbeaeda73443c3c867ccc081fdebbcc67"


# Real blocks


@real_block_cases()
def test_real_blocks_match_the_index_of_the_vectors(block: RealBlock) -> None:
    raw, facts = block.raw, block.facts
    txs = walk(raw)
    kernel.check_block(raw)
    assert hash_to_hex(Header.parse(raw[:80]).hash) == facts["hash"]
    assert len(raw) == facts["size"]
    assert len(txs) == facts["tx_count"]
    assert sum(bool(tx.witness) for tx in txs) == facts["segwit_txs"]
    assert sum(len(tx.inputs) for tx in txs) == facts["inputs"]
    assert sum(len(tx.outputs) for tx in txs) == facts["outputs"]
    assert (
        len(raw) - sum(tx.end - tx.start - len(kernel.strip_witness(raw, tx)) for tx in txs) == facts["stripped_size"]
    )
    assert [kernel.txid(raw, tx) for tx in txs] == [tx.GetTxid() for tx in CBlock.deserialize(raw).vtx]
    assert kernel.block_txs(raw, range(len(txs))) == [raw[tx.start : tx.end] for tx in txs]


def test_transactions_come_in_the_order_of_their_positions() -> None:
    legacy = build.tx([TxIn(b"\x11" * 32, 1)], [TxOut(5, b"\x52" * 30)])
    raw = build.block_of(build.GENESIS, 5, [legacy, SEGWIT])
    assert kernel.block_txs(raw, [2, 1, 2]) == [SEGWIT, legacy, SEGWIT]
    assert kernel.block_txs(raw, []) == []
    for position in (3, -1, 1 << 70):
        with pytest.raises(ParameterError, match=f"^a position must be that of a transaction, not {position}$"):
            kernel.block_txs(raw, [0, position])
    with pytest.raises(FormatError, match="1 trailing byte"):  # after the transactions that are wanted
        kernel.block_txs(raw + b"\x00", [0])


@pytest.mark.vectors
def test_runs_of_real_blocks_are_read_and_linked() -> None:
    for entry, blocks in runs():
        count = 0
        for number, block in enumerate(blocks):
            kernel.check_block(block.raw)
            txs = walk(block.raw)
            count += len(txs)
            assert [kernel.txid(block.raw, tx) for tx in txs] == [
                tx.GetTxid() for tx in CBlock.deserialize(block.raw).vtx
            ]
            if number:
                assert block.raw[4:36] == Header.parse(blocks[number - 1].raw[:80]).hash
        assert (len(blocks), count) == (entry["count"], entry["tx_count"])
        assert hash_to_hex(Header.parse(blocks[0].raw[:80]).hash) == entry["first_hash"]
        assert hash_to_hex(Header.parse(blocks[-1].raw[:80]).hash) == entry["last_hash"]


# Segregated witness


@pytest.mark.parametrize("flag", [2, 3, 0x80, 0xFF])
def test_unknown_segwit_flags_raise(flag: int) -> None:
    error = refusal(SEGWIT[:5] + bytes((flag,)) + SEGWIT[6:])
    assert (error.offset, error.field) == (5, "segwit flag")


def test_superfluous_witness_raises() -> None:
    plain = build.tx([TxIn(bytes(32), 0)], [TxOut(1, b"")])
    error = refusal(plain[:4] + b"\x00\x01" + plain[4:-4] + b"\x00" + plain[-4:])
    assert error.field == "witness"
    refusal(plain[:4] + b"\x00\x01\x00\x00" + plain[-4:])  # nor without any input


def test_an_empty_transaction_is_parsed_as_in_core() -> None:
    raw = b"\x01\x00\x00\x00\x00\x00\x07\x00\x00\x00"
    tx = kernel.parse_tx(raw)
    assert tx == kernel.TxSpan(0, 10, [], [], 0)
    assert kernel.txid(raw, tx) == build.sha256d(raw)


def test_large_witnesses_are_read() -> None:  # CVE-2022-44797: an over-tight limit once split nodes from the network
    for stack in [(b"", *[b"\x21" * 33] * 999), (bytes(3_900_000),), (b"",) * 500_000]:
        raw = build.tx([TxIn(bytes(32), 0, witness=stack)], [TxOut(1, b"\x51")])
        tx = kernel.parse_tx(raw)
        assert kernel.txid(raw, tx) == build.txid(raw)
        block = build.block_of(build.GENESIS, 1, [raw])
        kernel.check_block(block)


txins = st.builds(
    TxIn,
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
    st.integers(0, 2**32 - 1),
    st.lists(st.binary(max_size=300), max_size=3).map(tuple),
)
txouts = st.builds(TxOut, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))


@given(
    st.lists(txins, min_size=1, max_size=4),
    st.lists(txouts, max_size=4),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**32 - 1),
)
def test_every_part_of_a_transaction_is_found(
    inputs: list[TxIn], outputs: list[TxOut], version: int, lock_time: int
) -> None:
    raw = build.tx(inputs, outputs, version, lock_time)
    before = b"\xaa" * 7  # spans are absolute
    tx = kernel.walk_tx(before + raw + b"\xbb", 7)
    assert (tx.start, tx.end) == (7, 7 + len(raw))
    buffer = before + raw
    assert [(buffer[at : at + 36], buffer[start:end]) for at, start, end in tx.inputs] == [
        (i.outpoint, i.script_sig) for i in inputs
    ]
    assert [(struct.unpack_from("<q", buffer, at)[0], buffer[start:end]) for at, start, end in tx.outputs] == [
        (o.value, o.script_pubkey) for o in outputs
    ]
    assert kernel.strip_witness(buffer, tx) == build.tx(inputs, outputs, version, lock_time, stripped=True)
    assert (kernel.txid(buffer, tx), kernel.wtxid(buffer, tx)) == (build.txid(raw), build.wtxid(raw))
