"""A cluster of machines with their own addresses: the result is the same under all network failures.

The machines are network namespaces on a bridge.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from spvfilter import cli
from spvfilter.errors import SourceError
from spvfilter.network import REGTEST
from spvfilter.scan import (
    BlockFiles,
    DaskWorkers,
    PartScan,
    Plan,
    plan_on_workers,
    scan_cluster,
    scan_parts,
    workerpool,
)
from spvfilter.watch.watchlist import WatchList
from support.blocks.partscans import results
from support.blocks.undo import ledger_chain, write_chain
from support.commands.daskcluster import PATIENCE_S, Cluster, client_of
from support.peers.namespaces import Network, within
from support.vectors import EFFORT

pytestmark = [
    pytest.mark.dask,
    pytest.mark.namespaces,
    pytest.mark.skipif(
        EFFORT != "full" and "namespaces" not in os.environ.get("SPVFILTER_REQUIRE", ""),
        reason=(
            "each test makes a network, and it takes 11 s until a silent machine is known to be gone:"
            " SPVFILTER_EFFORT=full"
        ),
    ),
    pytest.mark.usefixtures("nothing_of_distributed_is_left"),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),  # distributed leaves sockets open
]
HERE = "/proc/self/cwd/blocks"  # a different folder in each worker
PART, LARGE_PART = 1_000, 5_000
SCHEDULER, CLIENT, FIRST = 1, 2, 3  # the last numbers of the addresses
# seconds until a silent machine counts as lost: the least that distributed allows
QUICKLY = {"distributed.comm.timeouts.tcp": "11s"}
BLOCKS = 300
T = TypeVar("T")


class Machines:
    """A scheduler, workers with their own folders, and a scanning machine. Each has its own address."""

    def __init__(self, folder: Path) -> None:
        self.network = Network()
        self._scheduler, self._client = self.network.add(SCHEDULER), self.network.add(CLIENT)
        self._folder = folder
        self._workers: dict[int, str] = {}  # namespaces by number of the address
        self._clusters: list[Cluster] = []
        self.begin()

    def begin(self) -> None:
        """Start a scheduler without workers."""
        self.cluster = Cluster(0, host=f"10.99.0.{SCHEDULER}", namespace=self._scheduler, config=QUICKLY)
        self._clusters.append(self.cluster)

    def start(self, number: int) -> None:
        """Start a worker on a machine."""
        if number not in self._workers:
            self._workers[number] = self.network.add(number)
        self.cluster.add_worker(self.folder(number), self._workers[number])

    def folder(self, number: int) -> Path:
        made = self._folder / str(number)
        made.mkdir(exist_ok=True)
        return made

    def run(self, program: Callable[[Any], Coroutine[object, object, T]]) -> T:
        """Run a program with a client on the scanning machine, and return its result."""

        async def main() -> T:
            async with asyncio.timeout(PATIENCE_S), client_of(self.cluster) as client:
                return await program(client)

        return within(self._client, lambda: asyncio.run(main()))

    def command(self, *argv: object) -> int:
        return within(self._client, lambda: cli.main([*map(str, argv), "--dask", self.cluster.address]))

    def end(self) -> None:
        for cluster in self._clusters:
            cluster.end()
        self.network.end()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    (tmp_path / "machines").mkdir()
    made = Machines(tmp_path / "machines")
    try:
        yield made
    finally:
        made.end()


class Chain:
    """A chain in a folder, and the result of its scan in one thread."""

    def __init__(self, folder: Path) -> None:
        ledger, self.blocks, self.records = ledger_chain(5, BLOCKS)
        self.list = folder / "list"
        ledger.interest.watch().save(self.list)
        self.watch = WatchList.load(self.list, REGTEST)
        self.files = folder / "blocks"
        self.put(self.files, 1, [0])
        self.plan = self.cut(PART)
        asyncio.run(scan_parts(PartScan(folder / "thread", self.cut(LARGE_PART), self.watch)))
        self.expected = results(folder / "thread")

    def cut(self, part_size: int) -> Plan:
        return Plan.of(BlockFiles(self.files), REGTEST, part_size=part_size)

    def put(self, folder: Path, of: int, numbers: list[int]) -> None:
        """Put some files of the chain into a folder; `of` is the number of all files."""
        shutil.rmtree(folder, ignore_errors=True)
        for number in numbers:
            some = slice(len(self.blocks) * number // of, len(self.blocks) * (number + 1) // of)
            write_chain(folder, self.blocks[some], self.records[some], number)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


async def hosts(client: Any) -> set[str]:
    return {str(address).rpartition(":")[0].removeprefix("tcp://10.99.0.") for address in await client.nthreads()}


async def scanning_with(
    client: Any, scan: PartScan, parts: int, then: Callable[[], Coroutine[object, object, None]]
) -> None:
    """Scan, and call a function once a number of parts is done, before all are done."""
    engine = DaskWorkers(client)
    running = asyncio.create_task(scan_parts(scan, engine=engine))
    try:
        while scan.report.parts_done < parts and not running.done():  # noqa: ASYNC110  what changes has no event
            await asyncio.sleep(0)
        assert not running.done()
        await then()
        await running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, SourceError):
            await running
        await engine.aclose()


def test_one_two_and_four_machines_give_the_same_bytes(machines: Machines, chain: Chain, tmp_path: Path) -> None:
    options = ("--network", "regtest", "--watch", chain.list, "--from-height", 100)  # the lowest height of the chain
    for count in (1, 2, 4):
        for number in range(count // 2, count):
            machines.start(FIRST + number)
        for number in range(count):
            chain.put(machines.folder(FIRST + number) / "blocks", 8, list(range(number, 8, count)))

        async def scanned(client: Any, count: int = count) -> None:
            assert await hosts(client) == {str(FIRST + number) for number in range(count)}
            await scan_cluster(client, chain.cut(LARGE_PART), chain.watch, tmp_path / f"shared{count}")
            plan = await plan_on_workers(client, HERE, REGTEST, part_size=LARGE_PART)
            assert {machine for part in plan.plan.parts for machine in plan.machines(part)} == set(range(count))
            await scan_cluster(client, plan, chain.watch, tmp_path / f"own{count}")

        machines.run(scanned)
        for out in (f"shared{count}", f"own{count}"):
            assert results(tmp_path / out) == chain.expected
    assert machines.command("scan", chain.files, *options, "--out", tmp_path / "command") == 0
    assert machines.command("scan", "--on-workers", HERE, *options, "--out", tmp_path / "of workers") == 0
    for out in ("command", "of workers"):
        assert results(tmp_path / out) == chain.expected


def test_a_disconnected_machine_loses_no_match(machines: Machines, chain: Chain, tmp_path: Path) -> None:
    """The machine is first disconnected for a moment, and then for ever while another one joins."""
    machines.start(FIRST)
    machines.start(FIRST + 1)

    async def scanned(client: Any) -> None:
        async def for_a_moment() -> None:
            machines.network.plug(FIRST, is_in=False)
            await asyncio.sleep(0.5)
            machines.network.plug(FIRST, is_in=True)

        await scanning_with(client, PartScan(tmp_path / "moment", chain.plan, chain.watch), 5, for_a_moment)
        assert await hosts(client) == {str(FIRST), str(FIRST + 1)}

        async def for_good() -> None:
            machines.network.plug(FIRST, is_in=False)
            await asyncio.to_thread(machines.start, FIRST + 2)
            doing = await client.processing()
            assert any(
                tasks for address, tasks in doing.items() if f".{FIRST}:" in address
            )  # these tasks are lost with the machine

        await scanning_with(client, PartScan(tmp_path / "good", chain.plan, chain.watch), 5, for_good)
        assert await hosts(client) == {str(FIRST + 1), str(FIRST + 2)}

    machines.run(scanned)
    for out in ("moment", "good"):
        assert results(tmp_path / out) == chain.expected


def test_blocks_of_a_disconnected_machine_are_named_and_scanned_later(
    machines: Machines, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workerpool, "RETURN_S", 0.1)
    for number in (0, 1):
        chain.put(machines.folder(FIRST + number) / "blocks", 2, [number])
        machines.start(FIRST + number)

    async def scanned(client: Any) -> None:
        plan = await plan_on_workers(client, HERE, REGTEST, part_size=PART)
        machines.network.plug(FIRST + 1, is_in=False)
        middle = len(chain.blocks) // 2
        with pytest.raises(
            SourceError,
            match=rf"with the blocks of heights {100 + middle} to {99 + len(chain.blocks)} have left",
        ):
            await scan_cluster(client, plan, chain.watch, tmp_path / "out")
        machines.network.plug(FIRST + 1, is_in=True)
        await asyncio.to_thread(machines.start, FIRST + 1)
        await scan_cluster(client, plan, chain.watch, tmp_path / "out")

    machines.run(scanned)
    assert results(tmp_path / "out") == chain.expected


def test_a_scan_resumes_with_another_scheduler(machines: Machines, chain: Chain, tmp_path: Path) -> None:
    import dask

    scan = PartScan(tmp_path / "out", chain.plan, chain.watch)

    async def lost(client: Any) -> None:
        async def pulled() -> None:
            machines.network.plug(SCHEDULER, is_in=False)

        with pytest.raises(
            SourceError, match=r"the scheduler is gone \(.*\): finished parts are kept; run the same scan again"
        ):
            await scanning_with(client, scan, 5, pulled)

    machines.start(FIRST)
    with dask.config.set(QUICKLY):
        machines.run(lost)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "parts").iterdir()}
    assert len(chain.plan.parts) > len(kept) >= 5
    machines.network.plug(SCHEDULER, is_in=True)
    machines.begin()
    machines.start(FIRST)

    async def goes_on(client: Any) -> None:
        await scan_cluster(client, chain.plan, chain.watch, tmp_path / "out")

    machines.run(goes_on)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert results(tmp_path / "out") == chain.expected
