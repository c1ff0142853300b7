"""Facts about the wallet's transactions: records, blocks in the best chain, and matches in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush

from spvfilter.protocol import HASH_SIZE
from spvfilter.store.ledger import StoredMatch, StoredTx
from spvfilter.transaction import Transaction
from spvfilter.wallet.confirmed import ConfirmedMatches
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.parts import Parts
from spvfilter.wallet.rows import record_of
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.txgraph import Anchor, BestChain, TxGraph, TxRecord


class Facts:
    """Records of transactions, blocks in the best chain, and matches in these blocks. Only this class changes them."""

    def __init__(self) -> None:
        self.graph: TxGraph = TxGraph()
        """The records, joined by the outpoints that they spend."""
        self.best: BestChain = BestChain()
        """Blocks of the best chain that contain transactions of the wallet."""
        self.confirmed: ConfirmedMatches = ConfirmedMatches()
        """Matches in blocks of the best chain."""
        self.without_block: dict[bytes, None] = {}
        """Txids of records that no block of the best chain contains."""
        self.number: int = 0
        """Number of the latest observation, broadcast or drop."""
        self._wtxids: dict[bytes, bytes] = {}  # wtxid → txid of unconfirmed records
        self._deep: list[tuple[int, bytes]] = []  # heap of heights and txids of confirmed foreign records

    def record(self, txid: bytes) -> TxRecord | None:
        """Return the record of a transaction that is unconfirmed or in a recent block; None if it is not known."""
        return self.graph.get(txid)

    def records(self, txids: Iterable[bytes]) -> list[TxRecord]:
        """Return the known records of these transactions."""
        return [record for txid in txids if (record := self.graph.get(txid)) is not None]

    def find(self, tx_hash: bytes) -> TxRecord | None:
        """Return the record of the unconfirmed transaction with this txid or wtxid, or None."""
        txid = self._wtxids.get(tx_hash, tx_hash)
        return self.graph.get(txid) if txid in self.without_block else None

    def hashes(self, txid: bytes) -> tuple[bytes, ...]:
        """Return the txid of a transaction, and its wtxid if it is unconfirmed."""
        record = self.graph.get(txid)
        return (txid,) if record is None or txid not in self.without_block else (txid, record.wtxid)

    def is_without_block(self, txid: bytes) -> bool:
        """True if this transaction is known and no block of the best chain contains it."""
        return txid in self.without_block

    def is_confirmed(self, txid: bytes) -> bool:
        """True if the best chain contains this transaction of the wallet, no matter how deep."""
        return self.anchor(txid) is not None or self.confirmed.has_tx(txid)

    def is_own(self, txid: bytes) -> bool:
        """True if this transaction is known and the wallet broadcast it."""
        record = self.graph.get(txid)
        return record is not None and record.is_own

    def anchor(self, txid: bytes) -> Anchor | None:
        """Return the block of the best chain that contains a transaction; None if none does, or if it is too deep."""
        record = self.graph.get(txid)
        return None if record is None else record.anchor_in(self.best)

    def unconfirmed(self) -> Iterator[TxRecord]:
        """Return the records of all unconfirmed transactions."""
        return (record for txid in self.without_block if (record := self.graph.get(txid)) is not None)

    def spenders(self, outpoint: bytes) -> list[bytes]:
        """Return the txids of the unconfirmed transactions that spend an outpoint."""
        return [txid for txid in self.graph.spenders(outpoint) if txid in self.without_block]

    def confirmed_spender(self, tx: Transaction) -> bytes | None:
        """Return the txid of another transaction, in a block, that spends an input of `tx`; None if none is known."""
        for outpoint in tx.inputs:
            found = self.confirmed.spender(outpoint)
            spenders = {each for each in self.graph.spenders(outpoint) if each not in self.without_block}
            spenders |= set() if found is None else {found}
            if others := spenders - {tx.txid}:
                return min(others)
        return None

    # Changes of records

    def load(self, txid: bytes, row: StoredTx) -> None:
        """Load a record from the database."""
        record = record_of(row)
        seen = record.last_seen, record.broadcast_seq or 0, row.dropped_seq, record.counts_since or 0
        self.number = max(self.number, *seen)
        self.graph.put(record)
        if row.height is not None and row.block_hash is not None:
            self.best.connect(row.height, row.block_hash)
        else:
            self.without_block[txid] = None
        self._note_deep(record)

    def next_number(self) -> int:
        """Return the number for a new observation, broadcast or drop."""
        self.number += 1
        return self.number

    def put(self, record: TxRecord) -> None:
        """Replace a record."""
        self.graph.put(record)

    def enter(self, record: TxRecord) -> None:
        """Add a record that no block of the best chain contains."""
        if (known := self.graph.get(record.txid)) is not None:
            self._wtxids.pop(known.wtxid, None)
        self.without_block[record.txid] = None
        self.graph.put(record)
        self._wtxids[record.wtxid] = record.txid

    def leave(self, txid: bytes) -> None:
        """Record that a block contains a transaction, once the whole block has been recorded."""
        self.without_block.pop(txid, None)

    def remove(self, txid: bytes) -> None:
        """Remove a record."""
        if (record := self.graph.get(txid)) is not None:
            self._wtxids.pop(record.wtxid, None)
        self.graph.remove(txid)
        self.without_block.pop(txid, None)

    def give_evidence(self, txid: bytes) -> list[bytes]:
        """Mark an unconfirmed transaction and its known ancestors as having enough evidence, so that they count.

        Returns the txids of the transactions that did not have it before. The search stops at ancestors with evidence,
        because their own ancestors already have it as well.
        """
        record = self.graph.get(txid)
        gained = list[bytes]()
        ancestors = () if record is None else self.graph.ancestors(record, lambda each: each.has_evidence)
        for each in () if record is None else (record, *ancestors):
            if not each.has_evidence and each.txid in self.without_block:
                self.graph.put(each._replace(counts_since=self.number))
                gained.append(each.txid)
        return gained

    # Blocks

    def anchor_at(self, found: FoundTx, txid: bytes, block: ScannedBlock) -> None:
        """Record the block of the best chain that contains a transaction."""
        anchor = Anchor(block.height, block.hash, found.position)
        record = self.graph.get(txid)
        if record is None:
            record = TxRecord.parse(found.raw)._replace(first_height=block.height)
        self._wtxids.pop(record.wtxid, None)
        if anchor not in record.anchors or record.txid in self.without_block:
            number, anchors = self.next_number(), record.anchors | {anchor}
            since = number if record.counts_since is None else record.counts_since
            record = record._replace(
                anchors=anchors, last_seen=number, dropped=None, counts_since=since, announced_by=()
            )
            if not record.is_own:  # the wallet's own transaction keeps its witness
                record = record.with_witness(found.raw)
        self.best.connect(block.height, block.hash)
        self.graph.put(record)
        self.give_evidence(txid)
        self._note_deep(record)

    def disconnect(self, fork: int, now: int) -> tuple[list[bytes], list[TxRecord]]:
        """Disconnect the blocks above height `fork`.

        Returns the txids of their transactions, and the records that are no longer in any block. The caller passes
        these records to `enter`.
        """
        confirmed = [record.txid for record in self.graph if record.txid not in self.without_block]
        back = [txid for txid in confirmed if (at := self.anchor(txid)) is not None and at.height > fork]
        self.best.disconnect_to(fork)
        returned = list[bytes]()
        for record in self.records(back):
            if record.anchor_in(self.best) is None:
                returned.append(record.txid)
                self.graph.put(record._replace(first_height=min(record.first_height, fork)).renewed(now))
        return back, parents_first({record.txid: record for record in self.records(returned)})

    def lower(self, fork: int) -> list[bytes]:
        """Record that unconfirmed transactions may be in blocks above height `fork`. Returns the changed txids."""
        lowered = [record for record in self.unconfirmed() if record.first_height > fork]
        for record in lowered:
            self.graph.put(record._replace(first_height=fork))
        return [record.txid for record in lowered]

    def _note_deep(self, record: TxRecord) -> None:
        if not record.is_own and (anchor := record.anchor_in(self.best)) is not None:
            heappush(self._deep, (anchor.height, record.txid))

    def forget_deep(self, limit: int, depth: int, most: int) -> list[bytes]:
        """Remove foreign records in blocks up to height `limit`, unless they are related to an unconfirmed transaction.

        Examines at most `most` records, and returns the txids of those removed. The others are examined again after
        `depth` more blocks.
        """
        forgotten = list[bytes]()
        for _ in range(most):
            if not self._deep or self._deep[0][0] > limit:
                break
            _, txid = heappop(self._deep)
            record = self.graph.get(txid)
            if record is None or txid in self.without_block or record.is_own:
                continue
            family = [record, *self.graph.ancestors(record)] if self.without_block else []
            if any(self.graph.neighbours(each) & self.without_block.keys() for each in family):
                heappush(self._deep, (limit + depth, txid))
                continue
            self.graph.remove(txid)
            forgotten.append(txid)
        return forgotten

    # Matches in blocks

    def confirm(self, found: StoredMatch) -> None:
        """Add a match in a block of the best chain."""
        self.confirmed.add(found)

    def take_matches(self, height: int) -> list[StoredMatch]:
        """Remove and return the matches in the block at a height."""
        return self.confirmed.take(height)

    def prove(self, height: int) -> list[StoredMatch]:
        """Upgrade matches up to a height from Completeness.ONE_PEER to PROVEN. Returns the changed matches."""
        return self.confirmed.prove(height)

    def renumber(self, change: Renumbering) -> Parts[tuple[list[StoredMatch], list[StoredMatch]]]:
        """Renumber the matches in blocks. Returns the result of `Renumbering.confirmed`."""
        return change.confirmed(self.confirmed)


def parents_first(records: Mapping[bytes, TxRecord]) -> list[TxRecord]:
    """Return the records in an order that puts each parent before its children."""
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
