"""`spvfilter cfilter build --dask`: build filters on a cluster, in one file for each part. Existing files are kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.cfilter.jsonlines import FilterRecord, read_records
from spvfilter.cli.term.page import complain
from spvfilter.cli.term.progress import megabytes
from spvfilter.errors import DirectoryInUseError, ParameterError, SourceError, counted
from spvfilter.files import FileHeldError, FileLock, replacing
from spvfilter.filters.bip158 import filter_hash, filter_header
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.scan.daskcalls import connected
from spvfilter.scan.filterparts import BuiltFilter, cluster_filters
from spvfilter.scan.plan import Part, Plan
from spvfilter.scan.remote import seen_anywhere
from spvfilter.scan.sources import BlockFiles
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

_LOCK = ".lock"
"""Name of the lock file in the directory."""
_UNFINISHED = ".spvfilter-"
"""Start of the names of temporary files."""
_INCOMPLETE = 1
"""Exit code if filters are missing."""


def build(args: argparse.Namespace) -> int:
    """Build the filters and return the exit code."""
    if args.prevouts is not None or args.undo == UndoMode.OFF:
        raise ParameterError("--dask builds filters from undo files: omit --prevouts and --undo off")
    if args.out is None:
        raise ParameterError("--dask needs --out DIR, the directory for the files")
    return asyncio.run(_build(args, [seen_anywhere(path) for path in args.blocks], Path(args.out)))


async def _build(args: argparse.Namespace, paths: list[str], folder: Path) -> int:
    async with connected(args.dask) as client:
        plan = await asyncio.to_thread(Plan.of, BlockFiles(paths, undo=UndoMode.REQUIRE), args.network)
        if not plan.parts:
            why = "".join(f"; {problem}" for problem in plan.report.problems[:3])
            raise SourceError(f"found no blocks in {', '.join(args.blocks)}{why}")
        if args.previous is not None and plan.report.segments != 1:
            raise ParameterError(f"--previous needs one run of linked blocks, not {plan.report.segments}")
        with _held(folder):
            files = _FilterFiles(folder, plan, args.previous)
            async with aclosing(cluster_filters(client, files.lacking)) as made:
                for number in range(len(plan.parts)):
                    if files.is_there(number):
                        await asyncio.to_thread(files.pass_over, number)
                    else:
                        part = await anext(made)
                        await asyncio.to_thread(files.write, number, part.filters, part.problems)
            files.clean()
    report = plan.report
    problems = [*map(str, report.problems), *map(str, report.undo_problems), *files.problems]
    for problem in problems:
        complain(problem)
    complain(
        f"{counted(files.count, 'filter')}, {megabytes(files.size)}, of {counted(len(plan.parts), 'part')} in {folder}"
    )
    if report.stale:
        complain(f"no filters for {counted(len(report.stale), 'stale block')}, not on the branch with the most work")
    return _INCOMPLETE if problems else 0


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Create the directory, and lock it so that no other process uses it. Raises DirectoryInUseError."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock.take(folder / _LOCK)
    except FileHeldError as held:
        raise DirectoryInUseError(
            f"{folder}: {held} is writing to it: wait until that ends, or choose another directory"
        ) from None
    try:
        yield
    finally:
        lock.release()


class _FilterFiles:
    """The files of all parts in a directory.

    The name of a file contains a hash of its blocks, of all earlier blocks and of the filter header before them.
    """

    def __init__(self, folder: Path, plan: Plan, previous: bytes | None) -> None:
        self._folder = folder
        # filter header of the block before the next filter, by block
        self._before = {bytes(32): GENESIS_PREVIOUS_FILTER_HEADER}
        if previous is not None:
            self._before[next(plan.parts[0].blocks()).ref.previous] = previous
        self._names = list(_names(plan.parts, previous))
        self.problems: list[str] = []
        self.count = self.size = 0
        known = {*self._names, *map(_incomplete, self._names), _LOCK}
        strange = next(
            (
                path.name
                for path in folder.iterdir()
                if path.name not in known and not path.name.startswith(_UNFINISHED)
            ),
            None,
        )
        if strange is not None:
            raise ParameterError(
                f"{folder} contains {strange}, which is not a file of filters for these blocks: choose another"
                " directory"
            )
        self.lacking = [part for number, part in enumerate(plan.parts) if not self.is_there(number)]

    def is_there(self, number: int) -> bool:
        """Return True if the complete file of a part exists."""
        return (self._folder / self._names[number]).exists()

    def pass_over(self, number: int) -> None:
        """Read the last filter header in an existing file.

        Raises SourceError if the file is damaged, and OSError if it cannot be read.
        """
        for _, record in read_records(str(self._folder / self._names[number])):
            self._after(record)

    def write(self, number: int, filters: list[BuiltFilter], problems: list[str]) -> None:
        """Write the file of a part. Raises OSError.

        A file that lacks filters gets a different name, so that the next run makes it again.
        """
        name = self._names[number]
        with replacing(self._folder / (_incomplete(name) if problems else name)) as file:
            for each in filters:
                before = self._before.get(each.previous)
                header = None if before is None else filter_header(filter_hash(each.data), before)
                record = FilterRecord(each.block, each.previous, each.height, each.data, header)
                file.write(json.dumps(record.line(each.items), separators=(",", ":")).encode() + b"\n")
                self._after(record)
        if not problems:
            (self._folder / _incomplete(name)).unlink(missing_ok=True)
        self.problems += problems

    def _after(self, record: FilterRecord) -> None:
        self.count += 1
        self.size += len(record.data)
        self._before = {} if record.header is None else {record.block: record.header}

    def clean(self) -> None:
        """Remove the temporary files that killed processes left behind."""
        for left in self._folder.glob(f"{_UNFINISHED}*"):
            left.unlink(missing_ok=True)


def _names(parts: tuple[Part, ...], previous: bytes | None) -> Iterator[str]:
    key = sha256(b"spvfilter filters 1\0" + (previous or b"")).digest()
    for part in parts:
        key = sha256(key + part.fingerprint).digest()
        yield f"filters-{part.number:06}-{key[:8].hex()}.jsonl"


def _incomplete(name: str) -> str:
    return f"incomplete-{name}"
