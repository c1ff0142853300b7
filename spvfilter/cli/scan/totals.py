"""Totals of a direct `spvfilter scan`, by entry of the watch list: on the page, and in the file of `--totals`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from spvfilter.cli.term.matches import owner_of
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.totals import Total, show_totals
from spvfilter.scan.batches import MatchBatch
from spvfilter.scan.totals import EntryTotals, entry_name, write_totals
from spvfilter.watch.watchlist import WatchList

_SUMS = 5  # numbers in a sum: an entry and its four sums


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
        self._by_block: dict[bytes, array[int]] = {}  # the sums of each block that may be discarded

    def add(self, batch: MatchBatch) -> None:
        """Count the matches of a block."""
        self._totals.widen(len(self._watch))
        if self._may_discard:
            sums = self._by_block.setdefault(batch.block.hash, array("Q"))
            sums.extend(chain.from_iterable(self._totals.sums_of(batch.block)))
        else:
            self._totals.add(batch.block)

    def discard(self, block: bytes) -> int:
        """Subtract the matches of a block that is not on the best chain, and return their number."""
        return sum(self._by_block.pop(block, array("Q"))[1::_SUMS])

    def settle(self) -> None:
        """End the counting: from now on, no block can be discarded."""
        for sums in self._by_block.values():
            self._totals.add_sums(zip(*(sums[at::_SUMS] for at in range(_SUMS)), strict=True))
        self._by_block.clear()

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
