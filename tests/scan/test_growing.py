"""A scan in a directory grows with its chain: after any history it has the bytes of a scan from the beginning."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spvfilter.errors import ParameterError, SourceError
from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.scan import (
    BlockFiles,
    DaskWorkers,
    Engine,
    OutputFormat,
    PartScan,
    PartTask,
    Plan,
    Processes,
    scan_parts,
)
from spvfilter.scan.chainchange import chain_change
from spvfilter.scan.plan import PART_SIZE
from support.blocks.build import block_hash
from support.blocks.chains import xored
from support.blocks.growingchain import START, GrowingChain
from support.blocks.partscans import Recorder, results
from support.blocks.undo import write_chain
from support.commands.daskcluster import Cluster, client_of
from support.vectors import effort

FORMS = [OutputFormat.CSV, OutputFormat.JSONL, *([OutputFormat.PARQUET] if find_spec("pyarrow") else [])]
SMALL = 1_500
KEY = bytes(range(1, 9))


class DeathError(Exception):
    """The process dies at this moment."""


@contextmanager
def death(out: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process dies before a rename or a removal, the one number `after`. The directory stays as it was then."""
    copy, left = out.with_name("snapshot"), after

    def counted(call: Any) -> Any:
        def counting(path: Path, *args: Any, **options: Any) -> Any:
            nonlocal left
            if out in path.parents:
                left -= 1
                if left == 0:
                    shutil.copytree(out, copy)
                if left <= 0:
                    raise DeathError
            return call(path, *args, **options)

        return counting

    try:
        with monkeypatch.context() as patched:
            for name in ("replace", "unlink"):
                patched.setattr(Path, name, counted(getattr(Path, name)))
            yield
    finally:
        if copy.exists():
            shutil.rmtree(out)
            copy.rename(out)


async def scanned(
    chain: GrowingChain,
    out: Path,
    form: OutputFormat = OutputFormat.CSV,
    engine: Engine | None = None,
    *,
    undo: str = "auto",
    part_size: int = SMALL,
) -> PartScan:
    plan = Plan.of(BlockFiles(chain.folder, undo=undo), REGTEST, part_size=part_size)
    scan = PartScan(out, plan, chain.watch())
    await scan_parts(scan, form, engine)
    return scan


async def growth(chain: GrowingChain, out: Path, **options: Any) -> tuple[PartScan, Recorder]:
    """Scan the chain as it is now. Returns the scan, and the engine with the tasks that it ran."""
    engine = Recorder()
    try:
        return await scanned(chain, out, engine=engine, **options), engine
    finally:
        await engine.aclose()


async def from_scratch(chain: GrowingChain, out: Path, undo: str = "auto") -> dict[str, bytes]:
    """The outputs of a new scan, in the formats that `out` has."""
    new = out.with_name("scratch")
    shutil.rmtree(new, ignore_errors=True)
    for form in FORMS:
        if (out / f"matches.{form}").exists():
            await scanned(chain, new, form, undo=undo, part_size=10**9)
    return results(new)


@pytest.fixture
def without_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are not flushed to the disk, which takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def change(chain: GrowingChain, rng: random.Random) -> None:
    """Let the chain grow or reorganize, or let blocks arrive before older ones."""
    chain.reveal()
    if rng.random() < 0.4:
        chain.begin_file()
    match rng.randrange(6):
        case 0:
            chain.mine(rng.randrange(1, 8), late=rng.randrange(3))
        case 1:
            chain.reorganize(rng.randrange(1, min(len(chain.chain), 8)), rng.randrange(1, 3))
        case 2:
            chain.write_late_undo()
        case 3:
            chain.mine(1, late=1)
        case 4:
            pass  # the chain is the same
        case 5:
            chain.withhold(rng.randrange(1, 5))
            chain.mine(rng.randrange(1, 5))


