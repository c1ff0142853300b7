"""The difference between the chain of an earlier scan and that of a new plan, in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import SourceError
from spvfilter.primitives import hash_to_hex
from spvfilter.scan.plan import Plan


@public
class ChainChange(NamedTuple):
    """The blocks that differ between an earlier scan and the scan that continues it."""

    new: int
    """Number of blocks that the earlier scan did not have on its best chain."""
    gone: int
    """Number of blocks that left the best chain, so that their rows are removed."""


def chain_change(plan: Plan, blocks: int, tip: bytes) -> ChainChange:
    """Compare the best chain of a plan with an earlier chain, by the length and the last block of the earlier one.

    Args:
        plan: The new plan.
        blocks: Number of blocks of the earlier chain.
        tip: Hash of the last block of the earlier chain, 32 bytes in wire order.
    """
    stale = {block.ref.hash: block.ref.previous for part in plan.stale for block in part.blocks()}
    gone = 0
    while tip in stale:
        tip, gone = stale[tip], gone + 1
    new = plan.blocks - blocks + gone
    return ChainChange(max(new, 0), gone - min(new, 0))


def refuse_lost_blocks(plan: Plan, known: Iterable[bytes]) -> None:
    """Raise SourceError if a block of an earlier scan is in no file of the plan any longer.

    A node that prunes its files, or a disk that is not mounted, would otherwise remove rows of valid blocks.
    """
    lost = set(known)
    for part in (*plan.parts, *plan.stale):
        lost.difference_update(part.hashes())
    if lost:
        raise SourceError(
            f"block {hash_to_hex(min(lost))} was scanned before and is in no file now: its rows would be lost."
            " Restore the files, or scan the remaining ones into another directory"
        )
