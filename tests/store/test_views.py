"""Views of a wallet's database: balance, coins and history, pages and labels, and refused damage."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import ParameterError, StoreCorruptError
from spvfilter.hashes import sha256d
from spvfilter.kernel import Hit
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.protocol import COINBASE_MATURITY, MAX_MONEY
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.place import MEMORY
from spvfilter.store.searched import BlockRange
from spvfilter.store.store import Store
from spvfilter.store.views import Balance, SearchedEntries
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, p2wpkh, tx, txid
from support.oracles.ledger import check_ledger
from support.wallets.stores import opened
from support.wallets.storesqlite import writing

OURS, SAVINGS = p2wpkh(b"\x01" * 20), p2wpkh(b"\x02" * 20)


class Ledger:
    """A database with blocks of time 1,000 + height, and transactions that the test adds."""

    def __init__(self, path: Path | str, watch: WatchList | None = None) -> None:
        self.store = opened(path)
        self.watch = WatchList(REGTEST) if watch is None else watch
        if watch is None:
            self.watch.add_script(OURS, "daily")
            self.watch.add_script(SAVINGS, "savings")
        self.store.attach(self.watch)
        self.headers = [REGTEST.genesis]
        self.store.commit(Batch(headers=REGTEST.genesis))

    def mine(self, blocks: int) -> None:
        made = b""
        for _ in range(blocks):
            last = self.headers[-1]
            time = (1_000 + len(self.headers)).to_bytes(4, "little")
            self.headers.append(last[:4] + sha256d(last) + last[36:68] + time + last[72:])
            made += self.headers[-1]
        searched = self.store.searched_blocks
        for height in range(len(self.headers)):
            searched.record(height, height)
        self.store.commit(Batch(headers=made, cursor=len(self.headers) - 1, searched=searched.encode()))

    def put(self, raw: bytes, height: int | None = None, position: int = 1, seen: int | None = None) -> bytes:
        hits = [hit._replace(position=position) for hit in self.watch.table.scan_tx(raw)]
        self.watch.table.learn(hits)
        block = None if height is None else sha256d(self.headers[height])
        status = TxStatus.PENDING if height is None else TxStatus.CONFIRMED
        at = None if height is None else position
        self.store.commit(
            Batch(
                matches=[StoredMatch(hit, block, height, Completeness.PROVEN) for hit in hits],
                transactions={
                    txid(raw): StoredTx(raw, status, None, seen, block_hash=block, height=height, position=at)
                },
            )
        )
        check_ledger(self.store)
        return txid(raw)


def pay(number: int, *outputs: tuple[int, bytes]) -> bytes:
    """A foreign payment."""
    return tx([TxIn(bytes([number]) * 32, 0)], [TxOut(value, script) for value, script in outputs])


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MEMORY)


def test_a_balance_counts_each_coin_once_by_its_status(ledger: Ledger) -> None:
    views = ledger.store.views
    assert views.balance() == Balance(0, 0, 0, 0, 0)
    ledger.mine(10)
    first = ledger.put(pay(1, (100, OURS)), 3)
    ledger.put(pay(2, (50, SAVINGS)), 4)
    ledger.put(pay(3, (7, OURS)), seen=5_000)
    assert views.balance() == Balance(150, 0, 7, 0, 150)
    spend = ledger.put(tx([TxIn(first, 0)], [TxOut(30, OURS), TxOut(60, p2wpkh(b"\xee" * 20))]), seen=6_000)
    assert views.balance() == Balance(150, 0, 37, 100, 150)  # nobody checked the signatures of the foreign spend
    assert (views.balance().total, views.balance().untrusted_pending) == (87, 37)
    assert views.balance("savings") == Balance(50, 0, 0, 0, 50)
    assert views.balance("nobody's") == Balance(0, 0, 0, 0, 0)
    assert [(coin.value, coin.spent_by, coin.is_spendable) for coin in views.coins(label="daily")][-1] == (
        100,
        spend,
        True,
    )
    entry = views.transaction(spend)
    assert entry is not None
    assert (entry.net, entry.fee, entry.status, entry.height, entry.time, entry.confirmations) == (
        -70,
        10,
        "pending",
        None,
        6_000,
        0,
    )
    ledger.put(tx([TxIn(first, 0)], [TxOut(30, OURS), TxOut(60, p2wpkh(b"\xee" * 20))]), 10, seen=6_000)
    assert views.balance() == Balance(80, 0, 7, 0, 80)
    entry = views.transaction(spend)
    assert entry is not None
    assert (entry.height, entry.time, entry.first_seen, entry.confirmations) == (10, 1_010, 6_000, 1)
    assert (entry.block_hash, entry.fee, entry.labels) == (sha256d(ledger.headers[10]), 10, ("daily",))
    assert not entry.is_coinbase


def test_a_coinbase_is_immature_below_100_confirmations(ledger: Ledger) -> None:
    ledger.mine(1)
    raw = tx([TxIn(bytes(32), 0xFFFFFFFF)], [TxOut(5_000, OURS)])
    ledger.put(raw, 1, position=0)
    assert [entry.is_coinbase for entry in ledger.store.views.history()] == [True]
    ledger.mine(COINBASE_MATURITY - 2)
    assert ledger.store.views.balance() == Balance(0, 5_000, 0, 0, 0)
    assert [coin.is_spendable for coin in ledger.store.views.coins()] == [False]
    ledger.mine(1)  # it has 100 confirmations: the next block may spend it
    assert ledger.store.views.balance() == Balance(5_000, 0, 0, 0, 5_000)
    assert [(coin.is_spendable, coin.is_coinbase) for coin in ledger.store.views.coins()] == [(True, True)]
    check_ledger(ledger.store)


def test_a_pending_spend_of_an_immature_coinbase_frees_no_money(ledger: Ledger) -> None:
    ledger.mine(5)
    made = ledger.put(tx([TxIn(bytes(32), 0xFFFFFFFF)], [TxOut(5_000, OURS)]), 1, position=0)
    ledger.put(pay(2, (50, OURS)), 4)
    ledger.put(tx([TxIn(made, 0)], [TxOut(1, p2wpkh(b"\xee" * 20))]), seen=5)
    assert ledger.store.views.balance() == Balance(50, 5_000, 0, 5_000, 50)


def test_coins_of_a_waiting_broadcast_are_not_spendable(ledger: Ledger) -> None:
    ledger.mine(5)
    first, _ = ledger.put(pay(1, (100, OURS)), 3), ledger.put(pay(2, (50, OURS)), 4)
    raw = tx([TxIn(first, 0)], [TxOut(90, p2wpkh(b"\xee" * 20))])
    waiting = StoredTx(raw, TxStatus.WAITING, 1, 7, hits=tuple(ledger.watch.table.scan_tx(raw)))
    ledger.store.commit(Batch(transactions={txid(raw): waiting}))
    views = ledger.store.views
    assert [(coin.value, coin.is_spendable) for coin in views.coins()] == [(50, True), (100, False)]
    assert [coin.value for coin in views.unspent()] == [50]
    assert (views.balance(), views.reserved()) == (Balance(150, 0, 0, 0, 50), (OutPoint(first, 0),))
    for ended in (waiting._replace(status=TxStatus.REFUSED), None):
        ledger.store.commit(Batch(transactions={txid(raw): ended}))
        assert (views.balance(), views.reserved()) == (Balance(150, 0, 0, 0, 150), ())
        ledger.store.commit(Batch(transactions={txid(raw): waiting}))
        assert views.balance().spendable == 50


def test_the_secret_of_a_coin_is_not_printed(ledger: Ledger) -> None:
    ledger.mine(5)
    ledger.put(pay(1, (100, OURS)), 3)
    (coin,) = ledger.store.views.coins()
    assert repr(replace(coin, sp_tweak=b"secret" * 5)) == repr(coin)


def test_a_fork_removes_coins_and_history(ledger: Ledger) -> None:
    ledger.mine(10)
    first = ledger.put(pay(1, (100, OURS)), 3)
    ledger.put(tx([TxIn(first, 0)], [TxOut(90, SAVINGS)]), 8)
    ledger.store.commit(Batch(fork=7))
    check_ledger(ledger.store)
    assert ledger.store.views.balance() == Balance(100, 0, 0, 0, 100)
    assert [entry.txid for entry in ledger.store.views.history()] == [first]


def test_a_block_that_leaves_in_its_commit_leaves_nothing(ledger: Ledger) -> None:
    ledger.mine(10)
    raw, block = pay(1, (100, OURS)), sha256d(ledger.headers[8])
    (hit,) = ledger.watch.table.scan_tx(raw)
    found = StoredMatch(hit, block, 8, Completeness.PROVEN)
    row = StoredTx(raw, TxStatus.CONFIRMED, None, block_hash=block, height=8, position=1)
    ledger.store.commit(Batch(matches=[found], transactions={txid(raw): row}), Batch(fork=7))
    assert (ledger.store.views.balance().total, ledger.store.views.history()) == (0, [])


@pytest.mark.slow
def test_pending_sums_above_64_bits_are_kept(ledger: Ledger) -> None:
    """Each fake payment is within the limit of Bitcoin's money. Their sum is not."""
    for number in range(3):
        outputs = [(MAX_MONEY, OURS)] * 2_000
        ledger.put(pay(number, *outputs), seen=number)
    assert ledger.store.views.balance().pending_in == 6_000 * MAX_MONEY > 1 << 63


