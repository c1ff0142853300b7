"""Bounds of foreign unconfirmed transactions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """Bounds of the mempool layer. Own transactions count toward none of them."""

    matches: int = 10_000
    """Most matches of foreign unconfirmed transactions."""
    size: int = 5_000_000
    """Most bytes of these transactions."""
    number: int = 10_000
    """Most of these transactions."""
    component: int = 64
    """Most foreign transactions that are connected by spending, as a cluster of Core's mempool."""
    component_size: int = 404_000
    """Most bytes of foreign transactions in a component: four of Core's largest standard transactions."""
    spenders: int = 10
    """Most foreign transactions that spend one outpoint."""
