"""Keychains in the wallet's database: windows and uses are restored without deriving scripts. Contradictions and damage
are refused by name.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from spvfilter.errors import (
    DescriptorError,
    DescriptorWarning,
    KeychainError,
    KeychainMismatchError,
    StoreCorruptError,
    StoreForeignError,
    StoreFullError,
)
from spvfilter.kernel import EntryKind
from spvfilter.network import MAINNET, REGTEST, Network
from spvfilter.store.batch import Batch, NewEntry
from spvfilter.store.keychains import IndexRun, KeychainChange, runs_of
from spvfilter.store.schema import MARKED
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch import textfile
from spvfilter.watch.descriptor import descriptor
from spvfilter.watch.descriptor.checksum import checksum
from spvfilter.watch.keychain import GAP_LIMIT, Keychain
from spvfilter.watch.watchlist import WatchList
from support.vectors import effort
from support.wallets.forgery import remark, unchecked
from support.wallets.keychains import script_at
from support.wallets.storesqlite import sqlite_of, writing

KEY = "tpubDC5FSnBiZDMmhiuCmWAYsLwgLYrrT9rAqvTySfuCCrgsWz8wxMXUS9Tb9iVMvcRbvFcAHGkMD5Kx8koh4GquNGNTfohfk7pgjhaPCdXpoba"
Tables = dict[str, list[tuple[object, ...]]]


def wallet(
    script: Callable[[int], bytes] = script_at, *, label: str | None = "savings", lookahead: int = GAP_LIMIT
) -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_keychain("mine", script, label, lookahead=lookahead)
    return watch


def used(watch: WatchList, *indexes: int) -> WatchList:
    """The list after payments to addresses. Each address is in the window that the previous payment moved."""
    for index in indexes:
        for chain in watch.keychains:
            if index < chain.end:
                chain.use(index)
        watch.windows.grow()
    return watch


def facts(watch: WatchList) -> list[object]:
    return [
        (each.name, each.label, each.lookahead, each.end, sorted(each.used), each.next_index)
        for each in watch.keychains
    ]


def joined(path: Path, watch: WatchList) -> WatchList:
    with Store.open(path, watch.network) as store:
        store.attach(watch)
    return watch


def tables(path: Path) -> Tables:
    with closing(sqlite3.connect(path)) as db:
        return {
            name: db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
            for name in ("keychains", "runs", "used", "watch")
        }


@pytest.mark.parametrize("seed", range(effort(20, 100, 2_000)))
def test_runs_are_the_places_that_they_are_made_of(seed: int) -> None:
    rng = random.Random(seed)
    rows, free = list[tuple[int, int]](), 1
    for index in range(rng.randrange(40)):
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            free += rng.choice((0, 0, 0, rng.randrange(5)))
            rows.append((index, free if rng.random() < 0.8 else rng.randrange(1, free + 1)))
            free += 1
    runs = runs_of(rng.sample(rows, len(rows)))
    assert sorted(place for run in runs for place in run.places()) == sorted(set(rows))
    assert runs_of((index, 7 + index) for index in range(1_000)) == [IndexRun(0, 7, 1_000, 1)]
    assert runs_of((index // 4, 7 + index) for index in range(400)) == [IndexRun(0, 7, 100, 4)]


def test_stored_windows_and_uses_need_no_derivation(tmp_path: Path) -> None:
    path, derived = tmp_path / "w.db", list[int]()

    def counted(index: int) -> bytes:
        derived.append(index)
        return script_at(index)

    before = facts(joined(path, used(wallet(), 3, 19, 30, 45, 60, 75)))
    again = wallet(counted)
    derived.clear()
    assert facts(joined(path, again)) == before
    assert len(set(derived)) <= 3  # of 96 indexes, a few are checked
    assert again.windows.entries_beyond({"mine": 0})["mine"] == [(index, index) for index in range(96)]
    assert {again.label(entry) for entry in range(96)} == {"savings"}
    assert again.next_address() == wallet().next_address()
    assert tables(path)["runs"][0][:-1] == (1, 0, 1, 96, 1)


def test_a_wider_window_is_kept_and_a_narrower_one_searched(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, used(wallet(), 15))
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(headers=REGTEST.genesis, cursor=0))
        store.attach(wider := wallet(lookahead=50))
        assert (store.cursor, facts(wider)) == (-1, [("mine", "savings", 50, 50, [15], 0)])
        store.commit(Batch(cursor=0))
        store.attach(narrower := wallet(lookahead=GAP_LIMIT))
        assert (store.cursor, facts(narrower)) == (0, [("mine", "savings", GAP_LIMIT, 50, [15], 0)])
        assert [
            row[2:4]
            for row in sqlite_of(store).execute("SELECT keychain, first, entry, indexes FROM runs ORDER BY first")
        ] == [
            (1, 36),
            (37, 14),
        ]
        assert narrower.advance() == narrower.widen(0, {"mine"}) == []


def test_a_wider_window_is_searched_from_the_wallets_first_start(tmp_path: Path) -> None:
    """A later start of a run applies only to other entries. Payments to the keychain may be as old as the wallet."""
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        store.commit(Batch(headers=REGTEST.genesis, cursor=0))
        store.attach(wallet())
        assert store.cursor == -1
        store.commit(Batch(cursor=0))
        other = WatchList(REGTEST)
        other.add_script(b"\x00\x14" + bytes(20))
        store.attach(other, since=1)
        assert store.cursor == 0
        store.attach(wallet(lookahead=GAP_LIMIT + 7), since=1)
        assert store.cursor == -1


def test_another_function_of_the_same_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, used(wallet(), 15, 30))
    before = tables(path)

    def from_40(index: int) -> bytes:
        return script_at(index if index < 40 else index + 1_000)

    for other, wrong in ((lambda index: script_at(index + 1_000), 0), (from_40, 50)):
        with pytest.raises(
            KeychainMismatchError, match=f"keychain 'mine': the function derives a script for index {wrong} that"
        ):
            joined(path, wallet(other))
    assert tables(path) == before


def test_another_descriptor_under_the_same_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, wallet())
    other = WatchList(REGTEST)
    other.windows.add(Keychain("mine", lambda index: (script_at(index),), size=30, descriptor="raw(51)"))
    said = "keychain 'mine' derives its scripts with a function in the database, but has a descriptor in the watch list"
    with pytest.raises(KeychainMismatchError, match=said):
        joined(path, other)


def test_a_list_without_the_function_keeps_the_window(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    before = facts(joined(path, used(wallet(), 15)))
    without = joined(path, WatchList(REGTEST))
    assert (facts(without), len(without)) == (before, 36)
    assert without.copy().keychains[0].is_dormant
    without.widen()  # derives nothing yet
    without.keychains[0].use(20)
    with pytest.raises(
        KeychainError,
        match=r"index 35, which the window must contain: call add_keychain\('mine', …\) with the function",
    ):
        without.advance()
    assert facts(joined(path, wallet())) == before


@pytest.mark.descriptors
def test_a_descriptor_is_given_once(tmp_path: Path) -> None:
    path, watch = tmp_path / "w.db", WatchList(REGTEST)
    watch.add_descriptor(f"wpkh({KEY}/<0;1>/*)", "savings", lookahead=GAP_LIMIT)
    watch.add_descriptor(f"combo({KEY}/7/*)", lookahead=GAP_LIMIT)
    watch.add_descriptor(f"wpkh({KEY}/0/*)", "the same again", lookahead=30)
    watch.add_descriptor("raw(51)")
    joined(path, used(watch, 3, 25, 40))
    (again, other), sizes = (
        (joined(path, WatchList(REGTEST)), joined(path, WatchList(REGTEST))),
        [each.end for each in watch.keychains],
    )
    assert facts(again) == facts(watch)
    assert again.windows.state() == watch.windows.state()
    assert sorted(again.entries(), key=lambda entry: entry[1]) == sorted(watch.entries(), key=lambda entry: entry[1])
    used(again, 60)
    used(other, 60)
    assert [each.end for each in again.keychains] == [each.end for each in other.keychains] > sizes
    for each in again.keychains:
        scripts = [each.scripts(index) for index in range(each.end)]
        assert all(
            again.windows.watches(each.name, index, script) for index, found in enumerate(scripts) for script in found
        )


@pytest.mark.descriptors
def test_a_known_descriptor_is_found_behind_a_new_one(tmp_path: Path) -> None:
    path, watch, again = tmp_path / "w.db", WatchList(REGTEST), WatchList(REGTEST)
    watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=GAP_LIMIT)
    joined(path, watch)
    again.add_descriptor(f"wpkh({KEY}/1/*)", lookahead=GAP_LIMIT)
    again.add_descriptor(f"wpkh([73c5da0a/84h/1h/0h]{KEY}/0/*)", lookahead=GAP_LIMIT)
    assert len(joined(path, again).keychains) == 2


@pytest.mark.descriptors
def test_stored_descriptor_that_breaks_a_rule_stays_readable(tmp_path: Path) -> None:
    body = f"wsh(or_d(pk({KEY}/0/*),and_v(v:pk({KEY}/0/*),older(9))))"  # one key twice
    text = f"{body}#{checksum(body)}"
    path, watch = tmp_path / "w.db", WatchList(REGTEST)
    with pytest.warns(DescriptorWarning):
        textfile.add(watch, f"keychain:0:{GAP_LIMIT}:{text}", "old")
    joined(path, used(watch, 3))
    with pytest.warns(
        DescriptorWarning, match=f"the stored descriptor #{checksum(body)} .* occurs twice in one script"
    ):
        again = joined(path, WatchList(REGTEST))
    assert facts(again) == facts(watch)
    again.keychains[0].use(20)
    assert len(again.advance()) > 0  # the window can still move
    with pytest.raises(DescriptorError, match="twice in one script"):
        WatchList(REGTEST).add_descriptor(text)


@pytest.mark.descriptors
def test_a_descriptor_without_the_extra_keeps_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, watch = tmp_path / "w.db", WatchList(REGTEST)
    watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=GAP_LIMIT)
    joined(path, used(watch, 3))

    def missing() -> None:
        raise ImportError

    monkeypatch.setattr("spvfilter.watch.descriptor.keyexpression.wally", missing)
    again = joined(path, WatchList(REGTEST))
    assert facts(again) == facts(watch)
    again.keychains[0].use(20)
    with pytest.raises(KeychainError, match=r"cannot derive the script at index 23, .*extra `descriptors`"):
        again.advance()


def test_labels_follow_the_keychain_except_own_labels(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, used(wallet(), 15))
    with Store.open(path, REGTEST) as store:
        store.attach(wallet())
        store.commit(Batch(labels={30: "rent"}))
    again = joined(path, wallet(label="daily"))
    assert [again.label(entry) for entry in (0, 30, 35)] == ["daily", "rent", "daily"]
    unnamed = joined(path, wallet(label=None))
    assert [unnamed.label(entry) for entry in (0, 30, 35)] == ["daily", "rent", "daily"]
    with WalletStore.open(path) as stored:
        assert [each.label for each in stored.keychains()] == ["daily"]


def test_two_keychains_that_share_scripts_are_both_restored(tmp_path: Path) -> None:
    def both() -> WatchList:
        watch = wallet()
        watch.add_keychain("other", lambda index: script_at(index + 10), lookahead=GAP_LIMIT)
        return watch

    path = tmp_path / "w.db"
    before = joined(path, used(both(), 15, 22))
    for again in (both(), wallet(), WatchList(REGTEST)):
        assert facts(joined(path, again)) == facts(before)
        assert again.windows.state() == before.windows.state()
        for name, shift in (("mine", 0), ("other", 10)):
            end = next(each.end for each in before.keychains if each.name == name)
            assert all(again.windows.watches(name, index, script_at(index + shift)) for index in range(end))


def test_a_change_is_written_with_its_entries_and_uses(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, wallet())
    with Store.open(path, REGTEST) as store:
        store.attach(wallet())
        more = [NewEntry(21 + at, *entry) for at, entry in enumerate(list(wallet(lookahead=30).entries())[20:])]
        places = [(20 + at, each.id) for at, each in enumerate(more)]
        change = KeychainChange("mine", (19, 3), 30, places)
        with pytest.raises(StoreCorruptError, match="keychain 'other' is missing"):
            store.commit(Batch(entries=more, keychains=[change, KeychainChange("other", (1,))]))
        store.commit(Batch(entries=more, keychains=[change]), Batch(keychains=[KeychainChange("mine", (3, 5))]))
        (kept,) = store.keychains.load()
        assert (kept.window, sorted(kept.used), list(kept.runs)) == (
            30,
            [3, 5, 19],
            [IndexRun(0, 1, 20, 1), IndexRun(20, 21, 10, 1)],
        )
        store.commit(Batch(keychains=[KeychainChange("mine", exclusive=True)]))
        assert store.keychains.load()[0].revealed == store.keychains.revealed_by([script_at(0)]) == 0
        store.commit(Batch(keychains=[KeychainChange("mine", revealed=1)]))
        assert store.keychains.load()[0].revealed == store.keychains.revealed_by([script_at(0)]) == 1
    assert facts(joined(path, WatchList(REGTEST))) == [("mine", "savings", GAP_LIMIT, 30, [3, 5, 19], 1)]


@pytest.mark.parametrize("room", range(effort(4, 12, 60)))
def test_a_full_disk_stores_a_window_move_completely_or_not(room: int, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, wallet())
    with Store.open(path, REGTEST) as store:
        store.attach(watch := wallet())
        (pages,) = sqlite_of(store).execute("PRAGMA page_count").fetchone()
        sqlite_of(store).execute(f"PRAGMA max_page_count = {pages + room}")
        end = 20
        with pytest.raises(StoreFullError):
            while True:
                entries = [
                    NewEntry(1 + index, EntryKind.SCRIPT, script_at(index), None) for index in range(end, end + 20)
                ]
                uses, places = tuple(range(end - 20, end)), [(each.id - 1, each.id) for each in entries]
                store.commit(Batch(entries=entries, keychains=[KeychainChange("mine", uses, end + 20, places)]))
                end += 20
        assert len(watch) == 20
    again = joined(path, WatchList(REGTEST))
    (chain,) = again.keychains
    assert (chain.end, len(again), sorted(chain.used)) == (end, end, list(range(end - 20)))


@pytest.mark.posix
@pytest.mark.parametrize("seed", range(effort(2, 6, 100)))
def test_a_killed_process_leaves_keychains_of_one_commit(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    program = """if True:
        import sys
        sys.path[:0] = sys.argv[2:]
        from spvfilter.kernel import EntryKind
        from spvfilter.network import REGTEST
        from spvfilter.store import Batch, KeychainChange, NewEntry, Store
        from store.test_keychains import script_at, wallet
        with Store.open(sys.argv[1], REGTEST) as store:
            store.attach(wallet())
            print("begun", flush=True)
            for end in range(20, 100_000):
                entry = NewEntry(end + 1, EntryKind.SCRIPT, script_at(end), "savings")
                change = KeychainChange("mine", (end - 20,), end + 1, [(end, end + 1)])
                store.commit(Batch(entries=[entry], keychains=[change], cursor=-1))
    """
    folders = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent.parent)]
    child = subprocess.Popen([sys.executable, "-c", program, str(path), *folders], stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(random.Random(seed).random() * 0.4)
        os.kill(child.pid, signal.SIGKILL)
    again = joined(path, wallet())
    (chain,) = again.keychains
    assert (len(again), sorted(chain.used)) == (chain.end, list(range(chain.end - 20)))
    assert chain.required <= chain.end


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE keychains SET window = window + 1", "a row in table keychains is damaged"),
        ("UPDATE keychains SET lookahead = 21", "a row in table keychains is damaged"),
        ("UPDATE runs SET entry = 2", "a row in table runs is damaged"),
        ("UPDATE used SET place = 4", "a row in table used is damaged"),
        ("DELETE FROM keychains", "rows are missing"),
        ("DELETE FROM runs", "rows are missing"),
        ("DELETE FROM used", "rows are missing"),
    ],
)
def test_damage_is_noticed_and_a_rebuild_keeps_the_rest(damage: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, used(wallet(), 3))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(damage)
    with pytest.raises(StoreCorruptError, match=said):
        Store.open(path, REGTEST)
    with Store.open(path, REGTEST, rebuild=True) as store:
        store.attach(again := wallet())
        assert store.keychains.load()[0].window == again.keychains[0].end >= GAP_LIMIT
    assert len(again) == 24  # all scripts are there, whether the keychain is or not
    Store.open(path, REGTEST).close()


@pytest.mark.parametrize(("table", "what"), [("keychains", "descriptors"), ("watch", "addresses"), ("used", None)])
def test_a_rebuild_says_what_it_lost(
    table: str, what: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its descriptor, a wallet misses the payments beyond its window."""
    path = tmp_path / "w.db"
    joined(path, used(wallet(), 3))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"UPDATE {table} SET mark = mark + 1 WHERE mark = (SELECT max(mark) FROM {table})")
    Store.open(path, REGTEST, rebuild=True).close()
    assert [each.getMessage() for each in caplog.records] == [
        f"{path}: the rebuild lost damaged rows of {what}: add what is missing" for _ in (what,) if what
    ]


