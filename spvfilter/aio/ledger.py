"""What the wallet knows of chain and mempool: blocks and transactions in, events and one commit out. No network, no event loop.

Every change is committed to the database before its events are given. To be used from the database's one thread.

A transaction outside blocks is kept with all outpoints it spends, not only the wallet's: a transaction in a block that spends one of
them, whoever's, contradicts it. Its outpoints therefore belong into a BIP-37 filter too (`bloom_elements`), though no match comes of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.aio.events import (
    UNPROVEN,
    BlockConnected,
    BlockDisconnected,
    Event,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
)
from spvfilter.kernel import Hit, parse_tx, txid, walk_block
from spvfilter.store import Batch, Found, Pending, Store
from spvfilter.watch import Match, WatchList

EXPIRY_S = 336 * 3600  # Core validation.h DEFAULT_MEMPOOL_EXPIRY_HOURS
MAX_UNMATCHED = 500  # transactions of the mempool that did not match and may yet, when their parents come


class FoundTx(NamedTuple):
    """A transaction that a peer says concerns us, at its place in a block."""

    position: int
    raw: bytes


@dataclass(slots=True)
class Searched:
    """One block of the best chain: what of it may concern us, or all of it."""

    height: int
    hash: bytes
    txs: Sequence[FoundTx] = ()
    raw: bytes | None = None  # the whole block, where that was fetched
    completeness: str = UNPROVEN


class _Identity(NamedTuple):
    spend: bool
    txid: bytes
    n: int


def _identity(hit: Hit) -> _Identity:
    return _Identity(hit.spend, hit.txid, hit.n)


class Ledger:
    """The wallet's books. `watch` learns from what is recorded."""

    def __init__(self, watch: WatchList, store: Store) -> None:
        self.watch = watch
        self.store = store
        store.attach(watch)
        self._unmatched: deque[bytes] = deque(maxlen=MAX_UNMATCHED)
        self._load()

    def _load(self) -> None:
        """Take the mempool's part from the database."""
        self._pending = self.store.pending()
        self._unconfirmed: dict[bytes, list[Hit]] = {}
        for found in self.store.found(confirmed=False):
            self._unconfirmed.setdefault(found.hit.txid, []).append(found.hit)
        self._spenders: dict[bytes, bytes] = {}  # outpoint spent in the mempool → the txid that spends it
        for digest, pending in self._pending.items():
            self._spenders.update(dict.fromkeys(_spent(pending.raw), digest))

    def bloom_elements(self) -> list[bytes]:
        """What a BIP-37 filter must contain to see all that changes these books; see the module."""
        elements = dict.fromkeys(self.watch.bloom_elements())
        elements.update(dict.fromkeys(self._spenders))
        return list(elements)

    @property
    def pending(self) -> dict[bytes, Pending]:
        """Transactions in no block yet, by txid."""
        return self._pending

    def matches(self) -> Iterator[MatchFound]:
        """Every match there is, those of the best chain first, lowest first."""
        return (MatchFound(self._match(found.hit, found.block_hash, found.height), found.completeness) for found in self.store.found())

    def _match(self, hit: Hit, block_hash: bytes | None = None, height: int | None = None) -> Match:
        (match,) = self.watch.matches((hit,), block_hash=block_hash, height=height)
        return match

    def concerning(self, txs: Iterable[FoundTx]) -> bytes | None:
        """The txid of the first of these transactions that concerns us exactly; nothing is learned."""
        return next((hits[0].txid for tx in txs if (hits := self.watch.table.scan_tx(tx.raw))), None)

    # Blocks

    def connect(self, blocks: Sequence[Searched]) -> list[Event]:
        """Record searched blocks, each upon the last, from the one above the cursor on. Raises FormatError, StoreError; then nothing is."""
        events: list[Event] = []
        with self._committed(Batch(cursor=blocks[-1].height)) as batch:
            for block in blocks:
                events.append(BlockConnected(block.height, block.hash))
                events += self._connect(block, batch)
        return events

    def _connect(self, block: Searched, batch: Batch) -> Iterator[Event]:
        if block.raw is not None:
            hits = self.watch.table.scan_block(block.raw)
            self.watch.table.learn(hits)
        else:
            hits = list(self._scan(block.txs))
        known = self.store.blocks_of([_identity(hit) for hit in hits])
        for hit in hits:
            before = known.get(_identity(hit))
            if before is not None and before[0] is not None:
                continue  # known from an earlier search
            batch.found.append(Found(hit, block.hash, block.height, block.completeness))
            match = self._match(hit, block.hash, block.height)
            yield (MatchFound if before is None else MatchConfirmed)(match, block.completeness)
        if self._pending:
            yield from self._settle_all(block, batch)

    def _settle_all(self, block: Searched, batch: Batch) -> Iterator[Event]:
        """What is in the block is no longer pending, and what contradicts it never will be in one."""
        raws = [found.raw for found in block.txs] if block.raw is None else _txs(block.raw)
        for raw in raws:
            outpoints = _spent(raw)
            digest = txid(raw, parse_tx(raw))
            self._settle(digest, batch)
            for outpoint in outpoints:
                if (rival := self._spenders.get(outpoint)) is not None:
                    yield from self._withdraw(rival, Reason.CONFLICT, batch)

    def _scan(self, txs: Iterable[FoundTx]) -> Iterator[Hit]:
        for position, raw in txs:
            hits = self.watch.table.scan_tx(raw)
            self.watch.table.learn(hits)
            yield from (hit._replace(position=position) for hit in hits)

    def _is_unconfirmed(self, hit: Hit) -> bool:
        return any(_identity(other) == _identity(hit) for other in self._unconfirmed.get(hit.txid, ()))

    def _settle(self, digest: bytes, batch: Batch) -> None:
        """A transaction is in a block: no longer pending."""
        pending = self._pending.pop(digest, None)
        self._unconfirmed.pop(digest, None)
        if pending is not None:
            batch.pending[digest] = None
            for outpoint in _spent(pending.raw):
                if self._spenders.get(outpoint) == digest:
                    del self._spenders[outpoint]

    def disconnect(self, fork: int, headers: bytes = b"") -> list[Event]:
        """The best chain now branches off above the block at `fork`: withdraw what was found above, and store the new headers."""
        events: list[Event] = []
        found: dict[int, list[Found]] = {}
        for each in self.store.found(above=fork):
            found.setdefault(each.height or 0, []).append(each)
        scanned = self.store.cursor
        for height, digest in self.store.hashes_down(fork):
            lost = found.pop(height, [])
            events += (MatchWithdrawn(self._match(each.hit, each.block_hash, each.height), Reason.REORG) for each in reversed(lost))
            if height <= scanned or lost:
                events.append(BlockDisconnected(height, digest))
        with self._committed(Batch(fork=fork, headers=headers)):
            return events

    def rewind(self, height: int) -> None:
        """Blocks above `height` are to be searched again, for entries that are new."""
        if height < self.store.cursor:
            self.store.commit(Batch(cursor=max(height, -1)))

    # Mempool

    def see(self, raw: bytes, now: int, *, own: bool = False) -> list[Event]:
        """A transaction in no block, `own` if we broadcast it. Raises FormatError for a malformed one."""
        events: list[Event] = []
        with self._committed(Batch()) as batch:
            self._see(raw, now, own, batch, events)
            if events:  # what did not match before may spend what was just learned
                waiting = list(self._unmatched)
                self._unmatched.clear()
                for other in waiting:
                    self._see(other, now, False, batch, events)
                for digest, pending in self._pending.items():
                    self._note(digest, self.watch.table.scan_tx(pending.raw), batch, events)
        return events

    def _see(self, raw: bytes, now: int, own: bool, batch: Batch, events: list[Event]) -> None:
        digest = txid(raw, parse_tx(raw))
        if digest in self._pending:
            return
        hits = self.watch.table.scan_tx(raw)
        if not hits and not own:
            self._unmatched.append(raw)
            return
        if any(block is not None for block, _ in self.store.blocks_of([_identity(hit) for hit in hits]).values()):
            return  # it is in a block already
        self.watch.table.learn(hits)
        self._pending[digest] = batch.pending[digest] = Pending(raw, now, own)
        for outpoint in _spent(raw):
            self._spenders.setdefault(outpoint, digest)
        self._note(digest, hits, batch, events)

    def _note(self, digest: bytes, hits: Iterable[Hit], batch: Batch, events: list[Event]) -> None:
        for hit in hits:
            if not self._is_unconfirmed(hit):
                self._unconfirmed.setdefault(digest, []).append(hit)
                batch.found.append(Found(hit, None, None, UNPROVEN))
                events.append(MatchFound(self._match(hit)))

    def expire(self, now: int) -> list[Event]:
        """Withdraw what has waited for a block for 336 hours."""
        with self._committed(Batch()) as batch:
            old = [digest for digest, pending in self._pending.items() if pending.seen + EXPIRY_S <= now]
            return [event for digest in old for event in self._withdraw(digest, Reason.EXPIRED, batch)]

    def _withdraw(self, digest: bytes, reason: Reason, batch: Batch) -> Iterator[Event]:
        """A transaction of the mempool and all that stand upon it."""
        doomed = [digest]
        for parent in doomed:  # grows as it is walked
            doomed += {child for outpoint, child in self._spenders.items() if outpoint[:32] == parent and child not in doomed}
        for each in doomed:
            hits = self._unconfirmed.get(each, [])
            self._settle(each, batch)
            batch.withdrawn += (_identity(hit) for hit in hits)
            yield from (MatchWithdrawn(self._match(hit), reason) for hit in hits)

    @contextmanager
    def _committed(self, batch: Batch) -> Iterator[Batch]:
        """A batch that is committed at the end, if there is anything in it; where that fails all is as before."""
        try:
            yield batch
            if batch != Batch():
                self.store.commit(batch)
        except BaseException:
            self._load()  # outpoints learned in vain do no harm
            raise


def _spent(raw: bytes) -> list[bytes]:
    """The outpoints (36 bytes) a transaction spends."""
    return [raw[at : at + 36] for at, _, _ in parse_tx(raw).inputs]


def _txs(block: bytes) -> Iterator[bytes]:
    return (block[tx.start : tx.end] for tx in walk_block(block))
