"""Broadcast of the wallet's transactions: record, announce (inv), serve (tx), and infer whether peers accept them.

A peer does not announce a transaction back to the node that sent it. Therefore the broadcaster announces a transaction
to some peers immediately, and to the others a few seconds later. If one of the others announces it first, the network
is relaying it. A peer that announces a child also has the transaction.

The broadcaster announces it again every 10 to 15 minutes, and to every new peer. Once the network relays it, one
announcement a day is enough.

The broadcaster asks a peer that requested a transaction whether the peer has it: every 1.5 s (0.5 s while a call is
waiting), and after each round of announcements. Core answers notfound for an accepted transaction until its next round
of announcements to us (Poisson, mean 5 s).

A false rejection would free coins that are spent. A peer that still lacks the transaction has rejected it in these
cases:

- A round has passed, which is certain: the peer received the transaction, then announced another one, and then
  answered notfound to a later request. Pongs show the order. This applies to Core 26 and later.
- The peer has lacked the transaction for 20 s, and a peer in another network group has lacked it for as long, or has
  rejected it. This is wrong in 0.03 % of cases (e^-8).
- The peer has lacked it for 40 s, which is wrong in 0.03 % of cases (e^-8). Core before version 26 gets 130 s, since it
  answers notfound for two minutes.

The first two cases need inputs from confirmed transactions of the wallet, and outputs that none of its transactions
spends. Otherwise a peer may accept the transaction later, together with its relatives.

A reject message (BIP-61) alone proves nothing: one liar could free coins that are spent. Its reason is reported once
one of these cases agrees, and the other peers get the transaction immediately.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf

from spvfilter.errors import ParameterError, TxConflictError, TxRefusedError, UselessPeerError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.netgroups import dialling_group
from spvfilter.light.engine.ownbooks import Conflict, OwnBooks
from spvfilter.light.engine.owntxs import BroadcastState, OwnTx, OwnTxs, PeerRecord, Private, Schedule
from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Broadcast, BroadcastChanged, BroadcastProgress, BroadcastStep
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.facts import parents_first
from spvfilter.wire.messages.fields import printable
from spvfilter.wire.messages.table import GetData, Inv, InvItem, InvType, NotFound, Reject, Tx

MAX_SERVED = 1_000
"""Number of the latest announced transactions that a peer may request (our choice)."""
MAX_PEERS_TOLD = 1_000
"""Number of the latest peers whose reactions to a transaction are kept in memory (our choice)."""
MAX_CHILDREN = 1_000
"""Largest number of txids and wtxids of foreign children of the wallet's transactions to remember (our choice)."""
MAX_ANNOUNCED = 200
"""Largest number of transactions that are announced to a peer in one step (our choice)."""
ECHO_WAIT_S = 15.0
"""Longest delay before the first announcement to a peer, which may itself announce it in that time (our choice)."""
REBROADCAST_S = (600.0, 900.0)
"""Seconds between announcements until the network relays a transaction (Core ReattemptInitialBroadcast)."""
DAILY_S = (43_200.0, 129_600.0)
"""Seconds between announcements once the network relays a transaction (Core wallet.cpp, SetNextResend)."""
ECHOED_DELAY_S = 300.0
"""Mean delay before the first announcement to a peer once the network relays a transaction (our choice)."""
REJECT_S = 40.0
"""Seconds after which a peer that received a transaction and still lacks it has rejected it: eight of Core's rounds."""
PAIR_SHARE = 0.5
"""Share of `REJECT_S` after which two peers that both still lack a transaction have rejected it (our choice)."""
OLD_CORE_SHARE = 3.25
"""Multiple of `REJECT_S` for Core before version 26: 130 s (Core 25 net_processing.cpp UNCONDITIONAL_RELAY_DELAY)."""
_SEQUENCES = 26
"""First version of Core that serves every accepted transaction after a round (net_processing.cpp FindTxForGetData)."""
_CORE_AGENT = re.compile(r"/Satoshi:(\d{1,3})\.")
PROBE_S = 1.5
"""Seconds between requests that test whether a peer has a transaction (our choice)."""
FAST_PROBE_S = 0.5
"""Seconds between these requests while a call is waiting for the answer (our choice)."""
_KNOWN = (b"txn-already-in-mempool", b"txn-already-known")
"""Reasons in reject messages from peers that already have the transaction."""


