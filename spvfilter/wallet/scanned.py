"""Results of a block search, input of the books: searched blocks and the transactions that peers returned for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spvfilter._dataclass import dataclass
from spvfilter.watch.match import Completeness


class FoundTx(NamedTuple):
    """A transaction that a peer's filter matched, with its position in the block."""

    position: int
    raw: bytes


@dataclass(slots=True)
class ScannedBlock:
    """One searched block of the best chain: the transactions that may concern the wallet, or the whole block."""

    height: int
    hash: bytes  # wire order
    txs: Sequence[FoundTx] = ()
    raw: bytes | None = None  # the whole block, if it was fetched
    completeness: Completeness = Completeness.UNPROVEN
    total: int = 0  # number of transactions in the block, if a peer searched it by filter
