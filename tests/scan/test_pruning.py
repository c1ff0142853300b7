"""A scan or an export of the files of a node that prunes keeps its rows, and continues with new blocks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import SourceError, VanishedFileError
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, Matcher, OutputFormat, PartScan, Plan, scan_parts
from spvfilter.scan.sources import BlockRef, FileBlocks
from support.blocks.growingchain import START, GrowingChain
from support.blocks.partscans import results
from support.vectors import effort

SMALL = 1_500


def prune(chain: GrowingChain, *numbers: int) -> None:
    for number in numbers:
        for path in chain.folder.glob(f"???{number:05}.dat"):
            path.unlink()


def archive(chain: GrowingChain) -> GrowingChain:
    """Make a hard link of each file in a second folder, which keeps the files that the node prunes."""
    away = chain.folder.with_name("archive")
    away.mkdir(exist_ok=True)
    for path in chain.folder.glob("*.dat"):
        if not (away / path.name).exists():
            (away / path.name).hardlink_to(path)
    return chain


async def scanned(chain: GrowingChain, folder: Path, out: Path, **options: Any) -> PartScan:
    plan = Plan.of(BlockFiles(folder, **options), REGTEST, part_size=SMALL, directory=out)
    scan = PartScan(out, plan, chain.watch(), transactions=True)
    await scan_parts(scan, OutputFormat.CSV)
    return scan


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(4, 12, 60)))
async def test_after_any_pruning_the_outputs_are_those_of_all_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    chain = GrowingChain(tmp_path / "blocks", f"prune {seed}", states_heights=rng.random() < 0.7)
    chain.mine(rng.randint(2, 9))
    pruned = 0
    for step in range(6):
        if step and rng.random() < 0.3:
            chain.reorganize(1)
        await scanned(chain, archive(chain).folder, tmp_path / "out")
        chain.begin_file()
        chain.mine(rng.randint(1, 9))
        archive(chain)
        while pruned < chain.files - 1 and rng.random() < 0.6:
            prune(chain, pruned)
            pruned += 1
        try:
            scan = await scanned(chain, chain.folder, tmp_path / "out")
        except SourceError as error:
            assert "reorganiz" in str(error)
            return
        if not scan.report.summary.by_outpoint:
            assert scan.report.not_searched == ()
        await scanned(chain, tmp_path / "archive", tmp_path / f"whole {step}")
        assert results(tmp_path / "out") == results(tmp_path / f"whole {step}")


async def test_a_file_that_is_gone_above_others_stays_an_error(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", "middle")
    for _ in range(4):
        chain.begin_file()
        chain.mine(5)
    await scanned(chain, chain.folder, tmp_path / "out")
    before = results(tmp_path / "out")
    for gone in ((1,), (3,), (0, 2)):
        for number in gone:
            chain.hide(number)
        with pytest.raises(SourceError, match="was scanned before, but no file contains it any more"):
            await scanned(chain, chain.folder, tmp_path / "out")
        chain.reveal()
        assert results(tmp_path / "out") == before


@pytest.mark.slow
async def test_a_window_that_moves_names_the_pruned_blocks(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 3, has_keychain=True)
    chain.mine(10)
    first = await scanned(chain, chain.folder, tmp_path / "out")
    chain.begin_file()
    ends = {keychain.name: keychain.end for keychain in first.watch.keychains}
    named = 0
    for number in range(5):
        chain.mine(20)
        archive(chain)
        chain.begin_file()
        prune(chain, number)
        chain.mine(1)
        scan = await scanned(chain, chain.folder, tmp_path / "out")
        now = {keychain.name: keychain.end for keychain in scan.watch.keychains}
        moved, ends = now != ends, now
        named += moved
        if moved:
            assert scan.report.not_searched[0][0] == START
        again = await scanned(chain, chain.folder, tmp_path / "out")
        assert again.report.not_searched == scan.report.not_searched
        assert [each.digest for each in again.finished()] == [each.digest for each in scan.finished()]
        rows = (tmp_path / "out" / "matches.csv").read_text()
        assert rows.count("\n") > 5
    assert named


async def test_outputs_without_undo_records_name_the_pruned_blocks(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 5, has_undo=False)
    chain.mine(20)
    await scanned(chain, archive(chain).folder, tmp_path / "out")
    chain.begin_file()
    chain.mine(20)
    archive(chain)
    prune(chain, 0)
    scan = await scanned(chain, chain.folder, tmp_path / "out")
    assert scan.report.not_searched[0][0] <= START + 1
    await scanned(chain, tmp_path / "archive", tmp_path / "whole")
    assert results(tmp_path / "out") == results(tmp_path / "whole")  # an older block spends no newer output


async def test_a_damaged_part_of_pruned_blocks_is_an_error(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 7)
    chain.mine(20)
    await scanned(chain, chain.folder, tmp_path / "out")
    chain.begin_file()
    chain.mine(3)
    prune(chain, 0)
    part = next((tmp_path / "out" / "parts").glob("*.part"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(SourceError, match=r"blocks have been pruned \(height"):
        await scanned(chain, chain.folder, tmp_path / "out")
    rows = next((tmp_path / "out" / "parts").glob("*.rows"))
    rows.write_bytes(rows.read_bytes()[:-1])
    with pytest.raises(SourceError, match="damaged, or not the blocks of a part"):
        await scanned(chain, chain.folder, tmp_path / "out")


async def test_a_file_that_vanishes_asks_for_a_new_plan(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 9)
    for _ in range(2):
        chain.begin_file()
        chain.mine(5)
    plan = Plan.of(BlockFiles(chain.folder), REGTEST, part_size=SMALL)
    prune(chain, 0)
    with pytest.raises(VanishedFileError, match="blk00000"):
        await scan_parts(PartScan(tmp_path / "out", plan, chain.watch()), OutputFormat.CSV)
    scan = await scanned(chain, chain.folder, tmp_path / "out")
    assert scan.report.summary.blocks == 5
    assert scan.report.summary.problems == []


async def test_a_file_may_vanish_while_it_is_listed(tmp_path: Path) -> None:
    chain = GrowingChain(tmp_path / "blocks", 9)
    for _ in range(2):
        chain.begin_file()
        chain.mine(5)
    files = BlockFiles(chain.folder)
    prune(chain, 0)
    plan = Plan.of(files, REGTEST)
    assert (plan.blocks, plan.report.problems) == (5, [])


@pytest.mark.parametrize("gone", [0, 1])
async def test_a_file_that_vanishes_under_a_stream_of_matches(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = GrowingChain(tmp_path / "blocks", 9)
    for _ in range(2):
        chain.begin_file()
        chain.mine(5)
    real = FileBlocks.opened

    def opened(self: FileBlocks, refs: list[BlockRef]) -> Any:
        prune(chain, gone)
        return real(self, refs)

    monkeypatch.setattr(FileBlocks, "opened", opened)
    matcher = Matcher(chain.watch())
    error: SourceError | None = None
    try:
        async for _ in matcher.scan(BlockFiles(chain.folder)):
            pass
    except SourceError as raised:
        error = raised
    if gone == 0:
        assert error is None
        assert matcher.report.pruned == ((START, START + 4),)
        assert matcher.report.heights.found == ((START + 5, START + 9),)
    else:
        assert error is not None
        assert (matcher.report.pruned, len(matcher.report.problems)) == ((), 5)
