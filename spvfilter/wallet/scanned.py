"""What those who ask peers give the ledger: transactions said to concern the wallet, and blocks that were searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.watch.match import Completeness


class FoundTx(NamedTuple):
    """A transaction that a peer says concerns us, at its place in a block."""

    position: int
    raw: bytes


@dataclass(slots=True)
class ScannedBlock:
    """One block of the best chain: what of it may concern us, or all of it."""

    height: int
    hash: bytes
    txs: Sequence[FoundTx] = ()
    raw: bytes | None = None  # the whole block, where that was fetched
    completeness: Completeness = Completeness.UNPROVEN
    total: int = 0  # transactions in the block, where a peer's filter was asked
