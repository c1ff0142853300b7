"""The mempool layer: its bounds, its evictions, and the state that it must not change."""

from __future__ import annotations

import pytest

from spvfilter.kernel import EntryKind
from spvfilter.network import REGTEST
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.wallet import orphanage
from spvfilter.wallet.admission import MempoolLayer
from spvfilter.wallet.books import KEPT_DEPTH, Books
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason
from spvfilter.wallet.netgroupquota import MANY
from spvfilter.wallet.orphanage import Orphan, Orphanage
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.txgraph import TxRecord
from spvfilter.watch.match import MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, tx, txid
from support.wallets.walletbooks import OURS, THEIRS, Wallet, announceable, coin, out, pay


def payment(number: int, outputs: int = 1) -> bytes:
    return tx([TxIn(number.to_bytes(32, "big"), 1)], [TxOut(1_000 + number, OURS)] * outputs)


def announced(wallet: Wallet, raw: bytes, *groups: str) -> list[object]:
    """Observe a payment without the checks of the database, which take long with thousands of rows."""
    return list(wallet.books.observe(raw, wallet.now, groups=groups))


def test_payout_of_3_000_outputs_is_found_whole() -> None:
    wallet = Wallet()
    events = announced(wallet, payment(1, 3_000))
    assert len(events) == 3_000
    assert wallet.books.intake.pool.matches == 3_000


@pytest.mark.long
def test_20_000_pending_deposits_fit_if_the_limits_are_raised() -> None:
    wallet = Wallet(PendingLimits(matches=25_000, number=25_000))
    for number in range(20_000):
        assert len(announced(wallet, payment(number), "a")) == 1
    assert len(wallet.books.intake.pool) == 20_000


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "limits", [PendingLimits(matches=30), PendingLimits(number=10), PendingLimits(size=800)], ids=str
)
def test_flood_of_one_group_stays_within_the_limits(limits: PendingLimits) -> None:
    wallet = Wallet(limits)
    wallet.observe(payment(500_000), "honest")
    for number in range(60):
        wallet.observe(payment(number, 1 + number % 3), "flood")
        pool = wallet.books.intake.pool
        assert pool.matches <= limits.matches
        assert len(pool) <= limits.number
        assert pool.size <= limits.size
        assert wallet.books.facts.without_block.keys() == {*pool}
    assert txid(payment(500_000)) in wallet.books.intake.pool
    wallet.observe(payment(600_000), "another")
    assert txid(payment(600_000)) in wallet.books.intake.pool
    assert wallet.books.intake.turned_away > 0
    wallet.restart()
    assert len(wallet.books.intake.pool) <= limits.number


def test_transaction_with_too_many_matches_is_turned_away_whole() -> None:
    wallet = Wallet(PendingLimits(matches=10))
    assert wallet.observe(payment(1, 11)) == []
    assert wallet.books.intake.take_turned_away()[0] == txid(payment(1, 11))
    assert wallet.pending == 0


def test_the_limits_count_each_transaction_once() -> None:
    records = [TxRecord.parse(payment(number)) for number in range(3)]
    limits = PendingLimits(matches=5, size=2 * len(records[0].raw), number=2)
    layer = MempoolLayer(limits)
    layer.put(records[0], 4)
    layer.put(records[0], 3)
    layer.put(records[1], 2)
    assert (layer.matches, layer.size, len(layer)) == (limits.matches, limits.size, limits.number)
    was_over = layer.is_over
    layer.put(records[1], 3)
    assert (was_over, layer.is_over) == (False, True)
    layer.remove(records[1].txid)
    layer.remove(records[1].txid)
    assert (layer.matches, layer.size, len(layer)) == (3, len(records[0].raw), 1)
    layer.take_changed()
    layer.note_changed(records[0].txid)
    layer.note_changed(records[2].txid)
    assert layer.take_changed() == [records[0].txid]


def test_own_transactions_are_always_admitted() -> None:
    wallet = Wallet(PendingLimits(matches=1, number=1, size=100))
    for number in range(5):
        wallet.broadcast(payment(number, 3))
    assert len(announceable(wallet.books)) == 5
    assert len(wallet.books.intake.pool) == 0


@pytest.mark.slow
def test_component_of_65_foreign_transactions_loses_one_with_its_descendants() -> None:
    wallet = Wallet()
    raw = pay(10**6, coin(1))
    wallet.observe(raw, "a")
    for number in range(70):
        raw = pay(10**6 - 1 - number, out(raw))
        wallet.observe(raw, "a")
        assert len(wallet.books.intake.pool) <= 64


