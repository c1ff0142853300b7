"""Workers with different files scan their own files. The result is that of one machine with all files.

Blocks that no worker has are reported.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from spvfilter import cli
from spvfilter.errors import ParameterError, SourceError
from spvfilter.network import REGTEST
from spvfilter.scan import (
    BlockFiles,
    BlockSpan,
    DaskWorkers,
    PartScan,
    Plan,
    plan_on_workers,
    scan_cluster,
    scan_parts,
    workerpool,
)
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import GENESIS, TxOut, block_hash, block_of, p2wpkh
from support.blocks.chains import write_records
from support.blocks.partscans import results
from support.blocks.undo import ledger_chain, write_chain
from support.commands.daskcluster import PATIENCE_S, Cluster, client_of

pytestmark = [
    pytest.mark.dask,
    pytest.mark.usefixtures("nothing_of_distributed_is_left"),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),  # distributed leaves sockets open
]
HERE = "/proc/self/cwd/blocks"  # a different folder in each worker
PART = 1_000
SCRIPT = p2wpkh(bytes(20))
ADDRESS = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"


class Machines:
    """Two workers with their own folders."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / "a", folder / "b"]
        for each in self.folders:
            each.mkdir()
        self.cluster = Cluster(0)
        self.workers = [self.cluster.add_worker(each) for each in self.folders]

    def blocks(self, machine: int) -> Path:
        return self.folders[machine] / "blocks"

    def kill(self, machine: int) -> None:
        self.workers[machine].kill()
        self.workers[machine].join()

    def start(self, machine: int) -> None:
        self.workers[machine] = self.cluster.add_worker(self.folders[machine])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    made = Machines(tmp_path_factory.mktemp("machines"))
    yield made
    made.cluster.end()


@pytest.fixture
def machines(both: Machines) -> Machines:
    for machine in (0, 1):
        if both.blocks(machine).is_symlink():
            both.blocks(machine).unlink()
        shutil.rmtree(both.blocks(machine), ignore_errors=True)
    return both


def chain_paying(count: int) -> list[bytes]:
    blocks: list[bytes] = []
    for height in range(1, count + 1):
        blocks.append(
            block_of(block_hash(blocks[-1]) if blocks else GENESIS, height, paid=[TxOut(1_000 + height, SCRIPT)])
        )
    return blocks


def watching() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    return watch


async def on_one_machine(
    folder: Path, blocks: list[bytes], records: list[bytes] | None, watch: WatchList
) -> dict[str, bytes]:
    write_chain(folder / "all", blocks, records)
    await scan_parts(PartScan(folder / "one", Plan.of(BlockFiles(folder / "all"), REGTEST, part_size=PART), watch))
    return results(folder / "one")


@pytest.mark.few(1)
@pytest.mark.parametrize("undo", [True, False])
async def test_machines_scan_their_files_and_shared_blocks_once(machines: Machines, tmp_path: Path, undo: bool) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    ledger, blocks, records = ledger_chain(1)
    watch = ledger.interest.watch()
    expected = await on_one_machine(tmp_path, blocks, records if undo else None, watch)
    ends = [0, *sorted(rng.sample(range(1, len(blocks)), 6)), len(blocks)]
    holders = rng.sample([(0,), (1,), (0, 1), *rng.choices([(0,), (1,), (0, 1)], k=4)], 7)
    for number, (start, end, holding) in enumerate(zip(ends[:-1], ends[1:], holders, strict=True)):
        for machine in holding:
            write_chain(
                machines.blocks(machine),
                blocks[start:end],
                records[start:end] if undo else None,
                number=9 - number if machine else number,
            )
    async with client_of(machines.cluster) as client:
        plan = await plan_on_workers(client, HERE, REGTEST, part_size=PART)
        assert sum(len(part) for part in plan.plan.parts) == len(blocks)
        assert {machine for part in plan.plan.parts for machine in plan.machines(part)} == {0, 1}
        await scan_cluster(client, plan, watch, tmp_path / "out")
        assert results(tmp_path / "out") == expected
        again = await plan_on_workers(client, HERE, REGTEST, part_size=PART)
        assert again.plan.fingerprint == plan.plan.fingerprint
        await scan_cluster(client, again, watch, tmp_path / "out")  # the scan resumes with the finished parts


