"""Unconfirmed transactions that peers announce. The `broadcaster` module handles the wallet's own transactions.

With compact filters, peers do not know the wallet's scripts, so at the tip the engine fetches every announced
transaction, and records it if it matches. With BIP-37, a peer announces the transactions that its filter matches. The
engine records blocks first, then a few transactions in each step, so that a flood of transactions does not delay
blocks.

A transaction counts once peers in two network groups have announced it, with the exceptions in `quorum`. Peers do not
announce transactions that they had before we connected. With compact filters, the engine therefore asks a peer in a
second group for a transaction that is still waiting after a few seconds.

The engine measures the work that a network group's transactions cause, in bytes, events and linked records. A group
that causes too much work is paused, and its transactions wait in the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import inf

from spvfilter.errors import LieError
from spvfilter.light.engine.bloomsearch import BloomSearch
from spvfilter.light.engine.broadcaster import Broadcaster
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.demands import Demand
from spvfilter.light.engine.filterscripts import FilterScripts
from spvfilter.light.engine.longchange import is_long
from spvfilter.light.engine.pace import Pace
from spvfilter.light.engine.peers import BLOOM, Peer
from spvfilter.light.engine.quorum import Quorum
from spvfilter.light.engine.relay import Relay
from spvfilter.light.events import PendingWarning
from spvfilter.light.lies import Lie
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import MAX_INVENTORY, MAX_STANDARD_TX_WEIGHT
from spvfilter.store.validity import why_impossible
from spvfilter.transaction import Transaction
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.parts import Parts
from spvfilter.wallet.queue import Queue
from spvfilter.wire.events import Service
from spvfilter.wire.messages.table import GetData, InvItem, InvType, Mempool

MAX_ASKED = 5_000  # Limit on outstanding requests for transactions to a peer with a filter (our choice).
MAX_ASKED_UNFILTERED = 625  # Limit on outstanding requests to a peer without a filter (our choice).
_MAX_HEARD = 50_000  # Txids and wtxids that are remembered (our choice).
MAX_ORDERED = 2_000  # Announcements of each peer for which the order is remembered (our choice).
ASK_AFTER_S = 10.0
"""Seconds after which a peer in another network group is asked for a waiting transaction: two of Core's rounds."""
_MAX_QUESTIONS = 100  # Limit on outstanding requests of this kind (our choice).
_MAX_WORK = 20_000
"""Work after which a step records no more transactions. The unit is a byte of a transaction (our choice).

This much work takes a few milliseconds."""
_EVENT_WORK = 300
"""Work for each event, and for each transaction in addition to its bytes."""
_LINK_WORK = 30
"""Work for each record or input that is visited, since a transaction is judged with everything linked to it."""
_WORK_S = 0.3e-6  # Processor time in seconds for a unit of work, on a slow machine in 2026.
_KINDS = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)


@dataclass(slots=True)
class _PeerInventory:
    """Announcements of one peer."""

    asked: dict[bytes, None] = field(default_factory=dict)
    """Requested transactions that have not arrived, by txid or wtxid."""
    announced: deque[bytes] = field(default_factory=lambda: deque(maxlen=MAX_INVENTORY))
    """Items that have not been requested yet; see _packed."""
    was_asked_for_all: bool = False
    """True if the peer was sent a mempool message."""
    heard: dict[bytes, None] = field(default_factory=dict)
    """Txids and wtxids that the peer announced, the latest last."""
    later: set[bytes] = field(default_factory=set)
    """Txids of transactions that the peer announced after the transaction that replaced them."""


