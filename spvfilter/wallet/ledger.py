"""The wallet's ledger: takes searched blocks and unconfirmed transactions, commits each change and returns the events.

Every change is committed to the database before its events are returned. All methods run in the database's one thread.

An unconfirmed transaction is kept with every outpoint it spends, not only the wallet's: any confirmed transaction that spends one of
them conflicts with it. A BIP-37 filter therefore needs these outpoints too (`bloom_elements`), although they yield no matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from spvfilter.errors import StoreError
from spvfilter.kernel import NO_ENTRY, EntryKind, Hit, walk_block
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.store import Batch, Pending, Store, StoredMatch
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, MatchConfirmed, MatchFound, MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.watchlist import WatchList

MAX_UNMATCHED = 500  # mempool transactions without a match, kept because a late parent may turn them into one
MAX_UNMATCHED_SIZE = 100_000  # bytes of each, Core's largest standard transaction
MAX_UNCONFIRMED_OUTPOINTS = 1_000  # outpoints of unconfirmed transactions that we did not send, in a BIP-37 filter
MAX_PENDING = 50_000_000  # bytes of unconfirmed matched transactions; those beyond are found once a block confirms them


class _Identity(NamedTuple):
    spend: bool
    txid: bytes
    n: int


def _identity(hit: Hit) -> _Identity:
    return _Identity(hit.spend, hit.txid, hit.n)


class Ledger:
    """Matches, pending transactions and the search cursor of one wallet. `watch` learns outpoints from what is recorded."""

    def __init__(self, watch: WatchList, store: Store, since: int = 0) -> None:
        """Entries of `watch` that are new to the database move the cursor back, so that blocks from height `since` on are searched."""
        self.watch = watch
        self.store = store
        store.attach(watch, since)
        self.filtered_txs = 0  # transactions of the blocks that peers searched by our BIP-37 filter
        self.false_positives = 0  # those of them that the filter let through and the watch list did not match
        self._seen_at = 0  # when the last unconfirmed transaction came
        self.has_one_peer_matches = True  # whether a stored match may have Completeness.ONE_PEER
        self._owed_rewind: int | None = None  # height of a rewind whose commit failed
        self._unmatched: deque[bytes] = deque(maxlen=MAX_UNMATCHED)
        self._load()

    def _load(self) -> None:
        """Read the unconfirmed transactions from the database."""
        self._pending = self.store.pending()
        self._size = sum(len(pending.raw) for pending in self._pending.values())
        self._unconfirmed: dict[bytes, dict[_Identity, Hit]] = {}
        for found in self.store.matches(confirmed=False):
            self.watch.table.learn((found.hit,))
            self._unconfirmed.setdefault(found.hit.txid, {})[_identity(found.hit)] = found.hit
        self._spenders: dict[bytes, list[bytes]] = {}  # outpoint → txids of the unconfirmed transactions that spend it
        for txid, pending in self._pending.items():
            for outpoint in Transaction.parse(pending.raw).inputs:
                self._spenders.setdefault(outpoint, []).append(txid)

    def bloom_elements(self) -> list[bytes]:
        """The elements of a BIP-37 filter that sees every change to this ledger: the watch list's, and outpoints that may conflict.

        Anybody can invent unconfirmed transactions with many outpoints. So the filter has MAX_UNCONFIRMED_OUTPOINTS of those that we did
        not send, the first seen; a conflict with another one goes unseen, and that transaction expires.
        """
        elements = dict.fromkeys(self.watch.bloom_elements())
        room = MAX_UNCONFIRMED_OUTPOINTS
        for txid, pending in sorted(self._pending.items(), key=lambda item: (not item[1].own, item[1].seen)):
            made = [hit.outpoint for hit in self._unconfirmed.get(txid, {}).values() if not hit.spend]
            outpoints = [*Transaction.parse(pending.raw).inputs, *made] if pending.own or room > len(made) else made
            if pending.own:
                elements.update(dict.fromkeys(outpoints))
            elif len(outpoints) <= room:
                room -= len(outpoints)
                elements.update(dict.fromkeys(outpoints))
            else:  # a block that confirms it teaches peers its outpoints
                for outpoint in made:
                    if self.watch.table.find(EntryKind.OUTPOINT, outpoint) == NO_ENTRY:
                        elements.pop(outpoint, None)
        return list(elements)

    @property
    def pending(self) -> dict[bytes, Pending]:
        """Unconfirmed transactions by txid."""
        return self._pending

    def has_tx(self, txid: bytes) -> bool:
        """Whether a transaction is known, confirmed or not."""
        return txid in self._pending or self.store.has_tx(txid)

    def own_unconfirmed(self) -> list[bytes]:
        """Unconfirmed transactions that we broadcast, parents first."""
        return [pending.raw for pending in sorted(self._pending.values(), key=lambda each: each.seen) if pending.own]

    def matches(self) -> Iterator[MatchFound]:
        """Every match: confirmed ones in ascending height, then unconfirmed ones."""
        return (MatchFound(self._match(found.hit, found.block_hash, found.height), found.completeness) for found in self.store.matches())

    def _match(self, hit: Hit, block_hash: bytes | None = None, height: int | None = None) -> Match:
        (match,) = self.watch.matches((hit,), block_hash=block_hash, height=height)
        return match

    def unrecorded_txid(self, block: ScannedBlock) -> bytes | None:
        """The txid of a match in `block` that is not recorded as confirmed, or None. Teaches the watch list nothing."""
        if block.raw is not None:
            hits = self.watch.table.scan_block(block.raw)
        else:
            hits = [hit for tx in block.txs for hit in self.watch.table.scan_tx(tx.raw)]
        known = self.store.blocks_of([_identity(hit) for hit in hits])
        return next((hit.txid for hit in hits if known.get(_identity(hit), (None, None))[0] is None), None)

    def relevant_txid(self, txs: Iterable[FoundTx]) -> bytes | None:
        """The txid of the first transaction that the watch list matches, or None. Teaches the watch list nothing."""
        return next((hits[0].txid for tx in txs if (hits := self.watch.table.scan_tx(tx.raw))), None)

    # Blocks

    def connect(self, blocks: Sequence[ScannedBlock]) -> list[WalletEvent]:
        """Record consecutive searched blocks; the first must be the one above the cursor, else nothing is recorded.

        Raises FormatError, StoreError; nothing is recorded then either.
        """
        if self._owed_rewind is not None:
            self.rewind(self._owed_rewind)
        if not blocks or blocks[0].height != self.store.cursor + 1:
            return []
        events: list[WalletEvent] = []
        with self._committed(Batch(cursor=blocks[-1].height)) as batch:
            recorded: set[_Identity] = set()
            for block in blocks:
                events.append(BlockConnected(block.height, block.hash))
                events += self._connect(block, batch, recorded)
        return events

    def _connect(self, block: ScannedBlock, batch: Batch, recorded: set[_Identity]) -> Iterator[WalletEvent]:
        if block.raw is not None:
            hits = self.watch.table.scan_block(block.raw)
            self.watch.table.learn(hits)
        else:
            hits = list(self._scan(block.txs))
            self.filtered_txs += block.total
            self.false_positives += len(block.txs) - len({hit.position for hit in hits})
        known = self.store.blocks_of([_identity(hit) for hit in hits])
        for hit in hits:
            identity = _identity(hit)
            before = (None, None) if self._is_unconfirmed(hit) else known.get(identity)
            if (before is not None and before[0] is not None) or identity in recorded:
                continue  # known from an earlier search, or of a coinbase that two blocks contain (BIP-30)
            recorded.add(identity)
            batch.matches.append(StoredMatch(hit, block.hash, block.height, block.completeness))
            self.has_one_peer_matches = self.has_one_peer_matches or block.completeness == Completeness.ONE_PEER
            match = self._match(hit, block.hash, block.height)
            yield (MatchFound if before is None else MatchConfirmed)(match, block.completeness)
        if self._pending:
            yield from self._resolve_pending(block, batch)
        if hits and (self._pending or self._unmatched):
            yield from self._rescan_unconfirmed(batch)

    def _resolve_pending(self, block: ScannedBlock, batch: Batch) -> Iterator[WalletEvent]:
        """Transactions of the block are no longer pending; pending ones that conflict with them are withdrawn."""
        raws = [found.raw for found in block.txs] if block.raw is None else _txs(block.raw)
        for raw in raws:
            tx = Transaction.parse(raw)
            self._remove_pending(tx.txid, batch)
            for outpoint in tx.inputs:
                for conflicting in list(self._spenders.get(outpoint, ())):
                    yield from self._withdraw(conflicting, Reason.CONFLICT, batch)

    def _scan(self, txs: Iterable[FoundTx]) -> Iterator[Hit]:
        for position, raw in txs:
            hits = self.watch.table.scan_tx(raw)
            self.watch.table.learn(hits)
            yield from (hit._replace(position=position) for hit in hits)

    def _is_unconfirmed(self, hit: Hit) -> bool:
        return _identity(hit) in self._unconfirmed.get(hit.txid, ())

    def _remove_pending(self, txid: bytes, batch: Batch) -> None:
        pending = self._pending.pop(txid, None)
        self._unconfirmed.pop(txid, None)
        if pending is not None:
            batch.pending[txid] = None
            self._size -= len(pending.raw)
            for outpoint in Transaction.parse(pending.raw).inputs:
                spenders = self._spenders[outpoint]
                spenders.remove(txid)
                if not spenders:
                    del self._spenders[outpoint]

    def disconnect(self, fork: int, headers: bytes = b"") -> list[WalletEvent]:
        """Withdraw the matches of blocks above height `fork`, which left the best chain, and store the headers that replace them."""
        events: list[WalletEvent] = []
        found: dict[int, list[StoredMatch]] = {}
        for each in self.store.matches(above=fork, confirmed=True):
            found.setdefault(each.height or 0, []).append(each)
        searched = self.store.searched
        with self._committed(Batch(fork=fork, headers=headers)) as batch:
            for height, block_hash in self.store.hashes_down(fork):
                lost = found.pop(height, [])
                for each in reversed(lost):
                    if each.hit.position == 0 and not each.hit.spend:  # a coinbase cannot return, nor can its descendants
                        for child in list(self._spenders.get(each.hit.outpoint, ())):
                            events += self._withdraw(child, Reason.REORG, batch)
                    events.append(MatchWithdrawn(self._match(each.hit, each.block_hash, each.height), Reason.REORG))
                if height <= searched or lost:
                    events.append(BlockDisconnected(height, block_hash))
        return events

    def mark_proven(self) -> None:
        """Set confirmed matches from Completeness.ONE_PEER to PROVEN: a second peer now agrees on all filter headers."""
        if self.has_one_peer_matches:
            with self._committed(Batch()) as batch:
                batch.matches += (
                    found._replace(completeness=Completeness.PROVEN)
                    for found in self.store.matches(confirmed=True)
                    if found.completeness == Completeness.ONE_PEER
                )
            self.has_one_peer_matches = False

    def rewind(self, height: int) -> None:
        """Move the cursor back, so that blocks above `height` are searched again for new entries, which this commit stores too."""
        self._owed_rewind = height if self._owed_rewind is None else min(height, self._owed_rewind)
        self.store.commit(Batch(cursor=max(min(self._owed_rewind, self.store.cursor), -1)))
        self._owed_rewind = None

    # Mempool

    def add_unconfirmed(self, raw: bytes, now: int, *, own: bool = False) -> list[WalletEvent]:
        """Record an unconfirmed transaction, `own` if we broadcast it. Raises FormatError, StoreError."""
        events: list[WalletEvent] = []
        with self._committed(Batch()) as batch:
            events += self._add_unconfirmed(raw, now, own, batch)
            if events:
                events += self._rescan_unconfirmed(batch)
        return events

    def _rescan_unconfirmed(self, batch: Batch) -> Iterator[WalletEvent]:
        """Match unconfirmed transactions again: they may spend an outpoint just learned, or pay a new entry."""
        for txid, pending in self._pending.items():
            yield from self._record_unconfirmed(txid, self.watch.table.scan_tx(pending.raw), batch)
        more = True
        while more:
            more = False
            waiting = [raw for raw in self._unmatched if self.watch.table.scan_tx(raw)]
            for raw in waiting:
                self._unmatched.remove(raw)
                more = True
                yield from self._add_unconfirmed(raw, self._seen_at, False, batch)

    def _add_unconfirmed(self, raw: bytes, now: int, own: bool, batch: Batch) -> Iterator[WalletEvent]:
        tx = Transaction.parse(raw)
        self._seen_at = now
        if (before := self._pending.get(tx.txid)) is not None:
            if own and not before.own:  # a peer may have sent it with another witness
                self._size += len(raw) - len(before.raw)
                self._pending[tx.txid] = batch.pending[tx.txid] = before._replace(raw=raw, own=True)
            return
        hits = self.watch.table.scan_tx(raw)
        if not hits and not own:
            if len(raw) <= MAX_UNMATCHED_SIZE and raw not in self._unmatched:
                self._unmatched.append(raw)
            return
        if any(block is not None for block, _ in self.store.blocks_of([_identity(hit) for hit in hits]).values()):
            return  # confirmed already
        if any(self.store.spender_of(hit.outpoint) is not None for hit in hits if hit.spend):
            return  # conflicts with a confirmed transaction
        if not own and self._size + len(raw) > MAX_PENDING:
            return
        self._pending[tx.txid] = batch.pending[tx.txid] = Pending(raw, now, own)
        self._size += len(raw)
        for outpoint in tx.inputs:
            self._spenders.setdefault(outpoint, []).append(tx.txid)
        yield from self._record_unconfirmed(tx.txid, hits, batch)

    def _record_unconfirmed(self, txid: bytes, hits: Iterable[Hit], batch: Batch) -> Iterator[WalletEvent]:
        self.watch.table.learn(hits)
        for hit in hits:
            if not self._is_unconfirmed(hit):
                self._unconfirmed.setdefault(txid, {})[_identity(hit)] = hit
                batch.matches.append(StoredMatch(hit, None, None, Completeness.UNPROVEN))
                yield MatchFound(self._match(hit))

    def expire(self, now: int) -> list[WalletEvent]:
        """Withdraw transactions that have been unconfirmed for 336 hours."""
        with self._committed(Batch()) as batch:
            old = [txid for txid, pending in self._pending.items() if pending.seen + MEMPOOL_EXPIRY_S <= now]
            return [event for txid in old for event in self._withdraw(txid, Reason.EXPIRED, batch)]

    def _withdraw(self, txid: bytes, reason: Reason, batch: Batch) -> Iterator[WalletEvent]:
        """Withdraw an unconfirmed transaction and its descendants."""
        doomed = [txid]
        for parent in doomed:  # grows as it is walked
            for outpoint, children in self._spenders.items():
                if outpoint[:32] == parent:
                    doomed += [child for child in children if child not in doomed]
        for each in doomed:
            hits = list(self._unconfirmed.get(each, {}).values())
            self._remove_pending(each, batch)
            gone = {_identity(hit) for hit in hits}
            batch.matches = [found for found in batch.matches if found.block_hash is not None or _identity(found.hit) not in gone]
            batch.withdrawn += gone
            yield from (MatchWithdrawn(self._match(hit), reason) for hit in hits)

    @contextmanager
    def _committed(self, batch: Batch) -> Iterator[Batch]:
        """Commit the batch on leaving, unless it is empty; on any error restore the state of the database."""
        try:
            yield batch
            if batch != Batch():
                self.store.commit(batch)
        except BaseException:
            with suppress(StoreError):  # the first error says more
                self._load()  # outpoints that the watch list learned stay: they do no harm
            raise


def _txs(block: bytes) -> Iterator[bytes]:
    """The serialised transactions of a block."""
    return (block[tx.start : tx.end] for tx in walk_block(block))
