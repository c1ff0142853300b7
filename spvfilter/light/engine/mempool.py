"""Unconfirmed transactions that peers announce. The module `broadcaster` handles own transactions.

With compact filters no peer knows what is ours, so from the tip on every transaction that is announced is fetched, and
recorded if it matches. With BIP-37 a peer announces what its filter matches. What comes is recorded a few at a time,
after blocks: a flood delays none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

from spvfilter.errors import LieError
from spvfilter.light.engine.bloomsearch import BloomSearch
from spvfilter.light.engine.broadcaster import Broadcaster
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.peers import BLOOM, Peer
from spvfilter.light.engine.wanted import WantedScripts
from spvfilter.light.events import PendingWarning
from spvfilter.light.lies import Lie
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_INVENTORY, MAX_STANDARD_TX_WEIGHT
from spvfilter.transaction import Transaction
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.queue import Queue
from spvfilter.wallet.validity import why_impossible
from spvfilter.wire.messages.table import GetData, InvItem, InvType, Mempool

MAX_ASKED = 5_000  # ours: announced transactions asked of a peer by its filter and not yet there
MAX_ASKED_UNFILTERED = 625  # ours: the same without a filter
_MAX_HEARD = 50_000  # txids and wtxids that are remembered; ours
_MAX_ORDERED = 2_000  # announcements of each peer whose order is remembered; ours
_MAX_WORK = 20_000
"""Bytes of transactions and events, each counted as 300 bytes, after which a step records no further transaction."""
_EVENT_WORK = 300
_KINDS = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)


@dataclass(slots=True)
class _Stand:
    """What was announced by one peer."""

    asked: dict[bytes, None] = field(default_factory=dict)
    """Txid or wtxid."""
    announced: deque[bytes] = field(default_factory=lambda: deque(maxlen=MAX_INVENTORY))
    """Not asked for yet; see _packed."""
    was_asked_for_all: bool = False
    """By a mempool message."""
    heard: dict[bytes, None] = field(default_factory=dict)
    """Txids and wtxids that it announced, the latest last."""
    later: set[bytes] = field(default_factory=set)
    """Txids of what came later than its rival, as it told."""


class MempoolWatch:
    """Takes announcements and transactions of all peers."""

    def __init__(self, context: Context, scripts: WantedScripts, bloom: BloomSearch, broadcaster: Broadcaster) -> None:
        self._context = context
        self._scripts = scripts
        self._bloom = bloom
        self._stands: dict[Peer, _Stand] = {}
        self._queue = Queue()
        self._heard: dict[bytes, None] = {}  # txid and wtxid of what came, the oldest first
        self._later: dict[bytes, None] = {}  # txids of what is known to have come after what replaced it
        self._broadcaster = broadcaster
        self._has_warned = False  # that a transaction found no room
        context.pool.on_gone(lambda peer: self._stands.pop(peer, None))

    def _stand(self, peer: Peer) -> _Stand:
        stand = self._stands.get(peer)
        if stand is None:
            stand = self._stands[peer] = _Stand()
        return stand

    # Announced to us

    def announced(self, peer: Peer, items: Sequence[InvItem]) -> None:
        """A peer announces transactions."""
        stand = self._stand(peer)
        items = [item for item in items if item.kind in _KINDS]
        for item in items:
            own = self._broadcaster.find(item.hash)
            if own is not None:
                self._broadcaster.announced(peer, own)
        self._order(peer, stand, items)
        link = self._bloom.link(peer)
        if link.filter is None:
            stand.announced.extend(map(_packed, items))
            self._context.changed()
            return
        unasked = [item for item in items if item.hash not in stand.asked]
        has_room = self._queue.has_room(peer.group)
        wanted = unasked[: MAX_ASKED - len(stand.asked)] if has_room else []
        if unasked and not has_room:
            stand.was_asked_for_all = False  # it is asked for them when there is room
        link.misses_txs = link.misses_txs or len(wanted) < len(unasked)
        link.announced([item.hash for item in wanted])
        self._ask(peer, stand, wanted)

    def _order(self, peer: Peer, stand: _Stand, items: Sequence[InvItem]) -> None:
        """Note transactions that the peer announced after the transaction that replaced them.

        A peer that never announced the replacement may just be late. Each peer is heard once about a transaction:
        otherwise a few bytes could move many matches back and forth.
        """
        books = self._context.books
        for item in items[-_MAX_ORDERED:]:
            if item.hash in stand.heard:
                continue
            record = books.find(item.hash)
            if record is not None and record.txid in books.pool:
                books.pool.quota.announce(record.txid, [peer.group])
                verdict = books.verdict(record.txid)
                if verdict is not None and verdict.status is Status.REPLACED and record.txid not in stand.later:
                    conflict = None if verdict.conflicts_with is None else books.record(verdict.conflicts_with)
                    is_later = conflict is not None and not stand.heard.keys().isdisjoint(books.hashes(conflict.txid))
                    if is_later and len(stand.later) < _MAX_ORDERED:
                        stand.later.add(record.txid)
                        self._later[record.txid] = None
                        self._context.changed()
            stand.heard[item.hash] = None
        for each in list(islice(stand.heard, max(0, len(stand.heard) - _MAX_ORDERED))):
            del stand.heard[each]

    def _ask(self, peer: Peer, stand: _Stand, items: Collection[InvItem]) -> None:
        if items:
            stand.asked.update(dict.fromkeys(item.hash for item in items))
            self._context.out.send(
                peer.number, GetData(tuple(InvItem(_fetched_as(item.kind), item.hash) for item in items))
            )

    def advance(self, *, is_synced: bool, by_filter: bool) -> None:
        """At the tip, ask for what was announced, and tell peers that announcements are welcome."""
        if not by_filter:
            for peer in self._bloom.disarm():
                self._stand(peer).was_asked_for_all = False
        if self._context.options.mempool and is_synced:
            for peer in self._bloom.members if by_filter else self._context.pool.ready():
                self._listen(peer, by_filter=by_filter)

    def _listen(self, peer: Peer, *, by_filter: bool) -> None:
        stand = self._stand(peer)
        if not self._queue.has_much_room(peer.group):
            return  # else each transaction that finds no room would call for all again
        # before it had a filter, or without room: it tells by its filter which of these are wanted
        if by_filter and stand.announced:
            stand.announced.clear()
            stand.was_asked_for_all = False
        if (
            peer.serves(BLOOM)
            and not stand.was_asked_for_all
            and (not by_filter or self._bloom.link(peer).filter is not None)
        ):
            stand.was_asked_for_all = True
            self._context.out.send(peer.number, Mempool())
        if not by_filter:
            wanted: dict[bytes, InvItem] = {}
            while stand.announced and len(wanted) + len(stand.asked) < MAX_ASKED_UNFILTERED:
                item = _unpacked(stand.announced.popleft())
                if item.hash not in stand.asked and item.hash not in self._heard:
                    wanted[item.hash] = item
            self._ask(peer, stand, wanted.values())

    def forget(self) -> None:
        """What came may be of interest again: after a reorganisation, or with new entries."""
        self._heard.clear()
        for stand in self._stands.values():
            stand.was_asked_for_all = False
            stand.later.clear()

    # Transactions

    def take(self, peer: Peer, raw: bytes) -> None:
        """A transaction came. Raises LieError for one that was not asked for or that no block can have, FormatError."""
        link = self._bloom.link(peer)
        if len(raw) > MAX_STANDARD_TX_WEIGHT and not link.expects_txs and not self._broadcaster.has_size(len(raw)):
            link.misses_txs = True  # to parse it would take long, and no honest peer passes it on: a block may have it
            return
        tx = Transaction.parse(raw)
        if link.tx(tx):
            return
        stand, ids = self._stand(peer), {tx.txid, tx.wtxid}
        if not ids & stand.asked.keys():
            if self._broadcaster.given(peer, tx.txid):
                return
            cause = Lie.UNPROVED_TX if link.expects_txs else Lie.UNASKED_TX
            raise LieError(f"transaction {hash_to_hex(tx.txid)}", cause=cause)
        if (reason := why_impossible(tx)) is not None:
            raise LieError(f"transaction {hash_to_hex(tx.txid)}: {reason}", cause=Lie.IMPOSSIBLE_TX)
        for each in ids:
            stand.asked.pop(each, None)
        self._broadcaster.given(peer, tx.txid)  # it may have it with another witness, and announce that
        if link.filter is not None:
            link.came(tx)
        if self._context.options.mempool and not ids & self._heard.keys() and tx.weight <= MAX_STANDARD_TX_WEIGHT:
            self._put(peer, stand, tx)
        self._context.changed()

    def _put(self, peer: Peer, stand: _Stand, tx: Transaction) -> None:
        gone = self._queue.put(tx.raw, peer.group)
        if gone is None:  # it is asked for again when there is room
            stand.announced.append(_packed(InvItem(InvType.WITNESS_TX, tx.txid)))
            stand.was_asked_for_all = False
            return
        for raw in gone:  # it may come again
            self._ask_again(Transaction.parse(raw))
        self._heard.update(dict.fromkeys((tx.txid, tx.wtxid)))
        while len(self._heard) > _MAX_HEARD:
            del self._heard[next(iter(self._heard))]

    def _ask_again(self, tx: Transaction) -> None:
        """A transaction left the queue: it is asked of those who announced it, of whom it was not as it had come."""
        ids = {tx.txid, tx.wtxid}
        for each in ids:
            self._heard.pop(each, None)
        item = InvItem(InvType.WITNESS_TX, tx.txid)
        for peer, stand in self._stands.items():
            if stand.heard.keys().isdisjoint(ids) or not stand.asked.keys().isdisjoint(ids):
                continue
            if self._bloom.link(peer).filter is None:
                stand.announced.append(_packed(item))
            elif len(stand.asked) < MAX_ASKED:
                # which its filter may have matched before it was loaded anew: not `link.announced`
                self._ask(peer, stand, [item])

    def not_found(self, peer: Peer, tx_hash: bytes) -> None:
        """A peer does not have a transaction any more."""
        self._broadcaster.not_found(peer, tx_hash)
        self._stand(peer).asked.pop(tx_hash, None)
        self._bloom.link(peer).not_found(tx_hash)

    def record(self) -> None:
        """Record some of the transactions that wait; once in a step, after blocks."""
        books = self._context.books
        if self._context.out.is_busy or not (self._later or self._queue or books.is_match_due):
            return  # a commit calls for another round
        was_short, work = not self._queue.is_half_free, 0
        while work < _MAX_WORK and (self._later or self._queue or books.is_match_due):
            size, events = self._record_one()
            work += size + _EVENT_WORK * (1 + len(events))
            for each in books.take_refused():  # it may come again, announced by other groups
                self._heard.pop(each, None)
            self._context.out.emit(*events)
        if books.turned_away and not self._has_warned:
            self._has_warned = True
            self._context.out.emit(PendingWarning(len(books.pool), books.pool.matches, books.pool.size))
        self._scripts.refresh()
        self._broadcaster.look()
        if self._later or self._queue or books.is_match_due or was_short:
            self._context.changed()

    def _record_one(self) -> tuple[int, list[WalletEvent]]:
        """Record one transaction; its size in bytes, and the events."""
        books, now = self._context.books, self._context.stamp()
        if books.is_match_due:
            return 0, books.match_some()
        if self._later:
            txid = next(iter(self._later))
            del self._later[txid]
            return 0, books.announce_later(txid, now)
        raw, group = self._queue.take()
        ids = set(_hashes(raw))
        groups = dict.fromkeys(
            [group, *(peer.group for peer, stand in self._stands.items() if not stand.heard.keys().isdisjoint(ids))]
        )
        return len(raw), books.observe(raw, now, groups=groups)


def _hashes(raw: bytes) -> tuple[bytes, bytes]:
    """The txid and the wtxid of a transaction."""
    tx = Transaction.parse(raw)
    return tx.txid, tx.wtxid


def _packed(item: InvItem) -> bytes:
    """An item of a transaction in one object: the hash (32 bytes) and the number of its kind.

    A peer may announce 50,000.
    """
    return item.hash + bytes((_KINDS.index(item.kind),))


def _unpacked(packed: bytes) -> InvItem:
    return InvItem(_KINDS[packed[32]], packed[:32])


def _fetched_as(kind: int) -> InvType:
    """How an announced transaction is asked for: by wtxid, or by txid with its witness."""
    return InvType.WTX if kind == InvType.WTX else InvType.WITNESS_TX