def test_ten_foreign_transactions_at_most_spend_one_outpoint() -> None:
    wallet = Wallet()
    for number in range(15):
        wallet.observe(pay(1_000 + number, coin(1)), f"group {number}")
    assert len(wallet.books.intake.pool) == 10


def test_own_spender_takes_no_place_of_foreign_ones() -> None:
    wallet = Wallet(PendingLimits(spenders=2))
    wallet.broadcast(pay(1_000, coin(1)))
    foreign = [pay(value, coin(1)) for value in (900, 901)]
    for raw in foreign:
        wallet.observe(raw, "a")
    assert set(wallet.books.intake.pool) == set(map(txid, foreign))


def test_unmatched_parent_of_too_many_payments_is_turned_away() -> None:
    wallet = Wallet(PendingLimits(component=3))
    parent = tx([TxIn(coin(1)[:32], 1)], [TxOut(1_000, THEIRS)] * 4)
    children = [pay(900, out(parent, number)) for number in range(4)]
    for raw in children:
        wallet.observe(raw, "a")
    wallet.observe(parent, "a")
    assert set(wallet.books.intake.pool) == set(map(txid, children))
    assert set(wallet.books.intake.take_turned_away()) == {txid(parent)}


def test_transaction_that_many_groups_announced_is_never_evicted() -> None:
    wallet = Wallet(PendingLimits(number=2))
    kept = payment(1)
    wallet.observe(kept, *(f"group {number}" for number in range(MANY)))
    for number in range(2, 20):
        wallet.observe(payment(number), f"other {number}")
    assert txid(kept) in wallet.books.intake.pool


def test_evicted_transaction_is_withdrawn_and_may_come_again() -> None:
    wallet = Wallet(PendingLimits(number=3))
    for number in range(3):
        wallet.observe(payment(number), "flood")
    told = wallet.observe(payment(9), "other")
    gone = [event for event in told if isinstance(event, MatchWithdrawn)]
    assert [event.reason for event in gone] == [Reason.SIZELIMIT]
    assert gone[0].match.txid in wallet.books.intake.take_turned_away()
    assert [type(event) for event in told] == [MatchWithdrawn, MatchFound]


def test_transaction_that_creates_money_is_turned_away() -> None:
    wallet = Wallet()
    parent = pay(50, coin(1))
    child = pay(60, out(parent))
    wallet.observe(child)
    wallet.observe(parent)
    assert wallet.pending == 50, "the parent shows that the child pays more than it spends"
    assert wallet.observe(child) == []
    assert wallet.observe(pay(1, out(parent, 2))) == [], "its parent has no such output"


@pytest.mark.parametrize("is_mined", [True, False])
def test_spender_of_missing_output_leaves_when_its_parent_arrives(*, is_mined: bool) -> None:
    wallet = Wallet()
    parent = pay(50, coin(1))
    wallet.observe(child := pay(500, out(parent, 2)))
    wallet.observe(pay(4, out(child)))
    assert wallet.pending == 4, "an unknown parent may have any output"
    wallet.mine(parent) if is_mined else wallet.observe(parent)
    assert wallet.pending == (0 if is_mined else 50)
    assert wallet.books.judgement.verdict(txid(child)) in (None, Verdict(Status.CONFLICTED, txid(parent)))
    wallet.restart()
    assert wallet.books.opening == []


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("later", [-5, 0, 5])
def test_later_announcement_moves_an_observation_once(*, is_restarted: bool, later: int) -> None:
    wallet = Wallet()
    first, second = pay(50, coin(1)), pay(40, coin(1))
    wallet.observe(first)
    wallet.observe(second)
    for raw, is_moved in ((first, True), (second, True), (first, False), (second, False)):
        if is_restarted:
            wallet.restart()
        assert bool(wallet.tell(wallet.books.announce_later(txid(raw), wallet.now + later))) is is_moved
    assert wallet.pending == 40


def watch_theirs(wallet: Wallet) -> list[object]:
    """Add the script THEIRS to the watch list, and return the events of the transactions that match it."""
    wallet.books.entries.store([(EntryKind.SCRIPT, THEIRS, None)])
    wallet.tell(())
    wallet.books.watch.table.add(EntryKind.SCRIPT, THEIRS)
    wallet.books.entries_added()
    told: list[object] = []
    while wallet.books.is_match_due:
        told += wallet.books.match_some(1)
    return told


@pytest.mark.parametrize("is_mined", [False, True])
def test_a_new_entry_finds_no_possibly_confirmed_payment(is_mined: bool) -> None:
    wallet = Wallet()
    raw = pay(50, coin(1), to=THEIRS)
    wallet.observe(raw)
    if is_mined:
        wallet.mine(raw)  # new entries are searched for from the next block on
    assert bool(watch_theirs(wallet)) is not is_mined
    assert (txid(raw) in wallet.books.intake.pool) is not is_mined


