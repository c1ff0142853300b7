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
"""Columns whose text a person chose, perhaps somebody other than the reader."""
_FORMULA = ("=", "+", "-", "@")
"""First characters of a formula in a spreadsheet."""

Fields = dict[str, str | int | bool | None]


def print_rows(
    page: Page, rows: Iterator[Fields] | Iterator[dict[str, object]], chosen: str, columns: tuple[str, ...]
) -> None:
    """Print rows as JSON lines, or as CSV with a header and the cells of `csv_cells`.

    CSV separates the items of a list with semicolons. Control characters are escaped in both formats. In CSV, an
    apostrophe precedes a free text that a spreadsheet would take for a formula.
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
    """Return the cells of a row in CSV: booleans in lower case, and after each Unix time the same time as text."""
    cells: dict[str, object] = {}
    for name, cell in row.items():
        cells[name] = str(cell).lower() if isinstance(cell, bool) else cell
        if name in UTC:
            cells[UTC[name]] = utc_of(cell) if isinstance(cell, int) else None
    return cells


def _cell(column: str, text: str) -> str:
    """Return the text of a cell. Only free texts get an apostrophe: values such as -1 stay numbers."""
    return f"'{printable(text)}" if column in _FREE_TEXTS and text.startswith(_FORMULA) else printable(text)
