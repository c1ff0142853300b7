"""What changes in a wallet's books: matches found, confirmed and withdrawn, blocks connected and disconnected. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spvfilter._public import public
from spvfilter.watch.match import Completeness, Match


@public
class Reason(StrEnum):
    """Why a match is no longer one."""

    REORG = "reorg"  # its block left the best chain; it may come back in another
    CONFLICT = "conflict"  # a confirmed transaction spends what it, or one it stands upon, spends
    EXPIRED = "expired"  # in no block for 336 hours, Core's DEFAULT_MEMPOOL_EXPIRY_HOURS


@public
@dataclass(frozen=True, slots=True)
class MatchFound:
    """A match seen for the first time, in a block of the best chain or, with `match.height` None, in the mempool."""

    match: Match
    completeness: Completeness = Completeness.UNPROVEN


@public
@dataclass(frozen=True, slots=True)
class MatchConfirmed:
    """A match of the mempool is now in a block of the best chain."""

    match: Match
    completeness: Completeness = Completeness.UNPROVEN


@public
@dataclass(frozen=True, slots=True)
class MatchWithdrawn:
    """A match found before is none any more."""

    match: Match
    reason: Reason


@public
@dataclass(frozen=True, slots=True)
class BlockConnected:
    """A block of the best chain was searched; its matches follow."""

    height: int
    hash: bytes  # wire order


@public
@dataclass(frozen=True, slots=True)
class BlockDisconnected:
    """A block that was searched left the best chain; its matches were withdrawn right before."""

    height: int
    hash: bytes  # wire order


WalletEvent = MatchFound | MatchConfirmed | MatchWithdrawn | BlockConnected | BlockDisconnected
