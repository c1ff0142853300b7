"""What a light client reports: changes of the wallet's books, progress, peers. Values only."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.wallet.events import WalletEvent


@public
class Mode(StrEnum):
    """How blocks are searched."""

    BIP37 = "bip37"
    COMPACT = "compact"
    AUTO = "auto"  # compact where a peer serves it and the watch list can be said in it, else bip37


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
    """Every block up to this one, the tip of the best chain, was searched.

    `peers` (HOST:PORT) are those on whose word that rests. Up to `proven_height` two independent peers agreed on the filter headers; -1
    if on none, as always with BIP-37. In the ranges of `disputed` (first and last height) peers differed and no block decided.
    """

    height: int
    hash: bytes
    peers: tuple[str, ...] = ()
    proven_height: int = -1
    disputed: tuple[tuple[int, int], ...] = ()


@public
@dataclass(frozen=True, slots=True)
class PeerChanged:
    """Blocks come from another peer now, HOST:PORT; None while there is none."""

    address: str | None
    user_agent: str = ""  # what it calls itself, escaped


@public
@dataclass(frozen=True, slots=True)
class PeerWarning:
    """A peer did what it must not; `banned` tells whether that is a proven lie: its address is not tried for a day."""

    address: str
    error: Exception
    banned: bool


@public
@dataclass(frozen=True, slots=True)
class FeeFloor:
    """The fee rate below which the median of `peers` peers takes no transaction (BIP-133)."""

    rate: int  # satoshi per 1,000 virtual bytes
    peers: int  # that have told


@public
@dataclass(frozen=True, slots=True)
class FeeWarning:
    """The fee of a transaction that was broadcast is below the floor: at least half of the peers that told will not pass it on."""

    txid: bytes
    rate: int  # that it pays: satoshi per 1,000 virtual bytes, rounded down
    floor: FeeFloor


Event = WalletEvent | Progress | Synced | PeerChanged | PeerWarning | FeeWarning
