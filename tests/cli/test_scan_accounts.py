"""The column `account` of a watch list with accounts: in rows of `scan` and `match`, in its files, and in totals."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import REGTEST
from spvfilter.scan import to_arrow
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, block, coinbase, p2wpkh, tx, txid
from support.blocks.chains import write_records

Run = Callable[..., Any]
SCRIPTS = {name: p2wpkh(bytes(19) + name.encode()) for name in "abcd"}
LIST = """\
account:cold "1", left
script:{a},a label
script:{b}
account:hot
script:{c},with, comma
account:
script:{d}
"""
OWNERS = {
    "a": ('cold "1", left', "a label"),
    "b": ('cold "1", left', None),
    "c": ("hot", "with, comma"),
    "d": (None, None),
}
EXPECTED = [("output", *OWNERS[name]) for name in "abcd"] + [("input", *OWNERS["c"])]


@pytest.fixture(params=["text", "compiled"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[object, ...]:
    """The words of a command for a chain that pays each script, and for a list in one of its forms."""
    paying = tx([TxIn(bytes(32), 5)], [TxOut(number, script) for number, script in enumerate(SCRIPTS.values(), 1)])
    spending = tx([TxIn(txid(paying), 2)], [TxOut(1, p2wpkh(bytes(20)))])
    write_records(tmp_path / "blk00000.dat", [block(REGTEST.genesis_hash, [coinbase(1), paying, spending])])
    (tmp_path / "txs").write_text(f"{paying.hex()}\n{spending.hex()}\n")
    path = tmp_path / "list"
    path.write_text(LIST.format(**{name: script.hex() for name, script in SCRIPTS.items()}))
    if request.param == "compiled":
        WatchList.load(path, REGTEST).compile(path)
    return "--watch", path, "--network", "regtest"


def of_rows(rows: Any) -> list[tuple[Any, ...]]:
    return [(row["kind"], row["account"] or None, row["label"] or None) for row in rows]


def of_csv(text: str) -> list[tuple[Any, ...]]:
    return of_rows(csv.DictReader(io.StringIO(text)))


def of_lines(text: str) -> list[tuple[Any, ...]]:
    return of_rows(map(json.loads, text.splitlines()))


@pytest.mark.parametrize("command", ["scan", "match"])
def test_rows_name_the_account(run: Run, words: tuple[object, ...], tmp_path: Path, command: str) -> None:
    source = tmp_path / ("txs" if command == "match" else "blk00000.dat")
    for form, read in (("csv", of_csv), ("jsonl", of_lines)):
        ran = run(command, source, *words, "--format", form)
        assert ran.code == 0
        assert read(ran.out) == EXPECTED


@pytest.mark.few(1)
@pytest.mark.columns
def test_files_of_a_scan_name_the_account(run: Run, words: tuple[object, ...], tmp_path: Path) -> None:
    found = {}
    for form in ("csv", "jsonl", "parquet"):
        out = tmp_path / form
        assert run("scan", tmp_path / "blk00000.dat", *words, "--out", out, "--format", form).code == 0
        found[form] = to_arrow(out)
    assert found["csv"] == found["jsonl"] == found["parquet"]
    assert of_rows(found["csv"].to_pylist()) == EXPECTED
    assert found["csv"].column_names[11:13] == ["label", "account"]
    assert (
        run("scan", tmp_path / "blk00000.dat", *words, "--out", tmp_path / "b", "--format", "parquet", "--binary").code
        == 0
    )
    assert of_rows(to_arrow(tmp_path / "b").to_pylist()) == EXPECTED


def test_totals_name_the_account(run: Run, words: tuple[object, ...], tmp_path: Path) -> None:
    source = tmp_path / "blk00000.dat"
    assert run("scan", source, *words, "--totals", tmp_path / "totals.csv").code == 0
    assert run("scan", source, *words, "--out", tmp_path / "out").code == 0
    text = (tmp_path / "totals.csv").read_text()
    assert (tmp_path / "out" / "totals.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["account"] or None, row["label"] or None) for row in rows] == list(OWNERS.values())
    assert [(row["received"], row["spent"]) for row in rows] == [("1", "0"), ("2", "0"), ("3", "3"), ("4", "0")]


def test_another_account_writes_the_files_again(run: Run, words: tuple[object, ...], tmp_path: Path) -> None:
    scan = ("scan", tmp_path / "blk00000.dat", *words, "--out", tmp_path / "out")
    assert run(*scan).code == 0
    watch = WatchList.load(tmp_path / "list", REGTEST)
    watch.rename_account("hot", "warm")
    watch.compile(tmp_path / "list")
    assert run(*scan).code == 0
    assert of_csv((tmp_path / "out" / "matches.csv").read_text())[2] == ("output", "warm", "with, comma")


def test_a_list_without_accounts_has_no_such_column(run: Run, words: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "plain").write_text(f"script:{SCRIPTS['a'].hex()},a label\n")
    ran = run(
        "scan", tmp_path / "blk00000.dat", "--watch", tmp_path / "plain", "--network", "regtest", "--format", "csv"
    )
    assert "account" not in ran.out
