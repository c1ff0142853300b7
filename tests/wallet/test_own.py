"""Unconfirmed transactions that were broadcast here: refused, abandoned, in conflict, in the order in which they are
offered.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spvfilter.errors import ParameterError, TxConflictError
from spvfilter.kernel import EntryKind, Hit
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.ledger import StoredMatch, TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.endings import MAX_ENDED
from spvfilter.wallet.events import MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.refusals import check_abandon, check_broadcast
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wallet.unconfirmed import MAX_INVENTED_MATCHES
from support.build import TxIn, TxOut, coinbase, p2wpkh, tx, txid
from wallet.test_rivals import OURS, THEIRS, Wallet, coin, out, pay


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def test_an_own_fee_bump_counts_once(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    first, bump = (tx([TxIn(txid(funding), 0)], [TxOut(250, THEIRS), TxOut(change, OURS)]) for change in (740, 700))
    wallet.hear(first, own=True)
    wallet.hear(bump, own=True)
    balance = wallet.store.views.balance()
    assert (balance.total, balance.pending_in, balance.pending_out) == (700, 700, 1_000)
    entry = wallet.store.views.transaction(txid(bump))
    assert entry is not None
    assert (entry.net, entry.fee) == (-300, 50)
    assert [each for each, _ in wallet.books.own_unconfirmed()] == [txid(bump)]  # the first is offered no more
    wallet.mine(bump)
    assert wallet.statuses() == {txid(funding): "confirmed", txid(bump): "confirmed", txid(first): "conflicted"}


def test_an_abandoned_transaction_frees_its_coins_for_good_unless_a_block_has_it(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    first, bump = pay(900, out(funding)), pay(800, out(funding))
    child = pay(700, out(bump))
    for raw in (first, bump, child):
        wallet.hear(raw, own=True)
    assert wallet.store.views.balance().spendable == 0
    events = wallet.tell(wallet.books.abandon(txid(bump)))
    assert {event.reason for event in events if isinstance(event, MatchWithdrawn)} == {Reason.ABANDONED}
    assert wallet.store.views.balance().spendable == 1_000
    for _ in range(2):
        assert wallet.books.own_unconfirmed() == []
        for raw in (first, bump, child):
            assert wallet.hear(raw) == []  # from a peer that has it yet
        assert {wallet.statuses()[txid(raw)] for raw in (first, bump, child)} == {"abandoned"}
        wallet.restart()
    wallet.mine(bump)
    assert wallet.statuses()[txid(bump)] == "confirmed"
    assert wallet.store.views.balance().total == 800
    with pytest.raises(ParameterError, match="not an unconfirmed transaction"):
        check_abandon(wallet.books, txid(bump))


def test_abandoning_is_taken_back_by_broadcasting_again(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    spend = pay(900, out(funding))
    wallet.hear(spend, own=True)
    wallet.tell(wallet.books.abandon(txid(spend)))
    wallet.hear(spend, own=True)
    assert wallet.statuses()[txid(spend)] == "pending"


def test_what_others_sent_cannot_be_abandoned(wallet: Wallet) -> None:
    raw = pay(100, coin(1))
    wallet.hear(raw)
    with pytest.raises(ParameterError, match="not broadcast here"):
        check_abandon(wallet.books, txid(raw))


def test_an_own_transaction_that_a_stranger_contradicts_is_still_offered(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    own = pay(900, out(funding))
    wallet.hear(own, own=True)
    wallet.hear(pay(1, out(funding)))
    assert [each for each, _ in wallet.books.own_unconfirmed()] == [txid(own)]


def test_an_own_transaction_in_conflict_stays_ours_when_a_stranger_sends_it(wallet: Wallet) -> None:
    wallet.mine(pay(5_000, coin(1)))
    own, rival = pay(1_000, out(pay(5_000, coin(1)))), pay(2_000, out(pay(5_000, coin(1))), to=THEIRS)
    wallet.hear(own, own=True)
    wallet.mine(rival)
    assert wallet.statuses()[txid(own)] == "conflicted"
    wallet.hear(own)
    wallet.restart()
    wallet.reorganise()
    assert wallet.books.unconfirmed.pending[txid(own)].own
    assert wallet.statuses()[txid(own)] == "replaced"  # what was in a block was seen last


@pytest.mark.parametrize("restarts", [False, True])
def test_an_own_transaction_that_matches_nothing_returns_with_its_block(wallet: Wallet, restarts: bool) -> None:
    """With what spends from it, in the order of the block, though nobody else may have them any more."""
    parent = pay(100, coin(1), to=THEIRS)
    child = pay(90, out(parent), to=THEIRS)
    for raw in (parent, child):
        wallet.hear(raw, own=True)
    wallet.mine(parent, child)
    assert wallet.statuses() == {txid(parent): "confirmed", txid(child): "confirmed"}
    if restarts:
        wallet.restart()
    assert wallet.books.has_tx(txid(child))
    assert not wallet.books.own_unconfirmed()
    wallet.hear(parent, own=True)  # it is no news
    assert not wallet.books.own_unconfirmed()
    wallet.reorganise()
    assert wallet.statuses() == {txid(parent): "pending", txid(child): "pending"}
    assert [each for each, _ in wallet.books.own_unconfirmed()] == [txid(parent), txid(child)]
    wallet.mine()
    wallet.mine(parent)
    assert wallet.statuses() == {txid(parent): "confirmed", txid(child): "pending"}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("ending", ["refused", "abandoned", "expired"])
def test_an_own_transaction_that_matches_nothing_and_had_ended_is_confirmed_by_a_block_that_has_it(
    wallet: Wallet, ending: str, restarts: bool
) -> None:
    """Its history said that it was refused, and the user might have paid again."""
    raw, other = pay(900, coin(1), coin(2), to=THEIRS), pay(800, coin(1), to=THEIRS)
    for each in (other, raw):
        wallet.hear(each, own=True)
    if ending == "expired":
        wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    else:
        for each in (other, raw):
            wallet.tell(wallet.books.abandon(txid(each), refused=ending == "refused"))
    assert set(wallet.statuses().values()) == {ending}
    if restarts:
        wallet.restart()
    wallet.mine(pay(1, coin(3), to=THEIRS))
    wallet.mine(raw)
    assert wallet.statuses() == {txid(raw): "confirmed", txid(other): ending}
    wallet.reorganise()
    assert wallet.statuses()[txid(raw)] == "pending"
    wallet.mine(raw)
    assert wallet.statuses() == {txid(raw): "confirmed", txid(other): ending}


def test_a_rival_of_an_own_transaction_that_matches_nothing_is_in_conflict_with_its_block(wallet: Wallet) -> None:
    ours, rival = pay(100, coin(1), to=THEIRS), pay(90, coin(1))
    wallet.hear(ours, own=True)
    wallet.mine(ours)
    assert wallet.hear(rival) == []
    assert wallet.pending == 0
    assert wallet.statuses() == {txid(ours): "confirmed", txid(rival): "conflicted"}
    wallet.reorganise()
    assert wallet.statuses()[txid(ours)] == "pending"


def test_what_expired_is_told_of_in_the_history(wallet: Wallet) -> None:
    raw = pay(100, coin(1))
    wallet.hear(raw)
    wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    assert wallet.statuses() == {txid(raw): "expired"}
    assert wallet.pending == 0
    wallet.mine(raw)
    assert wallet.statuses() == {txid(raw): "confirmed"}


def test_what_ended_is_bounded(wallet: Wallet) -> None:
    for number in range(MAX_ENDED + 20):
        wallet.books.add_unconfirmed(pay(1_000, number.to_bytes(32, "big") + bytes(4)), wallet.now)
    own = pay(500, coin(9))
    wallet.books.add_unconfirmed(own, wallet.now, own=True)
    wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S)
    wallet.store.commit(*wallet.books.take_batches())
    ended = wallet.store.ended()
    assert len(ended) == MAX_ENDED + 1
    assert txid(own) in {each.txid for each in ended}


@pytest.mark.parametrize("end", ["abandoned", "expired"])
def test_an_own_transaction_that_ended_and_is_confirmed_stays_ours(wallet: Wallet, end: str) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    mine = pay(900, out(funding))
    wallet.hear(mine, own=True)
    seen = wallet.now
    if end == "abandoned":
        wallet.tell(wallet.books.abandon(txid(mine)))
    else:
        wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    wallet.restart()
    wallet.mine(mine)
    entry = wallet.store.views.transaction(txid(mine))
    assert entry is not None
    assert (entry.is_own, entry.first_seen, str(entry.status)) == (True, seen, "confirmed")
    wallet.reorganise()
    assert wallet.books.own_unconfirmed() == [(txid(mine), mine)]


def test_own_transactions_are_offered_parents_first_after_a_restart(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    chain = [funding]
    for value in range(12):
        chain.append(pay(900 - value, out(chain[-1])))
        wallet.tell(wallet.books.add_unconfirmed(chain[-1], wallet.now, own=True))  # all in one second
    wallet.restart()
    assert [raw for _, raw in wallet.books.own_unconfirmed()] == chain[1:]


def test_why_an_own_transaction_cannot_count_is_said(wallet: Wallet) -> None:
    mined, late = pay(100, coin(1)), pay(90, coin(1))
    wallet.mine(mined)
    wallet.hear(late)
    for raw, said in (
        (late, "which is in a block"),
        (pay(5, out(late)), "it conflicts with a block"),
        (pay(5, coin(9), coin(9)), "no block can contain the transaction"),
    ):
        with pytest.raises(ParameterError, match=said) as caught:
            check_broadcast(wallet.books, Transaction.parse(raw))
        assert isinstance(caught.value, TxConflictError) is ("block" in said and "no block" not in said)
        if raw == late:
            assert isinstance(caught.value, TxConflictError)
            assert (caught.value.by, caught.value.height) == (txid(mined), wallet.books.cursor)
    check_broadcast(wallet.books, Transaction.parse(pay(5, out(mined))))
    parent = pay(80, out(mined))
    wallet.hear(parent, own=True)
    with pytest.raises(ParameterError, match="conflicts with its own ancestors"):
        check_broadcast(wallet.books, Transaction.parse(pay(5, out(parent), out(mined))))


def test_what_was_seen_before_this_run_expires_only_if_the_chain_shows_the_time(wallet: Wallet) -> None:
    before, meanwhile = pay(900, coin(1)), pay(800, coin(2))
    wallet.hear(before)
    seen, began = wallet.now, wallet.now + 1_000
    wallet.tell(wallet.books.add_unconfirmed(meanwhile, began))
    late = began + MEMPOOL_EXPIRY_S
    wallet.tell(wallet.books.expire(late - 1, began, seen + MEMPOOL_EXPIRY_S - 1))
    assert set(wallet.statuses().values()) == {"pending"}
    wallet.tell(wallet.books.expire(late, began, seen + MEMPOOL_EXPIRY_S - 1))
    assert wallet.statuses() == {txid(before): "pending", txid(meanwhile): "expired"}
    wallet.tell(wallet.books.expire(late, began, seen + MEMPOOL_EXPIRY_S))
    assert set(wallet.statuses().values()) == {"expired"}


def test_what_was_refused_counts_no_more_and_what_it_replaced_counts_again(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    first, bump = pay(900, out(funding)), pay(800, out(funding))
    wallet.hear(first, own=True)
    wallet.hear(bump, own=True)
    child = pay(700, out(bump))
    wallet.hear(child, own=True)
    wallet.tell(wallet.books.abandon(txid(bump), refused=True))
    expected = {txid(funding): "confirmed", txid(first): "pending", txid(bump): "refused", txid(child): "refused"}
    assert wallet.statuses() == expected
    wallet.restart()
    assert wallet.statuses() == expected
    assert wallet.books.own_unconfirmed() == [(txid(first), first)]
    wallet.hear(bump)  # others have it: it is ours, and counts
    assert wallet.statuses()[txid(bump)] == "pending"
    assert wallet.books.unconfirmed.pending[txid(bump)].own
    wallet.mine(bump)
    assert wallet.statuses()[txid(bump)] == "confirmed"


@pytest.mark.parametrize("to", [OURS, THEIRS])
def test_what_was_refused_counts_again_when_others_have_it_whomever_it_pays(wallet: Wallet, to: bytes) -> None:
    raw = pay(900, coin(1), to=to)
    wallet.hear(raw, own=True)
    for is_refused in (True, False):
        books = wallet.books
        wallet.tell(
            books.abandon(txid(raw), refused=True) if is_refused else books.expire(wallet.now + MEMPOOL_EXPIRY_S)
        )
        assert wallet.books.unconfirmed.pending.keys() == set()
        wallet.hear(raw)
        assert wallet.books.own_unconfirmed() == [(txid(raw), raw)]
        assert wallet.statuses()[txid(raw)] == "pending"
    wallet.tell(wallet.books.abandon(txid(raw)))
    wallet.hear(raw)
    assert wallet.statuses()[txid(raw)] == "abandoned"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
def test_what_a_reorganisation_takes_out_of_its_block_is_unconfirmed_however_much_a_stranger_has_put_in_its_way(
    wallet: Wallet, is_own: bool, restarts: bool
) -> None:
    """A chain of more payments than one transaction may displace, which comes back before it."""
    ours, rivals = pay(50, coin(1)), [pay(40, coin(1))]
    wallet.hear(ours, own=is_own)
    for number in range(MAX_INVENTED_MATCHES):
        rivals.append(pay(1_000 + number, out(rivals[-1])))
    for raw in rivals:
        wallet.hear(raw)
    wallet.mine(ours)
    assert wallet.pending == 0
    if restarts:
        wallet.restart()
    wallet.reorganise()
    assert wallet.pending == 50
    assert (wallet.books.unconfirmed.pending[txid(ours)].own > 0) is is_own
    assert all(wallet.books.unconfirmed.pending[txid(raw)].status is TxStatus.REPLACED for raw in rivals)
    wallet.mine(ours)
    assert wallet.store.views.balance().confirmed == 50


def test_an_own_transaction_whose_other_parent_is_in_conflict_stays_in_the_history_when_its_coinbase_returns(
    wallet: Wallet,
) -> None:
    wallet.mine(pay(9, coin(1)))
    reward = coinbase(2, [TxOut(5, OURS)], b"c")
    wallet.mine(reward=reward)
    late = pay(8, coin(1))
    own = pay(3, out(reward), out(late))
    wallet.hear(own, own=True)
    wallet.reorganise()
    wallet.hear(late)
    assert (wallet.statuses()[txid(own)], wallet.statuses()[txid(late)]) == ("conflicted", "conflicted")
    wallet.mine(reward=reward)
    wallet.restart()
    assert wallet.statuses()[txid(own)] == "conflicted"


@pytest.mark.parametrize("restarts", [False, True])
def test_of_own_rivals_that_return_from_a_conflict_the_latest_is_offered(wallet: Wallet, restarts: bool) -> None:
    """After a restart as before it, whatever their txids are."""
    funding = pay(1_000, coin(1))
    wallet.mine(funding)
    first = pay(500, out(funding))
    bump = next(raw for value in range(400) if txid(raw := pay(value, out(funding))) < txid(first))
    for raw in (first, bump):
        wallet.hear(raw, own=True)
    wallet.mine(pay(5, out(funding), to=THEIRS))
    if restarts:
        wallet.restart()
    wallet.reorganise()
    assert [each for each, _ in wallet.books.own_unconfirmed()] == [txid(bump)]


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("end", ["expired", "replaced"])
def test_what_ends_and_the_entry_that_it_matched_may_leave_in_one_commit(
    wallet: Wallet, end: str, is_own: bool
) -> None:
    """As they do where the database is slower than the network and the user."""
    other = p2wpkh(b"\x77" * 20)
    wallet.books.store_entries([(EntryKind.SCRIPT, other, "other")])
    wallet.tell(())
    number = wallet.books.watch.table.add(EntryKind.SCRIPT, other)
    raw = pay(1_000, coin(1), to=other)
    wallet.hear(raw, own=is_own)
    if end == "expired":
        events = wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S)
    else:
        events = wallet.books.add_unconfirmed(pay(900, coin(1)), wallet.now)
    wallet.books.remove_entries([number], lambda *told: events.extend(told))
    wallet.tell(events)
    assert wallet.statuses().get(txid(raw)) == (end if is_own or end == "expired" else None)
    wallet.restart()
    assert len(wallet.books.watch) == 1


def test_the_change_of_what_we_broadcast_after_a_stranger_is_in_the_filter_as_after_a_restart(wallet: Wallet) -> None:
    raw = pay(1_000, coin(1))
    wallet.hear(raw)
    assert out(raw) not in wallet.books.bloom_elements()  # anybody may have invented it
    wallet.hear(raw, own=True)
    for _ in range(2):
        assert {out(raw), coin(1)} <= set(wallet.books.bloom_elements())
        wallet.restart()


def test_transactions_of_old_blocks_are_let_go_in_the_same_run_but_for_our_own(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first search of a busy wallet kept all of them in memory, until it ended."""
    monkeypatch.setattr("spvfilter.wallet.books.KEPT_DEPTH", 20)
    own = pay(1_000, coin(1))
    wallet.hear(own, own=True)
    first = pay(900, coin(2))
    wallet.mine(own, first)
    spend = pay(800, out(first), coin(3))
    wallet.mine(spend)
    for number in range(30):
        wallet.mine(pay(number, number.to_bytes(32, "big") + bytes(4)))
    assert [txid(raw) in wallet.books._kept for raw in (own, first, spend)] == [True, False, False]
    assert len(wallet.books._kept._txs) == 20 + 1
    rival = pay(700, out(first))
    assert wallet.hear(rival) == []
    assert wallet.books.spender_of(Transaction.parse(rival)) == txid(spend)
    assert wallet.books.spender_of(Transaction.parse(pay(1, coin(3)))) is None
    assert wallet.books.own_unconfirmed() == []


