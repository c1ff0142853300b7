"""Quorum: how many network groups must announce a foreign unconfirmed transaction before it counts.

Two groups are required, because they are unlikely to have the same owner. If a second group cannot be expected, one is
enough.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from spvfilter.light.engine.context import Context
from spvfilter.light.engine.netgroups import host_of
from spvfilter.light.engine.options import Reach

ALONE_S = 600.0
"""Seconds with peers in a single network group after which no second group is expected (our choice)."""


class Quorum:
    """Decides how many network groups a transaction needs, depending on which peers announce transactions."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._group = ""  # the only group that announces transactions; empty if there is none, or more than one
        self._since = 0.0  # since when it is the only one (monotonic seconds)

    def look(self) -> None:
        """Record which network groups announce transactions now."""
        groups = {peer.group for peer in self._context.pool.ready() if peer.relays}
        group = next(iter(groups)) if len(groups) == 1 else ""
        if group != self._group:
            self._group, self._since = group, self._context.now.monotonic

    @property
    def trusted(self) -> frozenset[str]:
        """The network groups whose announcement is enough, because a second group cannot be expected."""
        pool, options = self._context.pool, self._context.options
        named = pool.named_groups()
        if options.reach is Reach.NAMED and len(named) == 1:
            return frozenset({*named, *(peer.group for peer in pool.ready())})
        is_late = self._context.now.monotonic >= self._since + ALONE_S
        are_onions = all(host_of(peer.address).endswith(".onion") for peer in pool) and named <= {"onion"}
        return frozenset({self._group} if self._group and (is_late or are_onions) else ())

    def needed(self, groups: Collection[str]) -> int:
        """Return how many network groups a transaction needs if these groups announced it."""
        most = self._context.options.mempool_groups
        return most if most <= 1 or self.trusted.isdisjoint(groups) else 1

    @property
    def next_at(self) -> float:
        """When one network group will be enough (monotonic seconds); infinity if no such time is known."""
        at = self._since + ALONE_S
        return at if self._group and at > self._context.now.monotonic else inf
