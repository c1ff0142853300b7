"""A scan on a Dask cluster writes the same bytes as a scan in one thread, even if workers die. Cluster errors are
clear.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spvfilter import cli
from spvfilter.errors import SourceError, remedy
from spvfilter.network import REGTEST
from spvfilter.scan import (
    BlockFiles,
    DaskWorkers,
    PartScan,
    Plan,
    TableExport,
    cluster,
    daskcalls,
    scan_cluster,
    scan_parts,
)
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.parts import PartTask
from spvfilter.scan.workertask import Shared, part_bytes
from spvfilter.watch import compiled
from spvfilter.watch.compiled import ImagePlace, new_image
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import block_of
from support.blocks.chains import write_records
from support.blocks.partscans import everything
from support.blocks.undo import ledger_chain, write_chain
from support.commands.daskcluster import PATIENCE_S, Cluster, client_of
from support.vectors import effort

pytestmark = [
    pytest.mark.dask,
    pytest.mark.usefixtures("nothing_of_distributed_is_left"),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),  # distributed leaves sockets open
]
ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"


def chain(folder: Path, *, undo: bool, seed: int = 1) -> tuple[Plan, WatchList]:
    """A plan of about a hundred parts."""
    ledger, blocks, records = ledger_chain(seed)
    write_chain(folder, blocks, records if undo else None)
    watch = ledger.interest.watch()
    return Plan.of(BlockFiles(folder), watch.network, part_size=1_000), watch


async def until(condition: Callable[[], object], step_s: float = 0) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  what changes has no event
            await asyncio.sleep(step_s)


async def begun(scan: PartScan, parts: int, scanning: asyncio.Task[Path]) -> None:
    """Wait until this number of parts is done."""
    await until(lambda: scan.report.parts_done >= parts or scanning.done())


async def in_one_thread(out: Path, plan: Plan, watch: WatchList, *, transactions: bool = False) -> dict[str, bytes]:
    await scan_parts(PartScan(out, plan, watch, transactions=transactions))
    return everything(out)


@pytest.mark.long
@pytest.mark.parametrize("undo", [True, False])
async def test_a_cluster_gives_the_same_bytes(two_workers: Cluster, tmp_path: Path, undo: bool) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=undo)
    expected = await in_one_thread(tmp_path / "thread", plan, watch, transactions=True)
    assert len(expected) > 10
    async with client_of(two_workers) as client:
        await scan_cluster(client, plan, watch, tmp_path / "cluster", transactions=True)
    assert everything(tmp_path / "cluster") == expected


@pytest.mark.few(1)
@pytest.mark.parametrize("sees", [True, False])
async def test_workers_map_a_compiled_list_or_receive_it(
    two_workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees: bool
) -> None:
    """A worker that cannot see the file has another file at that path."""
    monkeypatch.setattr(compiled, "READ_BELOW", 0)
    plan, watch = chain(tmp_path / "blocks", undo=False, seed=7)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)
    watch.compile(tmp_path / "list.spvwl")
    mapped = WatchList.load(tmp_path / "list.spvwl", watch.network)
    if not sees:
        watch.compile(tmp_path / "list.spvwl")
    sent = list[Shared]()
    scatter = daskcalls.Calls.scatter

    async def noted(self: daskcalls.Calls, value: Any) -> Any:
        sent.append(value)
        return await scatter(self, value)

    monkeypatch.setattr(daskcalls.Calls, "scatter", noted)
    async with client_of(two_workers) as client:
        await scan_cluster(client, plan, mapped, tmp_path / "cluster")
    assert everything(tmp_path / "cluster") == expected
    assert {type(each.table) for each in sent} == ({ImagePlace} if sees else {ImagePlace, bytes})
    assert isinstance(sent[-1].table, ImagePlace) == sees


@pytest.mark.slow
async def test_a_synchronous_client_gives_the_same_bytes(two_workers: Cluster, tmp_path: Path) -> None:
    import distributed

    plan, watch = chain(tmp_path / "blocks", undo=False, seed=2)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)
    with await asyncio.to_thread(distributed.Client, two_workers.address, set_as_default=False) as client:
        await scan_cluster(client, plan, watch, tmp_path / "cluster")
        await asyncio.to_thread(client.close)
    assert everything(tmp_path / "cluster") == expected


@pytest.mark.columns
async def test_a_cluster_writes_binary_hashes_by_option(two_workers: Cluster, tmp_path: Path) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=True, seed=4)
    await scan_parts(PartScan(tmp_path / "thread", plan, watch, binary_hashes=True), "parquet")
    async with client_of(two_workers) as client:
        await scan_cluster(client, plan, watch, tmp_path / "cluster", form="parquet", binary_hashes=True)
    assert everything(tmp_path / "cluster") == everything(tmp_path / "thread")


@pytest.mark.slow
@pytest.mark.columns
async def test_a_cluster_exports_the_same_bytes(two_workers: Cluster, tmp_path: Path) -> None:
    plan, _ = chain(tmp_path / "blocks", undo=True)
    await TableExport(tmp_path / "thread", plan).run()
    async with client_of(two_workers) as client:
        engine = DaskWorkers(client)
        files = await TableExport(tmp_path / "cluster", plan).run(engine)
        await engine.aclose()
    assert len(files["inputs"]) == len(plan.parts) > 5
    for path in (path for paths in files.values() for path in paths):
        alone = tmp_path / "thread" / path.relative_to((tmp_path / "cluster").absolute())
        assert path.read_bytes() == alone.read_bytes()


@pytest.mark.long
async def test_workers_may_die_at_any_moment(own_cluster: Cluster, tmp_path: Path) -> None:
    """The only worker with the watch list dies, too."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    plan, watch = chain(tmp_path / "blocks", undo=False, seed=3)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)
    async with client_of(own_cluster) as client, asyncio.timeout(PATIENCE_S * effort(1, 1, 20)):
        killed = 0
        while killed < effort(2, 3, 50):
            scan = PartScan(tmp_path / f"cluster{killed}", plan, watch)
            engine = DaskWorkers(client)
            scanning = asyncio.create_task(scan_parts(scan, "csv", engine))
            await begun(scan, rng.randrange(1, len(plan.parts)), scanning)
            await asyncio.to_thread(own_cluster.kill_worker, 0)
            killed += 1
            await scanning
            await engine.aclose()
            assert everything(scan.directory) == expected


