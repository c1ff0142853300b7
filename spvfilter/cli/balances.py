"""What a wallet holds, by address, as matches come and go. Which matches there are is not its business."""

from __future__ import annotations

from spvfilter.cli.matches import bitcoin, name_of
from spvfilter.cli.output import Align, Page, shorten
from spvfilter.watch import Match, MatchKind

_NAME_SIZE = 64  # characters
_Row = tuple[int, int, int]  # satoshi in blocks, satoshi in the mempool, matches


class Balances:
    """Matches by identity, so that confirming or withdrawing one counts it once."""

    def __init__(self) -> None:
        self._matches: dict[tuple[MatchKind, bytes, int], Match] = {}

    def put(self, match: Match) -> None:
        self._matches[match.kind, match.txid, match.index] = match

    def remove(self, match: Match) -> None:
        self._matches.pop((match.kind, match.txid, match.index), None)

    def __len__(self) -> int:
        return len(self._matches)

    def rows(self) -> list[list[str]]:
        """Address, label, balance in blocks, what the mempool adds, matches; the last row sums them up where there are several."""
        held: dict[tuple[str, str], _Row] = {}
        for match in self._matches.values():
            value = (match.value or 0) * (1 if match.kind is MatchKind.OUTPUT else -1)
            confirmed, waiting, count = held.get(key := (name_of(match), match.label or ""), (0, 0, 0))
            if match.height is None:
                waiting += value
            else:
                confirmed += value
            held[key] = (confirmed, waiting, count + 1)
        rows = [[shorten(name, _NAME_SIZE), label, *_cells(row)] for (name, label), row in held.items()]
        if len(held) > 1:
            sums = [sum(column) for column in zip(*held.values(), strict=True)]
            rows.append(["all", "", *_cells((sums[0], sums[1], sums[2]))])
        return rows

    def show(self, page: Page) -> None:
        """A table of them; nothing where there is nothing."""
        if self._matches:
            page.title("Balances, BTC")
            page.table(COLUMNS, self.rows(), shrink="address")


COLUMNS: dict[str, Align] = {"address": "left", "label": "left", "in blocks": "right", "in the mempool": "right", "matches": "right"}


def _cells(row: _Row) -> list[str]:
    return [bitcoin(row[0]), f"{'+' if row[1] > 0 else ''}{bitcoin(row[1])}" if row[1] else "", str(row[2])]
