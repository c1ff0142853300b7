"""Options of the light client's engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.light.events import Mode
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wire.transport import V2Policy


class Reach(Enum):
    """Which addresses the client connects to."""

    NAMED = "named"
    """Only addresses that the user named."""
    DIRECT = "direct"
    """Also discovered IPv4 and IPv6 addresses. The client asks DNS seeds."""
    PROXIED = "proxied"
    """Also discovered addresses, even onion addresses. DNS seeds are not asked: the proxy would not hide the query."""


@dataclass(frozen=True, slots=True)
class PeerTimeouts:
    """Timeouts for peers in seconds, and limits on requests. Values are Core's unless marked "our choice"."""

    reply_s: float = 120.0
    """How long a peer may be silent after a request before it is dropped."""
    stall_s: float = 2.0
    """How long a peer may be silent after a request before another peer that could answer is also asked."""
    answer_s: float = 30.0
    """Time allowed for an answer in several parts (our choice).

    After that, other peers are also asked, and nothing waits for this answer any longer."""
    retry_s: float = 1.0
    """Pause before a peer is tried again. It doubles with each failure, up to `max_retry_s` (our choice)."""
    max_retry_s: float = 300.0
    """Longest pause before a peer is tried again (our choice)."""
    ban_s: float = 86_400.0
    """Time for which a peer is banned after a proven lie: Core's default for bans."""
    stale_tip_s: float = 1_800.0
    """Time without a new block before all peers are asked for headers again."""
    silence_s: float = 1_800.0
    """Time without a message after which a peer no longer confirms that the client is synced (our choice)."""
    flight: int = 125
    """Number of filtered blocks in one request (our choice)."""
    flights: int = 8
    """Largest number of outstanding requests for filtered blocks (our choice)."""
    filters: int = 250
    """Number of compact filters in one request, at most 1,000 (BIP-157)."""
    filter_flights: int = 2
    """Largest number of outstanding requests for compact filters to one peer (our choice)."""
    small_block: int = 100_000
    """Largest block, in bytes, that is checked immediately, in about 0.3 ms, instead of in a thread (our choice)."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options that the user chose; see LightClient."""

    mode: Mode = Mode.AUTO
    mempool: bool = True
    keep_filters: bool = False
    fp_rate: float = DEFAULT_FP_RATE
    from_height: int | None = None
    birthday: int | None = None
    """Unix time at which to start the search."""
    max_peers: int = 8
    timeouts: PeerTimeouts = field(default_factory=PeerTimeouts)
    reach: Reach = Reach.NAMED
    is_proxied: bool = False
    """True if connections go through a proxy. Each private connection then has its own circuit."""
    pending: PendingLimits = field(default_factory=PendingLimits)
    """Limits on foreign unconfirmed transactions."""
    v2: V2Policy = V2Policy.OFF
    """When connections are encrypted (BIP-324)."""
    mempool_groups: int = 2
    """Number of network groups that must announce a foreign unconfirmed transaction before it counts."""
    spent_source: str | None = None
    """Name of the source of the outputs that blocks spend, for use in messages; None if there is none."""
    tweak_source: str | None = None
    """Name of the source of blocks' tweaks, for use in messages; None if there is none."""
