"""Options of the light client's engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.light.events import Mode


class Reach(Enum):
    """Which addresses are connected."""

    NAMED = "named"
    """Those only that the user named."""
    DIRECT = "direct"
    """Others as well, of IPv4 and IPv6; DNS seeds are asked."""
    PROXIED = "proxied"
    """Others as well, onion addresses too; no DNS seed is asked, since the proxy would not hide it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the engine waits for peers, in seconds (Core's values unless stated), and how much it asks of a peer at
    once.
    """

    reply_s: float = 120.0
    """Silence after a question; then the peer is dropped."""
    stall_s: float = 2.0
    """Silence after a question while another peer could answer; then that one is asked too."""
    answer_s: float = 30.0
    """For an answer in parts; then others are asked too, and nothing waits for it; ours."""
    retry_s: float = 1.0
    """Before a peer is tried again; doubles with each failure, up to max_retry_s; ours."""
    max_retry_s: float = 300.0
    """Ours."""
    ban_s: float = 86_400.0
    """After a proven lie; Core's default for bans."""
    stale_tip_s: float = 1_800.0
    """Without a new block: ask for headers again."""
    flight: int = 125
    """Filtered blocks asked for at once; ours."""
    flights: int = 8
    """Of these underway; ours."""
    filters: int = 250
    """Compact filters asked for at once; BIP-157: at most 1,000."""
    filter_flights: int = 2
    """Of these underway to a peer; ours."""
    small_block: int = (
        100_000  # bytes up to which a block is checked at once, which takes some 0.3 ms, not in a thread; ours
    )


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose; see LightClient."""

    mode: Mode = Mode.AUTO
    mempool: bool = True
    keep_filters: bool = False
    fp_rate: float = DEFAULT_FP_RATE
    from_height: int | None = None
    birthday: int | None = None
    """Seconds since 1970."""
    max_peers: int = 8
    patience: Patience = field(default_factory=Patience)
    reach: Reach = Reach.NAMED
    is_proxied: bool = False
    """Whether connections go through a proxy, which gives private ones circuits of their own."""
