"""The column `coinbase` of matches: in rows of `scan` and `match`, and in the files of a scan."""

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
from support.blocks.build import TxIn, TxOut, block, coinbase, p2wpkh, tx, txid
from support.blocks.chains import write_records

Run = Callable[..., Any]
SCRIPT = p2wpkh(bytes(20))
EXPECTED = [("output", True), ("input", False), ("output", False)]


@pytest.fixture
def words(tmp_path: Path) -> tuple[object, ...]:
    """The words of a command for a block whose coinbase pays a script, and whose other transaction spends that."""
    minted = coinbase(1, [TxOut(5, SCRIPT)])
    moved = tx([TxIn(txid(minted), 0)], [TxOut(4, SCRIPT)])
    write_records(tmp_path / "blk00000.dat", [block(REGTEST.genesis_hash, [minted, moved])])
    (tmp_path / "txs").write_text(f"{minted.hex()}\n{moved.hex()}\n")
    (tmp_path / "list").write_text(f"script:{SCRIPT.hex()}\n")
    return "--watch", tmp_path / "list", "--network", "regtest"


@pytest.mark.parametrize("command", ["scan", "match"])
def test_rows_mark_the_output_of_a_coinbase(run: Run, words: tuple[object, ...], tmp_path: Path, command: str) -> None:
    source = tmp_path / ("txs" if command == "match" else "blk00000.dat")
    ran = run(command, source, *words, "--format", "csv")
    rows = csv.DictReader(io.StringIO(ran.out))
    assert [(row["kind"], row["coinbase"]) for row in rows] == [(kind, str(is_).lower()) for kind, is_ in EXPECTED]
    ran = run(command, source, *words, "--format", "jsonl")
    found = map(json.loads, ran.out.splitlines())
    assert [(row["kind"], row["coinbase"]) for row in found] == EXPECTED


@pytest.mark.columns
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_files_of_a_scan_mark_the_output_of_a_coinbase(
    run: Run, words: tuple[object, ...], tmp_path: Path, form: str
) -> None:
    out = tmp_path / form
    assert run("scan", tmp_path / "blk00000.dat", *words, "--out", out, "--format", form).code == 0
    assert [(row["kind"], row["coinbase"]) for row in to_arrow(out).to_pylist()] == EXPECTED