@pytest.mark.few(1)
@pytest.mark.usefixtures("without_disk")
@pytest.mark.parametrize("seed", range(effort(10, 50, 1_000)))
async def test_random_history_equals_a_scan_from_scratch(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    undo = rng.choice(("auto", "auto", "off"))
    chain = GrowingChain(
        tmp_path / "blocks",
        seed,
        has_undo=rng.random() < 0.8,
        has_keychain=rng.random() < 0.4,
        states_heights=rng.random() < 0.7,
    )
    chain.mine(rng.randrange(2, 15))
    out, form = tmp_path / "out", rng.choice(FORMS)
    for _ in range(rng.randrange(3, 7)):
        change(chain, rng)
        if rng.random() < 0.1:
            form = rng.choice(FORMS)
        before = results(out)
        if rng.random() < 0.4:
            with pytest.raises(DeathError), death(out, rng.randrange(1, 25), monkeypatch):
                await scanned(chain, out, form, undo=undo)
                raise DeathError  # the scan had ended before
            left = results(out)
            whole = await from_scratch(chain, out, undo)
            assert all(raw in (before.get(name), whole[name]) for name, raw in left.items())
        elif rng.random() < 0.3:
            engine = Recorder(stops_after=rng.randrange(3))
            try:
                await scanned(chain, out, form, engine, undo=undo)
            except SourceError as error:
                assert str(error) == "the power is off"
                assert results(out) == before
            await engine.aclose()
        if rng.random() < 0.8:
            await scanned(chain, out, form, undo=undo)
            assert results(out) == await from_scratch(chain, out, undo)
    await scanned(chain, out, form, undo=undo)
    assert results(out) == await from_scratch(chain, out, undo)


def heights_of(tasks: list[PartTask]) -> set[int | None]:
    return {height for task in tasks for height in task.part.heights()}


def rows_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "matches.jsonl").read_text().splitlines()]


def hashes_of(chain: GrowingChain) -> set[object]:
    return {hash_to_hex(block_hash(each.raw)) for each in chain.chain}


def nothing(chain: GrowingChain) -> None:
    pass


def new_blocks(chain: GrowingChain) -> None:
    chain.mine(2)


def a_new_file(chain: GrowingChain) -> None:
    chain.begin_file()
    chain.mine()


def a_reorganization(chain: GrowingChain) -> None:
    chain.reorganize(6, 2)


def other_places(chain: GrowingChain) -> None:
    """A node that builds its index again may write the same blocks to other places, in another order."""
    shutil.rmtree(chain.folder)
    blocks = [*chain.chain[5:], *chain.chain[:5]]
    write_chain(chain.folder, [each.raw for each in blocks], [each.undo for each in blocks], 3, key=KEY)


class Growth(NamedTuple):
    """A change of a chain of 30 blocks. The second scan must report and search this."""

    happens: Callable[[GrowingChain], None]
    change: tuple[int, int] = (0, 0)
    """Numbers of new and disconnected blocks."""
    new: tuple[int, ...] = ()
    """Blocks that must be searched, by their number in the chain."""
    lowest: int = 99
    """Blocks below this number are not searched again."""
    late: int = 0
    """Number of blocks without undo records in the first scan."""


GROWTHS = {
    "nothing": Growth(nothing),
    "new blocks": Growth(new_blocks, (2, 0), (30, 31), 28),
    "a new file": Growth(a_new_file, (1, 0), (30,), 28),
    "a reorganization": Growth(a_reorganization, (8, 6), tuple(range(24, 32)), 21),
    "late undo records": Growth(GrowingChain.write_late_undo, (0, 0), (28, 29), 26, late=2),
    "other places": Growth(other_places),
}


@pytest.mark.parametrize("grows", GROWTHS.values(), ids=GROWTHS)
async def test_only_changed_parts_are_scanned_again(tmp_path: Path, grows: Growth) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 1), tmp_path / "out"
    chain.mine(30, late=grows.late)
    first, _ = await growth(chain, out, form=OutputFormat.JSONL)
    assert (first.report.parts_kept, first.report.change) == (0, None)
    assert len(first.plan.parts) > 5
    assert bool(first.report.summary.by_outpoint) == bool(grows.late)
    grows.happens(chain)
    gone = {row["block_hash"] for row in rows_of(out)} - hashes_of(chain)
    scan, engine = await growth(chain, out, form=OutputFormat.JSONL)
    assert scan.report.change == grows.change
    searched = heights_of(engine.tasks)
    assert {START + number for number in grows.new} <= searched
    assert all(height is not None and height >= START + grows.lowest for height in searched)
    assert scan.report.parts_kept + len(engine.tasks) == len(scan.plan.parts)
    assert scan.report.summary.by_outpoint == 0
    assert bool(gone) == bool(grows.change[1])
    assert {row["block_hash"] for row in rows_of(out)} <= hashes_of(chain)
    assert results(out) == await from_scratch(chain, out)


