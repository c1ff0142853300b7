"""`wallet`: a wallet's balance, coins and history from its database, as a person and as a program read it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.cli.term.keychains import show_keychains
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.ranges import blocks
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from store.test_views import OURS, SAVINGS, Ledger, pay
from support.blocks.build import TxIn, TxOut, p2wpkh, tx, txid
from support.commands.csvrows import csv_row
from support.commands.processes import command, environment, on_terminal
from support.wallets.keychains import script_at
from support.wallets.stores import opened

TPUB = "tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUGLnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with two payments, one of which is being spent, and a pending one; blocks are of 1970."""
    made = tmp_path / "wallet.db"
    ledger = Ledger(made)
    ledger.mine(12)
    first = ledger.put(pay(1, (150_000_000, OURS)), 3)
    ledger.put(pay(2, (50_000, SAVINGS)), 4)
    ledger.put(
        tx([TxIn(first, 0)], [TxOut(30_000_000, OURS), TxOut(119_999_000, p2wpkh(b"\xee" * 20))]), seen=1_700_000_000
    )
    ledger.store.close()
    return made


def shown(raw: bytes) -> str:
    return txid(raw)[::-1].hex()


@pytest.mark.few(1)
@pytest.mark.parametrize("action", ["balance", "coins", "history", "tx", "keychains"])
def test_broken_pipe_ends_each_action_quietly(path: Path, action: str) -> None:
    txid = [shown(pay(1, (150_000_000, OURS)))] if action == "tx" else []
    words = command("wallet", action, *txid, "--db", path, "--format", "table")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=60)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
def test_full_disk_is_no_fault_of_the_database(path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with Path("/dev/full").open("wb") as full:
        words = command("wallet", "history", "--db", path)
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=60)
    assert (done.returncode, done.stderr) == (2, b"spvfilter: cannot read or write: No space left on device\n")


def test_coins_of_a_broadcast_that_waits_are_not_immature(run: Any, tmp_path: Path) -> None:
    ledger = Ledger(made := tmp_path / "wallet.db")
    ledger.mine(12)
    spent = ledger.put(pay(1, (50_000, OURS)), 3)
    ledger.put(pay(2, (60_000, SAVINGS)), 4, position=0)
    waiting = tx([TxIn(spent, 0)], [TxOut(49_000, p2wpkh(b"\xee" * 20))])
    hits = tuple(ledger.watch.table.scan_tx(waiting))
    ledger.store.commit(
        Batch(transactions={txid(waiting): StoredTx(waiting, TxStatus.WAITING, 1, 1_700_000_000, hits=hits)})
    )
    ledger.store.close()
    assert json.loads(run("wallet", "balance", "--db", made).out)["spendable"] == 0
    rows = run("wallet", "coins", "--db", made, "--format", "table").out.splitlines()[1:]
    assert [" immature " in row for row in rows] == [True, False]
    assert " being spent " in rows[1]


