"""`scan` for script types: a warning if undo records are missing, and totals by line of the list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.blocks.chains import write_records
from support.blocks.undo import framed, ledger_chain


def test_missing_undo_records_are_said(run: Any, tmp_path: Path) -> None:
    _, blocks, records = ledger_chain(5)
    folder = tmp_path / "blocks"
    folder.mkdir()
    write_records(folder / "blk00000.dat", blocks)
    (folder / "rev00000.dat").write_bytes(b"".join(map(framed, records)))
    (tmp_path / "list").write_text("script-type:p2wpkh\n")
    options = ["--watch", tmp_path / "list", "--network", "regtest", "--format", "jsonl"]
    assert "script-type:" not in run("scan", folder, *options).err
    for more in (["--undo", "off"], ["--undo", "off", "--out", tmp_path / "out"]):
        ran = run("scan", folder, *options, *more)
        assert "warning: no spends of script-type: entries were found in " in ran.err
    assert "script-type:p2wpkh," in (tmp_path / "out" / "totals.csv").read_text()