def test_confirmed_sums_above_64_bits_are_kept(ledger: Ledger) -> None:
    """The client must not fail at such a block again after each restart. If work is cheap, anybody can mine one."""
    most = 2**63 - 1
    ledger.mine(5)
    made = ledger.put(pay(1, (most, OURS), (most, SAVINGS)), 2)
    assert ledger.store.views.balance().confirmed == 2 * most
    spent = ledger.put(tx([TxIn(made, 0), TxIn(made, 1)], [TxOut(5, p2wpkh(b"\x09" * 20))]), 3)
    history = {entry.txid: (entry.net, entry.fee) for entry in ledger.store.views.history()}
    assert history == {made: (most, None), spent: (-most, most)}
    assert ledger.store.views.balance().confirmed == 0


def test_labels_are_the_current_ones(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(5)
    ledger.put(pay(1, (1, OURS), (2, SAVINGS)), 3)
    ledger.put(pay(2, (4, OURS)), 4)
    ledger.store.close()
    renamed = WatchList(REGTEST)
    renamed.add_script(OURS, "rent")
    with Store.open(path, REGTEST) as store:
        store.attach(renamed)
        check_ledger(store)
        assert [entry.labels for entry in store.views.history()] == [("rent",), ("rent", "savings")]
        assert store.views.history(label="daily") == []
        assert [entry.net for entry in store.views.history(label="savings")] == [3]
        assert sorted(str(coin.label) for coin in store.views.coins()) == ["rent", "rent", "savings"]


def test_history_is_in_the_order_of_places() -> None:
    def made(status: TxStatus, seen: int | None = None, height: int | None = None, position: int = 0) -> StoredTx:
        return StoredTx(b"", status, None, seen, first_height=3, height=height, position=position)

    ordered = [
        *(made(TxStatus.CONFIRMED, height=3, position=position) for position in range(3)),
        made(TxStatus.EXPIRED, 5),  # first seen at height 3
        made(TxStatus.CONFIRMED, height=4),
        *(made(status, seen) for seen in (5, 6) for status in (TxStatus.REPLACED, TxStatus.PENDING)),
    ]
    places = [each.place for each in ordered]
    assert places == sorted(set(places))


def test_a_page_continues_behind_its_cursor_despite_new_rows(ledger: Ledger) -> None:
    ledger.mine(10)
    txids = [
        ledger.put(pay(number, (number, OURS)), number // 2 + 1, position=number % 2 + 1) for number in range(1, 9)
    ]
    page = ledger.store.views.history(limit=3)
    assert [entry.txid for entry in page] == txids[:-4:-1]
    ledger.put(pay(100, (1, OURS)), seen=9)
    ledger.put(pay(101, (1, OURS)), 9)
    assert [entry.txid for entry in ledger.store.views.history(before=page[-1].cursor)] == txids[-4::-1]
    coins = ledger.store.views.coins(limit=4)
    assert (
        ledger.store.views.coins(limit=4) + ledger.store.views.coins(before=coins[-1].cursor)
        == ledger.store.views.coins()
    )


@pytest.mark.parametrize(
    "cursor", ["", "nonsense", "12", "12-zz", "-1-00", "ffffffffffffffffff-00", "1-2-3", 5, b"1-00"]
)
def test_a_malformed_cursor_is_refused(cursor: Any, ledger: Ledger) -> None:
    with pytest.raises(ParameterError, match="not a valid cursor"):
        ledger.store.views.history(before=cursor)
    with pytest.raises(ParameterError, match="not a valid cursor"):
        ledger.store.views.coins(before=cursor)


def test_a_limit_above_all_rows_returns_all_rows(ledger: Ledger) -> None:
    ledger.mine(5)
    ledger.put(pay(1, (1, OURS)), 3)
    views = ledger.store.views
    assert [len(read(limit=1 << 70)) for read in (views.history, views.coins, views.unspent)] == [1, 1, 1]


def test_a_limit_of_zero_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ParameterError, match="at least 1, not 0"):
        ledger.store.views.history(limit=0)


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("UPDATE transactions SET net = net + 1", "history"),
        ("UPDATE unspent SET value = value + 1", "coins"),
        ("UPDATE meta SET value = x'3920302030' WHERE key = 'totals'", "balance"),
        ("UPDATE tx_labels SET label = 'mine'", "history"),
        ("UPDATE headers SET raw = zeroblob(480)", "history"),
        ("DELETE FROM meta WHERE key = 'totals'", "balance"),
        ("DELETE FROM meta WHERE key = 'searched'", "searched"),
        (
            (
                "DROP TABLE headers; CREATE TABLE headers (first INTEGER PRIMARY KEY, raw); INSERT INTO headers VALUES"
                " (0, NULL)"
            ),
            "tip",
        ),
    ],
)
def test_a_reader_refuses_a_damaged_row(change: str, call: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(5)
    ledger.put(pay(1, (1, OURS)), 3)
    ledger.store.close()
    connection = sqlite3.connect(path)
    connection.executescript(change)
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorruptError), WalletStore.open(path) as wallet:
        getattr(wallet, call)()


