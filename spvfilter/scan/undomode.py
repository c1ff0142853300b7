"""UndoMode: whether and how undo files are used."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._public import public


@public
class UndoMode(StrEnum):
    """Whether block files are read together with the undo files next to them.

    An undo file contains the coins that each block spends: their scripts and values.
    """

    AUTO = "auto"
    """Undo files are used if there are any."""
    REQUIRE = "require"
    """A block without an undo record is an error."""
    OFF = "off"
    """Undo files are ignored."""
