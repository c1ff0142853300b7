"""The chain of headers: linkage, difficulty, and the heights that blocks state. Blocks' contents are not its business."""

from __future__ import annotations

from spvfilter.chain.difficulty import target, work
from spvfilter.chain.linking import Linked, Order, Segment, coinbase_height, is_proven, link

__all__ = ["Linked", "Order", "Segment", "coinbase_height", "is_proven", "link", "target", "work"]