class MempoolWatch:
    """Handles announcements and transactions from all peers."""

    def __init__(
        self,
        context: Context,
        scripts: FilterScripts,
        bloom: BloomSearch,
        broadcaster: Broadcaster,
        relay: Relay,
    ) -> None:
        self._context = context
        self._scripts = scripts
        self._bloom = bloom
        self._inventories: dict[Peer, _PeerInventory] = {}
        self._queue = Queue()
        self._pace = Pace()
        self._heard: dict[bytes, None] = {}  # txids and wtxids of received transactions, the oldest first
        self._later: dict[bytes, None] = {}  # txids of transactions that a peer announced after their replacement
        self._broadcaster = broadcaster
        self._relay = relay
        self._quorum = Quorum(context)
        self._trusted: frozenset[str] = frozenset()  # Network groups whose announcement was enough at the last check.
        self._heeded: dict[bytes, None] = {}  # Txids of waiting transactions that peers may have announced since.
        self._ask_at: dict[bytes, float] = {}  # When to ask another peer for a waiting transaction, the earliest first.
        self._asked: dict[bytes, Peer] = {}  # Peers asked for a waiting transaction that have not answered, by txid.
        self._sender: tuple[bytes, Peer | None] = b"", None  # Wtxid of the latest recorded transaction, and its sender.
        self._senders: dict[bytes, Peer] = {}  # Senders of the queue's transactions, by wtxid.
        self._has_warned = False  # that a transaction did not fit
        context.pool.on_gone(self._gone)

    def _gone(self, peer: Peer) -> None:
        self._inventories.pop(peer, None)
        for txid in [txid for txid, each in self._asked.items() if each is peer]:
            del self._asked[txid]
            self._ask_at[txid] = self._context.now.monotonic

    def _inventory(self, peer: Peer) -> _PeerInventory:
        inventory = self._inventories.get(peer)
        if inventory is None:
            inventory = self._inventories[peer] = _PeerInventory()
        return inventory

    # Announcements

    def announced(self, peer: Peer, items: Sequence[InvItem]) -> None:
        """Handle transactions that a peer has announced."""
        inventory = self._inventory(peer)
        items = [item for item in items if item.kind in _KINDS]
        for item in items:
            self._broadcaster.heard(peer, item.hash)
        self._relay.announced(peer, items)
        if items:
            self._broadcaster.round_passed(peer)
        self._order(peer, inventory, items)
        link = self._bloom.link(peer)
        if link.filter is None:
            inventory.announced.extend(map(_packed, items))
            self._context.changed()
            return
        unasked = [item for item in items if item.hash not in inventory.asked]
        has_room = self._queue.has_room(peer.group)
        wanted = unasked[: MAX_ASKED - len(inventory.asked)] if has_room else []
        if unasked and not has_room:
            inventory.was_asked_for_all = False  # the peer is asked for them when there is room
        link.misses_txs = link.misses_txs or len(wanted) < len(unasked)
        link.announced([item.hash for item in wanted])
        self._ask(peer, inventory, wanted)

    def _order(self, peer: Peer, inventory: _PeerInventory, items: Sequence[InvItem]) -> None:
        """Record transactions that the peer announced after the transaction that replaced them.

        If the peer never announced the replacement, it may just be late. But if no connected peer announced it, they
        may have restarted and forgotten it, so the transaction counts as announced later. Only a peer's first
        announcement of a transaction counts, because otherwise a few bytes could move many matches back and forth.
        """
        books = self._context.books
        for item in items[-MAX_ORDERED:]:
            if item.hash in inventory.heard:
                continue
            record = books.facts.find(item.hash)
            if record is not None and record.txid in books.intake.pool:
                books.intake.pool.quota.announce(record.txid, [peer.group])
                self._heed(record.txid)
                verdict = books.judgement.verdict(record.txid)
                if verdict is not None and verdict.status is Status.REPLACED and record.txid not in inventory.later:
                    conflict = None if verdict.conflicts_with is None else books.facts.record(verdict.conflicts_with)
                    ids = () if conflict is None else books.facts.hashes(conflict.txid)
                    is_later = not inventory.heard.keys().isdisjoint(ids)
                    if (is_later or (ids and self._has_left(ids))) and len(inventory.later) < MAX_ORDERED:
                        inventory.later.add(record.txid)
                        self._later[record.txid] = None
                        self._context.changed()
            inventory.heard[item.hash] = None
        for each in list(islice(inventory.heard, max(0, len(inventory.heard) - MAX_ORDERED))):
            del inventory.heard[each]

    def _has_left(self, ids: Collection[bytes]) -> bool:
        """True if no connected peer has announced a transaction: the nodes that did may have restarted without it."""
        return all(each.heard.keys().isdisjoint(ids) for each in self._inventories.values())

    def _heed(self, txid: bytes) -> None:
        """Examine a waiting transaction again, because another peer has it."""
        if txid in self._context.books.judgement.waiting:
            self._heeded[txid] = None
            self._context.changed()

    def _ask(self, peer: Peer, inventory: _PeerInventory, items: Collection[InvItem]) -> None:
        if items:
            inventory.asked.update(dict.fromkeys(item.hash for item in items))
            self._context.out.send(
                peer.number, GetData(tuple(InvItem(_fetched_as(item.kind), item.hash) for item in items))
            )

    def advance(self, *, is_synced: bool, by_filter: bool) -> None:
        """At the tip, request announced transactions, and ask peers for announcements."""
        if not by_filter:
            for peer in self._bloom.disarm():
                self._inventory(peer).was_asked_for_all = False
        self._look_for_evidence(by_filter=by_filter)
        if self._context.options.mempool and is_synced:
            for peer in self._bloom.members if by_filter else self._context.pool.ready():
                self._listen(peer, by_filter=by_filter)

    @property
    def next_at(self) -> float:
        """When `advance` is next due for a waiting transaction (monotonic seconds); infinity if there is none."""
        now = self._context.now.monotonic
        ask_at = next(iter(self._ask_at.values()), inf) if len(self._asked) < _MAX_QUESTIONS else inf
        if ask_at <= now:  # nobody could be asked in this step, for example without peers
            ask_at = now + ASK_AFTER_S
        rested_at = min(map(self._pace.ready_at, self._queue.groups), default=inf)
        if rested_at <= now:  # they are recorded after the next commit, or in the next step
            rested_at = inf
        return min(ask_at, rested_at, self._quorum.next_at if self._context.books.judgement.waiting else inf)

    def _look_for_evidence(self, *, by_filter: bool) -> None:
        """Check whether one network group is enough now, and ask other peers for waiting transactions."""
        now, books = self._context.now.monotonic, self._context.books
        self._quorum.look()
        trusted, before = self._quorum.trusted, self._trusted
        if trusted != before:
            self._trusted = trusted
            self._heeded |= books.judgement.waiting if trusted else {}
        for txid in books.judgement.take_waiting():
            self._heeded[txid] = None
            self._ask_at[txid] = now + ASK_AFTER_S
        if by_filter:  # a filter shows the wallet's scripts; a request would also show what others sent
            self._ask_at.clear()
            return
        due = [txid for txid, at in islice(self._ask_at.items(), _MAX_QUESTIONS) if at <= now]
        for txid in due:
            del self._ask_at[txid]
            record = books.facts.record(txid)
            if record is None or txid not in books.judgement.waiting or not books.hits.is_match(txid):
                continue
            peer = self._second_peer(record.announced_by) if len(self._asked) < _MAX_QUESTIONS else None
            if peer is None:
                self._ask_at[txid] = now + ASK_AFTER_S
                continue
            self._asked[txid] = peer
            self._ask(peer, self._inventory(peer), [InvItem(InvType.WITNESS_TX, txid)])

    def _second_peer(self, groups: Collection[str]) -> Peer | None:
        """Return a random peer outside these network groups, or None if there is none."""
        peers = [peer for peer in self._context.pool.ready() if peer.relays and peer.group not in groups]
        return self._context.random.choice(peers) if peers else None

    def _listen(self, peer: Peer, *, by_filter: bool) -> None:
        inventory = self._inventory(peer)
        if not self._queue.has_much_room(peer.group):
            return  # otherwise each transaction that does not fit would cause a request for all again
        # These items are from before the filter, or did not fit. A mempool message makes the peer announce matches.
        if by_filter and inventory.announced:
            inventory.announced.clear()
            inventory.was_asked_for_all = False
        if (
            peer.serves(BLOOM)
            and peer.relays
            and not inventory.was_asked_for_all
            and not self._context.pool.refuses(peer, Demand.MEMPOOL, self._context.now)
            and (not by_filter or self._bloom.link(peer).filter is not None)
        ):
            inventory.was_asked_for_all = True
            self._context.pool.demand(peer, Demand.MEMPOOL, self._context.now)
            self._context.out.send(peer.number, Mempool())
            self._context.out.fence(peer.number, partial(self._context.pool.grant, peer, Demand.MEMPOOL))
        if not by_filter:
            wanted: dict[bytes, InvItem] = {}
            while inventory.announced and len(wanted) + len(inventory.asked) < MAX_ASKED_UNFILTERED:
                item = _unpacked(inventory.announced.popleft())
                if item.hash not in inventory.asked and item.hash not in self._heard:
                    wanted[item.hash] = item
            self._ask(peer, inventory, wanted.values())

    def forget(self) -> None:
        """Forget the received transactions, because they may match after a reorganization or with new entries."""
        self._heard.clear()
        for inventory in self._inventories.values():
            inventory.was_asked_for_all = False
            inventory.later.clear()

    # Transactions

    def take(self, peer: Peer, raw: bytes) -> None:
        """Process a transaction from a peer.

        Raises:
            LieError: The transaction was not requested, or no block can contain it.
            FormatError: The bytes are not a transaction.
        """
        link = self._bloom.link(peer)
        if len(raw) > MAX_STANDARD_TX_WEIGHT and not link.expects_txs and not self._broadcaster.has_size(len(raw)):
            link.misses_txs = True  # Parsing would take long, and no honest peer relays it. A block may contain it.
            return
        tx = Transaction.parse(raw)
        if link.tx(tx):
            return
        inventory, ids = self._inventory(peer), {tx.txid, tx.wtxid}
        if not ids & inventory.asked.keys():
            if self._broadcaster.given(peer, tx.txid) or self._relay.given(peer, tx.txid):
                return
            cause = Lie.UNPROVED_TX if link.expects_txs else Lie.UNASKED_TX
            raise LieError(f"transaction {hash_to_hex(tx.txid)}", cause=cause)
        if (reason := why_impossible(tx)) is not None:
            raise LieError(f"transaction {hash_to_hex(tx.txid)}: {reason}", cause=Lie.IMPOSSIBLE_TX)
        for each in ids:
            inventory.asked.pop(each, None)
        self._asked.pop(tx.txid, None)
        inventory.heard[tx.txid] = None
        self._heed(tx.txid)
        self._broadcaster.given(peer, tx.txid)  # the peer may have it with another witness, and announce that
        self._relay.given(peer, tx.txid)
        if self._broadcaster.note_child(tx):
            for holder, other in self._inventories.items():
                if not ids.isdisjoint(other.heard):
                    self._broadcaster.heard(holder, tx.txid)
        if link.filter is not None:
            link.came(tx)
            if self._context.options.mempool:
                self._bloom.hunt(peer, tx)
        if self._context.options.mempool and not ids & self._heard.keys() and tx.weight <= MAX_STANDARD_TX_WEIGHT:
            self._put(peer, inventory, tx)
        self._context.changed()

    def _put(self, peer: Peer, inventory: _PeerInventory, tx: Transaction) -> None:
        gone = self._queue.put(tx.raw, peer.group)
        if gone is None:  # it is requested again when there is room
            inventory.announced.append(_packed(InvItem(InvType.WITNESS_TX, tx.txid)))
            inventory.was_asked_for_all = False
            return
        self._senders[tx.wtxid] = peer
        for raw in gone:  # each may be sent again
            left = Transaction.parse(raw)
            self._senders.pop(left.wtxid, None)
            self._ask_again(left.txid, left.wtxid)
        self._heard.update(dict.fromkeys((tx.txid, tx.wtxid)))
        while len(self._heard) > _MAX_HEARD:
            del self._heard[next(iter(self._heard))]

    def _ask_again(self, txid: bytes, wtxid: bytes) -> None:
        """Request a dropped transaction again from the other peers that announced it."""
        ids = {txid, wtxid}
        for each in ids:
            self._heard.pop(each, None)
        item = InvItem(InvType.WITNESS_TX, txid)
        for peer, inventory in self._inventories.items():
            if inventory.heard.keys().isdisjoint(ids) or not inventory.asked.keys().isdisjoint(ids):
                continue
            if self._bloom.link(peer).filter is None:
                inventory.announced.append(_packed(item))
            elif len(inventory.asked) < MAX_ASKED:
                # not `link.announced`: an older filter of this peer may have matched the transaction
                self._ask(peer, inventory, [item])

    def not_found(self, peer: Peer, tx_hash: bytes) -> None:
        """Record that a peer no longer has a transaction that was requested (notfound)."""
        self._broadcaster.not_found(peer, tx_hash)
        self._relay.not_found(peer, tx_hash)
        self._inventory(peer).asked.pop(tx_hash, None)
        self._asked.pop(tx_hash, None)
        self._bloom.link(peer).not_found(tx_hash)

    def record(self) -> None:
        """Record some of the waiting transactions, once per step, after blocks.

        This begins a change, which the step must then advance. Usually, the change ends in the same step.
        """
        if not self._context.out.is_busy and self._has_work():  # else the next commit starts another round
            self._context.change.begin(self._recording())

    def _recording(self) -> Parts[None]:
        books = self._context.books
        was_short, work = not self._queue.is_half_free, 0
        while work < _MAX_WORK and self._has_work():
            walked = books.facts.graph.walked
            group, size, events = yield from self._record_one()
            one = size + _EVENT_WORK * (1 + len(events)) + _LINK_WORK * (books.facts.graph.walked - walked)
            work += one
            if group is not None:
                self._pace.charge(group, one * _WORK_S, self._context.now.monotonic)
            for each in books.intake.take_turned_away():  # other groups may announce it again
                self._heard.pop(each, None)
            for ids in books.intake.take_wrong():
                self._blame(*ids)
            yield from self._context.out.emit_in_parts(events)
            if is_long(len(events)):
                yield from self._context.out.tell_foreign_in_parts()
        if books.intake.turned_away and not self._has_warned:
            self._has_warned = True
            self._context.out.emit(
                PendingWarning(len(books.intake.pool), books.intake.pool.matches, books.intake.pool.size)
            )
        self._scripts.refresh()
        self._broadcaster.look()
        if self._has_work() or (was_short and work) or books.judgement.has_started_waiting:
            self._context.changed()

    def _has_work(self) -> bool:
        is_ready = self._ready_group() is not None
        return bool(self._later or self._heeded or is_ready or self._context.books.is_match_due)

    def _ready_group(self) -> str | None:
        """Return the next network group with a transaction in the queue that may be recorded now."""
        now = self._context.now.monotonic
        return next((group for group in self._queue.groups if self._pace.is_ready(group, now)), None)

    def _record_one(self) -> Parts[tuple[str | None, int, list[WalletEvent]]]:
        """Record one transaction.

        Returns the network group that is charged for the work, the transaction's size in bytes, and the events.
        """
        books, now = self._context.books, self._context.stamp()
        if books.is_match_due:
            due = next(iter(books.intake.due_groups or ()), None)
            return due, 0, (yield from books.match_some_in_parts())
        if self._later:
            txid = next(iter(self._later))
            del self._later[txid]
            return None, 0, (yield from books.announce_later_in_parts(txid, now))
        if self._heeded:
            txid = next(iter(self._heeded))
            del self._heeded[txid]
            record = books.facts.record(txid)
            groups = self._groups_of(books.facts.hashes(txid), () if record is None else record.announced_by)
            quorum = self._quorum.needed(groups)
            return None, 0, (yield from books.announce_in_parts(txid, groups, quorum=quorum))
        raw, group = self._queue.take(self._ready_group())
        ids = _hashes(raw)
        groups = self._groups_of(ids, [group])
        self._sender = ids[1], self._senders.pop(ids[1], None)
        quorum = self._quorum.needed(groups)
        return group, len(raw), (yield from books.observe_in_parts(raw, now, groups=groups, quorum=quorum))

    def _blame(self, txid: bytes, wtxid: bytes) -> None:
        """Drop the peer that sent a transaction with a wrong signature, and request the transaction from others."""
        sent, peer = self._sender
        if peer is not None and sent == wtxid and self._context.pool.has(peer):
            heard = self._inventory(peer).heard
            for each in (txid, wtxid):
                heard.pop(each, None)
            if txid != wtxid or peer.serves(Service.WITNESS):  # peers without segwit get it stripped
                error = LieError(f"transaction {hash_to_hex(txid)}", cause=Lie.WRONG_SIGNATURE)
                self._context.pool.drop(peer, error, self._context.now)
                self._context.changed()
        self._ask_again(txid, wtxid)

    def _groups_of(self, ids: Collection[bytes], known: Collection[str]) -> list[str]:
        """Return the network groups in `known`, then those of connected peers that announced the transaction."""
        heard = (peer.group for peer, each in self._inventories.items() if not each.heard.keys().isdisjoint(ids))
        return list(dict.fromkeys((*known, *heard)))


def _hashes(raw: bytes) -> tuple[bytes, bytes]:
    """Return the txid and the wtxid of a transaction."""
    tx = Transaction.parse(raw)
    return tx.txid, tx.wtxid


def _packed(item: InvItem) -> bytes:
    """Pack an item for a transaction into one bytes object: the hash (32 bytes) and the number of its kind.

    This saves memory, because a peer may announce 50,000 items.
    """
    return item.hash + bytes((_KINDS.index(item.kind),))


def _unpacked(packed: bytes) -> InvItem:
    return InvItem(_KINDS[packed[32]], packed[:32])


def _fetched_as(kind: int) -> InvType:
    """Return the kind of request for an announced transaction: by wtxid, or by txid with its witness."""
    return InvType.WTX if kind == InvType.WTX else InvType.WITNESS_TX
