"""A change to the books that takes several steps, such as a block with thousands of payments to the wallet.

Until it ends, the engine accepts no other input and commits nothing, so readers of the database see the state either
before or after the change. If the process is killed, the next run also starts from one of these two states.
"""

from __future__ import annotations

from spvfilter.wallet.parts import Parts

AT_ONCE = 200
"""Number of matches and transactions to process in one step, which takes 5 to 10 milliseconds (our choice)."""
MANY_MATCHES = 100
"""Largest number of matches that are recorded in a single step (our choice)."""


class LongChange:
    """The change under way, if there is one."""

    def __init__(self) -> None:
        self._parts: Parts[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """True if a change has started and has not ended yet."""
        return self._parts is not None

    def begin(self, parts: Parts[None]) -> None:
        """Start a change. The step that calls this must not touch the books again, and ends with `advance`."""
        assert self._parts is None
        self._parts = parts

    def advance(self, *, to_end: bool = False) -> bool:
        """Carry out part of the change, or all that is left. Return True once no change is under way."""
        made = 0
        while self._parts is not None and (to_end or made < AT_ONCE):
            if next(self._parts, self) is self:
                self._parts = None
            made += 1
        return self._parts is None


def is_long(matches: int) -> bool:
    """True if a change with this many matches should take several steps."""
    return matches > MANY_MATCHES
