"""The difference between the chain of an earlier scan and that of a new plan, in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.scan.partrows import lost_block
from spvfilter.scan.plan import Plan


@public
class ChainChange(NamedTuple):
    """The blocks that differ between an earlier scan and the scan that continues it."""

    new: int
    """Number of blocks that were not on the earlier scan's best chain."""
    gone: int
    """Number of blocks that left the best chain, so their rows are removed."""


def chain_change(plan: Plan, blocks: int, tip: bytes) -> ChainChange:
    """Compare a plan's best chain with that of an earlier scan, of which only the length and the last block are known.

    Args:
        plan: The new plan.
        blocks: Number of blocks in the earlier chain.
        tip: Hash of the last block of the earlier chain, 32 bytes in wire order.
    """
    stale = {block.ref.hash: block.ref.previous for part in plan.stale for block in part.blocks()}
    gone = 0
    while tip in stale:
        tip, gone = stale[tip], gone + 1
    new = plan.blocks - blocks + gone
    return ChainChange(max(new, 0), gone - min(new, 0))


def refuse_lost_blocks(plan: Plan, known: Iterable[bytes]) -> None:
    """Raise SourceError if a block of an earlier scan is no longer in any file of the plan.

    Otherwise, an unmounted disk would remove rows of valid blocks. A plan that knows the directory of the earlier scan
    contains the blocks that a node has since pruned.
    """
    lost = set(known)
    for part in (*plan.parts, *plan.stale):
        lost.difference_update(part.hashes())
    if lost:
        raise lost_block(min(lost))
