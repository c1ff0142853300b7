"""Matches in blocks of the best chain, by identity and by height."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.unconfirmed import Identity, identity
from spvfilter.watch.match import Completeness


class ConfirmedMatches:
    """The confirmed matches of a wallet."""

    def __init__(self) -> None:
        self._found: dict[Identity, StoredMatch] = {}
        self._at: dict[int, list[Identity]] = {}  # height → matches
        self._one_peer: dict[int, list[Identity]] = {}  # height → matches of Completeness.ONE_PEER
        self._doubted: list[int] = []  # a heap of these heights, and of some that have none any more

    def __contains__(self, mark: Identity) -> bool:
        return mark in self._found

    def __iter__(self) -> Iterator[StoredMatch]:
        """In ascending height."""
        for height in sorted(self._at):
            yield from self.at(height)

    def at(self, height: int) -> list[StoredMatch]:
        """The matches of the block at a height."""
        return [self._found[mark] for mark in self._at.get(height, ())]

    def add(self, found: StoredMatch) -> None:
        """Keep a match that is not there yet."""
        assert found.height is not None
        mark = identity(found.hit)
        self._found[mark] = found
        self._at.setdefault(found.height, []).append(mark)
        if found.completeness == Completeness.ONE_PEER:
            if found.height not in self._one_peer:
                heappush(self._doubted, found.height)
            self._one_peer.setdefault(found.height, []).append(mark)

    def take(self, height: int) -> list[StoredMatch]:
        """Remove and return the matches of the block at a height."""
        self._one_peer.pop(height, None)
        return [self._found.pop(mark) for mark in self._at.pop(height, ())]

    def prove(self, height: int) -> list[StoredMatch]:
        """Set matches in blocks up to a height from Completeness.ONE_PEER to PROVEN; those that changed."""
        proven: list[Identity] = []
        while self._doubted and self._doubted[0] <= height:
            proven += self._one_peer.pop(heappop(self._doubted), ())
        for mark in proven:
            self._found[mark] = self._found[mark]._replace(completeness=Completeness.PROVEN)
        return [self._found[mark] for mark in proven]

    def change(self, hit_of: Callable[[Hit], Hit | None]) -> list[StoredMatch]:
        """Change the hit of every match; those for which there is none are removed and returned, lowest first."""
        before = list(self)
        self._found, self._at, self._one_peer, self._doubted = {}, {}, {}, []
        lost: list[StoredMatch] = []
        for found in before:
            hit = hit_of(found.hit)
            if hit is None:
                lost.append(found)
            else:
                self.add(found._replace(hit=hit))
        return lost
