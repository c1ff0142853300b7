"""Limits on foreign unconfirmed transactions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """Limits on foreign unconfirmed transactions. The wallet's own transactions do not count toward them."""

    matches: int = 10_000
    """Largest number of matches of foreign unconfirmed transactions."""
    size: int = 5_000_000
    """Largest total size of these transactions in bytes."""
    number: int = 10_000
    """Largest number of these transactions."""
    component: int = 64
    """Largest number of foreign transactions in a component, as in a cluster of Core's mempool."""
    component_size: int = 404_000
    """Largest total size of these transactions in bytes: four of Core's largest standard transactions."""
    component_links: int = 3_000
    """Largest number of outpoints that link these transactions, counted at each end (our choice)."""
    spenders: int = 10
    """Largest number of foreign transactions that spend one outpoint."""
