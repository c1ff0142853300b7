"""Events of the wallet's books: matches found, confirmed and withdrawn, blocks connected and disconnected."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.watch.match import Completeness, Match


@public
class Reason(StrEnum):
    """Why a match was withdrawn."""

    REORG = "reorg"  # its block left the best chain; another block may confirm it again
    CONFLICT = "conflict"  # a confirmed transaction spends an input of it or of one of its ancestors
    REPLACED = "replaced"  # a later unconfirmed transaction spends an input of it or of one of its ancestors; a block may yet confirm it
    ABANDONED = "abandoned"  # given up by `abandon`, or a descendant of such a transaction
    EXPIRED = "expired"  # unconfirmed for 336 hours, Core's DEFAULT_MEMPOOL_EXPIRY_HOURS
    REFUSED = "refused"  # broadcast here, and refused by every peer that was given it, or a descendant of such a transaction


@public
@dataclass(frozen=True, slots=True)
class MatchFound:
    """A new match, in a block of the best chain or, if `match.height` is None, unconfirmed."""

    match: Match
    completeness: Completeness = Completeness.UNPROVEN


@public
@dataclass(frozen=True, slots=True)
class MatchConfirmed:
    """A block of the best chain now contains a match that was unconfirmed."""

    match: Match
    completeness: Completeness = Completeness.UNPROVEN


@public
@dataclass(frozen=True, slots=True)
class MatchWithdrawn:
    """A match found before no longer holds."""

    match: Match
    reason: Reason
    by: bytes | None = None  # txid of the transaction that replaced it or conflicts with it


@public
@dataclass(frozen=True, slots=True)
class BlockConnected:
    """A block of the best chain was searched; the events of its matches follow."""

    height: int
    hash: bytes  # wire order


@public
@dataclass(frozen=True, slots=True)
class BlockDisconnected:
    """A searched block left the best chain; the events just before withdrew its matches."""

    height: int
    hash: bytes  # wire order


WalletEvent = MatchFound | MatchConfirmed | MatchWithdrawn | BlockConnected | BlockDisconnected
