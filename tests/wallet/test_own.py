"""Own transactions in the books, case by case. `test_books_properties` has the rules for random sequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter import primitives
from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError, TxCheckError, TxConflictError
from spvfilter.kernel import NO_VALUE, EntryKind
from spvfilter.network import REGTEST
from spvfilter.protocol import MAX_MONEY, MEMPOOL_EXPIRY_S
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.store.txcheck import CheckCause, CheckFinding, CheckWeight, KnownParent, Replaced
from spvfilter.transaction import Transaction
from spvfilter.wallet.bookfacts import BookFacts
from spvfilter.wallet.books import KEPT_DEPTH, Books
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import MatchFound, MatchUnconfirmed, MatchWithdrawn, Reason, TxReplaced, WalletEvent
from spvfilter.wallet.filterdata import stored_elements
from spvfilter.wallet.refusals import check_abandon, check_broadcast, refusal
from spvfilter.wallet.saved import Filtered
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from support.blocks.build import TxIn, TxOut, coinbase, p2wpkh, tx, txid
from support.wallets.storesqlite import checked_rows
from support.wallets.walletbooks import OURS, THEIRS, Wallet, announceable, coin, out, pay, saved


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def test_fee_bump_is_one_replacement_that_names_both(wallet: Wallet) -> None:
    first, bump = pay(50, coin(1)), pay(40, coin(1))
    wallet.broadcast(first)
    told = wallet.broadcast(bump)
    assert told[0] == TxReplaced(txid(first), txid(bump))
    assert [(type(event), event.match.txid) for event in told[1:]] == [  # type: ignore[union-attr]
        (MatchWithdrawn, txid(first)),
        (MatchFound, txid(bump)),
    ]
    assert told[1].by_hex == txid(bump)[::-1].hex()  # type: ignore[union-attr]  # it is a MatchWithdrawn
    assert wallet.pending == 40
    assert wallet.statuses() == {txid(first): "replaced", txid(bump): "pending"}


def test_filters_contain_outpoints_of_own_pending_transactions(wallet: Wallet) -> None:
    wallet.broadcast(own := pay(50, coin(1)))
    places = {coin(1), out(own)}
    assert places <= wallet.books.outpoint_elements().keys()
    assert places <= {*wallet.books.bloom_elements()}
    wallet.tell(wallet.books.abandon(txid(own)))
    assert coin(1) not in wallet.books.outpoint_elements()
    assert coin(1) not in wallet.books.bloom_elements()


def test_filtered_transactions_and_false_positives_are_counted(wallet: Wallet) -> None:
    books = wallet.books
    txs = [FoundTx(3, pay(50, coin(1))), FoundTx(7, pay(60, coin(2), to=THEIRS))]
    block = ScannedBlock(1, bytes(32), txs, total=20)
    books.connect(block, block.hits(books.watch.table))
    books.connect_empty(3, filtered=4)
    assert books.filtered == Filtered(txs=24, false_positives=1)


def test_matches_have_the_same_order_in_a_block_as_before(wallet: Wallet) -> None:
    wallet.mine(funding := pay(500, coin(1)))
    both = pay(400, out(funding))
    before = [event.match for event in wallet.observe(both)]  # type: ignore[union-attr]  # each is a MatchFound
    after = [event.match for event in wallet.mine(both)[1:]]  # type: ignore[union-attr]  # the first is the block
    assert [str(match.kind) for match in before] == ["input", "output"]
    assert [match.kind for match in after] == [match.kind for match in before]


def test_outputs_of_known_transactions_are_known(wallet: Wallet) -> None:
    wallet.observe(raw := pay(50, coin(1)))
    hits = wallet.books.hits
    assert [hits.output(out(raw, index)) for index in range(3)] == [*Transaction.parse(raw).outputs, None]
    assert hits.output(coin(1)) is None


def test_abandoned_bump_does_not_bring_back_the_replaced_payment(wallet: Wallet) -> None:
    first, bump = pay(50, coin(1)), pay(40, coin(1))
    wallet.broadcast(first)
    wallet.broadcast(bump)
    wallet.tell(wallet.books.abandon(txid(bump)))
    assert set(wallet.statuses().values()) == {"abandoned"}
    wallet.observe(first)  # a peer announces it again: the user has dropped it
    assert wallet.pending == 0
    wallet.broadcast(first)
    assert wallet.pending == 50


def test_abandoned_transaction_is_confirmed_by_a_block(wallet: Wallet) -> None:
    raw = pay(50, coin(1))
    wallet.broadcast(raw)
    wallet.tell(wallet.books.abandon(txid(raw)))
    wallet.mine(raw)
    assert wallet.statuses()[txid(raw)] == "confirmed"
    wallet.reorganize()
    assert wallet.statuses()[txid(raw)] == "pending", "the block has cleared the drop"


def test_replaced_payment_stays_replaced_when_its_replacement_is_disconnected(wallet: Wallet) -> None:
    first, bump = pay(50, coin(1)), pay(40, coin(1))
    wallet.observe(first)
    wallet.observe(bump)
    wallet.mine(bump)
    told = [event for event in wallet.reorganize() if not type(event).__name__.startswith("Block")]
    assert [type(event) for event in told] == [MatchUnconfirmed]
    assert wallet.statuses() == {txid(first): "replaced", txid(bump): "pending"}


def test_known_conflict_replaces_a_payment_of_a_disconnected_block(wallet: Wallet) -> None:
    paid, rival = pay(50, coin(1)), pay(40, coin(1), to=THEIRS)
    wallet.mine(paid)
    wallet.observe(rival, "a", "b")  # a block contains the payment, so it decides nothing
    assert txid(rival) in wallet.books.intake.orphans
    wallet.reorganize()
    assert wallet.statuses() == {txid(paid): "replaced"}
    assert wallet.pending == 0


def test_block_that_leaves_before_it_is_committed_leaves_no_money(
    wallet: Wallet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wallet, "tell", list)
    wallet.mine(paid := pay(50, coin(1)), reward=(reward := coinbase(1, [TxOut(60, OURS)])))
    wallet.reorganize()
    monkeypatch.undo()
    wallet.tell(())
    assert (wallet.store.views.balance().confirmed, wallet.pending) == (0, 50)
    assert wallet.statuses() == {txid(paid): "pending", txid(reward): "conflicted"}


def test_cancelled_payment_stays_cancelled_after_a_double_spend(wallet: Wallet) -> None:
    paid, bump, cancel = pay(50, coin(1)), pay(45, coin(1)), pay(40, coin(1), to=THEIRS)
    wallet.observe(paid)
    wallet.observe(bump)
    wallet.observe(cancel)
    assert wallet.pending == 0
    wallet.mine(cancel)
    for raw in (paid, bump):
        wallet.observe(raw)
    assert wallet.pending == 0
    assert set(wallet.statuses().values()) == {"conflicted"}


def test_foreign_conflict_does_not_stop_announcements(wallet: Wallet) -> None:
    own, foreign = pay(50, coin(1)), pay(40, coin(1))
    wallet.broadcast(own)
    told = wallet.observe(foreign)
    assert told == [TxReplaced(txid(foreign), txid(own))]
    assert announceable(wallet.books) == [(txid(own), own)]
    assert wallet.pending == 50
    wallet.mine(foreign)
    assert announceable(wallet.books) == []
    assert wallet.statuses() == {txid(own): "conflicted", txid(foreign): "confirmed"}
    rivals = {entry.txid: entry.rival_hex for entry in wallet.store.views.history()}
    assert rivals == {txid(own): txid(foreign)[::-1].hex(), txid(foreign): None}


def test_address_of_a_payment_that_lost_is_unused(wallet: Wallet) -> None:
    address = script_to_address(OURS, REGTEST)
    assert address is not None
    wallet.observe(pay(50, coin(1)), "a", "b")
    assert wallet.store.views.is_used(address)
    wallet.mine(pay(40, coin(1), to=THEIRS))
    assert not wallet.store.views.is_used(address)


def test_coin_tells_whether_its_spender_is_own(wallet: Wallet) -> None:
    wallet.mine(funding := pay(50, coin(1)))
    wallet.observe(foreign := pay(40, out(funding), to=THEIRS))
    (found,) = wallet.store.views.coins()
    assert (found.spent_by, found.is_spender_own) == (txid(foreign), False)
    own = pay(30, out(funding), to=THEIRS)
    check_broadcast(wallet.books, Transaction.parse(own))
    wallet.broadcast(own)
    (found,) = wallet.store.views.coins()
    assert (found.spent_by, found.is_spender_own) == (txid(own), True)


def test_change_from_a_foreign_pending_payment_is_not_trusted(wallet: Wallet) -> None:
    """Anyone can fake a payment, and a transaction that spends a fake payment is never confirmed."""
    mine, theirs = pay(500, coin(1)), pay(1_000, coin(2))
    wallet.mine(mine)
    wallet.observe(theirs)
    child = pay(1_400, out(theirs), out(mine))
    grandchild = pay(1_300, out(child))

    def trusted() -> tuple[int, int]:
        views = wallet.store.views
        return views.balance().trusted_pending, sum(each.value for each in views.unspent(trusted_change=True))

    wallet.broadcast(child)
    assert trusted() == (0, 0)
    wallet.broadcast(grandchild)
    assert (wallet.pending, *trusted()) == (1_300, 0, 0)
    wallet.mine(theirs)
    assert trusted() == (1_300, 1_300)
    wallet.restart()
    wallet.reorganize()
    assert (wallet.pending, *trusted()) == (1_300, 0, 0)
    wallet.mine(theirs, child)
    assert trusted() == (1_300, 1_300)


def test_rebuilt_database_keeps_own_transactions_without_a_block(tmp_path: Path) -> None:
    own, foreign = pay(50, coin(1)), pay(40, coin(2))
    wallet = Wallet()
    wallet.broadcast(own)
    wallet.observe(foreign)
    kept = wallet.store.transactions(0)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(wallet.watch_list())
        store.commit(Batch(headers=REGTEST.genesis, transactions=dict(kept)))
    with Store.open(tmp_path / "w.db", REGTEST, rebuild=True) as store:
        watch = wallet.watch_list()
        store.attach(watch)
        books = Books(watch, saved(store))
    assert announceable(books) == [(txid(own), own)]
    assert [type(event) for event in books.opening] == [MatchFound]
    assert not books.facts.is_without_block(txid(foreign))


def test_own_unmatched_transaction_returns_with_its_disconnected_block(wallet: Wallet) -> None:
    raw = pay(50, coin(1), to=THEIRS)
    wallet.broadcast(raw)
    wallet.mine(raw)
    wallet.broadcast(raw)  # too late, and without a match in the block
    assert wallet.statuses() == {txid(raw): "confirmed"}
    wallet.restart()
    wallet.reorganize()
    assert announceable(wallet.books) == [(txid(raw), raw)]


def test_rejected_transaction_revives_when_peers_announce_it(wallet: Wallet) -> None:
    raw = pay(50, coin(1))
    wallet.broadcast(raw)
    (gone,) = wallet.tell(wallet.books.reject(txid(raw)))
    assert isinstance(gone, MatchWithdrawn)
    assert (gone.reason, gone.by_hex) == (Reason.REFUSED, None)
    assert announceable(wallet.books) == []
    wallet.observe(raw, "a")
    assert wallet.pending == 50
    assert announceable(wallet.books) == [(txid(raw), raw)]


@pytest.mark.few(1)
@pytest.mark.parametrize("depth", [0, KEPT_DEPTH + 20])
def test_own_transaction_stays_confirmed_through_its_child(wallet: Wallet, depth: int) -> None:
    parent = pay(10**6, coin(1), to=THEIRS)
    child = pay(500, out(parent))
    wallet.broadcast(parent)
    wallet.mine(child)  # the block of the parent was not shown
    for _ in range(depth):
        wallet.mine()
    for _ in range(2):
        assert wallet.books.judgement.verdict(txid(parent)) == Verdict(Status.CONFIRMED)
        assert wallet.books.judgement.verdict(txid(parent)) == Verdict(Status.CONFIRMED)
        elements = set(wallet.books.bloom_elements())
        assert set(stored_elements(checked_rows(wallet.store), REGTEST, wallet.store.tip)) == elements
        watch = wallet.watch_list()
        wallet.store.attach(watch)
        left = wallet.store.transactions(wallet.store.tip - KEPT_DEPTH)
        wallet.books = Books(watch, saved(wallet.store, left))


def test_child_of_an_expired_transaction_revives_it(wallet: Wallet) -> None:
    parent = pay(50, coin(1))
    wallet.broadcast(parent)
    wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    assert wallet.statuses() == {txid(parent): "expired"}
    child = pay(30, out(parent))
    check_broadcast(wallet.books, Transaction.parse(child))
    wallet.broadcast(child)
    assert announceable(wallet.books) == [(txid(parent), parent), (txid(child), child)]
    assert wallet.pending == 30


def test_child_of_an_abandoned_transaction_is_refused_with_advice(wallet: Wallet) -> None:
    parent = pay(50, coin(1))
    wallet.broadcast(parent)
    wallet.tell(wallet.books.abandon(txid(parent)))
    with pytest.raises(TxCheckError, match=r"was abandoned: broadcast .* first, or spend other coins"):
        check_broadcast(wallet.books, Transaction.parse(pay(30, out(parent))))


@pytest.mark.parametrize("restarts", [False, True])
def test_refusals_name_their_reason_also_after_a_restart(wallet: Wallet, restarts: bool) -> None:
    funding, rival = pay(100, coin(1)), pay(60, coin(2))
    wallet.mine(funding, rival)
    own = pay(50, out(funding))
    wallet.mine(own)
    child_of_conflict = pay(10, coin(2))
    wallet.restart() if restarts else None

    def refused(raw: bytes) -> Exception:
        with pytest.raises(ParameterError) as caught:
            check_broadcast(wallet.books, Transaction.parse(raw))
        return caught.value

    conflict = refused(pay(40, out(funding)))
    assert isinstance(conflict, TxConflictError)
    assert (conflict.by, conflict.height) == (txid(own), 2)
    assert isinstance(refused(child_of_conflict), TxConflictError)
    assert "its outputs are worth" in str(refused(pay(51, out(own))))
    assert "which has only 2 outputs" in str(refused(pay(1, out(own, 2))))
    assert "spends an output twice" in str(refused(pay(1, coin(7), coin(7))))
    assert "out of range" in str(refused(pay(MAX_MONEY + 1, coin(7))))
    assert "it is a coinbase" in str(refused(coinbase(9, [TxOut(1, OURS)])))
    assert isinstance(refused(own), TxConflictError)


@pytest.mark.long
@pytest.mark.parametrize("restarts", [False, True])
def test_broadcast_of_a_deep_confirmed_transaction_changes_nothing(wallet: Wallet, restarts: bool) -> None:
    raw = pay(50, coin(1))
    wallet.mine(raw)
    for _ in range(KEPT_DEPTH + 1):
        wallet.mine()
    wallet.restart() if restarts else None
    with pytest.raises(TxConflictError, match="a block contains the transaction"):
        check_broadcast(wallet.books, Transaction.parse(raw))
    assert wallet.broadcast(raw) == []
    assert wallet.statuses() == {txid(raw): "confirmed"}


def test_a_replacement_must_outbid_the_fees_of_all_pending_children(wallet: Wallet) -> None:
    paid = pay(1_000, coin(1))
    parent = pay(900, out(paid))  # a fee of 93 satoshi
    child = pay(800, out(parent), out(parent, 1))  # another 100
    grandchild = pay(700, out(child, 1), out(child))  # another 100
    foreign = pay(5, out(grandchild, 1), to=THEIRS)
    wallet.mine(paid)
    for raw in (parent, child, grandchild):
        wallet.broadcast(raw)
    wallet.observe(foreign)
    facts = BookFacts(wallet.books, is_accepted=lambda digest: digest == txid(parent))
    replacement = Transaction.parse(pay(600, out(paid)))
    assert facts.replaced(replacement) == [Replaced(txid(parent), 293, is_accepted=True)]
    assert facts.replaced(Transaction.parse(parent)) == []


def test_a_spend_in_a_deep_block_still_conflicts(wallet: Wallet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.wallet.books.KEPT_DEPTH", 3)
    paid = pay(100, coin(1))
    spend, own, foreign = (pay(value, out(paid)) for value in (40, 45, 46))
    wallet.mine(paid)
    wallet.mine(spend)
    wallet.observe(pay(7, coin(2)))  # unrelated, so it keeps no deep block in memory
    for _ in range(4):
        wallet.mine()
    assert wallet.books.facts.record(txid(spend)) is None  # only its matches are left
    assert wallet.broadcast(spend) == []
    with pytest.raises(TxConflictError, match="which is in a block"):
        check_broadcast(wallet.books, Transaction.parse(own))
    wallet.observe(foreign)
    assert wallet.books.judgement.verdict(txid(foreign)) == Verdict(Status.CONFLICTED, txid(spend))
    assert (wallet.store.views.balance().confirmed, wallet.pending) == (40, 7)


def test_known_parents_of_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The books keep only the matches of deep blocks. An outpoint without a value says nothing."""
    monkeypatch.setattr("spvfilter.wallet.books.KEPT_DEPTH", 3)
    wallet = Wallet()
    for place, value in ((coin(8), 90), (coin(9), NO_VALUE)):
        entry = wallet.books.watch.table.add(EntryKind.OUTPOINT, place)
        wallet.books.watch.table.set_coin(place, entry, value, OURS)
    facts = BookFacts(wallet.books)
    wallet.mine(deep := pay(100, coin(1)), reward=(reward := coinbase(1, [TxOut(60, OURS)])))
    for _ in range(4):
        wallet.mine()
    wallet.mine(recent := pay(200, coin(2)))
    wallet.observe(pending := pay(300, coin(3)))
    assert facts.parent(out(deep)) == KnownParent(None, primitives.TxOut(100, OURS), 1)
    assert facts.parent(out(reward)) == KnownParent(None, primitives.TxOut(60, OURS), 1, is_coinbase=True)
    assert facts.parent(out(recent)) == KnownParent(2, primitives.TxOut(200, OURS), 6)
    assert facts.parent(out(pending, 1)) == KnownParent(2, primitives.TxOut(7, THEIRS), None, is_unconfirmed=True)
    assert facts.parent(coin(8)) == KnownParent(None, primitives.TxOut(90, OURS))
    assert facts.parent(coin(9)) == KnownParent(None, None)
    assert facts.tip == -1