def test_a_run_that_turns_out_stale_counts_as_disconnected(tmp_path: Path) -> None:
    """Two blocks were linked to no others in the earlier scan, and now they are on a stale branch."""
    chain = GrowingChain(tmp_path / "blocks", 1)
    chain.mine(5)
    plan = Plan.of(BlockFiles(chain.folder), REGTEST)
    assert chain_change(plan, plan.blocks + 2, plan.tip) == (0, 2)
    assert chain_change(plan, plan.blocks - 2, plan.tip) == (2, 0)


async def test_blocks_that_arrive_late_fill_a_gap(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 2, has_undo=False), tmp_path / "out"
    chain.mine(10)
    chain.withhold(5)
    chain.mine(5)
    before, _ = await growth(chain, out)
    assert before.plan.report.heights.gaps == ((START + 10, START + 14),)
    chain.reveal()
    scan, _ = await growth(chain, out)
    assert scan.report.change == (5, 0)
    assert results(out) == await from_scratch(chain, out)


def hides(number: int) -> Callable[[GrowingChain], Callable[[], object]]:
    def harm(chain: GrowingChain) -> Callable[[], object]:
        chain.hide(number)
        return chain.reveal

    return harm


def truncates(chain: GrowingChain) -> Callable[[], object]:
    path = chain.folder / "blk00000.dat"
    raw = path.read_bytes()
    path.write_bytes(raw[: -len(chain.chain[11].raw) - 8])
    return lambda: path.write_bytes(raw)


@pytest.mark.few(2)
@pytest.mark.parametrize("part_size", [SMALL, PART_SIZE])
@pytest.mark.parametrize(
    "harm", [hides(0), hides(1), hides(2), truncates], ids=["first", "middle", "last", "truncated"]
)
async def test_missing_blocks_remove_no_rows(
    tmp_path: Path, harm: Callable[[GrowingChain], Callable[[], object]], part_size: int
) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 2), tmp_path / "out"
    for _ in range(3):
        chain.begin_file()
        chain.mine(12)
    await growth(chain, out, part_size=part_size)
    whole = results(out)
    chain.begin_file()
    repair = harm(chain)
    chain.mine(20)
    with pytest.raises(SourceError, match=r"block [0-9a-f]{64} was scanned before, but no file contains it any more"):
        await growth(chain, out, part_size=part_size)
    assert results(out) == whole
    repair()
    scan, _ = await growth(chain, out, part_size=part_size)
    assert scan.report.change == (20, 0)
    assert results(out) == await from_scratch(chain, out)


@pytest.mark.few(1)
@pytest.mark.usefixtures("without_disk")
@pytest.mark.parametrize("key", [b"", KEY])
async def test_half_written_last_block_is_scanned_when_it_is_whole(tmp_path: Path, key: bytes) -> None:
    """A node writes a block over allocated zeros, so the record has its full size from the beginning."""
    chain, out = GrowingChain(tmp_path / "blocks", 1, has_undo=False), tmp_path / "out"
    chain.mine(6)
    path = chain.folder / "blk00000.dat"
    whole = path.read_bytes()
    start = len(whole) - len(chain.chain[-1].raw)
    if key:
        (chain.folder / "xor.dat").write_bytes(key)

    def write(size: int) -> None:
        path.write_bytes((xored(whole[:size], key) if key else whole[:size]) + bytes(len(whole) - size + 4_096))

    for size in (*range(start - 4, start + 90, 13), *range(len(whole) - 40, len(whole) - 5, 3)):
        write(size)
        scan, _ = await growth(chain, out)
        assert scan.plan.blocks == 5
        assert any("half written?" in str(problem) for problem in scan.plan.report.problems) or size < start
        write(len(whole))
        scan, _ = await growth(chain, out)
        assert (scan.plan.blocks, scan.plan.report.problems) == (6, [])
        assert results(out) == await from_scratch(chain, out)
        shutil.rmtree(out)


