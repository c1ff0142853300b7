"""Linkage of blocks at hand: which follow which, which branch has the most work, and the heights they state. Nothing is validated here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spvfilter._public import public
from spvfilter.chain.difficulty import target, work
from spvfilter.network import Network

_TRIVIAL_TARGET = 1 << 250  # a hash meets it after 64 tries; regtest's is 2^255 - 1


@public
class Linked(Protocol):
    """The parts of a header that linking needs."""

    @property
    def hash(self) -> bytes: ...
    @property
    def previous(self) -> bytes: ...
    @property
    def bits(self) -> int: ...
    @property
    def time(self) -> int: ...
    @property
    def height(self) -> int | None: ...


@public
@dataclass(frozen=True, slots=True)
class Segment:
    """Blocks that follow each other, as indexes into what was linked, lowest first; `height` of the first where known."""

    blocks: list[int]
    height: int | None


@public
@dataclass(frozen=True, slots=True)
class Order:
    """Blocks put in chain order: segments that are not linked with each other, oldest first, and the blocks off their best branch."""

    segments: list[Segment]
    stale: list[int]
    unproven: list[int] = field(default_factory=list)  # of all: headers that do not meet their bits, linked with some that do


@public
def is_proven(block: Linked) -> bool:
    """Whether the block's hash meets its own bits; also where these ask for next to no work, as on regtest."""
    limit = target(block.bits)
    return limit >= _TRIVIAL_TARGET or int.from_bytes(block.hash, "little") <= limit


@public
def link(blocks: Sequence[Linked], network: Network) -> Order:
    """Put distinct blocks in chain order by their previous hashes.

    Blocks with the same previous hash compete, whether or not that one is here. Of two branches the one with more work is kept, of
    equal ones the longer, then that whose tip has the smaller hash: the result does not depend on the order of `blocks`. A
    header whose hash does not meet its bits, damaged perhaps, has no work where others prove theirs. Heights come from the
    network's genesis block or from any block that states its own.
    """
    index = {block.hash: number for number, block in enumerate(blocks)}
    children: dict[bytes, list[int]] = {}
    for number, block in enumerate(blocks):
        children.setdefault(block.previous, []).append(number)
    total = [(0, 0)] * len(blocks)  # work and length of the branch up to each
    segments: list[Segment] = []
    stale: list[int] = []
    damaged: list[int] = []
    for root, first in children.items():
        if root in index:
            continue
        members = list(first)
        for number in members:  # grows as it is walked
            members.extend(children.get(blocks[number].hash, ()))
        unproven = {number for number in members if not is_proven(blocks[number])}
        if len(unproven) == len(members):
            unproven.clear()  # nobody proves anything: what they say is all there is
        damaged.extend(sorted(unproven))
        for number in members:
            done, length = total[index[blocks[number].previous]] if blocks[number].previous in index else (0, 0)
            total[number] = done + (0 if number in unproven else work(blocks[number].bits)), length + 1
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
    if blocks[chain[0]].hash == network.genesis_hash:
        return 0
    for depth, number in enumerate(chain):
        height = blocks[number].height
        if height is not None and height >= depth:
            return height - depth
    return None


@public
def coinbase_height(block: bytes, network: Network) -> int | None:
    """The height a block states in its coinbase, from its first bytes (200 suffice); None where the rule does not bind it.

    BIP-34: version ≥ 2 and at or above the network's activation height; the scriptSig starts with the height as Core's
    CScript pushes it: OP_1 to OP_16, or the shortest little-endian number.
    """
    if len(block) < 90 or int.from_bytes(block[:4], "little", signed=True) < 2:
        return None
    at = 80 + {0xFD: 3, 0xFE: 5, 0xFF: 9}.get(block[80], 1) + 4  # behind the count and the version
    if block[at : at + 2] == b"\x00\x01":  # segwit marker and flag
        at += 2
    if len(block) < at + 38 or block[at : at + 33] != b"\x01" + bytes(32):  # one input that spends nothing
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
    return height if height >= network.bip34_height else None