def test_a_balance_for_people_and_for_programs(run: Any, path: Path) -> None:
    assert run("wallet", "balance", "--db", path, "--format", "table").out.splitlines() == [
        "confirmed       1.50050000 BTC",
        "pending        -1.20000000 BTC",
        "total           0.30050000 BTC",
        "spendable now   1.50050000 BTC",  # nobody checked the signatures of the foreign spend
    ]
    numbers = {"confirmed": 150_050_000, "immature": 0, "pending_in": 30_000_000, "pending_out": 150_000_000}
    numbers |= {"spendable": 150_050_000, "total": 30_050_000, "trusted_pending": 0}
    assert json.loads(run("wallet", "balance", "--db", path).out) == numbers
    ran = run("wallet", "balance", "--db", path, "--format", "csv", "--label", "savings")
    assert ran.out == (
        "confirmed,immature,pending_in,pending_out,spendable,total,trusted_pending\n50000,0,0,0,50000,50000,0\n"
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("action", ["balance", "coins", "history"])
def test_a_label_that_nothing_has_is_noted(action: str, run: Any, path: Path) -> None:
    ran = run("wallet", action, "--db", path, "--label", "Savings")
    assert (ran.code, ran.err) == (
        0,
        "spvfilter: no transaction has the label 'Savings': write a label exactly as the watch list does\n",
    )
    assert run("wallet", action, "--db", path, "--label", "savings").err == ""


def test_csv_escapes_control_characters(run: Any, path: Path) -> None:
    with Store.open(path, REGTEST) as store:
        store.attach(WatchList(REGTEST))
        store.commit(Batch(labels={0: "\x1b[2Jgone\r\n=1+1\u202e"}))
    for action in ("coins", "history"):
        out = run("wallet", action, "--db", path, "--format", "csv").out
        assert "\\x1b[2Jgone\\r\\n=1+1\\u202e" in out
        assert all(line.isprintable() for line in out.splitlines())


@pytest.mark.few(2)
@pytest.mark.parametrize("label", ["=1+1", "+1", "-1", "@SUM(A1)", "1-1", "rent"])
def test_csv_label_is_no_formula(label: str, run: Any, path: Path) -> None:
    with Store.open(path, REGTEST) as store:
        store.attach(WatchList(REGTEST))
        store.commit(Batch(labels={0: label}))
    safe = label if label[0] in "1r" else f"'{label}"
    for action, column in (("coins", "label"), ("history", "labels")):
        rows = list(csv.DictReader(io.StringIO(run("wallet", action, "--db", path, "--format", "csv").out)))
        assert safe in {row[column] for row in rows}
        assert all(int(row["net"]) for row in rows if "net" in row)
        assert label in run("wallet", action, "--db", path, "--format", "jsonl").out


def test_coins_tell_what_can_be_spent(run: Any, path: Path) -> None:
    rows = [json.loads(line) for line in run("wallet", "coins", "--db", path).out.splitlines()]
    assert [(row["value"], row["height"], row["label"], row["spendable"]) for row in rows] == [
        (30_000_000, None, "daily", False),
        (50_000, 4, "savings", True),
        (150_000_000, 3, "daily", True),  # nobody checked the signatures of the foreign transaction that spends it
    ]
    assert rows[2]["spent_by"] == rows[0]["outpoint"].split(":")[0]
    assert [(row["time"], row["completeness"]) for row in rows] == [(None, None), (1_004, "proven"), (1_003, "proven")]
    assert list(rows[0])[-6:] == ["time", "completeness", "output_label", "frozen", "account", "sp_label"]
    assert [row["frozen"] for row in rows] == [False] * 3


def test_a_history_in_every_format(run: Any, path: Path) -> None:
    rows = [json.loads(line) for line in run("wallet", "history", "--db", path).out.splitlines()]
    assert [(row["net"], row["status"], row["height"], row["confirmations"], row["labels"]) for row in rows] == [
        (-120_000_000, "pending", None, 0, ["daily"]),
        (50_000, "confirmed", 4, 9, ["savings"]),
        (150_000_000, "confirmed", 3, 10, ["daily"]),
    ]
    assert rows[0]["fee"] == 1_000
    assert [row["completeness"] for row in rows] == [None, "proven", "proven"]
    assert list(rows[0])[-2:] == ["completeness", "label"]
    table = list(
        csv.DictReader(io.StringIO(run("wallet", "history", "--db", path, "--format", "csv", "--limit", 2).out))
    )
    assert [row["net"] for row in table] == ["-120000000", "50000"]
    assert [list(row.items()) for row in table] == [
        list(csv_row(row | {"labels": row["labels"][0]}).items()) for row in rows[:2]
    ]
    assert [row["raw"] for row in table] == [row["raw"] for row in rows[:2]]
    assert run("wallet", "history", "--db", path, "--label", "savings").out.count("\n") == 1
    address = json.loads(run("wallet", "coins", "--db", path, "--label", "savings").out)["address"]
    (row,) = run("wallet", "history", "--db", path, "--address", address).out.splitlines()
    assert json.loads(row)["net"] == 50_000


def plain(seen: str) -> list[str]:
    """Lines of a terminal without their colours."""
    return [re.sub("\x1b\\[[0-9;]*m", "", line).rstrip() for line in seen.splitlines()]


def test_a_history_fits_a_terminal(path: Path) -> None:
    code, seen = on_terminal("wallet", "history", "--db", path)
    assert code == 0
    lines = plain(seen)
    assert max(map(len, lines)) <= 80
    assert any(
        "2023-11-14 22:13" in line and "pending" in line and "-1.20000000" in line and "daily" in line for line in lines
    )
    assert any(" 4 " in line and "+0.00050000" in line and "savings" in line for line in lines)
    _, seen = on_terminal("wallet", "coins", "--db", path)
    assert max(map(len, plain(seen))) <= 80


def test_a_transaction_by_its_txid(run: Any, path: Path) -> None:
    raw = pay(2, (50_000, SAVINGS))
    told = run("wallet", "tx", shown(raw), "--db", path, "--format", "table").out
    assert "net            +0.00050000 BTC" in told
    assert raw.hex() in told
    assert json.loads(run("wallet", "tx", shown(raw), "--db", path).out)["raw"] == raw.hex()


def test_tables_of_a_wallet(transcript_of: Any, path: Path) -> None:
    coins, history, *_ = transcript_of(
        0,
        f"""
        wallet coins --db wallet.db --format table
        wallet history --db wallet.db --format table
        wallet coins --db wallet.db --format table --label daily
        wallet tx {shown(pay(2, (50_000, SAVINGS)))} --db wallet.db --format table
        wallet keychains --db wallet.db --format table
        wallet accounts --db wallet.db --format table
        wallet balance --db wallet.db --format csv --label Savings
        """,
    )
    assert re.findall(r"[-+]?\d+\.\d{8}", coins.out) == ["0.30000000", "0.00050000", "1.50000000"]
    assert re.findall(r"[-+]?\d+\.\d{8}", history.out) == ["-1.20000000", "+0.00050000", "+1.50000000"]


def test_invalid_arguments_are_named(refused: Any, path: Path) -> None:
    refused(f"""
        wallet tx --db {path}
        wallet tx 12 --db {path}
        wallet tx {"zz" * 32} --db {path}
        wallet balance 12 --db {path}
        wallet tx {"00" * 32} --limit 3 --db {path}
        wallet history --limit 0 --db {path}
        wallet sums --db {path}
        wallet tx {"00" * 32} --db {path}
        wallet address --db {path}
        wallet address --limit 1 --db {path}
        wallet balance --db none.db
    """)


def test_an_empty_wallet_has_nothing_to_show(transcript_of: Any, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.store.commit(Batch(cursor=0))
    ledger.store.close()
    transcript_of(
        0,
        """
        wallet history --db w.db --format table
        wallet coins --db w.db --format table
        wallet history --db w.db
        """,
    )


def test_a_history_of_many_pages_is_whole(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    ledger.mine(3)
    raws = [tx([TxIn(number.to_bytes(32, "big"), 0)], [TxOut(number + 1, OURS)]) for number in range(501)]
    kept = {txid(raw): StoredTx(raw, TxStatus.PENDING, None, number) for number, raw in enumerate(raws)}
    ledger.store.commit(Batch(transactions=dict(kept)))
    ledger.store.close()
    rows = [json.loads(line) for line in run("wallet", "history", "--db", path).out.splitlines()]
    assert [row["txid"] for row in rows] == [shown(raw) for raw in raws[::-1]]


def test_unsearched_blocks_are_named_on_standard_error(run: Any, transcript_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "wallet.db"
    ledger = Ledger(path)
    ledger.mine(12)
    ledger.store.close()
    assert run("wallet", "balance", "--db", path).err == ""
    with opened(path) as store:
        more = WatchList(REGTEST)
        more.add_script(p2wpkh(b"\x03" * 20))
        store.attach(more, 8)
    transcript_of(
        0,
        """
        wallet balance --db wallet.db --format table
        wallet coins --db wallet.db
        wallet history --db wallet.db
        """,
    )


def test_a_database_without_any_search_says_so(transcript_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "wallet.db"
    with opened(path) as store:
        watch = WatchList(REGTEST)
        watch.add_script(p2wpkh(b"\x03" * 20))
        store.commit(Batch(headers=REGTEST.genesis))
        store.attach(watch, None)
    transcript_of(0, "wallet balance --db wallet.db --format table")


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([(5, 5)], "block 5"),
        ([(0, 4)], "blocks 0 to 4"),
        ([(0, 4), (7, 7)], "blocks 0 to 4 and block 7"),
        ([(0, 4), (7, 7), (9, 10)], "blocks 0 to 4, block 7 and blocks 9 to 10"),
        ([(0, 4), (7, 7), (9, 10), (12, 13)], "blocks 0 to 4, block 7 and 2 more ranges"),
    ],
)
def test_ranges_of_blocks_in_words(ranges: list[tuple[int, int]], words: str) -> None:
    assert blocks(ranges) == words


@pytest.fixture
def keychains(tmp_path: Path) -> Path:
    """A database with a keychain, whose first address was paid."""
    made = tmp_path / "wallet.db"
    with Store.open(made, REGTEST) as store:
        watch = WatchList(REGTEST)
        watch.add_keychain("receiving", script_at, "savings, all", lookahead=20)
        watch.add_keychain("change", lambda index: script_at(index + 500), lookahead=30)
        watch.keychains[0].use(0)
        store.attach(watch)
    return made


def test_the_next_address_in_every_format(run: Any, keychains: Path) -> None:
    address = script_to_address(script_at(1), REGTEST)
    row = {"address": address, "keychain": "receiving", "index": 1, "label": "savings, all"}
    assert run("wallet", "address", "--db", keychains, "--format", "table") == (0, f"{address}\n", "")
    assert json.loads(run("wallet", "address", "--db", keychains, "--keychain", "savings, all").out) == row
    told = run("wallet", "address", "--db", keychains, "--format", "csv", "--keychain", "change").out
    assert told == f"address,keychain,index,label\n{script_to_address(script_at(500), REGTEST)},change,0,\n"


@pytest.mark.descriptors
@pytest.mark.parametrize("form", ["pkh", "wpkh", "tr"])
@pytest.mark.parametrize("columns", [80, 100, 200])
def test_table_of_keychains_keeps_addresses_whole(
    form: str, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, path = WatchList(REGTEST), tmp_path / "wallet.db"
    watch.add_descriptor(f"{form}({TPUB}/<0;1>/*)", "savings", lookahead=20)
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
    monkeypatch.setattr(Page, "width", columns)
    stream = io.StringIO()
    with WalletStore.open(path) as wallet:
        show_keychains(Page(stream), wallet, None, None, "table")
        addresses = [each.next_address or "" for each in wallet.keychains()]
    header, *lines = stream.getvalue().splitlines()
    assert header.split()[:3] == ["next", "address", "for"]
    assert [line.split()[:2] for line in lines] == [[addresses[0], "receiving"], [addresses[1], "change"]]
    assert max(map(len, lines)) <= columns
    assert ("keychain" in header) == (columns == 200 or (form != "tr" and columns == 100))


@pytest.mark.descriptors
def test_revealed_address_is_stored_and_watched(run: Any, tmp_path: Path) -> None:
    path, watch = tmp_path / "wallet.db", WatchList(REGTEST)
    watch.add_account("alice", f"wpkh({TPUB}/0/*)", lookahead=20)
    watch.add_account("bob", f"wpkh({TPUB}/1/*)", lookahead=20)
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
    given = [run("wallet", "reveal", "--db", path, "--account", "bob", "--format", "table").out for _ in range(3)]
    alone = watch.keychains[1]
    assert given == [f"{script_to_address(alone.scripts(index)[0], REGTEST)}\n" for index in range(3)]
    following = run("wallet", "address", "--db", path, "--account", "bob", "--format", "table").out
    assert following not in given
    assert following == run("wallet", "reveal", "--db", path, "--account", "bob", "--format", "table").out
    row = json.loads(run("wallet", "reveal", "--db", path, "--keychain", alone.name).out)
    assert (row["index"], row["keychain"]) == (4, alone.name)
    with WalletStore.open(path) as wallet:
        states = [(each.account, each.revealed, each.window) for each in wallet.keychains()]
        assert states == [("alice", 0, 20), ("bob", 5, 25)]
        assert not wallet.searched_for(alone.scripts(24)[0])


@pytest.mark.descriptors
def test_reveal_names_its_reason_and_reveals_nothing(run: Any, keychains: Path, tmp_path: Path) -> None:
    path, watch = tmp_path / "descriptor.db", WatchList(REGTEST)
    watch.add_account("alice", f"wpkh({TPUB}/0/*)", lookahead=20)
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
        assert "in use" in run("wallet", "reveal", "--db", path).err
    name = watch.keychains[0].name
    for words, said in (
        (["--account", "carol"], "no account 'carol'"),
        (["--keychain", "carol"], "no keychain 'carol'"),
        (["--account", "bob", "--keychain", name], "no account 'bob'"),
    ):
        ran = run("wallet", "reveal", "--db", path, *words)
        assert (ran.code, ran.out) == (2, "")
        assert said in ran.err
    assert "cannot derive the script at index 1" in run("wallet", "reveal", "--db", keychains).err
    with WalletStore.open(path) as wallet:
        assert [each.revealed for each in wallet.keychains()] == [0]


def test_keychains_tell_how_far_they_were_used(run: Any, transcript_of: Any, refused: Any, keychains: Path) -> None:
    rows = [json.loads(line) for line in run("wallet", "keychains", "--db", keychains).out.splitlines()]
    assert [(row["keychain"], row["window"], row["used"], row["last_used"], row["next_index"]) for row in rows] == [
        ("receiving", 20, 1, 0, 1),
        ("change", 30, 0, None, 0),
    ]
    transcript_of(
        0,
        """
        wallet keychains --db wallet.db --format table
        wallet keychains --db wallet.db --format table --keychain change
        """,
    )
    refused(f"""
        wallet address --db wallet.db --keychain nobody
        wallet tx {"00" * 32} --db wallet.db --keychain change
        wallet reveal --db wallet.db
    """)
    assert json.loads(run("wallet", "balance", "--db", keychains, "--keychain", "change").out)["total"] == 0


def test_accounts_have_views_of_their_own(run: Any, refused: Any, path: Path) -> None:
    with Store.open(path, REGTEST) as store:
        watch = WatchList(REGTEST)
        watch.add_account("alice", str(script_to_address(OURS, REGTEST)))
        watch.add_account("bob", str(script_to_address(SAVINGS, REGTEST)))
        store.attach(watch)
    rows = [json.loads(line) for line in run("wallet", "accounts", "--db", path).out.splitlines()]
    assert [(row["account"], row["confirmed"], row["total"]) for row in rows] == [
        ("alice", 150_000_000, 30_000_000),
        ("bob", 50_000, 50_000),
    ]
    table = run("wallet", "accounts", "--db", path, "--format", "table").out
    assert "-1.20000000" in table
    assert json.loads(run("wallet", "balance", "--db", path, "--account", "bob").out)["total"] == 50_000
    for view, numbers in (("coins", [50_000]), ("history", [50_000])):
        rows = [json.loads(line) for line in run("wallet", view, "--db", path, "--account", "bob").out.splitlines()]
        assert [row.get("value", row.get("net")) for row in rows] == numbers
    refused("""
        wallet balance --db wallet.db --account carol
        wallet address --db wallet.db --account bob
    """)
