"""Scan parts on the workers of a Dask cluster (`dask` extra).

The result is the same as with one thread, even if workers die.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any  # Any: distributed has no types

from spvfilter._public import public
from spvfilter.errors import ParameterError, SourceError
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import WatchTable
from spvfilter.scan.daskcalls import ATTEMPTS, Calls, LostError, scheduler_is_there
from spvfilter.scan.directory import PartScan
from spvfilter.scan.edition import EDITION
from spvfilter.scan.engines import Engine, finished, summary_of
from spvfilter.scan.outputs import OutputFormat, scan_parts
from spvfilter.scan.partfile import PartSummary
from spvfilter.scan.parts import PartTask
from spvfilter.scan.plan import Plan
from spvfilter.scan.threadwork import to_its_end
from spvfilter.scan.workerplan import WorkerPlan
from spvfilter.scan.workerpool import AwayError, WorkerPool
from spvfilter.scan.workertask import Shared, part_bytes
from spvfilter.watch.compiled import ImagePlace, check_unchanged, image_of
from spvfilter.watch.watchlist import WatchList

_CLOSE_S = 5  # seconds that closing waits for transfers to workers (our choice)
_WIDTH = 256  # parts sent to the scheduler at a time, about 0.1 MB each (our choice)


@public
class DaskWorkers(Engine):
    """An engine that scans parts on the workers of a Dask cluster.

    Every worker must see the blocks' files under the same paths, unless `plan` says which worker has which file.
    Workers return the files of parts, which this process writes, so nothing else needs to be shared. Workers may join
    later. If a worker dies, another one scans its part.

    Args:
        client: A `distributed.Client`, asynchronous or not. It stays open.
        plan: A plan of files that the workers have themselves, from `plan_on_workers`.
        send_scan_key: True to send the private scan keys of sp() descriptors to the scheduler and the workers.
            They then learn of all payments, but cannot spend them.
    """

    width = _WIDTH

    def __init__(self, client: Any, plan: WorkerPlan | None = None, *, send_scan_key: bool = False) -> None:
        self._calls = Calls(client)
        self._sends_scan_key = send_scan_key
        self._plan = plan
        self._worker_pool = None if plan is None else WorkerPool(self._calls, plan.paths, plan.sights)
        self._owner = secrets.token_bytes(16)
        self._passes = 0
        self._table = WatchTable()
        self._place: ImagePlace | None = None  # the file that contains the table, or None if a worker does not see it
        self._shared: dict[Path | None, asyncio.Task[tuple[Any, bool]]] = {}

    async def begin(self, table: WatchTable) -> None:
        """Set the table of watched entries that later calls to `run` scan for.

        Raises SourceError unless there is at least one worker, and all workers have this version of spvfilter.
        """
        self._table, self._shared, self._place = table, {}, ImagePlace.of(table)
        self._passes += 1
        await self._calls.check_workers()

    async def run(self, task: PartTask) -> PartSummary:
        """Scan a part on a worker and write its file, unless a complete file is there already.

        Raises SourceError if the part cannot be scanned or the scheduler is lost, and ParameterError if it needs a
        private scan key that must not be sent. Raises OSError if a file cannot be read or written.
        """
        if task.has_scan_key and not self._sends_scan_key:
            raise ParameterError(
                "the watch list contains sp(), and its private scan key would be sent to the scheduler and all workers:"
                " pass send_scan_key=True if you trust them"
            )
        done = await to_its_end(finished, task.path, task.key)
        if done is not None:
            return done
        with scheduler_is_there():
            raw = await self._scanned(task)
        return await to_its_end(write_part, task, raw)

    async def _scanned(self, task: PartTask) -> bytes:
        """Return the bytes of a part's file, scanned by any worker that has the part's blocks."""
        why: Exception | None = None
        for _ in range(ATTEMPTS):
            sharing = self._shared.get(task.coins)
            if sharing is None:
                sharing = self._shared[task.coins] = asyncio.create_task(self._share(task.coins))
            shared, has_place = await asyncio.shield(sharing)
            try:
                raw = await self._on_some(task, shared)
            except LostError as error:
                why = error.cause
                if error.lacks_data and self._shared.get(task.coins) is sharing:
                    del self._shared[task.coins]  # the shared data was lost with the last worker that had it
            else:
                if raw is None and has_place:  # a worker does not see the file: send the table itself from now on
                    self._place = None
                    if self._shared.get(task.coins) is sharing:
                        del self._shared[task.coins]
                    continue
                if not isinstance(raw, bytes):
                    raise SourceError(f"part {task.part.number}: a worker sent no bytes")
                return raw
        raise SourceError(f"part {task.part.number}: the workers that scanned it died {ATTEMPTS} times: {why}")

    async def _on_some(self, task: PartTask, shared: object) -> object:
        """Scan a part on one worker that has its blocks. Raises LostError or SourceError."""
        plan, worker_pool = self._plan, self._worker_pool
        if plan is None or worker_pool is None:
            return await self._calls.once(part_bytes, (task, shared))
        machines = plan.machines(task.part)
        try:
            return await worker_pool.once(
                part_bytes, lambda machine: (task.with_part(plan.on(machine, task.part)), shared), machines
            )
        except AwayError:
            away = [machine for machine in range(len(plan.sights)) if not await worker_pool.workers(machine)]
            raise SourceError(
                f"all workers with the blocks of {plan.only_on(away or machines)} have left: start a worker on their"
                " machine, and run the same scan again to continue"
            ) from None

    async def _share(self, coins: Path | None) -> tuple[Any, bool]:
        """Send the data that all parts of a pass need to every worker.

        Returns a future of the data, and whether the data names a file that contains the table instead of containing
        the table itself.
        """
        self._passes += 1
        number, place = self._passes, self._place

        def pack() -> Shared:
            check_unchanged(self._table)
            table = bytes(image_of(self._table)) if place is None else place
            return Shared(EDITION, number, self._owner, table, None if coins is None else coins.read_bytes())

        shared = await asyncio.to_thread(pack)
        return await self._calls.scatter(shared), place is not None

    async def aclose(self) -> None:
        """Cancel the parts that the cluster has not finished.

        A worker that has begun a part finishes it, but the result is discarded.
        """
        futures = []
        if self._shared:
            # a transfer in progress cannot be cancelled at the scheduler
            await asyncio.wait(self._shared.values(), timeout=_CLOSE_S)
        for sharing in self._shared.values():
            sharing.cancel()
            with suppress(asyncio.CancelledError, Exception):
                futures.append((await sharing)[0])
        self._shared = {}
        await self._calls.cancel(futures)


def write_part(task: PartTask, raw: bytes) -> PartSummary:
    """Write the file of a part that a worker has returned, and check it."""
    unchecked = task.path.with_name(f".spvfilter-{task.path.name}")  # not the name of a part
    with replacing(unchecked, SHARED) as file:
        file.write(raw)
    summary = summary_of(unchecked, task.key)
    if summary is None:
        unchecked.unlink()
        raise SourceError(f"part {task.part.number}: a worker returned bytes that are not the file of that part")
    unchecked.replace(task.path)
    return summary


@public
async def scan_cluster(
    client: Any,
    plan: Plan | WorkerPlan,
    watch: WatchList,
    out: str | os.PathLike[str],
    *,
    form: OutputFormat | str = OutputFormat.CSV,
    check: bool = False,
    transactions: bool = False,
    binary_hashes: bool = False,
    send_scan_key: bool = False,
) -> Path:
    """Scan a plan's parts on the workers of a Dask cluster into a directory, as `scan_parts` does.

    If the scheduler is lost, call it again with the same arguments to continue.

    Args:
        client: A `distributed.Client`, asynchronous or not.
        plan: A plan of files that all workers see under the same paths, or of files that workers have themselves
            (`plan_on_workers`).
        watch: The watch list.
        out: The directory.
        form: The format of the file of matches.
        check: True to verify proof of work, merkle root and witness commitment of each block.
        transactions: True to also write every input and output of the matched transactions.
        binary_hashes: True to write the hashes in Parquet files as 32 bytes in display order, instead of as hex.
        send_scan_key: True to send the private scan keys of sp() descriptors to the workers.

    Returns:
        The path of the file of matches.

    Raises:
        ParameterError: The watch list is empty or for another network, the directory holds a different scan or other
            files, or a package is missing.
        DirectoryInUseError: Another scan is using the directory.
        SourceError: There is no worker, a worker has a different version of spvfilter or does not see the files, or the
            scheduler is lost.
        OSError: A file cannot be read or written.
    """
    engine = DaskWorkers(client, plan if isinstance(plan, WorkerPlan) else None, send_scan_key=send_scan_key)
    try:
        of_blocks = plan.plan if isinstance(plan, WorkerPlan) else plan
        scan = PartScan(out, of_blocks, watch, check=check, transactions=transactions, binary_hashes=binary_hashes)
        return await scan_parts(scan, form, engine)
    finally:
        await engine.aclose()
