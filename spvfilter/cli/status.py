"""The last lines of a terminal while a wallet is watched: balances, how far it is, which peer. It is told; it asks nobody."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spvfilter.cli.balances import COLUMNS, Balances
from spvfilter.cli.output import printable, rich_console, shorten

if TYPE_CHECKING:
    from rich.console import Console, Group


class Status:
    """Knows what to say, and says nothing: there is no terminal."""

    def __init__(self) -> None:
        self._phase = "connecting"
        self._peer = ""

    def progress(self, phase: str, done: int, total: int) -> None:
        """So many headers or blocks of so many."""
        share = f" ({done / total:.0%})" if total and done < total else ""
        self._phase = f"{phase}: {done:,} of {total:,}{share}"
        self.changed()

    def synced(self, height: int) -> None:
        self._phase = f"up to date, height {height:,}"
        self.changed()

    def peer(self, address: str | None, agent: str) -> None:
        self._peer = f"{address} {shorten(printable(agent), 40) if agent else ''}".rstrip() if address else "no peer"
        self.changed()

    def changed(self) -> None:
        """What is shown may have changed."""

    def clear(self) -> None:
        """Make way for a line that someone else prints on the same terminal."""

    @property
    def line(self) -> str:
        return f"{self._phase}{' · ' if self._peer else ''}{self._peer}"


class LineStatus(Status):
    """One line on standard error that overwrites itself."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = 0

    def changed(self) -> None:
        print("\r" + self.line.ljust(self._shown), end="", file=sys.stderr, flush=True)
        self._shown = len(self.line)

    def clear(self) -> None:
        if self._shown:
            print("\r" + " " * self._shown + "\r", end="", file=sys.stderr, flush=True)
            self._shown = 0


class RichStatus(Status):
    """Balances and the line below them, drawn anew four times a second by rich, which makes way for what is printed on its console."""

    def __init__(self, console: Console, balances: Balances) -> None:
        super().__init__()
        from rich.live import Live

        self._balances = balances
        self.live = Live(console=console, get_renderable=self._draw, transient=True, redirect_stdout=False, redirect_stderr=False)

    def _draw(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        below = Text(self.line, style="cyan", no_wrap=True, overflow="ellipsis")
        if not len(self._balances):
            return Group(below)
        table = Table(box=box.SIMPLE_HEAD, header_style="cyan", pad_edge=False, padding=(0, 1))
        for name, align in COLUMNS.items():
            table.add_column(Text(name), justify=align, no_wrap=True)
        rows = self._balances.rows()
        most = max(3, self.live.console.height // 2)
        for row in rows if len(rows) <= most else rows[1 - most :]:
            table.add_row(*(Text(printable(cell)) for cell in row))
        return Group(table, below)


@contextmanager
def status(console: Console | None, balances: Balances) -> Iterator[Status]:
    """What to show the state with; `console` is the terminal that matches go to, None where they go elsewhere."""
    if console is not None:
        shown = RichStatus(console, balances)
        with shown.live:
            yield shown
        return
    if not sys.stderr.isatty() or rich_console(sys.stdout) is not None:
        yield Status()
        return
    line = LineStatus()
    try:
        yield line
    finally:
        line.clear()
