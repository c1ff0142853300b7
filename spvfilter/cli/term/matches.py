"""Matches as JSON lines, CSV or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.term.page import Page, printable, shorten
from spvfilter.cli.term.rows import csv_cells
from spvfilter.primitives import hash_to_hex
from spvfilter.scan.linelabels import plain_cell
from spvfilter.scan.merge import columns_of, csv_columns
from spvfilter.watch.match import Match, MatchKind

if TYPE_CHECKING:
    import csv
    import json

    from spvfilter.scan.batches import MatchBatch
else:
    csv = deferred("csv")
    json = deferred("json")

_LEAST_ADDRESS = 9  # length of a shortened address: four characters at each end still identify it
NAME_SIZE = 64  # length of the longest address (P2TR or P2WSH on regtest); scripts are shortened to it
_GREEN, _RED = "green", "red"


def bitcoin(value: int) -> str:
    """Format a value in satoshi as BTC with eight decimals."""
    whole, rest = divmod(abs(value), 100_000_000)
    return f"{'-' if value < 0 else ''}{whole}.{rest:08d}"


def row(match: Match, *, has_accounts: bool = False) -> dict[str, str | int | None]:
    """Return a match as a dict with the columns of `scan`, which include the account if `has_accounts` is True.

    Hashes are in display order, amounts in satoshi, and the time is Unix time."""
    return {
        "kind": match.kind.value,
        "block_hash": None if match.block_hash is None else hash_to_hex(match.block_hash),
        "height": match.height,
        "time": match.time,
        "txid": hash_to_hex(match.txid),
        "index": match.index,
        "outpoint_txid": hash_to_hex(match.outpoint.txid),
        "outpoint_index": match.outpoint.index,
        "value": match.value,
        "script_pubkey": None if match.script_pubkey is None else match.script_pubkey.hex(),
        "address": match.address,
        "label": match.label,
        **({"account": match.account} if has_accounts else {}),
        "coinbase": match.is_coinbase,
        "fee": match.fee,
    }


def record(match: Match) -> dict[str, str | int | None]:
    """Return a match as a dict with the keys of a JSON line of `watch`. Hashes, amounts and times are as in `row`."""
    return {
        "kind": match.kind.value,
        "block": None if match.block_hash is None else hash_to_hex(match.block_hash),
        "height": match.height,
        "txid": hash_to_hex(match.txid),
        "index": match.index,
        "outpoint": str(match.outpoint),
        "value": match.value,
        "address": match.address,
        "label": match.label,
        "time": match.time,
        "coinbase": match.is_coinbase,
        "fee": match.fee,
    }


def arrival_printer(page: Page, chosen: str, *, has_accounts: bool) -> Callable[[Match, int | None], None]:
    """Return a function that prints a match of an unconfirmed transaction in a format: table, jsonl or csv.

    Its second argument is the time of arrival (Unix time), for the `first_seen` column of jsonl and csv.
    """

    def cells(match: Match, seen: int | None) -> dict[str, str | int | None]:
        return row(match, has_accounts=has_accounts) | {"first_seen": seen}

    if chosen == "jsonl":
        return lambda match, seen: page.record(cells(match, seen))
    if chosen == "csv":
        page.cells(csv_columns((*columns_of(has_accounts=has_accounts), "first_seen")))
        return lambda match, seen: page.cells(csv_cells(cells(match, seen)).values())
    rows = table_printer(page, "-")
    return lambda match, seen: rows([match])


def printer(page: Page, chosen: str, unconfirmed: str = "mempool") -> Callable[[Match], None]:
    """Return a function that prints one match in a format: table, jsonl or csv.

    A CSV header is printed immediately, a table's header with the first row. If a match is in no block, a table shows
    `unconfirmed` in place of the height.
    """
    if chosen == "jsonl":
        return lambda match: page.record(row(match))
    if chosen == "csv":
        page.cells(csv_columns(columns_of(has_accounts=False)))
        return lambda match: page.cells(csv_cells(row(match)).values())
    rows = table_printer(page, unconfirmed)
    return lambda match: rows([match])


def table_printer(page: Page, unconfirmed: str = "mempool") -> Callable[[Iterable[Match]], None]:
    """Return a function that prints several matches as rows of a table, faster than `printer` does one by one."""
    return _Table(page, unconfirmed).rows


def batch_printer(page: Page, chosen: str, *, has_accounts: bool = False) -> Callable[[MatchBatch], None]:
    """Return a function that prints the matches of a block in a format: table, jsonl or csv.

    It prints the same as `printer`, but faster: jsonl and csv need no object for each match.
    """
    if chosen == "table":
        rows = table_printer(page)
        return lambda batch: rows(batch.matches())
    if chosen == "jsonl":
        return lambda batch: page.lines(batch.lines("jsonl").decode())
    page.cells(csv_columns(columns_of(has_accounts=has_accounts)))
    return lambda batch: page.lines(batch.lines("csv", _csv_label).decode())


def _csv_label(label: str) -> bytes:
    return printable(plain_cell(label).decode()).encode()


def printer_of_disconnected(page: Page, chosen: str, *, has_accounts: bool) -> Callable[[int, bytes], None]:
    """Return a function that prints a row of kind `disconnected`, given the height and hash of a block."""

    def show(height: int, digest: bytes) -> None:
        cells: dict[str, object] = dict.fromkeys(columns_of(has_accounts=has_accounts))
        cells |= {"kind": "disconnected", "block_hash": hash_to_hex(digest), "height": height}
        if chosen == "jsonl":
            page.record(cells)
        elif chosen == "csv":
            page.cells(csv_cells(cells).values())
        else:
            page.line(f"  {height:>7}  disconnected: block {hash_to_hex(digest)}; its rows no longer count", _RED)

    return show


class _Table:
    """A table of matches, printed row by row. Ids and addresses are shortened only if a terminal is too narrow."""

    def __init__(self, page: Page, unconfirmed: str) -> None:
        self._page = page
        self._unconfirmed = unconfirmed
        self._begun = False
        left = None if page.width is None else page.width - len(self._cells("", "", "", "", ""))
        self._who_width = None if left is None else max(12, left - 18)
        if self._who_width is not None:
            self._who_width = min(self._who_width, NAME_SIZE)
        self._id_width = 70 if left is None or self._who_width is None else max(16, min(70, left - self._who_width))

    @staticmethod
    def _cells(height: str, kind: str, value: str, txid: str, who: str) -> str:
        return f"  {height:>7}  {kind:<8}  {value:>17}  {txid}  {who}"

    def rows(self, matches: Iterable[Match]) -> None:
        if not self._begun:
            self._begun = True
            head = self._cells("height", "kind", "BTC", "txid:n".ljust(self._id_width), "address, label")
            self._page.line(head, "cyan")
        self._page.styled_lines(map(self._line, matches))

    def _line(self, match: Match) -> tuple[str, str]:
        """Return the row of a match, and its style."""
        received = match.kind is MatchKind.OUTPUT
        value = "?" if match.value is None else f"{'+' if received else '-'}{bitcoin(match.value)}"
        txid = hash_to_hex(match.txid)
        index = f":{match.index}"
        text = self._cells(
            str(match.height) if match.height is not None else self._unconfirmed if match.block_hash is None else "?",
            "received" if received else "spent",
            value,
            (shorten(txid, min(64, self._id_width - len(index))) + index).ljust(self._id_width),
            self._who(match),
        )
        return text, _GREEN if received else _RED

    def _who(self, match: Match) -> str:
        name, label = shorten(name_of(match), NAME_SIZE), printable(owner_of(match.account, match.label))
        if self._who_width is None or len(name) + len(label) + 2 <= self._who_width:
            return f"{name}  {label}".rstrip()
        left = self._who_width - len(label) - 2
        if not label:
            return shorten(name, self._who_width)
        return f"{shorten(name, left)}  {label}" if left >= _LEAST_ADDRESS else shorten(label, self._who_width)


def name_of(match: Match) -> str:
    """Return the address of a match, or its script in hex if it has no address, or `(output not seen)`."""
    if match.address is not None:
        return match.address
    return "(output not seen)" if match.script_pubkey is None else f"script {match.script_pubkey.hex()}"


def owner_of(account: str | None, label: str | None) -> str:
    """Return the account and the label of a match, as a table shows them."""
    return ": ".join(filter(None, (account, label)))
