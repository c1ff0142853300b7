"""The wallet's books, sans-IO: searched blocks and unconfirmed transactions in, events and batches for the database out.

All state is in memory; the database is told and never asked. An unconfirmed transaction is kept with every outpoint it spends, not only
the wallet's: any confirmed transaction that spends one of them conflicts with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from spvfilter._dataclass import dataclass, field
from spvfilter.kernel import NO_ENTRY, EntryKind, Hit, walk_block
from spvfilter.protocol import MEMPOOL_EXPIRY_S, OUTPOINT_SIZE
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.ledger import StoredMatch, StoredTx, TxStatus
from spvfilter.store.store import Batch
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, MatchConfirmed, MatchFound, MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wallet.unconfirmed import Identity, Unconfirmed, identity, made_by
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.watchlist import WatchList


@dataclass(frozen=True, slots=True)
class SavedBooks:
    """What the database knows of the books."""

    matches: Sequence[StoredMatch] = ()
    unconfirmed: Mapping[bytes, StoredTx] = field(default_factory=dict)  # by txid
    transactions: Mapping[bytes, StoredTx] = field(default_factory=dict)  # of recent blocks, by txid
    cursor: int = -1
    searched: int = -1


class Books:
    """Matches, unconfirmed transactions and the search cursor of one wallet. `watch` learns outpoints from what is recorded."""

    def __init__(self, watch: WatchList, saved: SavedBooks) -> None:
        self.watch = watch
        self._entries = len(watch)  # that are stored
        self.cursor = saved.cursor  # height up to which blocks have been searched
        self.searched = saved.searched  # height up to which they had been before the cursor moved back for new entries
        self.filtered_txs = 0  # transactions of the blocks that peers searched by our BIP-37 filter
        self.false_positives = 0  # those of them that the filter let through and the watch list did not match
        self.batch = Batch()  # changes that are not committed yet
        self._sealed: list[Batch] = []  # those before, which must be applied first
        self._confirmed: dict[Identity, StoredMatch] = {}
        self._at: dict[int, list[Identity]] = {}  # height → matches
        self._spender: dict[bytes, bytes] = {}  # outpoint → txid of the confirmed transaction that spends it
        self._one_peer: dict[Identity, None] = {}  # matches of Completeness.ONE_PEER
        self._kept = dict(saved.transactions)
        self._invented: set[bytes] = set()  # outpoints of outputs that only unconfirmed transactions of others made
        unconfirmed = [found.hit for found in saved.matches if found.block_hash is None]
        self.unconfirmed = Unconfirmed(saved.unconfirmed, unconfirmed)
        watch.table.learn(unconfirmed)
        own = {txid for txid, tx in saved.unconfirmed.items() if tx.own}
        self._invented.update(hit.outpoint for hit in unconfirmed if not hit.spend and hit.txid not in own)
        for found in saved.matches:
            if found.block_hash is not None:
                self._remember(found)

    def take_batches(self) -> list[Batch]:
        """The changes since the last call, in the order in which they must be committed."""
        if not self._sealed and self.batch.is_empty:
            return []
        batches = [each for each in (*self._sealed, self.batch) if not each.is_empty]
        self._sealed, self.batch = [], Batch()
        return batches

    def _seal(self) -> None:
        """What follows must be applied after all changes so far."""
        self._sealed.append(self.batch)
        self.batch = Batch()

    def _remember(self, found: StoredMatch) -> None:
        assert found.height is not None
        mark = identity(found.hit)
        self._confirmed[mark] = found
        self._at.setdefault(found.height, []).append(mark)
        if found.hit.spend:
            self._spender[found.hit.outpoint] = found.hit.txid
        else:
            self._invented.discard(found.hit.outpoint)
        if found.completeness == Completeness.ONE_PEER:
            self._one_peer[mark] = None

    def match_of(self, hit: Hit, block_hash: bytes | None = None, height: int | None = None) -> Match:
        """The match of a hit."""
        (match,) = self.watch.matches((hit,), block_hash=block_hash, height=height)
        return match

    def matches(self) -> Iterator[MatchFound]:
        """Every match: confirmed ones in ascending height, then unconfirmed ones."""
        for height in sorted(self._at):
            for found in (self._confirmed[mark] for mark in self._at[height]):
                yield MatchFound(self.match_of(found.hit, found.block_hash, found.height), found.completeness)
        for txid in self.unconfirmed.pending:
            yield from (MatchFound(self.match_of(hit)) for hit in self.unconfirmed.hits(txid).values())

    def has_tx(self, txid: bytes) -> bool:
        """Whether a transaction is pending or a recent block has it."""
        return txid in self.unconfirmed.pending or txid in self._kept

    def is_own(self, txid: bytes) -> bool:
        """Whether a transaction is pending that we broadcast, or a recent block has it."""
        pending = self.unconfirmed.pending.get(txid)
        return pending.own if pending is not None else txid in self._kept

    def positions_at(self, height: int) -> dict[int, bytes]:
        """The positions of matched transactions in the block at a height, with their txids."""
        hits = (self._confirmed[mark].hit for mark in self._at.get(height, ()))
        return {hit.position: hit.txid for hit in hits}

    def own_unconfirmed(self) -> list[tuple[bytes, bytes]]:
        """Unconfirmed transactions that we broadcast (txid, raw), parents first."""
        return [(txid, pending.raw) for txid, pending in self.unconfirmed.pending.items() if pending.own]

    # Searching blocks

    def scan(self, block: ScannedBlock) -> list[Hit]:
        """The hits in a block. What a peer selected is learned transaction by transaction, since a later one may spend an earlier one."""
        if block.raw is not None:
            return self.watch.table.scan_block(block.raw)
        hits: list[Hit] = []
        for position, raw in block.txs:
            found = self.watch.table.scan_tx(raw)
            self.watch.table.learn(found)
            hits += (hit._replace(position=position) for hit in found)
        return hits

    def connect(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        """Record the block above the cursor, with the hits in it."""
        assert block.height == self.cursor + 1
        self.watch.table.learn(hits)
        events: list[WalletEvent] = [BlockConnected(block.height, block.hash)]
        if block.raw is None:
            self.filtered_txs += block.total
            self.false_positives += len(block.txs) - len({hit.position for hit in hits})
        events += self._record(block, hits)
        self._move_cursor(block.height)
        return events

    def _record(self, block: ScannedBlock, hits: Sequence[Hit]) -> Iterator[WalletEvent]:
        fresh: list[Hit] = []
        for hit in hits:
            mark = identity(hit)
            if mark in self._confirmed:
                continue  # known from an earlier search, or of a coinbase that two blocks contain (BIP-30)
            fresh.append(hit)
            was_pending = mark in self.unconfirmed.hits(hit.txid)
            found = StoredMatch(hit, block.hash, block.height, block.completeness)
            self._remember(found)
            self.batch.matches.append(found)
            match = self.match_of(hit, block.hash, block.height)
            yield (MatchConfirmed if was_pending else MatchFound)(match, block.completeness)
        if fresh:
            self._keep_transactions(block, fresh)
        if self.unconfirmed.pending:
            yield from self._resolve(block)
        yield from self._follow_coins(made_by(hits))

    def _keep_transactions(self, block: ScannedBlock, hits: Iterable[Hit]) -> None:
        """Keep matched transactions: a reorganisation makes them unconfirmed again, but for coinbases."""
        raws = _by_position(block)
        for hit in hits:
            if hit.txid in self._kept:
                continue
            pending = self.unconfirmed.pending.get(hit.txid)
            raw = raws[hit.position] if pending is None or not pending.own else pending.raw
            kept = StoredTx(raw, TxStatus.CONFIRMED, own=False) if pending is None else pending
            kept = kept._replace(raw=raw, status=TxStatus.CONFIRMED, block_hash=block.hash, height=block.height, position=hit.position)
            self.batch.transactions[hit.txid] = kept
            if hit.position:
                self._kept[hit.txid] = kept

    def _resolve(self, block: ScannedBlock) -> Iterator[WalletEvent]:
        """Transactions of the block are no longer pending; pending ones that conflict with them are withdrawn.

        Either kind spends an outpoint that an unconfirmed transaction spends.
        """
        for raw, inputs in _inputs(block):
            rivals = [txid for outpoint in inputs for txid in self.unconfirmed.spenders(outpoint)]
            if rivals:
                confirmed = Transaction.parse(raw).txid
                self._confirm_pending(confirmed)
                for rival in dict.fromkeys(rivals):
                    if rival != confirmed and rival in self.unconfirmed.pending:
                        yield from self._withdraw(rival, Reason.CONFLICT)

    def _confirm_pending(self, txid: bytes) -> None:
        if self.unconfirmed.remove(txid) is not None and txid not in self._kept:
            self.batch.transactions[txid] = None

    def rewind(self, height: int) -> None:
        """Move the cursor back, so that blocks above `height` are searched again."""
        if height < self.cursor:
            self._move_cursor(max(height, -1))

    def skip_to(self, height: int) -> None:
        """Begin a new wallet's search above a height."""
        self._move_cursor(height)

    def _move_cursor(self, height: int) -> None:
        self.cursor = self.batch.cursor = height
        self.searched = max(self.searched, height)

    def mark_proven(self, height: int) -> None:
        """Set matches in blocks up to a height from Completeness.ONE_PEER to PROVEN."""
        if height < 0 or not self._one_peer:
            return
        proven = [mark for mark in self._one_peer if (self._confirmed[mark].height or 0) <= height]
        for mark in proven:
            found = self._confirmed[mark] = self._confirmed[mark]._replace(completeness=Completeness.PROVEN)
            del self._one_peer[mark]
            self.batch.matches.append(found)

    # The chain

    def extend(self, headers: bytes) -> None:
        """Store headers (80 bytes each) that follow the stored ones."""
        self.batch.headers += headers

    def disconnect(self, fork: int, hashes: Sequence[bytes], headers: bytes, now: int) -> list[WalletEvent]:
        """Take back the blocks above height `fork`, whose hashes are given lowest first, and store the headers that replace them.

        Their transactions are unconfirmed again, except for coinbases and what spends from them.
        """
        self._seal()
        self.batch.fork, self.batch.headers = fork, headers
        events: list[WalletEvent] = []
        returning: list[StoredTx] = []
        for height in range(fork + len(hashes), fork, -1):
            lost = [self._confirmed.pop(mark) for mark in self._at.pop(height, ())]
            for found in reversed(lost):
                self._one_peer.pop(identity(found.hit), None)
                if found.hit.spend and self._spender.get(found.hit.outpoint) == found.hit.txid:
                    del self._spender[found.hit.outpoint]
                if found.hit.position == 0 and not found.hit.spend:  # a coinbase cannot return, nor can its descendants
                    for child in self.unconfirmed.spenders(found.hit.outpoint):
                        events += self._withdraw(child, Reason.REORG)
                events.append(MatchWithdrawn(self.match_of(found.hit, found.block_hash, found.height), Reason.REORG))
            if height <= self.searched or lost:
                events.append(BlockDisconnected(height, hashes[height - fork - 1]))
            txids = dict.fromkeys(found.hit.txid for found in lost)
            returning += (kept for txid in reversed(txids) if (kept := self._forget_tx(txid)) is not None)
        self.cursor, self.searched = min(self.cursor, fork), min(self.searched, fork)
        for kept in reversed(returning):  # parents first
            events += self.add_unconfirmed(kept.raw, now, own=kept.own, seen=kept.seen)
        return events

    def _forget_tx(self, txid: bytes) -> StoredTx | None:
        kept = self._kept.pop(txid, None)
        if kept is not None:
            self.batch.transactions[txid] = None
        return kept

    def change_filters(self, change: CompactFilterBatch) -> None:
        """Store filter hashes and filters."""
        known = self.batch.compact_filters
        if known is None:
            self.batch.compact_filters = change
        elif change.fork is None:
            hashes, kept = [*known.hashes, *change.hashes], [*known.kept, *change.kept]
            self.batch.compact_filters = CompactFilterBatch(known.fork, hashes, kept)
        else:
            self._seal()
            self.batch.compact_filters = change

    # Unconfirmed transactions

    def add_unconfirmed(self, raw: bytes, now: int, *, own: bool = False, seen: int | None = None) -> list[WalletEvent]:
        """Record an unconfirmed transaction, `own` if we broadcast it, first `seen` now or earlier. Raises FormatError."""
        events: list[WalletEvent] = []
        waiting = [(raw, now)]
        while waiting:
            each, since = waiting.pop()
            first = seen if each is raw and seen is not None else since
            found, made = self._add(Transaction.parse(each), first, since, own and each is raw)
            events += found
            for outpoint in made:
                waiting += self.unconfirmed.take_waiting(outpoint)
        return events

    def _add(self, tx: Transaction, seen: int, since: int, own: bool) -> tuple[list[WalletEvent], list[bytes]]:
        """Its events, and the outpoints that became known."""
        before = self.unconfirmed.pending.get(tx.txid)
        if before is not None:
            if own and not before.own:
                changed = self.batch.transactions[tx.txid] = before._replace(raw=tx.raw, own=True)
                self.unconfirmed.replace(tx.txid, changed)
            return [], []
        hits = self.watch.table.scan_tx(tx.raw)
        if not hits and not own:
            self.unconfirmed.set_aside(tx, since)
            return [], []
        if any(identity(hit) in self._confirmed for hit in hits):
            return [], []  # confirmed already
        if any(hit.outpoint in self._spender for hit in hits if hit.spend):
            return [], []  # conflicts with a confirmed transaction
        if not own and not self.unconfirmed.has_room(tx.raw):
            return [], []
        pending = self.batch.transactions[tx.txid] = StoredTx(tx.raw, TxStatus.PENDING, own, seen, since)
        self.unconfirmed.add(tx, pending)
        return self._record_unconfirmed(hits)

    def _record_unconfirmed(self, hits: Sequence[Hit]) -> tuple[list[WalletEvent], list[bytes]]:
        """Record matches, and those of unconfirmed transactions that spend what they make. A loop: a chain of them may be long."""
        events: list[WalletEvent] = []
        made: list[bytes] = []
        waiting = deque([hits])
        while waiting:
            found = waiting.popleft()
            self.watch.table.learn(found)
            children: dict[bytes, None] = {}
            for hit in found:
                if self.unconfirmed.record(hit):
                    self.batch.matches.append(StoredMatch(hit, None, None, Completeness.UNPROVEN))
                    events.append(MatchFound(self.match_of(hit)))
                    if not hit.spend:
                        made.append(hit.outpoint)
                        if not self.unconfirmed.pending[hit.txid].own:
                            self._invented.add(hit.outpoint)
                        children.update(dict.fromkeys(self.unconfirmed.spenders(hit.outpoint)))
            waiting.extend(self._hits_of(txid) for txid in children)
        return events, made

    def _hits_of(self, txid: bytes) -> list[Hit]:
        return self.watch.table.scan_tx(self.unconfirmed.pending[txid].raw)

    def _rescan(self, txids: Iterable[bytes]) -> list[WalletEvent]:
        """Match pending transactions again, which spend what has become known."""
        return [event for txid in txids for event in self._record_unconfirmed(self._hits_of(txid))[0]]

    def _follow_coins(self, made: Iterable[bytes]) -> Iterator[WalletEvent]:
        """Match unconfirmed transactions that spend outputs which a block has taught."""
        for outpoint in made:
            yield from self._rescan(self.unconfirmed.spenders(outpoint))
            for raw, seen in self.unconfirmed.take_waiting(outpoint):
                yield from self.add_unconfirmed(raw, seen)

    def entries_added(self) -> list[WalletEvent]:
        """Store the new entries of the watch list, and match all unconfirmed transactions against them."""
        for number in range(self._entries, len(self.watch)):
            kind, value = self.watch.table.entry(number)
            self.batch.entries.append((kind, value, self.watch.label(number)))
        self._entries = len(self.watch)
        events = self._rescan(list(self.unconfirmed.pending))
        for raw, seen in self.unconfirmed.take_unmatched():
            events += self.add_unconfirmed(raw, seen)
        return events

    def expire(self, now: int) -> list[WalletEvent]:
        """Withdraw transactions that have been unconfirmed for 336 hours."""
        old = self.unconfirmed.older_than(now - MEMPOOL_EXPIRY_S)
        return [event for txid in old for event in self._withdraw(txid, Reason.EXPIRED)]

    def _withdraw(self, txid: bytes, reason: Reason) -> Iterator[WalletEvent]:
        """Withdraw an unconfirmed transaction and its descendants."""
        for each in self.unconfirmed.descendants(txid):
            hits = self.unconfirmed.remove(each)
            if hits is None:
                continue
            self.batch.transactions[each] = None
            self.batch.matches = [found for found in self.batch.matches if found.block_hash or identity(found.hit) not in hits]
            self.batch.withdrawn += hits
            yield from (MatchWithdrawn(self.match_of(hit), reason) for hit in hits.values())

    # Elements of filters

    def bloom_elements(self) -> list[bytes]:
        """The elements of a BIP-37 filter: the watch list's, and the outpoints that our own unconfirmed transactions spend.

        Anybody can invent an unconfirmed payment to an address. If it changed the filter, its inventor would learn that the address is
        ours. So outputs of unconfirmed transactions that we did not send stay out, unless they are entries of the list.
        """
        elements = dict.fromkeys(self.watch.bloom_elements())
        for outpoint in self._invented:
            if self.watch.table.find(EntryKind.OUTPOINT, outpoint) == NO_ENTRY:
                elements.pop(outpoint, None)
        for _, raw in self.own_unconfirmed():
            elements.update(dict.fromkeys(Transaction.parse(raw).inputs))
        return list(elements)


def _by_position(block: ScannedBlock) -> dict[int, bytes]:
    if block.raw is None:
        return {tx.position: tx.raw for tx in block.txs}
    return {position: block.raw[span.start : span.end] for position, span in enumerate(walk_block(block.raw))}


def _inputs(block: ScannedBlock) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each transaction of a block with the outpoints it spends."""
    if block.raw is None:
        yield from ((tx.raw, list(Transaction.parse(tx.raw).inputs)) for tx in block.txs)
        return
    raw = block.raw
    for span in walk_block(raw):
        yield raw[span.start : span.end], [raw[at : at + OUTPOINT_SIZE] for at, _, _ in span.inputs]
