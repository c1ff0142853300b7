"""The matches of a block together: packed, and rendered as lines, sums or columns without an object for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import hit_lines, hit_sums, unpack_hits
from spvfilter.scan.merge import CSV, JSON_LINES, csv_cell, json_text
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.tables import table_of
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import pyarrow as pa

Render = Callable[[str], bytes]
Labels = dict[Render, dict[int, bytes]]  # of entries, rendered once for each way of rendering


def _labels(watch: WatchList, known: Labels, entries: list[int], render: Render) -> dict[int, bytes]:
    """The rendered labels of these entries, among others."""
    of_way = known.setdefault(render, {})
    for entry in entries:
        if entry not in of_way:
            label = watch.label(entry)
            of_way[entry] = render(label) if label else b""
    return of_way


@public
class MatchBatch:
    """The matches of one block, as the kernel has packed them, in the order of the block; its length is their number.

    | what | how |
    |---|---|
    | `block.packed` | bytes: `kernel.unpack_hits` makes hits of them, 65 bytes and more each |
    | `lines("csv")`, `lines("jsonl")` | bytes of lines, with the columns of `spvfilter scan` |
    | `sums()` | what the matches of each entry come to |
    | `to_arrow()` | columns, an Arrow table |
    | `matches()` | objects |
    """

    __slots__ = ("_labels", "_sums", "_watch", "block")

    def __init__(self, block: BlockHits, watch: WatchList, labels: Labels | None = None) -> None:
        self.block = block
        self._watch = watch
        self._labels = Labels() if labels is None else labels  # shared by the batches of a scan
        self._sums = hit_sums(block.packed)

    def __len__(self) -> int:
        return sum(matches for _, matches, *_ in self._sums)

    def __repr__(self) -> str:
        return f"<MatchBatch {len(self)} matches, block {self.block.hash[::-1].hex()}>"

    def sums(self) -> list[tuple[int, int, int, int, int]]:
        """By entry of the watch list: (entry, matches, satoshi received, satoshi spent, matches of unknown value)."""
        return list(self._sums)

    def lines(self, form: str, label: Render | None = None) -> bytes:
        r"""Lines of CSV ("csv") without a header, or JSON objects ("jsonl"), each with \n at its end.

        Labels are quoted, or JSON strings, unless `label` renders them. Raises ParameterError for another form.
        """
        if form not in ("csv", "jsonl"):
            raise ParameterError(f"lines are csv or jsonl, not {form!r}")
        number = CSV if form == "csv" else JSON_LINES
        render = label or (csv_cell if number == CSV else json_text)
        labels = _labels(self._watch, self._labels, [entry for entry, *_ in self._sums], render)
        block, network = self.block, self._watch.network
        versions = network.p2pkh_version, network.p2sh_version, network.hrp
        return hit_lines(block.packed, number, labels, block.hash, block.height, block.time, *versions)

    def to_arrow(self) -> pa.Table:
        """The matches as an Arrow table, with the columns of `spvfilter.scan.to_arrow`.

        Raises ParameterError without pyarrow.
        """
        return table_of([self.lines("csv")])

    def matches(self) -> list[Match]:
        """The matches as objects, as `Matcher.scan` yields them."""
        block = self.block
        return self._watch.matches(
            unpack_hits(block.packed), block_hash=block.hash, height=block.height, time=block.time
        )