def test_a_new_entry_finds_no_relative_of_an_earlier_run() -> None:
    """Nobody knows how long it has been unconfirmed, so an earlier block may contain it."""
    wallet = Wallet()
    parent = pay(50, coin(1), to=THEIRS)
    wallet.observe(child := pay(40, out(parent)))
    expires = wallet.now + MEMPOOL_EXPIRY_S
    wallet.now += 1_000
    wallet.observe(parent)
    wallet.restart()
    wallet.tell(wallet.books.expire(expires))
    assert txid(child) not in wallet.books.facts.graph
    assert txid(parent) in wallet.books.intake.orphans, "its child has expired"
    assert watch_theirs(wallet) == []


def test_conflicted_payments_are_evicted_before_others() -> None:
    wallet = Wallet(PendingLimits(number=3))
    lost = pay(500, coin(1))
    child = pay(400, out(lost))
    wallet.observe(lost, "a")
    wallet.observe(child, "a", "b", "c")
    wallet.mine(pay(450, coin(1), to=THEIRS))
    for number in (2, 3):
        wallet.observe(payment(number), "d")
    assert {*wallet.books.intake.pool} == {txid(payment(2)), txid(payment(3))}


def test_new_entry_finds_payment_and_spend_in_any_order() -> None:
    wallet = Wallet()
    parent = pay(1_000, coin(1), to=THEIRS)
    child = pay(50, out(parent))
    wallet.observe(child)
    wallet.observe(parent)
    told = watch_theirs(wallet)
    spends = [event.match for event in told if isinstance(event, MatchFound) and event.match.kind is MatchKind.INPUT]
    assert [match.txid for match in spends] == [txid(child)]


def test_foreign_transactions_change_neither_filter_nor_watch_table() -> None:
    wallet = Wallet()
    wallet.mine(pay(100, coin(1)))
    before = set(wallet.books.bloom_elements())
    coins = set(wallet.books.watch.table.coins())
    parent = pay(50, coin(2))
    wallet.observe(parent)
    wallet.observe(pay(40, out(parent)))
    for _ in range(2):
        assert set(wallet.books.bloom_elements()) == before
        assert set(wallet.books.watch.table.coins()) == coins
        wallet.restart()
    assert wallet.pending == 40


def test_unconfirmed_payment_moves_the_next_address_but_no_window() -> None:
    scripts = [bytes([0, 20]) + index.to_bytes(20, "big") for index in range(200)]
    watch = WatchList(REGTEST)
    watch.add_keychain("wallet", lambda index: scripts[index], lookahead=20)
    books = Books(watch, SavedBooks())
    end = watch.keychains[0].end
    raw = tx([TxIn(b"\x07" * 32, 0)], [TxOut(5, scripts[0]), TxOut(5, scripts[end - 1])])
    assert len(books.observe(raw, 1_700_000_000)) == 2
    assert watch.keychains[0].next_index == 1
    assert watch.keychains[0].end == end
    assert watch.windows.take_fresh() == {}
    assert not watch.windows.is_due


def test_unmatched_relatives_decide_and_stay_out_of_the_history() -> None:
    wallet = Wallet()
    parent = pay(50, coin(1), to=THEIRS)
    child = pay(40, out(parent))
    wallet.observe(parent, "a")  # nothing matches: an orphan
    wallet.observe(child, "a")
    assert txid(parent) in wallet.books.intake.pool
    assert wallet.statuses() == {txid(child): "pending"}
    wallet.observe(pay(30, coin(1), to=THEIRS), "a")  # double-spends the parent
    assert wallet.statuses() == {txid(child): "replaced"}
    wallet.restart()
    assert wallet.statuses() == {txid(child): "replaced"}
    assert wallet.store.views.transaction(txid(parent)) is None
    assert REGTEST.genesis == wallet.chain[0]


def test_an_orphan_is_in_sight_from_its_admission_on() -> None:
    wallet = Wallet()
    wallet.mine()
    parent = pay(50, coin(1), to=THEIRS)
    wallet.observe(parent, "a")  # nothing matches: an orphan
    wallet.mine()
    wallet.mine()
    wallet.observe(pay(40, out(parent)), "a")
    record = wallet.books.facts.record(txid(parent))
    assert record is not None
    assert record.first_height == wallet.books.searched == 3


