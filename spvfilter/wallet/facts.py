"""Facts about the wallet's transactions: records, blocks of the best chain, and matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spvfilter.kernel import NO_VALUE, Hit
from spvfilter.primitives import OutPoint
from spvfilter.protocol import HASH_SIZE
from spvfilter.transaction import Transaction
from spvfilter.wallet.admission import MempoolLayer
from spvfilter.wallet.confirmed import ConfirmedMatches, Identity, identity
from spvfilter.wallet.netgroupquota import Groups
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.searches import Searches
from spvfilter.wallet.txgraph import Anchor, BestChain, TxGraph, TxRecord
from spvfilter.watch.watchlist import WatchList

NO_HITS: Mapping[Identity, Hit] = {}


class Facts:
    """Records of transactions, blocks of the best chain, and matches.

    `watch` learns outpoints from blocks and own transactions only. Foreign unconfirmed transactions never change it.
    """

    searches: Searches
    """The cursor of the search."""

    def __init__(self, watch: WatchList, limits: PendingLimits | None = None) -> None:
        self.watch: WatchList = watch
        self.pool: MempoolLayer = MempoolLayer(limits or PendingLimits())
        """Bounds of foreign unconfirmed transactions."""
        self._confirmed = ConfirmedMatches()
        self._graph = TxGraph()
        self._best = BestChain()
        self._unconfirmed: dict[bytes, None] = {}  # txids of records without a block of the best chain
        self._hits: dict[bytes, dict[Identity, Hit]] = {}  # matches of unconfirmed records, by txid
        self._wtxids: dict[bytes, bytes] = {}  # wtxid → txid of unconfirmed records
        self._number = 0  # of the latest observation, broadcast or drop

    def record(self, txid: bytes) -> TxRecord | None:
        """The facts about a transaction without a block or in a recent block; None if it is not known."""
        return self._graph.get(txid)

    def find(self, tx_hash: bytes) -> TxRecord | None:
        """The record of an unconfirmed transaction by its txid or wtxid, or None."""
        txid = self._wtxids.get(tx_hash, tx_hash)
        return self._graph.get(txid) if txid in self._unconfirmed else None

    def hashes(self, txid: bytes) -> tuple[bytes, ...]:
        """The txid of a transaction, and its wtxid if it is unconfirmed."""
        record = self._graph.get(txid)
        return (txid,) if record is None or txid not in self._unconfirmed else (txid, record.wtxid)

    def is_without_block(self, txid: bytes) -> bool:
        """True if a transaction is known and no block of the best chain contains it."""
        return txid in self._unconfirmed

    def is_confirmed(self, txid: bytes) -> bool:
        """True if a block of the best chain contains a transaction of the wallet, at any depth."""
        return self.anchor(txid) is not None or self._confirmed.has_tx(txid)

    def anchor(self, txid: bytes) -> Anchor | None:
        """The block of the best chain that contains a transaction; None if none does, or if it is deep."""
        record = self._graph.get(txid)
        return None if record is None else record.anchor_in(self._best)

    def unconfirmed(self) -> Iterator[TxRecord]:
        """The records of all unconfirmed transactions."""
        return (record for txid in self._unconfirmed if (record := self._graph.get(txid)) is not None)

    def spenders(self, outpoint: bytes) -> list[bytes]:
        """The txids of the unconfirmed transactions that spend an outpoint."""
        return [txid for txid in self._graph.spenders(outpoint) if txid in self._unconfirmed]

    def ancestors(self, tx: Transaction) -> list[TxRecord]:
        """The known transactions from which a transaction spends, directly or through others, parents first."""
        return parents_first({each.txid: each for each in self._graph.ancestors(TxRecord.parse(tx.raw))})

    def confirmed_spender(self, tx: Transaction) -> bytes | None:
        """The txid of another transaction, in a block, that spends an input of this one; None if none is known."""
        for outpoint in tx.inputs:
            found = self._confirmed.spender(outpoint)
            spenders = {each for each in self._graph.spenders(outpoint) if each not in self._unconfirmed}
            spenders |= set() if found is None else {found}
            if others := spenders - {tx.txid}:
                return min(others)
        return None

    def value_of(self, outpoint: bytes) -> int | None:
        """The value of an output in satoshi; None if it is not known."""
        coin = self.watch.table.coin(outpoint)
        if coin is not None and coin.value != NO_VALUE:
            return coin.value
        parent = self._graph.get(outpoint[:HASH_SIZE])
        index = OutPoint.parse(outpoint).index
        if parent is None or index >= parent.outputs:
            return None
        return Transaction.parse(parent.raw).outputs[index].value

    def _is_own(self, txid: bytes) -> bool:
        record = self._graph.get(txid)
        return record is not None and record.is_own

    # Changes

    def _give_evidence(self, txid: bytes) -> list[bytes]:
        """Let an unconfirmed transaction and its known ancestors count. Returns the txids of these."""
        record = self._graph.get(txid)
        gained = list[bytes]()
        for each in [] if record is None else [record, *self._graph.ancestors(record)]:
            if not each.has_evidence and each.txid in self._unconfirmed:
                self._graph.put(each._replace(counts_since=self._number))
                gained.append(each.txid)
        return gained

    def _enter(self, record: TxRecord, groups: Groups = (), hits: dict[Identity, Hit] | None = None) -> None:
        """Match an unconfirmed record and note the room that it takes. Own outputs are watched from now on."""
        self._hits[record.txid] = hits = self._match(record) if hits is None else hits
        self._wtxids[record.wtxid] = record.txid
        if record.is_own:
            self.watch.table.learn([hit for hit in hits.values() if not hit.spend])
        else:
            self.pool.put(record, len(hits), groups or record.announced_by)

    def _match(self, record: TxRecord) -> dict[Identity, Hit]:
        """The matches of an unconfirmed transaction: by the watch table, and by outputs of unconfirmed transactions."""
        hits = self.watch.table.scan_tx(record.raw)
        spent = {hit.n for hit in hits if hit.spend}
        for n, outpoint in enumerate(record.inputs if record.fault is None else ()):
            parent, index = outpoint[:HASH_SIZE], int.from_bytes(outpoint[HASH_SIZE:], "little")
            made = self._hits.get(parent, NO_HITS).get(Identity(False, parent, index))
            if made is not None and n not in spent:
                hits.append(Hit(True, 0, record.txid, n, outpoint, made.value, made.script, made.entry))
        hits.sort(key=lambda hit: (not hit.spend, hit.n))
        return {identity(hit): hit for hit in hits}

    def _remove(self, txid: bytes) -> None:
        """Remove an unconfirmed record. `_settle` withdraws its matches and deletes its row."""
        if (record := self._graph.get(txid)) is not None:
            self._wtxids.pop(record.wtxid, None)
        self._graph.remove(txid)
        self._leave_unconfirmed(txid)

    def _leave_unconfirmed(self, txid: bytes) -> None:
        """Forget what is kept only about an unconfirmed transaction."""
        self._unconfirmed.pop(txid, None)
        self._hits.pop(txid, None)
        self.pool.remove(txid)


def parents_first(records: Mapping[bytes, TxRecord]) -> list[TxRecord]:
    """The records in an order that puts each parent before its children."""
    ordered = dict[bytes, TxRecord]()
    for txid in records:
        waiting = [txid]
        while waiting:
            each = waiting[-1]
            parents = {outpoint[:HASH_SIZE] for outpoint in records[each].inputs} & records.keys()
            if each not in ordered and (missing := sorted(parents - ordered.keys())):
                waiting += missing
            else:
                ordered[waiting.pop()] = records[each]
    return list(ordered.values())
