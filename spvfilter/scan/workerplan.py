"""A plan of files on a cluster's workers. Machines have different files; a block that several have is scanned once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any  # Any: distributed has no types

from spvfilter._public import public
from spvfilter.errors import ParameterError, SourceError, counted
from spvfilter.network import Network
from spvfilter.scan.blockfile import BlockFile
from spvfilter.scan.daskcalls import ATTEMPTS, Calls, LostError
from spvfilter.scan.gaps import in_words, joined
from spvfilter.scan.listing import FileListing
from spvfilter.scan.plan import PART_SIZE, Part, Places, Plan, planned
from spvfilter.scan.sources import BlockSpan, Problem
from spvfilter.scan.undomode import UndoMode
from spvfilter.scan.workerpool import AwayError, Sight, WorkerPool
from spvfilter.scan.workertask import ListedFile, files_here, list_here

_LISTED_AT_ONCE = 64  # number of files whose headers workers read at a time (our choice)


@public
@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """A plan of files that are on the workers of a cluster. Each part is scanned on a machine that has its files."""

    plan: Plan
    """The plan of the blocks on all workers."""
    missing: tuple[tuple[int, int], ...]
    """Ranges of heights (first, last) whose blocks no worker has.

    Only heights from the start to the end of the range to scan count. A scan from a date starts at the lowest block
    found. A range without an end ends at the highest block found.
    """
    assumed: int
    """Number of files whose network is assumed, because their only block does not reveal it."""
    paths: tuple[str, ...]
    """Paths of the files, as the user gave them."""
    sights: tuple[tuple[Sight, ...], ...] = field(repr=False)
    """For each machine, the files that its workers see.

    Machines with the same files count as one machine, which then has several entries.
    """
    places: Places = field(repr=False)
    """The parts of the plan, with the files of each machine that has them."""

    def machines(self, part: Part) -> list[int]:
        """Return the machines that have all blocks of a part."""
        return list(self.places[part.is_stale, part.number])

    def on(self, machine: int, part: Part) -> Part:
        """Return a part with a machine's files."""
        return self.places[part.is_stale, part.number][machine]

    def only_on(self, away: Iterable[int]) -> str:
        """Describe the heights of the blocks that only the machines in `away` have."""
        gone = set(away)
        lost = [part for part in (*self.plan.parts, *self.plan.stale) if gone.issuperset(self.machines(part))]
        ranges = list(_ranges(lost))
        unplaced = sum(height is None for part in lost for height in part.heights())
        said = [in_words(each) for each in ranges]
        return ", ".join([*said, *([f"{counted(unplaced, 'block')} of unknown height"] if unplaced else [])])


class _FilesOfMachines:
    """The files of all machines. Their headers have already been listed."""

    def __init__(self, machines: Sequence[Sequence[ListedFile]], undo: UndoMode, span: BlockSpan) -> None:
        self.mode = undo
        self.span = span
        self.machines = len(machines)
        self.missing: list[Problem] = []
        self._listed = [(machine, each) for machine, files in enumerate(machines) for each in files]

    def __len__(self) -> int:
        return len(self._listed)

    def file(self, number: int) -> BlockFile:
        listed = self._listed[number][1]
        return BlockFile(Path(listed.path), listed.key, is_hex=listed.is_hex)

    def machine(self, number: int) -> int:
        return self._listed[number][0]

    def listings(self, network: Network) -> Iterator[FileListing]:
        for number, (_, each) in enumerate(self._listed):
            yield each.listing.numbered(number)


@public
async def plan_on_workers(
    client: Any,
    paths: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    network: Network,
    *,
    undo: str = UndoMode.AUTO,
    span: BlockSpan | None = None,
    part_size: int = PART_SIZE,
    directory: str | os.PathLike[str] | None = None,
) -> WorkerPlan:
    """Plan a scan of files on the machines of a Dask cluster's workers.

    Each worker has its own files at these paths. Pass the plan to `scan_cluster`.

    Args:
        client: A `distributed.Client`, asynchronous or not.
        paths: One path or several paths of files and directories.
        network: The network to which the blocks belong.
        undo: "auto", "require" or "off", as for BlockFiles.
        span: The range of blocks to scan; by default, all of them.
        part_size: Approximate size of a part (blocks and undo records) in bytes, from 1,000 to 4,000,000,000.
        directory: Directory of the scan or export that this plan continues, as for `Plan.of`.

    Raises:
        ParameterError: No path is given, the mode of `undo` is unknown, or the part size is outside its range.
        SourceError: No worker has a file at these paths, a worker leaves during planning, required undo records are
            missing, or the span contains no blocks.
    """
    named = (os.fspath(paths),) if isinstance(paths, (str, os.PathLike)) else tuple(os.fspath(path) for path in paths)
    if not named:
        raise ParameterError("no block files: pass at least one path")
    if undo not in list(UndoMode):
        raise ParameterError(f"undo must be one of {', '.join(UndoMode)}, not {undo!r}")
    calls = Calls(client)
    await calls.check_workers()
    found = await calls.call(client.run, files_here, named, on_error="return")
    for worker, seen in sorted(found.items()):
        # an OSError means that the worker has left
        if isinstance(seen, BaseException) and not isinstance(seen, OSError):
            raise SourceError(f"the worker {worker} cannot list its files: {seen}")
    sights: list[Sight] = sorted({seen for seen in found.values() if isinstance(seen, tuple) and seen})
    if not sights:
        raise SourceError(f"no worker found a block file at {', '.join(named)}: each looks there on its own machine")
    worker_pool = WorkerPool(calls, named, [(sight,) for sight in sights])
    listed = await _listed(worker_pool, sights, UndoMode(undo), network)
    return await asyncio.to_thread(
        _planned, named, sights, listed, UndoMode(undo), span or BlockSpan(), network, part_size, directory
    )


