"""Totals of a scan as a table: the largest on a terminal, all of them in a file or pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from typing import NamedTuple, TypeVar

from spvfilter.cli.term.matches import NAME_SIZE, bitcoin
from spvfilter.cli.term.page import Align, Page, printable, shorten

T = TypeVar("T")
_MOST = 50  # most rows on a terminal (our choice)
_SPENT = 3  # index of the column
_COLUMNS: dict[str, Align] = {
    "address": "left",
    "label": "left",
    "received": "right",
    "spent": "right",
    "matches": "right",
}


class Total(NamedTuple):
    """The sums of the matches of one watched entry."""

    name: str
    """Address of the entry, or the entry as a line of a watch list."""
    label: str
    """Label of the entry; empty if it has none."""
    received: int = 0
    """Total value of the outputs that pay the entry, in satoshi."""
    spent: int = 0
    """Total value of the spends of these outputs, in satoshi, as far as it is known."""
    unknown: int = 0
    """Number of the entry's matches whose value is unknown."""
    matches: int = 0
    """Number of the entry's matches."""

    def cells(self) -> list[str]:
        """Return the cells of the total's row."""
        unknown = f" + {self.unknown} unknown" if self.unknown else ""
        sums = [bitcoin(self.received), bitcoin(self.spent) + unknown, str(self.matches)]
        return [shorten(self.name, NAME_SIZE), printable(self.label), *sums]


def show_totals(page: Page, totals: Callable[[], Iterable[Total]], elsewhere: str) -> None:
    """Print the totals as a table, if there are any.

    Args:
        page: The page. A terminal shows the largest totals and the number of the others.
        totals: Returns the totals. It is called once or twice.
        elsewhere: A clause that says where the other totals are, such as "--totals FILE writes all".
    """
    if not page.is_terminal:
        _show_all(page, totals)
        return
    sums = _Sums()
    largest = nlargest(_MOST, sums.of(totals()), key=lambda total: (total.received + total.spent, total.matches))
    if not largest:
        return
    rows = [total.cells() for total in largest]
    if sums.count > 1:
        rows.append(sums.all.cells())
    is_labelled = any(total.label for total in largest)
    page.title("Totals, BTC")
    page.table(_columns(is_labelled), [_without_label(row, is_labelled) for row in rows], shrink="address")
    if (more := sums.count - len(largest)) > 0:
        page.line(f"The {len(largest)} largest are shown, and {more:,} more are not: {elsewhere}")


class _Sums:
    """Counts totals, and adds them up."""

    def __init__(self) -> None:
        self.count = 0
        self._sums = [0, 0, 0, 0]

    @property
    def all(self) -> Total:
        """The sum as a total."""
        return Total("all", "", *self._sums)

    def of(self, totals: Iterable[Total]) -> Iterator[Total]:
        """Yield the totals, and count them."""
        sums = self._sums
        for total in totals:
            self.count += 1
            sums[0] += total.received
            sums[1] += total.spent
            sums[2] += total.unknown
            sums[3] += total.matches
            yield total


def _show_all(page: Page, totals: Callable[[], Iterable[Total]]) -> None:
    """Print all totals.

    They are measured first and then printed, so that memory use does not depend on their number.
    """
    sums = _Sums()
    name = label = spent = 0
    for total in sums.of(totals()):
        name = max(name, len(total.name))
        label = max(label, len(printable(total.label)))
        if total.unknown:
            spent = max(spent, len(total.cells()[_SPENT]))
    if not sums.count:
        return
    # no total is wider than the sum, except for a spend of unknown value
    widths = list(map(max, map(len, _COLUMNS), map(len, sums.all.cells()), (min(name, NAME_SIZE), label, 0, spent, 0)))

    def rows() -> Iterator[list[str]]:
        yield from (total.cells() for total in totals())
        if sums.count > 1:
            yield sums.all.cells()

    page.title("Totals, BTC")
    page.plain_table(
        _columns(label > 0),
        _without_label(widths, label > 0),
        (_without_label(row, label > 0) for row in rows()),
    )


def _columns(is_labelled: bool) -> dict[str, Align]:
    return {name: align for name, align in _COLUMNS.items() if is_labelled or name != "label"}


def _without_label(cells: list[T], is_labelled: bool) -> list[T]:
    """Return a cell for each column of `_columns`."""
    return cells if is_labelled else [cells[0], *cells[2:]]
