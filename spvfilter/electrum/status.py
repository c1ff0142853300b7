"""ElectrumStatus: the current state of an Electrum server."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter._public import public

METHOD = "spvfilter.status"
"""Method of the protocol that only this server has. `spvfilter electrum status` calls it."""


@public
@dataclass(frozen=True, slots=True)
class ElectrumStatus:
    """The current state of an Electrum server."""

    sessions: int
    """Number of connections."""
    subscriptions: int
    """Number of script hashes that sessions have subscribed to, counted for each session."""
    unknown: tuple[str, ...]
    """Script hashes that sessions asked for but no entry of the watch list has, oldest first. A session that asks the
    server sees only its own.
    """
    unknown_count: int
    """Total number of unknown script hashes that sessions have asked for since the server started."""
    searched_height: int
    """Height up to which the client has searched blocks."""
    tip_height: int
    """Height of the tip, as subscribers to headers know it."""
