"""The results of a block search, as input for the books: searched blocks, and the transactions that peers sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.kernel import Hit, WatchTable, block_txids, block_txs, merkle_branches, walk_block
from spvfilter.protocol import OUTPOINT_SIZE
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Completeness


class FoundTx(NamedTuple):
    """A transaction that a peer's filter matched, with its position in the block."""

    position: int
    """Position in the block, counted from 0."""
    raw: bytes
    """The serialized transaction."""


@dataclass(slots=True)
class ScannedBlock:
    """One searched block of the best chain: the transactions that may involve the wallet, or the whole block."""

    height: int
    """Height of the block."""
    hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    txs: Sequence[FoundTx] = ()
    """Transactions that a peer's filter matched; unused if the whole block is known."""
    raw: bytes | None = None
    """The whole block, if it was fetched."""
    completeness: Completeness = Completeness.UNPROVEN
    """How certain it is that no match in the block is missing."""
    total: int = 0
    """Number of transactions in the block, if a peer searched it with a filter."""
    time: int | None = None
    """Time in the block's header (Unix time). It is needed if the block contains matches."""
    branches: Mapping[int, bytes] | None = None
    """Merkle branches of transactions, keyed by position, if the search of the block has computed them."""

    def branches_at(self, positions: Iterable[int]) -> dict[int, bytes]:
        """Return the merkle branches of the transactions at these positions, as far as the block proves them."""
        if self.branches is not None:
            return {position: self.branches[position] for position in positions if position in self.branches}
        return {} if self.raw is None else branches_of(self.raw, positions)

    def txs_at(self, positions: Collection[int]) -> dict[int, bytes]:
        """Return the known transactions at these positions, serialized."""
        if self.raw is None:
            return {tx.position: tx.raw for tx in self.txs if tx.position in positions}
        return dict(zip(positions, block_txs(self.raw, positions), strict=True)) if positions else {}

    def hits(self, table: WatchTable) -> list[Hit]:
        """Return the hits in the block.

        `table` learns the outputs of each transaction immediately, because a later transaction may spend them.
        """
        if self.raw is not None:
            return table.scan_block(self.raw)
        hits: list[Hit] = []
        for position, raw in self.txs:
            found = table.scan_tx(raw)
            table.learn(found)
            hits += (hit._replace(position=position) for hit in found)
        return hits

    def inputs(self) -> Iterator[tuple[FoundTx, list[bytes]]]:
        """Yield each known transaction in the block, with the outpoints that it spends."""
        if self.raw is None:
            yield from ((tx, list(Transaction.parse(tx.raw).inputs)) for tx in self.txs)
            return
        raw = self.raw
        for position, span in enumerate(walk_block(raw)):
            yield (
                FoundTx(position, raw[span.start : span.end]),
                [raw[at : at + OUTPOINT_SIZE] for at, _, _ in span.inputs],
            )


def branches_of(raw: bytes, positions: Iterable[int]) -> dict[int, bytes]:
    """Return the merkle branches of the transactions at these positions in a serialized block.

    This takes about three milliseconds for a large block, and ten if all its transactions are requested.
    """
    wanted = list(positions)
    return dict(zip(wanted, merkle_branches(block_txids(raw), wanted), strict=True)) if wanted else {}