def test_foreign_and_unknown_transactions_cannot_be_abandoned(wallet: Wallet) -> None:
    raw = pay(50, coin(1))
    wallet.observe(raw)
    with pytest.raises(ParameterError, match="only your own transactions"):
        check_abandon(wallet.books, txid(raw))
    with pytest.raises(ParameterError, match="is not an unconfirmed transaction"):
        check_abandon(wallet.books, bytes(32))


def test_confirmed_transaction_cannot_be_abandoned(wallet: Wallet) -> None:
    wallet.broadcast(raw := pay(50, coin(1)))
    check_abandon(wallet.books, txid(raw))
    wallet.mine(raw)
    with pytest.raises(ParameterError, match="is not an unconfirmed transaction"):
        check_abandon(wallet.books, txid(raw))


def test_earlier_transaction_expires_by_the_time_of_the_chain(wallet: Wallet) -> None:
    raw = pay(50, coin(1))
    wallet.observe(raw)
    late = wallet.now + MEMPOOL_EXPIRY_S
    assert wallet.tell(wallet.books.expire(late, began=wallet.now + 1, proven=late - 1)) == []
    assert len(wallet.tell(wallet.books.expire(late, began=wallet.now + 1, proven=late))) == 1


def test_lost_coinbase_conflicts_until_a_block_contains_it_again(wallet: Wallet) -> None:
    reward = coinbase(1, [TxOut(60, OURS)])
    wallet.mine(reward=reward)
    child = pay(50, out(reward))
    wallet.broadcast(child)
    assert wallet.pending == 50
    wallet.reorganize()
    assert wallet.pending == 0
    assert set(wallet.statuses().values()) == {"conflicted"}
    wallet.restart()
    wallet.mine(reward=reward)
    assert wallet.pending == 50


