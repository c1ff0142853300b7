"""The wallet's books, without I/O. Their inputs are searched blocks, unconfirmed transactions and the user's calls.

Each input results in events, and in batches of changes to the database.

The books record facts about transactions, from which `canonical` computes which ones count. After each input, the books
compare the new verdicts with the previous ones; the differences become events and rows of the database.

All state is in memory. The books write to the database, but never read from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat

from spvfilter.kernel import Hit
from spvfilter.protocol import HASH_SIZE, MEMPOOL_EXPIRY_S
from spvfilter.store.batch import AccountChange, Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.ledger import StoredMatch
from spvfilter.store.searched import Searched
from spvfilter.transaction import Transaction
from spvfilter.wallet.bookentries import Entries
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.changes import Changes
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
    TxReplaced,
    WalletEvent,
)
from spvfilter.wallet.facts import Facts, parents_first
from spvfilter.wallet.hits import Hits
from spvfilter.wallet.intake import Intake, Verify
from spvfilter.wallet.judgement import Judgement
from spvfilter.wallet.netgroupquota import Groups
from spvfilter.wallet.orphanage import Orphan
from spvfilter.wallet.parts import Parts, counted, pieces, whole
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.reports import Reports
from spvfilter.wallet.saved import Filtered, SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.searches import Searches
from spvfilter.wallet.txgraph import DropReason, LatestDrop, TxRecord
from spvfilter.wallet.txrows import TxRows
from spvfilter.watch.accounts import AccountPlan
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.match import MatchKind
from spvfilter.watch.silentsearch import Payment
from spvfilter.watch.watchlist import WatchList

KEPT_DEPTH = 300
"""Number of blocks below the searched height whose transactions stay in memory for reorganizations (our choice)."""
_FORGOTTEN_AT_ONCE = 1_000
"""Largest number of transactions in deeper blocks to forget with each new block (our choice)."""


class Books:
    """Matches, transactions and the search cursor of one wallet.

    Each input is a method here, and each part of the books owns its state. An input changes facts, and `_settle`
    computes everything else from them. The parts never call the books.
    """

    def __init__(
        self, watch: WatchList, saved: SavedBooks, limits: PendingLimits | None = None, verify: Verify | None = None
    ) -> None:
        """Load the books. If `verify` is None, signatures are not checked."""
        self.watch: TxOutIndex = watch.index
        """The watch list's index, which learns outpoints only from blocks and from the wallet's own transactions."""
        self._changes = Changes(self.watch)
        self.searches: Searches = Searches(self._changes, saved)
        """The cursor of the search."""
        self.entries: Entries = Entries(self.watch, self._changes, self.searches, saved.ids)
        """The watch list's entries in the database."""
        self.facts: Facts = Facts()
        """Records of transactions, and matches in blocks."""
        self.hits: Hits = Hits(self.watch, self.facts)
        """Matches of unconfirmed transactions."""
        self.judgement: Judgement = Judgement(self.facts)
        """Verdicts on transactions."""
        self.intake: Intake = Intake(self.facts, self.hits, self.judgement, self.searches, limits, verify)
        """Foreign unconfirmed transactions, and the limits on them."""
        self.reports: Reports = Reports(self.watch, self.facts, self.hits, self._changes)
        """Unconfirmed matches that have been reported."""
        self._rows = TxRows(self.facts, self.hits, self.judgement, self._changes)
        self.filtered: Filtered = Filtered()
        """Counts of the transactions that peers filtered."""
        self.is_window_due: bool = False
        """True if a confirmed payment requires more scripts of a keychain than are watched."""
        self.is_expiry_left: bool = False
        """True if the last call to `expire` left transactions for the next one."""
        self.seeks_double_spends: bool = False
        """True if a rescan looks for double-spends of all pending payments, even old payments."""
        self._unmatched: dict[bytes, None] = {}  # txids of records that are still to be matched against new entries
        self.opening: list[WalletEvent] = self._load(saved)
        """Events for differences between the stored verdicts and the stored facts, for example after a migration."""

    def _load(self, saved: SavedBooks) -> list[WalletEvent]:
        facts = self.facts
        for txid, row in saved.transactions.items():
            facts.load(txid, row)
            self.judgement.load(txid, row)
        for found in saved.matches:
            if found.block_hash is None:
                self.reports.load(found.hit)
            else:
                facts.confirm(found)
        for component in facts.graph.components(facts.best):
            for record in parents_first(component.records):
                self.intake.enter(record)
        return self._settle([*self.intake.verify_returned(self.intake.pool), *facts.without_block])

    def _settle(
        self, touched: Iterable[bytes], disconnected: Mapping[Identity, StoredMatch] | None = None
    ) -> list[WalletEvent]:
        """Judge the components of these transactions, and report and write every difference.

        Args:
            touched: Txids of records that have changed or have been removed.
            disconnected: Matches in disconnected blocks.
        """
        return whole(self._settling(touched, disconnected))

    def _settling(
        self, touched: Iterable[bytes], disconnected: Mapping[Identity, StoredMatch] | None = None
    ) -> Parts[list[WalletEvent]]:
        judgement, verdicts = self.judgement, dict[bytes, Verdict]()
        if rows := dict.fromkeys(touched):
            judgement.begin()
        expired = set[bytes]()
        for txid, is_stop in counted(tuple(rows)):
            if is_stop:
                yield
            if (component := judgement.component_of(txid, verdicts)) is None:
                continue
            for record in self.intake.drop_unlinked(component):
                rows[record.txid] = None
                if record.active_drop is not None:
                    expired.add(record.txid)
            verdicts |= judgement.judge(component)
            yield
        gone, found, replaced = list[WalletEvent](), list[WalletEvent](), list[WalletEvent]()
        for txid in [each for each in rows if each not in self.facts.graph]:
            removed = Reason.EXPIRED if txid in expired else Reason.SIZELIMIT
            for event in self.reports.report(txid, None, disconnected, removed):
                gone.append(event)
                yield
            judgement.forget(txid)
            self._changes.remove_tx(txid)
            judgement.note_own(txid)
        for txid in dict.fromkeys((*rows, *verdicts)):
            verdict, before = verdicts.get(txid), judgement.verdict(txid)
            if verdict is None:
                continue
            judgement.put(txid, verdict)
            for event in self.reports.report(txid, verdict, disconnected):
                (gone if isinstance(event, MatchWithdrawn) else found).append(event)
                yield
            is_new = before is None or before.conflicts_with != verdict.conflicts_with
            if verdict.status is Status.REPLACED and is_new and verdict.conflicts_with is not None:
                replaced.append(TxReplaced(txid, verdict.conflicts_with))
            self.intake.note_verdict(txid, verdict)
            if verdict != before or txid in rows:
                self._rows.write(txid)
                yield
        return [*replaced, *gone, *found]

    # The database

    def take_batches(self) -> list[Batch]:
        """Return the changes since the last call, in the order in which they must be committed."""
        return self._changes.take()

    @property
    def batch(self) -> Batch:
        """The changes that have not been committed yet."""
        return self._changes.batch

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
        """The blocks that have been searched for each entry."""
        return self.searches.blocks

    def matches(self) -> Iterator[MatchFound]:
        """Yield every match that counts: confirmed matches by ascending height, then unconfirmed matches."""
        yield from (
            MatchFound(self.reports.match_of(found.hit, found), found.completeness) for found in self.facts.confirmed
        )
        for txid in self.facts.without_block:
            yield from (MatchFound(self.reports.match_of(hit)) for hit in self.reports.counted(txid).values())

    @property
    def waiting_matches(self) -> int:
        """Number of transactions that match and are waiting for more evidence."""
        return sum(map(self.hits.is_match, self.judgement.waiting))

    def positions_at(self, height: int) -> dict[int, bytes]:
        """Return the txids of matched transactions in the block at a height, keyed by their position in it."""
        return {found.hit.position: found.hit.txid for found in self.facts.confirmed.at(height)}

    # Searching blocks

    def connect(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        """Record the block above the cursor, with the hits in it."""
        return whole(self.connect_in_parts(block, hits))

    def connect_in_parts(self, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[list[WalletEvent]]:
        """Do the same as `connect`, in parts. The cursor moves with the last part."""
        assert block.height == self.searches.cursor + 1
        self.watch.table.learn(hits)
        self.filtered.note(block, hits)
        events: list[WalletEvent] = [BlockConnected(block.height, block.hash)]
        touched = yield from self._anchor_all(block, hits)
        positions = {hit.position: hit.txid for hit in hits}
        for position, branch in block.branches_at(positions).items():
            self._changes.put_branch(positions[position], block.hash, branch)
        # the other hits are known from an earlier search, or belong to a coinbase that two blocks contain (BIP-30)
        for piece in pieces(hits):
            new = {mark: hit for hit in piece if (mark := identity(hit)) not in self.facts.confirmed}
            made = self.watch.matches(
                new.values(),
                block_hash=block.hash,
                height=block.height,
                time=block.time,
                completeness=block.completeness,
            )
            for (mark, hit), match in zip(new.items(), made, strict=True):
                found = StoredMatch(hit, block.hash, block.height, block.completeness, block.time)
                self.facts.confirm(found)
                self._changes.put_match(found)
                kind = MatchConfirmed if self.reports.confirm(mark) else MatchFound
                events.append(kind(match, block.completeness))
                yield
            if self.watch.windows.note(piece):
                self.is_window_due = True
            yield from repeat(None, len(piece) // 2)
        for txid, is_stop in counted(touched):
            self.intake.leave(txid)
            if is_stop:
                yield
        learned = [hit.outpoint for hit in hits if not hit.spend]
        touched += self.intake.rematch_spenders(learned) if self.facts.without_block else ()
        touched += self.intake.admit_spenders(learned)
        events += yield from self._settling(touched)
        self.connect_empty(block.height)
        self._forget_deep()
        return events

    def _anchor_all(self, block: ScannedBlock, hits: Sequence[Hit]) -> Parts[list[bytes]]:
        """Add the block to the records of its transactions that match or are linked to an unconfirmed transaction."""
        positions, touched = {hit.position: hit.txid for hit in hits}, list[bytes]()
        if not self.facts.without_block:
            raws = block.txs_at(positions)
            for at, txid in positions.items():
                self.facts.anchor_at(FoundTx(at, raws[at]), txid, block)
                touched.append(txid)
                yield
            return touched
        for (found, inputs), is_stop in counted(block.inputs()):
            found_txid = positions.get(found.position)
            if found_txid is None and any(self.facts.graph.spenders(outpoint) for outpoint in inputs):
                found_txid = Transaction.parse(found.raw).txid
            if found_txid is not None:
                self.facts.anchor_at(found, found_txid, block)
                touched.append(found_txid)
            if found_txid is not None or is_stop:
                yield
        return touched

    def _forget_deep(self) -> None:
        """Forget foreign records in deep blocks, unless they are linked to an unconfirmed transaction."""
        for txid in self.facts.forget_deep(self.searches.searched - KEPT_DEPTH, KEPT_DEPTH, _FORGOTTEN_AT_ONCE):
            self.judgement.forget(txid)
            if not self.facts.confirmed.has_tx(txid):
                self._changes.remove_tx(txid)  # it was kept only because of a conflict

    def add_payments(self, payments: Iterable[Payment]) -> list[bytes]:
        """Store and watch the scripts of silent payments in the next block, and return the new scripts.

        Every earlier block counts as searched for these scripts, because no earlier transaction pays them.
        """
        return [script for payment in payments if (script := self.entries.store_payment(*payment)) is not None]

    def connect_empty(self, height: int, filtered: int = 0) -> None:
        """Record that the blocks above the cursor, up to a height, do not involve the wallet.

        Args:
            height: Height of the last of these blocks.
            filtered: Number of transactions in these blocks that peers filtered.
        """
        self.filtered.txs += filtered
        self.searches.record(height)

    def mark_proven(self, height: int) -> None:
        """Upgrade matches in blocks up to a height from Completeness.ONE_PEER to PROVEN."""
        for found in self.facts.prove(height):
            self._changes.put_match(found)

    # The chain

    def extend(self, headers: bytes) -> None:
        """Store headers (80 bytes each) that follow the stored ones."""
        self._changes.extend(headers)
        self.intake.orphans.note_block()

    def disconnect(self, fork: int, hashes: Sequence[bytes], headers: bytes, now: int) -> list[WalletEvent]:
        """Disconnect the blocks above height `fork`, and store the headers that replace them.

        Their transactions become unconfirmed again. A coinbase and its descendants are conflicted until a block
        contains them.

        Args:
            fork: Height of the last common block.
            hashes: Hashes of the disconnected blocks, lowest block first.
            headers: Headers of the new blocks, 80 bytes each.
            now: The current Unix time.
        """
        self._changes.disconnect(fork, headers)
        self.intake.orphans.note_block()
        lost = {height: self.facts.take_matches(height) for height in range(fork + len(hashes), fork, -1)}
        was_searched = self.searches.searched
        back, returned = self.facts.disconnect(fork, now)
        self.searches.disconnect(fork)
        rows = self.intake.lower(fork)
        for record in returned:
            self.intake.enter(record)
            rows += self.intake.adopt(record)
        rows += self.intake.verify_returned([*back, *(record.txid for record in returned)])
        before = {identity(found.hit): found for each in lost.values() for found in each}
        events = self._settle([*back, *rows], before)
        moved = {_mark(event): event for event in events if isinstance(event, MatchUnconfirmed)}
        told = list[WalletEvent]()
        for height, found in lost.items():
            for each in reversed(found):
                event = moved.get(identity(each.hit))
                told.append(event or MatchWithdrawn(self.reports.match_of(each.hit, each), Reason.REORG))
            if height <= was_searched or found:
                told.append(BlockDisconnected(height, hashes[height - fork - 1]))
        return [*told, *(event for event in events if not isinstance(event, MatchUnconfirmed))]

    def change_filters(self, change: CompactFilterBatch) -> None:
        """Store filter hashes and filters."""
        self._changes.change_filters(change)

    # Unconfirmed transactions

    def observe(self, raw: bytes, now: int, *, groups: Groups = (), quorum: int = 1) -> list[WalletEvent]:
        """Record a transaction that peers in these network groups announced or sent. Raises FormatError.

        Args:
            raw: The transaction.
            now: The current Unix time.
            groups: The network groups of these peers.
            quorum: Number of network groups that must announce the transaction before it counts.
        """
        return whole(self.observe_in_parts(raw, now, groups=groups, quorum=quorum))

    def observe_in_parts(
        self, raw: bytes, now: int, *, groups: Groups = (), quorum: int = 1
    ) -> Parts[list[WalletEvent]]:
        """Do the same as `observe`, in parts."""
        fresh = TxRecord.parse(raw)
        txid, record = fresh.txid, self.facts.record(fresh.txid)
        if record is not None:
            events = yield from self.announce_in_parts(txid, groups, quorum=quorum)
            is_revived = record.active_drop in (DropReason.REJECTED, DropReason.EXPIRED)
            if is_revived and self.facts.is_without_block(txid):
                return [*events, *(yield from self._observe_again(txid, now))]
            return events
        number = self.facts.next_number()
        is_enough = len({*groups}) >= quorum or quorum <= 1
        record = fresh._replace(
            first_seen=now,
            first_height=self.searches.first_height,
            expires_at=now + MEMPOOL_EXPIRY_S,
            last_seen=number,
        ).announced(groups)
        if txid in self.intake.orphans:
            self.intake.orphans.announce(txid, groups, quorum, number)
        if record.fault is not None or txid in self.intake.orphans:
            return []
        if is_enough:
            record = record._replace(counts_since=number)
        return (yield from self._settling(self.intake.admit(Orphan(record, tuple(groups)))))

    def announce(self, txid: bytes, groups: Groups, *, quorum: int = 1) -> list[WalletEvent]:
        """Record that peers in these network groups announced a foreign unconfirmed transaction.

        It counts once `quorum` network groups have announced it, and its known ancestors count with it.
        """
        return whole(self.announce_in_parts(txid, groups, quorum=quorum))

    def announce_in_parts(self, txid: bytes, groups: Groups, *, quorum: int = 1) -> Parts[list[WalletEvent]]:
        """Do the same as `announce`, in parts."""
        record = self.facts.record(txid)
        if record is None or txid not in self.intake.pool:
            return []
        self.intake.pool.quota.announce(txid, groups)
        announced = record.announced(groups)
        if announced.has_evidence or (announced == record and quorum > 1):
            return []
        self.facts.put(announced)
        if len(announced.announced_by) < quorum:
            self._rows.write(txid)
            return []
        self.facts.next_number()
        return (yield from self._settling(self.facts.give_evidence(txid)))

    def requested(self, txid: bytes) -> list[WalletEvent]:
        """Record that a peer requested or announced one of our transactions. It then outranks every earlier one."""
        record = self.facts.record(txid)
        if record is None or not record.is_own or record.was_requested or txid not in self.facts.without_block:
            return []
        self.facts.put(record._replace(was_requested=True))
        return self._settle([txid])

    def observe_again(self, txid: bytes, now: int) -> list[WalletEvent]:
        """Record another observation of a transaction, which then outranks foreign transactions seen earlier."""
        return whole(self._observe_again(txid, now))

    def _observe_again(self, txid: bytes, now: int) -> Parts[list[WalletEvent]]:
        record = self.facts.record(txid)
        if record is None or txid not in self.facts.without_block:
            return []
        self.facts.put(record._replace(last_seen=self.facts.next_number()).renewed(now))
        return (yield from self._settling([txid]))

    def announce_later(self, txid: bytes, now: int) -> list[WalletEvent]:
        """Record that a peer announced a transaction that does not count.

        The announcement counts as a new observation, unless the transaction has already had a second one.
        """
        return whole(self.announce_later_in_parts(txid, now))

    def announce_later_in_parts(self, txid: bytes, now: int) -> Parts[list[WalletEvent]]:
        """Do the same as `announce_later`, in parts."""
        record = self.facts.record(txid)
        if record is None or record.is_renewed or record.is_own or self.judgement.is_pending(txid):
            return []
        return (yield from self._observe_again(txid, now))

    def broadcast(self, raw: bytes, now: int) -> list[WalletEvent]:
        """Record that this wallet broadcast a transaction that `check_broadcast` accepts. Raises FormatError.

        Ancestors that expired or were rejected are revived with it, as are inactive ancestors that spend from them.
        """
        fresh = TxRecord.parse(raw)
        known = self.facts.record(fresh.txid)
        record = fresh._replace(first_height=self.searches.first_height) if known is None else known.with_witness(raw)
        if known is not None and not known.is_own and known.has_evidence:
            record = record._replace(was_requested=True)  # peers have it
        if self.facts.is_confirmed(record.txid):
            return []
        ancestors = self.intake.ancestors(record).values()
        revived = [
            each for each in ancestors if each.txid in self.facts.graph and self.judgement.is_inactive(each.txid)
        ]
        for each in parents_first({each.txid: each for each in (*revived, record)}):
            number, is_own = self.facts.next_number(), each.txid == record.txid or each.is_own
            each = each._replace(
                broadcast_seq=number if is_own else None,
                last_seen=each.last_seen if is_own else number,
                first_seen=now if each.first_seen is None else each.first_seen,
                expires_at=now + MEMPOOL_EXPIRY_S,
            )
            self.intake.enter(each)
        touched = [record.txid, *(each.txid for each in revived), *self.intake.rematch_children(record.txid)]
        touched += self.intake.adopt(record)
        return self._settle([*touched, *self.facts.give_evidence(record.txid)])

    def abandon(self, txid: bytes, *, is_unsent: bool = False) -> list[WalletEvent]:
        """Abandon one of our unconfirmed transactions (see `check_abandon`), and our own versions that it replaced.

        If `is_unsent` is True, no peer can have it, so the versions that it replaced count again.
        """
        if is_unsent:
            return self._drop([txid], DropReason.ABANDONED)
        record = self.facts.record(txid)
        assert record is not None
        is_waiting = self.judgement.is_waiting(txid)  # and has replaced nothing
        spent = () if is_waiting else record.inputs
        others = {other for outpoint in spent for other in self.facts.spenders(outpoint)} - {txid}
        earlier = [
            other
            for other in others
            if (each := self.facts.record(other)) is not None
            and 0 < (each.broadcast_seq or 0) < (record.broadcast_seq or 0)
        ]
        return self._drop([txid, *earlier], DropReason.ABANDONED)

    def reject(self, txid: bytes) -> list[WalletEvent]:
        """Record that every peer that received one of our transactions has rejected it."""
        return self._drop([txid], DropReason.REJECTED)

    def expire(self, now: int, began: int = 0, proven: int = 1 << 62, most: int = 20) -> list[WalletEvent]:
        """Expire transactions that have been unconfirmed for 336 hours.

        Args:
            now: The current Unix time.
            began: When this run began. A transaction from before the run expires only if `proven` has also reached its
                expiry time.
            proven: Median time of the latest blocks.
            most: Largest number of transactions to expire.
        """
        due = [
            record.txid
            for record in self.facts.unconfirmed()
            if record.expires_at <= now
            and record.active_drop is None
            and not (record.is_own and self.judgement.is_inactive(record.txid))
            and (record.expires_at - MEMPOOL_EXPIRY_S >= began or record.expires_at <= proven)
            and (
                record.is_own or not any(map(self.judgement.is_announceable, self.facts.graph.descendants(record.txid)))
            )
        ]
        self.is_expiry_left = len(due) > most
        return self._drop(due[:most], DropReason.EXPIRED) if due else []

    def _drop(self, txids: Sequence[bytes], reason: DropReason) -> list[WalletEvent]:
        for txid in txids:
            record = self.facts.record(txid)
            if record is not None and self.facts.is_without_block(txid):
                self.facts.put(record._replace(dropped=LatestDrop(reason, self.facts.next_number())))
        return self._settle(txids)

    # Entries of the watch list

    def relabel(self, labels: Mapping[int, str | None]) -> None:
        """Store labels, keyed by entry number, and update them in rows of transactions that no longer count."""
        self._changes.relabel(labels)
        self._write_uncounted(labels)

    def _write_uncounted(self, labels: Collection[int]) -> None:
        """Write the rows of transactions that do not count and match one of these entries."""
        self._rows.write_all(filter(self.reports.is_uncounted, self.hits.of_entries(labels)))

    def store_account(self, plan: AccountPlan) -> None:
        """Store an account. Add it to the watch list only once it has been stored."""
        self._changes.seal()
        labels, claimed = self.entries.store_account(plan)
        self._write_uncounted(labels)
        self._rows.write_all(self.hits.of_entries(set(claimed)))
        self._changes.seal()

    def claim(self, account: str, entries: Sequence[int]) -> None:
        """Record that entries belong to an account.

        The watch list already knows this, or learns it when a window moves.
        """
        self._changes.change_account(AccountChange(account, claimed=entries))
        self._rows.write_all(self.hits.of_entries(set(entries)))

    def remove_entries(self, change: Renumbering, tell: Callable[..., None]) -> None:
        """Remove entries from the watch list, along with their matches unless another entry matches as well.

        Args:
            change: The current watch list without the entries, or without an account.
            tell: Function to call with the events, which are committed together with the removal.
        """
        whole(self.remove_entries_in_parts(change, tell))

    def remove_entries_in_parts(self, change: Renumbering, tell: Callable[..., None]) -> Parts[None]:
        """Do the same as `remove_entries`, in parts."""
        self._changes.seal()
        yield from change.take_coins(self.watch)
        moved, lost = yield from self.facts.renumber(change)
        for found in moved:
            self._changes.put_match(found)
        withdrawn = list[MatchWithdrawn]()
        for found in lost:
            withdrawn.append(MatchWithdrawn(self.reports.match_of(found.hit, found), Reason.REMOVED))
            yield
        left = {
            txid: {mark: new for mark, hit in hits.items() if (new := change.hit(hit)) is not None}
            for txid, hits in self.hits.items()
        }
        withdrawn += self.reports.renumber(change, left)
        self.hits.replace(left)
        for found in lost:
            self._changes.withdraw(identity(found.hit))
        self.entries.remove(change)
        self.watch.replace_with(change.left)
        yield from self._forget_lost(dict.fromkeys(found.hit.txid for found in lost))
        for piece in pieces(withdrawn[::-1]):
            tell(*piece)
            yield from repeat(None, len(piece))
        self._changes.seal()
        for txid in left:
            self.intake.enter_again(txid)
        for told in pieces((yield from self._settling(list(left)))):
            tell(*told)
            yield from repeat(None, len(told))

    def _forget_lost(self, txids: Iterable[bytes]) -> Parts[None]:
        """Forget confirmed transactions that no longer match an entry, unless unconfirmed ones need them."""
        facts = self.facts
        for txid, is_stop in counted(txids):
            if is_stop:
                yield
            if facts.confirmed.has_tx(txid):
                continue
            record = facts.record(txid)
            if record is not None and (record.is_own or facts.graph.neighbours(record) & facts.without_block.keys()):
                self._rows.write(txid)
                continue
            facts.remove(txid)
            self.judgement.forget(txid)
            self._changes.remove_tx(txid)

    def entries_added(self) -> None:
        """Record that entries were added, so that `match_some` matches unconfirmed transactions against them."""
        self._unmatched = dict.fromkeys(
            self.facts.without_block or ([bytes(HASH_SIZE)] if len(self.intake.orphans) else [])
        )

    @property
    def is_match_due(self) -> bool:
        """True if there are transactions for `match_some` to match."""
        return bool(self._unmatched) or self.intake.due_groups is not None

    def match_some(self, most: int = 20) -> list[WalletEvent]:
        """Match a few unconfirmed transactions, and after the last of them the recent orphans, against new entries.

        If a stored transaction had too many related orphans for one step, the rest of them are also admitted here.
        """
        return whole(self.match_some_in_parts(most))

    def match_some_in_parts(self, most: int = 20) -> Parts[list[WalletEvent]]:
        """Do the same as `match_some`, in parts."""
        txids = list(self._unmatched)[:most]
        before = {txid: self.hits.of(txid) for txid in txids}
        for txid in txids:
            del self._unmatched[txid]
        touched = self.intake.rematch(txids)
        changed = [txid for txid, hits in before.items() if self.hits.of(txid) != hits]
        self._unmatched |= dict.fromkeys(child for txid in changed for child in self.facts.graph.children(txid))
        if txids and not self._unmatched:
            self.intake.match_orphans()
        return (yield from self._settling([*touched, *self.intake.admit_due()]))

    # Filters

    def bloom_elements(self) -> list[bytes]:
        """Return the elements of a BIP-37 filter. Raises InexpressibleError.

        They are the entries, the known outputs, and the inputs of the wallet's own pending transactions. Foreign
        unconfirmed transactions never change them.
        """
        return list(dict.fromkeys((*self.watch.bloom_elements(), *self._own_inputs())))

    def outpoint_elements(self) -> dict[bytes, None]:
        """Return those elements of a BIP-37 filter that are outpoints."""
        return dict.fromkeys((*(outpoint for outpoint, _ in self.watch.table.coins()), *self._own_inputs()))

    def _own_inputs(self) -> Iterator[bytes]:
        for record in self.judgement.own_records():
            if self.judgement.is_announceable(record.txid):
                yield from record.inputs


def _mark(event: MatchUnconfirmed) -> Identity:
    match = event.match
    return Identity(match.kind is MatchKind.INPUT, match.txid, match.index)
