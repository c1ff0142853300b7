"""Slots: which of the addresses that the user named are connected where there are more of them than connections.

One party may have several addresses. So connections go to as many networks as there are, then to as many hosts; and who
has contradicted our filter headers is heard again first, in at most a quarter of them, so that nobody gets all by
contradicting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple


class Slot(NamedTuple):
    """A named address: a connection, or a candidate for one."""

    address: str
    host: str
    """That it leads to, as far as is known."""
    group: str
    """Of networks."""
    since: float
    """When the connection was begun or made, or from when on one may be begun."""


def most_contesting(most: int) -> int:
    """How many of so many connections go to peers for having contradicted us: one of two, so that the other can be
    compared with it.
    """
    return max(most // 4, min(most // 2, 1))


class Slots:
    """At most `most` connections to named addresses.

    `contesting` gives those that contradict us, the most important first.
    """

    def __init__(self, most: int, contesting: Callable[[], Sequence[str]]) -> None:
        self.most = most
        self.contesting = contesting
        self._there: Sequence[Slot] = ()
        self.free: Sequence[Slot] = ()
        self.is_stale: bool = True
        self._groups: Counter[str] = Counter()
        self._hosts: Counter[str] = Counter()

    def turned_over(self) -> None:
        """Somebody has come or gone."""
        self.is_stale = True

    def set(self, there: Sequence[Slot], free: Sequence[Slot]) -> None:
        """What is connected or connecting, and what is not."""
        self._there, self.free, self.is_stale = there, free, False
        self._groups = Counter(each.group for each in there)
        self._hosts = Counter(each.host for each in there)

    @property
    def is_full(self) -> bool:
        """Whether as many are there as may be, and none beyond."""
        return len(self._there) == self.most

    def choose(self, candidates: Sequence[Slot]) -> Slot | None:
        """The candidate to connect next, if there is one that gets a slot."""
        wanted = self._wanted()

        def rank(candidate: Slot) -> tuple[int, bool, bool, float]:
            place = wanted.index(candidate.address) if candidate.address in wanted else len(wanted)
            return place, candidate.group in self._groups, candidate.host in self._hosts, candidate.since

        return min(self.taking(candidates), key=rank, default=None)

    def taking(self, candidates: Sequence[Slot]) -> list[Slot]:
        """The candidates for which there is a slot, or that are worth more than one that is there; one at a time is
        beyond the limit.

        Worth more is who contradicts us, and who is of a network or a host that lacks while another has several.
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
        """Who contradicts us and should be connected for that, the most important first."""
        contesting = self.contesting()
        return (
            wanted_of(contesting, {each.address for each in self._there}, self.most, makes_room=self.is_full)
            if contesting
            else ()
        )

    def _kept(self) -> Sequence[str]:
        """Who contradicts us and gives no place up."""
        return self.contesting()[: most_contesting(self.most)]

    def _spare(self) -> list[Slot]:
        kept = self._kept()
        return [each for each in self._there if each.address not in kept]

    def given_up(self, useful: Collection[str]) -> Slot:
        """The connection to end, where one is beyond the limit.

        That is one that is not of use (yet), else of a host with several, else of a network with several, else of all
        the latest. One that is beyond for contradicting us takes the place of another that does, if more of them are
        there than are to be.
        """
        rivals = self.contesting() if self._there[-1].address in self._kept() else ()

        def rank(slot: Slot) -> tuple[bool, bool, bool, bool, float]:
            is_common = self._hosts[slot.host] > 1, self._groups[slot.group] > 1
            return slot.address not in useful, *is_common, slot.address in rivals, slot.since

        return max(self._spare() or self._there, key=rank)


def wanted_of(
    contesting: Sequence[str], there: Collection[str], most: int, *, makes_room: bool = False
) -> Sequence[str]:
    """Of peers that contradict us, the most important first, those that are to be connected though they are not, of
    `most` in all.

    Together with others that contradict us and are there they are no more than that, unless one of those makes room for
    each.
    """
    number = most_contesting(most)
    lacking = [address for address in contesting[:number] if address not in there]
    return lacking if makes_room else lacking[: max(0, number - sum(address in there for address in contesting))]
