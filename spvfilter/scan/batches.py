"""The matches of one block in a single object, which can render them as lines, sums, columns or separate objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import count_hits, hit_sums, unpack_hits
from spvfilter.scan.linelabels import CSV_ACCOUNT, JSON_ACCOUNT, AccountCell, LineLabels, Render, csv_cell, json_text
from spvfilter.scan.merge import CSV, JSON_LINES, lines_of
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.tables import table_of
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import pyarrow as pa

Labels = dict[Render, LineLabels]
"""The rendered labels that the batches of a scan share, by render function."""


@public
class MatchBatch:
    """All matches in one block, in block order. Its length is the number of matches.

    `Matcher.scan_batches` yields such batches. The kernel has packed the matches, so a batch is much faster than one
    object for each match.

    | to get | use |
    |---|---|
    | packed bytes, 65 or more for each match (spvfilter.kernel.unpack_hits) | `block.packed` |
    | bytes of lines, with the columns of `spvfilter scan` | `lines("csv")`, `lines("jsonl")` |
    | sums for each entry of the watch list | `sums()` |
    | an Arrow table | `to_arrow()` |
    | objects | `matches()` |
    """

    __slots__ = ("_count", "_labels", "_watch", "block")

    def __init__(self, block: BlockHits, watch: WatchList, labels: Labels | None = None) -> None:
        self.block: BlockHits = block
        """The packed matches, and the block's hash, height and time."""
        self._watch = watch
        self._labels = Labels() if labels is None else labels
        self._count = count_hits(block.packed)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<MatchBatch {len(self)} matches, block {self.block.hash[::-1].hex()}>"

    def sums(self) -> list[tuple[int, int, int, int, int]]:
        """Add up the matches of each entry of the watch list.

        Returns:
            One tuple for each entry that has matches: the entry's number, its number of matches, the satoshi received
            and spent, and the number of matches whose value is unknown.
        """
        return hit_sums(self.block.packed)

    def lines(self, form: str, label: Render | None = None) -> bytes:
        r"""Render the matches as lines of CSV without a header, or as JSON objects. Each line ends with \n.

        Args:
            form: "csv" or "jsonl".
            label: Function that renders a label. By default, a label becomes a quoted CSV cell or a JSON string.

        Raises:
            ParameterError: The form is neither "csv" nor "jsonl".
        """
        if form not in ("csv", "jsonl"):
            raise ParameterError(f"lines must be csv or jsonl, not {form!r}")
        if form == "csv":
            return self._lines(CSV, label or csv_cell, CSV_ACCOUNT)
        return self._lines(JSON_LINES, label or json_text, JSON_ACCOUNT)

    def _lines(self, number: int, render: Render, account: AccountCell) -> bytes:
        if render not in self._labels:
            self._labels[render] = LineLabels(self._watch, render, account)
        return lines_of(self.block, self._watch.network, number, self._labels[render].of_hits((self.block,)))

    def to_arrow(self) -> pa.Table:
        """Return the matches as an Arrow table with the columns of `spvfilter.scan.to_arrow`.

        Raises ParameterError if pyarrow is not installed.
        """
        return table_of([self.block], self._watch)

    def matches(self) -> list[Match]:
        """Return the matches as objects, as `Matcher.scan` yields them."""
        block = self.block
        return self._watch.matches(
            unpack_hits(block.packed), block_hash=block.hash, height=block.height, time=block.time
        )
