"""Verification of a filter against its block: true filters pass, and a filter without a required script fails."""

from __future__ import annotations

from hashlib import sha256

import pytest

from spvfilter.filters.bip158 import basic_data, filter_elements
from spvfilter.filters.verify import FilterJudgement, FilterVerdict, spent_script, verify_filter
from spvfilter.hashes import hash160, sha256d
from spvfilter.kernel import parse_tx, txid, walk_block
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.build import build_block, build_coinbase
from spvfilter.node.responder import stripped_block
from spvfilter.node.scripts import SIGNATURE, Lock, multisig, op_return, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh, push
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.protocol import HEADER_SIZE
from spvfilter.signing import build_tx
from spvfilter.transaction import TxIn
from support.client.lightworld import LOCKS, World
from support.vectors import effort

KEY = b"\x02" + b"\x11" * 32
SCRIPT = b"\x21" + KEY + b"\xac"  # KEY OP_CHECKSIG
SHOWN = [
    p2pkh(KEY),
    p2wpkh(KEY),
    p2sh(p2wpkh(KEY)),
    p2wsh(SCRIPT, [b"x"]),
    p2sh(p2wsh(SCRIPT, [b"x"])),
    p2sh(multisig(1, [KEY, KEY])),
]
HIDDEN = [p2tr(b"\x22" * 32), p2pk(KEY), multisig(1, [KEY])]


def nothing_known(outpoint: bytes) -> bytes | None:
    return None


def block_spending(*locks: Lock) -> tuple[bytes, bytes, set[bytes]]:
    """A block that spends such outputs and pays others, its hash, and its filter's elements."""
    coins = [lock.spends(OutPoint(bytes((number,)) * 32, 0)) for number, lock in enumerate(locks, 1)]
    paid = [TxOut(1, b"\x51\x20" + b"\x33" * 32), op_return(b"x").pays(0), TxOut(1, b"")]
    txs = [build_tx(coins, paid)]
    coinbase = build_coinbase(7, [TxOut(1, b"\x51")], txs)
    raw = build_block(bytes(32), 1_700_000_000, [coinbase, *txs])
    outputs = [raw[start:end] for tx in walk_block(raw) for _, start, end in tx.outputs]
    return raw, sha256d(raw[:HEADER_SIZE]), filter_elements(outputs, [lock.script_pubkey for lock in locks])


def judged(raw: bytes, block_hash: bytes, elements: set[bytes]) -> FilterJudgement:
    return verify_filter(raw, basic_data(block_hash, elements), block_hash, nothing_known)


@pytest.mark.parametrize("lock", SHOWN)
def test_an_input_shows_the_script_of_its_hash(lock: Lock) -> None:
    assert spent_script(lock.script_sig, list(lock.witness)) == lock.script_pubkey


@pytest.mark.parametrize("lock", HIDDEN)
def test_a_script_that_the_input_hides_is_unknown(lock: Lock) -> None:
    assert spent_script(lock.script_sig, list(lock.witness)) is None


@pytest.mark.parametrize(
    "witness",
    [
        [b"\x01" * 64],
        [b"\x01" * 65, b"\x50annex\xac"],
        [SCRIPT, b"\xc0" + b"\x01" * 32],
        [SCRIPT, b"\xc0" + b"\x01" * 31 + b"\xac"],
        [b"x", SCRIPT, b"\xc1" + b"\xac" * 64],
        [b""],
        [b"x", b""],
    ],
)
def test_a_possible_taproot_spend_shows_no_witness_script(witness: list[bytes]) -> None:
    assert spent_script(b"", witness) is None


@pytest.mark.parametrize(("size", "is_signature"), [(8, False), (9, True), (73, True), (74, False)])
def test_a_signature_has_9_to_73_bytes(size: int, is_signature: bool) -> None:
    witness = [b"\x30" + bytes(size - 1), KEY]
    assert spent_script(b"", witness) == (p2wpkh(KEY).script_pubkey if is_signature else None)


def block_within(*locks: Lock) -> tuple[bytes, bytes, set[bytes]]:
    """A block that spends only its own outputs, its hash, and its filter's elements."""
    coinbase = build_coinbase(7, [lock.pays(5_000) for lock in locks], [])
    made = txid(coinbase, parse_tx(coinbase))
    tx = build_tx([lock.spends(OutPoint(made, number)) for number, lock in enumerate(locks)], [TxOut(1, b"\x51")])
    raw = build_block(bytes(32), 1_700_000_000, [coinbase, tx])
    return raw, sha256d(raw[:HEADER_SIZE]), filter_elements([b"\x51"], [lock.script_pubkey for lock in locks])


def test_own_outputs_decide_if_a_filter_is_true() -> None:
    raw, block_hash, elements = block_within(*SHOWN, *HIDDEN)
    assert judged(raw, block_hash, elements).verdict is FilterVerdict.TRUE
    assert judged(raw, block_hash, elements | {b"more"}) == FilterJudgement(
        FilterVerdict.FALSE, "its elements are not the block's scripts"
    )
    for left_out in elements:
        assert judged(raw, block_hash, elements - {left_out}).verdict is FilterVerdict.FALSE


