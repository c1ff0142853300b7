"""Proofs that a header is in the chain up to a checkpoint: branches of the merkle tree of all block hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from spvfilter.wire.merkle import branch_root, merkle_branch, merkle_node

_LEVELS = 11
"""Levels in a segment (our choice). Its 2,048 headers are hashed in about a millisecond, and only their common node is
kept.
"""
_SIZE = 1 << _LEVELS


class BlockHashes(Protocol):
    """The block hashes of a chain, such as a HeaderChain."""

    def hash_at(self, height: int) -> bytes:
        """Return the block hash at a height."""

    def hashes(self, first: int, last: int) -> Sequence[bytes]:
        """Return the block hashes from height `first` to height `last`, both inclusive."""


class HeaderProofs:
    """Makes branches from a header to the root of all headers up to a checkpoint, as in Electrum's protocol 1.4."""

    def __init__(self, chain: BlockHashes) -> None:
        self._chain = chain
        self._nodes: list[tuple[bytes, bytes]] = []
        """Last block hash and node of each whole segment, starting at the genesis block."""

    def prepare(self, checkpoint: int) -> Iterator[None]:
        """Compute the nodes of the whole segments up to a height, one at each step of the iterator."""
        for number in range((checkpoint + 1) // _SIZE):
            first, last = number * _SIZE, (number + 1) * _SIZE - 1
            if number < len(self._nodes) and self._nodes[number][0] == self._chain.hash_at(last):
                continue
            hashes = self._chain.hashes(first, last)
            del self._nodes[number:]  # a reorganization has changed them
            self._nodes.append((hashes[-1], merkle_node(hashes, _LEVELS, 0)))
            yield

    def proof(self, height: int, checkpoint: int) -> tuple[list[bytes], bytes]:
        """Return the branch of a header, deepest hash first, and the root of all headers up to the checkpoint.

        Exhaust `prepare` for the checkpoint first, in the same turn of the event loop.
        """
        segment, count = height // _SIZE, checkpoint + 1
        leaves = self._chain.hashes(segment * _SIZE, min(segment * _SIZE + _SIZE - 1, checkpoint))
        if count <= _SIZE:
            branch = merkle_branch(leaves, height)
        else:
            nodes = [node for _, node in self._nodes[: count // _SIZE]]
            if count % _SIZE:
                rest = self._chain.hashes(count // _SIZE * _SIZE, checkpoint)
                nodes.append(merkle_node(rest, _LEVELS, 0))
            branch = merkle_branch(leaves, height % _SIZE, _LEVELS) + merkle_branch(nodes, segment)
        root = branch_root(self._chain.hash_at(height), height, branch)
        return [branch[at : at + 32] for at in range(0, len(branch), 32)], root
