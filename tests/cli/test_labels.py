"""`labels`: labels of a wallet's database, to and from files."""

from __future__ import annotations

import csv
import io
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.network import REGTEST
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.labels import Label, read_labels
from store.test_views import OURS, SAVINGS, Ledger, pay
from support.commands.processes import command, environment

ADDRESS, OTHER = script_to_address(OURS, REGTEST), script_to_address(SAVINGS, REGTEST)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A database with one payment."""
    path = tmp_path / "wallet.db"
    ledger = Ledger(path)
    ledger.mine(3)
    ledger.put(pay(1, (150_000_000, OURS)), 2)
    ledger.store.close()
    return path


def test_labels_travel_from_file_to_file(run: Any, db: Path, tmp_path: Path) -> None:
    with WalletStore.open(db) as wallet:
        (coin,) = wallet.coins()
    txid = str(coin.outpoint).partition(":")[0]
    records = [
        {"type": "addr", "ref": ADDRESS, "label": "rent"},
        {"type": "output", "ref": str(coin.outpoint), "label": "deposit", "spendable": False},
        {"type": "tx", "ref": txid, "label": "invoice 7", "height": 2},
    ]
    given, taken = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    given.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    assert run("labels", "import", given, "--db", db) == (
        0,
        "",
        "spvfilter: 3 labels imported, 1 output frozen. The spendable balance is 0.00000000 BTC\n",
    )
    assert run("labels", "export", taken, "--db", db).code == 0
    assert stat.S_IMODE(taken.stat().st_mode) == 0o600
    found = [json.loads(line) for line in taken.read_text().splitlines()]
    records.append({"type": "addr", "ref": OTHER, "label": "savings"})
    assert sorted(found, key=str) == sorted(records, key=str)
    shown = json.loads(run("wallet", "coins", "--db", db, "--format", "jsonl").out)
    assert (shown["label"], shown["output_label"]) == ("rent", "deposit")
    assert json.loads(run("wallet", "history", "--db", db, "--format", "jsonl").out)["label"] == "invoice 7"
    assert "invoice 7, rent" in run("wallet", "history", "--db", db, "--format", "table").out


def test_import_tells_what_it_froze_and_unfroze(run: Any, db: Path, tmp_path: Path) -> None:
    with WalletStore.open(db) as wallet:
        (coin,) = wallet.coins()
    path, foreign = tmp_path / "in.jsonl", f"{'ab' * 32}:7"

    def said(*labels: Label) -> str:
        path.write_bytes(b"\n".join(map(bytes, labels)))
        told: str = run("labels", "import", path, "--db", db).err
        return told.removeprefix("spvfilter: ")

    mine, others = Label("output", str(coin.outpoint), spendable=False), Label("output", foreign, spendable=False)
    now = ". The spendable balance is {} BTC\n"
    assert said(mine, others) == "2 labels imported, 2 outputs frozen" + now.format("0.00000000")
    assert said(mine) == "1 label imported\n"
    unfrozen = Label("output", str(coin.outpoint), spendable=True)
    assert said(unfrozen) == "1 label imported, 1 output unfrozen" + now.format("1.50000000")
    assert said(mine, Label("output", foreign, spendable=True)) == (
        "2 labels imported, 1 output frozen, 1 output unfrozen" + now.format("0.00000000")
    )


def test_malformed_lines_are_left_out(run: Any, db: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(bytes(Label("tx", "ab" * 32, "rent")))
    assert run("labels", "import", path, "--db", db).err == "spvfilter: 1 label imported\n"
    path.write_bytes(bytes(Label("tx", "ab" * 32, "other")) + b"\n{}\n\nno\n")
    ran = run("labels", "import", path, "--db", db)
    assert (ran.code, ran.out) == (0, "")
    assert "2 lines were left out of the labels: line 2: the field 'type' is missing; line 4: the line is" in ran.err
    assert ran.err.endswith("spvfilter: 1 label imported\n")
    path.write_bytes(b"{}\n\nno\n")
    ran = run("labels", "import", path, "--db", db)
    assert (ran.code, ran.out) == (2, "")
    assert f"spvfilter: {path}: line 1: the field 'type' is missing; line 3: the line is not JSON" in ran.err
    with WalletStore.open(db) as wallet:
        assert {each.label for each in wallet.labels()} == {"daily", "savings", "other"}


def test_label_with_line_ends_is_stored_and_shown_escaped(run: Any, db: Path, tmp_path: Path) -> None:
    with WalletStore.open(db) as wallet:
        (coin,) = wallet.coins()
    given, taken, text = tmp_path / "in.jsonl", tmp_path / "out.jsonl", "a\nb\tc\x1b[31m"
    refs = {"addr": ADDRESS, "output": str(coin.outpoint), "tx": str(coin.outpoint).partition(":")[0]}
    labels = [Label(kind, str(ref), text) for kind, ref in refs.items()]
    given.write_bytes(b"".join(bytes(each) + b"\n" for each in labels))
    assert run("labels", "import", given, "--db", db).code == 0
    assert run("labels", "export", taken, "--db", db).code == 0
    assert [each for each in read_labels(taken) if each.label == text] == labels
    for view in ("coins", "history", "balance"):
        assert "\x1b" not in run("wallet", view, "--db", db, "--format", "table").out
    assert r"a\nb\tc\x1b[31m" in run("wallet", "coins", "--db", db, "--format", "table").out
    assert json.loads(run("wallet", "coins", "--db", db, "--format", "jsonl").out)["label"] == text
    (row,) = csv.DictReader(io.StringIO(run("wallet", "coins", "--db", db, "--format", "csv").out))
    assert row["label"] == r"a\nb\tc\x1b[31m"


def test_import_needs_the_database_for_itself(run: Any, db: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(bytes(Label("tx", "ab" * 32, "rent")))
    with Store.open(db, REGTEST):
        ran = run("labels", "import", path, "--db", db)
        assert (ran.code, ran.out) == (2, "")
        assert "in use" in ran.err
        assert run("labels", "export", path, "--db", db).code == 0
    assert {each.label for each in read_labels(path)} == {"daily", "savings"}


def test_standard_streams(run: Any, db: Path) -> None:
    data = bytes(Label("tx", "ab" * 32, "rent")) + b"\n"
    words = command("labels", "import", "-", "--db", db)
    assert subprocess.run(words, input=data, env=environment(), timeout=60).returncode == 0
    assert data.decode() in run("labels", "export", "-", "--db", db).out


def test_folder_in_place_of_a_file_is_named(run: Any, db: Path, tmp_path: Path) -> None:
    ran = run("labels", "export", tmp_path, "--db", db)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"spvfilter: {tmp_path}: Is a directory: give the name of a file\n"


def test_missing_files_are_named(run: Any, db: Path, tmp_path: Path) -> None:
    for words in (("import", tmp_path / "no.jsonl"), ("export", tmp_path / "no" / "x.jsonl")):
        ran = run("labels", *words, "--db", db)
        assert ran.code == 2
        assert str(words[1]) in ran.err
