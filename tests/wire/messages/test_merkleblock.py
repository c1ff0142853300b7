"""Merkleblocks: built, parsed and verified against published blocks, real blocks and an independent tree."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError, ProofError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.primitives import Header
from spvfilter.protocol import MAX_BLOCK_TRANSACTIONS
from spvfilter.wire.messages.merkleblock import MERKLEBLOCK_SIZE, Flaw, MerkleBlock
from support.blocks import build
from support.blocks.merkletree import partial_tree
from support.vectors import vector_cases, vector_path

FLAWS = {
    "no transactions": Flaw.NO_TRANSACTIONS,
    "too many transactions for a block": Flaw.TOO_MANY_TRANSACTIONS,
    "more hashes than transactions": Flaw.TOO_MANY_HASHES,
    "fewer flag bits than hashes": Flaw.TOO_FEW_BITS,
    "flag bits exhausted": Flaw.BITS_EXHAUSTED,
    "hashes exhausted": Flaw.HASHES_EXHAUSTED,
    "identical left and right hashes (CVE-2012-2459)": Flaw.EQUAL_SIBLINGS,
    "unused flag bits": Flaw.UNUSED_BITS,
    "unused hashes": Flaw.UNUSED_HASHES,
    "computed root differs from the header merkle root": Flaw.WRONG_ROOT,
}


def header_of(root: bytes) -> Header:
    return Header(4, bytes(32), root, 1_300_000_000, 0x207FFFFF, 0)


def numbered(count: int) -> list[bytes]:
    """Txids as in the published trees: the numbers from 1 on."""
    return [number.to_bytes(32, "little") for number in range(1, count + 1)]


def proving(txids: list[bytes], positions: Any) -> MerkleBlock:
    return MerkleBlock.from_txids(header_of(build.merkle_root(txids)), txids, positions)


def display(proof: Any) -> list[list[object]]:
    return [[tx.position, tx.txid[::-1].hex()] for tx in proof.matched]


def full_block(case: Any) -> bytes:
    return bytes.fromhex(case["block"]) if "block" in case else vector_path(case["block_file"]).read_bytes()


@vector_cases("02_bip37/partial_merkle_trees.json")
def test_partial_trees_equal_cores_bytes(case: Any) -> None:
    made = proving(numbered(case["n_tx"]), case["matched"])
    assert made.header.merkle_root[::-1].hex() == case["merkle_root"]
    assert bytes(made)[80:].hex() == case["partial_merkle_tree"]
    parsed = MerkleBlock.parse(bytes(made))
    assert parsed == made
    assert [tx.position for tx in parsed.verify().matched] == case["matched"]


@vector_cases("02_bip37/merkleblock_from_filter.json")
def test_a_filtered_block_equals_cores_merkleblock(case: Any) -> None:
    raw = full_block(case)
    matched = Bip37Filter.parse(bytes.fromhex(case["filterload"])).scan_block(raw)
    made = MerkleBlock.from_block(raw, [tx.position for tx in matched])
    assert bytes(made).hex() == case["merkleblock"]
    proof = made.verify()
    assert display(proof) == case["matched"]
    assert (proof.total, proof.header.hash[::-1].hex(), proof.ambiguous) == (case["n_tx"], case["block_hash"], False)


@vector_cases("02_bip37/merkleblock_proofs.json", lambda case: case["valid"])
def test_a_real_proof_is_valid(case: Any) -> None:
    raw = bytes.fromhex(case["merkleblock"])
    parsed = MerkleBlock.parse(raw)
    assert bytes(parsed) == raw
    assert (len(parsed.hashes), parsed.flags.hex()) == (case["n_hashes"], case["flags"])
    proof = parsed.verify()
    assert display(proof) == case["matched"]
    assert (proof.total, proof.header.hash[::-1].hex(), proof.ambiguous) == (case["n_tx"], case["block_hash"], False)
    if "block_file" in case:
        assert bytes(MerkleBlock.from_block(full_block(case), [tx.position for tx in proof.matched])) == raw


@vector_cases("02_bip37/merkleblock_proofs.json", lambda case: not case["valid"])
def test_a_broken_proof_is_refused_by_its_cause(case: Any) -> None:
    raw = bytes.fromhex(case["merkleblock"])
    reason = case["reason"]
    if reason in FLAWS:
        with pytest.raises(ProofError) as proof_error:
            MerkleBlock.parse(raw).verify()
        assert proof_error.value.cause == FLAWS[reason]
        return
    with pytest.raises(FormatError) as format_error:
        MerkleBlock.parse(raw)
    if reason == "trailing":
        assert format_error.value.message == "1 trailing byte"
    elif "declared" in case["id"]:
        assert format_error.value.message == f"{0x7FFFFFFF} is above the limit {0x02000000}"
    else:
        assert reason.startswith("eof")
        assert format_error.value.field == "hash count"


@given(st.integers(1, 200), st.data())
def test_any_subset_of_any_block_round_trips(count: int, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32))
    txids = [random.Random(f"{seed}/{number}").randbytes(32) for number in range(count)]
    positions = data.draw(st.sets(st.integers(0, count - 1)))
    made = proving(txids, data.draw(st.permutations(sorted(positions))))
    assert bytes(made)[80:] == partial_tree(txids, positions)
    proof = MerkleBlock.parse(bytes(made)).verify()
    assert proof.matched == tuple((position, txids[position]) for position in sorted(positions))
    assert (proof.total, proof.header, proof.ambiguous) == (count, made.header, False)


@pytest.mark.parametrize("count", [*range(1, 36), 63, 64, 65, 127, 128, 129])
def test_none_one_or_all_transactions_are_proved_at_every_width(count: int) -> None:
    txids = numbered(count)
    assert proving(txids, ()).hashes == (build.merkle_root(txids),)
    assert proving(txids, range(count)).hashes == tuple(txids)
    for position in range(count):
        assert proving(txids, [position]).verify().matched == ((position, txids[position]),)


def test_the_largest_possible_block_is_proved() -> None:
    txids = numbered(MAX_BLOCK_TRANSACTIONS)
    whole = bytes(proving(txids, range(MAX_BLOCK_TRANSACTIONS)))
    assert len(whole) == MERKLEBLOCK_SIZE
    proof = MerkleBlock.parse(whole).verify()
    assert [tx.txid for tx in proof.matched] == txids
    with pytest.raises(ParameterError, match="1 to 16666 transactions, not 16667"):
        proving(numbered(MAX_BLOCK_TRANSACTIONS + 1), ())


@pytest.mark.parametrize("position", [-1, 3, 2**40])
def test_a_position_without_a_transaction_is_refused(position: int) -> None:
    with pytest.raises(ParameterError, match=f"no transaction at position {position}: the block has 3"):
        proving(numbered(3), [0, position])


def test_an_invalid_number_of_txids_is_refused() -> None:
    header = header_of(build.merkle_root(numbered(2)))
    with pytest.raises(ParameterError, match="1 to 16666 transactions, not 0"):
        MerkleBlock.from_txids(header, [], ())
    with pytest.raises(ParameterError, match="txids: each must be 32 bytes long, not 31"):
        MerkleBlock.from_txids(header, [bytes(32), bytes(31)], ())
    with pytest.raises(ParameterError, match="merkle root does not match the transactions"):
        MerkleBlock.from_txids(header, numbered(3), ())


@pytest.mark.parametrize(("count", "copied", "height"), [(3, 1, 0), (6, 2, 1), (5, 1, 0), (12, 4, 2), (7, 1, 0)])
def test_a_block_with_a_doubled_last_branch_is_not_proved(count: int, copied: int, height: int) -> None:
    txids = numbered(count)
    with pytest.raises(ParameterError, match=f"siblings at height {height} .CVE-2012-2459"):
        proving(txids + txids[-copied:], [0])
    assert proving(txids, [0, count - 1]).verify().total == count


def test_equal_hashes_that_are_no_siblings_are_accepted() -> None:
    first, twice, last = numbered(3)
    assert proving([first, twice, twice, last], [1, 2]).verify().matched == ((1, twice), (2, twice))


def test_an_invalid_block_gives_no_merkleblock() -> None:
    raw = build.block_of(bytes(32), 1)
    assert MerkleBlock.from_block(raw, [0]).verify().matched == ((0, build.txid(raw[81:])),)
    with pytest.raises(FormatError):
        MerkleBlock.from_block(raw[:-1], [0])


def test_values_that_do_not_fit_their_fields_are_refused() -> None:
    header = header_of(bytes(32))
    for total in (-1, 1 << 32):
        with pytest.raises(ParameterError, match=rf"total must be from 0 to 2\^32 - 1, not {total}"):
            MerkleBlock(header, total, (), b"")
    with pytest.raises(ParameterError, match="hashes: each must be 32 bytes long, not 33"):
        MerkleBlock(header, 1, (bytes(33),), b"\0")
    with pytest.raises(ParameterError, match="flag bytes: the length must be at most 4168, not 4169"):
        MerkleBlock(header, 1, (), bytes(4_169))
