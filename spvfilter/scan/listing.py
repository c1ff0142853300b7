"""List the blocks in files for a plan, reading only their headers: several files at a time, each as rows of bytes."""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Protocol

from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.blockfile import BlockFile
from spvfilter.scan.rows import FILE_NUMBER, LONE, ROW, ROW_SIZE, UNDO_AT, UNDO_SIZES, UNKNOWN
from spvfilter.scan.sources import BlockFiles, BlockRef, BlockSpan, Problem, linked
from spvfilter.scan.undo import UndoFile, UndoFiles
from spvfilter.scan.undomode import UndoMode

_THREADS = 4  # files to read at a time (our choice): threads mostly wait for the disk


@dataclass(slots=True)
class FileListing:
    """The blocks of one file, in the order of the file."""

    number: int
    """Number of the file within its source."""
    rows: bytearray = field(default_factory=bytearray)
    """The blocks of the file: one encoded 73-byte row for each block."""
    previous: bytearray = field(default_factory=bytearray)
    """For each row in order, the 32-byte hash of the previous block."""
    problems: list[Problem] = field(default_factory=list)
    """Problems with parts of the file that cannot be read."""
    undo: UndoFile | None = None
    """The undo file of this file, or None if there is no undo file or it is not used."""
    undo_problems: list[Problem] = field(default_factory=list)
    """Problems with undo records that cannot be used."""

    def __len__(self) -> int:
        return len(self.rows) // ROW_SIZE

    def numbered(self, number: int) -> FileListing:
        """Return the same listing with a different file number, both in its own field and in each row."""
        rows = bytearray(self.rows)
        for row in range(len(self)):
            FILE_NUMBER.pack_into(rows, row * ROW_SIZE, number)
        return FileListing(number, rows, self.previous, self.problems, self.undo, self.undo_problems)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each row with the hash of its block's parent."""
        for number in range(len(self)):
            yield (
                bytes(self.rows[number * ROW_SIZE : (number + 1) * ROW_SIZE]),
                bytes(self.previous[number * HASH_SIZE : (number + 1) * HASH_SIZE]),
            )


def row_of(ref: BlockRef) -> bytes:
    """Return the row of a block, without the place of its undo record."""
    height = UNKNOWN if ref.height is None else ref.height
    return ROW.pack(
        ref.file, ref.offset, ref.size, ref.bits, ref.time, height, ref.hash, 0, 0, LONE * (ref.transactions == 1)
    )


def list_file(files: BlockFiles, number: int, network: Network) -> FileListing:
    """Read the headers in one file, and find the undo records of its blocks. Unreadable parts become problems."""
    listing = FileListing(number)
    refs: list[BlockRef] = []  # blocks that spend coins
    spending = array("I")  # rows of these blocks
    undo = files.undo_beside(number)
    for found in files.index_file(number, network):
        if isinstance(found, Problem):
            listing.problems.append(found)
            continue
        listing.rows += row_of(found)
        listing.previous += found.previous
        if undo is not None and found.transactions != 1:
            refs.append(found)
            spending.append(len(listing) - 1)
    if undo is not None:
        paired = UndoFiles()
        paired.add(number, undo, [linked(files, ref) for ref in refs], network)
        for row, ref in zip(spending, refs, strict=True):
            if (place := paired.find(number, ref.hash)) is not None:
                UNDO_SIZES.pack_into(listing.rows, row * ROW_SIZE + UNDO_AT, place.offset, place.size)
        listing.undo = undo
        listing.undo_problems = [Problem(where, message) for where, message in paired.problems]
    return listing


def list_files(files: BlockFiles, network: Network) -> Iterator[FileListing]:
    """Return the listings of all files in order. Only a few files are read at a time, to limit memory."""
    threads = min(_THREADS, os.cpu_count() or 1) + 1
    numbers = iter(range(len(files)))
    with futures.ThreadPoolExecutor(threads, "spvfilter-plan") as pool:
        waiting: deque[futures.Future[FileListing]] = deque()
        try:
            for number in numbers:
                waiting.append(pool.submit(list_file, files, number, network))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class ListedFiles(Protocol):
    """Files of blocks, on one or several machines, whose headers can be listed. Machines are numbered from 0."""

    @property
    def span(self) -> BlockSpan: ...

    @property
    def mode(self) -> UndoMode: ...

    @property
    def missing(self) -> Sequence[Problem]: ...

    @property
    def machines(self) -> int: ...

    def __len__(self) -> int: ...

    def file(self, number: int) -> BlockFile: ...

    def machine(self, number: int) -> int:
        """Return the machine that has the file with this number."""

    def listings(self, network: Network) -> Iterator[FileListing]:
        """Return the listings of all files, in the order of the files."""


class LocalFiles:
    """Files that this machine can read."""

    machines = 1

    def __init__(self, files: BlockFiles) -> None:
        self._files = files
        self.span: BlockSpan = files.span
        self.mode: UndoMode = files.mode
        self.missing: Sequence[Problem] = files.missing

    def __len__(self) -> int:
        return len(self._files)

    def file(self, number: int) -> BlockFile:
        return self._files.file(number)

    def machine(self, number: int) -> int:
        return 0

    def listings(self, network: Network) -> Iterator[FileListing]:
        return list_files(self._files, network)
