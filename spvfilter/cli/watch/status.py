"""The status of `spvfilter watch` on a terminal: balances, phase and peer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spvfilter.cli.term.balances import Balances
from spvfilter.cli.term.page import complain, printable, rich_console, said, shorten
from spvfilter.cli.term.progress import clock
from spvfilter.wire.transport import Transport

if TYPE_CHECKING:
    from rich.console import Console, Group

TICK_S = 0.2  # time between two updates of the display
_SURE_S = 2.0  # seconds that a phase must last before its remaining time is estimated
_LEAST_NAME = 12  # width of an address, in characters


class StatusDisplay:
    """Base class of status displays. It shows nothing itself, and is used if the output is not a terminal."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = "connecting"
        self._doing = ""  # the current phase
        self._begun = (0.0, 0)  # the time of its first progress, and the number done by then
        self._peer = ""

    def progress(self, phase: str, done: int, total: int) -> None:
        """Show the progress of a phase: `done` of `total` headers or blocks."""
        if phase != self._doing:
            self._doing, self._begun = phase, (self._now(), done)
        self._phase = f"{phase}: {done:,} of {total:,}"
        if done < total:
            self._phase += f" ({100 * done // total} %{self._left(done, total)})"
        else:
            self._doing = ""
        self.changed()

    def _left(self, done: int, total: int) -> str:
        since, before = self._begun
        passed = self._now() - since
        return (
            f", {clock((total - done) * passed / (done - before))} left" if passed >= _SURE_S and done > before else ""
        )

    def synced(self, height: int, *, sees_unconfirmed: bool) -> None:
        late = "" if sees_unconfirmed else " · payments appear when confirmed"
        self._phase, self._doing = f"up to date, height {height:,}{late}", ""
        self.changed()

    def peer(self, address: str | None, agent: str, transport: Transport | None) -> None:
        """Show the peer that blocks are downloaded from, and whether its connection is encrypted."""
        name = f"{address} {shorten(printable(agent), 40)}".rstrip()
        secrecy = "encrypted" if transport is Transport.V2 else "not encrypted"
        self._peer = f"peer {name}, {secrecy}" if address else "no peer"
        self.changed()

    def changed(self) -> None:
        """Handle a change in status."""

    def tick(self) -> None:
        """Update the display. It is called every TICK_S seconds."""

    def clear(self) -> None:
        """Clear the status before another line is printed on the same terminal."""

    def complain(self, message: str) -> None:
        """Print one line to standard error."""
        self.clear()
        complain(message)

    @property
    def line(self) -> str:
        return f"{self._phase}{' · ' if self._peer else ''}{self._peer}"


class LineStatus(StatusDisplay):
    """A status on one line of standard error, which is overwritten at each update."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._shown = 0

    def tick(self) -> None:
        from shutil import get_terminal_size

        line = self.line[: get_terminal_size().columns - 1]  # a wrapped line could not be overwritten
        print("\r" + line.ljust(self._shown), end="", file=sys.stderr, flush=True)
        self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            print("\r" + " " * self._shown + "\r", end="", file=sys.stderr, flush=True)
            self._shown = 0


class RichStatus(StatusDisplay):
    """Balances and a status line, drawn by rich and redrawn below each line that is printed on its console."""

    def __init__(self, console: Console, balances: Balances) -> None:
        super().__init__()
        from rich.live import Live
        from rich.spinner import Spinner

        self._balances = balances
        self._spinner = Spinner("dots", style="cyan")
        self.live: Live = Live(
            console=console,
            get_renderable=self._draw,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def tick(self) -> None:
        self.live.refresh()

    def complain(self, message: str) -> None:
        if sys.stderr.isatty():
            self.live.console.print(said(message), style="yellow", soft_wrap=True)
        else:
            complain(message)

    def _draw(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        self._spinner.text = Text(f"{self.line}", style="cyan", no_wrap=True, overflow="ellipsis")
        if not len(self._balances):
            return Group(self._spinner)
        columns, rows = self._balances.table(max(3, self.live.console.height // 2))
        table = Table(box=box.SIMPLE_HEAD, header_style="cyan", pad_edge=False, padding=(0, 1))
        for name, align in columns.items():
            table.add_column(Text(name), justify=align, no_wrap=True)
        widths = [max(map(len, column)) + 3 for column in zip(columns, *rows, strict=True)]
        room = max(_LEAST_NAME, self.live.console.width - sum(widths[1:]) - 2)
        for name, *cells in rows:
            table.add_row(Text(shorten(printable(name), room)), *(Text(printable(cell)) for cell in cells))
        return Group(table, self._spinner)


@contextmanager
def status(console: Console | None, balances: Balances) -> Iterator[StatusDisplay]:
    """Context manager: returns a status display.

    `console` is the terminal on which matches are printed, or None. Only a display on such a terminal shows the
    balances.
    """
    if console is not None:
        shown = RichStatus(console, balances)
        with shown.live:
            yield shown
        return
    if not sys.stderr.isatty() or rich_console(sys.stdout) is not None:
        yield StatusDisplay()
        return
    line = LineStatus()
    try:
        yield line
    finally:
        line.clear()
