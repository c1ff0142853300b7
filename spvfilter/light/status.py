"""ClientStatus: what a light client knows of itself at one moment."""

from __future__ import annotations

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.light.events import Mode
from spvfilter.store.searched import BlockRange, join
from spvfilter.store.views import SearchedEntries


@public
@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A connected peer that has completed the handshake."""

    address: str
    """HOST:PORT."""
    user_agent: str
    """What it calls itself, escaped."""
    services: int
    """Bits of wire.Service."""
    height: int
    """Of the highest block of the best chain that it is known to have; -1 for none."""


@public
@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The state of a LightClient.

    Heights and ranges of blocks are of one commit, the one that views of that moment show.
    """

    mode: Mode
    """As it was asked for."""
    way: Mode | None
    """How blocks are searched at present, `compact` or `bip37`; None while that depends on peers."""
    tip_height: int
    """Of the best chain."""
    searched_height: int
    """Up to which blocks have been searched, but for those that were skipped; -1 for none."""
    is_synced: bool
    """Whether Synced was told for this tip."""
    peers: tuple[PeerStatus, ...]
    proven_height: int
    """Up to which two independent peers agreed on the filter headers; -1 for none."""
    disputed: tuple[BlockRange, ...]
    """Where peers differ about compact filters: undecided, or not compared (yet)."""
    start_height: int | None
    """Where the wallet's first search began, or a lower `rescan`; None before."""
    searched: tuple[SearchedEntries, ...]
    """For which entries, in the order in which they were added, which blocks were searched."""

    @property
    def skipped(self) -> tuple[BlockRange, ...]:
        """The blocks up to `searched_height` that were not searched for all entries."""
        return join(each for entries in self.searched for each in entries.skipped)