@pytest.mark.slow
async def test_a_worker_that_dies_during_scatter_is_replaced(
    two_workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler's error may look as if the scheduler were lost."""
    from distributed.comm.core import CommClosedError

    monkeypatch.setattr(daskcalls, "LOOK_S", 0)
    plan, watch = chain(tmp_path / "blocks", undo=False)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)
    async with client_of(two_workers) as client:
        scatter, failures = (
            client.scatter,
            [OSError("Timed out trying to connect to tcp://127.0.0.1:1"), CommClosedError("while sending")],
        )

        async def sent(*args: object, **options: object) -> object:
            if failures:
                raise failures.pop()
            return await scatter(*args, **options)

        monkeypatch.setattr(client, "scatter", sent)
        await scan_cluster(client, plan, watch, tmp_path / "cluster")
        assert everything(tmp_path / "cluster") == expected
        failures[:] = [OSError("refused")] * daskcalls.ATTEMPTS
        with pytest.raises(SourceError, match="the watch list could not be sent to the workers in 8 attempts: refused"):
            await scan_cluster(client, plan, watch, tmp_path / "again")
        await scan_cluster(client, plan, watch, tmp_path / "again")
    assert everything(tmp_path / "again") == expected


async def test_a_worker_may_come_late(own_cluster: Cluster, tmp_path: Path) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=True)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)
    own_cluster.workers[0].kill()
    own_cluster.workers[0].join()
    async with client_of(own_cluster) as client:
        await until(lambda: not client.scheduler_info(n_workers=-1)["workers"], 0.01)
        scanning = asyncio.create_task(scan_cluster(client, plan, watch, tmp_path / "cluster"))
        await asyncio.sleep(0.1)
        assert not scanning.done()
        await asyncio.to_thread(own_cluster.add_worker)
        await scanning
    assert everything(tmp_path / "cluster") == expected