def test_foreign_parent_of_an_own_child_does_not_expire(wallet: Wallet) -> None:
    wallet.observe(parent := pay(500, coin(1)), "a")
    wallet.now += 100_000
    wallet.broadcast(child := pay(400, out(parent)))
    wallet.tell(wallet.books.expire(wallet.now - 50_000 + MEMPOOL_EXPIRY_S))
    assert announceable(wallet.books) == [(txid(child), child)]
    assert wallet.statuses()[txid(child)] == "pending"


def test_block_that_returns_clears_the_drop(wallet: Wallet) -> None:
    wallet.mine(funding := pay(1_000, coin(1)))
    wallet.broadcast(own := pay(900, out(funding)))
    wallet.mine(own)
    header, block = wallet.chain[-1], wallet.blocks[-1]
    wallet.reorganize()
    wallet.tell(wallet.books.reject(txid(own)))
    wallet.chain.append(header)
    wallet.blocks.append(block)
    wallet.books.extend(header)
    wallet.search(len(wallet.chain) - 1)
    wallet.broadcast(pay(800, out(own)))
    assert wallet.statuses()[txid(own)] == "confirmed"
    assert not wallet.books.facts.is_without_block(txid(own))


def test_broadcast_of_an_orphan_stays_own(wallet: Wallet) -> None:
    funding = pay(1_000, coin(1))
    wallet.observe(own := pay(5, out(funding, 1), to=THEIRS), "a")
    wallet.mine(funding)
    wallet.broadcast(own)
    assert announceable(wallet.books) == [(txid(own), own)]


