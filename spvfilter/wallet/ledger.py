"""What the wallet knows of chain and mempool: blocks and transactions in, events and one commit out. No network, no event loop.

Every change is committed to the database before its events are given. To be used from the database's one thread.

A transaction outside blocks is kept with all outpoints it spends, not only the wallet's: a transaction in a block that spends one of
them, whoever's, contradicts it. Its outpoints therefore belong into a BIP-37 filter too (`bloom_elements`), though no match comes of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from spvfilter.errors import StoreError
from spvfilter.kernel import Hit, parse_tx, txid, walk_block
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.store import Batch, Pending, Store, StoredMatch
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, MatchConfirmed, MatchFound, MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.watchlist import WatchList

MAX_UNMATCHED = 500  # transactions of the mempool that did not match and may yet, when their parents come
MAX_UNMATCHED_SIZE = 100_000  # bytes of each, Core's largest standard transaction
MAX_PENDING = 50_000_000  # bytes of matched transactions in no block; what comes beyond is found when a block holds it


class _Identity(NamedTuple):
    spend: bool
    txid: bytes
    n: int


def _identity(hit: Hit) -> _Identity:
    return _Identity(hit.spend, hit.txid, hit.n)


class Ledger:
    """The wallet's books. `watch` learns from what is recorded."""

    def __init__(self, watch: WatchList, store: Store, since: int = 0) -> None:
        """For entries of `watch` that are new to the database, blocks from height `since` on are to be searched (again)."""
        self.watch = watch
        self.store = store
        store.attach(watch, since)
        self.filtered_txs = 0  # transactions of the blocks that peers searched by our BIP-37 filter
        self.false_positives = 0  # those of them that the filter let through and the watch list did not match
        self._seen_at = 0  # when the last transaction of the mempool came
        self.has_one_peer_matches = True  # whether there may be matches that rest on one peer's compact filters
        self._owed_rewind: int | None = None  # a rewind that failed and is still to be made
        self._unmatched: deque[bytes] = deque(maxlen=MAX_UNMATCHED)
        self._load()

    def _load(self) -> None:
        """Take the mempool's part from the database."""
        self._pending = self.store.pending()
        self._size = sum(len(pending.raw) for pending in self._pending.values())
        self._unconfirmed: dict[bytes, list[Hit]] = {}
        for found in self.store.matches(confirmed=False):
            self._unconfirmed.setdefault(found.hit.txid, []).append(found.hit)
        self._spenders: dict[bytes, list[bytes]] = {}  # outpoint spent in the mempool → the txids that spend it: rivals, but for one
        for digest, pending in self._pending.items():
            for outpoint in _spent(pending.raw):
                self._spenders.setdefault(outpoint, []).append(digest)

    def bloom_elements(self) -> list[bytes]:
        """What a BIP-37 filter must contain to see all that changes these books; see the module."""
        elements = dict.fromkeys(self.watch.bloom_elements())
        elements.update(dict.fromkeys(self._spenders))
        return list(elements)

    @property
    def pending(self) -> dict[bytes, Pending]:
        """Transactions in no block yet, by txid."""
        return self._pending

    def has_tx(self, digest: bytes) -> bool:
        """Whether a transaction, by its txid, is in the books: in a block, or waiting for one."""
        return digest in self._pending or self.store.has_tx(digest)

    def own_unconfirmed(self) -> list[bytes]:
        """Transactions we broadcast that are in no block yet, parents first."""
        return [pending.raw for pending in sorted(self._pending.values(), key=lambda each: each.seen) if pending.own]

    def matches(self) -> Iterator[MatchFound]:
        """Every match there is, those of the best chain first, lowest first."""
        return (MatchFound(self._match(found.hit, found.block_hash, found.height), found.completeness) for found in self.store.matches())

    def _match(self, hit: Hit, block_hash: bytes | None = None, height: int | None = None) -> Match:
        (match,) = self.watch.matches((hit,), block_hash=block_hash, height=height)
        return match

    def unrecorded_txid(self, block: ScannedBlock) -> bytes | None:
        """The txid of what concerns us in a block that was recorded without it; nothing is learned."""
        if block.raw is not None:
            hits = self.watch.table.scan_block(block.raw)
        else:
            hits = [hit for tx in block.txs for hit in self.watch.table.scan_tx(tx.raw)]
        known = self.store.blocks_of([_identity(hit) for hit in hits])
        return next((hit.txid for hit in hits if known.get(_identity(hit), (None, None))[0] is None), None)

    def relevant_txid(self, txs: Iterable[FoundTx]) -> bytes | None:
        """The txid of the first of these transactions that concerns us exactly; nothing is learned."""
        return next((hits[0].txid for tx in txs if (hits := self.watch.table.scan_tx(tx.raw))), None)

    # Blocks

    def connect(self, blocks: Sequence[ScannedBlock]) -> list[WalletEvent]:
        """Record searched blocks, each upon the last; none where the first is not right above the cursor, which has moved meanwhile.

        Raises FormatError, StoreError; then nothing is.
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
                continue  # known from an earlier search, or of a coinbase that stands in two blocks (BIP-30)
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
        """What is in the block is no longer pending, and what contradicts it never will be in one."""
        raws = [found.raw for found in block.txs] if block.raw is None else _txs(block.raw)
        for raw in raws:
            outpoints = _spent(raw)
            digest = txid(raw, parse_tx(raw))
            self._remove_pending(digest, batch)
            for outpoint in outpoints:
                for rival in list(self._spenders.get(outpoint, ())):
                    yield from self._withdraw(rival, Reason.CONFLICT, batch)

    def _scan(self, txs: Iterable[FoundTx]) -> Iterator[Hit]:
        for position, raw in txs:
            hits = self.watch.table.scan_tx(raw)
            self.watch.table.learn(hits)
            yield from (hit._replace(position=position) for hit in hits)

    def _is_unconfirmed(self, hit: Hit) -> bool:
        return any(_identity(other) == _identity(hit) for other in self._unconfirmed.get(hit.txid, ()))

    def _remove_pending(self, digest: bytes, batch: Batch) -> None:
        """A transaction is in a block: no longer pending."""
        pending = self._pending.pop(digest, None)
        self._unconfirmed.pop(digest, None)
        if pending is not None:
            batch.pending[digest] = None
            self._size -= len(pending.raw)
            for outpoint in _spent(pending.raw):
                spenders = self._spenders[outpoint]
                spenders.remove(digest)
                if not spenders:
                    del self._spenders[outpoint]

    def disconnect(self, fork: int, headers: bytes = b"") -> list[WalletEvent]:
        """The best chain now branches off above the block at `fork`: withdraw what was found above, and store the new headers."""
        events: list[WalletEvent] = []
        found: dict[int, list[StoredMatch]] = {}
        for each in self.store.matches(above=fork, confirmed=True):
            found.setdefault(each.height or 0, []).append(each)
        searched = self.store.searched
        with self._committed(Batch(fork=fork, headers=headers)) as batch:
            for height, digest in self.store.hashes_down(fork):
                lost = found.pop(height, [])
                for each in reversed(lost):
                    if each.hit.position == 0 and not each.hit.spend:  # a coinbase: gone for good, and what stands upon it
                        for child in list(self._spenders.get(each.hit.outpoint, ())):
                            events += self._withdraw(child, Reason.REORG, batch)
                    events.append(MatchWithdrawn(self._match(each.hit, each.block_hash, each.height), Reason.REORG))
                if height <= searched or lost:
                    events.append(BlockDisconnected(height, digest))
        return events

    def mark_proven(self) -> None:
        """What rested on one peer's compact filters rests on two now, who agree on the headers of all of them."""
        if self.has_one_peer_matches:
            with self._committed(Batch()) as batch:
                batch.matches += (
                    found._replace(completeness=Completeness.PROVEN)
                    for found in self.store.matches(confirmed=True)
                    if found.completeness == Completeness.ONE_PEER
                )
            self.has_one_peer_matches = False

    def rewind(self, height: int) -> None:
        """Blocks above `height` are to be searched again, for entries that are new; these are in the database then."""
        self._owed_rewind = height if self._owed_rewind is None else min(height, self._owed_rewind)
        self.store.commit(Batch(cursor=max(min(self._owed_rewind, self.store.cursor), -1)))
        self._owed_rewind = None

    # Mempool

    def add_unconfirmed(self, raw: bytes, now: int, *, own: bool = False) -> list[WalletEvent]:
        """A transaction in no block, `own` if we broadcast it. Raises FormatError for a malformed one."""
        events: list[WalletEvent] = []
        with self._committed(Batch()) as batch:
            events += self._add_unconfirmed(raw, now, own, batch)
            if events:
                events += self._rescan_unconfirmed(batch)
        return events

    def _rescan_unconfirmed(self, batch: Batch) -> Iterator[WalletEvent]:
        """What did not match before may spend what was just learned, or be paid to an entry that is new."""
        for digest, pending in self._pending.items():
            yield from self._record_unconfirmed(digest, self.watch.table.scan_tx(pending.raw), batch)
        more = True
        while more:
            more = False
            waiting = [raw for raw in self._unmatched if self.watch.table.scan_tx(raw)]
            for raw in waiting:
                self._unmatched.remove(raw)
                more = True
                yield from self._add_unconfirmed(raw, self._seen_at, False, batch)

    def _add_unconfirmed(self, raw: bytes, now: int, own: bool, batch: Batch) -> Iterator[WalletEvent]:
        digest = txid(raw, parse_tx(raw))
        self._seen_at = now
        if (before := self._pending.get(digest)) is not None:
            if own and not before.own:  # a peer may have sent it with another witness
                self._size += len(raw) - len(before.raw)
                self._pending[digest] = batch.pending[digest] = before._replace(raw=raw, own=True)
            return
        hits = self.watch.table.scan_tx(raw)
        if not hits and not own:
            if len(raw) <= MAX_UNMATCHED_SIZE and raw not in self._unmatched:
                self._unmatched.append(raw)
            return
        if any(block is not None for block, _ in self.store.blocks_of([_identity(hit) for hit in hits]).values()):
            return  # it is in a block already
        if any(self.store.spender_of(hit.outpoint) is not None for hit in hits if hit.spend):
            return  # it contradicts a block
        if not own and self._size + len(raw) > MAX_PENDING:
            return
        self._pending[digest] = batch.pending[digest] = Pending(raw, now, own)
        self._size += len(raw)
        for outpoint in _spent(raw):
            self._spenders.setdefault(outpoint, []).append(digest)
        yield from self._record_unconfirmed(digest, hits, batch)

    def _record_unconfirmed(self, digest: bytes, hits: Iterable[Hit], batch: Batch) -> Iterator[WalletEvent]:
        self.watch.table.learn(hits)
        for hit in hits:
            if not self._is_unconfirmed(hit):
                self._unconfirmed.setdefault(digest, []).append(hit)
                batch.matches.append(StoredMatch(hit, None, None, Completeness.UNPROVEN))
                yield MatchFound(self._match(hit))

    def expire(self, now: int) -> list[WalletEvent]:
        """Withdraw what has waited for a block for 336 hours."""
        with self._committed(Batch()) as batch:
            old = [digest for digest, pending in self._pending.items() if pending.seen + MEMPOOL_EXPIRY_S <= now]
            return [event for digest in old for event in self._withdraw(digest, Reason.EXPIRED, batch)]

    def _withdraw(self, digest: bytes, reason: Reason, batch: Batch) -> Iterator[WalletEvent]:
        """A transaction of the mempool and all that stand upon it."""
        doomed = [digest]
        for parent in doomed:  # grows as it is walked
            for outpoint, children in self._spenders.items():
                if outpoint[:32] == parent:
                    doomed += [child for child in children if child not in doomed]
        for each in doomed:
            hits = self._unconfirmed.get(each, [])
            self._remove_pending(each, batch)
            gone = {_identity(hit) for hit in hits}
            batch.matches = [found for found in batch.matches if found.block_hash is not None or _identity(found.hit) not in gone]
            batch.withdrawn += gone
            yield from (MatchWithdrawn(self._match(hit), reason) for hit in hits)

    @contextmanager
    def _committed(self, batch: Batch) -> Iterator[Batch]:
        """A batch that is committed at the end, if there is anything in it; where that fails all is as before."""
        try:
            yield batch
            if batch != Batch():
                self.store.commit(batch)
        except BaseException:
            with suppress(StoreError):  # the first error tells more
                self._load()  # outpoints learned in vain do no harm
            raise


def _spent(raw: bytes) -> list[bytes]:
    """The outpoints (36 bytes) a transaction spends."""
    return [raw[at : at + 36] for at, _, _ in parse_tx(raw).inputs]


def _txs(block: bytes) -> Iterator[bytes]:
    return (block[tx.start : tx.end] for tx in walk_block(block))
