"""Transactions that wait for a second network group: how they expire, are evicted, restarted, confirmed, and leave."""

from __future__ import annotations

import random

import pytest

from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.ledger import TxStatus
from spvfilter.wallet.pendinglimits import PendingLimits
from support.blocks.build import txid
from support.wallets.walletbooks import OURS, THEIRS, Wallet, coin, out, pay


def waiting(wallet: Wallet) -> list[bytes]:
    return [entry.txid for entry in wallet.store.views.history(waiting=True)]


def answers(wallet: Wallet) -> list[object]:
    """Answers to the questions, without waiting transactions."""
    views = wallet.store.views
    return [views.balance(), [*views.coins()], [*views.history()], views.effects(), views.reserved(), views.sequence()]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_waiting_transaction_expires_without_an_event(restarts: bool) -> None:
    wallet = Wallet()
    before = answers(wallet)
    raw = pay(9_000, coin(1))
    assert wallet.observe(raw, "a", quorum=2) == []
    assert waiting(wallet) == [txid(raw)]
    if restarts:
        wallet.restart()
        assert waiting(wallet) == [txid(raw)]
    wallet.now += MEMPOOL_EXPIRY_S + 1
    assert wallet.tell(wallet.books.expire(wallet.now)) == []
    assert waiting(wallet) == []
    assert not wallet.books.judgement.waiting
    assert answers(wallet) == before
    wallet.restart()
    assert wallet.books.opening == []
    assert answers(wallet) == before


@pytest.mark.parametrize("restarts", [False, True])
def test_a_payment_counts_once_enough_groups_announced_it(restarts: bool) -> None:
    wallet = Wallet()
    raw = pay(9_000, coin(1))
    wallet.observe(raw, "a", quorum=3)
    assert wallet.tell(wallet.books.announce(txid(raw), ("a",), quorum=3)) == []
    assert wallet.tell(wallet.books.announce(txid(raw), ("b",), quorum=3)) == []
    if restarts:
        wallet.restart()
    assert (wallet.books.waiting_matches, wallet.pending) == (1, 0)
    assert len(wallet.tell(wallet.books.announce(txid(raw), ("c",), quorum=3))) == 1
    assert (wallet.books.waiting_matches, wallet.pending) == (0, 9_000)


@pytest.mark.parametrize("restarts", [False, True])
def test_only_payments_are_listed_and_only_while_they_wait(restarts: bool) -> None:
    wallet = Wallet()
    parent = pay(50, coin(1), to=THEIRS)
    child = pay(40, out(parent))
    wallet.observe(parent, "a", quorum=2)
    wallet.observe(child, "a", quorum=2)
    assert wallet.books.judgement.is_waiting(txid(parent))
    assert waiting(wallet) == [txid(child)]
    if restarts:
        wallet.restart()
    wallet.mine(pay(30, coin(1), to=THEIRS))  # conflicts with both
    assert waiting(wallet) == []
    assert wallet.statuses() == {}


def test_evidence_of_a_child_leaves_its_parent_as_it_was() -> None:
    wallet = Wallet()
    parent, child = pay(9_000, coin(1)), pay(8_000, out(pay(9_000, coin(1))))
    wallet.observe(parent, "a", "b", quorum=2)
    before = wallet.books.facts.record(txid(parent))
    wallet.observe(child, "a", quorum=2)
    wallet.tell(wallet.books.announce(txid(child), ("b",), quorum=2))
    assert wallet.pending == 8_000
    assert wallet.books.facts.record(txid(parent)) == before


def test_an_expired_one_counts_if_two_groups_announce_it_later() -> None:
    wallet = Wallet()
    raw = pay(9_000, coin(1))
    wallet.observe(raw, "a", quorum=2)
    wallet.now += MEMPOOL_EXPIRY_S + 1
    wallet.tell(wallet.books.expire(wallet.now))
    wallet.observe(raw, "a", "b", quorum=2)
    assert wallet.statuses() == {txid(raw): "pending"}
    assert wallet.pending == 9_000


def test_a_counted_transaction_expires_with_its_events() -> None:
    wallet = Wallet()
    raw = pay(9_000, coin(1))
    assert len(wallet.observe(raw, "a", "b", quorum=2)) == 1
    wallet.now += MEMPOOL_EXPIRY_S + 1
    assert len(wallet.tell(wallet.books.expire(wallet.now))) == 1
    assert wallet.pending == 0
    assert wallet.store.views.effects() == []


def test_a_new_label_reaches_transactions_that_do_not_count() -> None:
    wallet = Wallet()
    replaced, bump, announced = pay(900, coin(1)), pay(800, coin(1)), pay(9_000, coin(2))
    wallet.broadcast(replaced)
    wallet.broadcast(bump)
    wallet.observe(announced, "a", quorum=2)
    wallet.books.watch.relabel(0, "rent")
    wallet.books.relabel({0: "rent"})
    wallet.tell(())
    views = wallet.store.views
    labels = {entry.txid: entry.labels for entry in (*views.history(waiting=True), *views.history(limit=None))}
    assert labels == dict.fromkeys(map(txid, (replaced, bump, announced)), ("rent",))


def test_evicted_waiting_transactions_change_no_answer() -> None:
    """One peer fills the layer. The counted payment stays, and no event reports the others."""
    wallet = Wallet(PendingLimits(number=5))
    counted = pay(9_000, coin(1))
    wallet.observe(counted, "a", "b", quorum=2)
    before = answers(wallet)
    for number in range(2, 40):
        assert wallet.observe(pay(100 + number, coin(number)), "c", quorum=2) == []
        assert len(waiting(wallet)) <= 5
        assert answers(wallet) == before
    wallet.restart()
    assert answers(wallet) == before


def test_a_waiting_transaction_that_a_block_contains_is_confirmed() -> None:
    wallet = Wallet()
    raw = pay(9_000, coin(1))
    wallet.observe(raw, "a", quorum=2)
    wallet.mine(raw)
    assert waiting(wallet) == []
    assert wallet.statuses() == {txid(raw): "confirmed"}
    wallet.reorganize()
    assert wallet.statuses()[txid(raw)] == "pending"  # a block is better evidence than a second group


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(6))
def test_one_hostile_group_changes_no_answer(seed: int) -> None:
    """Twins: one of them also hears payments, conflicts and children from one group, expires and restarts."""
    rng = random.Random(seed)
    plain, told = Wallet(PendingLimits(number=12)), Wallet(PendingLimits(number=12))
    honest, invented, mined = [pay(1_000 + n, coin(n)) for n in range(1, 6)], list[bytes](), list[bytes]()
    for number in range(40):
        match rng.randrange(5):
            case 0 if len(mined) < len(honest):
                raw = honest[len(mined)]
                mined.append(raw)
                for each in (plain, told):
                    each.mine(raw)
            case 1:
                told.restart()
            case 2:
                told.tell(told.books.expire(told.now))
            case _:
                spent = rng.choice([coin(100 + rng.randrange(8)), coin(1 + rng.randrange(7)), *map(out, invented)])
                raw = pay(500 + number, spent, to=rng.choice([OURS, THEIRS]))
                invented.append(raw)
                told.observe(raw, "stranger", quorum=2)
        told.now = plain.now = max(told.now, plain.now)
        mine, theirs = (answers(each) for each in (plain, told))
        assert theirs == mine
    assert {*waiting(told)} <= {txid(raw) for raw in invented}
    assert all(status == TxStatus.CONFIRMED for status in told.statuses().values())