@pytest.mark.slow
async def test_new_outpoints_make_blocks_without_undo_be_searched_again(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 4, has_undo=False), tmp_path / "out"
    chain.mine(20)
    await growth(chain, out)
    searched = []
    for _ in range(8):
        coins = {path.name for path in (out / "parts").glob("*.hits")}
        chain.mine(1)
        scan, engine = await growth(chain, out)
        has_new = {path.name for path in (out / "parts").glob("*.hits")} != coins
        in_second_pass = [task for task in engine.tasks if task.coins is not None]
        expected = set(chain_heights(scan)) if has_new else set(scan.plan.parts[-1].heights())
        assert expected <= heights_of(in_second_pass) | lone(scan)
        assert len([task for task in engine.tasks if task.coins is None]) <= 2
        searched.append(has_new)
    assert set(searched) == {True, False}


def chain_heights(scan: PartScan) -> list[int | None]:
    return [height for part in scan.plan.parts for height in part.heights()]


def lone(scan: PartScan) -> set[int | None]:
    """Heights in parts whose blocks spend nothing."""
    parts = [part for part in scan.plan.parts if all(block.is_lone for block in part.blocks())]
    return {height for part in parts for height in part.heights()}


@pytest.mark.slow
async def test_moved_window_makes_all_parts_be_scanned_again(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 5, has_keychain=True), tmp_path / "out"
    chain.mine(10)
    moves = []
    scan, _ = await growth(chain, out)
    for _ in range(12):
        before = [keychain.end for keychain in scan.watch.keychains]
        chain.mine(2)
        scan, engine = await growth(chain, out)
        has_moved = [keychain.end for keychain in scan.watch.keychains] != before
        assert (heights_of(engine.tasks) == set(chain_heights(scan))) is has_moved
        moves.append(has_moved)
    assert set(moves) == {True, False}


@pytest.mark.slow
async def test_unused_files_of_parts_are_removed(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 6, has_keychain=True), tmp_path / "out"
    for _ in range(6):
        chain.mine(4, late=1)
        await growth(chain, out)
    files = {path.name for path in (out / "parts").iterdir()}
    shutil.rmtree(out)
    await growth(chain, out)
    assert {path.name for path in (out / "parts").iterdir()} == files


async def test_all_formats_show_the_same_chain(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 7), tmp_path / "out"
    chain.mine(15)
    for form in FORMS:
        await growth(chain, out, form=form)
    chain.reorganize(3)
    await growth(chain, out, form=OutputFormat.JSONL)
    found = results(out)
    assert set(found) == {"totals.csv", *(f"matches.{form}" for form in FORMS)}
    assert found == await from_scratch(chain, out)
    (out / "matches.jsonl").unlink()
    chain.mine(1)
    await growth(chain, out, form=OutputFormat.CSV)
    assert "matches.jsonl" not in results(out)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["matches.csv", "matches.jsonl", "totals.csv"])
async def test_output_changed_at_its_size_is_written_again(tmp_path: Path, name: str) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 7), tmp_path / "out"
    chain.mine(15)
    for form in (OutputFormat.CSV, OutputFormat.JSONL):
        await growth(chain, out, form=form)
    whole = results(out)
    (out / name).write_bytes(whole[name].replace(b"1", b"2"))
    await growth(chain, out)
    assert results(out) == whole