def test_chain_of_unmatched_ancestors_hides_no_payment() -> None:
    wallet = Wallet()
    last = pay(10**6, coin(1), to=THEIRS)
    wallet.observe(last, "a")
    for number in range(70):
        last = pay(10**6 - 10 * (number + 1), out(last), to=THEIRS)
        wallet.observe(last, "a")
    wallet.observe(paid := pay(500, out(last)), "a")
    assert wallet.statuses() == {txid(paid): "pending"}
    assert len(wallet.books.intake.pool) <= 64


def test_unmatched_descendants_that_came_first_hide_no_payment() -> None:
    wallet = Wallet()
    paid = pay(10**6, coin(1))
    last = out(paid, 1)
    for _ in range(70):
        child = pay(7, last, to=THEIRS)
        wallet.observe(child, "a")
        last = out(child, 1)
    wallet.observe(paid, "a")
    assert wallet.statuses() == {txid(paid): "pending"}


@pytest.mark.long
def test_unmatched_parents_leave_with_their_confirmed_children() -> None:
    wallet = Wallet()
    parent = pay(10**6, coin(1), to=THEIRS)
    child = pay(500, out(parent))
    wallet.observe(parent, "a")
    wallet.observe(child, "a")
    assert len(wallet.books.intake.pool) == 2
    wallet.mine(child)
    assert len(wallet.books.intake.pool) == 0
    wallet.observe(pay(400, coin(1)), "a")  # double-spends the parent, which is confirmed through its child
    assert wallet.pending == 0
    wallet.reorganize()
    assert wallet.pending == 400, "it was observed last"
    wallet.mine(child)
    wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    for _ in range(2 * KEPT_DEPTH):
        wallet.mine()
    assert len(wallet.books.facts.graph) == 0


def test_expired_foreign_transaction_leaves_with_its_descendants() -> None:
    wallet = Wallet()
    parent = pay(10**6, coin(1))
    child = pay(500, out(parent))
    wallet.observe(parent)
    wallet.observe(child)
    told = wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S - 1))
    assert len(wallet.books.intake.pool) == 2, "the child is not old enough"
    told += wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    assert {event.reason for event in told if isinstance(event, MatchWithdrawn)} == {Reason.EXPIRED}
    assert len(wallet.books.intake.pool) == 0
    assert wallet.statuses() == {}


def test_conflicted_foreign_transaction_leaves_when_it_expires() -> None:
    wallet = Wallet()
    paid = pay(500, coin(1))
    wallet.observe(paid)
    wallet.mine(pay(400, coin(1), to=THEIRS))
    assert wallet.statuses() == {txid(paid): "conflicted"}
    wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    assert wallet.statuses() == {}


def test_unmatched_child_of_a_confirmed_payment_stays_in_memory_only() -> None:
    wallet = Wallet()
    paid = pay(10**6, coin(1))
    wallet.mine(paid)
    child = pay(500, out(paid, 1), to=THEIRS)
    wallet.observe(child)
    assert txid(child) in wallet.books.intake.orphans
    assert len(wallet.books.intake.pool) == 0


@pytest.mark.slow
def test_chain_of_ancestors_of_an_own_transaction_is_bounded() -> None:
    chain = [pay(10**6, coin(1), to=THEIRS)]
    for number in range(100):
        chain.append(pay(10**6 - 10 * (number + 1), out(chain[-1]), to=THEIRS))
    wallet = Wallet()
    wallet.observe(paid := pay(500, out(chain[-1])), "a")
    wallet.broadcast(pay(400, out(paid)))
    for raw in reversed(chain):
        wallet.observe(raw, "a")
    assert len(wallet.books.intake.pool) <= 64
    assert len(announceable(wallet.books)) == 1


def test_foreign_ancestor_beyond_the_limit_leaves_the_own_transaction_alone() -> None:
    chain = [pay(1_000, coin(1), to=THEIRS)]
    for value in (900, 800, 700):
        chain.append(pay(value, out(chain[-1]), to=THEIRS))
    wallet = Wallet(PendingLimits(component=3))
    wallet.broadcast(own := pay(600, out(chain[-1])))
    for raw in reversed(chain):
        wallet.observe(raw, "a")
    assert set(wallet.books.intake.pool) == {txid(raw) for raw in chain[1:]}
    assert set(wallet.books.intake.take_turned_away()) == {txid(chain[0])}
    assert wallet.statuses() == {txid(own): "pending"}


@pytest.mark.slow
def test_orphanage_is_bounded_by_inputs() -> None:
    wallet = Wallet()
    for number in range(30):
        inputs = [TxIn(number.to_bytes(32, "big"), index) for index in range(2_000)]
        wallet.observe(tx(inputs, [TxOut(1, THEIRS)]), "a")
    assert len(wallet.books.intake.orphans) <= 12


