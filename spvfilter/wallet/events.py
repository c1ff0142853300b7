"""Events of the wallet's books: matches found, confirmed and withdrawn, blocks connected and disconnected.

They are numbered and kept.
"""

from __future__ import annotations

from enum import StrEnum

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.watch.match import Completeness, Match


@public
class Reason(StrEnum):
    """Why a match was withdrawn."""

    REORG = "reorg"
    """Its block left the best chain; another block may confirm it again."""
    CONFLICT = "conflict"
    """A confirmed transaction spends an input of it or of one of its ancestors."""
    REPLACED = "replaced"
    """A later unconfirmed transaction spends an input of it or of one of its ancestors; a block may yet confirm it."""
    ABANDONED = "abandoned"
    """Given up by `abandon`, or a descendant of such a transaction."""
    REMOVED = "removed"
    """The entry that it matches is no longer watched."""
    EXPIRED = "expired"
    """Unconfirmed for 336 hours, Core's DEFAULT_MEMPOOL_EXPIRY_HOURS."""
    SIZELIMIT = "sizelimit"
    """Of too many unconfirmed ones on one network's word it was among the latest; a block may have it yet."""
    REFUSED = (
        "refused"  # broadcast here, and refused by every peer that was given it, or a descendant of such a transaction
    )


@public
@dataclass(frozen=True, slots=True)
class MatchFound:
    """A new match, in a block of the best chain or, if `match.height` is None, unconfirmed."""

    match: Match
    completeness: Completeness = Completeness.UNPROVEN
    sequence: int = field(default=0, compare=False)
    """Its number in the database, from 1; 0 where it is none of its events."""


@public
@dataclass(frozen=True, slots=True)
class MatchConfirmed:
    """A block of the best chain now contains a match that was unconfirmed."""

    match: Match
    completeness: Completeness = Completeness.UNPROVEN
    sequence: int = field(default=0, compare=False)


@public
@dataclass(frozen=True, slots=True)
class MatchWithdrawn:
    """A match found before no longer holds."""

    match: Match
    reason: Reason
    by: bytes | None = None
    """Txid of the transaction that replaced it or conflicts with it."""
    sequence: int = field(default=0, compare=False)


@public
@dataclass(frozen=True, slots=True)
class BlockConnected:
    """The blocks of the best chain up to this one were searched; the events of this one's matches follow.

    At the tip there is one for each block. While the client catches up, those blocks have one that have matches, and
    the last: it stands for all since the one before.
    """

    height: int
    hash: bytes
    """Wire order."""
    sequence: int = field(default=0, compare=False)


@public
@dataclass(frozen=True, slots=True)
class BlockDisconnected:
    """A searched block left the best chain; the events just before withdrew its matches."""

    height: int
    hash: bytes
    """Wire order."""
    sequence: int = field(default=0, compare=False)


WalletEvent = MatchFound | MatchConfirmed | MatchWithdrawn | BlockConnected | BlockDisconnected
