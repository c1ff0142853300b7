"""The wallet's books, sans-IO: searched blocks, unconfirmed transactions and calls in; events and batches out.

The books record facts about transactions. `canonical` computes from the facts which transactions count. After each
input the books compare the verdicts with the verdicts before it: the difference gives events and rows of the database.

All state is in memory. The books write to the database and never read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from spvfilter.kernel import NO_ENTRY, NO_VALUE, EntryKind, Hit
from spvfilter.primitives import OutPoint
from spvfilter.protocol import HASH_SIZE, MEMPOOL_EXPIRY_S
from spvfilter.store.batch import AccountChange, Batch, NewEntry
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.keychains import KeychainChange, NewKeychain
from spvfilter.store.ledger import StoredMatch, TxStatus
from spvfilter.store.searched import Searched
from spvfilter.transaction import Transaction
from spvfilter.wallet.admission import MempoolLayer
from spvfilter.wallet.canonical import Status, Verdict, canonical
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.confirmed import ConfirmedMatches, Identity, identity
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    Reason,
    TxReplaced,
    WalletEvent,
)
from spvfilter.wallet.netgroupquota import Groups
from spvfilter.wallet.orphanage import Orphan, Orphanage
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.rows import ROW_STATUS, record_of, row_of, status_of
from spvfilter.wallet.saved import Filtered, SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.txgraph import Anchor, BestChain, Component, Drop, DropReason, TxGraph, TxRecord
from spvfilter.watch.accounts import AccountPlan
from spvfilter.watch.match import Completeness, Match, MatchKind
from spvfilter.watch.watchlist import WatchList

KEPT_DEPTH = 300
"""Blocks below the searched height whose transactions are kept in memory for reorganizations (our choice)."""
_REASONS = {
    Status.REPLACED: Reason.REPLACED,
    Status.CONFLICTED: Reason.CONFLICT,
    Status.ABANDONED: Reason.ABANDONED,
    Status.REJECTED: Reason.REFUSED,
    Status.EXPIRED: Reason.EXPIRED,
}
_NO_HITS: Mapping[Identity, Hit] = {}
_UNPROVEN = Completeness.UNPROVEN
_CONFIRMED = Verdict(Status.CONFIRMED)
_INACTIVE = (Status.ABANDONED, Status.REJECTED, Status.EXPIRED)
_OPEN = (Status.CONFIRMED, Status.CANONICAL, Status.REPLACED)  # a block may still contain such a transaction


class Books:
    """Matches, transactions and the search cursor of one wallet.

    `watch` learns outpoints from blocks and own transactions only. Foreign unconfirmed transactions never change it.
    """

    def __init__(self, watch: WatchList, saved: SavedBooks, limits: PendingLimits | None = None) -> None:
        self.watch: WatchList = watch
        self.cursor: int = saved.cursor
        """Height up to which blocks have been searched."""
        self.searched: int = saved.searched
        """Height up to which blocks had been searched before the cursor moved back for new entries."""
        self.blocks: Searched = saved.blocks
        """Blocks that were searched for each entry."""
        self.ids: list[int] = list(saved.ids)
        """Row ids of the entries in the database, by number."""
        self.filtered: Filtered = Filtered()
        """Counts of the transactions that peers filtered."""
        self.is_window_due: bool = False
        """True if a confirmed payment requires more scripts of a keychain than are watched."""
        self.pool: MempoolLayer = MempoolLayer(limits or PendingLimits())
        """Bounds of foreign unconfirmed transactions."""
        self.orphans: Orphanage = Orphanage()
        """Foreign unconfirmed transactions without a match or a link to one."""
        self.is_expiry_left: bool = False
        """True if the last call of `expire` left transactions for the next one."""
        self.turned_away: int = 0
        """Number of foreign transactions that found no room since the start."""
        self._are_blocks_changed = False
        self._changes = Changes()
        self._confirmed = ConfirmedMatches()
        self._graph = TxGraph()
        self._best = BestChain()
        self._unconfirmed: dict[bytes, None] = {}  # txids of records without a block of the best chain
        self._hits: dict[bytes, dict[Identity, Hit]] = {}  # matches of unconfirmed records, by txid
        self._counted: dict[bytes, Mapping[Identity, Hit]] = {}
        """Unconfirmed matches that count and were reported, by txid."""
        self._verdicts: dict[bytes, Verdict] = {}  # computed by `canonical`; a cache
        self._wtxid: dict[bytes, bytes] = {}  # txid → wtxid of unconfirmed records
        self._wtxids: dict[bytes, bytes] = {}  # wtxid → txid of unconfirmed records
        self._moved: set[bytes] = set()  # txids whose observation was moved by a later announcement
        self._own: dict[bytes, Verdict] | None = None
        """Verdicts on own transactions among themselves; a cache."""
        self._unmatched: dict[bytes, None] = {}  # txids of records to be matched against new entries
        self._refused: list[bytes] = []
        """Txids and wtxids of transactions that found no room or were evicted."""
        self._deep: list[tuple[int, bytes]] = []  # heap of heights and txids of confirmed foreign records
        self._number = 0  # of the latest observation, broadcast or drop
        self.opening: list[WalletEvent] = self._load(saved)
        """Events of the difference between the database and its facts, such as after a migration."""

    def _load(self, saved: SavedBooks) -> list[WalletEvent]:
        for txid, row in saved.transactions.items():
            record = record_of(row)
            self._number = max(self._number, record.last_seen, record.broadcast_seq or 0, row.dropped_seq)
            self._graph.put(record)
            if row.height is not None and row.block_hash is not None:
                self._best.connect(row.height, row.block_hash)
            else:
                self._unconfirmed[txid] = None
        for found in saved.matches:
            if found.block_hash is None:
                self._counted.setdefault(found.hit.txid, {})[identity(found.hit)] = found.hit  # type: ignore[index]
            else:
                self._confirmed.add(found)
        for component in self._graph.components(self._best):
            for record in _parents_first(component.records):
                self._enter(record)
        for txid, row in saved.transactions.items():
            if txid not in self._unconfirmed:
                self._note_deep(txid)
                self._verdicts[txid] = _CONFIRMED
            else:
                self._verdicts[txid] = Verdict(status_of(row.status), row.conflicts_with)
        return self._settle(list(self._unconfirmed))

    # The database

    @property
    def batch(self) -> Batch:
        """The changes that are not committed yet."""
        return self._changes.batch

    def take_batches(self) -> list[Batch]:
        """The changes since the last call, in the order in which they must be committed."""
        self._complete()
        return self._changes.take()

    def _seal(self) -> None:
        """Apply all changes so far before the changes that follow."""
        self._complete()
        self._changes.seal()

    def _complete(self) -> None:
        self.batch.keychains += (KeychainChange(name, used) for name, used in self.watch.windows.take_fresh().items())
        if self._are_blocks_changed:
            self._are_blocks_changed, self.batch.searched = False, self.blocks.encode()

    # Queries

    def match_of(self, hit: Hit, at: StoredMatch | None = None) -> Match:
        """The match of a hit. `at` has its place in a block."""
        block, height, sure, time = (None,) * 4 if at is None else at[1:]
        return self.watch.matches((hit,), block_hash=block, height=height, time=time, completeness=sure)[0]

    def matches(self) -> Iterator[MatchFound]:
        """Every match that counts: confirmed ones in ascending height, then unconfirmed ones."""
        yield from (MatchFound(self.match_of(found.hit, found), found.completeness) for found in self._confirmed)
        for txid in self._unconfirmed:
            yield from (MatchFound(self.match_of(hit)) for hit in self._counted.get(txid, _NO_HITS).values())

    def positions_at(self, height: int) -> dict[int, bytes]:
        """The positions of matched transactions in the block at a height, with their txids."""
        return {found.hit.position: found.hit.txid for found in self._confirmed.at(height)}

    def record(self, txid: bytes) -> TxRecord | None:
        """The facts about a transaction without a block or in a recent block; None if it is not known."""
        return self._graph.get(txid)

    def find(self, tx_hash: bytes) -> TxRecord | None:
        """The record of an unconfirmed transaction by its txid or wtxid, or None."""
        txid = self._wtxids.get(tx_hash, tx_hash)
        return self._graph.get(txid) if txid in self._unconfirmed else None

    def hashes(self, txid: bytes) -> tuple[bytes, ...]:
        """The txid of a transaction, and its wtxid if it is unconfirmed."""
        return (txid, self._wtxid[txid]) if txid in self._wtxid else (txid,)

    def verdict(self, txid: bytes) -> Verdict | None:
        """The verdict on a transaction; None if it is not known."""
        return self._verdicts.get(txid)

    def is_unconfirmed(self, txid: bytes) -> bool:
        """True if a transaction is known and no block of the best chain contains it."""
        return txid in self._unconfirmed

    def is_confirmed(self, txid: bytes) -> bool:
        """True if a block of the best chain contains a transaction of the wallet, at any depth."""
        return self.anchor(txid) is not None or self._confirmed.has_tx(txid)

    def is_pending(self, txid: bytes) -> bool:
        """True if a transaction is unconfirmed and counts."""
        return txid in self._unconfirmed and _counts(self._verdicts[txid])

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

    # Own transactions

    def own_verdicts(self) -> Mapping[bytes, Verdict]:
        """Verdicts on the own unconfirmed transactions, by blocks and own transactions alone, parents first.

        A foreign conflict does not change them. A transaction is announced while this verdict is canonical.
        """
        if self._own is None:
            own = {txid: record for txid in self._unconfirmed if (record := self._graph.get(txid)) and record.is_own}
            ancestors = {each.txid: each for record in own.values() for each in self._graph.ancestors(record)}
            foreign = {txid: each for txid, each in ancestors.items() if txid in self._unconfirmed and not each.is_own}
            component = self._with_border(Component({**foreign, **own}, {}))
            for record in component.records.values():
                for outpoint in record.inputs:
                    for each in self._graph.spenders(outpoint):
                        known = None if each in component.records else self._verdicts.get(each)
                        if known is not None and known.status is Status.CONFIRMED:
                            component.border.setdefault(outpoint, each)  # a parent may be confirmed through a child
            verdicts = canonical(component, self._best)
            order = [record.txid for record in _parents_first(component.records) if record.is_own]
            self._own = {txid: verdicts[txid] for txid in order}
        return self._own

    def own_unconfirmed(self) -> list[tuple[bytes, bytes]]:
        """The own transactions to announce (txid, raw), parents first."""
        records = ((txid, self._graph.get(txid)) for txid, verdict in self.own_verdicts().items() if _counts(verdict))
        return [(txid, record.raw) for txid, record in records if record is not None]

    def would_be(self, tx: Transaction) -> tuple[Verdict, TxRecord | None]:
        """The verdict on a transaction if this wallet broadcast it, and an abandoned ancestor if there is one."""
        record = TxRecord.parse(tx.raw)._replace(broadcast_seq=self._number + 1)
        ancestors = self._graph.ancestors(record)
        family = {each.txid: each for each in (*ancestors, record) if each.anchor_in(self._best) is None}
        active = {txid: each._replace(dropped=None) for txid, each in family.items()}
        verdicts = canonical(self._with_border(Component(active, {})), self._best)
        abandoned = (each for each in ancestors if each.active_drop is DropReason.ABANDONED)
        return verdicts[tx.txid], next(abandoned, None)

    def is_announceable(self, txid: bytes) -> bool:
        """True if an own transaction is unconfirmed, and neither blocks nor own transactions speak against it."""
        verdict = self.own_verdicts().get(txid)
        return verdict is not None and _counts(verdict)

    def status(self, txid: bytes) -> TxStatus | None:
        """The status of a transaction; None if it is not known."""
        return self._status(txid) if txid in self._verdicts else None

    def ancestors(self, tx: Transaction) -> list[TxRecord]:
        """The known transactions from which a transaction spends, directly or through others, parents first."""
        return _parents_first({each.txid: each for each in self._graph.ancestors(TxRecord.parse(tx.raw))})

    def _status(self, txid: bytes) -> TxStatus:
        return ROW_STATUS[self._verdicts[txid].status] if txid in self._unconfirmed else TxStatus.CONFIRMED

    # Searching blocks

    def connect(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        """Record the block above the cursor, with the hits in it."""
        assert block.height == self.cursor + 1
        self.watch.table.learn(hits)
        self.filtered.note(block, hits)
        events: list[WalletEvent] = [BlockConnected(block.height, block.hash)]
        touched = self._anchor_all(block, hits)
        for hit in hits:
            mark = identity(hit)
            if mark in self._confirmed:
                continue  # known from an earlier search, or of a coinbase that two blocks contain (BIP-30)
            found = StoredMatch(hit, block.hash, block.height, block.completeness, block.time)
            self._confirmed.add(found)
            self._changes.put_match(found)
            pending = dict(self._counted.get(hit.txid, _NO_HITS))
            kind = MatchFound if pending.pop(mark, None) is None else MatchConfirmed
            self._counted[hit.txid] = pending
            events.append(kind(self.match_of(hit, found), block.completeness))
        if hits and self.watch.windows.note(hits):
            self.is_window_due = True
        for txid in touched:
            self._leave_unconfirmed(txid)
        learned = [hit.outpoint for hit in hits if not hit.spend]
        touched += self._rematch_spenders(learned) if self._unconfirmed else ()
        for orphan in self.orphans.take_spenders(learned):
            touched += self._admit(orphan.record, orphan.groups)
        events += self._settle(touched)
        self.connect_empty(block.height)
        self._forget_deep()
        return events

    def _anchor_all(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[bytes]:
        """Note the block in the records of its transactions that match or that touch an unconfirmed transaction."""
        positions = {hit.position: hit.txid for hit in hits}
        if not self._unconfirmed:
            raws = block.by_position() if positions else {}
            return [self._anchor(FoundTx(at, raws[at]), txid, block) for at, txid in positions.items()]
        touched = []
        for found, inputs in block.inputs():
            txid = positions.get(found.position)
            if txid is None and any(self._graph.spenders(outpoint) for outpoint in inputs):
                txid = Transaction.parse(found.raw).txid
            if txid is not None:
                touched.append(self._anchor(found, txid, block))
        return touched

    def _anchor(self, found: FoundTx, txid: bytes, block: ScannedBlock) -> bytes:
        anchor = Anchor(block.height, block.hash, found.position)
        record = self._graph.get(txid)
        if record is None:
            record = TxRecord.parse(found.raw)._replace(first_height=block.height)
        if anchor not in record.anchors or record.txid in self._unconfirmed:
            self._number += 1
            raw = record.raw if record.is_own else found.raw  # an own transaction keeps its witness
            anchors = record.anchors | {anchor}
            record = record._replace(raw=raw, anchors=anchors, last_seen=self._number, dropped=None)
        self._best.connect(block.height, block.hash)
        self._graph.put(record)
        self._note_deep(txid)
        return txid

    def _note_deep(self, txid: bytes) -> None:
        record = self._graph.get(txid)
        if record is not None and not record.is_own and (anchor := record.anchor_in(self._best)) is not None:
            heappush(self._deep, (anchor.height, txid))

    def _forget_deep(self) -> None:
        """Forget foreign records of deep blocks, unless an unconfirmed transaction touches them."""
        limit = self.searched - KEPT_DEPTH
        while self._deep and self._deep[0][0] <= limit:
            _, txid = heappop(self._deep)
            record = self._graph.get(txid)
            if record is None or txid in self._unconfirmed or record.is_own:
                continue
            near = self._graph.neighbours(record) & self._unconfirmed.keys()
            for each in self._graph.ancestors(record) if near else ():
                near |= self._graph.neighbours(each) & self._unconfirmed.keys()
            if any(self._verdicts[each].status is not Status.CONFIRMED or self._hits.get(each) for each in near):
                heappush(self._deep, (limit + KEPT_DEPTH, txid))  # looked at again later
                continue
            for each in self._graph.ancestors(record) if near else ():
                if each.txid in self.pool and not self._hits.get(each.txid):  # it only decided about this one
                    self._remove(each.txid)
                    self._verdicts.pop(each.txid, None)
                    self.batch.transactions[each.txid] = None
            self._graph.remove(txid)
            self._verdicts.pop(txid, None)
            if not self._confirmed.has_tx(txid):
                self.batch.transactions[txid] = None  # it was kept only as a conflict

    def rewind(self, height: int) -> None:
        """Move the cursor back and search the blocks above `height` again, because their matches are in doubt."""
        self.blocks.cut(max(height, -1))
        self._are_blocks_changed = True
        self.search_again(height)

    def doubt(self, height: int) -> None:
        """Search blocks from a height on again, as far as they were searched for any entry."""
        lowest = self.blocks.lowest
        first = self.cursor + 1 if lowest is None else min(lowest, self.cursor + 1)
        self.rewind(max(height, first) - 1)

    def search_again(self, height: int) -> None:
        """Move the cursor back, so that blocks above `height` are searched again. Their matches stay."""
        if height < self.cursor:
            self.blocks.again(max(height, -1), self.cursor)
            self._move_cursor(max(height, -1))

    def skip_to(self, height: int) -> None:
        """Begin a new wallet's search above a height."""
        self._move_cursor(height)

    def connect_empty(self, height: int, filtered: int = 0) -> None:
        """Note that the blocks above the cursor, up to a height, contain nothing of the wallet.

        Args:
            height: The height.
            filtered: Number of transactions that peers filtered in these blocks.
        """
        self.filtered.txs += filtered
        self.blocks.record(self.cursor + 1, height)
        self._move_cursor(height)

    def begin_at(self, height: int | None, wanted: tuple[int | None, int | None] | None = None) -> None:
        """Begin the wallet's search at a height.

        Args:
            height: The height. None if it is not known yet.
            wanted: A height and a birthday. The search will begin at the lower one.
        """
        self.blocks.start, self.blocks.wanted, self._are_blocks_changed = height, wanted, True

    def _move_cursor(self, height: int) -> None:
        self.cursor = self.batch.cursor = height
        self.searched = max(self.searched, height)
        self._are_blocks_changed = True

    def mark_proven(self, height: int) -> None:
        """Set matches in blocks up to a height from Completeness.ONE_PEER to PROVEN."""
        for found in self._confirmed.prove(height):
            self._changes.put_match(found)

    # The chain

    def extend(self, headers: bytes) -> None:
        """Store headers (80 bytes each) that follow the stored ones."""
        self.batch.headers += headers
        self.orphans.note_block()

    def disconnect(self, fork: int, hashes: Sequence[bytes], headers: bytes, now: int) -> list[WalletEvent]:
        """Disconnect the blocks above height `fork`, and store the headers that replace them.

        Their transactions are unconfirmed again. A coinbase and its descendants conflict until a block contains them.

        Args:
            fork: Height of the last common block.
            hashes: Hashes of the disconnected blocks, the lowest first.
            headers: Headers of the new blocks, 80 bytes each.
            now: Seconds since 1970.
        """
        self._seal()
        self.batch.fork, self.batch.headers = fork, headers
        self.orphans.note_block()
        lost = {height: self._confirmed.take(height) for height in range(fork + len(hashes), fork, -1)}
        was_searched = self.searched
        back = [txid for txid in self._graph_txids() if (a := self.anchor(txid)) is not None and a.height > fork]
        self._best.disconnect_to(fork)
        self.cursor, self.searched = min(self.cursor, fork), min(self.searched, fork)
        self.blocks.cut(fork)
        self._are_blocks_changed = True
        returned, returned_rows = [], list[bytes]()
        for txid in back:
            record = self._graph.get(txid)
            assert record is not None
            if record.anchor_in(self._best) is None:
                returned.append(txid)
                record = record._replace(
                    first_seen=now if record.first_seen is None else record.first_seen,
                    first_height=min(record.first_height, fork),
                    expires_at=now + MEMPOOL_EXPIRY_S,
                )
                self._graph.put(record)
        for record in list(self.unconfirmed()):
            if record.first_height > fork:
                self._graph.put(record._replace(first_height=fork))
                self.pool.note_changed(record.txid)
                returned_rows.append(record.txid)
        for record in _parents_first({txid: self._graph.get(txid) for txid in returned}):  # type: ignore[misc]
            self._unconfirmed[record.txid] = None
            self._enter(record)
        before = {identity(found.hit): found for each in lost.values() for found in each}
        events = self._settle([*back, *returned_rows], before)
        moved = {_mark(event): event for event in events if isinstance(event, MatchUnconfirmed)}
        told = list[WalletEvent]()
        for height, found in lost.items():
            for each in reversed(found):
                event = moved.get(identity(each.hit))
                told.append(event or MatchWithdrawn(self.match_of(each.hit, each), Reason.REORG))
            if height <= was_searched or found:
                told.append(BlockDisconnected(height, hashes[height - fork - 1]))
        return [*told, *(event for event in events if not isinstance(event, MatchUnconfirmed))]

    def _graph_txids(self) -> list[bytes]:
        return [record.txid for record in self._graph]

    def change_filters(self, change: CompactFilterBatch) -> None:
        """Store filter hashes and filters."""
        if self.batch.compact_filters is not None and change.fork is not None:
            self._seal()
        known = self.batch.compact_filters
        self.batch.compact_filters = change if known is None else known.extended(change)

    # Unconfirmed transactions

    def observe(self, raw: bytes, now: int, *, groups: Groups = ()) -> list[WalletEvent]:
        """Record a transaction that peers of these network groups announced or sent. Raises FormatError."""
        tx = Transaction.parse(raw)
        record = self._graph.get(tx.txid)
        if record is not None:
            if tx.txid in self.pool:
                self.pool.quota.announce(tx.txid, groups)
            is_revived = record.active_drop in (DropReason.REJECTED, DropReason.EXPIRED)
            return self.observe_again(tx.txid, now) if is_revived and tx.txid in self._unconfirmed else []
        self._number += 1
        record = TxRecord.parse(raw)._replace(
            first_seen=now,
            first_height=max(self.searched, 0),
            expires_at=now + MEMPOOL_EXPIRY_S,
            last_seen=self._number,
        )
        if record.fault is not None or tx.txid in self.orphans:
            return []
        return self._settle(self._admit(record, groups))

    def observe_again(self, txid: bytes, now: int) -> list[WalletEvent]:
        """Record a later observation of an unconfirmed transaction: it outranks foreign ones seen before it."""
        record = self._graph.get(txid)
        if record is None or txid not in self._unconfirmed:
            return []
        self._number += 1
        self._graph.put(record._replace(last_seen=self._number, expires_at=now + MEMPOOL_EXPIRY_S))
        return self._settle([txid])

    def announce_later(self, txid: bytes, now: int) -> list[WalletEvent]:
        """Record that a peer announced a transaction after its conflict, which moves its observation at most once."""
        record = self._graph.get(txid)
        if record is None or txid in self._moved or record.is_own or self.is_pending(txid):
            return []
        self._moved.add(txid)
        return self.observe_again(txid, now)

    def broadcast(self, raw: bytes, now: int) -> list[WalletEvent]:
        """Record a broadcast by this wallet, of a transaction that `check_broadcast` accepts. Raises FormatError.

        Own ancestors that expired or were rejected are broadcast again with it.
        """
        fresh = TxRecord.parse(raw)
        known = self._graph.get(fresh.txid)
        record = fresh._replace(first_height=max(self.searched, 0)) if known is None else known._replace(raw=fresh.raw)
        if self.is_confirmed(record.txid):
            return []
        revived = [each for each in self._graph.ancestors(record) if each.active_drop is not None]
        for each in _parents_first({each.txid: each for each in (*revived, record)}):
            self._number += 1
            number, is_own = self._number, each.txid == record.txid or each.is_own
            each = each._replace(
                broadcast_seq=number if is_own else None,
                last_seen=each.last_seen if is_own else number,
                first_seen=now if each.first_seen is None else each.first_seen,
                expires_at=now + MEMPOOL_EXPIRY_S,
            )
            self.pool.remove(each.txid) if is_own else None
            self._unconfirmed[each.txid] = None
            self._graph.put(each)
            self._enter(each)
        touched = [record.txid, *(each.txid for each in revived), *self._rematch_children(record.txid)]
        return self._settle([*touched, *self._adopt(record)])

    def abandon(self, txid: bytes) -> list[WalletEvent]:
        """Abandon an own unconfirmed transaction (`check_abandon`) and the own versions that it replaced."""
        record = self._graph.get(txid)
        assert record is not None
        others = {other for outpoint in record.inputs for other in self.spenders(outpoint)} - {txid}
        earlier = [
            other
            for other in others
            if (each := self._graph.get(other)) is not None
            and 0 < (each.broadcast_seq or 0) < (record.broadcast_seq or 0)
        ]
        return self._drop([txid, *earlier], DropReason.ABANDONED)

    def reject(self, txid: bytes) -> list[WalletEvent]:
        """Record that every peer that received an own transaction rejected it."""
        return self._drop([txid], DropReason.REJECTED)

    def expire(self, now: int, began: int = 0, proven: int = 1 << 62, most: int = 20) -> list[WalletEvent]:
        """Drop transactions that were unconfirmed for 336 hours.

        Args:
            now: Seconds since 1970.
            began: When this run began. An earlier transaction expires only if `proven` is late enough, too.
            proven: Median time of the latest blocks.
            most: Most transactions to drop.
        """
        due = [
            record.txid
            for record in self.unconfirmed()
            if record.expires_at <= now
            and record.active_drop is None
            and self._verdicts[record.txid].status not in _INACTIVE
            and (record.expires_at - MEMPOOL_EXPIRY_S >= began or record.expires_at <= proven)
            and (record.is_own or not any(map(self.is_announceable, self._graph.descendants(record.txid))))
        ]
        self.is_expiry_left = len(due) > most
        return self._drop(due[:most], DropReason.EXPIRED) if due else []

    def _drop(self, txids: Sequence[bytes], reason: DropReason) -> list[WalletEvent]:
        for txid in txids:
            record = self._graph.get(txid)
            if record is not None and txid in self._unconfirmed:
                self._number += 1
                self._graph.put(record._replace(dropped=Drop(reason, self._number)))
        return self._settle(txids)

    def take_refused(self) -> list[bytes]:
        """The txids and wtxids of transactions that found no room or were evicted since the last call."""
        taken, self._refused = self._refused, []
        return taken

    # Admission of foreign transactions

    def _admit(self, record: TxRecord, groups: Groups) -> list[bytes]:
        """Take a foreign unconfirmed transaction into the mempool layer or into the orphanage.

        Orphans that touch it follow. Returns the txids whose verdicts may change.
        """
        touched, waiting, met = list[bytes](), [Orphan(record, tuple(groups))], {record.txid}
        for orphan in waiting:  # grows while it is walked
            touched += self._admit_one(orphan.record, orphan.groups)
            if orphan.record.txid in self._unconfirmed:
                near = self.orphans.take_relatives(orphan.record)
                waiting += (each for each in near if each.record.txid not in met)
                met |= {each.record.txid for each in near}
        return touched

    def _admit_one(self, record: TxRecord, groups: Groups) -> list[bytes]:
        hits = self._match(record)
        if record.txid in self._graph or any(mark in self._confirmed for mark in hits):
            return []  # confirmed in a deep block
        if not hits and not self._graph.neighbours(record):
            self.orphans.put(Orphan(record, tuple(groups)))
            return []
        if len(hits) > self.pool.limits.matches or self._is_invalid(record):
            self._turn_away(record)
            return []
        self._unconfirmed[record.txid] = None
        self._graph.put(record)
        self._enter(record, groups)
        touched = [record.txid, *self._rematch_children(record.txid)]
        return touched + self._make_room(record, groups)

    def _adopt(self, record: TxRecord) -> list[bytes]:
        """Admit the orphans that touch a kept transaction; the txids whose verdicts may change."""
        orphans = self.orphans.take_relatives(record)
        return [txid for orphan in orphans for txid in self._admit(orphan.record, orphan.groups)]

    def _is_invalid(self, record: TxRecord) -> bool:
        """True if a transaction spends an output that its parent lacks, or pays more than its inputs have.

        Inputs with an unknown parent may have any value.
        """
        for outpoint in record.inputs:
            parent = self._graph.get(outpoint[:HASH_SIZE])
            if parent is not None and int.from_bytes(outpoint[HASH_SIZE:], "little") >= parent.outputs:
                return True
        made = dict[bytes, Transaction]()  # parents: each is parsed once
        total = 0
        for outpoint in record.inputs:
            txid, coin = outpoint[:HASH_SIZE], self.watch.table.coin(outpoint)
            if coin is not None and coin.value != NO_VALUE:
                total += coin.value
            elif (parent := self._graph.get(txid)) is None:
                return False
            else:
                if txid not in made:
                    made[txid] = Transaction.parse(parent.raw)
                at = made[txid].span.outputs[int.from_bytes(outpoint[HASH_SIZE:], "little")][0]
                total += int.from_bytes(parent.raw[at : at + 8], "little")
        return sum(output.value for output in Transaction.parse(record.raw).outputs) > total

    def _make_room(self, record: TxRecord, groups: Groups) -> list[bytes]:
        """Evict foreign transactions until all bounds hold; the txids whose verdicts may change."""
        touched, limits = list[bytes](), self.pool.limits
        if any(self._is_own(each) for each in self._graph.descendants(record.txid)):
            component = self._graph.component(record.txid, self._best).records
            pooled = [each for txid, each in component.items() if txid in self.pool]
            if len(pooled) <= limits.component and sum(len(each.raw) for each in pooled) <= limits.component_size:
                return []
            self._turn_away(record)  # own transactions that spend from it do without it
            children = self._graph.children(record.txid)
            self._remove(record.txid)
            return [record.txid, *self._rematch(children)]
        for outpoint in record.inputs:
            if len(self._graph.spenders(outpoint)) <= limits.spenders:
                continue
            rivals = self._foreign(self._graph.spenders(outpoint))
            for each in self._for_eviction(rivals, oldest=True)[: max(0, len(rivals) - limits.spenders)]:
                touched += self._evict(each.txid)
        while record.txid in self._unconfirmed:
            near = self._foreign(self._graph.component(record.txid, self._best).records)
            size = sum(len(each.raw) for each in near)
            if len(near) <= limits.component and size <= limits.component_size:
                break
            if not self._hits.get(record.txid):  # its children do without it
                self._remove(record.txid)
                touched.append(record.txid)
                break
            ancestors = {each.txid for each in self._graph.ancestors(record)}
            others = [each for each in near if each.txid not in ancestors]
            excess = max(len(near) - limits.component, 1)
            for each in self._for_eviction(others or near)[: (excess + 1) // 2]:
                if record.txid in self._unconfirmed:
                    touched += self._evict(each.txid)
        while self.pool.is_over and record.txid in self._unconfirmed:
            for txid in self.pool.evictable(groups):
                family, groups_of = self._graph.descendants(txid), self.pool.quota.groups_of
                is_kept = any(self._is_own(each) or groups_of(each) > groups_of(txid) for each in family)
                if record.txid not in family and not is_kept:
                    touched += self._evict(txid)
                    break
            else:
                touched += self._evict(record.txid)
        self.turned_away += record.txid not in self._unconfirmed
        return touched

    def _for_eviction(self, records: list[TxRecord], *, oldest: bool = False) -> list[TxRecord]:
        """Order records for eviction: transactions without a match first, then by ascending number of groups."""
        ordered = self.pool.fewest_groups(records, oldest=oldest)
        return sorted(ordered, key=lambda record: bool(self._hits.get(record.txid)))

    def _foreign(self, txids: Iterable[bytes]) -> list[TxRecord]:
        """The foreign unconfirmed records among these whose descendants are foreign, too."""
        found = (self._graph.get(txid) for txid in txids if txid in self.pool)
        return [
            record
            for record in found
            if record is not None and not any(self._is_own(each) for each in self._graph.descendants(record.txid))
        ]

    def _is_own(self, txid: bytes) -> bool:
        record = self._graph.get(txid)
        return record is not None and record.is_own

    def _turn_away(self, record: TxRecord) -> None:
        self.turned_away += 1
        self._refused += (record.txid, Transaction.parse(record.raw).wtxid)

    def _evict(self, txid: bytes) -> list[bytes]:
        """Remove a foreign transaction and its descendants; the txids whose verdicts may change."""
        touched = list[bytes]()
        for each in reversed(self._graph.descendants(txid)):
            record = self._graph.get(each)
            if record is None or each not in self._unconfirmed:
                continue
            near = sorted(self._graph.neighbours(record))
            self._refused += (each, Transaction.parse(record.raw).wtxid)
            self._remove(each)
            touched += (each, *(other for other in near if other in self._unconfirmed))
            for other in near:  # kept only for a link to the evicted one
                linked = self._graph.get(other) if other in self.pool and not self._hits.get(other) else None
                if linked is not None and not self._graph.neighbours(linked):
                    self._remove(other)
        return touched

    def _remove(self, txid: bytes) -> None:
        """Remove an unconfirmed record. `_settle` withdraws its matches and deletes its row."""
        self._graph.remove(txid)
        self._leave_unconfirmed(txid)

    def _leave_unconfirmed(self, txid: bytes) -> None:
        """Forget what is kept only about an unconfirmed transaction."""
        self._unconfirmed.pop(txid, None)
        self._hits.pop(txid, None)
        self._wtxids.pop(self._wtxid.pop(txid, b""), None)
        self._moved.discard(txid)
        self.pool.remove(txid)

    # Matching

    def _enter(self, record: TxRecord, groups: Groups = ()) -> None:
        """Match an unconfirmed record and note the room that it takes. Own outputs are watched from now on."""
        self._hits[record.txid] = hits = self._match(record)
        self._wtxids.pop(self._wtxid.pop(record.txid, b""), None)
        self._wtxid[record.txid] = wtxid = Transaction.parse(record.raw).wtxid
        self._wtxids[wtxid] = record.txid
        made = [hit for hit in hits.values() if not hit.spend]
        if record.is_own:
            self.watch.table.learn(made)
        else:
            self.pool.put(record, len(hits), groups)

    def _match(self, record: TxRecord) -> dict[Identity, Hit]:
        """The matches of an unconfirmed transaction: by the watch table, and by outputs of unconfirmed transactions."""
        hits = self.watch.table.scan_tx(record.raw)
        known = {identity(hit) for hit in hits}
        for n, outpoint in enumerate(record.inputs if record.fault is None else ()):
            parent, index = outpoint[:HASH_SIZE], int.from_bytes(outpoint[HASH_SIZE:], "little")
            made = self._hits.get(parent, _NO_HITS).get(Identity(False, parent, index))
            if made is not None and Identity(True, record.txid, n) not in known:
                hits.append(Hit(True, 0, record.txid, n, outpoint, made.value, made.script, made.entry))
        return {identity(hit): hit for hit in sorted(hits, key=lambda hit: (not hit.spend, hit.n))}

    def _rematch_children(self, txid: bytes) -> list[bytes]:
        """Match the unconfirmed children of a transaction again; their txids."""
        return self._rematch(self._graph.children(txid))

    def _rematch_spenders(self, outpoints: Iterable[bytes]) -> list[bytes]:
        return self._rematch(dict.fromkeys(txid for outpoint in outpoints for txid in self._graph.spenders(outpoint)))

    def _rematch(self, txids: Iterable[bytes]) -> list[bytes]:
        """Match unconfirmed transactions again; the txids whose verdicts may change.

        A foreign transaction that pays more than its inputs have, as far as they are known now, is evicted.
        """
        touched = list[bytes]()
        for txid in list(txids):
            record = self._graph.get(txid)
            if record is None or txid not in self._unconfirmed:
                continue
            touched.append(txid)
            if self._foreign([txid]) and self._is_invalid(record):
                touched += self._evict(txid)
            else:
                self._enter(record)
        return touched

    # Entries of the watch list

    def store_entries(
        self,
        entries: Sequence[tuple[EntryKind, bytes, str | None]],
        accounts: Mapping[bytes, str | None] | None = None,
    ) -> range:
        """Store new entries of the watch list, which gets them when they are stored; the ids of their rows.

        `accounts` has the accounts of entries, by their scripts.
        """
        first = self.blocks.add_entries(len(entries))
        owners = accounts or {}
        self.batch.entries += (NewEntry(row, *entry, owners.get(entry[1])) for row, entry in enumerate(entries, first))
        self.ids += (ids := range(first, first + len(entries)))
        self._are_blocks_changed = True
        return ids

    def relabel(self, labels: Mapping[int, str | None]) -> None:
        """Store labels of entries by number, and write the rows of transactions that no longer count with them."""
        self.batch.labels |= labels
        for txid, hits in self._hits.items():
            if any(hit.entry in labels for hit in hits.values()):
                self._write(txid)

    def store_account(self, plan: AccountPlan) -> None:
        """Store an account. The watch list gets it when it is stored."""
        self._seal()
        fresh = [script for script in plan.scripts() if self.watch.table.find(EntryKind.SCRIPT, script) == NO_ENTRY]
        entries = [*((EntryKind.SCRIPT, script, None) for script in fresh), *plan.entries]
        ids = self.store_entries(entries, {value: plan.name for _, value, _ in entries})
        rows = dict(zip(fresh, ids, strict=False))
        for keychain, window in plan.keychains:
            places = [
                (index, rows.get(script) or self.ids[self.watch.table.find(EntryKind.SCRIPT, script)])
                for index, scripts in enumerate(window)
                for script in scripts
            ]
            self.batch.keychains.append(KeychainChange(keychain.name, window=len(window), places=places))
        new = [NewKeychain(each.name, each.label, each.descriptor, each.lookahead, each.size) for each in plan.chains]
        claimed = self.watch.adopted_entries(plan)
        self.batch.accounts.append(AccountChange(plan.name, None, new, plan.adopted, claimed))
        self._write_hits_of(set(claimed))
        self._seal()

    def _write_hits_of(self, entries: Collection[int]) -> None:
        """Write the rows of unconfirmed transactions that match one of these entries."""
        for txid, hits in self._hits.items():
            if any(hit.entry in entries for hit in hits.values()):
                self._write(txid)

    def claim(self, account: str, entries: Sequence[int]) -> None:
        """Store that entries belong to an account. The watch list knows it already, or a moving window tells it."""
        self.batch.accounts.append(AccountChange(account, claimed=entries))
        self._write_hits_of(set(entries))

    def rename_account(self, old: str, new: str) -> None:
        """Rename an account. Raises UnknownAccountError, ParameterError."""
        self._seal()
        self.watch.renamed_account(old, new)
        self.batch.accounts.append(AccountChange(old, new))
        self._seal()

    def remove_account(self, name: str, tell: Callable[..., None]) -> None:
        """Remove an account with its entries and keychains; see `remove_entries`. Raises UnknownAccountError."""
        removed, stay = self.watch.entries_of_account(name)
        self.remove_entries(removed, tell, name, stay)

    def remove_entries(
        self, removed: Sequence[int], tell: Callable[..., None], account: str | None = None, stay: Sequence[int] = ()
    ) -> None:
        """Remove entries from the watch list, and the matches that no other entry matches.

        Args:
            removed: Numbers of the entries.
            tell: Called with the events, which belong into the commit of that change.
            account: Account that is removed with these entries.
            stay: Numbers of entries of the account that stay in the watch list.
        """
        self._seal()
        change = Renumbering(self.watch, removed, account)
        if account is not None:
            owners = [(number, change.account(number)) for number in stay]
            self.batch.accounts.append(AccountChange(account, is_removed=True, left=owners))
        moved, lost = change.confirmed(self._confirmed)
        for found in moved:
            self._changes.put_match(found)
        withdrawn = [MatchWithdrawn(self.match_of(found.hit, found), Reason.REMOVED) for found in lost]
        rows = dict[bytes, None]()
        for txid, hits in self._hits.items():
            counted = self._counted.get(txid, _NO_HITS)
            left = {mark: new for mark, hit in hits.items() if (new := change.hit(hit)) is not None}
            for mark, hit in counted.items():
                if mark in left:
                    self._changes.put_match(StoredMatch(change.under_old(left[mark]), None, None, _UNPROVEN))
                else:
                    withdrawn.append(MatchWithdrawn(self.match_of(hit), Reason.REMOVED))
                    self._changes.withdraw(mark)
            self._counted[txid] = {mark: left[mark] for mark in counted if mark in left}
            rows[txid] = None
            self._hits[txid] = left
        self.batch.removed = sorted(removed)
        for found in lost:
            self._changes.withdraw(identity(found.hit))
        self.watch.replace_with(change.left)
        self.ids = change.ids(self.ids)
        self.blocks.keep_entries(self.ids)
        self._are_blocks_changed = True
        left_txids = {found.hit.txid for found in self._confirmed}
        for txid in dict.fromkeys(found.hit.txid for found in lost if found.hit.txid not in left_txids):
            record = self._graph.get(txid)
            if record is not None and (record.is_own or self._graph.neighbours(record) & self._unconfirmed.keys()):
                self._write(txid)
                continue
            self._graph.remove(txid)
            self._verdicts.pop(txid, None)
            self.batch.transactions[txid] = None
        tell(*withdrawn[::-1])
        self._seal()
        for txid in list(rows):
            if (record := self._graph.get(txid)) is None:
                continue
            if txid in self.pool:
                self.pool.put(record, len(self._hits[txid]))
                if not self._hits[txid] and not self._graph.neighbours(record):
                    self._remove(txid)
                    self.orphans.put(Orphan(record, ()))
        tell(*self._settle(list(rows)))

    def entries_added(self) -> None:
        """Let `match_some` match unconfirmed transactions against new entries, a few at a time."""
        order = [record.txid for record in _parents_first(self._unconfirmed_records())]
        self._unmatched = dict.fromkeys(order or ([bytes(HASH_SIZE)] if len(self.orphans) else []))

    @property
    def is_match_due(self) -> bool:
        """True if `match_some` has transactions to match."""
        return bool(self._unmatched)

    def match_some(self, most: int = 20) -> list[WalletEvent]:
        """Match a few unconfirmed transactions against new entries; at last the orphans that no block can contain."""
        txids = list(self._unmatched)[:most]
        for txid in txids:
            del self._unmatched[txid]
        touched = self._rematch(txids)
        for orphan in self.orphans.take_all() if not self._unmatched else ():
            touched += self._admit(orphan.record, orphan.groups)
        return self._settle(touched)

    def _unconfirmed_records(self) -> dict[bytes, TxRecord]:
        return {record.txid: record for record in self.unconfirmed()}

    # Filters

    def bloom_elements(self) -> list[bytes]:
        """The elements of a BIP-37 filter: entries, outputs of blocks and of own transactions, and own inputs.

        Foreign unconfirmed transactions do not change it. Raises InexpressibleError.
        """
        return list(dict.fromkeys((*self.watch.bloom_elements(), *self._own_inputs())))

    def outpoint_elements(self) -> dict[bytes, None]:
        """The elements of a BIP-37 filter that are outpoints."""
        return dict.fromkeys((*(outpoint for outpoint, _ in self.watch.table.coins()), *self._own_inputs()))

    def _own_inputs(self) -> Iterator[bytes]:
        for txid, _ in self.own_unconfirmed():
            if (record := self._graph.get(txid)) is not None:
                yield from record.inputs

    # Verdicts

    def _with_border(self, component: Component) -> Component:
        """The component with the confirmed transactions that spend its inputs."""
        border = dict(component.border)
        for record in component.records.values():
            for outpoint in record.inputs:
                if outpoint in border:
                    continue
                confirmed = [each for each in self._graph.spenders(outpoint) if each not in self._unconfirmed]
                if (deep := self._confirmed.spender(outpoint)) is not None:
                    confirmed.append(deep)
                if confirmed:
                    border[outpoint] = min(confirmed)
        return Component(component.records, border)

    def _settle(
        self,
        touched: Iterable[bytes],
        disconnected: Mapping[Identity, StoredMatch] | None = None,
    ) -> list[WalletEvent]:
        """Judge the components of these transactions, and report and write every difference.

        Args:
            touched: Txids of records that changed or were removed.
            disconnected: Matches of disconnected blocks.
        """
        self._own = None
        verdicts = dict[bytes, Verdict]()
        rows = dict.fromkeys(touched)
        for txid in rows:
            if txid in verdicts or txid not in self._graph:
                continue
            is_confirmed = txid not in self._unconfirmed
            if is_confirmed:
                verdicts[txid] = _CONFIRMED
                if not self._unconfirmed:
                    continue
            component = self._graph.component(txid, self._best)
            if is_confirmed and component.records.keys() <= verdicts.keys():
                continue
            verdicts |= canonical(self._with_border(component), self._best)
        gone, found, replaced = list[WalletEvent](), list[WalletEvent](), list[WalletEvent]()
        for txid in [each for each in rows if each not in self._graph]:
            gone += self._report(txid, None, disconnected)
            self._verdicts.pop(txid, None)
            self.batch.transactions[txid] = None
        for txid in dict.fromkeys((*rows, *verdicts)):
            verdict, before = verdicts.get(txid), self._verdicts.get(txid)
            if verdict is None:
                continue
            self._verdicts[txid] = verdict
            for event in self._report(txid, verdict, disconnected):
                (gone if isinstance(event, MatchWithdrawn) else found).append(event)
            is_new = before is None or before.conflicts_with != verdict.conflicts_with
            if verdict.status is Status.REPLACED and is_new and verdict.conflicts_with is not None:
                replaced.append(TxReplaced(txid, verdict.conflicts_with))
            self.pool.note_ended(txid, is_ended=verdict.status not in _OPEN)
            if verdict != before or txid in rows:
                self._write(txid)
        return [*replaced, *gone, *found]

    def _report(
        self, txid: bytes, verdict: Verdict | None, disconnected: Mapping[Identity, StoredMatch] | None
    ) -> Iterator[WalletEvent]:
        """Yield events for the changes to the unconfirmed matches of a transaction since the last report."""
        counted = self._counted.get(txid, _NO_HITS)
        counts = verdict is not None and txid in self._unconfirmed and _counts(verdict)
        wanted = self._hits.get(txid, _NO_HITS) if counts else _NO_HITS
        if verdict is None:
            reason, by = Reason.SIZELIMIT, None
        else:
            reason, by = _REASONS.get(verdict.status, Reason.REORG), verdict.conflicts_with
            if verdict.status is Status.CONFLICTED and by is None:
                reason = Reason.REORG  # a coinbase, or a family that no block can contain
        for mark, hit in counted.items():
            if mark not in wanted:
                self._changes.withdraw(mark)
                yield MatchWithdrawn(self.match_of(hit), reason, by)
        for mark, hit in wanted.items():
            if mark not in counted:
                self._changes.put_match(StoredMatch(hit, None, None, _UNPROVEN))
                before = None if disconnected is None else disconnected.get(mark)
                if before is not None:
                    yield MatchUnconfirmed(self.match_of(before.hit, before))
                else:
                    yield MatchFound(self.match_of(hit))
        if wanted:
            self._counted[txid] = dict(wanted)
        else:
            self._counted.pop(txid, None)
        if wanted:
            self.watch.windows.see(hit for hit in wanted.values())

    def _write(self, txid: bytes) -> None:
        """Write the whole row of a transaction."""
        record, verdict = self._graph.get(txid), self._verdicts.get(txid)
        if record is None or verdict is None:
            return
        hits = self._hits.get(txid, _NO_HITS)
        anchor = record.anchor_in(self._best)
        is_listed = record.is_own or bool(hits) or (anchor is not None and self._confirmed.has_tx(txid))
        self.batch.transactions[txid] = row_of(
            record, self._status(txid), verdict.conflicts_with, anchor, tuple(hits.values()), is_listed=is_listed
        )


def _counts(verdict: Verdict) -> bool:
    """True if an unconfirmed transaction with this verdict counts toward the balance."""
    return verdict.status in (Status.CANONICAL, Status.CONFIRMED)


def _mark(event: MatchUnconfirmed) -> Identity:
    match = event.match
    return Identity(match.kind is MatchKind.INPUT, match.txid, match.index)


def _parents_first(records: Mapping[bytes, TxRecord]) -> list[TxRecord]:
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
