"""A filter judged by its block: true ones never fail, and what leaves out a script that the block shows does."""

from __future__ import annotations

import pytest

from spvfilter.filters.bip158 import basic_data, filter_elements
from spvfilter.filters.verify import Judgement, Verdict, judge, spent_script
from spvfilter.hashes import sha256d
from spvfilter.kernel import walk_block
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.build import TxIn, build_block, build_coinbase, build_tx
from spvfilter.node.scripts import Lock, multisig, op_return, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.protocol import HEADER_SIZE
from support.lightworld import LOCKS, World
from support.vectors import effort

KEY = b"\x02" + b"\x11" * 32
SCRIPT = b"\x21" + KEY + b"\xac"  # KEY OP_CHECKSIG
SHOWN = [p2pkh(KEY), p2wpkh(KEY), p2sh(p2wpkh(KEY)), p2wsh(SCRIPT, [b"x"]), p2sh(p2wsh(SCRIPT, [b"x"])), p2sh(multisig(1, [KEY, KEY]))]
HIDDEN = [p2tr(b"\x22" * 32), p2pk(KEY), multisig(1, [KEY])]


def nothing_known(outpoint: bytes) -> bytes | None:
    return None


def block_spending(*locks: Lock) -> tuple[bytes, bytes, set[bytes]]:
    """A block that spends such outputs and pays others; its hash; its filter's elements."""
    coins = [lock.spends(OutPoint(bytes((number,)) * 32, 0)) for number, lock in enumerate(locks, 1)]
    paid = [TxOut(1, b"\x51\x20" + b"\x33" * 32), op_return(b"x").pays(0), TxOut(1, b"")]
    txs = [build_tx(coins, paid)]
    coinbase = build_coinbase(7, [TxOut(1, b"\x51")], txs)
    raw = build_block(bytes(32), 1_700_000_000, [coinbase, *txs])
    outputs = [raw[start:end] for tx in walk_block(raw) for _, start, end in tx.outputs]
    return raw, sha256d(raw[:HEADER_SIZE]), filter_elements(outputs, [lock.script_pubkey for lock in locks])


def judged(raw: bytes, block_hash: bytes, elements: set[bytes]) -> Judgement:
    return judge(raw, basic_data(block_hash, elements), block_hash, nothing_known)


@pytest.mark.parametrize("lock", SHOWN)
def test_an_input_shows_the_script_that_its_hash_is_of(lock: Lock) -> None:
    assert spent_script(lock.script_sig, list(lock.witness)) == lock.script_pubkey


@pytest.mark.parametrize("lock", HIDDEN)
def test_an_input_that_does_not_show_its_script_is_not_guessed(lock: Lock) -> None:
    assert spent_script(lock.script_sig, list(lock.witness)) is None


@pytest.mark.parametrize(
    "witness",
    [
        [b"\x01" * 64],
        [b"\x01" * 65, b"\x50annex\xac"],
        [SCRIPT, b"\xc0" + b"\x01" * 32],
        [b"x", SCRIPT, b"\xc1" + b"\xac" * 64],
        [b""],
        [b"x", b""],
    ],
)
def test_what_may_be_taproot_is_taken_for_no_witness_script(witness: list[bytes]) -> None:
    assert spent_script(b"", witness) is None


def test_a_filter_of_all_elements_is_true_where_every_script_shows() -> None:
    raw, block_hash, elements = block_spending(*SHOWN)
    assert judged(raw, block_hash, elements).verdict is Verdict.TRUE


def test_a_filter_is_possible_where_a_script_does_not_show() -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *HIDDEN)
    assert judged(raw, block_hash, elements) == Judgement(Verdict.POSSIBLE, elements=len(elements))
    assert judged(raw, block_hash, elements - {HIDDEN[0].script_pubkey}).verdict is Verdict.POSSIBLE


@pytest.mark.parametrize("hidden", [(), tuple(HIDDEN)])
def test_a_filter_without_a_script_that_shows_is_false(hidden: tuple[Lock, ...]) -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *hidden)
    for left_out in elements - {lock.script_pubkey for lock in hidden}:
        assert judged(raw, block_hash, elements - {left_out}).verdict is Verdict.FALSE


@pytest.mark.parametrize("hidden", [(), tuple(HIDDEN)])
def test_a_filter_of_more_elements_than_the_block_can_have_is_false(hidden: tuple[Lock, ...]) -> None:
    raw, block_hash, elements = block_spending(*SHOWN, *hidden)
    extra = elements | {bytes((number,)) * 9 for number in range(1, 3)}
    assert judged(raw, block_hash, extra).verdict is Verdict.FALSE


@pytest.mark.parametrize("data", [b"", b"\x05\x01", b"\xfe\xff\xff\xff\xff\x00", b"\x00\x00", b"\x01" + b"\xff" * 40])
def test_a_filter_that_is_none_is_false(data: bytes) -> None:
    raw, block_hash, _ = block_spending(p2pkh(KEY))
    assert judge(raw, data, block_hash, nothing_known).verdict is Verdict.FALSE


def test_a_script_that_is_known_must_be_there() -> None:
    raw, block_hash, elements = block_spending(HIDDEN[0])
    known = {TxIn(OutPoint(b"\x01" * 32, 0), b"", (), 0).outpoint: HIDDEN[0].script_pubkey}

    def script_of(outpoint: bytes) -> bytes | None:
        return known.get(OutPoint.parse(outpoint))

    assert judge(raw, basic_data(block_hash, elements), block_hash, script_of).verdict is Verdict.TRUE
    assert judge(raw, basic_data(block_hash, elements - {HIDDEN[0].script_pubkey}), block_hash, script_of).verdict is Verdict.FALSE


def true_data(block: TreeBlock) -> bytes:
    outputs = [block.raw[start:end] for tx in walk_block(block.raw) for _, start, end in tx.outputs]
    return basic_data(block.hash, filter_elements(outputs, [coin.script_pubkey for coin in (block.spent or {}).values()]))


@pytest.mark.parametrize("seed", range(effort(1, 3, 30)))
def test_no_true_filter_of_a_wallets_chain_is_judged_false(seed: int) -> None:
    world = World(seed, LOCKS)
    world.grow(30, share=0.9)
    verdicts = {judge(block.raw, true_data(block), block.hash, nothing_known).verdict for block in world.regtest.chain.active}
    assert verdicts == {Verdict.TRUE, Verdict.POSSIBLE}
