"""How undo files are used."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._public import public


@public
class UndoMode(StrEnum):
    """Whether files of blocks are read with the undo files beside them."""

    AUTO = "auto"
    """Where there are any."""
    REQUIRE = "require"
    """A block without its record is an error."""
    OFF = "off"
