"""What is much work about unconfirmed transactions is done in parts, and all of it in the end."""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.kernel import EntryKind
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.ledger import StoredTx
from spvfilter.wallet import unconfirmed
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchWithdrawn, Reason
from spvfilter.wallet.unconfirmed import MAX_INVENTED_MATCHES
from support.build import TxIn, TxOut, p2wpkh, tx, txid
from wallet.test_rivals import OURS, THEIRS, Wallet, coin, out, pay

NUMBER = 130
SECOND = p2wpkh(b"\x02" * 20)


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def wide(number: int, spends: bytes = coin(1)) -> bytes:
    return tx([TxIn(spends[:32], 0)], [TxOut(1, OURS)] * number)


def begin(wallet: Wallet, raw: bytes, units: int) -> list[object]:
    """A transaction comes, of which only so much may be done at once."""
    wallet.books.unconfirmed.unfinished.left = units
    return list(wallet.hear(raw))


def go_on(wallet: Wallet, units: int = 40) -> list[object]:
    """Do the rest, in parts."""
    unfinished, told = wallet.books.unconfirmed.unfinished, list[object]()
    while unfinished:
        unfinished.left = units
        events = wallet.tell(wallet.books.go_on())
        assert len(events) <= units
        told += events
    return told


def test_the_matches_of_one_payment_are_recorded_in_parts(wallet: Wallet) -> None:
    first = begin(wallet, wide(NUMBER), 40)
    assert len(first) == wallet.pending == 40
    rest = go_on(wallet)
    assert (
        len({event.match.index for event in first + rest if isinstance(event, MatchFound)})
        == len(first + rest)
        == NUMBER
    )
    assert wallet.pending == NUMBER


def test_what_was_not_recorded_when_the_process_ended_is_recorded_by_the_next_one(wallet: Wallet) -> None:
    begin(wallet, wide(NUMBER), 40)
    wallet.restart()
    assert len(go_on(wallet)) == NUMBER - 40
    assert wallet.pending == NUMBER
    wallet.restart()
    assert not go_on(wallet)


def test_what_is_looked_through_to_forget_the_oldest_rivals_is_work_too(wallet: Wallet) -> None:
    """Else whoever invents rivals has a thousand of them sorted some twenty times in one step."""
    unfinished, spent = wallet.books.unconfirmed.unfinished, list[float]()
    for number in range(unconfirmed.MAX_RIVALS + 5):
        for value in (2, 1):
            unfinished.left = 60
            wallet.books.add_unconfirmed(tx([TxIn(number.to_bytes(32, "big"), 7)], [TxOut(value, OURS)]), 1_700_000_000)
        spent.append(60 - unfinished.left)
    assert max(spent[: unconfirmed.MAX_RIVALS]) < 5
    assert min(spent[unconfirmed.MAX_RIVALS :]) > 20
    assert len(wallet.books.unconfirmed) == 2 * unconfirmed.MAX_RIVALS + 5


@pytest.mark.parametrize("units", [40, 90, NUMBER])
def test_a_block_that_has_it_meanwhile_confirms_each_match_once(wallet: Wallet, units: int) -> None:
    begin(wallet, wide(NUMBER), units)
    events = wallet.mine(wide(NUMBER))
    assert sum(isinstance(event, MatchConfirmed) for event in events) == units
    assert sum(isinstance(event, MatchFound) for event in events) == NUMBER - units
    assert not go_on(wallet)
    assert wallet.store.views.balance().confirmed == NUMBER


def test_a_rival_that_comes_meanwhile_withdraws_what_was_told_and_nothing_else(wallet: Wallet) -> None:
    begin(wallet, wide(NUMBER), 40)
    wallet.books.unconfirmed.unfinished.left = 1_000
    events = wallet.hear(pay(5, coin(1)))
    assert [type(event) for event in events] == [MatchWithdrawn] * 40 + [MatchFound]
    assert not go_on(wallet)
    assert wallet.pending == 5
    wallet.mine(pay(9, coin(1), to=THEIRS))
    assert wallet.pending == 0


def test_payments_whose_parent_comes_late_are_recorded_in_parts(wallet: Wallet) -> None:
    parent = tx([TxIn(coin(1)[:32], 0)], [TxOut(10, OURS)] * NUMBER)
    children = [tx([TxIn(txid(parent), at)], [TxOut(1, THEIRS)]) for at in range(NUMBER)]
    for raw in children:
        assert not wallet.hear(raw)
    begin(wallet, parent, 40)
    assert 0 < len(wallet.books.unconfirmed) < NUMBER
    go_on(wallet)
    assert len(wallet.books.unconfirmed) == NUMBER + 1
    assert wallet.pending == 0


@pytest.mark.parametrize("units", [1, 1_000])
@pytest.mark.parametrize("outputs", [(0, 0), (1, 0)])
def test_of_rivals_whose_parent_comes_late_the_one_seen_last_counts(
    wallet: Wallet, units: int, outputs: tuple[int, int]
) -> None:
    parent = wide(2)
    older, newer = (tx([TxIn(txid(parent), at), TxIn(coin(2)[:32], 0)], [TxOut(1 + at, THEIRS)] * 2) for at in outputs)
    newer = newer if newer != older else tx([TxIn(txid(parent), 0)], [TxOut(2, THEIRS)])
    for raw in (older, newer):
        assert not wallet.hear(raw)
    begin(wallet, parent, units)
    go_on(wallet)
    assert [wallet.books.unconfirmed.is_live(txid(raw)) for raw in (older, newer)] == [False, True]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("by_word", [False, True])