def test_a_rebuild_keeps_keychains(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    before = facts(joined(path, used(wallet(), 3, 19, 30)))
    Store.open(path, REGTEST, rebuild=True).close()
    assert facts(joined(path, WatchList(REGTEST))) == before
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        # the row of index 30: the rows after it are not trusted
        db.execute("UPDATE watch SET label = 'x' WHERE id = 31")
    Store.open(path, REGTEST, rebuild=True).close()
    assert facts(joined(path, WatchList(REGTEST))) == [("mine", "savings", GAP_LIMIT, 30, [3, 19], 0)]
    again = joined(path, used(wallet(), 19))
    assert again.keychains[0].end == 40
    assert len(again) == 51


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("runs", (1, 30, 5, 1, 1)),  # after a gap
        ("runs", (1, 24, 5, 1, 1)),  # beyond the window
        ("runs", (1, 0, 99, 1, 1)),  # rows without entries
        ("runs", (1, 0, 5, 1 << 60, 1)),
        ("runs", (2, 0, 1, 1, 1)),  # of an unknown keychain
        ("used", (1, 24)),
        ("used", (2, 0)),
    ],
)
def test_rows_that_contradict_each_other_are_refused(statement: str, values: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, used(wallet(), 3))
    with Store.open(path, REGTEST) as store, writing(store) as rows:
        rows.insert(statement, values)
    with pytest.raises(StoreCorruptError, match=r"the window of keychain 'mine' is inconsistent|a keychain is missing"):
        Store.open(path, REGTEST)


