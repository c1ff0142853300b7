"""Unconfirmed transactions: those that peers announce, and our own that they are offered.

With compact filters no peer knows what is ours, so from the tip on every transaction that is announced is fetched, and recorded if it
matches. With BIP-37 a peer announces what its filter matches. What comes is recorded a few at a time, after blocks: a flood delays none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from functools import partial

from spvfilter._dataclass import dataclass, field
from spvfilter.errors import LieError
from spvfilter.light.engine.bloomsearch import BloomSearch
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.peers import BLOOM, Peer
from spvfilter.light.engine.wanted import WantedScripts
from spvfilter.light.lies import Lie
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_INVENTORY
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.unconfirmed import Queue
from spvfilter.wire.messages.table import GetData, Inv, InvItem, InvType, Mempool, NotFound, Tx

MAX_ASKED = 5_000  # ours: announced transactions asked of a peer by its filter and not yet there
MAX_ASKED_UNFILTERED = 625  # ours: the same without a filter
MAX_OFFERED = 1_000  # ours: transactions that a peer may fetch, the latest offered
_MAX_HEARD = 50_000  # txids and wtxids that are remembered; ours
_MAX_ORDERED = 2_000  # announcements of each peer whose order is remembered; ours
_AT_ONCE = 20  # transactions recorded in one step
_KINDS = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)


@dataclass(slots=True)
class _Stand:
    """What was announced by and offered to one peer."""

    asked: dict[bytes, None] = field(default_factory=dict)  # txid or wtxid
    announced: deque[InvItem] = field(default_factory=lambda: deque(maxlen=MAX_INVENTORY))  # not asked for yet
    offered: dict[bytes, Transaction] = field(default_factory=dict)  # by txid and by wtxid
    was_asked_for_all: bool = False  # by a mempool message
    has_ours: bool = False  # whether it was offered all that is ours
    heard: dict[bytes, None] = field(default_factory=dict)  # txids and wtxids that it announced, the latest last
    fenced: set[bytes] = field(default_factory=set)  # txids of ours that it fetched, and whose ping is under way


class MempoolWatch:
    """Takes announcements and transactions of all peers, and offers ours."""

    def __init__(self, context: Context, scripts: WantedScripts, bloom: BloomSearch) -> None:
        self._context = context
        self._scripts = scripts
        self._bloom = bloom
        self._stands: dict[Peer, _Stand] = {}
        self._queue = Queue()
        self._heard: dict[bytes, None] = {}  # txid and wtxid of what came, the oldest first
        self._relayed: set[bytes] = set()  # txids of ours that a peer announced that did not have them from us
        self._own: dict[bytes, Transaction] = {}  # by txid and wtxid
        self._sending: dict[bytes, tuple[Transaction, float]] = {}  # by txid: not recorded yet, and since when they are offered
        context.pool.on_gone(lambda peer: self._stands.pop(peer, None))

    def _stand(self, peer: Peer) -> _Stand:
        return self._stands.setdefault(peer, _Stand())

    # Announced to us

    def announced(self, peer: Peer, items: Sequence[InvItem]) -> None:
        """A peer announces transactions."""
        stand = self._stand(peer)
        items = [item for item in items if item.kind in _KINDS]
        for item in items:
            own = self._own.get(item.hash)
            if own is not None:
                if item.hash not in stand.offered:
                    self._relayed.add(own.txid)
                self._taken(own)
                self._context.out.taken(own.txid)
        self._order(stand, items)
        link = self._bloom.link(peer)
        if link.filter is None:
            stand.announced.extend(items)
            self._context.changed()
            return
        unasked = [item for item in items if item.hash not in stand.asked]
        wanted = unasked[: MAX_ASKED - len(stand.asked)]
        link.misses_txs = link.misses_txs or len(wanted) < len(unasked)
        link.unanswered.update(item.hash for item in wanted)
        self._ask(peer, stand, wanted)

    def _order(self, stand: _Stand, items: Sequence[InvItem]) -> None:
        """A peer that announced what replaced a transaction, and now that, tells that it came later. Others may just be late."""
        unconfirmed = self._context.books.unconfirmed
        for item in items[-_MAX_ORDERED:]:
            if item.hash in stand.heard:
                continue
            txid = unconfirmed.find(item.hash)
            if txid is not None and not unconfirmed.is_live(txid):
                rival = unconfirmed.pending[txid].rival or b""
                known = unconfirmed.pending.get(rival)
                if rival in stand.heard or (known is not None and Transaction.parse(known.raw).wtxid in stand.heard):
                    self._context.out.emit(*self._context.books.see_again(txid))
            stand.heard[item.hash] = None
            if len(stand.heard) > _MAX_ORDERED:
                del stand.heard[next(iter(stand.heard))]

    def _ask(self, peer: Peer, stand: _Stand, items: Collection[InvItem]) -> None:
        if items:
            stand.asked.update(dict.fromkeys(item.hash for item in items))
            self._context.out.send(peer.number, GetData(tuple(InvItem(_fetched_as(item.kind), item.hash) for item in items)))

    def advance(self, *, is_synced: bool, by_filter: bool) -> None:
        """At the tip, ask for what was announced, and tell peers that announcements are welcome."""
        if self._context.options.mempool and is_synced:
            for peer in self._bloom.members if by_filter else self._context.pool.ready():
                self._listen(peer, by_filter=by_filter)

    def _listen(self, peer: Peer, *, by_filter: bool) -> None:
        stand = self._stand(peer)
        if peer.serves(BLOOM) and not stand.was_asked_for_all and (not by_filter or self._bloom.link(peer).filter is not None):
            stand.was_asked_for_all = True
            self._context.out.send(peer.number, Mempool())
        if not by_filter and self._queue.has_room:
            wanted: dict[bytes, InvItem] = {}
            while stand.announced and len(wanted) + len(stand.asked) < MAX_ASKED_UNFILTERED:
                item = stand.announced.popleft()
                if item.hash not in stand.asked and item.hash not in self._heard:
                    wanted[item.hash] = item
            self._ask(peer, stand, wanted.values())

    def forget(self) -> None:
        """What came may be of interest again: after a reorganisation, or with new entries."""
        self._heard.clear()
        self._relayed.clear()
        for stand in self._stands.values():
            stand.was_asked_for_all = stand.has_ours = False

    # Transactions

    def take(self, peer: Peer, raw: bytes) -> None:
        """A transaction came. Raises LieError for one that was not asked for, FormatError."""
        tx = Transaction.parse(raw)
        link = self._bloom.link(peer)
        if link.tx(tx.txid, raw):
            return
        stand, ids = self._stand(peer), {tx.txid, tx.wtxid}
        if not ids & stand.asked.keys():
            offered = stand.offered.get(tx.txid)
            if offered is not None:
                self._taken(offered)
                self._context.out.taken(tx.txid)
                return
            cause = Lie.UNPROVED_TX if link.expects_txs else Lie.UNASKED_TX
            raise LieError(f"transaction {hash_to_hex(tx.txid)}", cause=cause)
        for each in ids:
            stand.asked.pop(each, None)
        if link.filter is not None:
            was_missing = ids & link.unanswered
            link.unanswered -= was_missing
            link.judge(raw, in_block=False)
        if self._context.options.mempool and not ids & self._heard.keys():
            self._put(stand, tx)
        self._context.changed()

    def _put(self, stand: _Stand, tx: Transaction) -> None:
        if not self._queue.put(tx.raw):  # it is asked for again when there is room
            stand.announced.append(InvItem(InvType.WITNESS_TX, tx.txid))
            stand.was_asked_for_all = False
            return
        self._heard.update(dict.fromkeys((tx.txid, tx.wtxid)))
        while len(self._heard) > _MAX_HEARD:
            del self._heard[next(iter(self._heard))]

    def not_found(self, peer: Peer, tx_hash: bytes) -> None:
        """A peer does not have a transaction any more."""
        self._stand(peer).asked.pop(tx_hash, None)
        link = self._bloom.link(peer)
        if tx_hash in link.unanswered:
            link.unanswered.discard(tx_hash)
            link.misses_txs = True

    def record(self) -> None:
        """Record some of what waits; once in a step, after blocks."""
        if self._context.out.is_busy:
            return  # a commit calls for another round
        for _ in range(min(_AT_ONCE, len(self._queue))):
            events = self._context.books.add_unconfirmed(self._queue.take(), int(self._context.lived))
            self._context.out.emit(*events)
            self._scripts.add_pending(event.match.txid for event in events if isinstance(event, MatchFound))
        if self._queue:
            self._context.changed()

    # Ours

    def load_own(self) -> None:
        """Which unconfirmed transactions are ours, and which are being sent."""
        self._own.clear()
        for _, raw in self._context.books.own_unconfirmed():
            tx = Transaction.parse(raw)
            self._own[tx.txid] = self._own[tx.wtxid] = tx
        now, reply_s = self._context.now.monotonic, self._context.options.patience.reply_s
        for tx in [tx for tx, since in self._sending.values() if now - since >= reply_s]:  # nobody took it: it is not sent any more
            del self._sending[tx.txid]
            for stand in self._stands.values():
                stand.offered.pop(tx.txid, None)
                stand.offered.pop(tx.wtxid, None)
        for tx, _ in self._sending.values():
            self._own[tx.txid] = self._own[tx.wtxid] = tx
        self._relayed &= self._own.keys()

    def offer_own(self) -> None:
        """Offer new peers, and after a reorganisation all, what is ours and no other peer has announced by itself."""
        due = [peer for peer in self._context.pool.ready() if not self._stand(peer).has_ours]
        if due:
            self.load_own()
        for peer in due:
            self._stand(peer).has_ours = True
            for txid in dict.fromkeys(tx.txid for tx in self._own.values()):
                if txid not in self._relayed:
                    self.offer(peer, self._own[txid])

    def offer(self, peer: Peer, tx: Transaction) -> None:
        """Announce a transaction to a peer, and ask for it: the answer shows whether the peer has it already."""
        if peer.profile is None or not peer.profile.relays:
            return
        stand = self._stand(peer)
        stand.offered[tx.txid] = stand.offered[tx.wtxid] = tx
        while len(stand.offered) > 2 * MAX_OFFERED:
            del stand.offered[next(iter(stand.offered))]
        item = InvItem(InvType.WTX, tx.wtxid) if peer.profile.wtxid_relay else InvItem(InvType.TX, tx.txid)
        self._context.out.send(peer.number, Inv((item,)))
        self._context.out.send(peer.number, GetData((InvItem(_fetched_as(item.kind), item.hash),)))

    def broadcast(self, raw: bytes) -> None:
        """Offer a transaction of ours to all peers; it is recorded when the first one has taken it. Raises FormatError."""
        tx = Transaction.parse(raw)
        if not self._context.books.is_own(tx.txid):
            self._sending[tx.txid] = tx, self._context.now.monotonic
        elif self._context.books.has_tx(tx.txid):
            self._context.out.emit(*self._context.books.add_unconfirmed(tx.raw, int(self._context.lived), own=True))
        self.load_own()
        for peer in self._context.pool.ready():
            self.offer(peer, tx)

    def abandon(self, txid: bytes) -> None:
        """Give up a transaction of ours: it is not offered any more. One that a block has meanwhile stays."""
        if txid not in self._context.books.unconfirmed.pending:
            return
        self._context.out.emit(*self._context.books.abandon(txid))
        before = set(self._own)
        self.load_own()
        for stand in self._stands.values():
            for tx_hash in before - self._own.keys():
                stand.offered.pop(tx_hash, None)
        self._context.changed()

    def _taken(self, tx: Transaction) -> None:
        """A peer has a transaction that we are sending."""
        if self._sending.pop(tx.txid, None) is not None:
            self._context.out.emit(*self._context.books.add_unconfirmed(tx.raw, int(self._context.lived), own=True))
            self._scripts.add_pending((tx.txid,))
            self._bloom.teach()
            self.load_own()
            self._context.changed()

    def _has_taken(self, stand: _Stand, txid: bytes) -> None:
        """A peer has dealt with a transaction that it fetched."""
        stand.fenced.discard(txid)
        self._context.out.taken(txid)

    def serve(self, peer: Peer, items: Sequence[InvItem]) -> None:
        """Answer a getdata."""
        stand, missing = self._stand(peer), []
        for item in dict.fromkeys(items):
            tx = stand.offered.get(item.hash)
            if tx is None:
                missing.append(item)
                continue
            self._taken(tx)
            self._context.out.send(peer.number, Tx(tx.raw))  # with its witness, even if asked for by MSG_TX: bcoin does so
            if tx.txid not in stand.fenced:
                stand.fenced.add(tx.txid)
                self._context.out.fence(peer.number, partial(self._has_taken, stand, tx.txid))
        if missing:
            self._context.out.send(peer.number, NotFound(tuple(missing)))


def _fetched_as(kind: int) -> InvType:
    """How an announced transaction is asked for: by wtxid, or by txid with its witness."""
    return InvType.WTX if kind == InvType.WTX else InvType.WITNESS_TX
