"""Demands: requests to which a busy node responds by closing the connection, as Bitcoin Core does.

If a node closes the connection on a demand three times in a row, the client stops making that demand for ten minutes.
If the demand was for the mempool, the first pause is only one minute. Then the client tries again, and this time a
single closed connection is enough. `Refusals` records this for one address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

MAX_CLOSED = 3
"""Consecutive closed connections after which a node counts as refusing a demand (our choice)."""
PROMPT_S = 10.0
"""Seconds after a demand in which a lost connection counts as a refusal (our choice).

Core closes the connection when it reads a demand. A connection that ends later was lost for some other reason."""
REFUSED_S = 600.0
"""Seconds until the client tries a refused demand again (our choice)."""
MEMPOOL_REFUSED_S = 60.0
"""Seconds until the client asks for a mempool again. They double with each refusal, up to `REFUSED_S` (our choice).

The node may have closed the connection in favor of other clients."""


class Demand(Enum):
    """A request that may make a busy node close the connection. The value is an explanation for the user."""

    RELAY = "the peer closes connections that ask for transactions: its slots for them may be full"
    """Announcements of transactions, requested in version, filterload or filterclear (Core -inboundrelaypercent)."""
    BLOCKS = (
        "the peer closes the connection when asked for filtered blocks or blocks older than a week: its upload"
        " limit (-maxuploadtarget) may be nearly used up"
    )
    """Filtered blocks, and blocks older than a week (Core net_processing.cpp ProcessGetBlockData)."""
    MEMPOOL = (
        "the peer closes the connection when asked for its mempool: its upload limit (-maxuploadtarget) may be"
        " used up, or its slots may be full"
    )
    """The transactions of its mempool (BIP-35)."""


@dataclass(slots=True)
class Refusals:
    """Demands that made the node at one address close the connection. Times are monotonic seconds."""

    closed: dict[Demand, int] = field(default_factory=dict)
    """Number of consecutive connections that the node closed before it answered the demand."""
    until: dict[Demand, float] = field(default_factory=dict)
    """When the client tries the demand again."""

    def is_refused(self, demand: Demand, now: float) -> bool:
        """True if the client should not make the demand now."""
        return now < self.until.get(demand, 0.0)

    def close(self, demand: Demand, now: float) -> bool:
        """Record that the node closed the connection before it answered. Returns True if it now counts as refusing."""
        self.closed[demand] = self.closed.get(demand, 0) + 1
        if self.closed[demand] < MAX_CLOSED:
            return False
        pause = MEMPOOL_REFUSED_S * 2.0 ** min(self.closed[demand] - MAX_CLOSED, 8)
        self.until[demand] = now + (min(pause, REFUSED_S) if demand is Demand.MEMPOOL else REFUSED_S)
        return True

    def grant(self, demand: Demand) -> None:
        """Record that the node answered the demand."""
        self.closed.pop(demand, None)
        self.until.pop(demand, None)