def test_a_coin_without_its_entry_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.mine(5)
    ledger.put(pay(1, (1, OURS)), 3)
    with writing(ledger.store) as rows:
        rows.remove("watch", "id = ?", (1,))
    with pytest.raises(StoreCorruptError, match="entry 1 of the watch list is missing"):
        ledger.store.views.coins()


def test_a_reader_can_open_an_empty_database(tmp_path: Path) -> None:
    """This happens before the client stores its watch list, for example."""
    opened(tmp_path / "w.db").close()
    with WalletStore.open(tmp_path / "w.db") as wallet:
        assert wallet.searched() == ()
        assert wallet.balance() == Balance(0, 0, 0, 0, 0)
        assert (wallet.coins(), wallet.history(), wallet.events(0), wallet.keychains(), wallet.tip()) == (
            [],
            [],
            [],
            (),
            -1,
        )


def test_a_wrong_total_is_found_on_opening(tmp_path: Path) -> None:
    """This also finds totals whose row is intact, as after a bug in this package."""
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(5)
    ledger.put(pay(1, (1, OURS)), 3)
    with writing(ledger.store) as rows:
        rows.set_meta("totals", b"2 0 0")
    ledger.store.close()
    with pytest.raises(StoreCorruptError, match="totals"):
        Store.open(path, REGTEST)


