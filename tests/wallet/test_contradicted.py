"""Unconfirmed transactions that were broadcast here and that strangers contradict: what is offered is what the user
sent last.
"""

from __future__ import annotations

import pytest

from spvfilter.errors import ParameterError
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet import unconfirmed
from spvfilter.wallet.refusals import check_broadcast
from spvfilter.wallet.unconfirmed import MAX_DISPLACED
from support.build import TxIn, TxOut, tx, txid
from wallet.test_rivals import OURS, THEIRS, Wallet, coin, out, pay


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def invent_chain(wallet: Wallet, upon: bytes) -> list[bytes]:
    """Strangers' unconfirmed payments, the first of which spends an output, each later one the one before: too many to
    be displaced.
    """
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
    """Who was paid could keep us from taking it back, or from paying a higher fee, by a chain of payments that it
    invents.
    """
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
    with pytest.raises(ParameterError, match="conflicts with its own ancestors"):
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


def test_what_spends_from_ours_is_not_refused_though_a_chain_that_strangers_invent_has_replaced_that(
    wallet: Wallet,
) -> None:
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
    with pytest.raises(ParameterError, match="conflicts with its own ancestors"):
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


def test_what_ours_replaced_is_not_offered_after_a_reorganisation_though_others_had_replaced_it_before(
    wallet: Wallet,
) -> None:
    """All come back in turn, and theirs stands against the first again."""
    wallet.mine(funding := pay(1_000, coin(1)))
    first, theirs, bump = (pay(value, out(funding), to=THEIRS) for value in (950, 500, 900))
    wallet.hear(first, own=True)
    wallet.hear(theirs)
    wallet.hear(bump, own=True)
    assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
    wallet.mine(bump)
    wallet.reorganise()
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
        wallet.restart()
    assert [wallet.statuses()[txid(raw)] for raw in (first, theirs, bump)] == ["replaced", "replaced", "pending"]


def test_what_replaces_ours_is_not_abandoned_with_it_where_strangers_have_invented_what_spends_from_that(
    wallet: Wallet,
) -> None:
    """It cannot count, so it was taken for what the first had replaced: what the user had sent instead was not offered
    any more.
    """
    wallet.mine(funding := pay(1_000, coin(1)))
    wallet.hear(first := pay(100, out(funding), to=THEIRS), own=True)
    chain = invent_chain(wallet, first)
    wallet.hear(bump := pay(900, out(funding)), own=True)
    wallet.tell(wallet.books.abandon(txid(first)))
    assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
    statuses = {entry.txid: entry.status for entry in wallet.store.views.history(limit=None)}
    assert statuses[txid(bump)] is TxStatus.PENDING
    assert {statuses[txid(raw)] for raw in (first, *chain)} == {TxStatus.ABANDONED}


@pytest.mark.parametrize("is_chain", [False, True])
def test_ours_whose_parent_another_of_ours_had_replaced_replaces_that_with_it(is_chain: bool, wallet: Wallet) -> None:
    """As it does where strangers have replaced neither: both were offered."""
    wallet.mine(funding := pay(1_000, coin(1)))
    first, bump = (pay(value, out(funding)) for value in (950, 900))
    for raw in (first, bump):
        wallet.hear(raw, own=True)
    if is_chain:
        invent_chain(wallet, funding)
    else:
        wallet.hear(pay(500, out(funding)))
    assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
    child = pay(800, out(first), to=THEIRS)
    wallet.hear(child, own=True)
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == [(txid(first), first), (txid(child), child)]
        wallet.restart()
    wallet.hear(bump, own=True)
    assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]


def test_what_the_user_has_replaced_is_not_offered_though_a_stranger_contradicts_an_input_that_was_added(
    wallet: Wallet,
) -> None:
    """It counts then, since it is what miners may take; what replaced it is offered, and takes its place once the
    stranger's is gone.
    """
    wallet.mine(funding := pay(1_000, coin(1)), other := pay(1_000, coin(2)))
    first, bump = pay(950, out(funding)), pay(1_900, out(funding), out(other))
    for raw in (first, bump):
        wallet.hear(raw, own=True)
    wallet.now += 10
    wallet.hear(theirs := pay(500, out(other)))
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
        assert [wallet.statuses()[txid(raw)] for raw in (first, bump, theirs)] == ["pending", "replaced", "pending"]
        wallet.restart()
    wallet.tell(wallet.books.abandon(txid(bump), refused=True))
    assert wallet.books.own_unconfirmed() == [(txid(first), first)]
    wallet.hear(bump, own=True)
    assert [wallet.statuses()[txid(raw)] for raw in (first, bump, theirs)] == ["replaced", "pending", "replaced"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_the_user_wants_counts_in_place_of_what_it_replaced_once_what_strangers_invented_is_gone(
    restarts: bool, wallet: Wallet
) -> None:
    wallet.mine(funding := pay(1_000, coin(1)), other := pay(1_000, coin(2)))
    wallet.hear(theirs := pay(500, out(other)))
    wallet.now += 1_000
    first, bump = pay(950, out(funding)), pay(1_900, out(funding), out(other))
    for raw in (first, bump):
        wallet.hear(raw, own=True)
    wallet.tell(wallet.books.see_again(txid(theirs)))
    assert [wallet.statuses()[txid(raw)] for raw in (first, bump, theirs)] == ["pending", "replaced", "pending"]
    if restarts:
        wallet.restart()
    wallet.tell(wallet.books.expire(wallet.now - 900 + MEMPOOL_EXPIRY_S))
    assert [wallet.statuses()[txid(raw)] for raw in (first, bump)] == ["replaced", "pending"]
    assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]


