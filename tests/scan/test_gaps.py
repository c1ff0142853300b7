"""Missing heights: random choices of blocks in random files, compared with the list of present heights."""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path

import pytest

from spvfilter.network import REGTEST
from spvfilter.scan.gaps import ScannedHeights, gaps_between, in_words, joined, ranges_of
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.order import ScanReport
from spvfilter.scan.plan import Plan
from spvfilter.scan.sources import BlockFiles, BlockSpan
from spvfilter.scan.streams import stream_blocks
from spvfilter.watch import WatchList
from support.blocks.build import block_of
from support.blocks.chains import write_records
from support.blocks.undo import framed, ledger_chain
from support.vectors import effort

LENGTH = 60
SEEDS = range(effort(3, 12, 100))


def naive_ranges(heights: set[int]) -> list[tuple[int, int]]:
    runs = [list(run) for _, run in groupby(enumerate(sorted(heights)), lambda pair: pair[1] - pair[0])]
    return [(run[0][1], run[-1][1]) for run in runs]


def watch() -> WatchList:
    """A list with one unused script."""
    made = WatchList(REGTEST)
    made.add_script(b"\x51" * 3)
    return made


def planned_in(folder: Path, span: BlockSpan | None = None) -> ScanReport:
    return Plan.of(BlockFiles([folder], span=span or BlockSpan()), REGTEST).report


async def direct(files: BlockFiles) -> ScanReport:
    matcher = Matcher(watch())
    assert [match async for match in matcher.scan(files)] == []
    return matcher.report


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", SEEDS)
async def test_gaps_are_the_heights_that_no_file_has(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    _, blocks, records = ledger_chain(seed, LENGTH)
    assert len(records) == len(blocks)
    first = 100  # the height of the first block of the chain
    kept = {at for at in range(len(blocks)) if rng.random() < rng.choice([0.5, 0.9, 1])} | {0, len(blocks) - 1}
    places = {at: rng.randrange(4) for at in kept}
    lacking = {at for at in kept if rng.random() < 0.2}
    has_rev = [rng.random() < 0.8 for _ in range(4)]
    for file in range(4):
        here = [at for at in rng.sample(sorted(kept), len(kept)) if places[at] == file]
        write_records(tmp_path / f"blk{file:05}.dat", [blocks[at] for at in here])
        if has_rev[file]:
            data = b"".join(framed(records[at]) for at in sorted(here) if at not in lacking)
            (tmp_path / f"rev{file:05}.dat").write_bytes(data)
    low, high = sorted(rng.sample(range(first, first + len(blocks) + 5), 2))
    span = rng.choice([BlockSpan(), BlockSpan(from_height=low), BlockSpan(low, high)])
    heights = {at + first for at in kept if span.has_height(at + first)}
    if not heights:
        return
    to_height = span.to_height or max(heights)
    wanted = set(range(min(heights), max(to_height, max(heights)) + 1))
    recorded = {places[at] for at in kept - lacking if has_rev[places[at]] and at + first in heights}
    unrecorded = {
        at + first
        for at in lacking
        if places[at] in recorded and at + first in heights and spends(blocks[at]) and at < len(blocks) - 10
    }
    files = BlockFiles([tmp_path], span=span)
    planned = planned_in(tmp_path, span).heights
    for found in ((await direct(files)).heights, planned):
        assert list(found.found) == naive_ranges(heights)
        assert list(found.gaps) == naive_ranges(wanted - heights)
        assert list(found.without_undo) == naive_ranges(unrecorded)
        assert found.is_whole == (heights == wanted and not unrecorded)
        assert not found.is_unplaced
        assert not found.is_cut


def version_1(block: bytes) -> bytes:
    """The block with a version that states no height (BIP-34)."""
    return (1).to_bytes(4, "little") + block[4:]


def spends(block: bytes) -> bool:
    """True if the block has a transaction besides its coinbase."""
    return block[80] != 1


async def test_stream_tells_its_gaps(tmp_path: Path) -> None:
    _, blocks, _ = ledger_chain(1, 10)
    path = write_records(tmp_path / "blk00000.dat", [blocks[at] for at in (0, 1, 4, 9)])
    matcher = Matcher(watch())
    with path.open("rb") as file:
        assert [match async for match in matcher.scan(stream_blocks(file, REGTEST))] == []
    assert matcher.report.heights.gaps == ((102, 103), (105, 108))


@pytest.mark.parametrize("runs", [1, 2])
async def test_runs_without_known_heights_are_named(tmp_path: Path, runs: int) -> None:
    write_records(tmp_path / "blk00000.dat", [version_1(block_of(bytes([number]) * 32, 5)) for number in range(runs)])
    for found in ((await direct(BlockFiles([tmp_path]))).heights, planned_in(tmp_path).heights):
        assert found == ScannedHeights(is_unplaced=runs > 1)


@pytest.mark.parametrize("days", [0, 2])
async def test_stale_block_that_is_newer_than_the_chain_is_named(tmp_path: Path, days: int) -> None:
    _, blocks, _ = ledger_chain(1, 10)
    late = bytearray(blocks[5])  # beside block 5, and a day later than the last block
    late[68:72] = (int.from_bytes(blocks[9][68:72], "little") + days * 86_400).to_bytes(4, "little")
    write_records(tmp_path / "blk00000.dat", [*blocks, bytes(late)])
    for found in ((await direct(BlockFiles([tmp_path]))).heights, planned_in(tmp_path).heights):
        assert found.is_cut == (days > 0)
        assert found.gaps == ()


def test_sentences_name_everything_that_is_missing() -> None:
    heights = ScannedHeights(((1, 4), (9, 1_000)), ((5, 8), (1_001, 1_001)), ((900, 901),), True, True)
    assert heights.sentences() == [
        "missing: heights 5 to 8",
        "missing: height 1,001",
        "no undo record: heights 900 to 901; spends of older coins may be missing",
        "blocks are missing before a run of blocks, so the heights of that run are unknown",
        "the best chain ends more than a day before the newest block: are blocks missing after its end?",
    ]
    assert not heights.is_whole
    assert ScannedHeights().is_whole


@pytest.mark.parametrize("seed", range(50))
def test_ranges_join_and_leave_gaps_as_sets_do(seed: int) -> None:
    rng = random.Random(seed)
    heights = set(rng.sample(range(40), rng.randrange(1, 40)))
    ranges = ranges_of(rng.sample(sorted(heights), len(heights)))
    assert ranges == naive_ranges(heights) == joined(rng.sample(ranges, len(ranges)))
    assert ranges == joined((height, height) for height in rng.sample(sorted(heights), len(heights)))
    until = rng.choice([None, rng.randrange(60)])
    wanted = set(range(min(heights), max(max(heights), until or 0) + 1))
    assert gaps_between(ranges, until) == naive_ranges(wanted - heights)
    assert in_words((3, 3)) == "height 3"


async def test_a_time_begins_a_range_of_heights_without_a_gap(tmp_path: Path) -> None:
    _, blocks, _ = ledger_chain(1, LENGTH)
    write_records(tmp_path / "blk00000.dat", blocks)
    span = BlockSpan(from_height=105, from_time=int.from_bytes(blocks[20][68:72], "little"))
    for heights in (planned_in(tmp_path, span).heights, (await direct(BlockFiles([tmp_path], span=span))).heights):
        assert heights.found[0][0] > 105
        assert heights.is_whole