@pytest.mark.parametrize("length", [1, 2])
def test_broadcast_that_conflicts_with_an_orphan_ancestor_is_refused(wallet: Wallet, length: int) -> None:
    """Nothing matches in the ancestors, so the orphanage has them. The broadcast and the first one spend a coin."""
    chain = [pay(50, coin(1), to=THEIRS)]
    while len(chain) < length:
        chain.append(pay(49, out(chain[-1]), to=THEIRS))
    for raw in chain:
        wallet.observe(raw, "a")
    assert len(wallet.books.intake.orphans) == length
    with pytest.raises(ParameterError, match="it, or one of its ancestors, conflicts with an ancestor"):
        check_broadcast(wallet.books, Transaction.parse(pay(40, coin(1), out(chain[-1]))))
    with pytest.raises(ParameterError, match=r"it spends output 7 of .*, which has only 2 outputs"):
        check_broadcast(wallet.books, Transaction.parse(pay(40, out(chain[-1], 7))))
    check_broadcast(wallet.books, Transaction.parse(own := pay(40, coin(2), out(chain[-1]))))
    wallet.broadcast(own)
    assert wallet.statuses() == {txid(own): "pending"}


def test_broadcast_revives_an_ancestor_behind_an_orphan(wallet: Wallet) -> None:
    """Otherwise the new transaction would be expired from the beginning, and its coins could be spent again."""
    wallet.mine(funding := pay(1_000, coin(1)), other := pay(500, coin(2)))
    wallet.broadcast(first := pay(900, out(funding), to=THEIRS))
    wallet.observe(between := pay(800, out(first), to=THEIRS), "a")
    wallet.tell(wallet.books.expire(wallet.now + MEMPOOL_EXPIRY_S))
    assert wallet.statuses()[txid(first)] == "expired"
    assert txid(between) in wallet.books.intake.orphans
    check_broadcast(wallet.books, Transaction.parse(last := pay(1_200, out(between), out(other))))
    wallet.broadcast(last)
    assert (wallet.statuses()[txid(first)], wallet.statuses()[txid(last)]) == ("pending", "pending")
    assert wallet.store.views.unspent() == []


