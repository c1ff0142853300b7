"""The balance over time: sums of matches, block by block, and their picture."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import remedy
from spvfilter.kernel import NO_VALUE, Hit, pack_hits
from spvfilter.scan import BlockFiles, Matcher
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.partfile import BlockHits
from spvfilter.watch.match import MatchKind
from support.blocks.chains import found_by, record as block_record
from support.blocks.undo import framed, ledger_chain
from support.vectors import effort


def hits(time: int, *values: int) -> BlockHits:
    """Outputs of values above zero, spends of those below, and NO_VALUE."""
    made = [
        Hit(value < 0, 0, bytes(32), 0, bytes(36), NO_VALUE if value == NO_VALUE else abs(value), b"\x51", 0)
        for value in values
    ]
    return BlockHits(bytes(32), None, time, pack_hits(made))


def test_blocks_count_in_the_order_of_their_times() -> None:
    history = BalanceHistory.of([hits(30, 5, 7), hits(20, 100), hits(40, -50, NO_VALUE), hits(35, 9, -9)])
    assert list(history.points()) == [(20, 100), (30, 112), (40, 62)]
    assert (len(history), history.unknown) == (3, 1)


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    ledger, blocks, records = ledger_chain(9)
    folder = tmp_path / "blocks"
    folder.mkdir()
    (folder / "blk00000.dat").write_bytes(b"".join(map(block_record, blocks)))
    (folder / "rev00000.dat").write_bytes(b"".join(map(framed, records)))
    ledger.interest.watch().save(tmp_path / "list")
    return folder


@pytest.mark.parametrize("seed", range(effort(1, 2, 20)))
async def test_the_last_balance_is_what_the_matches_come_to(tmp_path: Path, seed: int) -> None:
    ledger, blocks, records = ledger_chain(seed)
    (tmp_path / "blk00000.dat").write_bytes(
        b"".join(map(block_record, random.Random(seed).sample(blocks, len(blocks))))
    )
    (tmp_path / "rev00000.dat").write_bytes(b"".join(map(framed, records)))
    matches = await found_by(Matcher(ledger.interest.watch()), BlockFiles(tmp_path))
    expected = sum((match.value or 0) * (1 if match.kind is MatchKind.OUTPUT else -1) for match in matches)
    batches = Matcher(ledger.interest.watch()).scan_batches(BlockFiles(tmp_path))
    history = BalanceHistory.of([batch.block async for batch in batches])
    assert list(history.points())[-1][1] == expected


@pytest.mark.few(1)
@pytest.mark.plot
@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_picture_is_drawn(run: Any, tmp_path: Path, blocks: Path, form: str, out: bool) -> None:
    from matplotlib.image import imread

    picture = tmp_path / "balance.png"
    options = ["--out", tmp_path / "out"] if out else ["--format", form]
    for _ in range(2):  # a picture takes the place of an earlier one
        ran = run("scan", blocks, "--watch", tmp_path / "list", "--network", "regtest", "--plot", picture, *options)
        assert ran.code == 0
    drawn = imread(picture)
    assert drawn.shape[:2] == (560, 1200)
    blue = (drawn[:, :, 2] > 0.6) & (drawn[:, :, 0] < 0.2)
    assert 500 < blue.sum() < 60_000


@pytest.mark.plot
def test_thousands_of_points_are_thinned_to_visible_ones() -> None:
    from spvfilter.cli.scan.plot import thinned

    rng = random.Random(1)
    points = [(time, rng.randrange(10**9)) for time in range(1_000_000, 1_060_000)]
    seen = thinned(points)
    assert len(seen) < 9_000
    assert set(seen) <= set(points)
    assert seen == sorted(seen)
    assert {max(points, key=lambda at: at[1]), min(points, key=lambda at: at[1]), points[0], points[-1]} <= set(seen)
    assert thinned(points[:100]) == points[:100]


def test_impossible_picture_is_refused_before_the_scan(refused: Any, blocks: Path) -> None:
    Path("text.png").write_text("mine")
    refused(f"""
        scan {blocks} --plot balance.jpg --watch list --network regtest
        scan {blocks} --plot /nowhere/balance.png --watch list --network regtest
        scan - --plot balance.png --watch list --network regtest
        scan {blocks} --plot text.png --watch list --network regtest
    """)
    assert Path("text.png").read_text() == "mine"


def test_without_matplotlib_nothing_is_scanned(
    run: Any, tmp_path: Path, blocks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = run("scan", blocks, "--watch", tmp_path / "list", "--network", "regtest", "--plot", tmp_path / "balance.png")
    assert (ran.code, ran.err) == (2, f"spvfilter: --plot needs matplotlib; {remedy('plot')}\n")
