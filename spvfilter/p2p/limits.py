"""Limits: timeouts for peers and sizes of requests."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.protocol import MAX_GETCFILTERS, MAX_INVENTORY

# Fields that are whole numbers, and their maxima.
_SIZES = {"flight": MAX_INVENTORY, "flights": None, "filters": MAX_GETCFILTERS, "filter_flights": None}


@public
@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts for peers, in seconds, and sizes of requests. Values are Core's unless marked "our choice".

    Raises ParameterError if a time is not above 0, or if a size is outside its range.
    """

    connect_s: float = 5.0
    """Timeout in seconds to establish a TCP connection (Core DEFAULT_CONNECT_TIMEOUT)."""
    proxy_s: float = 20.0
    """Timeout in seconds to establish a connection through a proxy (Core netbase.cpp SOCKS5_RECV_TIMEOUT)."""
    first_byte_s: float = 20.0
    """Timeout in seconds for a new peer's first byte (our choice).

    ¶ `Settings.handshake_s` limits the whole handshake, including a preceding attempt with encryption.
    """
    reply_s: float = 120.0
    """Seconds that a peer may be silent with a request outstanding before it is disconnected."""
    stall_s: float = 2.0
    """Seconds that a peer may be silent with a request outstanding before another peer is asked as well."""
    send_s: float = 60.0
    """Seconds that a peer may leave our messages unread before it is disconnected (our choice)."""
    retry_s: float = 1.0
    """Seconds before a failed peer is tried again; the pause doubles with each failure (our choice)."""
    max_retry_s: float = 300.0
    """Longest pause, in seconds, before a failed peer is tried again (our choice)."""
    stale_tip_s: float = 1800.0
    """Seconds without a new block after which all peers are asked for headers again."""
    silence_s: float = 1800.0
    """Seconds without a message after which a peer no longer counts for `ClientStatus.is_synced` (our choice).

    The client pings a peer that has been quiet for 90 seconds, or for half of this time if that is shorter.
    """
    flight: int = 125
    """Number of blocks in one request for filtered blocks, 1 to 50,000 (our choice)."""
    flights: int = 8
    """Largest number of requests for filtered blocks that are outstanding at a time (our choice)."""
    filters: int = 250
    """Number of compact filters in one request, 1 to 1,000 (BIP-157)."""
    filter_flights: int = 2
    """Largest number of requests for compact filters that one peer has outstanding at a time (our choice)."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if name in _SIZES else int | float):
                raise ParameterError(f"{name} must be a {'whole ' if name in _SIZES else ''}number, not {value!r}")
            if not value > 0:
                raise ParameterError(f"{name} must be above 0, not {value!r}")
            most = _SIZES.get(name)
            if most is not None and value > most:
                raise ParameterError(f"{name} must be at most {most:,}, the limit for one request, not {value!r}")