def remove_entry(wallet: Wallet, script: bytes) -> None:
    """Remove an entry from the watch list, with its events."""
    told: list[WalletEvent] = []
    wallet.books.remove_entries(
        Renumbering(wallet.books.watch, [list(wallet.scripts).index(script)]), lambda *events: told.extend(events)
    )
    del wallet.scripts[script]
    wallet.tell(told)


def test_removed_entry_leaves_no_confirmed_payment_behind() -> None:
    """An unrelated pending payment keeps nothing in memory. A pending payment out of a block keeps its parent."""
    mine, other = p2wpkh(b"\x02" * 20), p2wpkh(b"\x03" * 20)
    wallet = Wallet(scripts=[mine, other])
    wallet.mine(lost := pay(110, coin(1), to=other), parent := pay(120, coin(2), to=other))
    wallet.observe(child := pay(10, out(parent), to=mine))
    remove_entry(wallet, other)
    assert wallet.books.facts.record(txid(lost)) is None
    assert {*wallet.store.transactions(-1)} == {txid(parent), txid(child)}
    assert (wallet.store.views.balance().confirmed, wallet.pending) == (0, 10)


def test_removed_entry_frees_its_room_in_the_pool() -> None:
    mine, other = p2wpkh(b"\x02" * 20), p2wpkh(b"\x03" * 20)
    wallet = Wallet(scripts=[mine, other])
    wallet.broadcast(pay(10, coin(9), to=mine))
    wallet.observe(foreign := tx([TxIn(coin(8)[:32], 0)], [TxOut(20, mine), TxOut(30, other)]))
    assert wallet.books.intake.pool.matches == 2
    remove_entry(wallet, other)
    assert ([*wallet.books.intake.pool], wallet.books.intake.pool.matches) == ([txid(foreign)], 1)
    assert wallet.pending == 30