def test_what_counts_is_not_offered_where_it_was_replaced_by_ours_that_does_not(wallet: Wallet) -> None:
    """Strangers' chain upon the first keeps it there: who was paid had it offered beside what took it back."""
    wallet.mine(funding := pay(1_000, coin(1)))
    wallet.hear(first := pay(100, out(funding), to=THEIRS), own=True)
    chain = invent_chain(wallet, first)
    wallet.hear(bump := pay(900, out(funding)), own=True)
    for _ in range(2):
        known = wallet.books.unconfirmed.pending
        assert [known[txid(raw)].status for raw in (first, bump)] == [TxStatus.PENDING, TxStatus.REPLACED]
        assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
        wallet.restart()
    wallet.tell(wallet.books.abandon(txid(bump)))
    statuses = {entry.txid: entry.status for entry in wallet.store.views.history(limit=None)}
    assert {statuses[txid(raw)] for raw in (first, bump, *chain)} == {TxStatus.ABANDONED}


@pytest.mark.parametrize("restarts", [False, True])
def test_of_ours_the_one_that_was_broadcast_last_counts_once_what_strangers_invented_is_gone(
    restarts: bool, wallet: Wallet
) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    invent_chain(wallet, funding)
    wallet.now += 1_000
    first, bump = (pay(value, out(funding), to=THEIRS) for value in (950, 900))
    for raw in (first, bump, first):
        wallet.hear(raw, own=True)
    if restarts:
        wallet.restart()
    for _ in range(2 * MAX_DISPLACED):
        wallet.tell(wallet.books.expire(wallet.now - 900 + MEMPOOL_EXPIRY_S))
    assert [wallet.statuses()[txid(raw)] for raw in (first, bump)] == ["pending", "replaced"]
    assert wallet.books.own_unconfirmed() == [(txid(first), first)]


def test_what_is_forgotten_of_strangers_rivals_while_ours_takes_its_place_again_ends_no_client(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a stranger's transaction had just displaced was forgotten with that, and looked for after it: a KeyError, at
    each start anew.
    """
    monkeypatch.setattr(unconfirmed, "MAX_RIVALS", 4)
    wallet.mine(funding := pay(1_000, coin(1)), other := pay(1_000, coin(2)))
    first, bump = pay(950, out(funding)), pay(1_900, out(funding), out(other))
    for raw in (first, bump):
        wallet.hear(raw, own=True)
    wallet.hear(theirs := pay(500, out(other), coin(9)))
    for value in range(5):
        wallet.hear(pay(100 - value, coin(20)))
    wallet.hear(pay(10, coin(9)))
    assert [wallet.statuses().get(txid(raw)) for raw in (first, bump, theirs)] == ["replaced", "pending", None]


def upgrade(wallet: Wallet) -> None:
    """Restart with a database of an earlier version, where all that was broadcast here has the number 1."""
    known = wallet.store.unconfirmed()
    wallet.store.commit(Batch(transactions={txid: tx._replace(own=1) for txid, tx in known.items() if tx.own}))
    wallet.restart()


def test_with_what_replaced_ours_in_an_earlier_version_that_is_abandoned_too(wallet: Wallet) -> None:
    """It was offered again, to be paid after all."""
    wallet.mine(funding := pay(1_000, coin(1)))
    for value in (950, 900):
        wallet.hear(last := pay(value, out(funding)), own=True)
    upgrade(wallet)
    assert wallet.books.own_unconfirmed() == [(txid(last), last)]
    wallet.tell(wallet.books.abandon(txid(last)))
    assert wallet.books.own_unconfirmed() == []


def test_what_was_sent_last_in_an_earlier_version_stays_wanted_when_strangers_replace_it(wallet: Wallet) -> None:
    """With the next start another one was: of those with the same number it is what counts."""
    wallet.mine(funding := pay(1_000, coin(1)), other := pay(1_000, coin(2)))
    first, bump = pay(950, out(funding)), pay(1_900, out(funding), out(other))
    for raw in (first, bump):
        wallet.hear(raw, own=True)
    upgrade(wallet)
    wallet.hear(pay(500, out(other)))
    for _ in range(2):
        assert [wallet.statuses()[txid(raw)] for raw in (first, bump)] == ["pending", "replaced"]
        assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
        wallet.restart()


def test_of_a_database_of_an_earlier_version_what_strangers_have_replaced_is_wanted_before_what_ours_has(
    wallet: Wallet,
) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    first, bump = pay(950, out(funding)), pay(900, out(funding))
    for raw in (first, bump, first):
        wallet.hear(raw, own=True)
    wallet.hear(pay(500, out(funding)))
    upgrade(wallet)
    assert wallet.books.own_unconfirmed() == [(txid(first), first)]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_wanted_again_because_a_child_of_what_it_replaced_has_ended_counts_again(
    restarts: bool, wallet: Wallet
) -> None:
    """It was offered, but what it had replaced counted, with nothing of others beside it."""
    wallet.mine(funding := pay(1_000, coin(1)))
    first, bump = (pay(value, out(funding)) for value in (950, 900))
    child = pay(800, out(first), to=THEIRS)
    for raw in (first, bump, child):
        wallet.hear(raw, own=True)
    if restarts:
        wallet.restart()
    assert wallet.books.own_unconfirmed() == [(txid(first), first), (txid(child), child)]
    wallet.tell(wallet.books.abandon(txid(child)))
    assert wallet.books.own_unconfirmed() == [(txid(bump), bump)]
    assert [wallet.statuses()[txid(raw)] for raw in (first, bump)] == ["replaced", "pending"]