async def _listed(
    worker_pool: WorkerPool, sights: Sequence[Sight], undo: UndoMode, network: Network
) -> list[list[ListedFile]]:
    """List the files of each machine."""
    limit = asyncio.Semaphore(_LISTED_AT_ONCE)

    async def one(machine: int, path: str) -> ListedFile:
        """List the blocks of one file on a worker of its machine. Raises SourceError."""
        why: Exception | None = None
        async with limit:
            for _ in range(ATTEMPTS):
                try:
                    listed = await worker_pool.once(list_here, lambda _: (path, undo.value, network.name), [machine])
                except LostError as error:
                    why = error.cause
                except AwayError:
                    raise SourceError(
                        f"the worker that has {path} left while the file's headers were being read: plan again"
                    ) from None
                else:
                    if not isinstance(listed, ListedFile):
                        raise SourceError(f"{path}: a worker sent no list of blocks")
                    return listed
        raise SourceError(f"{path}: the workers that read its headers died {ATTEMPTS} times: {why}")

    asked = [(machine, seen.path) for machine, sight in enumerate(sights) for seen in sight]
    spread = sorted(range(len(asked)), key=lambda number: (number - _first(asked, asked[number][0]), number))
    tasks = {number: asyncio.ensure_future(one(*asked[number])) for number in spread}
    try:
        await asyncio.gather(*tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    files: list[list[ListedFile]] = [[] for _ in sights]
    for number, (machine, _) in enumerate(asked):
        files[machine].append(tasks[number].result())
    return files


def _first(asked: Sequence[tuple[int, str]], machine: int) -> int:
    """Return the index of a machine's first file."""
    return next(number for number, (each, _) in enumerate(asked) if each == machine)


def _planned(
    paths: tuple[str, ...],
    sights: Sequence[Sight],
    listed: Sequence[list[ListedFile]],
    undo: UndoMode,
    span: BlockSpan,
    network: Network,
    part_size: int,
    directory: str | os.PathLike[str] | None,
) -> WorkerPlan:
    """Make the plan. Machines whose files are copies count as one.

    Machines are numbered according to the contents of their files, so that the plan is the same each time.
    """
    seen: dict[bytes, list[Sight]] = {}
    files: dict[bytes, list[ListedFile]] = {}
    for sight, of_machine in zip(sights, listed, strict=True):
        digest = sha256()
        for each in of_machine:
            digest.update(sha256(each.content).digest())
        seen.setdefault(digest.digest(), []).append(sight)
        files[digest.digest()] = of_machine
    order = sorted(files)
    of_all = _FilesOfMachines([files[digest] for digest in order], undo, span)
    plan, places = planned(of_all, network, part_size, directory)
    assumed = sum(each.is_assumed for of_machine in files.values() for each in of_machine)
    return WorkerPlan(
        plan, _missing(plan, span), assumed, paths, tuple(tuple(seen[digest]) for digest in order), places
    )


def _missing(plan: Plan, span: BlockSpan) -> tuple[tuple[int, int], ...]:
    """Return the heights, from the first wanted block to the last, that no part has.

    The genesis block never counts as missing.
    """
    have = list(_ranges(plan.parts))
    if not have:
        return ()
    begin = have[0][0] if span.from_time is not None else 1
    at = begin if span.from_height is None else max(begin, span.from_height)
    end = have[-1][1] if span.last_height is None else span.last_height
    missing: list[tuple[int, int]] = []
    for first, last in have:
        if first > at:
            missing.append((at, first - 1))
        at = max(at, last + 1)
    return (*missing, *([(at, end)] if at <= end else []))


def _ranges(parts: Iterable[Part]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of heights (first, last) of the blocks of these parts, lowest first."""
    found: list[tuple[int, int]] = []
    for part in parts:
        first = last = None
        for height in part.heights():
            if height is None:
                continue
            if last is not None and first is not None and height != last + 1:
                found.append((first, last))
                first = height
            first, last = height if first is None else first, height
        if first is not None and last is not None:
            found.append((first, last))
    yield from joined(found)
