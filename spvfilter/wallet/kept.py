"""Transactions of recent blocks, and who spends what in the blocks of the best chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.invented import InventedOutpoints
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.watchlist import WatchList

KEPT_DEPTH = 300  # blocks below the last whose transactions are kept in memory, for reorganisations; ours


class KeptTransactions:
    """Transactions of the wallet's by txid, for reorganisations, and the spenders of outpoints."""

    def __init__(self, stored: Mapping[bytes, StoredTx]) -> None:
        """`stored` are those of recent blocks, and others that conflict with these."""
        self._txs: dict[bytes, StoredTx] = {}
        self._own_at: dict[int, dict[bytes, None]] = {}  # height → txids of those that we broadcast, matched or not
        self._others: dict[bytes, None] = {}  # txids of those of others, which mostly came in the order of their blocks
        self._spender: dict[bytes, bytes] = {}  # outpoint → txid of the confirmed transaction that spends it
        for txid, tx in stored.items():
            if tx.status is TxStatus.CONFIRMED and tx.position:
                self.keep(txid, tx)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._txs

    def get(self, txid: bytes) -> StoredTx | None:
        """A transaction, if it is kept."""
        return self._txs.get(txid)

    def keep(self, txid: bytes, kept: StoredTx) -> None:
        """Remember a transaction of a block, and everything that it spends: a rival may come later than the block."""
        self._txs[txid] = kept
        if kept.own and kept.height is not None:
            self._own_at.setdefault(kept.height, {})[txid] = None
        else:
            self._others[txid] = None
        for outpoint in Transaction.parse(kept.raw).inputs:
            self._spender.setdefault(outpoint, txid)

    def forget(self, txid: bytes) -> StoredTx | None:
        """A transaction is in no block any more, or not the wallet's; what was kept of it."""
        kept = self._txs.pop(txid, None)
        self._others.pop(txid, None)
        if kept is not None and kept.own and kept.height is not None:
            del self._own_at[kept.height][txid]
            if not self._own_at[kept.height]:
                del self._own_at[kept.height]
        for outpoint in Transaction.parse(kept.raw).inputs if kept is not None else ():
            self._unspend(outpoint, txid)
        return kept

    def let_go(self, height: int) -> Iterator[int]:
        """Forget others' transactions of blocks up to a height; the heights of these, whose matches still spend what
        they spend.

        The latest ones, too: old blocks may have been searched again for a new entry.
        """
        for walk in (iter, reversed):
            gone = takewhile(lambda txid: (self._txs[txid].height or 0) <= height, walk(self._others))
            # found at once: a dict walks over what has left its beginning whenever it is walked
            for txid in list(gone):
                at = self._txs[txid].height or 0
                self.forget(txid)
                yield at

    def at(self, height: int, matched: Iterable[bytes]) -> list[bytes]:
        """The txids of what is kept of the block at a height, in its order: those that matched, and all that we
        broadcast.
        """
        txids = dict.fromkeys((*matched, *self._own_at.get(height, ())))
        return sorted(txids.keys() & self._txs.keys(), key=lambda txid: self._txs[txid].position or 0)

    def spend(self, hit: Hit) -> None:
        """A block spends a coin."""
        self._spender[hit.outpoint] = hit.txid

    def take_back(self, hit: Hit) -> None:
        """The block of a match left the best chain."""
        if hit.spend:
            self._unspend(hit.outpoint, hit.txid)

    def _unspend(self, outpoint: bytes, txid: bytes) -> None:
        if self._spender.get(outpoint) == txid:
            del self._spender[outpoint]

    def spender_of(self, tx: Transaction) -> bytes | None:
        """The txid of another, confirmed transaction of the wallet's that spends what a transaction spends, or None."""
        spenders = (self._spender.get(outpoint) for outpoint in tx.inputs)
        return next((spender for spender in spenders if spender not in (None, tx.txid)), None)


def confirmed(known: StoredTx | None, found: FoundTx, block: ScannedBlock) -> StoredTx:
    """A transaction that a block has, with what is known of it; one that we broadcast keeps its witness."""
    raw = known.raw if known is not None and known.own else found.raw
    kept = known or StoredTx(raw, TxStatus.CONFIRMED, own=0)
    kept = kept._replace(raw=raw, status=TxStatus.CONFIRMED, rival=None, hits=())
    return kept._replace(block_hash=block.hash, height=block.height, position=found.position)


def filter_elements(watch: WatchList, invented: InventedOutpoints, own: Mapping[bytes, bytes]) -> list[bytes]:
    """The elements of a BIP-37 filter: the watch list's, and the outpoints that our own unconfirmed transactions (txid
    → raw) spend.

    Anybody can invent an unconfirmed payment to an address. If it changed the filter, its inventor would learn that the
    address is ours. So outputs of unconfirmed transactions that we did not send, `invented`, stay out, unless they are
    entries of the list.
    """
    return list(_with_inputs(invented.left_out(watch.bloom_elements()), own))


def outpoint_elements(watch: WatchList, invented: InventedOutpoints, own: Mapping[bytes, bytes]) -> dict[bytes, None]:
    """Those of a filter's elements that are outpoints: the others are entries of the list."""
    return _with_inputs(invented.left_out(outpoint for outpoint, _ in watch.table.coins()), own)


def _with_inputs(elements: dict[bytes, None], own: Mapping[bytes, bytes]) -> dict[bytes, None]:
    for raw in own.values():
        elements.update(dict.fromkeys(Transaction.parse(raw).inputs))
    return elements
