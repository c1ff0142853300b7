"""What a wallet's books begin with, and what they count of a peer's filter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spvfilter.kernel import Hit
from spvfilter.store.ledger import Ended, StoredMatch, StoredTx
from spvfilter.store.searched import Searched
from spvfilter.wallet.scanned import ScannedBlock


@dataclass(frozen=True, slots=True)
class SavedBooks:
    """What the database knows of the books."""

    matches: Sequence[StoredMatch] = ()
    unconfirmed: Mapping[bytes, StoredTx] = field(default_factory=dict)
    """By txid."""
    transactions: Mapping[bytes, StoredTx] = field(default_factory=dict)
    """Of recent blocks and in conflict with these, by txid."""
    ended: Sequence[Ended] = ()
    """What counts no more, the oldest first."""
    cursor: int = -1
    searched: int = -1
    blocks: Searched = field(default_factory=Searched)
    ids: Sequence[int] = ()
    """Of the entries' rows, by number."""
    lost: bytes = b""
    """Txids of coinbases that left the best chain, one after the other."""

    @property
    def last_sent(self) -> int:
        """The highest number of a broadcast here of what may be unconfirmed again."""
        known = [*self.transactions.values(), *(each.tx for each in self.ended if each.tx is not None)]
        return max((tx.own for tx in known), default=0)


@dataclass(slots=True)
class Filtered:
    """Transactions of the blocks that peers searched by our BIP-37 filter."""

    txs: int = 0
    false_positives: int = 0
    """That the filter let through and the watch list did not match."""

    def note(self, block: ScannedBlock, hits: Iterable[Hit]) -> None:
        """A block was searched, with these hits."""
        if block.raw is None:
            self.txs += block.total
            self.false_positives += len(block.txs) - len({hit.position for hit in hits})
