"""Unconfirmed transactions that were broadcast here and that strangers contradict: what is offered is what the user sent last."""

from __future__ import annotations

import pytest

from spvfilter.errors import ParameterError
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.refusals import check_broadcast
from spvfilter.wallet.unconfirmed import MAX_DISPLACED
from support.build import TxIn, TxOut, tx, txid
from wallet.test_rivals import OURS, THEIRS, Wallet, coin, out, pay


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def invent_chain(wallet: Wallet, upon: bytes) -> list[bytes]:
    """Strangers' unconfirmed payments, the first of which spends an output, each later one the one before: too many to be displaced."""
    chain = [pay(500, out(upon))]
    for _ in range(MAX_DISPLACED):
        chain.append(pay(500, out(chain[-1])))
    for raw in chain:
        wallet.hear(raw)
    return chain


def test_a_chain_that_strangers_invent_keeps_no_coin_from_being_spent(wallet: Wallet) -> None:
    """A spend of what they have paid was refused for as long as they invented: it would have moved too much."""
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    chain = invent_chain(wallet, funding)
    own = pay(900, out(funding), to=THEIRS)
    check_broadcast(wallet.books, Transaction.parse(own))
    wallet.hear(own, own=True)
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == [(txid(own), own)]
        assert wallet.statuses()[txid(own)] == "replaced"
        wallet.restart()
    wallet.mine(own)
    statuses = {entry.txid: entry.status for entry in wallet.store.views.history(limit=None)}
    assert statuses[txid(own)] is TxStatus.CONFIRMED
    assert {statuses[txid(raw)] for raw in chain} == {TxStatus.CONFLICTED}
    assert wallet.store.views.balance().total == 0


def test_it_counts_once_they_are_gone(wallet: Wallet) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    invent_chain(wallet, funding)
    wallet.now += 10
    own = pay(900, out(funding), to=THEIRS)
    wallet.hear(own, own=True)
    for _ in range(2 * MAX_DISPLACED):
        wallet.tell(wallet.books.expire(wallet.now - 5 + MEMPOOL_EXPIRY_S))
    assert wallet.statuses()[txid(own)] == "pending"
    assert wallet.store.views.balance().pending_out == 1_000


def test_of_ours_that_strangers_have_replaced_the_one_broadcast_last_is_offered(wallet: Wallet) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    first, bump = (pay(value, out(funding), to=THEIRS) for value in (950, 900))
    wallet.hear(first, own=True)
    invent_chain(wallet, funding)
    for raw in (bump, first, bump):
        wallet.hear(raw, own=True)
        assert wallet.books.own_unconfirmed() == [(txid(raw), raw)]
        wallet.restart()
        assert wallet.books.own_unconfirmed() == [(txid(raw), raw)]
    statuses = {entry.txid: entry.status for entry in wallet.store.views.history(limit=None)}
    assert statuses[txid(first)] is statuses[txid(bump)] is TxStatus.REPLACED


def test_what_strangers_invent_upon_ours_does_not_keep_it_from_being_replaced(wallet: Wallet) -> None:
    """Who was paid could keep us from taking it back, or from paying a higher fee, by a chain of payments that it invents."""
    wallet.mine(funding := pay(1_000, coin(1)))
    first = pay(100, out(funding), to=THEIRS)
    wallet.hear(first, own=True)
    chain = invent_chain(wallet, first)
    bump = pay(900, out(funding))
    check_broadcast(wallet.books, Transaction.parse(bump))
    wallet.hear(bump, own=True)
    for _ in range(2):
        assert (txid(bump), bump) in wallet.books.own_unconfirmed()
        wallet.restart()
    wallet.mine(bump)
    statuses = {entry.txid: entry.status for entry in wallet.store.views.history(limit=None)}
    assert statuses[txid(bump)] is TxStatus.CONFIRMED
    assert {statuses[txid(raw)] for raw in (first, *chain)} == {TxStatus.CONFLICTED}


def test_what_spends_from_its_own_rival_is_refused_though_others_made_that(wallet: Wallet) -> None:
    """No block can have it."""
    wallet.mine(funding := pay(1_000, coin(1)))
    wallet.hear(theirs := pay(500, out(funding)))
    with pytest.raises(ParameterError, match="what its own ancestors spend"):
        check_broadcast(wallet.books, Transaction.parse(pay(5, out(theirs), out(funding))))


