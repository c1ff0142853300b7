"""What the user of a running client asks for that changes what is searched for, or where. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.kernel import EntryKind
from spvfilter.light.engine.start import StartHeight
from spvfilter.light.events import Mode


class Start(NamedTuple):
    """Where a search is to begin; neither is where the client's begins."""

    from_height: int | None = None
    birthday: int | None = None
    """Seconds since 1970."""

    @property
    def height(self) -> StartHeight:
        """As a height of a chain."""
        return StartHeight(self.from_height, self.birthday)


@dataclass(frozen=True, slots=True)
class AddEntries:
    """Watch further entries. The answer is the first height that is searched for them."""

    entries: tuple[tuple[EntryKind, bytes, str | None], ...]
    """As WatchList.entries lists them."""
    start: Start
    ways: frozenset[Mode] = frozenset((Mode.COMPACT, Mode.BIP37))
    """That can find them."""


@dataclass(frozen=True, slots=True)
class RemoveEntries:
    """Watch entries no more. The answer is None."""

    entries: tuple[tuple[EntryKind, bytes], ...]


@dataclass(frozen=True, slots=True)
class RelabelEntries:
    """Give entries another label, or none. The answer is None."""

    entries: tuple[tuple[EntryKind, bytes], ...]
    label: str | None


@dataclass(frozen=True, slots=True)
class Rescan:
    """Search blocks again for all entries; without a start all blocks.

    The answer is the first height that is searched.
    """

    start: Start


Request = AddEntries | RemoveEntries | RelabelEntries | Rescan
