"""Totals of a direct `spvfilter scan`, by entry of the watch list: on the page, and in the file of `--totals`."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from spvfilter.cli.scan.options import ScanOptions
from spvfilter.cli.term.matches import owner_of
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.errors import SourceError
from spvfilter.kernel import count_hits
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.totals import EntryTotals, entry_name, write_totals
from spvfilter.watch.watchlist import WatchList

_IN_MEMORY = 4 << 20  # size of the matches, in bytes, above which a file is used (our choice)
_RECORD = struct.Struct("<32sII")  # precedes a block's packed matches: its hash and time, and their size


def check_totals_file(name: str) -> None:
    """Raise SourceError if the totals cannot be written to a path. Call this before a scan, which may take hours."""
    path = Path(name)
    if path.exists() and not path.is_file():
        raise SourceError(f"{name} is not a regular file: choose another name for the totals")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise SourceError(f"{name}: {path.parent} is not a writable directory")


def wants_totals(options: ScanOptions, chosen: str) -> bool:
    """Return True if a direct scan shows its totals or writes them, with rows in the format `chosen`."""
    return options.totals is not None or (not options.quiet and (chosen == "table" or sys.stderr.isatty()))


class ScanTotals:
    """The totals of a scan. Its context manager closes the temporary file if the scan fails.

    Args:
        watch: The watch list of the scan.
        may_discard: True if blocks may be discarded after they have been added. Until `settle` is called, a temporary
            file holds the matches of all blocks, so that memory use does not depend on their number.
    """

    def __init__(self, watch: WatchList, *, may_discard: bool) -> None:
        self._watch = watch
        self._totals = EntryTotals(len(watch))
        self._waiting: IO[bytes] | None = None
        if may_discard:
            self._waiting = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  `settle` or `__exit__` closes it
        self._discarded: dict[bytes, int] = {}  # for each discarded block, the size of the temporary file at that time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._waiting is not None:
            self._waiting.close()

    def add(self, batch: MatchBatch) -> None:
        """Count the matches of a block. Raises OSError if the temporary file cannot be written."""
        if self._waiting is None:
            self._count(batch.block)
        else:
            block = batch.block
            self._waiting.write(_RECORD.pack(block.hash, block.time, len(block.packed)))
            self._waiting.write(block.packed)

    def discard(self, block: bytes) -> None:
        """Exclude the matches of a block that is not on the best chain. It may be added again later."""
        if self._waiting is not None:
            self._discarded[block] = self._waiting.tell()

    def settle(self) -> int:
        """Count the blocks that were not discarded. Return the number of matches in discarded blocks.

        After this, no block can be discarded. Raises OSError if the temporary file cannot be read.
        """
        if self._waiting is None:
            return 0
        discarded = 0
        with self._waiting as file:
            file.seek(0)
            while head := file.read(_RECORD.size):
                block, time, size = _RECORD.unpack(head)
                hits = BlockHits(block, None, time, file.read(size))
                if file.tell() > self._discarded.get(block, 0):
                    self._count(hits)
                else:
                    discarded += count_hits(hits.packed)
        self._waiting = None
        return discarded

    def _count(self, block: BlockHits) -> None:
        self._totals.widen(len(self._watch))
        self._totals.add(block)

    def show(self, page: Page) -> None:
        """Print the totals as a table, if there are any."""
        show_totals(page, self._rows, "--totals FILE writes all")

    def write(self, path: Path) -> None:
        """Write all totals as CSV, with the columns of totals.csv. Raises OSError."""
        write_totals(path, self._totals, self._watch)

    def _rows(self) -> Iterator[Total]:
        for entry, total in self._totals:
            name, address = entry_name(self._watch, entry)
            label = owner_of(self._watch.account(entry), self._watch.label(entry))
            yield Total(address or name, label, total.received, total.spent, total.unknown, total.matches)
