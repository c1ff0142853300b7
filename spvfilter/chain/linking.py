"""Chain order of a set of blocks: their links, the branch with the most work, and their heights (BIP-34)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spvfilter._public import public
from spvfilter.chain.difficulty import target, work
from spvfilter.network import Network

_TOO_HIGH = 500_000_000  # lock times of this value or more are times, not heights (Core script.h LOCKTIME_THRESHOLD)
_TRIVIAL_TARGET = 1 << 250  # one hash in 64 meets it (our choice); regtest's target is 2^255 - 1


@public
class Linked(Protocol):
    """The header fields that `link` uses to put blocks in chain order."""

    @property
    def hash(self) -> bytes:
        """Block hash, 32 bytes in wire order."""
        ...

    @property
    def previous(self) -> bytes:
        """Hash of the previous block, 32 bytes in wire order."""
        ...

    @property
    def bits(self) -> int:
        """Compact bits of the block's target."""
        ...

    @property
    def time(self) -> int:
        """Time of the block's header (Unix time)."""
        ...

    @property
    def height(self) -> int | None:
        """Height of the block in its chain, or None if the height is unknown."""
        ...


@public
@dataclass(frozen=True, slots=True)
class Segment:
    """A run of consecutive blocks on a best branch."""

    blocks: list[int]
    """Indexes of the run's blocks in the sequence that was linked, lowest block first."""
    height: int | None
    """Height of the run's first block, or None if the height is unknown."""


@public
@dataclass(frozen=True, slots=True)
class Order:
    """The result of `link`: blocks in chain order. Each is given by its index in the sequence that was linked."""

    segments: list[Segment]
    """Runs of blocks on the best branches, oldest first. They are not linked to one another."""
    stale: list[int]
    """Indexes of the blocks that are not on a best branch."""
    unproven: list[int] = field(default_factory=list)
    """Indexes of blocks whose hash misses its target, although other blocks of the same tree meet theirs."""


@public
def is_proven(block: Linked) -> bool:
    """Return True if a block's hash meets the target of its own bits, or if that target is trivial, as on regtest."""
    limit = target(block.bits)
    return limit >= _TRIVIAL_TARGET or int.from_bytes(block.hash, "little") <= limit


@public
def link(blocks: Sequence[Linked], network: Network) -> Order:
    """Put distinct blocks in chain order by their previous hashes. The result does not depend on the order of `blocks`.

    Blocks with the same previous hash compete, even if that block is absent. The best branch has the most work. If two
    branches have equal work, the longer branch is better, and then the branch whose tip has the smaller hash.

    A header that misses its own target, perhaps because it is damaged, counts as no work. If no header of a tree meets
    its target, each header counts for the work that it claims. Heights come from the network's genesis block, or from
    a block that contains its height.
    """
    index = {block.hash: number for number, block in enumerate(blocks)}
    children: dict[bytes, list[int]] = {}
    for number, block in enumerate(blocks):
        children.setdefault(block.previous, []).append(number)
    total = [(0, 0)] * len(blocks)  # work and number of blocks of the branch up to each block
    work_of = {bits: work(bits) for bits in {block.bits for block in blocks}}
    segments: list[Segment] = []
    stale: list[int] = []
    damaged: list[int] = []
    for root, first in children.items():
        if root in index:
            continue
        members = list(first)
        for number in members:  # the list grows during the iteration
            members.extend(children.get(blocks[number].hash, ()))
        unproven = {number for number in members if not is_proven(blocks[number])}
        if len(unproven) == len(members):
            unproven.clear()  # no header meets its target: each one counts for the work that it claims
        damaged.extend(sorted(unproven))
        for number in members:
            done, length = total[index[blocks[number].previous]] if blocks[number].previous in index else (0, 0)
            total[number] = done + (0 if number in unproven else work_of[blocks[number].bits]), length + 1
        at: int | None = max(members, key=lambda number: (*total[number], -int.from_bytes(blocks[number].hash, "big")))
        best = []
        while at is not None:
            best.append(at)
            at = index.get(blocks[at].previous)
        best.reverse()
        on_best = set(best)
        stale.extend(number for number in members if number not in on_best)
        segments.append(Segment(best, _first_height(blocks, best, network)))
    segments.sort(key=lambda segment: (blocks[segment.blocks[0]].time, blocks[segment.blocks[0]].hash))
    return Order(segments, stale, damaged)


def _first_height(blocks: Sequence[Linked], chain: list[int], network: Network) -> int | None:
    """Return the height of a branch's first block, or None if it is unknown.

    It is 0 for the genesis block. Otherwise it is counted from a block that contains its height.
    """
    if blocks[chain[0]].hash == network.genesis_hash:
        return 0
    for depth, number in enumerate(chain):
        height = blocks[number].height
        if height is not None and height >= depth:
            return height - depth
    return None


@public
def coinbase_height(block: bytes, network: Network) -> int | None:
    """Return the height that a block's coinbase contains (BIP-34), or None if there is none.

    BIP-34 applies to blocks of version 2 or higher, at or above the network's activation height. Their coinbase's
    scriptSig starts with the height as Core's CScript pushes it: OP_1 to OP_16, or the shortest little-endian number.
    A number of 500,000,000 or more is not a height.

    Args:
        block: The first bytes of a serialized block; 200 suffice.
        network: The network whose activation height applies.
    """
    if len(block) < 90 or int.from_bytes(block[:4], "little", signed=True) < 2:
        return None
    # the first input, after the header, the transaction count and the version of the coinbase transaction
    at = 80 + {0xFD: 3, 0xFE: 5, 0xFF: 9}.get(block[80], 1) + 4
    if block[at : at + 2] == b"\x00\x01":  # segwit marker and flag
        at += 2
    if len(block) < at + 38 or block[at : at + 33] != b"\x01" + bytes(32):  # a coinbase has one input, with a zero txid
        return None
    script = block[at + 38 : at + 38 + min(5, block[at + 37])]
    if not script:
        return None
    opcode = script[0]
    number = script[1 : 1 + opcode]
    if 0x51 <= opcode <= 0x60:
        height = opcode - 0x50
    elif 1 <= opcode <= 4 and len(number) == opcode:
        height = int.from_bytes(number, "little", signed=True)
        if height <= 16 or len(number) != height.bit_length() // 8 + 1:
            return None
    else:
        return None
    return height if network.bip34_height <= height < _TOO_HIGH else None
