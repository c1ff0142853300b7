"""A change of the books that takes several steps, such as a block with thousands of payments to the wallet.

Until it ends, the engine takes no other input and commits nothing. Readers of the database therefore see the state
before the change or the state after it. If the process is killed, the next run begins with one of these states as well.
"""

from __future__ import annotations

from spvfilter.wallet.parts import Parts

AT_ONCE = 200
"""Matches and transactions of one step: five to ten milliseconds (our choice)."""
_MANY_MATCHES = 100
"""Matches that are recorded in one step (our choice)."""


class LongChange:
    """The change under way, if there is one."""

    def __init__(self) -> None:
        self._parts: Parts[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """True if a change has begun and not ended."""
        return self._parts is not None

    def begin(self, parts: Parts[None]) -> None:
        """Begin a change. The step that calls this may not touch the books any more: it ends with `advance`."""
        assert self._parts is None
        self._parts = parts

    def advance(self, *, to_end: bool = False) -> bool:
        """Make some of the change, or all that is left. Returns True if no change is under way any more."""
        made = 0
        while self._parts is not None and (to_end or made < AT_ONCE):
            if next(self._parts, self) is self:
                self._parts = None
            made += 1
        return self._parts is None


def is_long(matches: int) -> bool:
    """True if a change of this many matches should take several steps."""
    return matches > _MANY_MATCHES
