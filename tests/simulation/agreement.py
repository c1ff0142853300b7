"""Agreement: which networks of hosts have stated which filter header of which block, as the client heard it."""

from __future__ import annotations

import ipaddress
from hashlib import sha256

from simulation.truth import Truth
from spvfilter.node.blocktree import TreeBlock
from spvfilter.wire.messages.filters import CFHeaders
from spvfilter.wire.messages.table import Message


def group_of(host: str) -> str:
    """The first half of an IPv4 address."""
    return ".".join(str(ipaddress.ip_address(host)).split(".")[:2])


class Agreement:
    """Filter headers that peers stated in all runs of a life. A proven block stays proven."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._stated: dict[bytes, dict[bytes, set[str]]] = {}  # block → filter header → groups
        self._proven: set[bytes] = set()  # blocks that were found proven

    def heard(self, host: str, message: Message) -> None:
        """The client was sent a message."""
        if not isinstance(message, CFHeaders):
            return
        header, group, number = message.previous, group_of(host), len(message.filter_hashes)
        blocks = self._blocks(message.stop_hash, number + 1)
        if len(blocks) > number:  # the header before the first is stated as well
            self._state(blocks[0], header, group)
        for block, filter_hash in zip(blocks[-number:], message.filter_hashes, strict=False):
            header = sha256(sha256(filter_hash + header).digest()).digest()
            self._state(block, header, group)

    def _state(self, block: bytes, header: bytes, group: str) -> None:
        self._stated.setdefault(block, {}).setdefault(header, set()).add(group)

    def _blocks(self, stop: bytes, number: int) -> list[bytes]:
        """Up to `number` blocks that end with one, lowest first."""
        found: list[bytes] = []
        block = self._truth.block(stop)
        while block is not None and len(found) < number:
            found.append(block.hash)
            block = block.previous
        return found[::-1]

    def is_proven(self, digest: bytes) -> bool:
        """Whether two groups have stated the same filter header of a block or of one above it, which commits to all
        below.
        """
        if digest not in self._proven and self._find(digest):
            self._proven.add(digest)
        return digest in self._proven

    def _find(self, digest: bytes) -> bool:
        chain = self._truth.regtest.chain
        block = self._truth.block(digest)
        if block is None:
            return False
        if chain.is_active(block) and any(self._has_two(each) for each in chain.active[block.height :]):
            return True
        return self._has_two(block) or any(self._is_above(self._truth.block(other), block) for other in self._stated)

    def _has_two(self, block: TreeBlock) -> bool:
        return any(len(groups) >= 2 for groups in self._stated.get(block.hash, {}).values())

    def _is_above(self, other: TreeBlock | None, block: TreeBlock) -> bool:
        if other is None or not self._has_two(other):
            return False
        while other is not None and other.height > block.height:
            other = other.previous
        return other is block
