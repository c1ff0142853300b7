"""Unconfirmed transactions that spend the same: one counts, the others are kept, and a block decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from spvfilter.network import REGTEST
from spvfilter.protocol import MAX_MONEY
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredTx
from spvfilter.store.place import MEMORY
from spvfilter.wallet.books import Books
from spvfilter.wallet.endings import LOST_NOTE
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.unconfirmed import MAX_DISPLACED, MAX_DISPLACED_MATCHES, MAX_RIVALS, MAX_RIVALS_OF_COIN
from spvfilter.watch.watchlist import WatchList
from support.build import TxIn, TxOut, coinbase, header, p2wpkh, sha256d, tx, txid
from support.ledger import check_ledger
from support.lightworld import Books as Told
from support.stores import opened

OURS, THEIRS = p2wpkh(b"\x01" * 20), p2wpkh(b"\xee" * 20)


class Wallet:
    """Books with their database, which hear of transactions and blocks."""

    def __init__(self) -> None:
        self.store = opened(MEMORY)
        self.store.commit(Batch(headers=REGTEST.genesis, cursor=0))
        self.told = Told()
        self.chain = [REGTEST.genesis]
        self.now = 1_700_000_000
        self.restart()
        self.books.skip_to(0)

    def restart(self) -> None:
        watch = WatchList(REGTEST)
        watch.add_script(OURS, "ours")
        self.store.attach(watch)
        self.books = Books(
            watch,
            SavedBooks(
                list(self.store.matches()),
                self.store.unconfirmed(),
                self.store.transactions(-1),
                self.store.ended(),
                self.store.cursor,
                self.store.searched,
                self.store.searched_blocks,
                self.store.ids,
                self.store.note(LOST_NOTE) or b"",
            ),
        )

    def tell(self, events: Iterable[WalletEvent]) -> list[WalletEvent]:
        known = list(events)
        self.store.commit(*self.books.take_batches())
        for event in known:
            self.told.take(event)
        check_ledger(self.store)
        return [event for event in known if isinstance(event, (MatchFound, MatchConfirmed, MatchWithdrawn))]

    def hear(self, raw: bytes, *, own: bool = False) -> list[WalletEvent]:
        self.now += 1
        return self.tell(self.books.add_unconfirmed(raw, self.now, own=own))

    def mine(self, *raws: bytes, reward: bytes | None = None) -> list[WalletEvent]:
        height = len(self.chain)
        first = reward or coinbase(height, [TxOut(5, THEIRS)], b"c")
        self.chain.append(header(sha256d(self.chain[-1]), sha256d(b"".join(raws) + bytes([height]))))
        self.books.extend(self.chain[-1])
        txs = [FoundTx(at, raw) for at, raw in enumerate((first, *raws))]
        block = ScannedBlock(height, sha256d(self.chain[-1]), txs)
        return self.tell(self.books.connect(block, block.hits(self.books.watch.table)))

    def reorganise(self) -> list[WalletEvent]:
        """The last block is replaced by two, which are searched when `mine` is called next: they are empty."""
        fork, lost = len(self.chain) - 2, sha256d(self.chain.pop())
        return self.tell(self.books.disconnect(fork, [lost], b"", self.now))

    def statuses(self) -> dict[bytes, str]:
        return {entry.txid: str(entry.status) for entry in self.store.views.history()}

    @property
    def pending(self) -> int:
        return self.store.views.balance().pending_in


@pytest.fixture
def wallet() -> Wallet:
    return Wallet()


def pay(value: int, *spends: bytes, to: bytes = OURS) -> bytes:
    """A transaction that spends these outpoints."""
    return tx(
        [TxIn(each[:32], int.from_bytes(each[32:], "little")) for each in spends], [TxOut(value, to), TxOut(7, THEIRS)]
    )


def coin(number: int) -> bytes:
    return bytes([number]) * 32 + bytes(4)


def out(raw: bytes, index: int = 0) -> bytes:
    return txid(raw) + index.to_bytes(4, "little")


def test_an_incoming_payment_that_is_replaced_twice_counts_once(wallet: Wallet) -> None:
    raws = [pay(value, coin(1)) for value in (100, 90, 80)]
    wallet.hear(raws[0])
    events = wallet.hear(raws[1])
    assert isinstance(events[0], MatchWithdrawn)
    assert (events[0].match.txid, events[0].reason, events[0].by) == (txid(raws[0]), Reason.REPLACED, txid(raws[1]))
    assert isinstance(events[1], MatchFound)
    wallet.hear(raws[2])
    assert wallet.pending == 80
    assert wallet.statuses() == {txid(raws[2]): "pending", txid(raws[1]): "replaced", txid(raws[0]): "replaced"}
    entry = wallet.store.views.transaction(txid(raws[0]))
    assert entry is not None
    assert (entry.net, entry.rival, entry.labels) == (100, txid(raws[1]), ("ours",))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_block_decides_for_whichever_rival_it_has(wallet: Wallet, restarts: bool) -> None:
    old, new = pay(100, coin(1)), pay(90, coin(1))
    wallet.hear(old)
    wallet.hear(new)
    if restarts:
        wallet.restart()
    events = wallet.mine(old)
    assert [type(event) for event in events] == [MatchFound, MatchWithdrawn]
    assert isinstance(events[1], MatchWithdrawn)
    assert (events[1].reason, events[1].by) == (Reason.CONFLICT, txid(old))
    assert wallet.store.views.balance().total == 100
    entry = wallet.store.views.transaction(txid(new))
    assert entry is not None
    assert (entry.status, entry.rival, entry.block_hash, entry.net) == (
        "conflicted",
        txid(old),
        sha256d(wallet.chain[1]),
        90,
    )
    wallet.hear(new)  # a peer that is late
    assert wallet.statuses()[txid(new)] == "conflicted"
    assert wallet.pending == 0


def test_a_descendant_follows_its_parent_there_and_back(wallet: Wallet) -> None:
    parent = pay(100, coin(1))
    child = pay(60, out(parent))
    rival = pay(90, coin(1))
    for raw in (parent, child, rival):
        wallet.hear(raw)
    assert wallet.statuses() == {txid(parent): "replaced", txid(child): "replaced", txid(rival): "pending"}
    assert wallet.pending == 90
    wallet.mine(parent)
    assert wallet.statuses() == {txid(parent): "confirmed", txid(child): "pending", txid(rival): "conflicted"}
    assert wallet.store.views.balance().total == 60


def test_a_child_that_comes_after_shows_that_its_parent_is_there(wallet: Wallet) -> None:
    parent, rival = pay(100, coin(1)), pay(90, coin(1))
    wallet.hear(parent)
    wallet.hear(rival)
    child = pay(60, out(parent))
    wallet.hear(child)
    assert wallet.statuses() == {txid(child): "pending", txid(rival): "replaced", txid(parent): "pending"}
    assert wallet.pending == 60


def test_a_rival_comes_back_when_what_replaced_it_was_itself_replaced_or_ends(wallet: Wallet) -> None:
    first, second = pay(100, coin(1)), pay(90, coin(1), coin(2))
    wallet.hear(first)
    wallet.hear(second)
    third = pay(50, coin(2))
    wallet.hear(third)  # against which the first has nothing
    assert wallet.statuses() == {txid(first): "pending", txid(second): "replaced", txid(third): "pending"}
    assert wallet.pending == 150


def test_a_double_spend_that_does_not_pay_us_takes_the_payment_back(wallet: Wallet) -> None:
    payment, away = pay(100, coin(1)), pay(100, coin(1), to=THEIRS)
    wallet.hear(payment)
    events = wallet.hear(away)
    assert isinstance(events[0], MatchWithdrawn)
    assert (events[0].reason, events[0].by) == (Reason.REPLACED, txid(away))
    assert wallet.pending == 0
    wallet.mine(payment)
    assert wallet.store.views.balance().confirmed == 100


def test_what_contradicts_itself_is_ignored(wallet: Wallet) -> None:
    first, second = pay(100, coin(1)), pay(90, coin(1))
    wallet.hear(first)
    wallet.hear(second)
    too_much = MAX_MONEY + 1
    for raw in (
        pay(10, out(first), out(second)),  # of two that cannot both be
        pay(10, out(second), coin(1)),  # its parent spends the same
        pay(10, coin(3), coin(3)),
        pay(too_much, coin(3)),
        tx([TxIn(bytes(32), 0xFFFFFFFF)], [TxOut(5, OURS)]),
        pay(10, coin(3), bytes(32) + b"\xff" * 4),
        bytes(10),
        tx([TxIn(bytes([3]) * 32, 0, bytes(1_000_000))], [TxOut(5, OURS)]),  # too heavy for a block
    ):
        assert wallet.hear(raw) == []
    assert wallet.pending == 90


def test_what_a_block_decided_is_open_again_once_it_has_left_the_chain(wallet: Wallet) -> None:
    payment, rival = pay(100, coin(1)), pay(90, coin(1))
    wallet.hear(payment)
    wallet.hear(rival)
    wallet.mine(payment)
    wallet.reorganise()
    assert wallet.statuses() == {txid(payment): "pending", txid(rival): "replaced"}
    assert wallet.pending == 100
    wallet.mine(rival)
    assert wallet.statuses() == {txid(payment): "conflicted", txid(rival): "confirmed"}
    assert wallet.store.views.balance().total == 90


def test_a_spend_and_its_coin_leave_the_chain_together_and_return(wallet: Wallet) -> None:
    payment = pay(100, coin(1))
    spend = pay(40, out(payment), to=THEIRS)
    wallet.hear(spend)  # before what it spends
    wallet.mine(payment, spend)
    assert wallet.store.views.balance().total == 0
    wallet.reorganise()
    assert wallet.statuses() == {txid(payment): "pending", txid(spend): "pending"}
    assert wallet.store.views.balance().total == 0
    wallet.mine(payment)
    balance = wallet.store.views.balance()
    assert (balance.confirmed, balance.pending_out, balance.total) == (100, 100, 0)


def test_rivals_are_bounded_for_each_coin_and_in_all(wallet: Wallet) -> None:
    for number in range(3 * MAX_RIVALS_OF_COIN):
        wallet.books.add_unconfirmed(pay(1_000 + number, coin(1)), wallet.now)
    assert len(wallet.books.unconfirmed) == MAX_RIVALS_OF_COIN + 1
    for number in range(MAX_RIVALS):
        at = number.to_bytes(32, "big") + bytes(4)
        wallet.books.add_unconfirmed(pay(1_000, at), wallet.now)
        wallet.books.add_unconfirmed(pay(2_000, at), wallet.now)
    replaced = [each for each in wallet.books.unconfirmed.pending if not wallet.books.unconfirmed.is_live(each)]
    assert len(replaced) == MAX_RIVALS
    wallet.tell(())


def test_nothing_is_left_of_a_coinbase_that_has_left_the_chain(wallet: Wallet) -> None:
    """Neither its spend in a later transaction of the lost blocks, nor what an unconfirmed one spends from that."""
    reward = coinbase(1, [TxOut(5_000, OURS)], b"ours")
    spend = pay(4_000, out(reward))
    child = pay(3_000, out(spend))
    wallet.mine(spend, reward=reward)
    wallet.hear(child)
    assert wallet.store.views.balance().total == 3_000
    wallet.reorganise()
    assert wallet.statuses() == {txid(spend): "conflicted", txid(child): "conflicted"}
    assert wallet.store.views.balance().total == 0
    assert wallet.hear(child) == wallet.hear(spend) == []


def mine_again(wallet: Wallet, raw_header: bytes, reward: bytes) -> None:
    """A block that was left for another is part of the best chain again; only its coinbase is ours."""
    height = len(wallet.chain)
    wallet.chain.append(raw_header)
    wallet.books.extend(raw_header)
    block = ScannedBlock(height, sha256d(raw_header), [FoundTx(0, reward)])
    wallet.tell(wallet.books.connect(block, block.hits(wallet.books.watch.table)))


@pytest.mark.parametrize("restarts", [False, True])
def test_what_spends_from_a_coinbase_returns_with_it(wallet: Wallet, restarts: bool) -> None:
    """A chain is left for another, and taken up again."""
    reward = coinbase(1, [TxOut(5_000, OURS)], b"first")
    spend = pay(4_000, out(reward))
    child, rival = pay(3_000, out(spend)), pay(2_000, out(reward), to=THEIRS)
    wallet.mine(spend, reward=reward)
    block = wallet.chain[-1]
    wallet.hear(child, own=True)
    wallet.reorganise()
    assert set(wallet.statuses().values()) == {"conflicted"}
    if restarts:
        wallet.restart()
    mine_again(wallet, block, reward)
    assert wallet.statuses() == {txid(reward): "confirmed", txid(spend): "pending", txid(child): "pending"}
    assert wallet.store.views.balance().total == 3_000
    assert [each for each, _ in wallet.books.own_unconfirmed()] == [txid(child)]
    wallet.mine(rival)
    assert wallet.statuses()[txid(child)] == "conflicted"
    assert wallet.store.views.balance().total == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_what_spends_from_two_coinbases_returns_with_the_second(wallet: Wallet, restarts: bool) -> None:
    rewards = [coinbase(height, [TxOut(5_000, OURS)], b"ours") for height in (1, 2)]
    both = pay(9_000, *map(out, rewards))
    for reward in rewards:
        wallet.mine(reward=reward)
    wallet.hear(both)
    blocks = [wallet.chain.pop() for _ in rewards][::-1]
    wallet.tell(wallet.books.disconnect(0, list(map(sha256d, blocks)), b"", wallet.now))
    if restarts:
        wallet.restart()
    mine_again(wallet, blocks[0], rewards[0])
    assert wallet.statuses() == {txid(rewards[0]): "confirmed", txid(both): "conflicted"}
    mine_again(wallet, blocks[1], rewards[1])
    assert wallet.statuses()[txid(both)] == "pending"
    assert wallet.pending == 9_000


def test_the_oldest_rival_may_count_again_with_its_child_or_by_itself(wallet: Wallet) -> None:
    """Its place among too many rivals is given up only after that."""
    for again in (False, True):
        number = 2 + again
        first = pay(1_000, coin(number))
        wallet.hear(first)
        for value in range(MAX_RIVALS_OF_COIN):
            wallet.hear(pay(value + 1, coin(number)))
        if again:
            wallet.tell(wallet.books.see_again(txid(first)))
        else:
            wallet.hear(pay(5, out(first)))
        assert wallet.books.unconfirmed.is_live(txid(first))
        assert wallet.statuses()[txid(first)] == "pending"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rival_that_comes_after_the_block_never_counts_nor_does_its_child(wallet: Wallet, restarts: bool) -> None:
    mined, late = pay(100, coin(1)), pay(90, coin(1))
    wallet.mine(mined)
    if restarts:
        wallet.restart()
    assert not wallet.hear(late)
    assert not wallet.hear(pay(80, out(late)))
    assert wallet.pending == 0
    assert wallet.statuses() == {txid(mined): "confirmed", txid(late): "conflicted"}
    wallet.reorganise()
    wallet.mine()
    wallet.mine()
    assert wallet.pending == 100


@pytest.mark.parametrize("script", [OURS, THEIRS], ids=["ours", "theirs"])
def test_nothing_counts_that_spends_through_others_from_what_ended(wallet: Wallet, script: bytes) -> None:
    """As long as that has ended: one that its owner sends again, or whose rival's block is left, may have
    descendants.
    """
    wallet.mine(pay(5_000, coin(1)))
    mined, late = pay(100, coin(2)), pay(90, coin(2))
    wallet.mine(mined)
    abandoned = pay(80, out(pay(5_000, coin(1))))
    wallet.hear(abandoned, own=True)
    wallet.tell(wallet.books.abandon(txid(abandoned)))
    children = [pay(70, out(raw), to=script) for raw in (late, abandoned)]
    grandchildren = [pay(60, out(raw)) for raw in children]
    for raw in (late, *children, *grandchildren):
        assert not wallet.hear(raw)
    assert wallet.pending == 0
    wallet.hear(abandoned, own=True)
    wallet.hear(children[1], own=True)
    assert wallet.hear(grandchildren[1])
    wallet.reorganise()
    for raw in (late, children[0], grandchildren[0]):
        wallet.hear(raw)
    assert wallet.statuses()[txid(grandchildren[0])] == "pending"


def test_a_long_chain_of_payments_is_not_displaced_by_one(wallet: Wallet) -> None:
    """As nodes do: a few bytes of a stranger's move a hundred transactions at most."""
    root = pay(1_000, coin(1))
    chain = [root]
    for value in range(MAX_DISPLACED + 1):
        chain.append(pay(900 - value, out(chain[-1])))
    for raw in chain:
        wallet.hear(raw)
    assert not wallet.hear(pay(1, coin(1)))
    assert wallet.pending == 900 - MAX_DISPLACED
    wide = [tx([TxIn(coin(7)[:32], 0)], [TxOut(1, OURS)] * (MAX_DISPLACED_MATCHES + 1)), pay(5, coin(7))]
    for raw in wide:
        wallet.hear(raw)
    assert wallet.statuses()[txid(wide[0])] == "pending"
    assert txid(wide[1]) not in wallet.statuses()
    wallet.mine(pay(1, coin(1)))  # which a block has
    assert wallet.pending == MAX_DISPLACED_MATCHES + 1


