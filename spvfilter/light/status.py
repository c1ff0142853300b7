"""ClientStatus: the state of a light client at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.light.events import Mode
from spvfilter.store.searched import BlockRange, join
from spvfilter.store.views import SearchedEntries


@public
@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A connected peer that has completed the handshake."""

    address: str
    """HOST:PORT of the peer."""
    user_agent: str
    """User agent that the peer states, with control characters escaped."""
    services: int
    """Service bits of the peer's version message; `wire.Service` names them."""
    height: int
    """Height of the highest block of the best chain that the peer is known to have; -1 for none."""


@public
@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The state of a `LightClient` at one moment.

    All heights and ranges of blocks belong to one commit of the database.
    """

    mode: Mode
    """Mode that the user chose."""
    way: Mode | None
    """Mode that the client uses now, `COMPACT` or `BIP37`; None while `AUTO` waits for peers."""
    tip_height: int
    """Height of the tip of the best chain."""
    tip_time: int
    """Time in the header of that tip, in seconds since 1970."""
    searched_height: int
    """Blocks up to this height were searched, apart from the `skipped` ones; -1 for none."""
    is_synced: bool
    """True if every block is searched and a connected peer confirms that there is none above the tip.

    The peer must have sent a message within `Limits.silence_s`, 30 minutes by default. The age of the tip plays no
    part.
    """
    last_heard: int | None
    """When a connected peer last sent a message, in seconds since 1970; None if no peer has sent one in this run.

    The client pings a peer that has been quiet for 90 seconds.
    """
    peers: tuple[PeerStatus, ...]
    """Connected peers."""
    proven_height: int
    """Highest height up to which two independent peers agreed on the filter headers; -1 if there is none."""
    disputed: tuple[BlockRange, ...]
    """Ranges of blocks where peers disagree about filters.

    A range stays here if the dispute ended without a decision, or if the other peer left before all its filters were
    compared.
    """
    start_height: int | None
    """Height at which the wallet's first search began, or a lower start of `rescan`; None before any search."""
    turned_away: int
    """Number of foreign unconfirmed payments that found no room, or were evicted for others, in this run."""
    searched: tuple[SearchedEntries, ...]
    """Blocks that were searched for each group of entries, in the order in which the entries were added."""

    @property
    def skipped(self) -> tuple[BlockRange, ...]:
        """Blocks up to `searched_height` that were not searched for every entry."""
        return join(each for entries in self.searched for each in entries.skipped)
