"""Totals of a direct `spvfilter scan`, by entry of the watch list: on the page, and in the file of `--totals`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from spvfilter.cli.term.matches import owner_of
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.kernel import count_hits
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.totals import EntryTotals, entry_name, write_totals
from spvfilter.watch.watchlist import WatchList


class ScanTotals:
    """The totals of a scan.

    Args:
        watch: The watch list of the scan.
        is_stream: True if blocks may turn out to be stale after they were counted.
    """

    def __init__(self, watch: WatchList, *, is_stream: bool) -> None:
        self._watch = watch
        self._totals = EntryTotals(len(watch))
        self._is_stream = is_stream
        self._waiting: list[BlockHits] = []  # hits in a stream, which are counted at its end

    def add(self, batch: MatchBatch) -> None:
        """Count the matches of a block."""
        if self._is_stream:
            self._waiting.append(batch.block)
        else:
            self._count(batch.block)

    def settle(self, stale: Collection[bytes]) -> int:
        """Leave out stale blocks at the end of the scan, and return how many of their matches were not counted."""
        for block in self._waiting:
            if block.hash not in stale:
                self._count(block)
        return sum(count_hits(block.packed) for block in self._waiting if block.hash in stale)

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