class Broadcaster:
    """Broadcasts the wallet's own transactions and reports the reactions of peers."""

    def __init__(
        self,
        context: Context,
        books: OwnBooks,
        recorded: Callable[[bytes], None],
    ) -> None:
        """Create a broadcaster without transactions.

        `recorded` is called with the txid of each recorded transaction.
        """
        self._context = context
        self._books = books
        self._recorded = recorded
        self._on_returned: list[Callable[[OwnTx], None]] = []
        self._changed = books.follow()
        self._owns = OwnTxs()
        self._schedule = Schedule(self._owns)
        self._late: dict[Peer, dict[OwnTx, None]] = {}  # Transactions to announce to a peer once it is ready.
        self._served: dict[Peer, dict[bytes, bytes]] = {}  # Txid and wtxid that a peer may request → txid.
        # Txids of own parents, by the txid and wtxid of a foreign child.
        self._parents: dict[bytes, tuple[bytes, ...]] = {}
        # Transactions that a peer lacks, without a round since then.
        self._missing: dict[Peer, list[tuple[OwnTx, PeerRecord]]] = {}
        context.pool.on_gone(self._gone)

    def on_returned(self, call: Callable[[OwnTx], None]) -> None:
        """Register a function to call with each transaction loaded at the start, and each that becomes open again."""
        self._on_returned.append(call)

    def _returned(self, own: OwnTx) -> None:
        for call in self._on_returned:
            call(own)

    # Transactions

    def find(self, tx_hash: bytes) -> OwnTx | None:
        """Return one of the wallet's own pending or replaced transactions by its txid or wtxid."""
        own = self._owns.find(tx_hash)
        return own if own is not None and own.is_open else None

    def is_accepted(self, txid: bytes) -> bool:
        """Return True if a peer has accepted a pending or replaced transaction in this run."""
        own = self.find(txid)
        return own is not None and (own.state is BroadcastState.ACCEPTED or own.is_with_others)

    def has_size(self, size: int) -> bool:
        """Return True if any of the transactions is `size` bytes long."""
        return self._owns.has_size(size)

    def start(self) -> None:
        """Load the wallet's own transactions from the books."""
        self._changed.clear()
        for record in self._books.own_records():
            own = OwnTx(Transaction.parse(record.raw), self._books.status(record.txid))
            self._owns.put(own)
            if own.is_open:
                self._returned(own)
            self._wake(own)

    def look(self) -> None:
        """Look for changes in the books. Track our transactions that no block contains, and report each new status."""
        if not self._changed:
            return
        changed = [*self._changed]
        self._changed.clear()
        found = {record.txid: record for record in map(self._books.own_record, changed) if record is not None}
        gone = [own for txid in changed if txid not in found and (own := self._owns.remove(txid)) is not None]
        for own in sorted(gone, key=lambda each: each.place):  # each is now in a block
            self._report_status(own)
        for record in parents_first(found):
            if self._owns.get(record.txid) is None:  # a reorganization disconnected its block
                self._owns.put(OwnTx(Transaction.parse(record.raw), TxStatus.CONFIRMED))
        for own in self._owns.parents_first(own for own in map(self._owns.get, found) if own is not None):
            self._report_status(own)

    def broadcast(
        self,
        tx: Transaction,
        call: int | None = None,
        input_values: tuple[int, ...] | None = None,
        private: Private | None = None,
    ) -> OwnTx | None:
        """Record a transaction, and announce it once the record has been stored. The call, if any, is answered later.

        The wallet's own ancestors that expired or were rejected are broadcast again. Returns None if the call was
        answered immediately: the transaction is confirmed, or the books refuse it.
        """
        if self._books.is_confirmed(tx.txid):
            self._reply(call, tx, Broadcast(tx.txid))
            return None
        try:
            ancestors = self._books.check(tx)
        except ParameterError as error:
            self._reply(call, tx, error)
            return None
        revived = [OwnTx(ancestor, self._books.status(ancestor.txid), is_judged=True) for ancestor in ancestors]
        own = self.find(tx.txid)
        if own is None:
            is_new = not self._books.is_unconfirmed(tx.txid)
            own = OwnTx(tx, TxStatus.PENDING, is_judged=is_new, has_other_witness=self._may_have_other_witness(tx))
        elif own.tx.raw != tx.raw:
            self._change_witness(own, tx)
        own.private, own.input_values = private, input_values or own.input_values
        own.calls += [] if call is None else [call]
        own.waits_until = self._context.now.monotonic + self._context.options.timeouts.reply_s
        if not own.is_judged:  # the books had it, so its caller need not wait
            self.answer(own, own.known())
        for each in (*revived, own):  # the books revive the ancestors with it
            each.unstored += 1
            each.announced_at = None
            each.due.clear()
            self._owns.put(each)
            self._changed[each.tx.txid] = None
        self._context.out.emit(*self._books.record(tx, self._context.stamp()))
        self.look()
        self._recorded(tx.txid)
        self._context.out.after_commit(partial(self._stored, (*revived, own)))
        self._wake(*revived, own)
        return own if own.is_open else None  # an orphan that became its parent may conflict with a block

    def _stored(self, owns: Sequence[OwnTx]) -> None:
        for own in owns:
            own.unstored -= 1
        self._wake(*owns)

    def _may_have_other_witness(self, tx: Transaction) -> bool:
        """Return True if peers may still have an ended transaction with a different witness.

        If a peer accepted a conflicting transaction instead, this is False.
        """
        ended = self._books.ended_raw(tx.txid)
        if ended in (None, tx.raw) or self._books.ended(tx.txid) is TxStatus.REFUSED:
            return False
        rivals = (self._owns.get(each) for outpoint in tx.inputs for each in self._books.spenders(outpoint))
        return not any(rival is not None and rival.state is BroadcastState.ACCEPTED for rival in rivals)

    def _change_witness(self, own: OwnTx, tx: Transaction) -> None:
        """Broadcast a transaction with a different witness. Reactions to the first witness say nothing about it."""
        own.has_other_witness = own.has_other_witness or own.state is not BroadcastState.QUEUED or not own.is_judged
        self._owns.change_witness(own, tx)
        own.state, own.is_judged = BroadcastState.QUEUED, True
        for record in own.peers.values():  # answers that are still to come concern the other witness
            record.answered = self._context.now.monotonic
        for told in (own.peers, own.sent, own.refused, own.left):
            told.clear()

    def abandon(self, txid: bytes, *, is_unsent: bool = False) -> None:
        """Abandon a transaction of the wallet, unless it is confirmed. Announcements by peers do not revive it.

        Earlier versions that it replaced are abandoned with it, unless `is_unsent` is True.
        """
        if self._books.is_unconfirmed(txid) or self._books.ended(txid) is not None:
            self._context.out.emit(*self._books.abandon(txid, is_unsent=is_unsent))
            self.look()

    def is_unsent(self, txid: bytes) -> bool:
        """Return True if no peer can have the transaction: it was new in this run, and no peer requested it."""
        own = self.find(txid)
        if own is None or not own.is_judged or own.has_other_witness or own.private is not None:
            return False
        return own.state in (BroadcastState.QUEUED, BroadcastState.ANNOUNCED) and not (
            own.sent or own.echoed or own.left
        )

    def unsent(self) -> Iterator[bytes]:
        """Yield the txids of the transactions that are offered to all peers, but that no peer has or has requested."""
        for own in self._owns:
            is_new = own.state in (BroadcastState.QUEUED, BroadcastState.ANNOUNCED) and not own.is_with_others
            if is_new and own.is_open and own.private is None and self._books.is_announceable(own.tx.txid):
                yield own.tx.txid

    def lacking(self, txid: bytes) -> tuple[bytes, ...]:
        """Return the parents of one of our transactions that a peer requested and this client cannot serve.

        A node requests them if it received the transaction and does not know its inputs.
        """
        own = self.find(txid)
        return () if own is None else tuple(own.lacking)

    def announce_to_all(self, own: OwnTx) -> None:
        """End the private part of a broadcast. Earlier echoes cause no delay, because one peer may have lied."""
        now, longest_s = self._context.now.monotonic, self._echo_wait_s
        own.private = None
        own.due = {peer: now + self._context.random.uniform(0.0, longest_s) for peer in self._served}
        self._wake(own)

    def announce_again(self) -> None:
        """After a reorganization, announce everything again, even to peers that had it."""
        for own in self._owns:
            if own.private is not None:
                own.private.was_relayed = own.private.was_relayed or own.private.is_relayed
                own.private.echoed.clear()
            own.due.clear()
            own.echoed.clear()
        self._wake(*self._owns)

    def _wake(self, *owns: OwnTx) -> None:
        """Examine transactions in the next round. A transaction that is no longer hidden wakes its descendants."""
        for own in owns:
            if self._owns.get(own.tx.txid) is own:
                self._schedule.touch(own)
                if self._owns.note(own):
                    for descendant in self._owns.descendants((own,)).values():
                        self._schedule.touch(descendant)
        self._context.changed()

    # Time

    @property
    def next_at(self) -> float:
        """When `advance` is due next (monotonic seconds)."""
        return self._schedule.next_at

    def advance(self) -> None:
        """Announce what is due, query peers that received a transaction, and report results.

        A step examines only a few transactions, and the next step continues.
        """
        context, now = self._context, self._context.now.monotonic
        self.look()
        peers = [peer for peer in context.pool.ready() if peer.profile is not None and peer.profile.relays]
        for peer in peers:
            if peer not in self._served:
                self._served[peer] = {}
                self._wake(*self._owns)
        if context.looks_left <= 0 or (now < self.next_at and not any(map(self._late.get, peers))):
            return
        cost = 1 + len(self._served)
        owns = self._schedule.take(now, max(1, context.looks_left // cost))
        context.looks_left -= cost * len(owns)
        for own in owns:
            self._plan_announcements(own, peers)
            for peer, due in own.due.items():
                if due <= now:
                    self._late.setdefault(peer, {})[own] = None
        behind_hidden = self._owns.behind_hidden() if any(map(self._late.get, peers)) else ()
        looked = dict.fromkeys(owns)
        for peer in peers:
            if late := self._late.get(peer):
                looked.update(dict.fromkeys(self._announce_due(peer, late, behind_hidden)))
        for own in owns:
            for peer, record in list(own.peers.items()):
                if record.next_probe <= now:
                    self._probe(own, peer, record)
            if own.is_open:
                self._settle(own, now)
        for own in looked:
            self._schedule.plan(own, min(self._moments(own, now), default=inf))

    def _plan_announcements(self, own: OwnTx, peers: Collection[Peer]) -> None:
        """Plan when to announce a transaction to peers that have not been told of it, ready peers first."""
        if self._is_announceable(own):
            fresh = [peer for peer in peers if peer not in own.due]
            busy = [peer for peer in self._served if peer not in own.due and peer not in peers]
            sample = self._context.random.sample
            for peer in (*sample(fresh, len(fresh)), *sample(busy, len(busy))):
                own.due[peer] = self._first_due(own, peer)

    def _is_announceable(self, own: OwnTx) -> bool:
        """Return True if connected peers may learn of a transaction now."""
        return own.is_durable and own.private is None and self._books.is_announceable(own.tx.txid)

    def _first_due(self, own: OwnTx, peer: Peer) -> float:
        """Return when to announce a transaction to a peer for the first time."""
        now, random = self._context.now.monotonic, self._context.random
        if peer.address in own.echoed:
            return now + random.uniform(*DAILY_S)
        if own.echoed:
            return now + random.expovariate(1 / ECHOED_DELAY_S)
        if own.peers or any(due <= now for due in own.due.values()):
            return now + random.choice((0.0, random.uniform(0.5, 1.0) * self._echo_wait_s))
        return now

    @property
    def _echo_wait_s(self) -> float:
        return min(ECHO_WAIT_S, self._context.options.timeouts.reply_s / 8)

    def _moments(self, own: OwnTx, now: float) -> Iterator[float]:
        """Yield the times at which something is due for a transaction."""
        yield from (due for due in own.due.values() if due > now)
        yield from (record.next_probe for record in own.peers.values() if record.next_probe > now)
        yield own.waits_until
        if own.is_judged and own.state is not BroadcastState.ACCEPTED and own.announced_at is not None:
            yield from (at for each in own.peers.values() if (at := each.announced + self.reject_s) > now)
            yield from (at for at in (own.announced_at + self._context.options.timeouts.reply_s,) if at > now)

    # Announcements

    def _announce_due(self, peer: Peer, late: dict[OwnTx, None], behind_hidden: Collection[bytes]) -> Sequence[OwnTx]:
        """Announce the due transactions to a peer, and return what it may now request.

        `late` contains the transactions that may be due. The rest are examined again when they change.
        """
        now = self._context.now.monotonic
        chosen = sorted(islice(late, MAX_ANNOUNCED), key=lambda each: each.place)
        for own in chosen:
            del late[own]
        if late:
            self._schedule.touch(next(iter(late)))
        due = [own for own in chosen if own.due.get(peer, inf) <= now and self._is_announceable(own)]
        due = [own for own in due if own.tx.txid not in behind_hidden]
        announced, held_back = self._in_order(peer, due)
        for own in (*announced, *held_back):
            self._allow(peer, own)
            own.due[peer] = now + self._context.random.uniform(*(DAILY_S if own.echoed else REBROADCAST_S))
        for own in announced:
            self._allow_parents(peer, own)
            self._announce(peer, own)
        return [*announced, *held_back]

    def _in_order(self, peer: Peer, due: Sequence[OwnTx]) -> tuple[list[OwnTx], list[OwnTx]]:
        """Return the transactions to announce to a peer, ancestors first, and those to serve only on request.

        A peer ignores a parent below its fee filter. If only the child is announced, the peer requests the parent and
        accepts both as a package (Core 28 and later). Some nodes never accept a parent that they once rejected.
        """
        chosen, waiting = {own.tx.txid: own for own in due}, list(due)
        while waiting:  # ancestors that the peer may lack
            for parent in self._owns.parents(waiting.pop()):
                if parent.tx.txid not in chosen and peer not in parent.peers and not parent.is_with_others:
                    chosen[parent.tx.txid] = parent
                    waiting.append(parent)
        found = self._owns.parents_first(chosen.values())
        paid = {each.tx.txid for own in found for each in self._paid_for(peer.fee_filter or 0, own)}
        return [own for own in found if own.tx.txid not in paid], [own for own in found if own.tx.txid in paid]

    def _paid_for(self, floor: int, child: OwnTx) -> list[OwnTx]:
        """Return the parents that pay less than `floor` (satoshi per 1,000 vbytes), but enough with this child."""
        found: list[OwnTx] = []
        fee = self._books.known_fee(child.tx, child.input_values) if floor else None
        for parent in self._owns.parents(child) if fee is not None else ():
            paid, size = self._books.known_fee(parent.tx, parent.input_values), parent.tx.virtual_size
            if fee is None or paid is None or paid * 1_000 >= floor * size:
                continue
            if (paid + fee) * 1_000 >= floor * (size + child.tx.virtual_size):
                found.append(parent)
        return found

    def _allow(self, peer: Peer, own: OwnTx) -> None:
        """Allow a peer to request a transaction."""
        served = self._served[peer]
        for tx_hash in (own.tx.txid, own.tx.wtxid):
            served.pop(tx_hash, None)
            served[tx_hash] = own.tx.txid
        while len(served) > 2 * MAX_SERVED:
            del served[next(iter(served))]

    def _allow_parents(self, peer: Peer, own: OwnTx) -> None:
        """Allow a peer to request a transaction's parents, which it may lack even though other peers have them."""
        for parent in self._owns.parents(own):
            if self._is_announceable(parent) and parent.tx.txid not in self._served[peer]:
                self._allow(peer, parent)

    def _announce(self, peer: Peer, own: OwnTx) -> None:
        """Announce a transaction to a peer, and ask for it, since the answer shows whether the peer already has it."""
        now = self._context.now.monotonic
        if own.state is BroadcastState.QUEUED:
            own.state = BroadcastState.ANNOUNCED
        if own.announced_at is None:
            own.announced_at = now
            if own.calls:
                own.waits_until = now + self._context.options.timeouts.reply_s
        record = own.peers.get(peer)
        if record is None or record.answered is not None or record.requested is None:
            record = own.peers[peer] = PeerRecord(now)
        self._context.out.send(peer.number, Inv((_item(peer, own, InvType.TX),)))
        self._ask(peer, own, record)

    def _ask(self, peer: Peer, own: OwnTx, record: PeerRecord) -> None:
        record.is_asked = True
        self._context.out.send(peer.number, GetData((_item(peer, own, InvType.WITNESS_TX),)))

    # Requests

    def serve(self, peer: Peer, items: Sequence[InvItem]) -> None:
        """Answer a getdata message. Each transaction is sent once, even if the message names it several times."""
        served, missing, done = self._served.get(peer, {}), [], set[bytes]()
        for item in dict.fromkeys(items):
            txid = served.get(item.hash, b"")
            if txid in done:
                continue
            own = self._owns.get(txid)
            if own is None or not self._is_announceable(own):
                missing.append(item)
                self._note_lacking(peer, item.hash)
                continue
            done.add(txid)
            self._send(peer, own)
        if missing:
            self._context.out.send(peer.number, NotFound(tuple(missing)))

    def _note_lacking(self, peer: Peer, parent: bytes) -> None:
        """Record that a peer requested an unannounced parent of transactions that it has received."""
        for own in self._owns.children_of(parent):
            record = own.peers.get(peer)
            if record is not None and record.requested is not None:
                own.lacking[parent] = None

    def _send(self, peer: Peer, own: OwnTx) -> None:
        now = self._context.now.monotonic
        record = own.peers.setdefault(peer, PeerRecord(now, is_asked=False))
        # always with its witness: bcoin requests it with MSG_TX and expects one
        self._context.out.send(peer.number, Tx(own.tx.raw))
        if record.requested is None:
            record.requested = now
            self.was_sent(own, peer.address)
            self._probe(own, peer, record)

    def _probe(self, own: OwnTx, peer: Peer, record: PeerRecord) -> None:
        """Ask a peer that received a transaction whether it has accepted it."""
        record.next_probe = inf
        if record.answered is None and own.echoed:
            record.answered = self._context.now.monotonic
        if record.answered is None:
            record.probes += 1
            self._context.out.send(peer.number, GetData((_item(peer, own, InvType.WITNESS_TX),)))
            probed = partial(self._probed, own, peer, record, record.probes, is_conclusive=record.has_round_passed)
            self._context.out.fence(peer.number, probed)

    def _probed(self, own: OwnTx, peer: Peer, record: PeerRecord, probe: int, *, is_conclusive: bool) -> None:
        """Handle a request that the peer has processed without serving the transaction.

        If the peer did not answer, it ignores such requests. A lone notfound may answer a request that was sent before
        the peer received the transaction. The pong cannot.

        Args:
            own: The transaction.
            peer: The peer.
            record: The connection to the peer.
            probe: Number of the request.
            is_conclusive: True if a round had passed before the request.
        """
        if record.answered is not None:
            return
        if record.probes == probe and record.next_probe == inf:
            record.answered = self._context.now.monotonic
            self._accepted(own)
        elif not record.is_missing:
            record.is_missing = True
            self._missing.setdefault(peer, []).append((own, record))
        elif is_conclusive and (_core_version(peer) or 0) >= _SEQUENCES and self._is_independent(own):
            self._reject_by(own, peer, record, "still does not have it after its next round of announcements")

    @property
    def reject_s(self) -> float:
        """Seconds after which a peer that received a transaction and still lacks it has rejected it."""
        return min(REJECT_S, self._context.options.timeouts.reply_s / 3)

    # Reactions of peers

    def round_passed(self, peer: Peer) -> None:
        """Record that a peer has announced transactions. Core now serves everything that it accepted before them."""
        for own, record in self._missing.pop(peer, ()):
            record.has_round_passed = True
            if record.next_probe < inf:  # no request is outstanding
                self._plan_probe(own, record, self._context.now.monotonic)

    def heard(self, peer: Peer, tx_hash: bytes) -> None:
        """Handle a peer's announcement of a transaction, perhaps one of the wallet's own or a child of one."""
        for own in map(self.find, (tx_hash, *self._parents.get(tx_hash, ()))):
            if own is not None:
                self._announced(peer, own)

    def note_child(self, tx: Transaction) -> bool:
        """Record a transaction that a peer sent. Return True if it is foreign and spends one of the wallet's own."""
        if self._owns.get(tx.txid) is not None:
            return False
        parents = dict[bytes, None]()
        for outpoint in tx.inputs:
            own = self._owns.get(outpoint[:32])
            if own is not None and int.from_bytes(outpoint[32:], "little") < len(own.tx.outputs):
                parents[own.tx.txid] = None
        if parents:
            self._parents.update(dict.fromkeys((tx.txid, tx.wtxid), tuple(parents)))
            while len(self._parents) > MAX_CHILDREN:
                del self._parents[next(iter(self._parents))]
        return bool(parents)

    def _announced(self, peer: Peer, own: OwnTx) -> None:
        """Record that a peer has, or seems to have, one of the wallet's own transactions."""
        record = own.peers.get(peer)
        if record is not None and record.requested is not None:
            record.answered = self._context.now.monotonic
        elif peer.address not in own.sent:
            if own.tx.txid in self._served.get(peer, {}):  # it may only repeat our announcement: let it prove it
                record = own.peers.setdefault(peer, PeerRecord(self._context.now.monotonic, is_asked=False))
                if not record.is_asked:
                    self._ask(peer, own, record)
                return
            self._echo(own, peer)
        self._accepted(own)

    def given(self, peer: Peer, txid: bytes) -> bool:
        """Handle a transaction from a peer. Returns True if we announced it to the peer and then asked for it."""
        if txid not in self._served.get(peer, {}):
            return False
        own = self.find(txid)
        if own is not None:
            record = own.peers.get(peer)
            if record is not None and record.requested is not None:
                record.answered = self._context.now.monotonic
            elif peer.address not in own.sent:
                self._echo(own, peer)
            self._accepted(own)
        return True

    def not_found(self, peer: Peer, tx_hash: bytes) -> None:
        """Record that a peer does not have a transaction (notfound)."""
        own = self._owns.find(tx_hash)
        record = own.peers.get(peer) if own is not None else None
        if own is None or record is None:
            return
        record.is_asked = False
        if record.requested is None or record.answered is not None or record.next_probe < inf:
            return
        now = self._context.now.monotonic
        if self._is_rejected_by(own, peer, record):
            self._reject_by(own, peer, record, f"does not have it {now - record.requested:.0f} s after receiving it")
            return
        last = record.requested + self.reject_s * self._slowness(peer)
        self._plan_probe(own, record, min(last, now + min(FAST_PROBE_S if own.calls else PROBE_S, self.reject_s / 4)))

    def _plan_probe(self, own: OwnTx, record: PeerRecord, at: float) -> None:
        """Ask the peer again at the time `at` (monotonic seconds)."""
        record.next_probe = at
        self._schedule.plan(own, min(own.next_at, at))
        self._context.changed()

    def _is_rejected_by(self, own: OwnTx, peer: Peer, record: PeerRecord) -> bool:
        """Return True if a peer that lacks a transaction must have rejected it. See the module's docstring."""
        slowness = self._slowness(peer)
        if self._lacks_for(record, self.reject_s * slowness):
            return True
        if not self._is_independent(own):
            return False
        pair_s = self.reject_s * PAIR_SHARE
        return self._lacks_for(record, pair_s * slowness) and any(
            other.group != peer.group
            and (
                other.address in own.refused
                or (each.is_missing and self._lacks_for(each, pair_s * self._slowness(other)))
            )
            for other, each in own.peers.items()
        )

    def _lacks_for(self, record: PeerRecord, seconds: float) -> bool:
        """Return True if a peer received a transaction at least `seconds` ago, and has not shown that it has it."""
        now = self._context.now.monotonic
        return record.requested is not None and record.answered is None and now >= record.requested + seconds

    @staticmethod
    def _slowness(peer: Peer) -> float:
        """Return the factor by which a peer takes longer to serve an accepted transaction."""
        version = _core_version(peer)
        return OLD_CORE_SHARE if version is not None and version < _SEQUENCES else 1.0

    def _is_independent(self, own: OwnTx) -> bool:
        """Return True if no relative is unconfirmed, so that a peer accepts the transaction now or never."""
        spent = dict.fromkeys(outpoint[:32] for outpoint in own.tx.inputs)
        return not self._owns.has_child(own) and all(map(self._books.is_confirmed, spent))

    def rejected(self, peer: Peer, message: Reject) -> None:
        """Record why a peer rejects a transaction (BIP-61). See the module's docstring."""
        own = self.find(message.data)
        record = own.peers.get(peer) if own is not None else None
        if own is not None and record is not None and record.requested is not None and is_rejection(message):
            record.reason = reason_of(message)
            self._hurry(own)

    def _reject_by(self, own: OwnTx, peer: Peer, record: PeerRecord, reason: str) -> None:
        record.answered = self._context.now.monotonic
        self.was_rejected(own, peer.address, record.reason or reason)
        self._hurry(own)

    def _hurry(self, own: OwnTx) -> None:
        """Let the other peers decide immediately, because one peer has rejected the transaction."""
        now = self._context.now.monotonic
        if own.state is not BroadcastState.ACCEPTED:
            own.due.update({each: now for each in own.due if each not in own.peers})
        self._wake(own)

    def _echo(self, own: OwnTx, peer: Peer) -> None:
        """Record that a peer has a transaction from another node, so the other peers need not get it soon."""
        if peer.address in own.echoed:
            return
        now, random, was_relayed = self._context.now.monotonic, self._context.random, own.is_relayed
        self._tell(own, own.echoed, peer.address, BroadcastStep.ECHOED)
        if own.private is not None and peer.profile is not None:
            own.private.echoed.add(dialling_group(peer.profile.host))
        if own.is_relayed and not was_relayed:
            if own.private is not None:  # a peer that is told of it learns that it is the wallet's own
                own.private.until = now + random.uniform(*DAILY_S)
            for each in own.due:
                delay = random.uniform(*DAILY_S) if each in own.peers else random.expovariate(1 / ECHOED_DELAY_S)
                own.due[each] = now + delay
        if own.private is None:
            own.due[peer] = now + random.uniform(*DAILY_S)
        self._wake(own)

    def _requested(self, own: OwnTx) -> None:
        """Record that a peer requested or announced a transaction, which now outranks every earlier broadcast."""
        if events := self._books.requested(own.tx.txid):
            self._context.out.emit(*events)
        self.look()

    def _accepted(self, own: OwnTx) -> None:
        self._requested(own)
        if own.state is not BroadcastState.ACCEPTED:
            own.state = BroadcastState.ACCEPTED
            self._wake(own)

    def _gone(self, peer: Peer) -> None:
        self._served.pop(peer, None)
        self._missing.pop(peer, None)
        self._late.pop(peer, None)
        for own in self._owns:
            due, record = own.due.pop(peer, None), own.peers.pop(peer, None)
            if record is not None and record.requested is not None and record.answered is None:
                own.left[peer.address] = None
                _shorten(own.left)
            if due is not None or record is not None:
                self._schedule.touch(own)  # all others may have rejected it

    # Reports and answers

    def was_sent(self, own: OwnTx, address: str) -> None:
        """Report that a peer received a transaction."""
        if own.state in (BroadcastState.QUEUED, BroadcastState.ANNOUNCED):
            own.state = BroadcastState.REQUESTED
        self._tell(own, own.sent, address, BroadcastStep.SENT)
        self._requested(own)

    def was_rejected(self, own: OwnTx, address: str, reason: str) -> None:
        """Report that a peer rejected a transaction."""
        is_told = address in own.refused
        own.refused[address] = reason
        own.left.pop(address, None)  # it came back
        _shorten(own.refused)
        if not is_told:
            self._context.out.emit(BroadcastProgress(own.tx.txid, address, BroadcastStep.REFUSED, reason))

    def _tell(self, own: OwnTx, told: dict[str, None], address: str, step: BroadcastStep) -> None:
        if address not in told:
            told[address] = None
            _shorten(told)
            self._context.out.emit(BroadcastProgress(own.tx.txid, address, step))

    def _settle(self, own: OwnTx, now: float) -> None:
        """Answer the waiting calls if it is time, and conclude whether all peers have rejected a transaction."""
        if own.state is BroadcastState.ACCEPTED:
            self.answer(own, own.known())
            return
        if own.is_judged and own.announced_at is not None:
            is_late = now >= own.announced_at + self._context.options.timeouts.reply_s
            if (own.refused and not self._may_accept(own, now)) or (is_late and (own.refused or own.left)):
                self.reject(own)
                return
        if now >= own.waits_until:
            self.answer(own, own.known() if own.sent or own.has_other_witness else self._unanswered(own))

    def _unanswered(self, own: OwnTx) -> UselessPeerError:
        if own.private is not None:
            return UselessPeerError(
                "no new peer has accepted the private transaction yet: the wallet keeps it, does not tell connected"
                " peers, and tries other new peers; abandon it to use its coins again"
            )
        peers = len(self._context.pool.connected())
        return UselessPeerError(
            f"no connected peer ({peers} now) has accepted the transaction yet: the wallet keeps it and announces"
            " it to every new peer; abandon it to use its coins again"
        )

    def _may_accept(self, own: OwnTx, now: float) -> bool:
        """Return True if a peer may still accept the transaction, because it has not answered or was not told of it."""
        if own.left or any(peer not in own.peers for peer in own.due):
            return True
        open_records = (record for record in own.peers.values() if record.answered is None)
        return any(record.requested is not None or now < record.announced + self.reject_s for record in open_records)

    def reject(self, own: OwnTx) -> None:
        """Record that every peer that received a transaction rejected it, so it no longer counts.

        The transaction stays if peers may have it with a different witness.
        """
        if own.has_other_witness:
            own.state = BroadcastState.ACCEPTED
            self.answer(own, own.known())
            return
        for address in own.left:
            own.refused.setdefault(address, "the peer disconnected after receiving the transaction")
        _shorten(own.refused)
        txid = own.tx.txid
        events = self._books.abandon(txid, rejected=True)
        rival, told = self._books.rival(own.tx), "; ".join(f"{peer}: {reason}" for peer, reason in own.refused.items())
        error: Exception = TxRefusedError(
            f"every peer that received the transaction rejected it: {told}", tuple(own.refused.items())
        )
        if rival is not None:
            error = TxConflictError(f"it conflicts with {hash_to_hex(rival)}, so peers reject it: {told}", rival)
        self.answer(own, error)
        self._context.out.emit(*events)
        self.look()

    def _report_status(self, own: OwnTx) -> None:
        """Report a change of status in the books, and answer the waiting calls if it settles them.

        When a transaction ends, the peers' reactions to it are forgotten.
        """
        txid, was_open = own.tx.txid, own.is_open
        status = self._books.status(txid)
        if status is own.reported_status:
            return
        own.reported_status, conflict = status, self._books.conflict(txid)
        self._context.out.emit(BroadcastChanged(txid, status, conflict.txid))
        if (answer := self._decision(own, conflict)) is not None:
            self.answer(own, answer)
        if own.is_open and not was_open:
            self._returned(own)
            self._recorded(txid)
        elif was_open and not own.is_open and self._owns.get(txid) is not None:
            self._owns.put(own := OwnTx(own.tx, status))
        self._wake(own)

    @staticmethod
    def _decision(own: OwnTx, conflict: Conflict) -> Broadcast | Exception | None:
        """Return the answer that a new status gives to waiting calls, or None."""
        name = None if conflict.txid is None else hash_to_hex(conflict.txid)
        match own.reported_status:
            case TxStatus.REPLACED:
                reason = f"a later broadcast replaced it: it conflicts with {name}"
                return TxConflictError(reason, conflict.txid)
            case TxStatus.CONFLICTED if name is None:
                return TxConflictError("no block can contain it or one of its ancestors")
            case TxStatus.CONFLICTED:
                reason = f"it or one of its ancestors conflicts with {name}, which is confirmed"
                return TxConflictError(reason, conflict.txid, conflict.height)
            case TxStatus.ABANDONED:
                return TxConflictError("it was abandoned")
            case TxStatus.REFUSED:
                reason = "peers rejected the transaction or one of its ancestors"
                return TxRefusedError(reason, tuple(own.refused.items()))
            case TxStatus.CONFIRMED | TxStatus.EXPIRED:
                return own.known()
            case _:
                return None

    def _reply(self, call: int | None, tx: Transaction, answer: Broadcast | Exception) -> None:
        """Answer a call immediately, if there is one."""
        if call is not None:
            self._context.out.answer(call, tx.txid, answer)

    def answer(self, own: OwnTx, answer: Broadcast | Exception) -> None:
        """Answer the waiting calls, if any."""
        for call in own.calls:
            self._context.out.answer(call, own.tx.txid, answer)
        own.calls.clear()
        own.waits_until = inf


def _core_version(peer: Peer) -> int | None:
    """Return the major version of Bitcoin Core that a peer announces, or None if it is another program."""
    stated = None if peer.profile is None else _CORE_AGENT.search(peer.profile.user_agent)
    return None if stated is None else int(stated[1])


def is_rejection(message: Reject) -> bool:
    """Return True if a reject message (BIP-61) refuses a transaction, instead of saying that the peer has it."""
    return message.message == b"tx" and message.reason not in _KNOWN


def reason_of(message: Reject) -> str:
    """Return the reason in a reject message (BIP-61), with control characters escaped."""
    return f"{printable(message.reason) or 'no reason'} (0x{message.code:02x})"


def _item(peer: Peer, own: OwnTx, by_txid: InvType) -> InvItem:
    """Return the item that names a transaction: by wtxid (BIP-339), or else by txid with the kind `by_txid`."""
    assert peer.profile is not None
    return InvItem(InvType.WTX, own.tx.wtxid) if peer.profile.wtxid_relay else InvItem(by_txid, own.tx.txid)


def _shorten(told: dict[str, None] | dict[str, str]) -> None:
    """Keep only the latest peers."""
    while len(told) > MAX_PEERS_TOLD:
        del told[next(iter(told))]
