"""The difference between the chain of an earlier scan and that of a new plan, in blocks."""

from __future__ import annotations

from typing import NamedTuple

from spvfilter._public import public
from spvfilter.scan.plan import Plan


@public
class ChainChange(NamedTuple):
    """The blocks that differ between an earlier scan and the scan that continues it."""

    new: int
    """Number of blocks that the earlier scan did not have on its best chain."""
    gone: int
    """Number of blocks that left the best chain, or whose files are missing. Their rows are removed."""


def chain_change(plan: Plan, blocks: int, tip: bytes) -> ChainChange:
    """Compare the best chain of a plan with an earlier one, of which only the length and the last block are known.

    Args:
        plan: The new plan.
        blocks: Number of blocks of the earlier chain.
        tip: Hash of the last block of the earlier chain, 32 bytes in wire order.
    """
    gone = _above_best_chain(plan, tip)
    new = plan.blocks - blocks + gone
    return ChainChange(max(new, 0), gone - min(new, 0))


def _above_best_chain(plan: Plan, tip: bytes) -> int:
    """Return the number of stale blocks from the best chain up to `tip`. It is 0 if `tip` is not stale."""
    stale = {block.ref.hash: block.ref.previous for part in plan.stale for block in part.blocks()}
    count = 0
    while tip in stale:
        tip, count = stale[tip], count + 1
    return count