def test_what_spends_from_ours_is_replaced_with_it_though_strangers_had_replaced_both(wallet: Wallet) -> None:
    """Offered, it brings its parent along."""
    wallet.mine(funding := pay(1_000, coin(1)))
    first = pay(950, out(funding))
    child = pay(900, out(first), to=THEIRS)
    for raw in (first, child):
        wallet.hear(raw, own=True)
    wallet.hear(pay(500, out(funding)))
    assert wallet.books.own_unconfirmed() == [(txid(first), first), (txid(child), child)]
    bump = pay(800, out(funding))
    wallet.hear(bump, own=True)
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
        wallet.restart()
    wallet.tell(wallet.books.abandon(txid(bump), refused=True))
    assert {each for each, _ in wallet.books.own_unconfirmed()} == {txid(first), txid(child)}


def test_what_spends_from_ours_is_offered_with_it_when_that_is_broadcast_again(wallet: Wallet) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    first, bump = (pay(value, out(funding)) for value in (950, 900))
    child = pay(800, out(bump))
    for raw in (first, bump, child):
        wallet.hear(raw, own=True)
    invent_chain(wallet, funding)
    for raw, offered in ((first, [first]), (bump, [bump, child])):
        wallet.hear(raw, own=True)
        assert [each for _, each in wallet.books.own_unconfirmed()] == offered
        wallet.restart()
        assert [each for _, each in wallet.books.own_unconfirmed()] == offered


def test_what_replaces_ours_is_not_abandoned_with_it_where_strangers_have_replaced_both(wallet: Wallet) -> None:
    """Anybody may have invented that rival: what the user has sent instead was not offered any more."""
    wallet.mine(funding := pay(1_000, coin(1)))
    first, bump, last = (pay(value, out(funding), to=THEIRS) for value in (950, 900, 850))
    for raw in (first, bump, last):
        wallet.hear(raw, own=True)
    wallet.hear(pay(500, out(funding)))
    wallet.tell(wallet.books.abandon(txid(bump)))
    assert wallet.books.own_unconfirmed() == [(txid(last), last)]
    assert [wallet.statuses()[txid(raw)] for raw in (first, bump, last)] == ["abandoned", "abandoned", "replaced"]


def test_what_spends_from_ours_is_not_refused_though_a_chain_that_strangers_invent_has_replaced_that(wallet: Wallet) -> None:
    """Ours was offered on, but no higher fee could be paid for it, and its change not be spent: a child was refused."""
    wallet.mine(funding := pay(1_000, coin(1)))
    wallet.hear(first := pay(950, out(funding)), own=True)
    invent_chain(wallet, funding)
    wallet.now += 10
    child = pay(900, out(first), to=THEIRS)
    check_broadcast(wallet.books, Transaction.parse(child))
    wallet.hear(child, own=True)
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == [(txid(first), first), (txid(child), child)]
        wallet.restart()
    with pytest.raises(ParameterError, match="what its own ancestors spend"):
        check_broadcast(wallet.books, Transaction.parse(pay(5, out(first), out(funding))))
    wallet.mine(first)
    assert wallet.statuses()[txid(child)] == "pending"


def test_of_what_strangers_invent_upon_a_coin_no_more_is_looked_at_than_could_be_replaced(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred transactions of 11,000 outputs each: that took 0.3 s of a broadcast, twice."""
    wallet.mine(funding := pay(1_000, coin(1)))
    at = out(funding)
    for _ in range(6):
        wallet.hear(raw := tx([TxIn(at[:32], 0)], [TxOut(500, OURS), *[TxOut(0, b"")] * 4_000]))
        at = out(raw)
    looked_at = list[bytes]()
    spenders = wallet.books.unconfirmed.spenders

    def noted(outpoint: bytes) -> list[bytes]:
        looked_at.append(outpoint)
        return spenders(outpoint)

    monkeypatch.setattr(wallet.books.unconfirmed, "spenders", noted)
    own = Transaction.parse(pay(900, out(funding), to=THEIRS))
    assert wallet.books.unconfirmed.contest(own, own=True) is None
    looked_at.clear()
    assert wallet.books.rival_of(own) is not None
    assert len(looked_at) < 10_000
