"""Histories: statuses, balances and rows after random changes, against a naive computation, and their cost."""

from __future__ import annotations

import hashlib
import random

import pytest

from spvfilter.electrum import histories
from spvfilter.electrum.histories import Histories, script_hash_of
from spvfilter.primitives import hash_to_hex
from spvfilter.store.scriptviews import OutputEffect, TxEffects

SCRIPTS = [bytes((0, 20)) + bytes((number,)) * 20 for number in range(3)]


def wallet_tx(number: int, height: int | None, position: int, *scripts: bytes) -> TxEffects:
    txid = hashlib.sha256(b"%d" % number).digest()
    effects = tuple(OutputEffect(script, txid + bytes((at, 0, 0, 0)), 5, False) for at, script in enumerate(scripts))
    return TxEffects(txid, height, position, effects, has_unconfirmed_parent=height is None and number % 2 == 0)


def naive_status(txs: list[TxEffects], script: bytes) -> str | None:
    """Return the status hash by the words of the protocol."""
    mine = [tx for tx in txs if any(effect.script == script for effect in tx.effects)]
    confirmed = sorted((tx.height, tx.position, hash_to_hex(tx.txid)) for tx in mine if tx.height is not None)
    pending = sorted((tx.has_unconfirmed_parent, hash_to_hex(tx.txid)) for tx in mine if tx.height is None)
    rows = [f"{txid}:{height}:" for height, _, txid in confirmed]
    rows += [f"{txid}:{-int(is_child)}:" for is_child, txid in pending]
    return hashlib.sha256("".join(rows).encode()).hexdigest() if rows else None


@pytest.mark.parametrize("seed", range(10))
def test_status_follows_every_change(seed: int) -> None:
    """Transactions come in any order, are confirmed, move to other blocks, and leave."""
    rng, made, present = random.Random(seed), Histories(), dict[bytes, TxEffects]()
    for _ in range(150):
        number = rng.randrange(40)
        height = rng.choice([None, *range(1, 12)])
        changed = wallet_tx(number, height, number, *rng.sample(SCRIPTS, rng.randint(1, 3)))
        if changed.txid in present and rng.random() < 0.5:
            del present[changed.txid]
        else:
            present[changed.txid] = changed
        pending = [tx for tx in present.values() if tx.height is None]
        found = {tx.txid: tx for tx in (*pending, *filter(None, [present.get(changed.txid)]))}
        made.replace(found.values(), [changed.txid])
        for script in SCRIPTS:
            script_hash, expected = script_hash_of(script), naive_status([*present.values()], script)
            assert made.status(script_hash) == expected
            assert (script_hash in made) == (expected is not None)
            rows = made.history(script_hash)
            text = "".join(f"{row['tx_hash']}:{row['height']}:" for row in rows)
            assert (hashlib.sha256(text.encode()).hexdigest() if rows else None) == expected
            mine = [tx for tx in present.values() if any(effect.script == script for effect in tx.effects)]
            confirmed = 5 * sum(tx.height is not None for tx in mine)
            assert made.balance(script_hash) == {"confirmed": confirmed, "unconfirmed": 5 * len(mine) - confirmed}
            assert len(made.unspent(script_hash, ())) == len(mine)


def test_unspent_lists_confirmed_coins_in_chain_order_then_pending_ones() -> None:
    script, made = SCRIPTS[0], Histories()
    first, second, payment, pending_spend, spend = [bytes((number,)) * 32 for number in (3, 4, 1, 2, 5)]

    def coin(txid: bytes, index: int, value: int, *, is_spend: bool = False) -> OutputEffect:
        return OutputEffect(script, txid + index.to_bytes(4, "little"), value, is_spend)

    made.replace(
        [
            TxEffects(second, 6, 0, (coin(second, 256, 10), coin(second, 2, 20))),
            TxEffects(first, 5, 9, (coin(first, 1, 30), coin(first, 0, 40))),
            TxEffects(payment, None, 0, (coin(payment, 0, 50),)),
            TxEffects(pending_spend, None, 0, (coin(second, 2, 20, is_spend=True), coin(pending_spend, 0, 19))),
            TxEffects(spend, 6, 1, (coin(first, 1, 30, is_spend=True),)),
        ]
    )
    rows = [(first, 0, 5, 40), (second, 2, 6, 20), (second, 256, 6, 10), (payment, 0, 0, 50), (pending_spend, 0, 0, 19)]
    listed = [
        {"tx_hash": hash_to_hex(txid), "tx_pos": index, "height": height, "value": value}
        for txid, index, height, value in rows
    ]
    assert made.unspent(script_hash_of(script), ()) == listed
    reserved = [second + bytes((2, 0, 0, 0)), payment + bytes(4)]
    assert made.unspent(script_hash_of(script), reserved) == [listed[0], listed[2], listed[4]]
    assert made.balance(script_hash_of(script)) == {"confirmed": 70, "unconfirmed": 49}


def test_change_concerns_the_children_and_nothing_else() -> None:
    """A payment among 1,000 unconfirmed ones would otherwise read all of them."""
    made, hidden = Histories(), hashlib.sha256(b"a parent without a match").digest()
    first, *others = [wallet_tx(number, None, 0, SCRIPTS[0]) for number in range(1_000)]
    child = wallet_tx(1_001, None, 0, SCRIPTS[1])._replace(parents=(first.txid, hidden), has_unconfirmed_parent=True)
    sibling = wallet_tx(1_003, None, 0, SCRIPTS[1])._replace(parents=(hidden,))
    made.replace([first, *others, child, sibling])

    def affected(*named: bytes, block: bool = False, reorg: bool = False) -> set[bytes]:
        return made.affected(named, has_block=block, has_reorg=reorg)

    assert affected(others[7].txid) == {others[7].txid}
    assert affected(first.txid) == {first.txid, child.txid}
    assert affected(hidden) == {hidden, child.txid, sibling.txid}
    assert affected() == set()
    assert affected(block=True) == {child.txid}
    assert affected(reorg=True) == {child.txid, sibling.txid}
    made.replace([child._replace(height=7, parents=(), has_unconfirmed_parent=False)], [child.txid])
    made.replace([], [sibling.txid])
    assert affected(first.txid, block=True, reorg=True) == {first.txid}


def test_new_payment_hashes_only_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of 10,000 transactions would otherwise hold the event loop at each payment."""
    made, shown = Histories(), list[bytes]()

    def show(txid: bytes) -> str:
        shown.append(txid)
        return hash_to_hex(txid)

    made.replace([wallet_tx(number, number, 0, SCRIPTS[0]) for number in range(1_000)])
    monkeypatch.setattr(histories, "hash_to_hex", show)
    for number in range(1_000, 1_010):
        made.replace([wallet_tx(number, number, 0, SCRIPTS[0])], [])
        assert made.status(script_hash_of(SCRIPTS[0])) is not None
    assert len(shown) == 10
