"""What a light client reports: changes of the wallet's books, progress, peers. Values only."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.wallet.events import WalletEvent


@public
class Phase(StrEnum):
    """What a light client is busy with."""

    HEADERS = "headers"
    FILTER_HEADERS = "filter headers"
    FILTERS = "filters"
    BLOCKS = "blocks"


@public
@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` headers or blocks; the total may grow, and `done` reaches it."""

    phase: Phase
    done: int
    total: int


@public
@dataclass(frozen=True, slots=True)
class Synced:
    """Every block up to this one, the tip of the best chain, was searched."""

    height: int
    hash: bytes


@public
@dataclass(frozen=True, slots=True)
class PeerChanged:
    """Blocks come from another peer now, HOST:PORT; None while there is none."""

    address: str | None
    user_agent: str = ""  # what it calls itself, escaped


@public
@dataclass(frozen=True, slots=True)
class PeerWarning:
    """A peer did what it must not; `banned` tells whether it is left for good."""

    address: str
    error: Exception
    banned: bool


Event = WalletEvent | Progress | Synced | PeerChanged | PeerWarning
