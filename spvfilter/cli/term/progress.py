"""Progress of a scan, shown on standard error if that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spvfilter.cli.term.page import rich_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class ProgressDisplay:
    """Base class of progress displays. It shows nothing itself, and is used if standard error is not a terminal."""

    def update(self, done: int, total: int | None) -> None:
        """Show the progress: `done` of `total` bytes. The total may be unknown at first."""

    def clear(self) -> None:
        """Clear the display before another line is printed on the same terminal."""


class LineProgress(ProgressDisplay):
    """Progress on one line, which is overwritten at each update."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._shown = 0

    def update(self, done: int, total: int | None) -> None:
        rate = done / max(time.monotonic() - self._start, 0.001)
        text = f"{megabytes(done)}, {megabytes(rate)}/s"
        if total:
            left = f", {clock((total - done) / rate)} left" if done else ""
            text = f"{done / total:4.0%} of {megabytes(total)}, {megabytes(rate)}/s{left}"
        print("\r" + text.ljust(self._shown), end="", file=sys.stderr, flush=True)
        self._shown = len(text)

    def clear(self) -> None:
        if self._shown:
            print("\r" + " " * self._shown + "\r", end="", file=sys.stderr, flush=True)
            self._shown = 0


class RichProgress(ProgressDisplay):
    """A rich progress bar, which is redrawn below each line that is printed on its console."""

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress as Bar,
            TaskProgressColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self.bar: Progress = Bar(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self.bar.add_task("", total=None)

    def update(self, done: int, total: int | None) -> None:
        self.bar.update(self._task, completed=done, total=total)


@contextmanager
def progress(console: Console | None) -> Iterator[ProgressDisplay]:
    """Context manager: returns a progress display.

    `console` is the terminal on which the command prints lines, or None if it prints them elsewhere.
    """
    if not sys.stderr.isatty():
        yield ProgressDisplay()
        return
    console = console or rich_console(sys.stderr)
    if console is None:
        line = LineProgress()
        try:
            yield line
        finally:
            line.clear()
        return
    shown = RichProgress(console)
    with shown.bar:
        yield shown


def megabytes(size: float) -> str:
    """Format a number of bytes in MB (1,000,000 bytes) or kB (1,000 bytes)."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"


def clock(seconds: float) -> str:
    """Format a duration in seconds as M:SS, or as H:MM:SS if it is an hour or longer."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
