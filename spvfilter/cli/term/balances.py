"""The balance of each address of a wallet, updated with each match that is found, confirmed or withdrawn."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter.cli.term.matches import bitcoin, name_of
from spvfilter.cli.term.page import Align, Page, shorten
from spvfilter.watch.match import Match, MatchKind

_NAME_SIZE = 64  # characters; longer names are shortened


@dataclass(slots=True)
class _Sum:
    """Sums over the matches of one address."""

    confirmed: int = 0
    """Value of confirmed outputs minus confirmed spends, in satoshi."""
    pending: int = 0
    """Value of unconfirmed outputs minus unconfirmed spends, in satoshi."""
    unknown: int = 0
    """Number of spends whose value is unknown, because the spent output was never seen."""
    matches: int = 0
    """Number of matches in the sum."""

    def add(self, match: Match, times: int) -> None:
        value = times * (match.value or 0) * (1 if match.kind is MatchKind.OUTPUT else -1)
        if match.height is None:
            self.pending += value
        else:
            self.confirmed += value
        self.unknown += times if match.value is None else 0
        self.matches += times

    def cells(self) -> list[str]:
        unknown = f" - {self.unknown} unknown" if self.unknown else ""
        pending = f"{'+' if self.pending > 0 else ''}{bitcoin(self.pending)}" if self.pending else ""
        return [bitcoin(self.confirmed) + unknown, pending, str(self.matches)]


class Balances:
    """Sums of matches by address. A match counts once, whether it is unconfirmed or confirmed."""

    def __init__(self) -> None:
        self._matches: dict[tuple[MatchKind, bytes, int], Match] = {}
        self._sums: dict[tuple[str, str], _Sum] = {}
        self._all = _Sum()

    def put(self, match: Match) -> bool:
        """Count a match, replacing its earlier state. Returns False if nothing changed."""
        if self._matches.get(_identity(match)) == match:
            return False
        self.remove(match)
        self._matches[_identity(match)] = match
        self._count(match, 1)
        return True

    def remove(self, match: Match) -> bool:
        """Stop counting a match. Returns False if it was not counted."""
        known = self._matches.pop(_identity(match), None)
        if known is not None:
            self._count(known, -1)
        return known is not None

    def _count(self, match: Match, times: int) -> None:
        key = (name_of(match), match.label or "")
        of_address = self._sums.setdefault(key, _Sum())
        of_address.add(match, times)
        self._all.add(match, times)
        if not of_address.matches:
            del self._sums[key]

    def __len__(self) -> int:
        return len(self._matches)

    def table(self, most: int | None = None) -> tuple[dict[str, Align], list[list[str]]]:
        """Return the columns, and at most `most` rows: addresses, newest last, and the total of several addresses."""
        keys = list(self._sums)
        if most is not None and len(keys) + 1 > most:
            keys = keys[1 - most :]
        rows = [[shorten(name, _NAME_SIZE), label, *self._sums[name, label].cells()] for name, label in keys]
        if len(self._sums) > 1:
            rows.append([f"all {len(self._sums):,}", "", *self._all.cells()])
        columns = dict(COLUMNS)
        for name in ("pending", "label"):  # empty columns are omitted
            at = list(columns).index(name)
            if not any(row[at] for row in rows):
                del columns[name]
                rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        return columns, rows

    def show(self, page: Page) -> None:
        """Print the balances as a table, if there are any."""
        if self._matches:
            page.title("Balances, BTC")
            columns, rows = self.table()
            page.table(columns, rows, shrink="address")


COLUMNS: dict[str, Align] = {
    "address": "left",
    "label": "left",
    "confirmed": "right",
    "pending": "right",
    "matches": "right",
}


def _identity(match: Match) -> tuple[MatchKind, bytes, int]:
    """Return the fields that identify a match, whether it is confirmed or unconfirmed."""
    return match.kind, match.txid, match.index
