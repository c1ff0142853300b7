"""Commitments of a header (merkle root, witness commitment) and the forms of scripts that pay public keys."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, strategies as st

from spvfilter import kernel
from spvfilter.errors import FormatError
from support.blocks import build
from support.blocks.build import TxIn, TxOut

KEY = b"\x02" + bytes(32)
LEGACY = build.tx([TxIn(b"\x11" * 32, 1, b"\x01\x02")], [TxOut(5, b"\x51")])
SEGWIT = build.tx([TxIn(b"\x33" * 32, 0, witness=(b"sig", KEY))], [TxOut(7, build.p2wpkh(bytes(20)))])
BLOCK = build.block_of(build.GENESIS, 5, [LEGACY, SEGWIT])


def refusal(block: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        kernel.check_block(block)
    return caught.value


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40, unique=True))
def test_merkle_roots_agree_with_the_definition(leaves: list[bytes]) -> None:
    assert kernel.merkle_root(leaves) == (build.merkle_root(leaves), False)


@pytest.mark.parametrize("count", range(2, 18))
def test_repeated_branches_are_noticed(count: int) -> None:
    leaves = [hashlib.sha256(bytes((number,))).digest() for number in range(count)]
    width = 1
    while width < count:
        if count // width % 2 and count % width == 0:  # the last branch of this width has no sibling: repeat it
            repeated = leaves + leaves[-width:]
            assert kernel.merkle_root(repeated) == (build.merkle_root(leaves), True)
        width *= 2
    assert kernel.merkle_root(leaves[:1] + leaves)[1]


def test_only_a_block_with_repeated_transactions_is_refused() -> None:  # CVE-2012-2459
    txs = [build.coinbase(1), LEGACY, build.tx([TxIn(b"\x55" * 32, 0)], [])]
    genuine = build.block(build.GENESIS, txs)
    forged = genuine[:80] + b"\x04" + genuine[81:] + txs[-1]
    assert build.block_hash(genuine) == build.block_hash(forged)
    assert refusal(forged).field == "merkle root"
    kernel.check_block(genuine)


def test_a_wrong_merkle_root_is_refused() -> None:
    error = refusal(BLOCK[:36] + bytes(32) + BLOCK[68:])
    assert (error.offset, error.field) == (36, "merkle root")


COMMITMENT = build.commitment_script([b"", SEGWIT])
NONCE = (build.WITNESS_NONCE,)


def committed(scripts: list[bytes], stack: tuple[bytes, ...] = NONCE, script_sig: bytes = b"\x51\x51") -> bytes:
    first = build.tx([TxIn(bytes(32), 0xFFFFFFFF, script_sig, witness=stack)], [TxOut(0, script) for script in scripts])
    return build.block(build.GENESIS, [first, SEGWIT])


def test_valid_witness_commitments_are_accepted() -> None:
    kernel.check_block(committed([b"\x51", COMMITMENT]))
    # BIP-141: the commitment with the highest index counts
    kernel.check_block(committed([COMMITMENT[:6] + bytes(32), COMMITMENT]))
    kernel.check_block(committed([COMMITMENT + b"anything", b"\x51", COMMITMENT[:-1]]))  # more is allowed, less is none


@pytest.mark.parametrize(
    ("scripts", "stack"),
    [
        ([], NONCE),
        ([b"\x51"], NONCE),
        ([COMMITMENT[:-1]], NONCE),
        ([COMMITMENT[:6] + bytes(32)], NONCE),
        ([COMMITMENT, COMMITMENT[:6] + bytes(32)], NONCE),
        ([COMMITMENT], ()),
        ([COMMITMENT], (b"",)),
        ([COMMITMENT], (bytes(31),)),
        ([COMMITMENT], (bytes(33),)),
        ([COMMITMENT], (bytes(32), b"")),
        ([COMMITMENT], (b"\x01" + bytes(31),)),
    ],
)
def test_missing_or_wrong_commitments_are_refused(scripts: list[bytes], stack: tuple[bytes, ...]) -> None:
    error = refusal(committed(scripts, stack))
    assert error.field == "witness commitment"
    list(kernel.walk_block(committed(scripts, stack)))  # the block is well formed


def test_a_stack_as_long_as_the_nonce_is_refused() -> None:
    stack = (bytes(30), b"\x07")  # 34 bytes on the wire, as 1 item of 32 has
    forged = build.commitment_script([b"", SEGWIT], nonce=stack[0] + b"\x01" + stack[1])
    assert refusal(committed([forged], stack)).field == "witness commitment"


def test_a_changed_witness_is_refused_despite_the_merkle_root() -> None:
    raw = committed([COMMITMENT])
    at = raw.index(b"\x03sig") + 1
    assert refusal(raw[:at] + b"SIG" + raw[at + 3 :]).field == "witness commitment"


def test_a_block_without_witnesses_needs_no_commitment() -> None:
    first = build.coinbase(5, [TxOut(0, COMMITMENT[:6] + bytes(32))])
    kernel.check_block(build.block(build.GENESIS, [first, LEGACY]))


# Forms of scripts

KEYS = [b"\x02" + bytes((number,)) * 32 for number in range(17)]
LONG_KEY = b"\x04" + bytes(64)


@pytest.mark.parametrize(
    "data", [b"\x02" + bytes(32), b"\x03" + bytes(32), *(bytes((first,)) + bytes(64) for first in (4, 6, 7))]
)
def test_keys_are_recognized_by_their_form(data: bytes) -> None:
    assert kernel.is_pubkey(data)
    assert kernel.is_p2pk(build.p2pk(data))
    assert kernel.multisig_keys(build.multisig(1, [data])) == [data]
    for other in (data[:-1], data + b"\x00", b"\x05" + data[1:], b"\x00" + data[1:]):
        assert not kernel.is_pubkey(other)
        assert not kernel.is_p2pk(build.p2pk(other))
        assert not kernel.multisig_keys(build.multisig(1, [other]))
    assert not kernel.is_pubkey(b"")


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"\xac",
        b"\x21\xac",
        build.push(KEY),
        build.p2pk(KEY) + b"\xac",
        b"\x4c" + build.p2pk(KEY),
        build.push(KEY) + b"\xad",
    ],
)
def test_other_scripts_are_not_p2pk(script: bytes) -> None:
    assert not kernel.is_p2pk(script)


@pytest.mark.parametrize(
    ("script", "keys"),
    [
        (build.multisig(1, KEYS[:1]), KEYS[:1]),
        (build.multisig(16, KEYS[:16]), KEYS[:16]),
        (build.multisig(2, [KEYS[0], LONG_KEY, KEYS[1]]), [KEYS[0], LONG_KEY, KEYS[1]]),
        (b"\x51" + b"\x4c" + build.push(KEY) + b"\x51\xae", [KEY]),  # OP_PUSHDATA1, as GetOp reads it
        (b"\x51" + b"\x4d\x21\x00" + KEY + b"\x4e\x21\x00\x00\x00" + KEY + b"\x52\xae", [KEY, KEY]),
    ],
)
def test_bare_multisig_gives_its_keys(script: bytes, keys: list[bytes]) -> None:
    assert kernel.multisig_keys(script) == keys


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"\xae",
        b"\x51\xae",
        b"\x51\x51\xae",
        build.multisig(2, KEYS[:1]),  # m > n
        build.multisig(0, KEYS[:1]),
        build.multisig(1, KEYS[:1], total=2),
        build.multisig(1, KEYS[:2], total=1),
        build.multisig(1, KEYS, total=17),
        build.multisig(1, KEYS, total=16),
        build.multisig(1, [KEYS[0], b"\x05" * 33]),
        build.multisig(1, [KEYS[0], KEY[:-1]]),
        build.multisig(1, KEYS[:1]) + b"\x61",
        build.multisig(1, KEYS[:1]) + b"\xae",
        build.multisig(1, KEYS[:1])[:-1] + b"\xaf",
        b"\x51" + build.push(KEY) + b"\x61\x51\xae",  # an operation between the keys
        b"\x51" + build.push(KEY) + b"\x22\x51\xae",  # a push that runs past the end
        b"\x51" + build.push(KEY) + b"\x4c\x51\xae",
        b"\x51" + build.push(KEY) + b"\x4e\x51\xae",
        b"\x51" + build.push(KEY) + b"\x01\x51\xae",  # n is data here
        b"\x01\x01" + build.push(KEY) + b"\x51\xae",
    ],
)
def test_almost_bare_multisig_has_no_keys(script: bytes) -> None:
    assert kernel.multisig_keys(script) == []