def test_removed_entry_leaves_the_conflict_of_an_own_transaction() -> None:
    mine, other = p2wpkh(b"\x02" * 20), p2wpkh(b"\x03" * 20)
    wallet = Wallet(scripts=[mine, other])
    wallet.broadcast(own := pay(10, coin(9), to=mine))
    wallet.mine(pay(11, coin(9), to=other))
    remove_entry(wallet, other)
    for _ in range(2):
        assert wallet.books.judgement.status(txid(own)) == "conflicted"
        wallet.restart()


@pytest.mark.parametrize("length", [1, 2])
def test_conflict_with_a_parent_of_a_confirmed_transaction_is_refused(wallet: Wallet, length: int) -> None:
    """No block is known that contains the parent. A block contains its child, or the child of its child."""
    chain = [pay(100, coin(1))]
    for number in range(length):
        chain.append(pay(90 - number, out(chain[-1])))
    for raw in (*chain[:-1], rival := pay(60, coin(1))):
        wallet.observe(raw)
    wallet.mine(chain[-1])
    assert wallet.books.judgement.verdict(txid(chain[0])) == Verdict(Status.CONFIRMED)
    before = wallet.statuses()
    with pytest.raises(TxConflictError, match=r"^it conflicts with [0-9a-f]{64}, which is confirmed$") as caught:
        check_broadcast(wallet.books, Transaction.parse(pay(80, coin(1))))
    assert caught.value.by == txid(chain[0])
    with pytest.raises(TxConflictError, match="it spends from a transaction that conflicts") as caught:
        check_broadcast(wallet.books, Transaction.parse(pay(20, out(rival))))
    assert caught.value.by == txid(chain[0])
    assert wallet.statuses() == before


