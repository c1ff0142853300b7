"""Rows as JSON lines or CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.term.page import Page, printable

if TYPE_CHECKING:
    import csv
    import json
else:
    csv = deferred("csv")
    json = deferred("json")

Fields = dict[str, str | int | bool | None]


def print_rows(
    page: Page, rows: Iterator[Fields] | Iterator[dict[str, object]], chosen: str, columns: tuple[str, ...]
) -> None:
    """Print rows as JSON lines, or as CSV with a header.

    CSV separates the items of a list by semicolons. Control characters are escaped in both formats.
    """
    if chosen == "jsonl":
        for row in rows:
            page.line(json.dumps(row, separators=(",", ":")))
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = ("; ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in row.values())
        writer.writerow([printable(cell) if isinstance(cell, str) else cell for cell in cells])
