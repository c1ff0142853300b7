"""Tables of addresses: CSV, or the same with semicolons, tabs or bars, with the addresses in any column."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from spvfilter.address import address_to_script
from spvfilter.errors import AddressError, ParameterError, WrongNetworkError
from spvfilter.network import MAINNET
from spvfilter.watch.descriptor.descriptor import is_descriptor
from spvfilter.watch.descriptor.keys import is_extended_key
from spvfilter.watch.entry import is_kind, is_uri
from spvfilter.watch.imports.privatekeys import is_private, warning_of
from spvfilter.watch.imports.walletfile import ImportedAddress, WalletFile, name_in

_DELIMITERS = ",;\t|"
_ADDRESS = re.compile(r"(?:[^,;|\t]*\b)?(?:address(?:es)?|addr)(?:\b[^,;|\t]*)?", re.IGNORECASE)
"""Title of a column of addresses."""
_LABELS = ("label", "name", "comment", "description", "memo", "note", "notes", "message")
"""Titles of a column of labels, the most likely first."""
SAVED_LIST = "# spvfilter watch list"
"""Start of a file that `WatchList.save` wrote."""
_ONLY_TITLES = ("address", "addresses", "addr")
"""Titles of a table with a single column."""
_LONG_WORD = re.compile(r"[A-Za-z0-9]{20}")
_MOST_COLUMNS = 1_000
_MOST_LINES = 1_000
"""Largest number of lines in one row, because quoted cells may contain line breaks (our choice)."""
_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANK = re.compile(r"[ \t\r\n]*[\r\n]")
_LONGEST_ADDRESS = 90
_Row = tuple[int, list[str]]


def read_table(text: str) -> WalletFile | None:
    """Return the addresses in a table, or None if the text is a watch list or its first rows contain no address.

    Raises ParameterError if the quoting is damaged, two columns contain addresses, or a row contains none.
    """
    head = _first_line(text)
    delimiter = _delimiter(head)
    if delimiter is None or _is_watch_list(text, head):
        return None
    rows = _rows(text, delimiter)
    first = next(rows)
    has_header = not any(map(is_address, first[1]))
    titles = [cell.strip().lower() for cell in first[1]] if has_header else []
    start = next(rows, None) if has_header else first
    if start is None:
        raise ParameterError("the table has a header but no rows: export it again")
    column = _address_column(titles, start[1])
    label = _label_column(titles, start[1], column)
    found: list[ImportedAddress] = []
    secret: dict[int, None] = {}
    for number, cells in _after(start, rows):
        secret.update((at, None) for at, cell in enumerate(cells) if is_private(cell))
        if column >= len(cells) or not cells[column].strip():
            raise ParameterError(f"line {number} of the table has no address in column {column + 1}")
        found.append(ImportedAddress(cells[column].strip(), _label(cells, label, titles, delimiter), number))
    wallet = WalletFile("CSV", addresses=tuple(found))
    return wallet.with_warning(warning_of([f"{at + 1}" for at in sorted(secret)], "column")) if secret else wallet


def is_address(text: str) -> bool:
    """Return True if text is an address of any network."""
    text = text.strip()
    if not 14 <= len(text) <= _LONGEST_ADDRESS:
        return False
    try:
        address_to_script(text, MAINNET)
    except WrongNetworkError:
        return True
    except AddressError:
        return False
    return True


def _first_line(text: str) -> str:
    return next((line for line in text.split("\n", 40) if line.strip() and not line.startswith("#")), "")[:10_000]


def _is_watch_list(text: str, head: str) -> bool:
    """Return True if text is a watch list. `head` is its first line that is not a comment.

    In a watch list the label is the rest of the line. If the first label begins with a quote, the text may be a table,
    unless other lines contain entries that a table cannot contain.
    """
    if _is_entry(head) or text.startswith(SAVED_LIST):
        return True
    address, _, label = head.partition(",")
    is_quoted = label.lstrip().startswith('"')
    return is_address(address) and (not is_quoted or any(_is_entry(line.strip()) for line in text.splitlines()))


def _is_entry(line: str) -> bool:
    """Return True if a line is an entry of a watch list, but not an address."""
    return is_uri(line) or is_descriptor(line) or is_extended_key(line) or is_kind(line)


def _delimiter(head: str) -> str | None:
    """Return the delimiter, or None if no cell of the first line is an address or the title of an address column."""
    for delimiter in _DELIMITERS:
        try:
            cells = next(csv.reader([head], delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        if len(cells) <= _MOST_COLUMNS and (any(map(is_address, cells)) or _is_header(cells)):
            return delimiter
    return None


def _is_header(cells: list[str]) -> bool:
    """Return True if a row contains column titles. A long word is not a title, because it may be a mistyped address."""
    if len(cells) == 1:
        return cells[0].strip().lower() in _ONLY_TITLES
    return any(map(_is_title, cells)) and not any(_LONG_WORD.search(cell) for cell in cells)


def _is_title(cell: str) -> bool:
    """Return True if a cell is the title of a column of addresses."""
    return len(cell) <= 40 and _ADDRESS.fullmatch(cell.strip()) is not None


def _rows(text: str, delimiter: str) -> Iterator[_Row]:
    """Yield each row that is not blank or a comment, with the number of its last line.

    Raises ParameterError if the quotes of a row are damaged.
    """
    lines = _Lines(text)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if len(cells) > _MOST_COLUMNS:
                raise ParameterError(f"line {lines.number} of the table contains more than {_MOST_COLUMNS:,} columns")
            if any(cell.strip() for cell in cells) and not cells[0].startswith("#"):
                yield lines.number, cells
            lines.end_row()
    except csv.Error:
        raise ParameterError(
            f"line {lines.number} of the table: a quote is not closed, or a cell is too long: export it again"
        ) from None


class _Lines:
    """The lines of a table, with a limit on the lines of one row. Blank lines between rows are skipped together."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._row = 0  # lines of the row that is read
        self.number: int = 0
        """Number of the latest line that was read, from 1."""

    def end_row(self) -> None:
        """Begin a new row."""
        self._row = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if not self._row and (blank := _BLANK.match(self._text, self._at)) is not None:
            self.number += len(_LINE_END.findall(blank[0]))
            self._at = blank.end()
        if self._at >= len(self._text):
            raise StopIteration
        self._row += 1
        if self._row > _MOST_LINES:
            raise csv.Error("too many lines")
        end = found.end() if (found := _LINE_END.search(self._text, self._at)) else len(self._text)
        line, self._at = self._text[self._at : end], end
        self.number += 1
        return line