def test_a_failed_commit_leaves_the_totals_unchanged(ledger: Ledger) -> None:
    ledger.mine(5)
    ledger.put(pay(1, (1, OURS)), 3)
    hit = Hit(False, 1, bytes(32), 0, bytes(36), 7, OURS, 0)
    with pytest.raises(IndexError):
        bad = StoredMatch(hit._replace(entry=99), bytes(32), 4, Completeness.PROVEN)
        ledger.store.commit(Batch(matches=[StoredMatch(hit, bytes(32), 4, Completeness.PROVEN), bad]))
    check_ledger(ledger.store)
    ledger.mine(1)
    assert ledger.store.views.balance().confirmed == 1


def test_searched_blocks_are_shown_by_entries(ledger: Ledger) -> None:
    ledger.mine(10)
    assert ledger.store.views.searched() == (SearchedEntries(2, (BlockRange(0, 10),), ()),)
    more = WatchList(REGTEST)
    more.add_script(p2wpkh(b"\x03" * 20), "later")
    ledger.store.attach(more, 8)
    assert ledger.store.cursor == 7
    first, second = ledger.store.views.searched()
    assert (first.entries, first.ranges, first.skipped) == (2, ((0, 10),), ())
    assert (second.entries, second.ranges, second.skipped) == (1, (), ((0, 7),))
    assert ledger.store.views.searched_for(OURS) == ((0, 10),)
    assert ledger.store.views.searched_for(p2wpkh(b"\x03" * 20)) == ()
    with pytest.raises(ParameterError, match="not watched"):
        ledger.store.views.searched_for(b"\x51")


def test_a_damaged_row_of_searched_blocks_is_refused(ledger: Ledger) -> None:
    ledger.mine(3)
    ledger.store.commit(Batch(searched=b"{}"))
    for call in (ledger.store.views.searched, lambda: ledger.store.searched_blocks):
        with pytest.raises(StoreCorruptError, match="searched blocks"):
            call()


def test_a_failed_commit_removes_no_entries(ledger: Ledger) -> None:
    ledger.mine(3)
    ledger.put(pay(1, (50_000, OURS), (60_000, SAVINGS)), 2)
    before = list(ledger.store.matches()), ledger.store.ids, ledger.store.views.balance()
    gone = [(False, txid(pay(1, (50_000, OURS), (60_000, SAVINGS))), 0)]
    with pytest.raises(ParameterError):
        ledger.store.commit(Batch(removed=[0], withdrawn=gone), Batch(headers=b"no header"))
    assert (list(ledger.store.matches()), ledger.store.ids, ledger.store.views.balance()) == before
    ledger.store.commit(Batch(removed=[0], withdrawn=gone))
    check_ledger(ledger.store)
    (entry,) = ledger.store.views.history()
    assert (entry.net, entry.labels, ledger.store.views.balance().confirmed) == (60_000, ("savings",), 60_000)
    ledger.store.commit(Batch(labels={0: "kept"}))  # entries have new numbers
    (entry,) = ledger.store.views.history(label="kept")
    assert entry.net == 60_000
