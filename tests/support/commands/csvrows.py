"""Rows of JSON lines as CSV contains them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping

UTC = {"time": "time_utc", "first_seen": "first_seen_utc"}


def csv_names(names: Iterable[str]) -> list[str]:
    """The header of CSV: the names of the columns, and after each Unix time the column with the same time as text."""
    return list(csv_row(dict.fromkeys(names)))


def csv_row(row: Mapping[str, object]) -> dict[str, str]:
    """The cells of a row."""
    cells: dict[str, str] = {}
    for name, value in row.items():
        cells[name] = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        if name in UTC:
            cells[UTC[name]] = utc(value) if isinstance(value, int) else ""
    return cells


def utc(seconds: int) -> str:
    """A Unix time as text."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
