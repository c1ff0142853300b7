"""The wallet's books, sans-IO: searched blocks and unconfirmed transactions in, events and batches for the database
out.

All state is in memory; the database is told and never asked. An unconfirmed transaction is kept with every outpoint it
spends, not only the wallet's: any confirmed transaction that spends one of them conflicts with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

from spvfilter.kernel import EntryKind, Hit
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.batch import Batch, NewEntry
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.keychains import KeychainChange
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.searched import Searched
from spvfilter.transaction import Transaction
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.confirmed import ConfirmedMatches
from spvfilter.wallet.counting import Counting
from spvfilter.wallet.endings import Ending, Endings
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
    WalletEvent,
)
from spvfilter.wallet.invented import InventedOutpoints
from spvfilter.wallet.kept import KEPT_DEPTH, KeptTransactions, confirmed, filter_elements, outpoint_elements
from spvfilter.wallet.saved import Filtered, SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.wallet.sent import renumbered
from spvfilter.wallet.unconfirmed import MAX_SPARED, Unconfirmed, identity, made_by, why_impossible
from spvfilter.wallet.words import Groups
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList


class Books:
    """Matches, unconfirmed transactions and the search cursor of one wallet.

    `watch` learns outpoints from what is recorded.
    """

    def __init__(self, watch: WatchList, saved: SavedBooks) -> None:
        self.watch = watch
        self.cursor: int = saved.cursor  # height up to which blocks have been searched
        # height up to which they had been before the cursor moved back for new entries
        self.searched: int = saved.searched
        # which were searched for which entries; since the batch has them
        self.blocks: Searched = saved.blocks
        self._are_blocks_changed = False
        self.ids: list[int] = list(saved.ids)  # of the entries' rows in the database, by number
        self.filtered: Filtered = Filtered()
        self._changes = Changes()
        self._confirmed = ConfirmedMatches()
        self._kept = KeptTransactions(saved.transactions)
        self.ended: Endings = Endings(saved.ended, saved.transactions, saved.lost)
        unconfirmed = [each.hit for each in saved.matches if each.block_hash is None]
        self.batch.transactions |= (changed := renumbered(saved.unconfirmed))
        self.unconfirmed: Unconfirmed = Unconfirmed({**saved.unconfirmed, **changed}, unconfirmed, saved.last_sent)
        watch.table.learn(unconfirmed)
        self.is_window_due: bool = False  # whether a confirmed use asks for more scripts of a keychain than are watched
        theirs = (hit.outpoint for hit in unconfirmed if not (hit.spend or hit.txid in self.unconfirmed.sent))
        self._invented = InventedOutpoints(watch, theirs)
        self._counting = Counting(watch, self.unconfirmed, self._invented, self._changes)
        for found in saved.matches:
            if found.block_hash is not None:
                self._remember(found)

    @property
    def batch(self) -> Batch:
        """The changes that are not committed yet."""
        return self._changes.batch

    def take_batches(self) -> list[Batch]:
        """The changes since the last call, in the order in which they must be committed."""
        self._complete()
        return self._changes.take()

    def _seal(self) -> None:
        """What follows must be applied after all changes so far."""
        self._complete()
        self._changes.seal()

    def _complete(self) -> None:
        self.batch.keychains += (KeychainChange(name, used) for name, used in self.watch.windows.take_fresh().items())
        if self._are_blocks_changed:
            self._are_blocks_changed, self.batch.searched = False, self.blocks.encode()

    def _remember(self, found: StoredMatch) -> None:
        self._confirmed.add(found)
        if found.hit.spend:
            self._kept.spend(found.hit)
        else:
            self._invented.discard(found.hit.outpoint)

    def match_of(self, hit: Hit, at: StoredMatch | None = None) -> Match:
        """The match of a hit, `at` its place in a block."""
        block, height, sure, time = (None,) * 4 if at is None else at[1:]
        return self.watch.matches((hit,), block_hash=block, height=height, time=time, completeness=sure)[0]

    def matches(self) -> Iterator[MatchFound]:
        """Every match: confirmed ones in ascending height, then unconfirmed ones."""
        yield from (MatchFound(self.match_of(found.hit, found), found.completeness) for found in self._confirmed)
        for txid in self.unconfirmed.pending:
            yield from (MatchFound(self.match_of(hit)) for hit in self.unconfirmed.hits(txid).values())

    def has_tx(self, txid: bytes) -> bool:
        """Whether a transaction is pending or a recent block has it."""
        return txid in self.unconfirmed.pending or txid in self._kept

    def in_block(self, txid: bytes) -> StoredTx | None:
        """A transaction of the wallet's that a recent block has, or None."""
        return self._kept.get(txid)

    def positions_at(self, height: int) -> dict[int, bytes]:
        """The positions of matched transactions in the block at a height, with their txids."""
        return {found.hit.position: found.hit.txid for found in self._confirmed.at(height)}

    def own_unconfirmed(self) -> list[tuple[bytes, bytes]]:
        """Unconfirmed transactions that we broadcast (txid, raw), parents first, but for those that we replaced
        ourselves.
        """
        return [
            (txid, self.unconfirmed.pending[txid].raw)
            for txid in self.unconfirmed.parents_first(self.unconfirmed.sent.wanted)
        ]

    def spender_of(self, tx: Transaction) -> bytes | None:
        """The txid of another, confirmed transaction of the wallet's that spends what a transaction spends, or None."""
        return self._kept.spender_of(tx)

    def rival_of(self, tx: Transaction) -> bytes | None:
        """The txid of an unconfirmed transaction of others that counts and keeps one of ours from counting, or None."""
        return self._counting.rival_of(tx)

    # Searching blocks

    def connect(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        """Record the block above the cursor, with the hits in it."""
        assert block.height == self.cursor + 1
        self.watch.table.learn(hits)
        events: list[WalletEvent] = [BlockConnected(block.height, block.hash)]
        self.filtered.note(block, hits)
        events += self._record(block, hits)
        self.connect_empty(block.height)
        for height in dict.fromkeys(self._kept.let_go(self.searched - KEPT_DEPTH)):
            for found in self._confirmed.at(height):
                if found.hit.spend:
                    self._kept.spend(found.hit)
        return events

    def _record(self, block: ScannedBlock, hits: Sequence[Hit]) -> Iterator[WalletEvent]:
        fresh: list[Hit] = []
        for hit in hits:
            mark = identity(hit)
            if mark in self._confirmed:
                continue  # known from an earlier search, or of a coinbase that two blocks contain (BIP-30)
            fresh.append(hit)
            was_pending = mark in self.unconfirmed.hits(hit.txid)
            found = StoredMatch(hit, block.hash, block.height, block.completeness, block.time)
            self._remember(found)
            self.batch.matches.append(found)
            match = self.match_of(hit, found)
            yield (MatchConfirmed if was_pending else MatchFound)(match, block.completeness)
        if hits and self.watch.windows.note(hits):
            self.is_window_due = True
        if fresh:
            self._keep_transactions(block, fresh)
        if self.unconfirmed.pending or self.ended.has_own:
            yield from self._resolve(block)
        yield from self._follow_coins(made_by(hits))
        for coinbase in dict.fromkeys(hit.txid for hit in fresh if hit.position == 0 and not hit.spend):
            for tx in self.ended.regain(coinbase, self.batch):
                yield from self._bring_back(tx, tx.since or 0, tx)

    def _keep_transactions(self, block: ScannedBlock, hits: Iterable[Hit]) -> None:
        """Keep matched transactions: a reorganisation makes them unconfirmed again, but for coinbases."""
        raws = block.by_position()
        for hit in hits:
            if hit.txid not in self._kept:
                self._keep(hit.txid, FoundTx(hit.position, raws[hit.position]), block)

    def _keep(self, txid: bytes, found: FoundTx, block: ScannedBlock) -> None:
        kept = confirmed(self.unconfirmed.pending.get(txid) or self.ended.own(txid), found, block)
        self.ended.forget(txid)
        self.batch.transactions[txid] = kept
        if found.position:
            self._kept.keep(txid, kept)

    def _resolve(self, block: ScannedBlock) -> Iterator[WalletEvent]:
        """Transactions of the block are no longer pending; unconfirmed ones that conflict with them end.

        Either kind spends an outpoint that an unconfirmed transaction spends. One that we broadcast is kept, though
        nothing of it is ours, and though it had ended.
        """
        freed: list[bytes] = []
        for found, inputs in block.inputs():
            rivals = [txid for outpoint in inputs for txid in self.unconfirmed.spenders(outpoint)]
            if rivals or self.ended.may_be(inputs):
                tx = Transaction.parse(found.raw)
                before = self.unconfirmed.pending.get(tx.txid) or self.ended.own(tx.txid)
                if before is not None and before.own and tx.txid not in self._kept:
                    self._keep(tx.txid, found, block)
                if self.unconfirmed.remove(tx.txid) is not None and tx.txid not in self._kept:
                    self.batch.transactions[tx.txid] = None
                freed += map(tx.outpoint, range(len(tx.span.outputs)))
                end = Ending(TxStatus.CONFLICTED, Reason.CONFLICT, block.height, block.hash, tx.txid)
                for rival in dict.fromkeys(rivals):
                    if rival != tx.txid:
                        yield from self._end(rival, end, freed)
        yield from self._counting.after_ends(freed)

    def rewind(self, height: int) -> None:
        """Move the cursor back: what was found in blocks above `height` is in doubt, and they are searched again."""
        self.blocks.cut(max(height, -1))
        self._are_blocks_changed = True
        self.search_again(height)

    def doubt(self, height: int) -> None:
        """What was found in blocks from a height on is in doubt: those that were searched for any entry are searched
        again, none below.
        """
        lowest = self.blocks.lowest
        first = self.cursor + 1 if lowest is None else min(lowest, self.cursor + 1)
        self.rewind(max(height, first) - 1)

    def search_again(self, height: int) -> None:
        """Move the cursor back, so that blocks above `height` are searched again; what was found in them stands."""
        if height < self.cursor:
            self.blocks.again(max(height, -1), self.cursor)
            self._move_cursor(max(height, -1))

    def skip_to(self, height: int) -> None:
        """Begin a new wallet's search above a height."""
        self._move_cursor(height)

    def connect_empty(self, height: int, filtered: int = 0) -> None:
        """The blocks above the cursor, up to a height, were searched: nothing in them is ours.

        Peers filtered so many transactions.
        """
        self.filtered.txs += filtered
        self.blocks.record(self.cursor + 1, height)
        self._move_cursor(height)

    def begin_at(self, height: int | None, wanted: tuple[int | None, int | None] | None = None) -> None:
        """The wallet's search begins there; None: it will begin at a height or a birthday, the lower one, that is
        `wanted`.
        """
        self.blocks.start, self.blocks.wanted, self._are_blocks_changed = height, wanted, True

    def _move_cursor(self, height: int) -> None:
        self.cursor = self.batch.cursor = height
        self.searched = max(self.searched, height)
        self._are_blocks_changed = True

    def mark_proven(self, height: int) -> None:
        """Set matches in blocks up to a height from Completeness.ONE_PEER to PROVEN."""
        self.batch.matches += self._confirmed.prove(height)

    # The chain

    def extend(self, headers: bytes) -> None:
        """Store headers (80 bytes each) that follow the stored ones."""
        self.batch.headers += headers
        self.unconfirmed.unmatched.block_came()

    def disconnect(self, fork: int, hashes: Sequence[bytes], headers: bytes, now: int) -> list[WalletEvent]:
        """Take back the blocks above height `fork`, whose hashes are given lowest first, and store the headers that
        replace them.

        Their transactions are unconfirmed again, except for coinbases and what spends from them.
        """
        self._seal()
        self.batch.fork, self.batch.headers = fork, headers
        self.unconfirmed.unmatched.block_came()
        events, returning = list[WalletEvent](), list[StoredTx]()
        end, freed = Ending(TxStatus.CONFLICTED, Reason.REORG, fork), list[bytes]()
        gone: set[bytes] = set()  # txids that no block can contain any more
        for height in range(fork + len(hashes), fork, -1):
            lost = self._confirmed.take(height)
            for found in reversed(lost):
                self._kept.take_back(found.hit)
                if found.hit.position == 0 and not found.hit.spend:  # a coinbase cannot return, nor can its descendants
                    gone.add(found.hit.txid)
                    self.ended.lose(found.hit.txid, self.batch)
                    for child in self.unconfirmed.spenders(found.hit.outpoint):
                        events += self._end(child, end, freed)
                events.append(MatchWithdrawn(self.match_of(found.hit, found), Reason.REORG))
            if height <= self.searched or lost:
                events.append(BlockDisconnected(height, hashes[height - fork - 1]))
            txids = self._kept.at(height, (found.hit.txid for found in lost))
            returning += (kept for txid in reversed(txids) if (kept := self._forget_tx(txid)) is not None)
        self.cursor, self.searched = min(self.cursor, fork), min(self.searched, fork)
        self.blocks.cut(fork)
        self._are_blocks_changed = True
        # parents first; what was in a block was seen last
        for kept in [*self.ended.undone(fork, self.batch), *reversed(returning)]:
            tx = Transaction.parse(kept.raw)
            if any(outpoint[:32] in gone for outpoint in tx.inputs):
                gone.add(tx.txid)
                self.ended.put(tx.txid, end.of(kept._replace(since=now), ()), self.batch)
                for child in (
                    each
                    for index in range(len(tx.span.outputs))
                    for each in self.unconfirmed.spenders(tx.outpoint(index))
                ):
                    events += self._end(child, end, freed)
            else:
                events += self._bring_back(kept, now, end.of(kept._replace(since=now), ()))
        return [*events, *self._counting.come_back(freed)]

    def _bring_back(self, kept: StoredTx, since: int, otherwise: StoredTx) -> Iterator[WalletEvent]:
        """What was in a block, or in conflict with one, is unconfirmed again; of ours something is kept, `otherwise` as
        what has ended.
        """
        tx, seen = Transaction.parse(kept.raw), since if kept.seen is None else kept.seen
        yield from self._add(tx, seen, since, kept.own, (), moves_all=kept.own > 0 or kept.status is TxStatus.CONFIRMED)
        yield from self._add_late()
        if kept.own and not self.has_tx(tx.txid) and tx.txid not in self.ended:
            self.ended.put(tx.txid, otherwise, self.batch)

    def _forget_tx(self, txid: bytes) -> StoredTx | None:
        if (kept := self._kept.forget(txid)) is not None:
            self.batch.transactions[txid] = None
        return kept

    def change_filters(self, change: CompactFilterBatch) -> None:
        """Store filter hashes and filters."""
        if self.batch.compact_filters is not None and change.fork is not None:
            self._seal()
        known = self.batch.compact_filters
        self.batch.compact_filters = change if known is None else known.extended(change)

    # Unconfirmed transactions

    def add_unconfirmed(
        self, raw: bytes, now: int, *, own: bool = False, seen: int | None = None, words: Groups = ()
    ) -> list[WalletEvent]:
        """Record an unconfirmed transaction, `own` or on the `words` of groups, first `seen` now or earlier.

        Raises FormatError.
        """
        number = self.unconfirmed.sent.next_number() if own else 0
        return [
            *self._add(Transaction.parse(raw), now if seen is None else seen, now, number, words),
            *self._add_late(),
        ]

    def _add_late(self) -> Iterator[WalletEvent]:
        """Transactions whose parents have become known, as many as may be looked at now."""
        while (late := self.unconfirmed.unfinished.take_late()) is not None:
            yield from self._add(Transaction.parse(late.raw), late.since, late.since, own=0, words=(), age=late.age)
        self._invented.trim(lambda txid: txid in self.unconfirmed.pending or txid in self.ended)

    def go_on(self) -> list[WalletEvent]:
        """Do some of what is `unfinished`."""
        if (expired := self.unconfirmed.unfinished.take_expired()) is not None:
            return self._expire(*expired)
        if (found := self.unconfirmed.unfinished.take_match()) is not None:
            txid, hits = found
            events, made = self._counting.record(
                hits if hits and self.unconfirmed.is_live(txid) else self._counting.hits_of(txid)
            )
            self.unconfirmed.follow(made)
            return events
        return list(self._add_late())

    def _add(  # noqa: C901
        self,
        tx: Transaction,
        seen: int,
        since: int,
        own: int,
        words: Groups,
        age: int | None = None,
        *,
        moves_all: bool = False,
    ) -> list[WalletEvent]:
        before = self.unconfirmed.pending.get(tx.txid)
        if before is not None:
            if own > before.own:
                before = self.batch.transactions[tx.txid] = before._replace(raw=tx.raw, own=own)
                self.unconfirmed.replace(tx.txid, before)
                self.unconfirmed.words.forget(tx.txid)
                for outpoint in self.unconfirmed.outpoints(tx.txid):
                    self._invented.discard(outpoint)
            return self.see_again(tx.txid) if own else []
        if why_impossible(tx) is not None:
            return []
        hits = self.watch.table.scan_tx(tx.raw)
        if tx.txid in self._kept or any(identity(hit) in self._confirmed for hit in hits):
            return []  # confirmed already
        spender = self.spender_of(tx)
        if spender is not None:
            if hits:
                made = StoredTx(tx.raw, TxStatus.PENDING, own, seen, since)
                self.ended.put_conflict(tx.txid, made, hits, spender, self._kept.get(spender), self.batch)
            return []
        was = None if own else self.ended.own(tx.txid)  # ours, which had expired or was refused, and now others have it
        contest = self.unconfirmed.contest(tx, own=own > 0 or was is not None, moves_all=moves_all)
        later = None if age is None or contest is None else self.unconfirmed.seen_after(tx, age, contest)
        if contest is None and own:
            # it would move too much, which anybody may have invented: it is kept as a rival, and offered
            later = self.rival_of(tx)
        is_ruled_out = self.ended.rules_out(tx, own=own > 0)
        if not hits and not own and was is None:
            self.unconfirmed.set_aside(tx, since, age)
            if contest is None or contest.revived or later is not None:
                return []
            freed = self.unconfirmed.inputs_of(contest.displaced)
            events = [*self._counting.displace(contest.displaced, tx.txid), *self._counting.come_back(freed)]
            self.unconfirmed.trim(contest.displaced, self.batch)
            return events
        crowded_out = [] if own or was is not None else self.unconfirmed.crowded_out(tx, words)
        if (contest is None and later is None) or is_ruled_out or crowded_out is None:
            return []
        if crowded_out:
            gone = self._end_all(crowded_out, TxStatus.EXPIRED, Reason.SIZELIMIT)
            return gone + self._add(tx, seen, since, own, words, age, moves_all=moves_all)
        spending = self.unconfirmed.spending(tx) if later is not None else set()
        if spending is None:
            return []
        self.ended.forget(tx.txid)
        tx, own = (tx, own) if was is None else (Transaction.parse(was.raw), was.own)
        made = StoredTx(tx.raw, TxStatus.PENDING, own, seen, since)
        if later is not None:
            made = self.batch.transactions[tx.txid] = made._replace(
                status=TxStatus.REPLACED, rival=later, hits=tuple(hits)
            )
        self.unconfirmed.add(tx, made, age)
        if not own:
            self.unconfirmed.rest(tx.txid, words)
        if later is not None:
            return self._counting.stand_back(tx.txid, spending, later)
        assert contest is not None
        return self._counting.count(tx.txid, contest, hits, age)

    def see_again(self, txid: bytes) -> list[WalletEvent]:
        """A transaction is known to have come after what replaced it: it counts again."""
        pending = self.unconfirmed.pending.get(txid)
        if pending is None or self.unconfirmed.is_live(txid):
            return []
        contest = self.unconfirmed.contest(Transaction.parse(pending.raw), own=pending.own > 0)
        return [] if contest is None else self._counting.count(txid, contest)

    def _follow_coins(self, made: Iterable[bytes]) -> Iterator[WalletEvent]:
        """Match unconfirmed transactions that spend outputs which a block has taught."""
        outpoints = list(made)
        for outpoint in outpoints:
            yield from self._counting.rescan(self.unconfirmed.spenders(outpoint))
        self.unconfirmed.follow(outpoints)
        yield from self._add_late()

    def store_entries(self, entries: Sequence[tuple[EntryKind, bytes, str | None]]) -> range:
        """Store new entries of the watch list, which gets them when they are stored; the ids of their rows."""
        first = self.blocks.add_entries(len(entries))
        self.batch.entries += (NewEntry(row, *entry) for row, entry in enumerate(entries, first))
        self.ids += (ids := range(first, first + len(entries)))
        self._are_blocks_changed = True
        return ids

    def remove_entries(self, removed: Sequence[int], tell: Callable[..., None]) -> None:
        """Take entries from the watch list: what matched them leaves the books, unless another entry matches it as
        well.

        `tell` is called with the events, which belong into the commit of that change.
        """
        self._seal()
        lost = (change := Renumbering(self.watch, removed)).apply(self._confirmed, self.unconfirmed, self.batch)
        self.ended.change(change.hit)
        withdrawn = [
            MatchWithdrawn(self.match_of(found.hit, found if found.block_hash else None), Reason.REMOVED)
            for found in lost
        ]
        self.watch.replace_with(change.left)
        self.ids = change.ids(self.ids)
        self.blocks.keep_entries(self.ids)
        self._are_blocks_changed = True
        tell(*withdrawn)
        self._seal()
        left = {found.hit.txid for found in self._confirmed}
        for txid in dict.fromkeys(found.hit.txid for found in lost if found.hit.txid not in left):
            self._forget_tx(txid)

    def entries_added(self, units: float = inf) -> list[WalletEvent]:
        """Match unconfirmed transactions against new entries; of those without a match so far, what came after the
        latest block.

        What is more than so many `units` of work is `unfinished`.
        """
        unfinished, events = self.unconfirmed.unfinished, list[WalletEvent]()
        unfinished.match_all(self.unconfirmed.pending)
        unfinished.add_late(self.unconfirmed.unmatched.take_all())
        unfinished.left = units
        while unfinished and unfinished.left > 0:
            events += self.go_on()
        unfinished.left = inf
        return events

    def expire(self, now: int, began: int = 0, proven: int = 1 << 62, units: float = inf) -> list[WalletEvent]:
        """Withdraw transactions that have been unconfirmed for 336 hours; those seen before `began` only if it is also
        `proven` so late.

        What is more than so many `units` of work is `unfinished`.
        """
        old = self.unconfirmed.older_than(now - MEMPOOL_EXPIRY_S, began, proven - MEMPOOL_EXPIRY_S)
        unfinished, events = self.unconfirmed.unfinished, list[WalletEvent]()
        unfinished.add_expired((txid, self.unconfirmed.pending[txid].since or 0) for txid in old)
        unfinished.left = units
        while (expired := unfinished.take_expired()) is not None:
            events += self._expire(*expired)
        unfinished.left = inf
        return events

    def _expire(self, txid: bytes, since: int) -> list[WalletEvent]:
        """Withdraw one that arrived then and what spends from it; where that is much, the last of it first."""
        unconfirmed = self.unconfirmed
        if (known := unconfirmed.pending.get(txid)) is None or (known.since or 0) != since:
            return []
        family = unconfirmed.descendants([txid], MAX_SPARED)
        if len(family) > MAX_SPARED:
            unconfirmed.unfinished.first_expired((each, unconfirmed.pending[each].since or 0) for each in family)
            return []
        return self._end_all([txid], TxStatus.EXPIRED, Reason.EXPIRED)

    def abandon(self, txid: bytes, *, refused: bool = False) -> list[WalletEvent]:
        """Give up an own unconfirmed transaction (`check_abandon`), its descendants and, unless `refused`, ours that it
        replaced.
        """
        if refused:
            return self._end_all([txid], TxStatus.REFUSED, Reason.REFUSED)
        return self._end_all(
            dict.fromkeys([txid, *self.unconfirmed.sent.replaced_with(txid)]), TxStatus.ABANDONED, Reason.ABANDONED
        )

    def _end_all(self, txids: Iterable[bytes], status: TxStatus, reason: Reason) -> list[WalletEvent]:
        end, freed = Ending(status, reason, self.cursor), list[bytes]()
        events = [event for txid in txids for event in self._end(txid, end, freed)]
        return [*events, *self._counting.after_ends(freed)]

    def _end(self, txid: bytes, end: Ending, freed: list[bytes]) -> Iterator[WalletEvent]:
        """An unconfirmed transaction ends, and its descendants; `freed` is extended by the outpoints that they
        spent.
        """
        family = [each for each in self.unconfirmed.descendants([txid]) if each in self.unconfirmed.pending]
        self._counting.unwrite(family)
        for each in family:
            freed += self.unconfirmed.inputs_of([each])
            before, hits = self.unconfirmed.pending[each], self.unconfirmed.remove(each) or {}
            self.ended.put(
                each, end.of(before, hits.values()) if end.reason is not Reason.SIZELIMIT else None, self.batch
            )
            yield from self._counting.withdraw(hits, end.reason, end.by)

    def bloom_elements(self) -> list[bytes]:
        """The elements of a BIP-37 filter, without what strangers may have invented. Raises InexpressibleError."""
        return filter_elements(self.watch, self._invented, dict(self.own_unconfirmed()))

    def outpoint_elements(self) -> dict[bytes, None]:
        """Those of them that are outpoints: what blocks teach, and what our own transactions spend."""
        return outpoint_elements(self.watch, self._invented, dict(self.own_unconfirmed()))