def test_spent_outputs_of_other_blocks_leave_a_filter_possible() -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *HIDDEN)
    assert judged(raw, block_hash, elements) == FilterJudgement(FilterVerdict.POSSIBLE)
    for lock in (*SHOWN, *HIDDEN):  # an input may show another script than that of its coin
        assert judged(raw, block_hash, elements - {lock.script_pubkey}) == FilterJudgement(FilterVerdict.POSSIBLE)
        assert judged(raw, block_hash, elements - {lock.script_pubkey} | {b"another"}) == FilterJudgement(
            FilterVerdict.POSSIBLE
        )


def test_a_filter_without_an_output_is_false() -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *HIDDEN)
    for left_out in elements - {lock.script_pubkey for lock in (*SHOWN, *HIDDEN)}:
        assert judged(raw, block_hash, elements - {left_out}) == FilterJudgement(
            FilterVerdict.FALSE, f"it lacks the script {left_out.hex()}"
        )


def test_the_first_missing_script_is_named() -> None:
    paid = [p2wsh(bytes((number,))) for number in range(1, 9)]
    txs = [build_tx([p2wpkh(KEY).spends(OutPoint(b"\x07" * 32, 0))], [lock.pays(1) for lock in paid])]
    raw = build_block(bytes(32), 1_700_000_000, [build_coinbase(7, [TxOut(1, b"\x51")], txs), *txs])
    first = min(lock.script_pubkey for lock in paid)
    assert judged(raw, sha256d(raw[:HEADER_SIZE]), set()) == FilterJudgement(
        FilterVerdict.FALSE, f"it lacks the script {first.hex()}"
    )


def test_a_filter_with_too_many_elements_is_false() -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *HIDDEN)
    assert judged(raw, block_hash, elements | {b"more"}).verdict is FilterVerdict.FALSE


REDEEM = bytes.fromhex("02aabb7575") + b"\x61" * 27 + b"\x51"  # pushes aabb, drops it and the signature, NOPs, 1


@pytest.mark.parametrize("nested", [False, True])
def test_a_script_like_a_key_makes_no_true_filter_false(nested: bool) -> None:
    """A P2SH spend of REDEEM looks like a P2PKH spend, and a P2WSH spend like a P2WPKH spend."""
    if nested:
        odd = Lock(b"\x00\x20" + sha256(REDEEM).digest(), b"", (SIGNATURE, REDEEM))
        alike = b"\x00\x14" + hash160(REDEEM)
    else:
        odd = Lock(b"\xa9\x14" + hash160(REDEEM) + b"\x87", push(SIGNATURE) + push(REDEEM))
        alike = b"\x76\xa9\x14" + hash160(REDEEM) + b"\x88\xac"
    assert spent_script(odd.script_sig, list(odd.witness)) == alike
    raw, block_hash, elements = block_spending(odd)
    assert judged(raw, block_hash, elements).verdict is FilterVerdict.POSSIBLE
    assert judged(raw, block_hash, elements - {odd.script_pubkey} | {alike}).verdict is FilterVerdict.POSSIBLE


def test_a_block_without_witnesses_is_judged_the_same() -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *HIDDEN)
    stripped = stripped_block(raw)
    assert len(stripped) < len(raw)
    for claimed in (elements, elements - {SHOWN[1].script_pubkey}, elements - {b"\x51"}):
        assert judged(stripped, block_hash, claimed) == judged(raw, block_hash, claimed)


@pytest.mark.parametrize("data", [b"", b"\x05\x01", b"\xfe\xff\xff\xff\xff\x00", b"\x00\x00", b"\x01" + b"\xff" * 40])
def test_a_malformed_filter_is_false(data: bytes) -> None:
    raw, block_hash, _ = block_spending(p2pkh(KEY))
    assert verify_filter(raw, data, block_hash, nothing_known).verdict is FilterVerdict.FALSE


def test_a_known_spent_script_is_required() -> None:
    raw, block_hash, elements = block_spending(HIDDEN[0])
    known = {TxIn(OutPoint(b"\x01" * 32, 0), b"", (), 0).outpoint: HIDDEN[0].script_pubkey}

    def script_of(outpoint: bytes) -> bytes | None:
        return known.get(OutPoint.parse(outpoint))

    assert verify_filter(raw, basic_data(block_hash, elements), block_hash, script_of).verdict is FilterVerdict.TRUE
    assert (
        verify_filter(raw, basic_data(block_hash, elements - {HIDDEN[0].script_pubkey}), block_hash, script_of).verdict
        is FilterVerdict.FALSE
    )


def true_data(block: TreeBlock) -> bytes:
    outputs = [block.raw[start:end] for tx in walk_block(block.raw) for _, start, end in tx.outputs]
    return basic_data(
        block.hash, filter_elements(outputs, [coin.script_pubkey for coin in (block.spent or {}).values()])
    )


@pytest.mark.parametrize("seed", range(effort(1, 3, 30)))
def test_every_true_filter_of_a_wallets_chain_passes(seed: int) -> None:
    world = World(seed, LOCKS)
    world.grow(30, share=0.9)
    verdicts = {
        verify_filter(block.raw, true_data(block), block.hash, nothing_known).verdict
        for block in world.regtest.chain.active
    }
    assert verdicts == {FilterVerdict.TRUE, FilterVerdict.POSSIBLE}
