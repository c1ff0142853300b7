"""Limits: timeouts for a peer and sizes of requests."""

from __future__ import annotations

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.protocol import MAX_GETCFILTERS, MAX_INVENTORY

# and the most that there can be
_SIZES = {"flight": MAX_INVENTORY, "flights": None, "filters": MAX_GETCFILTERS, "filter_flights": None}


@public
@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts for a peer, in seconds, and the sizes of requests. Values are Core's unless marked as ours.

    Raises ParameterError for times that are not above 0, and for sizes that no request can have.
    """

    connect_s: float = 5.0
    proxy_s: float = 20.0
    """For a proxy to connect (Core netbase.cpp SOCKS5_RECV_TIMEOUT)."""
    first_byte_s: float = 20.0
    """For the first byte from a connected peer; ours. The whole handshake has `Settings.handshake_s`."""
    reply_s: float = 120.0
    """Of silence after a question; then the connection is ended."""
    stall_s: float = 2.0
    """Of silence after a question that another peer could answer; then that one is asked too."""
    send_s: float = 60.0
    """For a peer that does not read; ours."""
    retry_s: float = 1.0
    """Before a peer is tried again; doubles each time; ours."""
    max_retry_s: float = 300.0
    """Ours."""
    stale_tip_s: float = 1800.0
    """Without a new block: ask for headers again."""
    flight: int = 125
    """Filtered blocks per request; ours."""
    flights: int = 8
    """Such requests under way; ours."""
    filters: int = 250
    """Compact filters per request; BIP-157: at most 1,000."""
    filter_flights: int = 2
    """Such requests under way with one peer; ours."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if name in _SIZES else int | float):
                raise ParameterError(f"{name} is a {'whole ' if name in _SIZES else ''}number, not {value!r}")
            if not value > 0:
                raise ParameterError(f"{name} is above 0, not {value!r}")
            most = _SIZES.get(name)
            if most is not None and value > most:
                raise ParameterError(f"{name} is at most {most:,}, as a request can have, not {value!r}")
