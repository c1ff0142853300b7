"""Outbound slots: choose which of the user's addresses to connect to if there are more addresses than slots.

One operator may have several addresses, so connections go to as many network groups as possible, then to as many hosts.
Peers that contradicted our filter headers come first, but get at most a quarter of the slots, so that an attacker
cannot get all of them by contradicting our headers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple


class OutboundSlot(NamedTuple):
    """A named address that is connected, or a candidate."""

    address: str
    host: str
    """Host of the address, if known."""
    group: str
    """Network group of the host."""
    since: float
    """When the connection was started or made, or when one may be started."""


def most_disputing(most: int) -> int:
    """Return how many of `most` slots are reserved for peers that contradicted our filter headers.

    If there are only two slots, one of them is, so that the client can compare two peers.
    """
    return max(most // 4, min(most // 2, 1))


class OutboundSlots:
    """At most `most` connections to named addresses.

    `disputing` returns the addresses of peers that contradict us, the most important first.
    """

    def __init__(self, most: int, disputing: Callable[[], Sequence[str]]) -> None:
        self.most = most
        self.disputing = disputing
        self._there: Sequence[OutboundSlot] = ()
        self.free: Sequence[OutboundSlot] = ()
        self.is_stale: bool = True
        self._groups: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()

    def mark_stale(self) -> None:
        """Record that the set of connected peers has changed."""
        self.is_stale = True

    def set(self, there: Sequence[OutboundSlot], free: Sequence[OutboundSlot]) -> None:
        """Set the slots in use, whether connected or connecting, and the named addresses without a connection."""
        self._there, self.free, self.is_stale = there, free, False
        self._groups = Counter(each.group for each in there)
        self._hosts = Counter(each.host for each in there)

    @property
    def is_full(self) -> bool:
        """True if exactly `most` slots are in use."""
        return len(self._there) == self.most

    def choose(self, candidates: Sequence[OutboundSlot]) -> OutboundSlot | None:
        """Return the candidate to connect to next, or None if none gets a slot."""
        wanted = self._wanted()

        def rank(candidate: OutboundSlot) -> tuple[int, bool, bool, float]:
            place = wanted.index(candidate.address) if candidate.address in wanted else len(wanted)
            return place, candidate.group in self._groups, candidate.host in self._hosts, candidate.since

        return min(self.taking(candidates), key=rank, default=None)

    def taking(self, candidates: Sequence[OutboundSlot]) -> list[OutboundSlot]:
        """Return the candidates that may connect: all if a slot is free, else those worth more than a connected peer.

        A candidate is worth more than a connected peer in two cases:

        - It contradicts us.
        - Its network group or host has no connection, while another has several.

        If there is one connection beyond the limit, the list is empty.
        """
        if len(self._there) != self.most:
            return list(candidates) if len(self._there) < self.most else []
        wanted, spare = self._wanted(), self._spare()
        has_groups = any(self._groups[each.group] > 1 for each in spare)
        has_hosts = any(self._hosts[each.host] > 1 for each in spare)
        if not wanted and not has_groups:
            return []
        return [
            each
            for each in candidates
            if each.address in wanted
            or (has_groups and each.group not in self._groups)
            or (has_hosts and each.host not in self._hosts)
        ]

    def _wanted(self) -> Sequence[str]:
        """Addresses to connect to because they contradict us, the most important first."""
        disputing = self.disputing()
        return (
            wanted_of(disputing, {each.address for each in self._there}, self.most, makes_room=self.is_full)
            if disputing
            else ()
        )

    def _kept(self) -> Sequence[str]:
        """Addresses that keep their slots because they contradict us."""
        return self.disputing()[: most_disputing(self.most)]

    def _spare(self) -> list[OutboundSlot]:
        kept = self._kept()
        return [each for each in self._there if each.address not in kept]

    def excess(self, useful: Collection[str]) -> OutboundSlot:
        """Return the connection to close if there is one beyond the limit.

        A peer that is not useful yet goes first. Next is a peer whose host has several connections, then a peer whose
        network group has several, then the latest. If the newest connection has a slot because its peer contradicts us,
        another peer that contradicts us goes before the latest.
        """
        rivals = self.disputing() if self._there[-1].address in self._kept() else ()

        def rank(slot: OutboundSlot) -> tuple[bool, bool, bool, bool, float]:
            is_common = self._hosts[slot.host] > 1, self._groups[slot.group] > 1
            return slot.address not in useful, *is_common, slot.address in rivals, slot.since

        return max(self._spare() or self._there, key=rank)


def wanted_of(
    disputing: Sequence[str], there: Collection[str], most: int, *, makes_room: bool = False
) -> Sequence[str]:
    """Return the addresses to connect to because they contradict us, the most important first.

    Args:
        disputing: Addresses of peers that contradict us, the most important first.
        there: Addresses that are connected or connecting.
        most: Number of slots.
        makes_room: True if each new connection replaces another. Connected peers that contradict us then do not count
            toward the limit.
    """
    number = most_disputing(most)
    lacking = [address for address in disputing[:number] if address not in there]
    return lacking if makes_room else lacking[: max(0, number - sum(address in there for address in disputing))]