@pytest.mark.few(1)
@pytest.mark.parametrize("grows", [True, False])
async def test_kill_between_matches_and_totals_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    chain, out, copy = GrowingChain(tmp_path / "blocks", 7), tmp_path / "out", tmp_path / "copy"
    chain.mine(15)
    await growth(chain, out)
    before, replace = results(out), Path.replace
    chain.mine(5)
    whole = await from_scratch(chain, out)

    def killed(path: Path, target: Path) -> Path:
        if target == out / "totals.csv":
            shutil.copytree(out, copy)
            raise DeathError
        return replace(path, target)

    with monkeypatch.context() as patched, pytest.raises(DeathError):
        patched.setattr(Path, "replace", killed)
        await growth(chain, out)
    shutil.rmtree(out)
    copy.rename(out)
    assert results(out) == {"matches.csv": whole["matches.csv"], "totals.csv": before["totals.csv"]} != whole
    if grows:
        chain.mine(2)
    await growth(chain, out)
    assert results(out) == await from_scratch(chain, out)
    assert not list(out.glob(".spvfilter-*"))


@pytest.mark.few(1)
@pytest.mark.parametrize("fails_at", range(1, 6))
async def test_full_disk_leaves_all_outputs_of_the_last_run(
    tmp_path: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 7), tmp_path / "out"
    chain.mine(15)
    for form in (OutputFormat.CSV, OutputFormat.JSONL):
        await growth(chain, out, form=form)
    whole, left = results(out), fails_at
    chain.mine(5)
    await PartScan(out, Plan.of(BlockFiles(chain.folder), REGTEST, part_size=SMALL), chain.watch()).run()

    def full(file: int) -> None:
        nonlocal left
        left -= stat.S_ISREG(os.fstat(file).st_mode)
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            await growth(chain, out)
    assert results(out) == whole
    assert not list(out.glob(".spvfilter-*"))
    await growth(chain, out)
    assert results(out) == await from_scratch(chain, out)


async def test_removed_parts_are_an_error_of_the_next_run(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 8), tmp_path / "out"
    chain.mine(15)
    scan, _ = await growth(chain, out)
    left = results(out)
    assert len(scan.finished()) == len(scan.plan.parts)
    scan.remove_parts()
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "matches.csv", "totals.csv"]
    assert json.loads((out / "manifest.json").read_text())["parts_removed"] is True
    assert scan.finished() == []
    (out / "parts").mkdir()
    (out / "parts" / "0123.part").write_bytes(b"left by a process that was killed while it removed parts")
    with pytest.raises(ParameterError, match="the parts of this scan were removed, so it cannot grow: scan into"):
        await growth(chain, out)
    assert list((out / "parts").iterdir()) == []
    assert results(out) == left


async def test_parts_on_another_disk_are_removed_with_their_link(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 8), tmp_path / "out"
    chain.mine(5)
    await growth(chain, out)
    (out / "parts").rename(tmp_path / "disk")
    (out / "parts").symlink_to(tmp_path / "disk")
    chain.mine(1)
    scan, _ = await growth(chain, out)
    assert results(out) == await from_scratch(chain, out)
    scan.remove_parts()
    assert not (out / "parts").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
async def test_files_have_the_umask_of_the_user(tmp_path: Path, mask: int) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 9, has_undo=False), tmp_path / "out"
    chain.mine(8)
    before = os.umask(mask)
    try:
        for form in FORMS:
            await growth(chain, out, form=form)
    finally:
        os.umask(before)
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {".json", ".csv", ".part", ".hits"} <= {path.suffix for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~mask}


@pytest.mark.slow
async def test_processes_grow_to_the_same_bytes(tmp_path: Path) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 10, has_undo=False), tmp_path / "out"
    engine = Processes(2)
    try:
        for _ in range(2):
            chain.mine(10)
            chain.begin_file()
            await scanned(chain, out, engine=engine)
    finally:
        await engine.aclose()
    assert results(out) == await from_scratch(chain, out)


@pytest.mark.slow
@pytest.mark.dask
@pytest.mark.usefixtures("nothing_of_distributed_is_left")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
async def test_cluster_grows_to_the_same_bytes(tmp_path: Path, two_workers: Cluster) -> None:
    chain, out = GrowingChain(tmp_path / "blocks", 11), tmp_path / "out"
    async with client_of(two_workers) as client:
        engine = DaskWorkers(client)
        for _ in range(3):
            chain.mine(8, late=1)
            scan = await scanned(chain, out, engine=engine)
            assert results(out) == await from_scratch(chain, out)
            chain.reorganize(2)
        await engine.aclose()
    assert scan.report.parts_kept > 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
