"""`spvfilter scan --out`: the files in the directory. A killed scan continues to the same bytes."""

from __future__ import annotations

import csv
import errno
import json
import os
import random
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import SourceError, remedy
from spvfilter.scan import to_arrow, to_pandas
from spvfilter.watch.watchlist import WatchList
from support.blocks.chains import record as block_record
from support.blocks.undo import framed, ledger_chain
from support.commands.csvrows import csv_row
from support.vectors import effort


@pytest.fixture
def source(tmp_path: Path) -> list[object]:
    """The arguments of a scan of a chain in two files, one without undo records."""
    ledger, blocks, records = ledger_chain(3)
    folder = tmp_path / "blocks"
    folder.mkdir()
    (folder / "blk00000.dat").write_bytes(b"".join(map(block_record, blocks[:12])))
    (folder / "blk00001.dat").write_bytes(b"".join(map(block_record, blocks[12:])))
    (folder / "rev00000.dat").write_bytes(b"".join(map(framed, records[:12])))
    ledger.interest.watch().save(tmp_path / "list")
    return ["scan", folder, "--watch", tmp_path / "list", "--network", "regtest"]


def files(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which has the times of the outputs."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_directory_has_the_matches_and_their_totals(run: Any, tmp_path: Path, source: list[object]) -> None:
    plain = run(*source, "--format", "jsonl")
    ran = run(*source, "--out", tmp_path / "out", "--format", "jsonl")
    assert (ran.code, ran.out) == (0, "")
    assert f"matches in {tmp_path / 'out' / 'matches.jsonl'}\n" in ran.err
    assert "may spend coins from before" in ran.err
    lines = (tmp_path / "out" / "matches.jsonl").read_text().splitlines()
    assert sorted(lines) == sorted(plain.out.splitlines())
    matches = [json.loads(line) for line in lines]
    totals = list(csv.DictReader((tmp_path / "out" / "totals.csv").read_text().splitlines()))
    assert sum(int(row["matches"]) for row in totals) == len(matches) > 20
    for name, kind in (("received", "output"), ("spent", "input")):
        assert sum(int(row[name]) for row in totals) == sum(
            match["value"] or 0 for match in matches if match["kind"] == kind
        )
    assert sum(int(row["unknown"]) for row in totals) == sum(match["value"] is None for match in matches)
    again = run(*source, "--out", tmp_path / "out", "--quiet", "--processes", 2)
    assert (again.code, again.out, again.err) == (0, "", "")
    table = list(csv.DictReader((tmp_path / "out" / "matches.csv").read_text().splitlines()))
    assert table == list(map(csv_row, matches))


def test_heights_and_dates_limit_the_scan(run: Any, tmp_path: Path, source: list[object]) -> None:
    everything = [json.loads(line) for line in run(*source, "--format", "jsonl", "--quiet").out.splitlines()]
    some = run(*source, "--format", "jsonl", "--quiet", "--from-height", 105, "--to-height", 110).out.splitlines()
    assert {json.loads(line)["height"] for line in some} <= set(range(105, 111))
    outputs = [each for each in everything if each["kind"] == "output" and 105 <= each["height"] <= 110]
    assert [json.loads(line) for line in some if '"kind":"output"' in line] == outputs
    assert run(*source, "--from-date", "2011-03-13", "--quiet", "--format", "jsonl").out.count("\n") == len(everything)
    assert run(*source, "--to-date", "2031-01-01", "--quiet", "--format", "jsonl").out.count("\n") == len(everything)
    limits = ("--to-date", "2031-01-01", "--from-height", 105, "--to-height", 110)
    assert run(*source, *limits, "--format", "jsonl", "--quiet").out.splitlines() == some
    ran = run(*source, "--from-date", "2031-01-01")
    assert ran.code == 2
    assert re.search(r"the range from time .* contains none of the 30 blocks", ran.err)


def test_a_bad_argument_is_one_line(refused: Any, source: list[object]) -> None:
    scan = shlex.join(map(str, source))
    refused(f"""
        {scan} --out out --format table
        {scan} --out out --output x
        {scan} --processes 2
        {scan} --format parquet
        {scan} --binary
        {scan} --out out --binary
        {scan} --out out --processes 0
        {scan} --from-height 9 --to-height 8
        {scan} --from-date tomorrow
        {scan} --from-date 2012-01-02 --to-date 2012-01-01
        {scan} --out list
    """)


def test_standard_input_has_no_parts_and_no_heights(run: Any, tmp_path: Path) -> None:
    options = ["--watch", tmp_path / "list", "--network", "regtest"]
    WatchList.load(_list(tmp_path), "regtest")
    assert "not on standard input" in run("scan", "-", *options, "--out", tmp_path / "out").err
    assert "not for standard input" in run("scan", "-", *options, "--from-height", 5).err


def _list(folder: Path) -> Path:
    (folder / "list").write_text("script:0014" + "00" * 20 + "\n")
    return folder / "list"


@pytest.mark.parametrize("seed", range(effort(1, 2, 10)))
def test_killed_scan_continues_to_the_same_bytes(run: Any, tmp_path: Path, source: list[object], seed: int) -> None:
    rng = random.Random(seed)
    assert run(*source, "--out", tmp_path / "whole").code == 0
    command = [sys.executable, "-m", "spvfilter", *map(str, source), "--out", str(tmp_path / "out"), "--processes", "2"]
    for _ in range(effort(2, 3, 10)):
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        ) as child:
            time.sleep(rng.uniform(0.1, 1.2))
            child.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT]))
            child.wait(timeout=30)
    assert run(*source, "--out", tmp_path / "out").code == 0
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_scan_continues_after_a_full_disk(
    run: Any, tmp_path: Path, source: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full at each of the files that are written, one after the other."""
    assert run(*source, "--out", tmp_path / "good").code == 0
    fsync, left = os.fsync, 0

    def full(file: int) -> None:
        nonlocal left
        left -= stat.S_ISREG(os.fstat(file).st_mode)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    named: set[str] = set()
    for number in range(1, 100):
        out = tmp_path / str(number)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            left = number
            ran = run(*source, "--out", out)
        if not ran.code:
            break
        first, second = ran.err.splitlines()
        assert (ran.code, first) == (
            2,
            f"spvfilter: no space left in {out}, where the finished parts are: free some space and run the same command"
            " again to continue",
        )
        assert second.startswith(f"spvfilter: {out}/") and second.endswith(": No space left on device"), second
        named.add(second.removesuffix(": No space left on device").rpartition(".")[2])
        assert not list(out.rglob(".spvfilter-*"))
        assert run(*source, "--out", out).code == 0
        assert files(out) == files(tmp_path / "good")
    assert named == {"json", "part", "hits", "rows", "csv"}


def test_without_pyarrow_nothing_is_scanned(
    run: Any, tmp_path: Path, source: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = run(*source, "--out", tmp_path / "out", "--format", "parquet")
    assert (ran.code, ran.err) == (
        2,
        f"spvfilter: tables need pyarrow; {remedy('parquet')}, or choose csv or jsonl\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.few(1)
@pytest.mark.columns
@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_tables_are_the_matches(run: Any, tmp_path: Path, source: list[object], form: str) -> None:
    matches = [json.loads(line) for line in run(*source, "--format", "jsonl").out.splitlines()]
    with pytest.raises(SourceError, match="of a finished scan"):
        to_arrow(tmp_path)
    ran = run(*source, "--out", tmp_path / "out", "--format", form)
    assert ran.code == 0
    table = to_arrow(tmp_path / "out").to_pylist()
    for row in table:
        row["time"] = int(row["time"].timestamp())
    assert sorted(map(str, table)) == sorted(map(str, matches))
    assert len(to_pandas(tmp_path / "out")) == len(matches)
    before = files(tmp_path / "out")[f"matches.{form}"]
    (tmp_path / "out" / f"matches.{form}").unlink()
    assert run(*source, "--out", tmp_path / "out", "--format", form).code == 0
    assert files(tmp_path / "out")[f"matches.{form}"] == before
