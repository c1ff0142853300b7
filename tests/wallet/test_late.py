"""Unconfirmed transactions that match only once their parent comes: of rivals the one that came last counts, whenever
it matched.
"""

from __future__ import annotations

import pytest

from spvfilter.wallet.events import MatchFound, MatchWithdrawn
from support.build import TxIn, TxOut, tx, txid
from wallet.test_rivals import OURS, THEIRS, Wallet, coin, out, pay
from wallet.test_unfinished import begin, go_on

PARENT = pay(100, coin(9))
LATE = pay(50, coin(1), out(PARENT), to=THEIRS)
RIVAL = pay(90, coin(1))


@pytest.fixture
def wallet() -> Wallet:
    """Has heard of a spend of ours, which it cannot know, and then of its rival."""
    made = Wallet()
    assert made.hear(LATE) == []
    assert len(made.hear(RIVAL)) == 1
    return made


@pytest.mark.parametrize("in_block", [False, True])
def test_it_displaces_nothing_that_came_after_it(wallet: Wallet, in_block: bool) -> None:
    events = wallet.mine(PARENT) if in_block else wallet.hear(PARENT)
    assert not [event for event in events if isinstance(event, MatchWithdrawn)]
    parent = "confirmed" if in_block else "pending"
    assert wallet.statuses() == {txid(PARENT): parent, txid(RIVAL): "pending", txid(LATE): "replaced"}
    wallet.restart()
    if not in_block:
        wallet.mine(PARENT)
    wallet.mine(LATE)
    assert wallet.statuses() == {txid(PARENT): "confirmed", txid(RIVAL): "conflicted", txid(LATE): "confirmed"}


def test_it_counts_once_nothing_stands_against_it(wallet: Wallet) -> None:
    wallet.hear(PARENT)
    wallet.hear(RIVAL, own=True)
    wallet.tell(wallet.books.abandon(txid(RIVAL)))
    assert wallet.statuses() == {txid(PARENT): "pending", txid(RIVAL): "abandoned", txid(LATE): "pending"}
    assert wallet.pending == 0


def test_what_spends_from_it_counts_no_more_either() -> None:
    wallet, child = Wallet(), pay(30, out(LATE, 1))
    for raw in (LATE, child, RIVAL):
        wallet.hear(raw)
    wallet.hear(PARENT)
    assert wallet.statuses() == {
        txid(PARENT): "pending",
        txid(RIVAL): "pending",
        txid(LATE): "replaced",
        txid(child): "replaced",
    }
    assert wallet.pending == 190


def test_a_child_that_came_after_the_rival_shows_that_it_is_there(wallet: Wallet) -> None:
    child = pay(30, out(LATE, 1))
    wallet.hear(child)
    wallet.hear(PARENT)
    assert wallet.statuses() == {
        txid(PARENT): "pending",
        txid(RIVAL): "replaced",
        txid(LATE): "pending",
        txid(child): "pending",
    }
    assert wallet.pending == 30


def test_what_came_before_it_does_not_displace_it_by_matching_later() -> None:
    """When it came is not forgotten once it counts."""
    wallet, second = Wallet(), pay(10, coin(8))
    other = pay(40, coin(1), out(second), to=THEIRS)
    for raw in (other, LATE, PARENT):
        wallet.hear(raw)
    assert wallet.statuses() == {txid(PARENT): "pending", txid(LATE): "pending"}
    wallet.hear(second)
    assert wallet.statuses()[txid(LATE)] == "pending"
    assert wallet.statuses()[txid(other)] == "replaced"
    assert wallet.pending == 10


def test_a_later_one_that_does_not_match_stands_against_it() -> None:
    wallet, later = Wallet(), pay(40, coin(1), to=THEIRS)
    for raw in (LATE, later, PARENT):
        wallet.hear(raw)
    assert wallet.statuses() == {txid(PARENT): "pending", txid(LATE): "replaced"}
    assert wallet.pending == 100


def test_what_it_displaced_does_not_count_while_it_waits_to_be_matched() -> None:
    wallet, parent = Wallet(), tx([TxIn(coin(9)[:32], 0)], [TxOut(1, OURS)] * 130)
    before, late, other = (
        pay(90, coin(1), coin(2)),
        pay(50, coin(1), out(parent), to=THEIRS),
        pay(20, coin(2), to=THEIRS),
    )
    for raw in (before, late):
        wallet.hear(raw)
    wallet.hear(other, own=True)
    begin(wallet, parent, 40)
    assert wallet.books.unconfirmed.unfinished.late
    assert not [each for each in wallet.tell(wallet.books.abandon(txid(other))) if isinstance(each, MatchFound)]
    assert not [each for each in go_on(wallet) if isinstance(each, MatchFound) and each.match.txid == txid(before)]
    assert wallet.statuses()[txid(late)] == "pending"
    assert wallet.statuses()[txid(before)] == "replaced"
