"""Terminal output: lines, facts and tables, drawn by rich if it is installed and plain otherwise."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING, Literal, TextIO

from spvfilter._public import deferred

if TYPE_CHECKING:
    import csv
    import json

    from rich.console import Console
else:
    csv = deferred("csv")
    json = deferred("json")

_ROWS = 512  # rows of a plain table that are written in one batch (our choice)
LEAST_SHRUNK = 12  # least width of a shortened cell, in characters
Align = Literal["left", "right"]


def printable(text: str) -> str:
    """Escape every character that could move the cursor, end the line or change the writing direction."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


_hide: ContextVar[Callable[[str], str]] = ContextVar("hide", default=lambda message: message)


@contextmanager
def hiding(hide: Callable[[str], str]) -> Iterator[None]:
    """Context manager: in the `with` block, every message passes through `hide`, which removes secrets."""
    token = _hide.set(hide)
    try:
        yield
    finally:
        _hide.reset(token)


def said(message: str) -> str:
    """Return a message as it is printed: escaped, and with the program's name in front."""
    return f"spvfilter: {printable(_hide.get()(message))}"


def complain(message: str) -> None:
    """Print one line to standard error."""
    sys.stderr.write(said(message) + "\n")  # a single write, so that lines of two processes do not mix


def shorten(text: str, width: int) -> str:
    """Shorten the text to at most `width` ≥ 5 characters. The middle is omitted, since people compare the ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


def rich_console(stream: TextIO) -> Console | None:
    """Return a rich console for a terminal, or None if the stream is not a terminal or rich is not installed."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream, markup=False, highlight=False, emoji=False)


class Page:
    """Text output to a stream, with control characters escaped. `console` is rich's console if there is one."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.console: Console | None = rich_console(stream)
        self.is_terminal: bool = stream.isatty()

    @property
    def width(self) -> int | None:
        """Width of the terminal in columns. None if the stream is not a terminal: then lines may have any length."""
        if not self.is_terminal:
            return None
        if self.console is not None:
            return self.console.width
        from shutil import get_terminal_size

        return get_terminal_size().columns

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line immediately. It is never wrapped, so that a user can copy all of it."""
        if self.console is None:
            self.lines(printable(text) + "\n")  # a single write, so that a killed process leaves no partial line
        else:
            self.console.print(printable(text), style=style or None, soft_wrap=True)

    def record(self, fields: Mapping[str, object]) -> None:
        """Print an object as one line of JSON."""
        self.line(json.dumps(fields, separators=(",", ":")))

    def cells(self, cells: Iterable[object]) -> None:
        """Print a line of CSV."""
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        self.line(text.getvalue())

    def styled_lines(self, lines: Iterable[tuple[str, str]]) -> None:
        """Print lines immediately, each given as its text and its style. They are never wrapped."""
        if self.console is None:
            self.lines("".join(printable(text) + "\n" for text, _ in lines))
            return
        from rich.segment import Segment, Segments
        from rich.style import Style

        segments = [Segment(printable(text) + "\n", Style.parse(style)) for text, style in lines]
        self.console.print(Segments(segments), soft_wrap=True, end="")

    def lines(self, text: str) -> None:
        r"""Print lines immediately. Each ends with \n, and none needs escaping."""
        if self.console is not None:
            self.console.print(text, soft_wrap=True, end="")
            return
        self.stream.write(text)
        if self.stream is sys.stdout:
            self.stream.flush()

    def title(self, text: str) -> None:
        """Print a blank line and a title."""
        self.line()
        self.line(text, "bold")

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print names and their values, one per line."""
        wide = max(len(name) for name, _ in facts)
        if self.console is None:
            for name, value in facts:
                self.line(f"{name.ljust(wide)}  {value}")
            return
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in facts:
            grid.add_row(Text(name), Text(printable(value)))
        self.console.print(grid)

    def table(self, columns: Mapping[str, Align], rows: Sequence[Sequence[str]], shrink: str = "") -> None:
        """Print a table with a header. Cells of the `shrink` column are shortened if the terminal is too narrow."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if shrink and self.width is not None:
            widths = [max(map(len, column)) + 3 for column in zip(columns, *cells, strict=True)]
            number = list(columns).index(shrink)
            room = max(LEAST_SHRUNK, self.width - sum(widths) + widths[number] - 3)
            cells = [[shorten(cell, room) if at == number else cell for at, cell in enumerate(row)] for row in cells]
        if self.console is None:
            self._plain_table(columns, cells)
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, header_style="cyan", pad_edge=False, padding=(0, 1))
        for name, align in columns.items():
            table.add_column(Text(name), justify=align, overflow="fold", no_wrap=align == "right")
        for row in cells:
            table.add_row(*map(Text, row))
        self.console.print(table)

    def _plain_table(self, columns: Mapping[str, Align], cells: Sequence[Sequence[str]]) -> None:
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        self.plain_table(columns, widths, cells)

    def plain_table(self, columns: Mapping[str, Align], widths: Sequence[int], rows: Iterable[Sequence[str]]) -> None:
        """Print a table without rich, row by row. `widths` contains the minimum width of each column, in characters."""
        waiting: list[str] = []
        for row in chain([list(columns)], rows):
            padded = [
                cell.rjust(width) if align == "right" else cell.ljust(width)
                for cell, width, align in zip(map(printable, row), widths, columns.values(), strict=True)
            ]
            waiting.append(("  " + "  ".join(padded)).rstrip() + "\n")
            if len(waiting) == _ROWS:
                self.lines("".join(waiting))
                waiting = []
        self.lines("".join(waiting))
