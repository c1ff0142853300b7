"""Totals of `scan`: the largest on a terminal, all in a pipe and in the file of `--totals`."""

from __future__ import annotations

import csv
import io
import random
import shlex
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.scan.totals import ScanTotals
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.kernel import NO_VALUE, Hit, pack_hits
from spvfilter.network import REGTEST
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.partfile import BlockHits
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, block, coinbase, p2wpkh, tx
from support.commands.processes import on_terminal
from support.vectors import effort

COUNT = 120
SCRIPT = p2wpkh(bytes(20))


@pytest.fixture
def payments(tmp_path: Path) -> list[object]:
    """The arguments of a scan whose 120 entries receive 1, 2, 3 … satoshi."""
    scripts = [p2wpkh(number.to_bytes(20, "big")) for number in range(COUNT)]
    pays = tx([TxIn(bytes(range(32)), 0)], [TxOut(value, script) for value, script in enumerate(scripts, 1)])
    raw = block(REGTEST.genesis_hash, [coinbase(1), pays])
    (tmp_path / "block.raw").write_bytes(raw)
    (tmp_path / "list").write_text("".join(f"script:{script.hex()}\n" for script in scripts))
    return [tmp_path / "block.raw", "--watch", tmp_path / "list", "--network", "regtest"]


def totals(*labels: str) -> Iterator[Total]:
    return (Total(f"address {number}", label, number, 0, number % 2, 1) for number, label in enumerate(labels))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_the_largest_totals(payments: list[object]) -> None:
    code, out = on_terminal("scan", *payments, "--format", "csv", "--output", "/dev/null")
    amounts = [line.split()[-3] for line in out.splitlines() if line.strip().startswith("bcrt1")]
    assert code == 0
    assert amounts == [f"0.{value:08d}" for value in range(COUNT, COUNT - 50, -1)]
    assert f"0.{sum(range(COUNT + 1)):08d}" in out
    assert "The 50 largest are shown, and 70 more are not: --totals FILE writes all" in " ".join(out.split())


def test_a_directory_shows_the_same_on_a_terminal(payments: list[object], tmp_path: Path) -> None:
    code, out = on_terminal("scan", *payments, "--out", tmp_path / "out")
    assert code == 0
    assert out.count("bcrt1") == 50
    assert f"70 more are not: {tmp_path / 'out' / 'totals.csv'} lists all" in out.replace("\r\n", "")


def test_a_pipe_gets_all_totals(run: Any, payments: list[object]) -> None:
    ran = run("scan", *payments, "--format", "table")
    table = ran.out.partition("Totals, BTC\n")[2].splitlines()
    assert len(table) == COUNT + 2
    assert len({len(line) for line in table}) == 1
    assert table[-1].split() == ["all", f"0.{sum(range(COUNT + 1)):08d}", "0.00000000", str(COUNT)]


def test_the_file_of_totals_has_all(run: Any, payments: list[object], tmp_path: Path) -> None:
    ran = run("scan", *payments, "--format", "csv", "--quiet", "--totals", tmp_path / "totals.csv")
    assert (ran.code, ran.err) == (0, "")
    with (tmp_path / "totals.csv").open(newline="") as file:
        assert [int(row["received"]) for row in csv.DictReader(file)] == list(range(1, COUNT + 1))
    run("scan", *payments, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "totals.csv").read_bytes() == (tmp_path / "totals.csv").read_bytes()


def test_the_file_of_totals_overwrites_no_input(run: Any, payments: list[object], tmp_path: Path) -> None:
    for name in ("list", "block.raw"):
        ran = run("scan", *payments, "--totals", tmp_path / name)
        assert (ran.code, ran.err) == (2, f"spvfilter: {tmp_path / name}: this would overwrite an input\n")


def test_unsuitable_files_of_totals_are_refused_before_the_scan(refused: Any, payments: list[object]) -> None:
    Path("sub").mkdir()
    scan = shlex.join(["scan", *map(str, payments)])
    refused(f"""
        {scan} --output sub/../found --totals found
        {scan} --report sub/../found --totals found
        {scan} --totals nowhere/totals.csv
        {scan} --totals sub
        {scan} --out found --totals totals.csv
        {scan} --totals s3://bucket/totals
    """)


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_labels_and_unknown_values_have_their_columns(
    stream: type[io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)  # a terminal without rich
    page = Page(stream())
    show_totals(page, lambda: totals("", "a\x1bb"), "elsewhere")
    assert isinstance(page.stream, io.StringIO)
    lines = page.stream.getvalue().splitlines()
    assert sorted(" ".join(line.split()) for line in lines[3:]) == [
        "address 0 0.00000000 0.00000000 1",
        r"address 1 a\x1bb 0.00000001 0.00000000 + 1 unknown 1",
        "all 0.00000001 0.00000000 + 1 unknown 2",
    ]


def batch_of(block: bytes, matches: int) -> MatchBatch:
    hit = Hit(False, 1, block, 0, block + bytes(4), 7, SCRIPT, 0, NO_VALUE)
    return MatchBatch(BlockHits(block, None, 0, pack_hits([hit]) * matches), WatchList(REGTEST))


def entry() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    return watch


@pytest.mark.parametrize("seed", range(effort(10, 30, 300)))
def test_totals_count_the_blocks_that_stay(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    totals, chain, gone = ScanTotals(entry(), may_discard=True), dict[bytes, int](), 0
    for _ in range(rng.randrange(40)):
        block = bytes((rng.randrange(5),)) * 32
        if rng.random() < 0.6:  # a second search may find more matches in a block
            matches = rng.randrange(1, 4)
            chain[block] = chain.get(block, 0) + matches
            totals.add(batch_of(block, matches))
        else:
            gone += chain.pop(block, 0)
            totals.discard(block)
    assert totals.settle() == gone
    totals.write(tmp_path / "totals.csv")
    with (tmp_path / "totals.csv").open(newline="") as file:
        rows = [(int(row["matches"]), int(row["received"])) for row in csv.DictReader(file)]
    left = sum(chain.values())
    assert rows == ([(left, 7 * left)] if left else [])


def test_matches_that_wait_take_no_memory() -> None:
    totals, batch = ScanTotals(entry(), may_discard=True), batch_of(bytes(32), 10_000)
    tracemalloc.start()
    try:
        for _ in range(40):
            totals.add(batch)
        assert tracemalloc.get_traced_memory()[1] < 15_000_000 < 40 * len(batch.block.packed)
    finally:
        tracemalloc.stop()
    assert totals.settle() == 0


def test_no_totals_print_nothing() -> None:
    for page in (Page(io.StringIO()), Page(Terminal())):
        show_totals(page, lambda: iter(()), "elsewhere")
        assert isinstance(page.stream, io.StringIO)
        assert page.stream.getvalue() == ""
