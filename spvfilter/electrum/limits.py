"""ElectrumLimits: bounds for programs that connect to an Electrum server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from spvfilter._public import public
from spvfilter.errors import ParameterError


@public
@dataclass(frozen=True, slots=True)
class ElectrumLimits:
    """Bounds on the sessions, messages and subscriptions of an Electrum server. All defaults are our choice.

    One host gets at most half of `memory` and of `all_subscriptions`, and hosts take turns on the event loop.

    Raises ParameterError if a bound is not a positive number.
    """

    sessions: int = 100
    """Largest number of simultaneous connections. Any more are closed immediately."""
    subscriptions: int = 20_000
    """Largest number of script hashes that one session may subscribe to."""
    batch: int = 2_000
    """Largest number of requests in one batch. Each may have up to 25 values."""
    concurrent: int = 16
    """Largest number of a session's requests that wait for the database or for a peer at the same time."""
    all_subscriptions: int = 200_000
    """Largest total number of subscriptions across all sessions. Each takes about 300 bytes of memory."""
    request_size: int = 1_000_000
    """Largest size of a request or a batch in bytes. Nodes relay no transaction that needs more."""
    response_size: int = 10_000_000
    """Largest size of an answer in bytes."""
    memory: int = 128_000_000
    """Bytes of memory for large requests and answers across all sessions. Any more must wait.

    Each session may also hold 64 kB of requests and 64 kB of answers.
    """
    idle_timeout_s: float = 600.0
    """Seconds without a request after which a connection is closed. Wallets send a ping more often."""
    send_timeout_s: float = 20.0
    """Seconds after which a connection is closed if the other side does not read."""
    block_timeout_s: float = 20.0
    """Seconds to wait for a block from a peer before the request is answered with an error."""
    broadcast_timeout_s: float = 8.0
    """Seconds to wait for a peer's verdict on a transaction. If no peer requests it, the answer is an error."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            kind = float if each.name.endswith("_s") else int
            if isinstance(value, bool) or not isinstance(value, (int, kind)) or value <= 0:
                raise ParameterError(f"{each.name} must be a number above 0, not {value!r}")
