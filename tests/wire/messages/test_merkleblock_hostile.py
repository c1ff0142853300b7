"""Merkleblocks from a lying peer: truncated, inflated, with flipped bits, or for fake transactions (CVE-2017-12842)."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from spvfilter.errors import FormatError, ProofError
from spvfilter.primitives import Header
from spvfilter.protocol import MAX_BLOCK_TRANSACTIONS
from spvfilter.wire.messages.merkleblock import Flaw, MerkleBlock, Proof, ProvedTx, can_be_node
from support.blocks import build
from support.blocks.merkletree import described, extracted
from support.vectors import effort, vector_cases


def header_of(root: bytes) -> Header:
    return Header(4, bytes(32), root, 1_300_000_000, 0x207FFFFF, 0)


def block_of(count: int) -> list[bytes]:
    rng = random.Random(count)
    return [rng.randbytes(32) for _ in range(count)]


def made(count: int, positions: list[int]) -> MerkleBlock:
    txids = block_of(count)
    return MerkleBlock.from_txids(header_of(build.merkle_root(txids)), txids, positions)


PROOFS = [
    made(1, [0]),
    made(1, []),
    made(2, [1]),
    made(3, [2]),
    made(7, [0, 6]),
    made(9, [3]),
    made(64, []),
    made(100, [0, 41, 42, 99]),
]


@pytest.mark.parametrize("proof", PROOFS)
def test_a_truncated_merkleblock_is_refused(proof: MerkleBlock) -> None:
    raw = bytes(proof)
    for end in range(len(raw)):
        with pytest.raises(FormatError, match="truncated"):
            MerkleBlock.parse(raw[:end])
    with pytest.raises(FormatError, match=f"merkleblock at byte {len(raw)}: 1 trailing byte"):
        MerkleBlock.parse(raw + b"\0")


def survives(original: MerkleBlock, raw: bytes) -> tuple[ProvedTx, ...] | None:
    """The proof in damaged bytes; None if it is refused. A surviving proof is true, for this or another header."""
    try:
        proof = MerkleBlock.parse(raw).verify()
    except (FormatError, ProofError):
        return None
    txids = block_of(original.total)
    assert proof.header.merkle_root == original.header.merkle_root
    assert (proof.header == original.header) == (raw[:80] == bytes(original.header))
    for position, txid in proof.matched:
        assert txids[position] == txid
    return proof.matched


@pytest.mark.parametrize("proof", PROOFS)
def test_a_flipped_bit_is_refused_or_proves_the_truth(proof: MerkleBlock) -> None:
    """These changes pass:

    - the other fields of the header, because they change its hash;
    - the number of transactions, if the tree keeps its shape;
    - the unused bits of the last byte;
    - the bit of a leaf, which only decides whether it counts as matched.
    """
    raw = bytes(proof)
    matched = proof.verify().matched
    nodes = list(described(proof.total, [position for position, _ in matched]))
    first_flag = 8 * (len(raw) - len(proof.flags))
    padding = set(range(first_flag + len(nodes), 8 * len(raw)))
    leaves = {first_flag + at: first for at, (first, span, _) in enumerate(nodes) if span == 1}
    header = set(range(8 * 80)) - set(range(8 * 36, 8 * 68))
    survivors = {}
    for at in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[at >> 3] ^= 1 << (at & 7)
        found = survives(proof, bytes(flipped))
        if found is not None:
            survivors[at] = found
            if at not in leaves:
                assert found == matched
            else:
                assert {position for position, _ in set(found) ^ set(matched)} == {leaves[at]}
    assert (
        header | padding | leaves.keys()
        <= survivors.keys()
        <= header | padding | leaves.keys() | set(range(8 * 80, 8 * 84))
    )


FEW_HASHES = st.lists(st.sampled_from([bytes(32), b"\1" * 32, bytes(range(32))]), max_size=12)


@given(st.integers(0, 20), FEW_HASHES, st.binary(max_size=4), st.data())
def test_a_random_tree_is_judged_as_by_the_definition(
    total: int, hashes: list[bytes], flags: bytes, data: st.DataObject
) -> None:
    expected = extracted(total, hashes, flags)
    root = expected[0] if expected else data.draw(st.sampled_from([*hashes, bytes(32)]))
    made_up = MerkleBlock(header_of(root), total, tuple(hashes), flags)
    assert MerkleBlock.parse(bytes(made_up)) == made_up
    if expected is None:
        with pytest.raises(ProofError) as error:
            made_up.verify()
        assert error.value.cause != Flaw.WRONG_ROOT
    else:
        assert made_up.verify().matched == tuple(expected[1])
        with pytest.raises(ProofError) as error:
            MerkleBlock(header_of(build.sha256d(root)), total, tuple(hashes), flags).verify()
        assert error.value.cause == Flaw.WRONG_ROOT


@given(st.integers(1, 9), st.binary(min_size=1, max_size=3), st.data())
def test_a_complete_tree_is_judged_as_by_the_definition(total: int, flags: bytes, data: st.DataObject) -> None:
    wanted = [count for count in range(total + 1) if extracted(total, [bytes([n]) * 32 for n in range(count)], flags)]
    assume(wanted)
    hashes = data.draw(
        st.lists(st.integers(0, 3).map(lambda n: bytes([n]) * 32), min_size=wanted[0], max_size=wanted[0])
    )
    expected = extracted(total, hashes, flags)
    made_up = MerkleBlock(header_of(expected[0] if expected else bytes(32)), total, tuple(hashes), flags)
    if expected is not None:
        assert made_up.verify().matched == tuple(expected[1])
    else:
        with pytest.raises(ProofError) as error:
            made_up.verify()
        assert error.value.cause == Flaw.EQUAL_SIBLINGS


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda tail: bytes(80) + b"\2\0\0\0" + tail))
def test_any_bytes_are_a_merkleblock_or_a_format_error(raw: bytes) -> None:
    try:
        parsed = MerkleBlock.parse(raw)
    except FormatError:
        return
    assert bytes(parsed) == raw
    with suppress(ProofError):
        parsed.verify()


@given(st.sampled_from(PROOFS), st.data())
def test_changed_bytes_never_prove_a_false_transaction(proof: MerkleBlock, data: st.DataObject) -> None:
    raw = bytearray(bytes(proof))
    for at in data.draw(st.lists(st.integers(80, len(raw) - 1), min_size=1, max_size=6)):
        raw[at] = data.draw(st.integers(0, 255))
    survives(proof, bytes(raw))


def test_mutated_proofs_never_prove_a_false_transaction() -> None:
    rng = random.Random(37)
    outcomes = set()
    for _ in range(effort(500, 3_000, 60_000)):
        proof = rng.choice(PROOFS)
        raw = bytearray(bytes(proof))
        at = rng.randrange(84, len(raw))
        match rng.randrange(4):
            case 0:
                del raw[at:]
            case 1:
                raw[at:at] = rng.randbytes(rng.randint(1, 40))
            case 2:
                raw[at : at + 32] = raw[85 : 85 + 32]
            case _:
                raw[80:84] = struct.pack("<I", rng.choice((rng.randrange(1, 200), rng.randrange(1 << 32))))
        outcomes.add(survives(proof, bytes(raw)) is None)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    "count", [2**64 - 1, 2**32 - 1, 2**25, 2**25 + 1, MAX_BLOCK_TRANSACTIONS + 1, MAX_BLOCK_TRANSACTIONS, 200]
)
@pytest.mark.parametrize("field", ["hashes", "flags"])
def test_absurd_counts_cost_no_memory(count: int, field: str) -> None:
    raw = bytes(header_of(bytes(32))) + (1).to_bytes(4, "little")
    raw += (build.var_int(count) if field == "hashes" else b"\0" + build.var_int(count)) + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            MerkleBlock.parse(raw)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_more_hashes_than_transactions_are_refused_early() -> None:
    head = bytes(header_of(bytes(32))) + b"\xff" * 4
    tail = build.var_bytes(bytes(4))
    with pytest.raises(FormatError, match="hash count at byte 84: must be at most 16666, not 16667"):
        MerkleBlock.parse(
            head + build.var_int(MAX_BLOCK_TRANSACTIONS + 1) + bytes(32 * (MAX_BLOCK_TRANSACTIONS + 1)) + tail
        )
    most = MerkleBlock.parse(head + build.var_int(MAX_BLOCK_TRANSACTIONS) + bytes(32 * MAX_BLOCK_TRANSACTIONS) + tail)
    assert len(most.hashes) == MAX_BLOCK_TRANSACTIONS


@pytest.mark.parametrize(
    ("lie", "flaw", "said"),
    [
        (lambda p: (0, p.hashes, p.flags), Flaw.NO_TRANSACTIONS, "a block must have at least one transaction"),
        (
            lambda p: (16_667, p.hashes, p.flags),
            Flaw.TOO_MANY_TRANSACTIONS,
            "a block can have at most 16666 transactions, not 16667",
        ),
        (lambda p: (2**32 - 1, p.hashes, p.flags), Flaw.TOO_MANY_TRANSACTIONS, "not 4294967295"),
        (
            lambda p: (7, p.hashes * 2, p.flags),
            Flaw.TOO_MANY_HASHES,
            r"the number of hashes \(10\) exceeds the number of transactions \(7\)",
        ),
        (
            lambda p: (7, p.hashes, b""),
            Flaw.TOO_FEW_BITS,
            r"the number of flag bits \(0\) is less than the number of hashes \(5\)",
        ),
        (lambda p: (16_666, p.hashes, p.flags[:1]), Flaw.BITS_EXHAUSTED, "more than 8 flag bits"),
        (lambda p: (7, p.hashes[:-1], p.flags), Flaw.HASHES_EXHAUSTED, "more than 4 hashes"),
        (lambda p: (7, p.hashes, p.flags + b"\0"), Flaw.UNUSED_BITS, "uses only 10 of 24 flag bits"),
        (lambda p: (7, p.hashes + p.hashes[:1], p.flags), Flaw.UNUSED_HASHES, "uses only 5 of 6 hashes"),
        (lambda p: (7, p.hashes[::-1], p.flags), Flaw.WRONG_ROOT, "not the header's merkle root"),
        (
            lambda p: (8, (*p.hashes, p.hashes[-1]), p.flags[:1] + b"\x03"),
            Flaw.EQUAL_SIBLINGS,
            "below the node at height 1, position 3",
        ),
    ],
)
def test_each_lie_has_its_own_error(
    lie: Callable[[MerkleBlock], tuple[int, tuple[bytes, ...], bytes]], flaw: Flaw, said: str
) -> None:
    honest = made(7, [0, 6])
    honest.verify()
    with pytest.raises(ProofError, match=said) as error:
        MerkleBlock(honest.header, *lie(honest)).verify()
    assert error.value.cause is flaw


@pytest.mark.parametrize(("hashes", "flaw"), [(8, Flaw.BITS_EXHAUSTED), (9, Flaw.TOO_FEW_BITS)])
def test_there_are_at_least_as_many_bits_as_hashes(hashes: int, flaw: Flaw) -> None:
    with pytest.raises(ProofError) as error:
        MerkleBlock(header_of(bytes(32)), 4_096, tuple(block_of(hashes)), b"\xff").verify()
    assert error.value.cause is flaw


def test_the_header_does_not_commit_to_the_transaction_count() -> None:
    honest = made(9, [3])
    lie = MerkleBlock(honest.header, 16, honest.hashes, honest.flags)
    assert lie.verify().matched == honest.verify().matched
    assert lie.verify().total == 16


# CVE-2017-12842: 64 bytes that are both a transaction and two hashes


def short_transaction(seed: int, script: bytes = b"\x51" * 4) -> bytes:
    """A transaction of 64 bytes, with a script of four bytes."""
    return build.tx([build.TxIn(random.Random(seed).randbytes(32), 0)], [build.TxOut(0, script)], version=1)


def test_a_proof_below_a_64_byte_transaction_is_not_trusted() -> None:
    real = short_transaction(1)
    first, third, fourth = (random.Random(number).randbytes(32) for number in range(3))
    txids = [first, build.txid(real), third, fourth]
    header = header_of(build.merkle_root(txids))
    below = build.sha256d(third + fourth)
    lie = MerkleBlock(header, 8, (first, real[:32], real[32:], below), bytes([0b0101011])).verify()
    assert lie.matched == ((3, real[32:]),)  # a txid that the attacker chose
    assert lie.ambiguous
    assert not lie.trusted_with([])
    honest = MerkleBlock.from_txids(header, txids, [0]).verify()
    assert not honest.ambiguous
    assert honest.trusted_with([build.coinbase(1)])


def test_an_inner_node_as_a_transaction_is_not_trusted() -> None:
    fake = short_transaction(2)
    # two real txids that together are also a valid transaction
    txids = [fake[:32], fake[32:], bytes(32), bytes([1] * 32)]
    header = header_of(build.merkle_root(txids))
    lie = MerkleBlock(header, 2, (build.txid(fake), build.sha256d(txids[2] + txids[3])), bytes([0b011])).verify()
    assert lie.matched == ((0, build.txid(fake)),)
    assert not lie.trusted_with([fake])
    assert not lie.trusted_with([build.coinbase(1), fake])
    assert MerkleBlock.from_txids(header, txids, [0]).verify().ambiguous  # both readings are possible


@vector_cases("07_transactions/size_64_bytes.json")
def test_a_64_byte_transaction_can_be_an_inner_node(case: Any) -> None:
    raw = bytes.fromhex(case["raw"])
    assert can_be_node(raw) == (case["stripped_size"] == 64) == (not case["bip54_valid"])


def test_a_witness_does_not_prevent_a_node_of_64_bytes() -> None:
    funding = random.Random(3).randbytes(32)
    with_witness = build.tx([build.TxIn(funding, 0, witness=(b"signature",))], [build.TxOut(0, b"\x51" * 4)])
    assert len(with_witness) > 64
    assert can_be_node(with_witness)
    assert not can_be_node(build.tx([build.TxIn(funding, 0)], [build.TxOut(0, b"\x51" * 5)]))
    with pytest.raises(FormatError):
        can_be_node(with_witness[:-1])


def test_children_with_a_segwit_marker_are_no_transaction() -> None:
    """A txid does not cover the witness, so 64 bytes with a segwit marker and flag are not the preimage of a node."""
    node = build.tx([build.TxIn(bytes(32), 0, witness=(b"\x51",))], [], version=1)
    node = build.tx([build.TxIn(bytes(32), 0, b"", witness=(bytes(1 + 64 - len(node)),))], [], version=1)
    assert len(node) == 64
    assert not can_be_node(node)
    proof = proof_of_pair(node)
    assert not proof.ambiguous


@pytest.mark.parametrize("at", [4, 41, 46, 55])
def test_children_that_do_not_parse_are_no_transaction(at: int) -> None:
    node = bytearray(short_transaction(4))
    assert proof_of_pair(bytes(node)).ambiguous
    node[at] ^= 2
    assert not proof_of_pair(bytes(node)).ambiguous


def test_either_script_may_have_the_four_free_bytes() -> None:
    for script_sig in range(5):
        raw = build.tx(
            [build.TxIn(bytes([7] * 32), 0, b"\x51" * script_sig)], [build.TxOut(0, b"\x51" * (4 - script_sig))]
        )
        assert can_be_node(raw)
        assert proof_of_pair(raw).ambiguous


def proof_of_pair(node: bytes) -> Proof:
    txids = [node[:32], node[32:]]
    return MerkleBlock.from_txids(header_of(build.merkle_root(txids)), txids, [0]).verify()
