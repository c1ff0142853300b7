"""A changed directory of parts, and files that were unavailable: repeating the scan repairs its result."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any  # Any: values of JSON

import pytest

from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, PartScan, PartSummary, PartTask, Plan, Threads, scan_parts
from spvfilter.watch.watchlist import WatchList
from support.blocks.partscans import Recorder, results
from support.blocks.undo import ledger_chain, write_chain

FILES = 3


class Blocks:
    """A chain in three files, and the result of a scan of it."""

    def __init__(self, folder: Path, undo: bool) -> None:
        ledger, blocks, records = ledger_chain(3)
        self.watch: WatchList = ledger.interest.watch()
        self.folder = folder / "blocks"
        each = len(blocks) // FILES
        for number in range(FILES):
            some = slice(number * each, (number + 1) * each)
            write_chain(self.folder, blocks[some], records[some] if undo else None, number)
        self.plan = self.planned()
        self.good = folder / "good"
        self.scan(self.good)
        self.expected = results(self.good)

    def file(self, number: int) -> Path:
        return self.folder / f"blk{number:05}.dat"

    def hide(self, number: int) -> None:
        """Put a folder in place of a file, so that the file cannot be read, but is not gone either."""
        self.file(number).rename(self.folder.parent / "away")
        self.file(number).mkdir()

    def restore(self, number: int) -> None:
        self.file(number).rmdir()
        (self.folder.parent / "away").rename(self.file(number))

    def planned(self) -> Plan:
        return Plan.of(BlockFiles(self.folder), REGTEST, part_size=5_000)

    def scan(self, out: Path, plan: Plan | None = None, engine: Threads | None = None) -> PartScan:
        made = PartScan(out, plan or self.planned(), self.watch)
        asyncio.run(scan_parts(made, engine=engine))
        return made


@pytest.fixture(params=[True, False], ids=["undo", "no undo"])
def blocks(request: pytest.FixtureRequest, tmp_path: Path) -> Blocks:
    return Blocks(tmp_path, request.param)


class OnePass(Threads):
    """Fails at tasks of a second pass."""

    async def run(self, task: PartTask) -> PartSummary:
        if task.coins is not None:
            raise KeyError
        return await super().run(task)


def test_an_unreadable_file_is_read_by_a_later_run(blocks: Blocks, tmp_path: Path) -> None:
    out = tmp_path / "out"
    blocks.hide(1)
    scan = blocks.scan(out, blocks.plan)
    assert len(scan.report.summary.problems) == 10
    assert "blk00001.dat at byte 8: not a regular file" in scan.report.summary.problems[0]
    assert results(out) != blocks.expected
    blocks.restore(1)
    assert blocks.scan(out).report.summary.problems == []
    assert results(out) == blocks.expected


def test_a_stopped_scan_learns_outpoints_of_an_unreadable_file_later(tmp_path: Path) -> None:
    blocks = Blocks(tmp_path, undo=False)
    out = tmp_path / "out"
    blocks.hide(1)
    with pytest.raises(KeyError):
        blocks.scan(out, blocks.plan, OnePass())
    assert list((out / "parts").glob("*.hits"))
    blocks.restore(1)
    blocks.scan(out)
    assert results(out) == blocks.expected


def test_only_parts_with_unreadable_files_are_scanned_again(blocks: Blocks, tmp_path: Path) -> None:
    out = tmp_path / "out"
    blocks.hide(1)
    problems = blocks.scan(out, blocks.plan).report.summary.problems
    left, written = results(out), (out / "matches.csv").stat().st_mtime_ns
    for _ in range(2):
        engine = Recorder()
        scan = blocks.scan(out, blocks.plan, engine)
        assert {file.path.rpartition("/")[2] for task in engine.tasks for file in task.part.files} >= {"blk00001.dat"}
        assert 0 < len({task.part.number for task in engine.tasks}) < len(blocks.plan.parts)
        assert scan.report.summary.problems == problems
        assert (results(out), (out / "matches.csv").stat().st_mtime_ns) == (left, written)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(out: Path) -> None:
        manifest = json.loads((out / "manifest.json").read_bytes())
        change(manifest)
        manifest["rendered"] = {}
        (out / "manifest.json").write_text(json.dumps(manifest))

    return edit


def one_part_over_another(out: Path) -> None:
    names = json.loads((out / "manifest.json").read_bytes())["finished"]
    shutil.copy(out / "parts" / names[0], out / "parts" / names[1])
    (out / "matches.csv").unlink()


def cut(name: str) -> Callable[[Path], object]:
    return lambda out: (out / name).write_bytes((out / name).read_bytes()[:-1])


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(
            edited(
                lambda held: held["finished"].__setitem__(slice(None), held["finished"][:1] * len(held["finished"]))
            ),
            id="twice",
        ),
        pytest.param(edited(lambda held: held["finished"].pop()), id="one fewer"),
        pytest.param(edited(lambda held: held["finished"].reverse()), id="another order"),
        pytest.param(one_part_over_another, id="one part over another"),
        pytest.param(cut("matches.csv"), id="matches cut"),
        pytest.param(cut("totals.csv"), id="totals cut"),
    ],
)
def test_a_changed_result_is_repaired(blocks: Blocks, tmp_path: Path, tamper: Callable[[Path], object]) -> None:
    tamper(blocks.good)
    scan = blocks.scan(blocks.good)
    assert results(blocks.good) == blocks.expected
    assert scan.report.summary.matches == blocks.expected["matches.csv"].count(b"\n") - 1


@pytest.mark.few(2)
@pytest.mark.parametrize("keep", [0, 32, 100, -1])
def test_a_damaged_file_of_outpoints_is_written_again(tmp_path: Path, keep: int) -> None:
    blocks = Blocks(tmp_path, undo=False)
    out = tmp_path / "out"
    with pytest.raises(KeyError):
        blocks.scan(out, engine=OnePass())
    (coins,) = (out / "parts").glob("*.hits")
    coins.write_bytes(coins.read_bytes()[:keep])
    blocks.scan(out)
    assert results(out) == blocks.expected