@pytest.mark.slow
async def test_a_lost_scheduler_is_named_and_the_scan_resumes(
    own_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daskcalls, "WORKERS_S", 0.2)
    plan, watch = chain(tmp_path / "blocks", undo=True)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)
    out = tmp_path / "cluster"
    killed, parts, written = threading.Event(), count(), cluster.write_part

    def held(task: PartTask, raw: bytes) -> PartSummary:
        assert next(parts) < 3 or killed.wait(PATIENCE_S)
        return written(task, raw)

    monkeypatch.setattr(cluster, "write_part", held)
    async with client_of(own_cluster) as client:
        scan = PartScan(out, plan, watch)
        engine = DaskWorkers(client)
        engine.width = 4  # so that some parts are unfinished when the scheduler is lost
        scanning = asyncio.create_task(scan_parts(scan, "csv", engine))
        await begun(scan, 3, scanning)
        own_cluster.scheduler.kill()
        own_cluster.scheduler.join()
        killed.set()
        with pytest.raises(SourceError, match="the scheduler is gone"):
            await scanning
        await engine.aclose()
    again = Cluster(0)
    try:
        async with client_of(again) as client:
            with pytest.raises(SourceError, match=f"has no workers: start `dask worker {again.address}`"):
                await scan_cluster(client, plan, watch, out)
            await asyncio.to_thread(again.add_worker)
            await scan_cluster(client, plan, watch, out)
    finally:
        again.end()
    assert everything(out) == expected


@pytest.mark.slow
async def test_a_cancelled_scan_leaves_no_tasks_and_resumes(two_workers: Cluster, tmp_path: Path) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=True)
    expected = await in_one_thread(tmp_path / "thread", plan, watch)

    def tasks(dask_scheduler: Any) -> int:
        return len(dask_scheduler.tasks)

    async with client_of(two_workers) as client:
        for number in range(3):
            scan = PartScan(tmp_path / f"cluster{number}", plan, watch)
            engine = DaskWorkers(client)
            scanning = asyncio.create_task(scan_parts(scan, "csv", engine))
            await begun(scan, 1, scanning)
            scanning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await scanning
            await engine.aclose()
            async with asyncio.timeout(PATIENCE_S):
                while await client.run_on_scheduler(tasks):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        await scan_cluster(client, plan, watch, scan.directory)
    assert everything(scan.directory) == expected


@pytest.mark.long
async def test_cancelled_calls_leave_the_client_usable(two_workers: Cluster) -> None:
    """A client joins several gathers. Without care, one cancelled gather would end each later one."""
    async with client_of(two_workers) as client:
        calls = daskcalls.Calls(client)
        for turns in range(effort(20, 20, 100)):
            running = [asyncio.create_task(calls.once(bytes, (100_000,))) for _ in range(30)]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            time.sleep(0.02)  # noqa: ASYNC251  so that the loop learns of several results at once
            for _ in range(turns):
                await asyncio.sleep(0)
            for each in running:
                each.cancel()
            ends = await asyncio.gather(*running, return_exceptions=True)
            assert {type(end) for end in ends} <= {bytes, asyncio.CancelledError}
            async with asyncio.timeout(PATIENCE_S):
                assert await calls.once(bytes, (3,)) == bytes(3)


async def test_a_worker_without_the_files_is_an_error(two_workers: Cluster, tmp_path: Path) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=True)
    (tmp_path / "blocks" / "rev00000.dat").rename(tmp_path / "rev")
    async with client_of(two_workers) as client:
        with pytest.raises(
            SourceError, match=r"a worker cannot read .*rev00000.dat: No such file or directory; each worker must see"
        ):
            await scan_cluster(client, plan, watch, tmp_path / "cluster")
        assert not list((tmp_path / "cluster" / "parts").iterdir())
        (tmp_path / "rev").rename(tmp_path / "blocks" / "rev00000.dat")
        await scan_cluster(client, plan, watch, tmp_path / "cluster")


def raising(error: Exception) -> SimpleNamespace:
    """A replacement for importlib.metadata. A lambda is sent to workers by value."""
    return SimpleNamespace(version=lambda name: (_ for _ in ()).throw(error))