def test_what_is_forgotten_of_many_rivals_is_looked_at_once(wallet: Wallet, monkeypatch: pytest.MonkeyPatch) -> None:
    unconfirmed = wallet.books.unconfirmed
    for number in range(30):
        for value in range(40):  # the ledger is checked with the last
            for event in wallet.books.add_unconfirmed(pay(value + 1, coin(100 + number)), wallet.now):
                wallet.told.take(event)
    wallet.store.commit(*wallet.books.take_batches())
    looked_at = 0
    descendants = unconfirmed.descendants

    def counted(txids: Iterable[bytes]) -> list[bytes]:
        nonlocal looked_at
        looked_at += 1
        return descendants(txids)

    monkeypatch.setattr(unconfirmed, "descendants", counted)
    wallet.hear(pay(99, coin(100)))
    assert looked_at <= 4


def test_those_of_strangers_are_not_looked_at_to_find_our_own(wallet: Wallet) -> None:
    class NotWalked(dict[bytes, StoredTx]):
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("it may be of 100,000")

        items = values = keys = __iter__  # type: ignore[assignment]

    ours, bump = pay(100, coin(1)), pay(90, coin(1))
    for number in range(2, 9):
        wallet.hear(pay(100, coin(number)))
    for raw in (ours, bump):
        wallet.hear(raw, own=True)
    wallet.books.unconfirmed.pending = NotWalked(wallet.books.unconfirmed.pending)
    assert [each for each, _ in wallet.books.own_unconfirmed()] == [txid(bump)]
