"""`spvfilter scan --out` on a chain that grows: messages, `--follow`, `--every`, `--zmq` and `--remove-parts`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.arguments import options_of
from spvfilter.cli.parts import following
from spvfilter.cli.parts.rounds import Planned, Rounds
from spvfilter.cli.scan.command import configure
from spvfilter.cli.scan.options import ScanOptions
from spvfilter.errors import DirectoryInUseError, RemoteFileError, SourceError
from spvfilter.scan.partrun import PartsReport
from support.blocks.growingchain import GrowingChain
from support.commands.processes import line_with, started


class Growing:
    """A chain in files, and the command that scans it."""

    def __init__(self, folder: Path, *, has_undo: bool = True) -> None:
        self.chain = GrowingChain(folder / "blocks", folder.name, has_undo=has_undo)
        self.chain.mine(20)
        self.chain.watch().save(folder / "list")
        self.out = folder / "out"
        self.words: list[object] = ["scan", self.chain.folder, "--watch", folder / "list", "--network", "regtest"]

    def add_file(self, action: Callable[[], None]) -> None:
        """Mine blocks into a new file, which appears at once with all of them."""
        real, self.chain.folder = self.chain.folder, self.out.with_name("staging")
        self.chain.folder.mkdir(exist_ok=True)
        self.chain.files += 1
        action()
        for path in self.chain.folder.iterdir():
            path.rename(real / path.name)
        self.chain.folder = real

    def whole(self, run: Callable[..., Any]) -> dict[str, bytes]:
        """The outputs of a scan from the beginning."""
        folder = self.out.with_name("whole")
        assert run(*self.words, "--out", folder, "--quiet").code == 0
        return results(folder)


def results(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("matches.csv", "totals.csv")}


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def test_later_runs_tell_how_the_chain_has_changed(run: Callable[..., Any], tmp_path: Path) -> None:
    growing = Growing(tmp_path, has_undo=False)
    words = [*growing.words, "--out", growing.out]
    first = run(*words)
    assert (first.code, "since the last run" in first.err) == (0, False)
    assert ", 1 part scanned in" in first.err  # two passes
    assert "20 blocks" in first.err
    same = run(*words)
    assert (same.code, "since the last run: no new blocks; 1 part kept\n" in same.err) == (0, True)
    assert "no parts scanned" in same.err
    growing.chain.mine(3)
    grown = run(*words)
    assert (grown.code, "since the last run: 3 new blocks; 0 parts kept\n" in grown.err) == (
        0,
        True,
    )
    growing.chain.reorganize(2, 2)
    turned = run(*words)
    assert "2 stale blocks, not on the branch with the most work, not counted\n" in turned.err
    assert "since the last run: 4 new blocks, 2 blocks left the best chain; 0 parts kept" in turned.err
    assert "25 blocks" in turned.err
    assert results(growing.out) == growing.whole(run)


def test_files_are_readable_as_the_umask_says(run: Callable[..., Any], growing: Growing) -> None:
    before = os.umask(0o027)
    try:
        run(*growing.words, "--out", growing.out)
    finally:
        os.umask(before)
    files = [path for path in growing.out.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}


def test_removed_parts_end_the_growth(run: Callable[..., Any], growing: Growing) -> None:
    words = [*growing.words, "--out", growing.out]
    ran = run(*words, "--remove-parts")
    assert (ran.code, f"later runs cannot add new blocks to {growing.out}\n" in ran.err) == (0, True)
    left = results(growing.out)
    assert left == growing.whole(run)
    assert not (growing.out / "parts").exists()
    growing.chain.mine(1)
    again = run(*words)
    assert (again.code, again.out) == (2, "")
    assert again.err == (
        f"spvfilter: {growing.out}: the parts of this scan were removed, so it cannot grow: scan into another"
        " directory\n"
    )
    assert results(growing.out) == left


class Silent(Rounds[ScanOptions]):
    """Rounds that do nothing."""

    async def work(self, planned: Planned) -> PartsReport:
        return PartsReport()

    def describe(self, report: PartsReport) -> None:
        raise AssertionError


async def test_a_stopped_scan_says_that_parts_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    rounds = Silent(options_of(ScanOptions, parser.parse_args(["blocks", "--out", "found"])), "scanned")
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    showing = asyncio.create_task(rounds.shown(endless(), PartsReport()))
    await begun.wait()
    showing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await showing
    assert capsys.readouterr().err == (
        "spvfilter: stopping: waiting a few seconds for work in progress. The finished parts are kept in"
        " found: run the same command again to continue\n"
    )


def test_option_that_does_not_fit_is_one_line(refused: Any, growing: Growing) -> None:
    scan = shlex.join(map(str, growing.words))
    refused(f"""
        {scan} --follow
        {scan} --remove-parts
        {scan} --out {growing.out} --every 5
        {scan} --out {growing.out} --zmq tcp://127.0.0.1:1
        {scan} --out {growing.out} --follow --every 0
        {scan} --out {growing.out} --follow --to-height 5
        {scan} --out {growing.out} --follow --remove-parts
    """)
    assert not growing.out.exists()


@pytest.mark.slow
def test_follow_scans_new_blocks_until_interrupt(run: Callable[..., Any], tmp_path: Path) -> None:
    growing = Growing(tmp_path, has_undo=False)
    with started(*growing.words, "--out", growing.out, "--follow", "--every", 1) as (child, lines):
        assert "20 blocks" in line_with(" scanned in", lines)
        growing.add_file(lambda: growing.chain.mine(2))
        assert "22 blocks" in line_with(" scanned in", lines)
        assert "2 new blocks" in line_with("since the last run", lines)
        assert results(growing.out) == growing.whole(run)
        growing.add_file(lambda: growing.chain.reorganize(3, 1))
        assert "4 new blocks, 3 blocks left" in line_with("since the last run", lines)
        child.send_signal(signal.SIGINT)
        assert "spvfilter: interrupted\n" in lines.read()
        assert child.wait(timeout=60) == 130
    assert results(growing.out) == growing.whole(run)


def test_notice_of_node_ends_the_wait(growing: Growing, tmp_path: Path) -> None:
    zmq = pytest.importorskip("zmq")
    address = f"ipc://{tmp_path}/zmq"
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        publisher.setsockopt(zmq.LINGER, 0)
        publisher.bind(address)
        words = [*growing.words, "--out", growing.out, "--follow", "--every", 86_400, "--zmq", address]
        with started(*words) as (_, lines):
            for _ in range(3):
                assert publisher.recv().startswith(b"\x01")  # it has subscribed
            line_with(" scanned in", lines)
            growing.chain.mine(2)
            publisher.send_multipart([b"hashblock", bytes(32), bytes(4)])
            assert "2 new blocks" in line_with("since the last run", lines)


class EndError(Exception):
    """The end of a test of `follow`, which never returns."""


async def test_files_are_scanned_only_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "blk00000.dat"
    states, looks, scans = following.file_states, 0, []

    def counted(paths: list[str]) -> list[following.FileState] | None:
        nonlocal looks
        looks += 1
        if looks == 10:
            (tmp_path / "rev00000.dat").write_bytes(b"an undo record")
        return states(paths)

    async def scan() -> int:
        scans.append(looks)
        match len(scans):
            case 1:
                file.write_bytes(b"a block arrives while the first scan runs")
            case 2 | 3:
                raise SourceError("half a block")
            case 4:
                raise OSError(5, "Input/output error")
            case 5:
                raise DirectoryInUseError("process 7 is writing to it")
            case 6:
                raise RemoteFileError("the store is away")
            case 8:
                raise EndError
        return 0

    monkeypatch.setattr(following, "file_states", counted)
    with pytest.raises(EndError):
        await following.follow(scan, [str(tmp_path)], 0, [])
    assert scans == [1, 2, 3, 4, 5, 6, 7, 10]
    assert capsys.readouterr().err.splitlines() == [
        "spvfilter: half a block; trying again every 0 s",
        "spvfilter: [Errno 5] Input/output error; trying again every 0 s",
        "spvfilter: process 7 is writing to it; trying again every 0 s",
        "spvfilter: the store is away; trying again every 0 s",
    ]


@pytest.mark.parametrize("error", [SourceError("no block"), OSError(28, "No space left on device")])
async def test_first_error_and_full_disk_end_the_command(error: Exception, tmp_path: Path) -> None:
    scans = 0

    async def scan() -> int:
        nonlocal scans
        scans += 1
        if scans == 2 or isinstance(error, SourceError):
            raise error
        (tmp_path / "blk00000.dat").write_bytes(b"new")
        return 0

    with pytest.raises(type(error)):
        await following.follow(scan, [str(tmp_path)], 0, [])


async def test_files_elsewhere_are_scanned_every_time() -> None:
    scans = 0

    async def scan() -> int:
        nonlocal scans
        scans += 1
        if scans == 5:
            raise EndError
        return 0

    for paths in (["s3://bucket/blocks"], []):
        scans = 0
        assert following.file_states(paths) is None
        with pytest.raises(EndError):
            async with asyncio.timeout(60):
                await following.follow(scan, paths, 0, [])


def test_state_of_a_file_has_that_of_its_undo_file(tmp_path: Path) -> None:
    blocks = tmp_path / "blk00007.dat"
    blocks.write_bytes(b"block")
    before = following.file_states([str(blocks)])
    (tmp_path / "other").write_bytes(b"nothing of the scan")
    assert following.file_states([str(blocks)]) == before
    (tmp_path / "rev00007.dat").write_bytes(b"undo")
    assert following.file_states([str(blocks)]) != before


def prune(growing: Growing, number: int) -> None:
    for path in growing.chain.folder.glob(f"???{number:05}.dat"):
        path.unlink()


def test_a_node_that_prunes_keeps_rows_and_adds_blocks(run: Callable[..., Any], growing: Growing) -> None:
    words = [*growing.words, "--out", growing.out]
    assert run(*words).code == 0
    growing.chain.begin_file()
    growing.chain.mine(4)
    expected = growing.whole(run)
    prune(growing, 0)
    ran = run(*words)
    assert (ran.code, results(growing.out)) == (0, expected)
    assert "since the last run: 4 new blocks" in ran.err
    again = run(*words)
    assert (again.code, "no parts scanned" in again.err, results(growing.out)) == (0, True, expected)


def test_a_scan_plans_again_if_a_file_is_pruned(
    run: Callable[..., Any], growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.chain.begin_file()
    growing.chain.mine(4)
    real, plans = Rounds.shown, []

    async def shown(self: Rounds[ScanOptions], *args: Any) -> Any:
        plans.append(args)
        prune(growing, 0)
        return await real(self, *args)

    monkeypatch.setattr(Rounds, "shown", shown)
    ran = run(*growing.words, "--out", growing.out)
    assert (ran.code, len(plans)) == (0, 2)
    assert "the blocks begin at height 120: earlier ones are not in this scan\n" in ran.err
    assert "4 blocks" in ran.err


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 0),
        (("--from-height", 120), 0),
        (("--from-height", 110), 1),
        (("--from-date", "1971-01-01"), 1),
        (("--from-height", 110, "--allow-gaps"), 0),
    ],
)
@pytest.mark.parametrize("in_parts", [True, False])
def test_pruned_blocks_count_if_they_are_asked_for(
    run: Callable[..., Any], growing: Growing, options: tuple[object, ...], code: int, in_parts: bool
) -> None:
    growing.chain.begin_file()
    growing.chain.mine(4)
    prune(growing, 0)
    ran = run(*growing.words, *options, *(("--out", growing.out) if in_parts else ("--format", "csv")))
    assert (ran.code, "the blocks begin at height 120" in ran.err) == (code, "--from-height" not in options)
    assert ("missing: heights 110 to 119\n" in ran.err) is (110 in options)


def test_pruned_blocks_that_must_be_searched_again_are_named(run: Callable[..., Any], tmp_path: Path) -> None:
    growing = Growing(tmp_path, has_undo=False)
    words = [*growing.words, "--out", growing.out, "--report", tmp_path / "report.json"]
    assert run(*words).code == 0
    growing.chain.begin_file()
    growing.chain.mine(20)
    prune(growing, 0)
    ran = run(*words)
    assert ran.code == 1
    assert "not searched again: heights 100 to 119; their blocks have been pruned" in ran.err
    assert json.loads((tmp_path / "report.json").read_text())["not_searched"] == [[100, 119]]
    assert run(*words, "--allow-gaps").code == 0
