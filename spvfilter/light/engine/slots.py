"""Slots: which of the addresses that the user named are connected where there are more of them than connections.

One party may have several addresses. So connections go to as many networks as there are, then to as many hosts; and who has contradicted
our filter headers is heard again first, in at most a quarter of them, so that nobody gets all by contradicting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Slot(NamedTuple):
    """A named address: a connection, or a candidate for one."""

    address: str
    host: str  # that it leads to, as far as is known
    group: str  # of networks
    since: float  # when the connection was begun or made, or from when on one may be begun


def most_contesting(most: int) -> int:
    """How many of so many connections go to peers for having contradicted us: one of two, so that the other can be compared with it."""
    return max(most // 4, min(most // 2, 1))


class Slots:
    """At most `most` connections to named addresses. `contesting` are addresses that contradict us, which may change."""

    def __init__(self, most: int, contesting: Collection[str]) -> None:
        self.most = most
        self.contesting = contesting
        self._there: Sequence[Slot] = ()
        self.free: Sequence[Slot] = ()
        self.is_stale = True
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

    def choose(self, candidates: Sequence[Slot]) -> Slot | None:
        """The candidate to connect next, if there is one that gets a slot."""
        best = min(candidates, key=self._rank, default=None)
        return best if best is not None and self.takes(best) else None

    def takes(self, candidate: Slot) -> bool:
        """Whether there is a slot, or the candidate is worth more than one of those that are there; one at a time is beyond the limit.

        It is worth more if it contradicts us, or is of a network or a host that lacks while another has several.
        """
        if len(self._there) != self.most:
            return len(self._there) < self.most
        if self._is_wanted_contester(candidate):
            return True
        if candidate.group not in self._groups:
            return any(self._groups[each.group] > 1 for each in self._spare)
        return candidate.host not in self._hosts and any(self._hosts[each.host] > 1 for each in self._spare)

    def _rank(self, candidate: Slot) -> tuple[bool, bool, bool, float]:
        is_contester = self._is_wanted_contester(candidate)
        return not is_contester, candidate.group in self._groups, candidate.host in self._hosts, candidate.since

    def _is_wanted_contester(self, candidate: Slot) -> bool:
        contesters = sum(each.address in self.contesting for each in self._there)
        return candidate.address in self.contesting and contesters < most_contesting(self.most)

    @property
    def _spare(self) -> list[Slot]:
        return [each for each in self._there if each.address not in self.contesting]

    def given_up(self) -> Slot:
        """The connection to end, where one is beyond the limit: the latest of a host with several, else of a network, else of all."""
        return max(self._spare or self._there, key=lambda each: (self._hosts[each.host] > 1, self._groups[each.group] > 1, each.since))
