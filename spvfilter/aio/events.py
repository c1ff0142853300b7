"""What a light client tells: matches as they are found, confirmed and withdrawn, blocks, progress, peers. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spvfilter.watch import Match

UNPROVEN = "unproven"  # a BIP-37 peer can leave transactions out, and nobody can tell
ONE_PEER = "1 peer"  # of compact filters: as true as the one peer that was there to tell their headers
PROVEN = "proven"  # of compact filters on whose headers two peers or more agree


class Phase(StrEnum):
    """What a light client is busy with."""

    HEADERS = "headers"
    FILTER_HEADERS = "filter headers"
    FILTERS = "filters"
    BLOCKS = "blocks"


class Reason(StrEnum):
    """Why a match is no longer one."""

    REORG = "reorg"  # its block left the best chain; it may come back in another
    CONFLICT = "conflict"  # a confirmed transaction spends what it, or one it stands upon, spends
    EXPIRED = "expired"  # in no block for 336 hours, Core's DEFAULT_MEMPOOL_EXPIRY_HOURS


@dataclass(frozen=True, slots=True)
class MatchFound:
    """A match seen for the first time, in a block of the best chain or, with `match.height` None, in the mempool."""

    match: Match
    completeness: str = UNPROVEN


@dataclass(frozen=True, slots=True)
class MatchConfirmed:
    """A match of the mempool is now in a block of the best chain."""

    match: Match
    completeness: str = UNPROVEN


@dataclass(frozen=True, slots=True)
class MatchWithdrawn:
    """A match found before is none any more."""

    match: Match
    reason: Reason


@dataclass(frozen=True, slots=True)
class BlockConnected:
    """A block of the best chain was searched; its matches follow."""

    height: int
    hash: bytes  # wire order


@dataclass(frozen=True, slots=True)
class BlockDisconnected:
    """A block that was searched left the best chain; its matches were withdrawn right before."""

    height: int
    hash: bytes  # wire order


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` headers or blocks; the total may grow, and `done` reaches it."""

    phase: Phase
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Synced:
    """Every block up to this one, the tip of the best chain, was searched."""

    height: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """Blocks come from another peer now, HOST:PORT; None while there is none."""

    address: str | None
    user_agent: str = ""  # what it calls itself, escaped


@dataclass(frozen=True, slots=True)
class PeerWarning:
    """A peer did what it must not; `banned` tells whether it is left for good."""

    address: str
    error: Exception
    banned: bool


Event = MatchFound | MatchConfirmed | MatchWithdrawn | BlockConnected | BlockDisconnected | Progress | Synced | PeerChanged | PeerWarning
