"""Rows as JSON lines or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.term.page import Page, printable
from spvfilter.primitives import utc_of
from spvfilter.scan.merge import UTC, csv_columns

if TYPE_CHECKING:
    import csv
    import json
else:
    csv = deferred("csv")
    json = deferred("json")

_FREE_TEXTS = frozenset(("account", "keychain", "label", "labels", "output_label"))
"""Columns whose text was chosen by a person, possibly not the reader."""
_FORMULA = ("=", "+", "-", "@")
"""Characters with which a formula in a spreadsheet starts."""

Fields = dict[str, str | int | bool | None]


def print_rows(
    page: Page, rows: Iterator[Fields] | Iterator[dict[str, object]], chosen: str, columns: tuple[str, ...]
) -> None:
    """Print rows as JSON lines, or as CSV with a header and the cells of `csv_cells`.

    CSV separates the items of a list with semicolons. Control characters are escaped in both formats. In CSV, an
    apostrophe precedes free text that a spreadsheet would take for a formula.
    """
    if chosen == "jsonl":
        for row in rows:
            page.record(row)
        return
    page.cells(csv_columns(columns))
    for row in rows:
        cells = csv_cells(row)
        cells = {name: "; ".join(map(str, cell)) if isinstance(cell, list) else cell for name, cell in cells.items()}
        page.cells(_cell(name, cell) if isinstance(cell, str) else cell for name, cell in cells.items())


def csv_cells(row: Mapping[str, object]) -> dict[str, object]:
    """Return the cells of a CSV row: booleans in lower case, and each Unix time followed by the same time as text."""
    cells: dict[str, object] = {}
    for name, cell in row.items():
        cells[name] = str(cell).lower() if isinstance(cell, bool) else cell
        if name in UTC:
            cells[UTC[name]] = utc_of(cell) if isinstance(cell, int) else None
    return cells


def _cell(column: str, text: str) -> str:
    """Return the text of a cell. Only free text gets an apostrophe, so values such as -1 stay numbers."""
    return f"'{printable(text)}" if column in _FREE_TEXTS and text.startswith(_FORMULA) else printable(text)