def test_own_parent_is_confirmed_through_a_grandchild(wallet: Wallet) -> None:
    wallet.broadcast(parent := pay(100, coin(1), coin(2)))
    wallet.observe(child := pay(90, out(parent), to=THEIRS))
    wallet.broadcast(rival := pay(80, coin(2)))
    assert not wallet.books.judgement.is_announceable(txid(parent))
    wallet.mine(pay(70, out(child)))
    assert wallet.books.judgement.verdict(txid(parent)) == Verdict(Status.CONFIRMED)
    assert not wallet.books.judgement.is_announceable(txid(rival))
    assert wallet.books.judgement.is_announceable(txid(parent))
    elements = stored_elements(checked_rows(wallet.store), REGTEST, wallet.store.tip)
    assert {*elements} == {*wallet.books.bloom_elements()}


def test_inactive_ancestors_get_a_new_expiry_with_a_child(wallet: Wallet) -> None:
    wallet.broadcast(first := pay(100, coin(1)))
    wallet.broadcast(second := pay(90, out(first)))
    wallet.tell(wallet.books.reject(txid(first)))
    wallet.now += 1_000
    wallet.broadcast(child := pay(80, out(second)))
    records = [wallet.books.facts.record(txid(raw)) for raw in (first, second, child)]
    assert {record.expires_at for record in records if record is not None} == {wallet.now + MEMPOOL_EXPIRY_S}
    assert {str(wallet.books.judgement.status(txid(raw))) for raw in (first, second, child)} == {"pending"}