def test_what_spends_from_a_rival_is_matched_when_that_counts_again(
    wallet: Wallet, restarts: bool, by_word: bool
) -> None:
    """Its outputs are not known before, where it was recorded in part, or by an earlier run."""
    first = wide(NUMBER)
    begin(wallet, first, NUMBER if restarts else 40)
    wallet.books.unconfirmed.unfinished.left = 1_000
    wallet.hear(pay(5, coin(1), coin(2)))
    if restarts:
        wallet.restart()
    go_on(wallet)
    child = tx([TxIn(txid(first), NUMBER - 1)], [TxOut(1, THEIRS)])
    wallet.books.unconfirmed.unfinished.left = 1_000
    assert not wallet.hear(child)
    if by_word:
        wallet.tell(wallet.books.see_again(txid(first)))
    else:
        wallet.mine(pay(6, coin(2)))
    go_on(wallet)
    assert [wallet.books.unconfirmed.is_live(txid(raw)) for raw in (first, child)] == [True, True]
    assert wallet.pending == NUMBER - 1


@pytest.mark.parametrize("own", [False, True])
def test_only_a_block_and_the_user_displace_hundreds_of_matches_at_once(wallet: Wallet, own: bool) -> None:
    wallet.hear(wide(MAX_INVENTED_MATCHES + 1))
    events = wallet.hear(pay(5, coin(1)), own=own)
    assert wallet.pending == (5 if own else MAX_INVENTED_MATCHES + 1)
    assert bool(events) is own
    events = wallet.mine(pay(6, coin(1)))
    assert sum(isinstance(event, MatchWithdrawn) and event.reason is Reason.CONFLICT for event in events) in (
        1,
        MAX_INVENTED_MATCHES + 1,
    )
    assert wallet.store.views.balance().confirmed == 6


def test_ours_that_was_refused_and_that_others_have_now_comes_back_as_ours(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was invented meanwhile."""
    own = pay(5, coin(1))
    wallet.hear(own, own=True)
    wallet.tell(wallet.books.abandon(txid(own), refused=True))
    wallet.hear(wide(MAX_INVENTED_MATCHES + 1))
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 1)
    events = wallet.hear(own)
    assert isinstance(events[-1], MatchFound)
    assert wallet.pending == 5
    assert wallet.books.unconfirmed.pending[txid(own)].own


def test_a_new_entry_is_matched_against_unconfirmed_payments_in_parts(wallet: Wallet) -> None:
    """And against what waits without a match."""
    payments = [
        tx([TxIn(number.to_bytes(32, "big"), 0)], [TxOut(1, OURS), TxOut(1, SECOND)]) for number in range(NUMBER)
    ]
    child, other = pay(1, out(payments[0], 1), to=THEIRS), pay(1, coin(1), to=SECOND)
    for raw in (*payments, child, other):
        wallet.hear(raw)
    wallet.books.store_entries([(EntryKind.SCRIPT, SECOND, None)])
    wallet.books.watch.add_script(SECOND)
    first = wallet.tell(wallet.books.entries_added(40))
    assert 0 < len(first) <= 41
    assert len(first + go_on(wallet)) == NUMBER + 2
    assert wallet.pending == 2 * NUMBER


def test_entries_that_are_removed_meanwhile_are_not_matched(wallet: Wallet) -> None:
    begin(wallet, wide(NUMBER), 40)
    told: list[object] = []
    wallet.books.remove_entries([0], lambda *events: told.extend(events))
    wallet.store.commit(*wallet.books.take_batches())
    assert len(told) == 40
    assert not go_on(wallet)


def test_what_another_entry_matches_is_recorded_though_the_first_one_is_removed_meanwhile(wallet: Wallet) -> None:
    wallet.books.watch.add_script(SECOND, "second")
    wallet.store.attach(wallet.books.watch)
    wallet.books.ids = list(wallet.store.ids)
    begin(wallet, tx([TxIn(coin(1)[:32], 0)], [*([TxOut(1, OURS)] * 50), *([TxOut(3, SECOND)] * 5)]), 40)
    told: list[object] = []
    wallet.books.remove_entries([0], lambda *events: told.extend(events))
    wallet.store.commit(*wallet.books.take_batches())
    assert len(told) == 40
    assert len(go_on(wallet)) == 5
    assert wallet.pending == 15


class Counted(dict[bytes, StoredTx]):
    """Counts how often all of it is looked at."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_the_look_for_what_has_expired_walks_through_all_only_where_something_may_have(wallet: Wallet) -> None:
    first, second = pay(5, coin(1)), pay(6, coin(2))
    wallet.hear(first)
    wallet.now += 1_000
    wallet.hear(second)
    pending = wallet.books.unconfirmed.pending = Counted(wallet.books.unconfirmed.pending)
    since = wallet.now + MEMPOOL_EXPIRY_S
    for _ in range(10):
        assert not wallet.books.expire(since - 2_000)
    assert pending.walks == 0
    (event,) = wallet.tell(wallet.books.expire(since - 1_000))
    assert isinstance(event, MatchWithdrawn)
    assert event.match.txid == txid(first)
    walks = pending.walks
    assert not wallet.books.expire(since - 500)
    wallet.hear(pay(7, coin(3)))
    (event,) = wallet.tell(wallet.books.expire(since))
    assert isinstance(event, MatchWithdrawn)
    assert event.match.txid == txid(second)
    assert pending.walks > walks
    assert wallet.pending == 7
