"""Replacement by fee in the embedded node: each of Core's rules, evictions, fee bumps and double spends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spvfilter.errors import ParameterError, RefusedError
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock, multisig, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import Validity, verify_spends
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from support.blocks.locks import key, secret

NOW = 1_700_000_000
KEY, SECRETS = key(1), [secret(1)]
ANY = Lock(b"\x51" + bytes(20))
OURS = p2wpkh(KEY)
COIN = 50 * 100_000_000


@pytest.fixture
def made() -> Regtest:
    made = Regtest(clock=lambda: NOW)
    made.mine(110)
    return made


def coinbase(made: Regtest, height: int) -> OutPoint:
    return OutPoint(made.chain.active[height].txids[0], 0)


def spend(coins: list[OutPoint], fee: int, count: int = 1, value: int | None = None) -> bytes:
    """A transaction with a fee. Its coins are coinbases unless their value is given."""
    left = (COIN * len(coins) if value is None else value) - fee
    return build_tx([ANY.spends(coin) for coin in coins], [ANY.pays(left // count)] * count)


def size(raw: bytes) -> int:
    return Transaction.parse(raw).virtual_size


def txids(made: Regtest) -> set[bytes]:
    return {tx.txid for tx in made.mempool}


def reason(call: Callable[[], object], made: Regtest) -> str:
    before = txids(made), made.balance, made.mempool.size
    with pytest.raises(RefusedError) as caught:
        call()
    assert (txids(made), made.balance, made.mempool.size) == before
    return caught.value.reason


def test_a_replacement_pays_all_replaced_fees_and_its_size(made: Regtest) -> None:
    first = made.submit_tx(spend([coinbase(made, 1)], 1_000, 2))
    child = made.submit_tx(spend([OutPoint(first, 0)], 500, value=(COIN - 1_000) // 2))
    bare = spend([coinbase(made, 1)], 0)
    least = 1_500 + size(bare)
    assert reason(lambda: made.submit_tx(spend([coinbase(made, 1)], least - 1)), made) == "insufficient fee"
    made.submit_tx(spend([coinbase(made, 2)], 10))
    assert {first, child} <= txids(made)
    replacing = made.submit_tx(spend([coinbase(made, 1)], least))
    assert replacing in txids(made)
    assert not {first, child} & txids(made)
    assert made.mempool.fees[replacing] == least
    made.mine()
    assert replacing in made.chain.tip.txids
    assert len(made.chain.tip.txids) == 3


def test_a_replacement_has_a_higher_fee_rate_than_direct_conflicts(made: Regtest) -> None:
    made.submit_tx(spend([coinbase(made, 1)], 3_000))
    large = [coinbase(made, height) for height in range(1, 9)]
    # a higher fee, but a lower rate
    assert reason(lambda: made.submit_tx(spend(large, 4_000)), made) == "insufficient fee"
    made.submit_tx(spend(large, 40_000))
    assert len(txids(made)) == 1


def test_a_replacement_adds_no_unconfirmed_inputs(made: Regtest) -> None:
    made.submit_tx(spend([coinbase(made, 1)], 1_000))
    other = made.submit_tx(spend([coinbase(made, 2)], 1_000))
    raw = build_tx([ANY.spends(coinbase(made, 1)), ANY.spends(OutPoint(other, 0))], [ANY.pays(COIN)])
    assert reason(lambda: made.submit_tx(raw), made) == "replacement-adds-unconfirmed"


def test_a_replacement_spends_none_of_the_replaced_outputs(made: Regtest) -> None:
    first = made.submit_tx(spend([coinbase(made, 1)], 1_000))
    raw = build_tx([ANY.spends(coinbase(made, 1)), ANY.spends(OutPoint(first, 0))], [ANY.pays(COIN)])
    assert reason(lambda: made.submit_tx(raw), made) == "bad-txns-spends-conflicting-tx"


@pytest.mark.parametrize(("children", "is_taken"), [(99, True), (100, False)])
def test_a_replacement_replaces_at_most_100_transactions(made: Regtest, children: int, is_taken: bool) -> None:
    first = made.submit_tx(spend([coinbase(made, 1)], 1_000, children))
    for index in range(children):
        made.submit_tx(spend([OutPoint(first, index)], 10, value=(COIN - 1_000) // children))
    raw = spend([coinbase(made, 1)], 100_000)
    if is_taken:
        made.submit_tx(raw)
        assert len(txids(made)) == 1
    else:
        assert reason(lambda: made.submit_tx(raw), made) == "too many potential replacements"


def test_a_payments_fee_is_bumped_from_its_change(made: Regtest) -> None:
    balance = made.balance
    first = made.pay(OURS.pays(70_000))
    second = made.bump(first)
    third = made.bump(second, fee=9_000)
    assert txids(made) == {third}
    tx = made.mempool.get(third)
    assert tx is not None
    assert tx.outputs[0] == OURS.pays(70_000)
    assert (made.mempool.fees[third], made.balance) == (9_000, balance - 70_000 - 9_000)
    assert reason(lambda: made.bump(third, fee=9_001), made) == "insufficient fee"
    with pytest.raises(ParameterError, match="output 1 is worth"):
        made.bump(third, fee=50 * COIN)
    for gone in (first, second, bytes(32)):
        with pytest.raises(ParameterError, match="in the mempool"):
            made.bump(gone)


@pytest.mark.descriptors
def test_a_payment_is_spent_bumped_and_evicted_with_descendants(made: Regtest) -> None:
    paid = made.pay(OURS.pays(70_000))
    spent = made.spend(OutPoint(paid, 0), outputs=[ANY.pays(20_000)], fee=300, keys=SECRETS)
    tx = made.mempool.get(spent)
    assert tx is not None
    assert tx.outputs == (ANY.pays(20_000), TxOut(49_700, OURS.script_pubkey))
    bumped = made.bump(spent, fee=2_000, keys=SECRETS)
    assert txids(made) == {paid, bumped}
    assert made.evict(paid) == [paid, bumped]
    assert txids(made) == set()
    made.mine()
    assert made.balance == 12 * COIN


@pytest.mark.descriptors
@pytest.mark.parametrize("in_block", [False, True])
def test_a_payment_is_double_spent(made: Regtest, in_block: bool) -> None:
    paid = made.pay(OURS.pays(70_000))
    child = made.spend(OutPoint(paid, 0), keys=SECRETS)
    rival = made.double_spend(paid, in_block=in_block)
    assert not {paid, child} & txids(made)
    assert (rival in made.chain.tip.txids) is in_block
    assert (rival in txids(made)) is not in_block
    if not in_block:
        assert reason(lambda: made.double_spend(rival, fee=0), made) == "insufficient fee"


@pytest.mark.descriptors
@pytest.mark.parametrize(
    "lock",
    [p2pk(KEY), p2pkh(KEY), p2wpkh(KEY), p2tr(KEY[1:]), p2sh(p2wpkh(KEY)), p2wsh(b"\x51"), multisig(1, [KEY])],
    ids=["P2PK", "P2PKH", "P2WPKH", "P2TR", "P2SH", "P2WSH", "multisig"],
)
def test_a_coin_of_every_type_is_spent(made: Regtest, lock: Lock) -> None:
    paid = made.pay(lock.pays(70_000))
    made.mine()
    spent = made.spend(OutPoint(paid, 0), fee=500, keys=SECRETS)
    tx = made.mempool.get(spent)
    assert tx is not None
    assert verify_spends(tx, [lock.pays(70_000)]).validity is not Validity.WRONG
    bumped = made.bump(spent, keys=SECRETS)
    rival = made.double_spend(bumped, keys=SECRETS)
    tx = made.mempool.get(rival)
    assert tx is not None
    assert verify_spends(tx, [lock.pays(70_000)]).validity is not Validity.WRONG
    made.mine()
    assert rival in made.chain.tip.txids
    with pytest.raises(ParameterError, match="neither in the chain nor in the mempool"):
        made.spend(OutPoint(paid, 0))


@pytest.mark.descriptors
def test_impossible_spends_have_clear_errors(made: Regtest) -> None:
    paid = OutPoint(made.pay(OURS.pays(70_000)), 0)
    with pytest.raises(ParameterError, match="at least one coin"):
        made.spend()
    with pytest.raises(ParameterError, match="twice"):
        made.spend(paid, paid)
    with pytest.raises(ParameterError, match="worth 70000 satoshi, but the outputs and the fee need 70001"):
        made.spend(paid, outputs=[ANY.pays(69_001)])
    with pytest.raises(ParameterError, match="at least 0 satoshi, not -1"):
        made.spend(paid, fee=-1)
    with pytest.raises(ParameterError, match="worth"):
        made.spend(paid, fee=70_000)  # nothing is left
    with pytest.raises(ParameterError, match="no private key in `keys` matches its script"):
        made.spend(paid, keys=[secret(2)])
    spent = made.spend(paid, keys=SECRETS)
    for act in (made.bump, made.double_spend):
        with pytest.raises(ParameterError, match="no private key in `keys` matches its script"):
            act(spent)
    with pytest.raises(RefusedError, match="insufficient fee"):
        made.spend(paid, outputs=[ANY.pays(1)], keys=SECRETS)
    assert TxIn(paid)
