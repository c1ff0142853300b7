"""The chain of headers: linkage, difficulty, rules, the best chain and its forks. Blocks' contents are not its business."""

from __future__ import annotations

from spvfilter.chain.difficulty import decode_bits, encode_bits, retarget, target, total_work, work
from spvfilter.chain.headerchain import ChainHeader, HeaderChain, Start, Update
from spvfilter.chain.linking import Linked, Order, Segment, coinbase_height, is_proven, link
from spvfilter.chain.rules import Tip
from spvfilter.chain.sync import HeaderSync, SyncPhase
from spvfilter.protocol import MAX_HEADERS

__all__ = [
    "MAX_HEADERS",
    "ChainHeader",
    "HeaderChain",
    "HeaderSync",
    "Linked",
    "Order",
    "Segment",
    "Start",
    "SyncPhase",
    "Tip",
    "Update",
    "coinbase_height",
    "decode_bits",
    "encode_bits",
    "is_proven",
    "link",
    "retarget",
    "target",
    "total_work",
    "work",
]
