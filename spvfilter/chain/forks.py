"""Branches beside the best chain, in bounded memory. Which chain is the best is decided elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spvfilter.protocol import HEADER_SIZE

MAX_FORKS = 64
MAX_FORK_HEADERS = 20_160  # in all forks together, ten periods


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """A branch upon the best chain's header at `height`: headers of 80 bytes each, their hashes, and the work up to its tip."""

    height: int
    headers: bytes
    hashes: bytes
    work: int

    def __len__(self) -> int:
        return len(self.hashes) // 32

    def hash_at(self, height: int) -> bytes:
        """The hash at a height above the branch's root."""
        at = 32 * (height - self.height - 1)
        return self.hashes[at : at + 32]

    def header_at(self, height: int) -> bytes:
        """The header at a height above the branch's root."""
        at = HEADER_SIZE * (height - self.height - 1)
        return self.headers[at : at + HEADER_SIZE]

    def without(self, count: int) -> Fork:
        """The same upon its own header number `count`, which has become one of the best chain."""
        return Fork(self.height + count, self.headers[HEADER_SIZE * count :], self.hashes[32 * count :], self.work)


class Forks:
    """The forks with the most work. What falls out for want of room is as good as never seen: a peer can send it again."""

    def __init__(self) -> None:
        self._forks: list[Fork] = []

    def __iter__(self) -> Iterator[Fork]:
        return iter(self._forks)

    def find(self, block_hash: bytes) -> tuple[Fork, int] | None:
        """A fork that has the header with this hash, and its height."""
        for fork in self._forks:
            at = fork.hashes.find(block_hash)
            while at >= 0:
                if not at % 32:
                    return fork, fork.height + at // 32 + 1
                at = fork.hashes.find(block_hash, at + 1)
        return None

    def add(self, fork: Fork) -> None:
        """Keep a fork of MAX_FORK_HEADERS at most, and no longer those that it prolongs."""
        self._forks = [fork, *(other for other in self._forks if not fork.hashes.startswith(other.hashes))]
        while len(self._forks) > MAX_FORKS or sum(map(len, self._forks)) > MAX_FORK_HEADERS:
            self._forks.remove(min(self._forks[1:], key=lambda other: other.work))

    def turn(self, old: Fork, new: Fork) -> None:
        """Stand upon the new branch: `old` has been cut off the best chain, `new` put in its place at the same height."""
        forks, self._forks = [*self._forks, old], []
        for fork in reversed(forks):
            above = fork.height - old.height
            if above + len(fork) > MAX_FORK_HEADERS:
                continue
            if above > 0:  # it stood upon what is now a fork itself
                headers, hashes = old.headers[: HEADER_SIZE * above], old.hashes[: 32 * above]
                fork = Fork(old.height, headers + fork.headers, hashes + fork.hashes, fork.work)
            if above >= 0:
                fork = fork.without(_shared(fork.hashes, new.hashes))
            if len(fork):
                self.add(fork)


def _shared(one: bytes, other: bytes) -> int:
    """How many hashes two branches have in common at their start."""
    count = 0
    while count < len(one) and one[count : count + 32] == other[count : count + 32]:
        count += 32
    return count // 32
