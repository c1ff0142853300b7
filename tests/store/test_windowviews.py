"""Keychains for readers: next addresses, uses, and views of one keychain, as a scan of the rows by hand gives them."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError, StoreCorruptError, WrongNetworkError
from spvfilter.network import REGTEST
from spvfilter.store import views, windowviews
from spvfilter.store.batch import Batch
from spvfilter.store.keychains import KeychainChange
from spvfilter.store.place import MEMORY
from spvfilter.store.sqlite import mark
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from store.test_views import OURS, Ledger, pay
from support.blocks.build import TxIn, TxOut, tx
from support.vectors import effort
from support.wallets.keychains import script_at
from support.wallets.storesqlite import checked_rows, writing

KEY = "tpubDC5FSnBiZDMmhiuCmWAYsLwgLYrrT9rAqvTySfuCCrgsWz8wxMXUS9Tb9iVMvcRbvFcAHGkMD5Kx8koh4GquNGNTfohfk7pgjhaPCdXpoba"


def change_at(index: int) -> bytes:
    return script_at(index + 1_000)


def address(script: bytes) -> str:
    return str(script_to_address(script, REGTEST))


class Chains(Ledger):
    """A wallet with two keychains beside its two scripts."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.watch.add_keychain("receiving", script_at, "savings", lookahead=GAP_LIMIT)
        self.watch.add_keychain("change", change_at, "savings", lookahead=GAP_LIMIT)
        self.store.attach(self.watch)

    def use(self, **used: list[int]) -> None:
        self.store.commit(Batch(keychains=[KeychainChange(name, indexes) for name, indexes in used.items()]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "wallet.db"
    ledger = Chains(made)
    ledger.mine(12)
    ledger.put(pay(1, (1_000, script_at(0))), 3)
    first = ledger.put(pay(2, (5_000, script_at(2))), 4)
    ledger.put(pay(3, (7, OURS)), 5)
    ledger.put(tx([TxIn(first, 0)], [TxOut(4_000, change_at(0)), TxOut(900, b"\x51")]), seen=1_700_000_000)
    ledger.use(receiving=[0, 2], change=[0])
    ledger.store.close()
    return made


def test_keychains_show_their_uses_and_next_addresses(path: Path) -> None:
    with WalletStore.open(path) as wallet:
        receiving, change = wallet.keychains()
        assert (receiving.name, receiving.label, receiving.descriptor, receiving.lookahead) == (
            "receiving",
            "savings",
            None,
            GAP_LIMIT,
        )
        assert (receiving.window, receiving.used, receiving.next_index) == (20, (0, 2), 1)
        assert wallet.next_address() == receiving.next_address == address(script_at(1))
        assert wallet.next_address("change") == change.next_address == address(change_at(1))
        assert wallet.next_address("savings") == address(script_at(1))  # the first of both
        used = [
            wallet.is_used(address(script))
            for script in (script_at(0), script_at(1), change_at(0), OURS, script_at(500))
        ]
        assert used == [True, False, True, True, False]
        with pytest.raises(ParameterError, match=r"has no keychain 'other'; it has 'receiving', 'change'$"):
            wallet.next_address("other")
        with pytest.raises(WrongNetworkError):
            wallet.is_used("bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq")


def test_views_of_one_keychain(path: Path) -> None:
    with WalletStore.open(path) as wallet:
        assert [(coin.value, coin.keychain, coin.keychain_index) for coin in wallet.coins()] == [
            (4_000, "change", 0),
            (7, None, None),
            (5_000, "receiving", 2),
            (1_000, "receiving", 0),
        ]
        assert [coin.value for coin in wallet.coins(keychain="receiving")] == [5_000, 1_000]
        assert [coin.value for coin in wallet.coins(keychain="change", label="savings")] == [4_000]
        assert [coin.value for coin in wallet.coins(keychain="savings")] == [4_000, 5_000, 1_000]
        balance = wallet.balance(keychain="receiving")
        assert (balance.confirmed, balance.pending_in, balance.pending_out, balance.spendable) == (
            6_000,
            0,
            5_000,
            6_000,  # nobody checked the signatures of the foreign spend
        )
        assert (wallet.balance(keychain="change").total, wallet.balance("savings", keychain="change").total) == (
            4_000,
            4_000,
        )
        assert [entry.net for entry in wallet.history(keychain="receiving")] == [-1_000, 5_000, 1_000]
        assert [entry.net for entry in wallet.history(keychain="change")] == [-1_000]
        assert [entry.net for entry in wallet.history(keychain="receiving", label="savings", limit=1)] == [-1_000]
        assert wallet.history(keychain="receiving", label="daily") == []
        page = wallet.history(keychain="receiving", limit=2)
        assert [entry.net for entry in wallet.history(keychain="receiving", before=page[-1].cursor)] == [1_000]
        for view in (wallet.balance, wallet.coins, wallet.history):
            with pytest.raises(ParameterError, match="the wallet has no keychain 'daily'"):
                view(keychain="daily")


def test_error_lists_first_keychains_by_label_or_name(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    for number in range(6):
        watch.add_keychain(f"{number}" * 300, partial(numbered, number), lookahead=GAP_LIMIT)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(watch)
        listed = ", ".join(f"'{str(number) * 200}…'" for number in range(5))
        with pytest.raises(ParameterError, match=rf"has no keychain 'x'; it has {listed}, …$"):
            store.views.keychains("x")


def test_a_wallet_without_keychains_says_so(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    with WalletStore.open(tmp_path / "w.db") as wallet:
        assert wallet.keychains() == ()
        with pytest.raises(ParameterError, match="the wallet has no keychain: watch its descriptor"):
            wallet.next_address()
        with pytest.raises(ParameterError, match="the wallet has no keychain 'x'; it has none at all"):
            wallet.coins(keychain="x")
    ledger.store.close()


@pytest.mark.descriptors
def test_next_addresses_are_those_of_the_list_whatever_the_descriptor(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    kinds = (
        f"wpkh({KEY}/<0;1>/*)",
        f"combo({KEY}/3/*)",
        f"tr({KEY}/2/*)",
        "raw(51)",
        "sh(wpkh(03a34b99f22c790c4e36b2b3c2c35a36db06226e41c692fc82b8b56ac1c540c5bd))",
        f"pk({KEY}/1/*)",
    )
    for text in kinds:
        watch.add_descriptor(text, lookahead=GAP_LIMIT)
    for each in watch.keychains:
        for index in range(min(each.size, 5)) if "/*" in each.name else ():
            each.use(index)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(watch)
    with WalletStore.open(tmp_path / "w.db") as wallet:
        assert [each.name for each in wallet.keychains()] == [each.name for each in watch.keychains]
        for each, told in zip(watch.keychains, wallet.keychains(), strict=True):
            assert told.next_index == (5 if each.size > 1 else 0)
            if each.name.startswith(("raw", "pk(")):
                with pytest.raises(ParameterError, match="have no address"):
                    wallet.next_address(each.name)
            else:
                assert (
                    wallet.next_address(each.name.partition("#")[0])
                    == watch.next_address(each.name)
                    == told.next_address
                )
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(WatchList(REGTEST))
        fixed = next(each.name for each in watch.keychains if each.name.startswith("sh"))
        store.commit(Batch(keychains=[KeychainChange(fixed, [0])]))
        with pytest.raises(ParameterError, match="every address of keychain 'sh"):
            store.views.next_address(fixed)


def test_a_damaged_row_is_no_address(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (row,) = db.execute("SELECT id FROM watch WHERE value = ?", (script_at(1),)).fetchone()
        db.execute("UPDATE watch SET value = ? WHERE id = ?", (script_at(77), row))
    with WalletStore.open(path) as wallet, pytest.raises(StoreCorruptError, match="a row in table watch is damaged"):
        wallet.next_address()


def rows_read(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> Counter[str]:
    """Rows that a view reads, by table."""
    read: Counter[str] = Counter()

    def counted(table: str, row: list[object]) -> int:
        read[table] += 1
        return mark(table, row)

    with monkeypatch.context() as patched:
        patched.setattr(views, "mark", counted)
        call()
    return read


def many(path: Path, keychains: int) -> Store:
    """A database of keychains, each with ten used indexes. Each has a label of its own."""
    watch = WatchList(REGTEST)
    for number in range(keychains):
        watch.add_keychain(f"chain {number}", partial(numbered, number), f"label {number}", lookahead=GAP_LIMIT)
    store = Store.open(path, REGTEST)
    store.attach(watch)
    store.commit(Batch(keychains=[KeychainChange(each.name, range(10)) for each in watch.keychains]))
    return store


def numbered(keychain: int, index: int) -> bytes:
    return script_at(keychain * 1_000 + index)


@pytest.mark.parametrize("name", [None, "chain 4", "label 4"])
def test_the_next_address_reads_rows_of_one_keychain(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for keychains in (5, 60):
        with many(tmp_path / f"{keychains}.db", keychains) as store:
            asked = partial(store.views.next_address, name)
            assert asked() == address(numbered(0 if name is None else 4, 10))
            assert rows_read(monkeypatch, asked) == {"keychains": 1, "used": 2, "runs": 1, "watch": 1}


@pytest.mark.parametrize("seed", range(effort(20, 50, 500)))
def test_the_next_address_belongs_to_the_lowest_unused_index(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with many(tmp_path / "w.db", 1) as store:
        used = sorted({*range(10), *rng.sample(range(10, 19), rng.randrange(9))})
        store.commit(Batch(keychains=[KeychainChange("chain 0", used)]))
        lowest = min(set(range(20)) - set(used))
        assert store.views.next_address() == address(numbered(0, lowest)) == store.views.keychains()[0].next_address


def test_a_keychain_is_chosen_by_name_before_label(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    for number, (name, label) in enumerate(
        (("b", "a"), ("a#checksum", "b"), ("a$", "a#"), ("ab", None), ("c#d#e", "c"), ("d#", "e"))
    ):
        watch.add_keychain(name, partial(numbered, number), label, lookahead=GAP_LIMIT)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(watch)
        expected = {"a": "a#checksum", "b": "b", "a#": "a$", "c": "c#d#e", "a$": "a$", "d": "d#", "e": "d#"}
        for asked, name in expected.items():
            assert [each.name for each in store.views.keychains(asked)] == [name]
        for name in ("c#d", "", "\ud800"):
            with pytest.raises(ParameterError, match="the wallet has no keychain"):
                store.views.keychains(name)


def test_coins_read_only_the_keychains_that_have_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WalletStore.open(path) as wallet:
        read = rows_read(monkeypatch, wallet.coins)
        assert (read["runs"], read["keychains"]) == (4, 2)


def overlapping(number: int, index: int) -> bytes:
    """Scripts of keychains that derive partly the same scripts, at other indexes."""
    return script_at(number * 7 + index)


@pytest.mark.parametrize("seed", range(effort(30, 100, 1_000)))
def test_no_address_is_next_that_was_used_or_revealed(seed: int, tmp_path: Path) -> None:
    rng, ledger = random.Random(seed), Ledger(tmp_path / "w.db")
    names = [f"chain {number}" for number in range(3)]
    for number, name in enumerate(names):
        ledger.watch.add_keychain(name, partial(overlapping, number), lookahead=GAP_LIMIT)
    ledger.store.attach(ledger.watch)
    ledger.mine(3)
    used = {name: set(rng.sample(range(12), rng.randrange(8))) for name in names}
    revealed = {name: rng.choice((0, 0, rng.randrange(10))) for name in names}
    gone = {script_at(rng.randrange(30)) for _ in range(rng.randrange(4))}
    pending = {script_at(rng.randrange(30)) for _ in range(rng.randrange(4))}
    for name in names:
        ledger.store.commit(
            Batch(keychains=[KeychainChange(name, sorted(used[name]), revealed=revealed[name] or None)])
        )
    with writing(ledger.store):
        ledger.store.keychains.keep_revealed_scripts(gone)
    for number, script in enumerate(pending):
        ledger.put(pay(number, (1_000, script)), seen=5)

    given = {overlapping(number, index) for number, name in enumerate(names) for index in range(revealed[name])} | gone
    found = ledger.store.views.keychains()
    for number, each in enumerate(found):
        free = [
            index
            for index in range(revealed[each.name], each.window)
            if index not in used[each.name] and overlapping(number, index) not in given | pending
        ]
        assert each.next_index == (free or [each.window])[0]
        assert each.next_address == (address(overlapping(number, free[0])) if free else None)
        if free:
            assert ledger.store.views.next_address(each.name) == each.next_address
        else:
            with pytest.raises(ParameterError, match="all watched addresses of keychain"):
                ledger.store.views.next_address(each.name)
        assert set(each.revealed_elsewhere) == {
            index for index in range(revealed[each.name], each.window) if overlapping(number, index) in given
        }
        assert ledger.store.views.keychains(each.name) == (each,)
    ledger.store.close()


@pytest.mark.parametrize("seed", range(effort(20, 50, 500)))
def test_keychains_of_an_entry_are_found_among_all_runs(seed: int) -> None:
    rng, runs = random.Random(seed), list[tuple[int, int, int, int, int]]()
    for number in range(rng.randrange(1, 60)):
        indexes = rng.choice((1, 15, 16, 20, 255, 256, 40_000, 1 << 33))
        start = rng.choice((number * 40 + 1, rng.randrange(1, 3_000), rng.randrange(1, 1 << 20)))
        runs.append((number + 1, rng.randrange(3), start, indexes, rng.choice((1, 2, 16))))
    with Store.open(MEMORY, REGTEST) as store:
        with writing(store) as rows:
            for run in runs:
                rows.insert("runs", run)
        places = windowviews.EntryPlaces(checked_rows(store))
        for number in range(200):
            if number == 100:  # after many lookups, all runs are read
                assert not any(places.owners((1 << 60) + entry) for entry in range(501))
            _, _, start, indexes, scripts = rng.choice(runs)
            entry = max(1, start + rng.choice((-1, 0, indexes * scripts - 1, indexes * scripts, rng.randrange(3_000))))
            assert sorted(places.owners(entry)) == [
                (keychain, first + (entry - start) // scripts)
                for keychain, first, start, indexes, scripts in runs
                if start <= entry < start + indexes * scripts
            ]


@pytest.mark.descriptors
def test_a_used_descriptor_of_one_script_has_no_next_address(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_descriptor("sh(wpkh(03a34b99f22c790c4e36b2b3c2c35a36db06226e41c692fc82b8b56ac1c540c5bd))")
    watch.keychains[0].use(0)
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(watch)
    with WalletStore.open(tmp_path / "w.db") as wallet:
        (told,) = wallet.keychains()
        assert (told.next_index, told.next_address) == (None, None)
        with pytest.raises(ParameterError, match=r"every address of keychain .* has been used or revealed"):
            wallet.next_address()


def test_the_address_after_the_first_window_is_its_own_keychains(tmp_path: Path) -> None:
    ledger = Chains(tmp_path / "w.db")
    for each in ledger.watch.keychains:
        for index in range(GAP_LIMIT):
            each.use(index)
    ledger.watch.windows.grow()
    ledger.store.close()
    with Store.open(tmp_path / "w.db", REGTEST) as store:
        store.attach(ledger.watch)
        found = [(each.next_index, each.next_address) for each in store.views.keychains()]
    assert found == [(GAP_LIMIT, address(script(GAP_LIMIT))) for script in (script_at, change_at)]


def test_a_window_without_an_unused_index_has_no_next_address(tmp_path: Path) -> None:
    ledger = Chains(tmp_path / "w.db")
    ledger.use(receiving=[*range(GAP_LIMIT)])
    with pytest.raises(ParameterError, match="all watched addresses of keychain 'receiving'"):
        ledger.store.views.next_address("receiving")
    ledger.store.close()


def test_keychains_of_a_label_and_an_account_have_both() -> None:
    watch = WatchList(REGTEST)
    with watch.within_account("alice"):
        watch.add_keychain("mine", script_at, "rent", lookahead=GAP_LIMIT)
    watch.add_keychain("other", change_at, "rent", lookahead=GAP_LIMIT)
    with Store.open(MEMORY, REGTEST) as store:
        store.attach(watch)
        assert [each.name for each in store.views.keychains("rent", account="alice")] == ["mine"]
        with pytest.raises(ParameterError, match="the account has no keychain 'other'"):
            store.views.keychains("other", account="alice")


def test_a_coin_of_two_keychains_belongs_to_the_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.watch.add_keychain("one", script_at, lookahead=GAP_LIMIT)
    ledger.watch.add_keychain("two", lambda index: script_at(index + 7), lookahead=GAP_LIMIT)
    ledger.watch.add_keychain("three", lambda index: script_at(index + 7_000), lookahead=GAP_LIMIT)
    ledger.watch.add_keychain("four", lambda index: script_at(index + 9_000 if index else 5), lookahead=GAP_LIMIT)
    ledger.store.attach(ledger.watch)
    ledger.mine(3)
    for number, index in enumerate((0, 7, 19, 20, 26, 7_000, 7_019), 1):
        ledger.put(pay(number, (index + 1, script_at(index))), 2)
    found = {coin.value - 1: (coin.keychain, coin.keychain_index) for coin in ledger.store.views.coins()}
    expected = {0: ("one", 0), 7: ("one", 7), 19: ("one", 19), 20: ("two", 13), 26: ("two", 19)}
    assert found == expected | {7_000: ("three", 0), 7_019: ("three", 19)}
    ledger.store.close()
