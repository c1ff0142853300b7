"""What a light client reports: changes of the wallet's books, progress, peers. Values only."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import NamedTuple

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.store.ledger import TxStatus
from spvfilter.wallet.events import WalletEvent


@public
class Mode(StrEnum):
    """How blocks are searched."""

    BIP37 = "bip37"
    COMPACT = "compact"
    AUTO = "auto"
    """Compact where a peer serves it and the watch list can be said in it, else bip37."""


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

    `peers` (HOST:PORT) are those on whose word that rests. Up to `proven_height` two independent peers agreed on the
    filter headers; -1 if on none, as always with BIP-37. In the ranges of `disputed` (first and last height) peers
    differed, and either no block decided, or the one that contradicted is gone and its filters were not compared. The
    blocks in the ranges of `skipped` were not searched for all entries of the watch list, since the search began above
    them: `rescan` does it.

    It may be told again for the same tip: after blocks were searched again, and where more heights have come to be
    disputed than it told, with growing pauses. What is disputed no more is told with the next tip, and by `status()` at
    once.
    """

    height: int
    hash: bytes
    peers: tuple[str, ...] = ()
    proven_height: int = -1
    disputed: tuple[tuple[int, int], ...] = ()
    skipped: tuple[tuple[int, int], ...] = ()


@public
@dataclass(frozen=True, slots=True)
class PeerChanged:
    """Blocks come from another peer now, HOST:PORT; None while there is none."""

    address: str | None
    user_agent: str = ""
    """What it calls itself, escaped."""


@public
@dataclass(frozen=True, slots=True)
class PeerWarning:
    """A peer did what it must not; `banned` tells whether that is a proven lie: its address is not tried for a day."""

    address: str
    error: Exception
    banned: bool

    @property
    def cause(self) -> str:
        """What went wrong, in words without the address."""
        said = str(self.error).removeprefix(f"{self.address}: ")
        if isinstance(self.error, OSError):
            # asyncio's own words repeat the address
            numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", said)}
            if len(numbers) == 1:
                return os.strerror(numbers.pop()).lower()
            said = self.error.strerror or said
        return said or ("no answer in time" if isinstance(self.error, TimeoutError) else type(self.error).__name__)


@public
@dataclass(frozen=True, slots=True)
class FeeFloor:
    """The fee rate below which the median of `peers` peers takes no transaction (BIP-133)."""

    rate: int
    """Satoshi per 1,000 virtual bytes."""
    peers: int
    """That have told."""


@public
@dataclass(frozen=True, slots=True)
class FeeWarning:
    """The fee of a transaction that was broadcast is below the floor: at least half of the peers that told will not
    pass it on.
    """

    txid: bytes
    rate: int
    """That it pays: satoshi per 1,000 virtual bytes, rounded down."""
    floor: FeeFloor


@public
class BroadcastStep(StrEnum):
    """What a peer did with a transaction that was broadcast here."""

    SENT = "sent"
    """It fetched it from us; whether it keeps it is not known yet."""
    ECHOED = "echoed"
    """It has it, and did not get it from us: the network passes it on."""
    REFUSED = "refused"
    """It says so (BIP-61), or does not have it 40 s after it was sent it."""


@public
@dataclass(frozen=True, slots=True)
class BroadcastProgress:
    """A peer was given a transaction of ours, has it from others, or refuses it; told once for each peer and step in a
    run.

    After a reorganisation peers are offered it again: that they have it from others is then told again.
    """

    txid: bytes
    peer: str
    """HOST:PORT."""
    step: BroadcastStep
    reason: str = ""
    """Of a refusal: the peer's words, escaped."""


@public
@dataclass(frozen=True, slots=True)
class BroadcastChanged:
    """What became of a transaction that was broadcast here.

    After PENDING and REPLACED it may change again, by a reorganisation always.
    """

    txid: bytes
    status: TxStatus
    by: bytes | None = None
    """Txid of what replaced it or conflicts with it."""


@public
class Refusal(NamedTuple):
    """Why a peer does not take a transaction."""

    peer: str
    """HOST:PORT."""
    reason: str


@public
@dataclass(frozen=True, slots=True)
class Broadcast:
    """What is known of a transaction that was broadcast here: peers, HOST:PORT, of this run.

    BroadcastProgress tells what follows.
    """

    txid: bytes
    sent: tuple[str, ...] = ()
    """Peers that fetched it from us."""
    echoed: tuple[str, ...] = ()
    """Peers that have it, and did not get it from us."""
    refused: tuple[Refusal, ...] = ()
    """Peers that do not take it; one of them proves nothing."""


Event = WalletEvent | Progress | Synced | PeerChanged | PeerWarning | FeeWarning | BroadcastProgress | BroadcastChanged
