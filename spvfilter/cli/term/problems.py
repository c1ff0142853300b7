"""Many problems in a few lines: one for each kind of problem in each file, with an example and a count."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spvfilter.cli.term.page import complain
from spvfilter.errors import counted

_MOST = 50  # most lines on standard error, and most groups in memory (our choice)
_VARIES = re.compile(r"'[^']*'|\b[0-9a-f]{8,}\b|\d[\d,.]*")
"""The parts of a message in which two problems of the same kind differ: quoted strings, hashes and numbers."""
_PLACE = re.compile(r" at byte \d|: (?=line \d)|: ")
"""Pattern of the text after a file's name in a problem."""


class Problems:
    """Problems grouped by file and kind, in the order in which they occur.

    A problem is a string such as "FILE at byte 8: message" or "FILE: message".
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], tuple[str, int]] = {}  # the first problem, and how many there are
        self._others = 0  # number of problems beyond the groups in memory

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, text: str, file: str | None = None) -> None:
        """Add a problem. `file` is the file name at the start of `text`. By default, the name ends before the place."""
        if file is None:
            found = _PLACE.search(text)
            file = text[: found.start()] if found else ""
        key = file, _VARIES.sub("#", text[len(file) :])
        first, count = self._groups.get(key, (text, 0))
        if count or len(self._groups) < _MOST:
            self._groups[key] = first, count + 1
        else:
            self._others += 1

    def lines(self) -> Iterator[str]:
        """Yield a line for each group: its first problem, and the number of others."""
        for first, count in self._groups.values():
            yield (
                first if count == 1 else f"{first} (and {counted(count - 1, 'more problem')} of this kind in this file)"
            )
        if self._others:
            yield f"and {counted(self._others, 'more problem')} in other files"

    def complain(self) -> None:
        """Print the lines to standard error."""
        for line in self.lines():
            complain(line)