def test_what_is_let_go_of_a_block_is_looked_at_once_however_many_payments_it_has(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All matches of the block were looked at for each of its transactions: with 2,000 payments that took half a second
    of one step.
    """
    monkeypatch.setattr("spvfilter.wallet.books.KEPT_DEPTH", 2)
    wallet.mine(*(pay(number, number.to_bytes(32, "big") + bytes(4)) for number in range(100)))
    looked_at, at = list[int](), wallet.books._confirmed.at

    def look_at(height: int) -> list[StoredMatch]:
        looked_at.append(height)
        return at(height)

    monkeypatch.setattr(wallet.books._confirmed, "at", look_at)
    for number in range(4):
        wallet.mine(pay(number, coin(1 + number)))
    assert len(wallet.books._kept._txs) == 2
    assert looked_at.count(1) == 1


def test_transactions_of_old_blocks_that_are_searched_again_for_a_new_entry_are_let_go(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited for the recent ones that had been found before them, all in memory."""
    monkeypatch.setattr("spvfilter.wallet.books.KEPT_DEPTH", 3)
    blocks, connect, other = list[ScannedBlock](), wallet.books.connect, p2wpkh(b"\x02" * 20)

    def keep(block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        blocks.append(block)
        return connect(block, hits)

    monkeypatch.setattr(wallet.books, "connect", keep)
    for number in range(20):
        wallet.mine(pay(number, coin(1 + number), to=other))
    wallet.mine(recent := pay(1_000, coin(100)))
    wallet.books.watch.add_script(other)
    wallet.books.search_again(0)
    for block in blocks[:10]:
        assert connect(block, block.hits(wallet.books.watch.table))
        assert len(wallet.books._kept._txs) <= 2
    assert txid(recent) in wallet.books._kept