def _after(start: _Row, rows: Iterator[_Row]) -> Iterator[_Row]:
    yield start
    yield from rows


def _address_column(titles: list[str], cells: list[str]) -> int:
    """Return the number of the column with the addresses, from 0.

    Raises ParameterError if no column or several columns contain addresses, and no title says which one counts.
    """
    filled = [at for at, cell in enumerate(cells) if is_address(cell)]
    titled = [at for at, title in enumerate(titles) if _is_title(title)]
    both = [at for at in filled if at in titled]
    for choice in (both, filled, titled):
        if len(choice) == 1:
            return choice[0]
        if choice:
            shown = " and ".join(str(at + 1) for at in choice[:3])
            raise ParameterError(f"columns {shown} of the table contain addresses: keep only the column to watch")
    raise ParameterError("no column of the table contains addresses: expected a column titled address")


def _label(cells: list[str], column: int | None, titles: list[str], delimiter: str) -> str | None:
    """Return the label of a row. Without titles, it is the rest of the row, as in a watch list."""
    if column is None or column >= len(cells):
        return None
    return name_in(cells[column] if titles or not column else delimiter.join(cells[column:]))


def _label_column(titles: list[str], cells: list[str], column: int) -> int | None:
    """Return the number of the column with the labels, from 0, or None if there is none."""
    for name in _LABELS:
        if name in titles and titles.index(name) != column:
            return titles.index(name)
    return 1 - column if not titles and len(cells) > 1 and (column == 0 or len(cells) == 2) else None
