"""Limits: how long to wait for a peer, and how much is asked of it at once."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter._public import public


@public
@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a peer, in seconds (Core's values unless said), and how much is asked of it at once."""

    connect_s: float = 5.0
    proxy_s: float = 20.0  # for a proxy to connect (Core netbase.cpp SOCKS5_RECV_TIMEOUT)
    headers_s: float = 900.0  # for all headers a peer has, and a millisecond for each that it says it has
    reply_s: float = 120.0  # for everything else that was asked for
    stall_s: float = 2.0  # without a block while another peer could send it; doubles each time, up to max_stall_s
    max_stall_s: float = 64.0
    send_s: float = 60.0  # for a peer that does not read; ours
    retry_s: float = 1.0  # before a peer is tried again; doubles each time; ours
    max_retry_s: float = 300.0  # ours
    stale_tip_s: float = 1800.0  # without a new block: ask for headers again
    flight: int = 125  # filtered blocks asked for at once; ours
    flights: int = 8  # of these under way; ours
    filters: int = 250  # compact filters asked for at once; BIP-157: at most 1,000
    filter_flights: int = 2  # of these under way, of a peer; ours
