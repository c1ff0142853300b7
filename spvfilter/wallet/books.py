"""The wallet's books, without I/O. Inputs are searched blocks, unconfirmed transactions and calls of the user.

The results of an input are events, and batches of changes for the database.

The books record facts about transactions. `canonical` computes from the facts which transactions count. After each
input the books compare the verdicts with the verdicts before it: the difference gives events and rows of the database.

All state is in memory. The books write to the database and never read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice

from spvfilter.kernel import Hit
from spvfilter.protocol import HASH_SIZE, MEMPOOL_EXPIRY_S
from spvfilter.store.batch import AccountChange, Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.ledger import StoredMatch
from spvfilter.store.searched import Searched
from spvfilter.transaction import Transaction
from spvfilter.wallet.bookentries import Entries
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.confirmed import Identity, identity
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    Reason,
    WalletEvent,
)
from spvfilter.wallet.facts import NO_HITS, parents_first
from spvfilter.wallet.intake import Verify
from spvfilter.wallet.netgroupquota import Groups
from spvfilter.wallet.orphanage import Orphan
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.rows import record_of, status_of
from spvfilter.wallet.saved import Filtered, SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.searches import Searches
from spvfilter.wallet.settlement import CONFIRMED, UNPROVEN, Settlement
from spvfilter.wallet.txgraph import Anchor, Drop, DropReason, TxRecord
from spvfilter.watch.accounts import AccountPlan
from spvfilter.watch.match import MatchKind
from spvfilter.watch.watchlist import WatchList

KEPT_DEPTH = 300
"""Blocks below the searched height whose transactions are kept in memory for reorganizations (our choice)."""
_INACTIVE = (Status.ABANDONED, Status.REJECTED, Status.EXPIRED)


class Books(Settlement):
    """Matches, transactions and the search cursor of one wallet."""

    def __init__(
        self, watch: WatchList, saved: SavedBooks, limits: PendingLimits | None = None, verify: Verify | None = None
    ) -> None:
        """Load the books.

        Without `verify`, signatures are not checked.
        """
        super().__init__(watch, limits, verify)
        self.searches: Searches = Searches(self._changes, saved)
        self.entries: Entries = Entries(watch, self._changes, self.searches, saved.ids)
        self.filtered: Filtered = Filtered()
        """Counts of the transactions that peers filtered."""
        self.is_window_due: bool = False
        """True if a confirmed payment requires more scripts of a keychain than are watched."""
        self.is_expiry_left: bool = False
        """True if the last call of `expire` left transactions for the next one."""
        self._questioned: dict[bytes, None] = {}  # outpoints whose spends a rescan by BIP-37 looks for
        self._unmatched: dict[bytes, None] = {}  # txids of records to be matched against new entries
        self._deep: list[tuple[int, bytes]] = []  # heap of heights and txids of confirmed foreign records
        self.opening: list[WalletEvent] = self._load(saved)
        """Events of the difference between the database and its facts, such as after a migration."""

    def _load(self, saved: SavedBooks) -> list[WalletEvent]:
        for txid, row in saved.transactions.items():
            record = record_of(row)
            self._number = max(self._number, record.last_seen, record.broadcast_seq or 0, row.dropped_seq)
            self._number = max(self._number, record.counts_since or 0)
            self._graph.put(record)
            if row.height is not None and row.block_hash is not None:
                self._best.connect(row.height, row.block_hash)
            else:
                self._unconfirmed[txid] = None
        for found in saved.matches:
            if found.block_hash is None:
                self._counted.setdefault(found.hit.txid, {})[identity(found.hit)] = found.hit
            else:
                self._confirmed.add(found)
        for component in self._graph.components(self._best):
            for record in parents_first(component.records):
                self._enter(record)
        for txid, row in saved.transactions.items():
            if txid not in self._unconfirmed:
                self._note_deep(txid)
                self._verdicts[txid] = CONFIRMED
            else:
                self._verdicts[txid] = Verdict(status_of(row.status), row.conflicts_with)
        spends = [txid for txid in self.pool if any(hit.spend for hit in self._hits[txid].values())]
        return self._settle([*(self._rematch(spends) if self._verify is not None else ()), *self._unconfirmed])

    # The database

    def take_batches(self) -> list[Batch]:
        """The changes since the last call, in the order in which they must be committed."""
        return self._changes.take()

    # Queries

    @property
    def cursor(self) -> int:
        """Height up to which blocks have been searched."""
        return self.searches.cursor

    @property
    def searched(self) -> int:
        """Height up to which blocks had been searched before the cursor moved back for new entries."""
        return self.searches.searched

    @property
    def blocks(self) -> Searched:
        """Blocks that were searched for each entry."""
        return self.searches.blocks

    def matches(self) -> Iterator[MatchFound]:
        """Every match that counts: confirmed ones in ascending height, then unconfirmed ones."""
        yield from (MatchFound(self.match_of(found.hit, found), found.completeness) for found in self._confirmed)
        for txid in self._unconfirmed:
            yield from (MatchFound(self.match_of(hit)) for hit in self._counted.get(txid, NO_HITS).values())

    def positions_at(self, height: int) -> dict[int, bytes]:
        """The positions of matched transactions in the block at a height, with their txids."""
        return {found.hit.position: found.hit.txid for found in self._confirmed.at(height)}

    # Searching blocks

    def connect(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        """Record the block above the cursor, with the hits in it."""
        assert block.height == self.searches.cursor + 1
        self.watch.table.learn(hits)
        self.filtered.note(block, hits)
        events: list[WalletEvent] = [BlockConnected(block.height, block.hash)]
        touched = self._anchor_all(block, hits)
        positions = {hit.position: hit.txid for hit in hits}
        for position, branch in block.branches_at(positions).items():
            self._changes.put_branch(positions[position], block.hash, branch)
        # the other hits are known from an earlier search, or belong to a coinbase that two blocks contain (BIP-30)
        new = {mark: hit for hit in hits if (mark := identity(hit)) not in self._confirmed}
        made = self.watch.matches(
            new.values(),
            block_hash=block.hash,
            height=block.height,
            time=block.time,
            completeness=block.completeness,
        )
        for (mark, hit), match in zip(new.items(), made, strict=True):
            found = StoredMatch(hit, block.hash, block.height, block.completeness, block.time)
            self._confirmed.add(found)
            self._changes.put_match(found)
            is_pending = mark in self._counted.get(hit.txid, NO_HITS)
            events.append((MatchConfirmed if is_pending else MatchFound)(match, block.completeness))
            if is_pending:
                del self._counted[hit.txid][mark]
        if hits and self.watch.windows.note(hits):
            self.is_window_due = True
        for txid in touched:
            self._leave_unconfirmed(txid)
        learned = [hit.outpoint for hit in hits if not hit.spend]
        touched += self._rematch_spenders(learned) if self._unconfirmed else ()
        for orphan in self.orphans.take_spenders(learned):
            touched += self._admit(orphan)
        events += self._settle(touched)
        self.connect_empty(block.height)
        self._forget_deep()
        return events

    def _anchor_all(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[bytes]:
        """Note the block in the records of its transactions that match or that touch an unconfirmed transaction."""
        positions = {hit.position: hit.txid for hit in hits}
        if not self._unconfirmed:
            raws = block.txs_at(positions)
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
        self._wtxids.pop(record.wtxid, None)
        if anchor not in record.anchors or record.txid in self._unconfirmed:
            self._number += 1
            anchors = record.anchors | {anchor}
            since = self._number if record.counts_since is None else record.counts_since
            record = record._replace(anchors=anchors, last_seen=self._number, dropped=None, counts_since=since)
            record = record if record.is_own else record.with_witness(found.raw)  # an own transaction keeps its witness
        self._best.connect(block.height, block.hash)
        self._graph.put(record)
        self._give_evidence(txid)
        self._note_deep(txid)
        return txid

    def _note_deep(self, txid: bytes) -> None:
        record = self._graph.get(txid)
        if record is not None and not record.is_own and (anchor := record.anchor_in(self._best)) is not None:
            heappush(self._deep, (anchor.height, txid))

    def _forget_deep(self) -> None:
        """Forget foreign records of deep blocks, unless an unconfirmed transaction touches them."""
        limit = self.searches.searched - KEPT_DEPTH
        while self._deep and self._deep[0][0] <= limit:
            _, txid = heappop(self._deep)
            record = self._graph.get(txid)
            if record is None or txid in self._unconfirmed or record.is_own:
                continue
            family = [record, *self._graph.ancestors(record)] if self._unconfirmed else []
            if any(self._graph.neighbours(each) & self._unconfirmed.keys() for each in family):
                heappush(self._deep, (limit + KEPT_DEPTH, txid))  # looked at again later
                continue
            self._graph.remove(txid)
            self._verdicts.pop(txid, None)
            if not self._confirmed.has_tx(txid):
                self._changes.remove_tx(txid)  # it was kept only as a conflict

    def connect_empty(self, height: int, filtered: int = 0) -> None:
        """Note that the blocks above the cursor, up to a height, contain nothing of the wallet.

        Args:
            height: The height.
            filtered: Number of transactions that peers filtered in these blocks.
        """
        self.filtered.txs += filtered
        self.searches.record(height)

    def mark_proven(self, height: int) -> None:
        """Set matches in blocks up to a height from Completeness.ONE_PEER to PROVEN."""
        for found in self._confirmed.prove(height):
            self._changes.put_match(found)

    # The chain

    def extend(self, headers: bytes) -> None:
        """Store headers (80 bytes each) that follow the stored ones."""
        self._changes.extend(headers)
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
        self._changes.disconnect(fork, headers)
        self.orphans.note_block()
        lost = {height: self._confirmed.take(height) for height in range(fork + len(hashes), fork, -1)}
        was_searched = self.searches.searched
        confirmed = [record.txid for record in self._graph if record.txid not in self._unconfirmed]
        back = [txid for txid in confirmed if (at := self.anchor(txid)) is not None and at.height > fork]
        self._best.disconnect_to(fork)
        self.searches.disconnect(fork)
        returned, returned_rows = [], list[bytes]()
        for txid in back:
            record = self._graph.get(txid)
            assert record is not None
            if record.anchor_in(self._best) is None:
                returned.append(txid)
                self._graph.put(record._replace(first_height=min(record.first_height, fork)).renewed(now))
        for record in list(self.unconfirmed()):
            if record.first_height > fork:
                self._graph.put(record._replace(first_height=fork))
                self.pool.note_changed(record.txid)
                returned_rows.append(record.txid)
        for record in parents_first({txid: self._graph.get(txid) for txid in returned}):  # type: ignore[misc]
            self._unconfirmed[record.txid] = None
            self._enter(record)
            returned_rows += self._adopt(record)
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

    def change_filters(self, change: CompactFilterBatch) -> None:
        """Store filter hashes and filters."""
        self._changes.change_filters(change)

    # Unconfirmed transactions

    def observe(self, raw: bytes, now: int, *, groups: Groups = (), quorum: int = 1) -> list[WalletEvent]:
        """Record a transaction that peers of these network groups announced or sent. Raises FormatError.

        Args:
            raw: The transaction.
            now: Seconds since 1970.
            groups: The network groups.
            quorum: It counts once this many network groups have announced it.
        """
        fresh = TxRecord.parse(raw)
        txid, record = fresh.txid, self._graph.get(fresh.txid)
        if record is not None:
            events = self.announce(txid, groups, quorum=quorum)
            is_revived = record.active_drop in (DropReason.REJECTED, DropReason.EXPIRED)
            return [*events, *self.observe_again(txid, now)] if is_revived and txid in self._unconfirmed else events
        self._number += 1
        is_enough = len({*groups}) >= quorum or quorum <= 1
        record = fresh._replace(
            first_seen=now,
            first_height=self.searches.first_height,
            expires_at=now + MEMPOOL_EXPIRY_S,
            last_seen=self._number,
        ).announced(groups)
        if txid in self.orphans:
            self.orphans.announce(txid, groups, quorum, self._number)
        if record.fault is not None or txid in self.orphans:
            return []
        if is_enough:
            record = record._replace(counts_since=self._number)
        return self._settle(self._admit(Orphan(record, tuple(groups))))

    def announce(self, txid: bytes, groups: Groups, *, quorum: int = 1) -> list[WalletEvent]:
        """Record that peers of these network groups announced a foreign unconfirmed transaction.

        It counts once `quorum` network groups have announced it, and its known ancestors count with it.
        """
        record = self._graph.get(txid)
        if record is None or txid not in self.pool:
            return []
        self.pool.quota.announce(txid, groups)
        announced = record.announced(groups)
        if announced.has_evidence or (announced == record and quorum > 1):
            return []
        self._graph.put(announced)
        if len(announced.announced_by) < quorum:
            self._write(txid)
            return []
        self._number += 1
        return self._settle(self._give_evidence(txid))

    def requested(self, txid: bytes) -> list[WalletEvent]:
        """Record that a peer requested or announced an own transaction. It then outranks every earlier broadcast."""
        record = self._graph.get(txid)
        if record is None or not record.is_own or record.was_requested or txid not in self._unconfirmed:
            return []
        self._graph.put(record._replace(was_requested=True))
        return self._settle([txid])

    def observe_again(self, txid: bytes, now: int) -> list[WalletEvent]:
        """Record a later observation of an unconfirmed transaction: it outranks foreign ones seen before it."""
        record = self._graph.get(txid)
        if record is None or txid not in self._unconfirmed:
            return []
        self._number += 1
        self._graph.put(record._replace(last_seen=self._number).renewed(now))
        return self._settle([txid])

    def announce_later(self, txid: bytes, now: int) -> list[WalletEvent]:
        """Record that a peer announced a transaction after its conflict, which moves its observation at most once."""
        record = self._graph.get(txid)
        if record is None or record.is_renewed or record.is_own or self.is_pending(txid):
            return []
        return self.observe_again(txid, now)

    def broadcast(self, raw: bytes, now: int) -> list[WalletEvent]:
        """Record a broadcast by this wallet, of a transaction that `check_broadcast` accepts. Raises FormatError.

        Ancestors that expired or were rejected, and inactive ancestors that spend from these, are revived with it.
        """
        fresh = TxRecord.parse(raw)
        known = self._graph.get(fresh.txid)
        record = fresh._replace(first_height=self.searches.first_height) if known is None else known.with_witness(raw)
        if known is not None and not known.is_own and known.has_evidence:
            record = record._replace(was_requested=True)  # peers have it
        if self.is_confirmed(record.txid):
            return []
        if known is not None:
            self._wtxids.pop(known.wtxid, None)
        inactive = (each for each in self._graph.ancestors(record) if self._verdicts[each.txid].status in _INACTIVE)
        revived = list(inactive)
        for each in parents_first({each.txid: each for each in (*revived, record)}):
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
        touched += self._adopt(record)
        return self._settle([*touched, *self._give_evidence(record.txid)])

    def abandon(self, txid: bytes) -> list[WalletEvent]:
        """Abandon an own unconfirmed transaction (`check_abandon`) and the own versions that it replaced."""
        record = self._graph.get(txid)
        assert record is not None
        is_waiting = self._verdicts[txid].status is Status.WAITING  # and has replaced nothing
        spent = () if is_waiting else record.inputs
        others = {other for outpoint in spent for other in self.spenders(outpoint)} - {txid}
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
            most: Largest number of transactions to drop.
        """
        due = [
            record.txid
            for record in self.unconfirmed()
            if record.expires_at <= now
            and record.active_drop is None
            and not (record.is_own and self._verdicts[record.txid].status in _INACTIVE)
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

    # Entries of the watch list

    def relabel(self, labels: Mapping[int, str | None]) -> None:
        """Store labels of entries by number, and write the rows of transactions that no longer count with them."""
        self._changes.relabel(labels)
        self._write_uncounted(labels)

    def _write_uncounted(self, labels: Collection[int]) -> None:
        """Write the rows of transactions that do not count and match one of these entries."""
        for txid, hits in self._hits.items():
            if txid not in self._counted and any(hit.entry in labels for hit in hits.values()):
                self._write(txid)

    def store_account(self, plan: AccountPlan) -> None:
        """Store an account. The watch list gets it when it is stored."""
        self._changes.seal()
        labels, claimed = self.entries.store_account(plan)
        self._write_uncounted(labels)
        self._write_hits_of(set(claimed))
        self._changes.seal()

    def _write_hits_of(self, entries: Collection[int]) -> None:
        """Write the rows of unconfirmed transactions that match one of these entries."""
        for txid, hits in self._hits.items():
            if any(hit.entry in entries for hit in hits.values()):
                self._write(txid)

    def claim(self, account: str, entries: Sequence[int]) -> None:
        """Store that entries belong to an account. The watch list knows it already, or a moving window tells it."""
        self._changes.change_account(AccountChange(account, claimed=entries))
        self._write_hits_of(set(entries))

    def remove_entries(self, change: Renumbering, tell: Callable[..., None]) -> None:
        """Remove entries from the watch list, and the matches that no other entry matches.

        Args:
            change: The present watch list without the entries, or without an account.
            tell: Called with the events, which belong into the commit of that change.
        """
        self._changes.seal()
        change.take_coins(self.watch)
        moved, lost = change.confirmed(self._confirmed)
        for found in moved:
            self._changes.put_match(found)
        withdrawn = [MatchWithdrawn(self.match_of(found.hit, found), Reason.REMOVED) for found in lost]
        rows, gone = dict[bytes, None](), list[Hit]()
        for txid, hits in self._hits.items():
            counted = self._counted.get(txid, NO_HITS)
            left = {mark: new for mark, hit in hits.items() if (new := change.hit(hit)) is not None}
            for mark, hit in counted.items():
                if mark in left:
                    self._changes.put_match(StoredMatch(change.under_old(left[mark]), None, None, UNPROVEN))
                else:
                    gone.append(hit)
                    self._changes.withdraw(mark)
            self._counted[txid] = {mark: left[mark] for mark in counted if mark in left}
            rows[txid] = None
            self._hits[txid] = left
        withdrawn += (MatchWithdrawn(match, Reason.REMOVED) for match in self.watch.matches(gone))
        for found in lost:
            self._changes.withdraw(identity(found.hit))
        self.entries.remove(change)
        self.watch.replace_with(change.left)
        for txid in dict.fromkeys(found.hit.txid for found in lost if not self._confirmed.has_tx(found.hit.txid)):
            record = self._graph.get(txid)
            if record is not None and (record.is_own or self._graph.neighbours(record) & self._unconfirmed.keys()):
                self._write(txid)
                continue
            self._graph.remove(txid)
            self._verdicts.pop(txid, None)
            self._changes.remove_tx(txid)
        tell(*withdrawn[::-1])
        self._changes.seal()
        for txid in list(rows):
            if (record := self._graph.get(txid)) is None:
                continue
            if txid in self.pool:
                self.pool.put(record, len(self._hits[txid]))
        tell(*self._settle(list(rows)))

    def entries_added(self) -> None:
        """Let `match_some` match unconfirmed transactions against new entries, a few at a time."""
        self._unmatched = dict.fromkeys(self._unconfirmed or ([bytes(HASH_SIZE)] if len(self.orphans) else []))

    @property
    def is_match_due(self) -> bool:
        """True if `match_some` has transactions to match."""
        return bool(self._unmatched)

    def match_some(self, most: int = 20) -> list[WalletEvent]:
        """Match a few unconfirmed transactions against new entries, and after the last of them the recent orphans."""
        txids = list(self._unmatched)[:most]
        before = {txid: self._hits.get(txid) for txid in txids}
        for txid in txids:
            del self._unmatched[txid]
        touched = self._rematch(txids)
        changed = [txid for txid, hits in before.items() if self._hits.get(txid) != hits]
        self._unmatched |= dict.fromkeys(child for txid in changed for child in self._graph.children(txid))
        for orphan in self.orphans.take_all() if not self._unmatched else ():
            touched += self._admit(orphan)
        return self._settle(touched)

    # Filters

    def bloom_elements(self) -> list[bytes]:
        """The elements of a BIP-37 filter: entries, outputs of blocks and of own transactions, and own inputs.

        Foreign unconfirmed transactions change it only by `question_pending`. Raises InexpressibleError.
        """
        return list(dict.fromkeys((*self.watch.bloom_elements(), *self._own_inputs(), *self._questioned)))

    def question_pending(self, most: int) -> None:
        """Add up to `most` outpoints that foreign unconfirmed transactions spend to the filters of this run.

        A search then also finds double spends that pay only other people. They decide about these transactions.
        """
        foreign = (record for record in self.unconfirmed() if not record.is_own and record.has_evidence)
        spent = (outpoint for record in foreign for outpoint in record.inputs)
        self._questioned = dict.fromkeys(islice(spent, most))

    def outpoint_elements(self) -> dict[bytes, None]:
        """The elements of a BIP-37 filter that are outpoints."""
        return dict.fromkeys((*(outpoint for outpoint, _ in self.watch.table.coins()), *self._own_inputs()))

    def _own_inputs(self) -> Iterator[bytes]:
        for record in self.own_records():
            if self.is_announceable(record.txid):
                yield from record.inputs


def _mark(event: MatchUnconfirmed) -> Identity:
    match = event.match
    return Identity(match.kind is MatchKind.INPUT, match.txid, match.index)
