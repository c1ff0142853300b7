"""Regtest in memory, as tests and demos use it: mining, payments from its own coinbases, reorganizations on request."""

from __future__ import annotations

import pytest
from bitcoin.core import CBlock

from spvfilter.address import address_to_script
from spvfilter.errors import FormatError, ParameterError, RefusedError, UnconnectedHeadersError
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TipChange, subsidy
from spvfilter.node.consensus import unspent_outputs
from spvfilter.node.regtest import FEE, Regtest
from spvfilter.node.scripts import Lock, multisig, op_return, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.protocol import MAX_BLOCK_WEIGHT
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction
from support.blocks.build import txid

NOW = 1_700_000_000
KEY = b"\x02" + bytes(32)
SCRIPT = b"\x00\x14" + bytes(20)


class Log:
    """A listener that records every call."""

    def __init__(self) -> None:
        self.tips: list[tuple[int, int]] = []  # numbers of disconnected and connected blocks
        self.txids: list[bytes] = []

    def on_tip(self, change: TipChange) -> None:
        self.tips.append((len(change.disconnected), len(change.connected)))

    def on_tx(self, tx: Transaction) -> None:
        self.txids.append(tx.txid)


def regtest(blocks: int = 0) -> Regtest:
    made = Regtest(clock=lambda: NOW)
    made.mine(blocks)
    return made


def test_mined_blocks_follow_each_other_by_real_proof_of_work() -> None:
    made = regtest()
    hashes = made.mine(30)
    assert [block.hash for block in made.chain.active[1:]] == hashes
    previous, times = REGTEST.genesis_hash, []
    for block_hash in hashes:
        block = CBlock.deserialize(made.chain.blocks[block_hash].raw)
        assert block.GetHash() == block_hash
        assert int.from_bytes(block_hash, "little") < 1 << 255
        assert (block.hashPrevBlock, block.nBits) == (previous, 0x207FFFFF)
        previous = block_hash
        times.append(block.nTime)
    assert times[0] == NOW
    assert times == sorted(times)
    assert times[-1] < NOW + 20  # times advance only as the median demands


def test_coinbases_mature_after_100_blocks_and_pay() -> None:
    made = regtest(99)
    assert made.balance == 0
    with pytest.raises(ParameterError, match="51000 satoshi are needed, but only 0 can be spent"):
        made.pay(TxOut(50_000, SCRIPT))
    made.mine()
    assert made.balance == subsidy(1)
    paid = made.pay(TxOut(50_000, SCRIPT), TxOut(7, b"\x51"))
    assert made.balance == subsidy(1) - 50_007 - FEE
    tx = made.mempool.get(paid)
    assert tx is not None
    assert tx.outputs[:2] == (TxOut(50_000, SCRIPT), TxOut(7, b"\x51"))
    made.mine()
    assert made.chain.coins[bytes(OutPoint(paid, 0))].value == 50_000
    assert CBlock.deserialize(made.chain.tip.raw).vtx[0].vout[0].nValue == subsidy(101) + FEE
    assert made.balance == subsidy(1) - 50_007 - FEE + subsidy(2)


def test_payments_use_unconfirmed_change_and_many_coins() -> None:
    made = regtest(103)
    for _ in range(30):
        made.pay(TxOut(10**8, SCRIPT))
    whole = made.pay(TxOut(made.balance - FEE, SCRIPT))
    tx = made.mempool.get(whole)
    assert tx is not None
    assert len(tx.outputs) == 1  # no change
    assert len(tx.inputs) > 1
    assert made.balance == 0
    made.mine()
    assert len(made.chain.tip.txids) == 32


def expected_balance(made: Regtest) -> int:
    """The balance, computed from every coin."""
    script, tip = made.lock.script_pubkey, made.height + 1
    unspent = dict(made.chain.coins)
    for tx in made.mempool:
        unspent.update(unspent_outputs(tx, tip))
        for outpoint in tx.inputs:
            unspent.pop(outpoint)
    mine = [coin for outpoint, coin in unspent.items() if coin.script_pubkey == script]
    return sum(coin.value for coin in mine if not coin.coinbase or tip - coin.height >= 100)


