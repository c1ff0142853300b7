"""Matches in blocks of the best chain, by identity and by height."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from spvfilter.kernel import Hit
from spvfilter.primitives import OutPoint
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.parts import Parts, counted
from spvfilter.watch.match import Completeness


class Identity(NamedTuple):
    """Identity of a match: the input or output of a transaction."""

    spend: bool
    """True for an input, False for an output."""
    txid: bytes
    """Id of the transaction, 32 bytes in wire order."""
    n: int
    """Position of the input or output in its transaction, counted from 0."""


def identity(hit: Hit) -> Identity:
    """Return the identity of a hit's match."""
    return Identity(hit.spend, hit.txid, hit.n)


class ConfirmedMatches:
    """The confirmed matches of a wallet."""

    def __init__(self) -> None:
        self._found: dict[Identity, StoredMatch] = {}
        self._at: dict[int, list[Identity]] = {}  # height → matches
        self._one_peer: dict[int, list[Identity]] = {}  # height → matches of Completeness.ONE_PEER
        self._doubted: list[int] = []  # heap of these heights and stale ones
        self._numbers: dict[bytes, int] = {}  # txid → number of its matches
        self._spenders: dict[bytes, bytes] = {}  # outpoint of the wallet → txid of its spender

    def __contains__(self, mark: Identity) -> bool:
        return mark in self._found

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[StoredMatch]:
        """Yield the matches by ascending height."""
        for height in sorted(self._at):
            yield from self.at(height)

    def has_tx(self, txid: bytes) -> bool:
        """True if a transaction has a confirmed match."""
        return txid in self._numbers

    def spender(self, outpoint: bytes) -> bytes | None:
        """Return the txid of the confirmed transaction that spends one of the wallet's outpoints, or None."""
        return self._spenders.get(outpoint)

    def payment(self, outpoint: OutPoint) -> StoredMatch | None:
        """Return the confirmed match of an output, or None."""
        return self._found.get(Identity(False, outpoint.txid, outpoint.index))

    def at(self, height: int) -> list[StoredMatch]:
        """Return the matches in the block at a height."""
        return [self._found[mark] for mark in self._at.get(height, ())]

    def add(self, found: StoredMatch) -> None:
        """Add a new match."""
        assert found.height is not None
        mark = identity(found.hit)
        self._found[mark] = found
        self._at.setdefault(found.height, []).append(mark)
        self._numbers[mark.txid] = self._numbers.get(mark.txid, 0) + 1
        if mark.spend:
            self._spenders[found.hit.outpoint] = mark.txid
        if found.completeness == Completeness.ONE_PEER:
            if found.height not in self._one_peer:
                heappush(self._doubted, found.height)
            self._one_peer.setdefault(found.height, []).append(mark)

    def take(self, height: int) -> list[StoredMatch]:
        """Remove and return the matches in the block at a height."""
        self._one_peer.pop(height, None)
        taken = [self._found.pop(mark) for mark in self._at.pop(height, ())]
        for found in taken:
            self._numbers[found.hit.txid] -= 1
            if not self._numbers[found.hit.txid]:
                del self._numbers[found.hit.txid]
            if found.hit.spend and self._spenders.get(found.hit.outpoint) == found.hit.txid:
                del self._spenders[found.hit.outpoint]
        return taken

    def prove(self, height: int) -> list[StoredMatch]:
        """Upgrade matches in blocks up to a height from Completeness.ONE_PEER to PROVEN. Return the changed matches."""
        proven: list[Identity] = []
        while self._doubted and self._doubted[0] <= height:
            proven += self._one_peer.pop(heappop(self._doubted), ())
        for mark in proven:
            self._found[mark] = self._found[mark]._replace(completeness=Completeness.PROVEN)
        return [self._found[mark] for mark in proven]

    def change(self, hit_of: Callable[[Hit], Hit | None]) -> Parts[list[StoredMatch]]:
        """Replace the hit of every match. Matches without a new hit are removed and returned, by ascending height."""
        lost = set[Identity]()
        for (mark, found), is_stop in counted(self._found.items()):
            if is_stop:
                yield
            if (hit := hit_of(found.hit)) is None:
                lost.add(mark)
            elif hit is not found.hit:
                self._found[mark] = StoredMatch(hit, *found[1:])
        heights = {height for mark in lost if (height := self._found[mark].height) is not None}
        removed = list[StoredMatch]()
        for height in sorted(heights):
            taken = self.take(height)
            removed += (found for found in taken if identity(found.hit) in lost)
            for found in taken:
                if identity(found.hit) not in lost:
                    self.add(found)
            yield
        return removed