def test_verdicts_are_the_same_after_a_restart(wallet: Wallet) -> None:
    raws = [pay(50, coin(1)), pay(60, coin(1)), pay(70, coin(2)), pay(80, coin(3)), pay(90, coin(4)), pay(95, coin(4))]
    for raw in raws[:4]:
        wallet.broadcast(raw)
    wallet.observe(raws[4])
    wallet.tell(wallet.books.abandon(txid(raws[2])))
    wallet.tell(wallet.books.reject(txid(raws[3])))
    wallet.mine(raws[5])
    before = [wallet.books.judgement.verdict(txid(raw)) for raw in raws]
    wanted = ["REPLACED", "CANONICAL", "ABANDONED", "REJECTED", "CONFLICTED", "CONFIRMED"]
    assert [verdict.status.name for verdict in before if verdict is not None] == wanted
    wallet.restart()
    assert [wallet.books.judgement.verdict(txid(raw)) for raw in raws] == before
    assert wallet.books.opening == [], "and nothing is reported again"


def test_a_confirmed_match_is_no_longer_reported_as_unconfirmed(wallet: Wallet) -> None:
    wallet.observe(raw := pay(50, coin(1)))
    assert not wallet.books.reports.is_uncounted(txid(raw))
    wallet.mine(raw)
    assert wallet.books.reports.is_uncounted(txid(raw))


def test_the_most_serious_finding_decides_the_error() -> None:
    conflict = CheckFinding(CheckCause.CONFLICT, CheckWeight.INVALID, "spent twice", bytes(32), b"\x01" * 32, 7)
    fee = CheckFinding(CheckCause.FEE_TOO_LOW, CheckWeight.REFUSED, "too low", bytes(32))
    error = refusal([conflict, fee], is_forced=False)
    assert isinstance(error, TxConflictError)
    assert isinstance(refusal([fee], is_forced=False), TxCheckError)
    assert refusal([fee], is_forced=True) is None
