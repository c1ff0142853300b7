"""Violation: an invariant that did not hold."""

from __future__ import annotations


class Violation(Exception):  # noqa: N818  # no error of the world, but what it looks for
    """An invariant that did not hold; ends the life."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(invariant, what)
        self.invariant = invariant
        self.what = what

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"