def test_the_balance_is_right_after_conflicts_and_reorganizations() -> None:
    made = regtest(110)
    for number in range(12):
        made.pay(TxOut(10**8, SCRIPT), made.lock.pays(5))
        assert made.balance == expected_balance(made)
        if number % 3 == 2:
            made.mine()
        if number % 4 == 3:
            made.reorg(number)
        assert made.balance == expected_balance(made)
    held = next(iter(made.mempool), None) or made.mempool.get(made.pay(TxOut(1, SCRIPT)))
    assert held is not None
    conflict = build_tx([made.lock.spends(OutPoint.parse(held.inputs[0]))], [made.lock.pays(3)])
    made.mine(transactions=[conflict])
    assert made.balance == expected_balance(made)
    assert held.txid not in made.mempool


LOCKS = {
    "p2pk": p2pk(KEY),
    "p2pkh": p2pkh(KEY),
    "p2wpkh": p2wpkh(KEY),
    "p2tr": p2tr(bytes(32)),
    "multisig": multisig(1, [KEY, KEY]),
    "p2sh": p2sh(multisig(1, [KEY])),
    "nested": p2sh(p2wpkh(KEY)),
    "p2wsh": p2wsh(b"\x51"),
    "nested p2wsh": p2sh(p2wsh(b"\x51")),
}


def test_coins_of_every_type_are_received_and_spent() -> None:
    made = regtest(101)
    paid = made.pay(*(lock.pays(10_000) for lock in LOCKS.values()), op_return(b"hello").pays(0))
    inputs = [lock.spends(OutPoint(paid, index)) for index, lock in enumerate(LOCKS.values())]
    made.submit_tx(build_tx(inputs, [TxOut(80_000, SCRIPT)]))
    made.mine()
    assert len(made.chain.tip.txids) == 3
    with pytest.raises(RefusedError, match="missingorspent"):
        made.submit_tx(build_tx([Lock(b"").spends(OutPoint(paid, len(LOCKS)))], [TxOut(0, SCRIPT)]))


def test_coinbases_pay_the_given_script() -> None:
    made = regtest()
    (block_hash,) = made.mine(to=address_to_script("bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080", REGTEST))
    out = CBlock.deserialize(made.chain.blocks[block_hash].raw).vtx[0].vout[0]
    assert bytes(out.scriptPubKey).hex() == "0014751e76e8199196d454941c45d1b3a323f1433bd6"


def test_a_block_may_have_any_parent() -> None:
    made = regtest(5)
    fork = made.chain.active[3].hash
    tip = made.chain.tip.hash
    side = made.mine(2, on=fork)
    assert made.chain.tip.hash == tip
    assert made.mine(on=side[-1])[0] == made.chain.tip.hash
    with pytest.raises(ParameterError, match="block 00"):
        made.mine(on=bytes(32))


def test_blocks_with_the_same_content_differ() -> None:
    made = regtest(1)
    genesis = made.chain.active[0].hash
    assert len({made.mine(on=genesis, time=NOW)[0] for _ in range(5)}) == 5


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_a_reorganization_of_any_depth_leaves_stale_blocks(depth: int) -> None:
    made = regtest(50)
    before = [block.hash for block in made.chain.active]
    mined = made.reorg(depth)
    after = [block.hash for block in made.chain.active]
    assert after == before[: 51 - depth] + mined
    assert len(mined) == depth + 1
    assert set(before) <= made.chain.blocks.keys()


def test_a_branch_of_the_same_length_changes_nothing() -> None:
    made = regtest(5)
    tip = made.chain.tip
    assert len(made.reorg(2, blocks=2)) == 2
    assert made.chain.tip is tip