async def test_another_version_on_a_worker_is_named(
    two_workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=True)
    async with client_of(two_workers) as client:
        monkeypatch.setattr(daskcalls, "EDITION", "0.0.1 (task format 1)")
        with pytest.raises(
            SourceError, match=r"the worker tcp://127\.0\.0\.1:\d+ has spvfilter .*, but this machine has 0\.0\.1 \("
        ):
            await scan_cluster(client, plan, watch, tmp_path / "cluster")
        monkeypatch.setattr(daskcalls, "metadata", raising(ModuleNotFoundError("spvfilter")))
        with pytest.raises(SourceError, match="is not installed on worker"):
            await scan_cluster(client, plan, watch, tmp_path / "cluster")
        # the error of a worker that leaves: this is no version mismatch
        monkeypatch.setattr(daskcalls, "metadata", raising(ConnectionResetError("closed")))
        await scan_cluster(client, plan, watch, tmp_path / "cluster")
    task = PartTask(plan.parts[0], tmp_path / "part", bytes(32), "auto", False, None)
    # a worker that joined late
    with pytest.raises(SourceError, match=r"a worker has spvfilter .*, but this machine has 0\.0\.1"):
        part_bytes(task, Shared("0.0.1", 1, b"", bytes(new_image(watch.table)), None))


def answering(answer: object) -> Callable[..., object]:
    """A replacement for `part_bytes`, which is sent to workers by value."""
    return lambda *args: answer


@pytest.mark.slow
async def test_a_wrong_answer_of_a_worker_is_refused(
    two_workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, watch = chain(tmp_path / "blocks", undo=True)
    await in_one_thread(tmp_path / "thread", plan, watch)
    whole = min(
        (tmp_path / "thread" / "parts").iterdir()
    ).read_bytes()  # the file of the first part: it is wrong for every other part
    flipped = whole[:100] + bytes((whole[100] ^ 1,)) + whole[101:]
    async with client_of(two_workers) as client:
        for answer in (None, "text", b"", whole, whole[:-1], whole[:100], flipped):
            monkeypatch.setattr(cluster, "part_bytes", answering(answer))
            with pytest.raises(SourceError, match=r"a worker (sent|returned)"):
                await scan_cluster(client, plan, watch, tmp_path / "cluster")
            kept = {
                path.read_bytes()
                for path in (tmp_path / "cluster" / "parts").iterdir()
                if not path.name.startswith(".")
            }
            assert kept <= {whole}


def scanning_on(cluster: str, blocks: Path | str, out: Path | str) -> list[str]:
    """The arguments of a command that scans blocks on a cluster."""
    options = ["--network", "regtest", "--address", ADDRESS, "--out", str(out), "--dask", cluster]
    return ["scan", str(blocks), *options]


def test_the_command_scans_on_a_cluster(
    two_workers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_records(tmp_path / "blk00000.dat", [block_of(REGTEST.genesis_hash, 1)])
    monkeypatch.chdir(tmp_path)  # the workers have another current directory
    assert cli.main(scanning_on(two_workers.address, "blk00000.dat", "out")) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "block" in said.err
    assert (tmp_path / "out" / "matches.csv").exists()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1"),
        ("nowhere://x", "not the address of a Dask scheduler"),
        ("nowhere://127.0.0.1:1", "not the address of a Dask scheduler"),
        ("tcp://user:hunter2@127.0.0.1:1", "not the address of a Dask scheduler"),
    ],
)
def test_an_unreachable_scheduler_is_named(
    address: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(daskcalls, "CONNECT_S", 0.2)
    blocks = write_records(tmp_path / "blk00000.dat", [block_of(REGTEST.genesis_hash, 1)])
    assert cli.main(scanning_on(address, blocks, tmp_path / "out")) == 2
    gc.collect()
    said = capsys.readouterr().err
    assert said.startswith(f"spvfilter: {words}")
    assert (said.count("\n"), "hunter2" in said) == (1, False)


def test_missing_dask_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    blocks = write_records(tmp_path / "blk00000.dat", [block_of(REGTEST.genesis_hash, 1)])
    argv = scanning_on("tcp://127.0.0.1:1", blocks, tmp_path / "out")
    assert cli.main(argv) == 2
    assert remedy("dask") in capsys.readouterr().err
    assert cli.main([*argv, "--processes", "2"]) == 2
    assert "--dask and --processes cannot be combined: use only one" in capsys.readouterr().err