@pytest.mark.few(1)
@pytest.mark.parametrize("undo", [True, False])
async def test_scan_grows_with_the_files_of_the_machines(machines: Machines, tmp_path: Path, undo: bool) -> None:
    """Both machines have the chain in their own files. The second machine lags by two blocks."""
    ledger, blocks, records = ledger_chain(4)
    watch = ledger.interest.watch()
    async with client_of(machines.cluster) as client:
        for end in (12, 20, 30):
            for machine, last in enumerate((end, end - 2)):
                write_chain(machines.blocks(machine), blocks[machine:last], records[machine:last] if undo else None)
            plan = await plan_on_workers(client, HERE, REGTEST, part_size=PART)
            engine = DaskWorkers(client, plan)
            scan = PartScan(tmp_path / "out", plan.plan, watch)
            await scan_parts(scan, engine=engine)
            await engine.aclose()
            expected = await on_one_machine(tmp_path, blocks[:end], records[:end] if undo else None, watch)
            assert results(tmp_path / "out") == expected
    assert scan.report.parts_kept > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["shared", "copied", "of its own"])
async def test_a_machine_may_leave_if_another_has_its_blocks(
    machines: Machines, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both workers see one disk, or copies of it, or files that two nodes wrote in different orders."""
    monkeypatch.setattr(workerpool, "RETURN_S", PATIENCE_S)
    ledger, blocks, records = ledger_chain(2)
    watch = ledger.interest.watch()
    expected = await on_one_machine(tmp_path, blocks, records, watch)
    write_chain(machines.blocks(0), blocks, records)
    if kind == "shared":
        machines.blocks(1).symlink_to(machines.blocks(0))
    elif kind == "copied":
        shutil.copytree(machines.blocks(0), machines.blocks(1))
    else:
        for number, start in enumerate((20, 0, 10)):
            write_chain(machines.blocks(1), blocks[start : start + 10], records[start : start + 10], number)
    async with client_of(machines.cluster) as client:
        plan = await plan_on_workers(client, HERE, REGTEST, part_size=PART)
        assert len(plan.sights) == (2 if kind == "of its own" else 1)
        assert len(plan.plan.report.duplicates) == (len(blocks) if kind == "of its own" else 0)
        scan, engine = PartScan(tmp_path / "out", plan.plan, watch), DaskWorkers(client, plan)
        scanning = asyncio.create_task(scan_parts(scan, engine=engine))
        while scan.report.parts_done < 3 and not scanning.done():  # noqa: ASYNC110  what changes has no event
            await asyncio.sleep(0)
        if kind == "of its own":
            await asyncio.to_thread(machines.kill, 1)
        try:
            await scanning
        finally:
            await engine.aclose()
            if kind == "of its own":
                await asyncio.to_thread(machines.start, 1)
    assert results(tmp_path / "out") == expected


async def test_blocks_of_a_lost_machine_are_named_and_scanned_later(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workerpool, "RETURN_S", 0.1)
    blocks, watch = chain_paying(30), watching()
    expected = await on_one_machine(tmp_path, blocks, None, watch)
    write_chain(machines.blocks(0), blocks[:20])
    write_chain(machines.blocks(1), blocks[10:])
    async with client_of(machines.cluster) as client:
        plan = await plan_on_workers(client, HERE, REGTEST, part_size=PART)
        assert plan.missing == ()
        await asyncio.to_thread(machines.kill, 1)
        try:
            with pytest.raises(
                SourceError, match=r"all workers with the blocks of heights 21 to 30 have left: start a"
            ):
                await scan_cluster(client, plan, watch, tmp_path / "out")
        finally:
            await asyncio.to_thread(machines.start, 1)
        await scan_cluster(client, plan, watch, tmp_path / "out")
    assert results(tmp_path / "out") == expected


def test_heights_that_no_worker_has_are_named(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = chain_paying(400)
    write_chain(machines.blocks(0), [*blocks[:100], *blocks[120:200]])
    write_chain(machines.blocks(1), [*blocks[90:110], *blocks[350:380]])

    async def plans() -> None:
        async with client_of(machines.cluster) as client:
            plan = await plan_on_workers(client, HERE, REGTEST)
            assert plan.missing == ((111, 120), (201, 350))
            plan = await plan_on_workers(client, [HERE], REGTEST, span=BlockSpan(from_height=105, to_height=390))
            assert plan.missing == ((111, 120), (201, 350), (381, 390))
            with pytest.raises(SourceError, match="contains none of the 220 blocks"):
                await plan_on_workers(client, HERE, REGTEST, span=BlockSpan(from_height=390))

    asyncio.run(plans())
    argv = ["scan", "--on-workers", HERE, "--network", "regtest", "--address", ADDRESS]
    assert cli.main([*argv, "--out", str(tmp_path / "out"), "--dask", machines.cluster.address]) == 1
    said = capsys.readouterr().err
    assert "missing: heights 111 to 120\n" in said
    assert "missing: heights 201 to 350\n" in said
    assert said.count("heights 111 to 120") == 1
    assert len((tmp_path / "out" / "matches.csv").read_bytes().splitlines()) == 1 + 220
    again = [*argv, "--out", str(tmp_path / "out"), "--dask", machines.cluster.address, "--allow-gaps"]
    assert cli.main(again) == 0


@pytest.mark.slow
@pytest.mark.columns
def test_an_export_reads_the_files_of_each_machine(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, blocks, records = ledger_chain(4)
    argv = ["export", "--network", "regtest", "--columns", "inputs:all", "outputs:value,index", "--allow-gaps", "--out"]
    on_workers = [str(tmp_path / "out"), "--on-workers", HERE, "--dask", machines.cluster.address]
    for end in (12, 30):
        write_chain(machines.blocks(0), blocks[: end - 4], records[: end - 4])
        write_chain(machines.blocks(1), blocks[6:end], records[6:end])
        write_chain(tmp_path / "all", blocks[:end], records[:end])
        assert cli.main([*argv, *on_workers]) == 0
        assert f"{end} blocks" in capsys.readouterr().err
        assert cli.main([*argv, str(tmp_path / f"one{end}"), str(tmp_path / "all")]) == 0
        capsys.readouterr()
        for table in ("inputs", "outputs"):
            assert rows_in(tmp_path / "out" / table) == rows_in(tmp_path / f"one{end}" / table)
    write_chain(machines.blocks(1), blocks[10:12], records[10:12])
    assert cli.main([*argv, *on_workers]) == 2
    assert "no file contains it any more" in capsys.readouterr().err


def rows_in(table: Path) -> list[str]:
    """The rows of a table in the order of the heights."""
    import pyarrow.parquet as pq

    paths = sorted(table.glob("*/*.parquet"))
    return [str(row) for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


async def test_only_a_worker_with_files_is_needed(machines: Machines, tmp_path: Path) -> None:
    async with client_of(machines.cluster) as client:
        with pytest.raises(
            SourceError, match=f"no worker found a block file at {HERE}: each looks there on its own machine"
        ):
            await plan_on_workers(client, HERE, REGTEST)
        with pytest.raises(ParameterError, match="no block files: pass at least one path"):
            await plan_on_workers(client, [], REGTEST)
        with pytest.raises(ParameterError, match="undo must be one of"):
            await plan_on_workers(client, HERE, REGTEST, undo="maybe")
        machines.blocks(1).mkdir()
        write_records(machines.blocks(1) / "blk00000.dat", chain_paying(3))
        plan = await plan_on_workers(client, HERE, REGTEST)
        assert (len(plan.sights), plan.missing) == (1, ())
        await scan_cluster(client, plan, watching(), tmp_path / "out")
    assert len((tmp_path / "out" / "matches.csv").read_bytes().splitlines()) == 1 + 3