def test_the_new_branch_has_the_given_transactions() -> None:
    made = regtest(103)
    first, second = (
        build_tx([made.lock.spends(OutPoint(made.chain.active[height].txids[0], 0))], [TxOut(1, SCRIPT)])
        for height in (1, 2)
    )
    made.pay(TxOut(5, SCRIPT))
    made.mine()
    made.reorg(1, transactions=[[first], [second]])
    assert [block.txids[1:] for block in made.chain.active[-2:]] == [(txid(first),), (txid(second),)]
    assert len(made.mempool) == 0  # it spent the first coinbase too


@pytest.mark.parametrize(
    ("depth", "said"), [(0, "depth must be from 1 to 3, the height of the tip, not 0"), (4, "not 4"), (-1, "not -1")]
)
def test_an_impossible_depth_is_refused(depth: int, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        regtest(3).reorg(depth)


def test_more_transactions_than_blocks_are_refused() -> None:
    with pytest.raises(ParameterError, match="transactions for 3 blocks, but only 2 blocks would be mined"):
        regtest(3).reorg(1, transactions=[[], [], []])


def test_invalid_submissions_are_refused() -> None:
    made = regtest(3)
    other = Regtest(clock=lambda: NOW + 1)
    other.mine(2)
    with pytest.raises(UnconnectedHeadersError, match=r"its parent .* is unknown"):
        made.submit_block(other.chain.tip.raw)
    with pytest.raises(RefusedError, match="duplicate"):
        made.submit_block(made.chain.tip.raw)
    other.reorg(1, blocks=4)
    with pytest.raises(FormatError):
        made.submit_block(other.chain.active[1].raw[:-1])
    with pytest.raises(RefusedError, match="bad-txns-inputs-missingorspent"):
        made.mine(transactions=[build_tx([made.lock.spends(OutPoint(bytes(32), 0))], [TxOut(0, SCRIPT)])])
    assert made.height == 3


def test_the_same_calls_mine_the_same_blocks() -> None:
    assert regtest(7).chain.tip.hash == regtest(7).chain.tip.hash


def test_blocks_of_another_regtest_are_not_mined_again() -> None:
    ours, theirs = regtest(), regtest(3)
    for block in theirs.chain.active[1:]:
        ours.submit_block(block.raw)
    ours.reorg(3)
    assert ours.height == 4
    assert len(ours.chain.blocks) == 1 + 3 + 4


def test_two_chains_exchange_their_blocks() -> None:
    ours, theirs = regtest(3), Regtest(clock=lambda: NOW + 50)
    theirs.mine(5)
    for block in theirs.chain.active[1:]:
        ours.submit_block(block.raw)
    assert ours.chain.tip.hash == theirs.chain.tip.hash


def test_transactions_that_do_not_fit_stay_in_the_mempool() -> None:
    made = regtest(105)
    large = [
        build_tx(
            [Lock(b"", bytes(400_000)).spends(OutPoint(made.chain.active[height].txids[0], 0))], [TxOut(1, SCRIPT)]
        )
        for height in (1, 2, 3)
    ]
    for raw in large:
        made.submit_tx(raw)
    made.mine()
    assert made.chain.tip.txids[1:] == tuple(map(txid, large[:2]))
    assert 4 * len(made.chain.tip.raw) < MAX_BLOCK_WEIGHT
    made.mine()
    assert made.chain.tip.txids[1:] == (txid(large[2]),)


def test_listeners_get_new_transactions_and_tip_changes() -> None:
    made, log = regtest(101), Log()
    made.listeners.append(log)
    paid = made.pay(TxOut(1, SCRIPT))
    made.mine(2)
    made.reorg(2)
    made.mine(on=made.chain.active[5].hash)  # a side branch
    assert log.txids == [paid]  # its return is not reported again
    assert log.tips == [(0, 1), (0, 1), (2, 3)]


def test_many_blocks_stay_out_of_the_future() -> None:
    regtest = Regtest(clock=lambda: 1_800_000_000.0)
    regtest.mine(1_500)
    times = [int.from_bytes(block.raw[68:72], "little") for block in regtest.chain.active]
    assert times[1:] == list(range(1_800_000_000 - 1_499, 1_800_000_001))
    regtest.mine(1_001)
    assert regtest.chain.tip.median_time <= 1_800_000_000 + 200