def test_oldest_orphans_leave_when_there_are_too_many_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphanage, "MAX_ORPHAN_INPUTS", 10)
    wallet = Wallet()
    inputs = [[TxIn(bytes([number]) * 32, index) for index in range(4)] for number in range(1, 5)]
    raws = [tx(each, [TxOut(1, THEIRS)]) for each in inputs]
    for raw in raws:
        wallet.observe(raw, "a")
    assert [txid(raw) in wallet.books.intake.orphans for raw in raws] == [False, False, True, True]


def test_an_orphan_is_found_after_its_conflict_has_left() -> None:
    orphans = Orphanage()
    first, second = (TxRecord.parse(pay(value, coin(1), to=THEIRS)) for value in (50, 40))
    for record in (first, second):
        orphans.put(Orphan(record))
    assert orphans.take(first.txid) is not None
    assert orphans.spenders([coin(1)]) == [second.txid]
    orphans.put(Orphan(first))
    assert orphans.relatives(TxRecord.parse(pay(30, coin(1)))) == [second.txid, first.txid]


def test_newcomer_to_a_full_component_is_turned_away_unjudged() -> None:
    wallet = Wallet()
    parent = tx([TxIn(coin(1)[:32], 1)], [TxOut(1_000, THEIRS)] * 200)
    announced(wallet, parent, "a")
    for number in range(64):
        announced(wallet, pay(900, out(parent, number)), "a")
    graph, pool = wallet.books.facts.graph, wallet.books.intake.pool
    assert len(pool) == 64
    before = graph.walked
    late = pay(900, out(parent, 100))
    assert not announced(wallet, late, "a")
    assert graph.walked - before <= 2 * 66
    assert txid(late) not in pool
    assert set(wallet.books.intake.take_turned_away()) >= {txid(late)}


def test_a_newcomer_of_more_groups_enters_a_full_component() -> None:
    wallet = Wallet()
    parent = tx([TxIn(coin(1)[:32], 1)], [TxOut(1_000, THEIRS)] * 200)
    announced(wallet, parent, "a", "b", "c")
    for number in range(70):
        announced(wallet, pay(900, out(parent, number)), "a")
    late = pay(900, out(parent, 100))
    assert announced(wallet, late, "b", "c")
    assert txid(late) in wallet.books.intake.pool
    assert len(wallet.books.intake.pool) == 64


def test_inputs_that_link_a_component_are_bounded() -> None:
    wallet = Wallet(PendingLimits(component_links=200))
    shared = [TxIn(bytes([number + 1]) * 32, 1) for number in range(60)]
    for number in range(8):
        announced(wallet, tx(shared, [TxOut(1_000 + number, OURS)]), "a")
    assert len(wallet.books.intake.pool) == 3


def test_a_chain_of_orphans_enters_in_several_steps() -> None:
    wallet = Wallet()
    chain = [pay(10**6, coin(1), to=THEIRS)]
    for number in range(1, 60):
        chain.append(pay(10**6 - 10 * number, out(chain[-1]), to=THEIRS))
    for raw in chain:
        announced(wallet, raw, "a")
    graph, pool = wallet.books.facts.graph, wallet.books.intake.pool
    assert len(wallet.books.intake.orphans) == 60
    before, rounds = graph.walked, 0
    announced(wallet, paid := pay(500, out(chain[-1])), "b")
    while wallet.books.is_match_due:
        assert graph.walked - before <= 1_000
        assert wallet.books.intake.due_groups == ("a",)
        before = graph.walked
        wallet.books.match_some()
        rounds += 1
    assert rounds > 2
    assert txid(paid) in pool
    assert {txid(raw) for raw in chain} <= set(pool)


def test_orphans_that_decide_nothing_are_looked_at_in_several_steps() -> None:
    wallet = Wallet()
    parent = tx([TxIn(coin(1)[:32], 1)], [TxOut(1_000, OURS), *[TxOut(1_000, THEIRS)] * 450])
    children = [pay(900, out(parent, number), to=THEIRS) for number in range(1, 450)]
    for raw in children:
        announced(wallet, raw, "a")
    before = wallet.books.facts.graph.walked
    assert len(announced(wallet, parent, "b")) == 1
    assert wallet.books.facts.graph.walked - before <= 600
    rounds = 0
    while wallet.books.is_match_due:
        wallet.books.match_some()
        rounds += 1
    assert rounds > 0
    assert len(wallet.books.intake.orphans) == 449
    assert set(wallet.books.intake.pool) == {txid(parent)}
