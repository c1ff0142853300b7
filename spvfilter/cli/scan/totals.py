"""Totals of a direct `spvfilter scan`, by entry of the watch list: on the page, and in the file of `--totals`."""

from __future__ import annotations

from collections.abc import Iterator
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
        may_discard: True if blocks may be discarded after they were counted.
    """

    def __init__(self, watch: WatchList, *, may_discard: bool) -> None:
        self._watch = watch
        self._totals = EntryTotals(len(watch))
        self._may_discard = may_discard
        self._waiting: dict[bytes, list[BlockHits]] = {}  # the hits of each block that may be discarded

    def add(self, batch: MatchBatch) -> None:
        """Count the matches of a block."""
        if self._may_discard:
            self._waiting.setdefault(batch.block.hash, []).append(batch.block)
        else:
            self._count(batch.block)

    def discard(self, block: bytes) -> int:
        """Leave out the matches of a block that is not on the best chain, and return their number."""
        return sum(count_hits(hits.packed) for hits in self._waiting.pop(block, ()))

    def settle(self) -> None:
        """End the counting: from now on, no block can be discarded."""
        for blocks in self._waiting.values():
            for block in blocks:
                self._count(block)
        self._waiting.clear()

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
