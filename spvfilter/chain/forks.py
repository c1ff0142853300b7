"""Forks: the branches off the best chain, kept in memory up to a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.protocol import HEADER_SIZE

MAX_FORKS = 64  # forks kept in memory (our choice)
MAX_FORK_HEADERS = 20_160  # headers of all forks in total: ten difficulty periods (our choice)


@public
@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """A branch off the best chain. Its first header follows the header of the best chain at `height`."""

    height: int
    """Height of the last header that the branch shares with the best chain."""
    headers: bytes
    """Headers of the branch, 80 bytes each, lowest first."""
    hashes: bytes
    """Block hashes of the branch's headers, 32 bytes each, in wire order."""
    work: int
    """Expected number of hashes needed to mine the chain from the genesis block to the tip of the branch."""

    def __len__(self) -> int:
        return len(self.hashes) // 32

    def hash_at(self, height: int) -> bytes:
        """Return the block hash at a height of the branch, 32 bytes in wire order."""
        at = 32 * (height - self.height - 1)
        return self.hashes[at : at + 32]

    def header_at(self, height: int) -> bytes:
        """Return the serialized header at a height of the branch, 80 bytes."""
        at = HEADER_SIZE * (height - self.height - 1)
        return self.headers[at : at + HEADER_SIZE]

    def without(self, count: int) -> Fork:
        """Return the rest of the branch after its first `count` headers, which now belong to the best chain."""
        return Fork(self.height + count, self.headers[HEADER_SIZE * count :], self.hashes[32 * count :], self.work)


class Forks:
    """The forks with the most work, in a limited amount of memory.

    A fork that is dropped for lack of room is forgotten, so a peer can send it again.
    """

    def __init__(self) -> None:
        self._forks: list[Fork] = []

    def __iter__(self) -> Iterator[Fork]:
        return iter(self._forks)

    def find(self, block_hash: bytes) -> tuple[Fork, int] | None:
        """Return the fork that contains the header with this hash, and the header's height, or None."""
        for fork in self._forks:
            at = fork.hashes.find(block_hash)
            while at >= 0:
                if not at % 32:
                    return fork, fork.height + at // 32 + 1
                at = fork.hashes.find(block_hash, at + 1)
        return None

    def add(self, fork: Fork) -> None:
        """Add a fork of at most MAX_FORK_HEADERS headers. It replaces every stored fork that it extends."""
        self._forks = [fork, *(other for other in self._forks if not fork.hashes.startswith(other.hashes))]
        while len(self._forks) > MAX_FORKS or sum(map(len, self._forks)) > MAX_FORK_HEADERS:
            self._forks.remove(min(self._forks[1:], key=lambda other: other.work))

    def reorganise(self, old: Fork, new: Fork) -> None:
        """Reattach all forks to the best chain, in which branch `new` has replaced branch `old`.

        Both branches start at the same height. Headers in `new` are removed from the forks, and `old` becomes a fork.
        """
        forks, self._forks = [*self._forks, old], []
        for fork in reversed(forks):
            above = fork.height - old.height
            if above + len(fork) > MAX_FORK_HEADERS:
                continue
            if above > 0:  # the header before this fork has also left the best chain
                headers, hashes = old.headers[: HEADER_SIZE * above], old.hashes[: 32 * above]
                fork = Fork(old.height, headers + fork.headers, hashes + fork.hashes, fork.work)
            if above >= 0:
                fork = fork.without(_shared(fork.hashes, new.hashes))
            if len(fork):
                self.add(fork)


def _shared(first: bytes, second: bytes) -> int:
    """Return the number of hashes (32 bytes each) that two branches have in common at their start."""
    count = 0
    while count < len(first) and first[count : count + 32] == second[count : count + 32]:
        count += 32
    return count // 32
