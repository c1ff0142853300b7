"""The state with which a wallet's books start, and counts of the transactions that peers filtered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredMatch, StoredTx
from spvfilter.store.searched import Searched
from spvfilter.wallet.scanned import ScannedBlock


@dataclass(frozen=True, slots=True)
class SavedBooks:
    """The books' state in the database."""

    matches: Sequence[StoredMatch] = ()
    """All matches that count toward the balance."""
    transactions: Mapping[bytes, StoredTx] = field(default_factory=dict)
    """All transactions that are in no block or in a recent one, keyed by txid."""
    cursor: int = -1
    """Height up to which blocks have been searched."""
    searched: int = -1
    """Greatest height up to which blocks had been searched before the cursor moved back."""
    blocks: Searched = field(default_factory=Searched)
    """The blocks that have been searched for each entry."""
    ids: Sequence[int] = ()
    """Row ids of the entries, indexed by the entry's number."""


@dataclass(slots=True)
class Filtered:
    """Counts of the transactions in blocks that peers searched with our BIP-37 filter."""

    txs: int = 0
    """Number of transactions in these blocks."""
    false_positives: int = 0
    """Number of transactions that matched the filter but not the watch list."""

    def note(self, block: ScannedBlock, hits: Iterable[Hit]) -> None:
        """Count the transactions in a searched block, given its hits."""
        if block.raw is None:
            self.txs += block.total
            self.false_positives += len(block.txs) - len({hit.position for hit in hits})