def test_files_of_other_schemas_and_networks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    joined(path, wallet())
    with pytest.raises(StoreForeignError, match="this wallet belongs to regtest, not to mainnet"):
        Store.open(path, MAINNET)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 5")
    with pytest.raises(StoreForeignError, match=r"schema version 5 .*: written by a version before 0\.2\.0"):
        Store.open(path, REGTEST)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:  # the tables of version 5
        for table in ("keychains", "runs", "used"):
            db.execute(f"DROP TABLE {table}")
    with Store.open(path, REGTEST, rebuild=True) as store:
        store.attach(again := wallet())
        assert (len(again), store.keychains.load()[0].window) == (20, 20)


@pytest.mark.descriptors
def test_no_private_key_is_stored(tmp_path: Path) -> None:
    path, watch = tmp_path / "w.db", WatchList(REGTEST)
    watch.add_descriptor(f"wpkh([deadbeef/84h/1h/0h]{KEY}/0/*)", lookahead=GAP_LIMIT)
    with pytest.raises(DescriptorError, match="private"):
        watch.add_descriptor("wpkh(cVpPVruEDdmutPzisEsYvtST1usBR3ntr8pXSyt6D2YYqXRyPcFW)")
    joined(path, watch)
    assert all(b"cVpPVru" not in each.read_bytes() for each in tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.descriptors
def test_stored_descriptor_of_one_key_is_parsed_when_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = descriptor.parse_descriptor

    def counted(text: str, network: Network, *, is_stored: bool = False) -> list[descriptor.Descriptor]:
        parsed.append(text)
        return parse(text, network, is_stored=is_stored)

    path, watch = tmp_path / "w.db", WatchList(REGTEST)
    names = [watch.add_descriptor(f"{name}({KEY}/{at}/*)")[0].name for at, name in enumerate(("pkh", "wpkh", "tr"))]
    names += (each.name for each in watch.add_descriptor(f"sh(wpkh({KEY}/9/*))"))
    joined(path, watch)
    monkeypatch.setattr(descriptor, "parse_descriptor", counted)
    again = joined(path, WatchList(REGTEST))
    assert (parsed, facts(again)) == ([], facts(watch))
    for each in (watch, again):
        used(each, each.keychains[1].end - 1)
    assert (parsed, facts(again)) == (names, facts(watch))


@pytest.mark.descriptors
def test_stored_descriptor_with_a_wrong_checksum_derives_nothing(tmp_path: Path) -> None:
    path, watch = tmp_path / "w.db", WatchList(REGTEST)
    name = watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=GAP_LIMIT)[0].name
    joined(path, watch)
    forged = f"{name[:-1]}{'q' if name[-1] != 'q' else 'p'}"
    with unchecked(path) as db:
        db.execute("UPDATE keychains SET name = ?, descriptor = ?", (forged, forged))
        remark(db, "keychains", MARKED)
    again = joined(path, WatchList(REGTEST))
    again.keychains[0].use(5)
    with pytest.raises(KeychainError, match="the checksum of the descriptor is wrong"):
        again.advance()
