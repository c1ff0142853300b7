"""Our own transactions: to whom they are offered and when, until they are on their way.

A peer announces to nobody what it got from them. So of the peers that are there some are offered a transaction at once,
and the others a few seconds later, unless one of these announces it by itself: then it is on its way, and the rest get
it at random moments. Until then it is offered again every ten minutes, afterwards once a day, and to every new peer,
after a restart and after a reorganisation.

A peer that fetched a transaction is asked for it. Who gives it back keeps it. Who says that it does not have it may
wait for its next round of announcements, before which Core gives nobody what is new: it is asked again for 40 seconds.
Then that counts as a refusal, as a reject (BIP-61) does. No refusal condemns a transaction that somebody has taken; one
that all refuse who were asked counts no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf

from spvfilter.errors import TxConflictError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.netgroups import dialling_group
from spvfilter.light.engine.outcomes import Outcomes, shorten
from spvfilter.light.engine.owntx import Offer, OwnTx, Private, Taken, is_refusal, reason_of
from spvfilter.light.engine.packages import arranged
from spvfilter.light.engine.peers import Peer
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.sent import MAX_ANCESTORS
from spvfilter.wire.messages.table import GetData, Inv, InvItem, InvType, NotFound, Reject, Tx

MAX_OFFERED = 1_000  # ours: transactions that a peer may fetch, the latest offered
WITNESS_S = (
    15.0  # longest time for which a peer is not offered a transaction, so that it can announce it by itself; ours
)
# between offers until somebody has announced it, Core net_processing.cpp ReattemptInitialBroadcast
AGAIN_S = (600.0, 900.0)
SLOW_S = (43_200.0, 129_600.0)  # afterwards, Core wallet.cpp SetNextResend
REST_S = 300.0  # mean time after which those are offered it who have not announced it though others have; ours
# when a peer is asked for what it fetched, in parts of the time after which it has refused it
_PROBES = (0.0, 0.1, 0.25, 0.5, 1.0)


class OwnTxs:
    """Offers our transactions, serves them, and hears what peers tell of them."""

    def __init__(
        self, context: Context, outcomes: Outcomes, recorded: Callable[[bytes, Sequence[WalletEvent]], None]
    ) -> None:
        """`recorded` is called with the txid of each that has entered the books, or is unconfirmed again, and the
        events of that.
        """
        self._context = context
        self._outcomes = outcomes
        self._recorded = recorded
        self._own: dict[bytes, OwnTx] = {}  # by txid; parents first
        self._by_hash: dict[bytes, OwnTx] = {}  # by txid and wtxid
        self._fetchable: dict[Peer, dict[bytes, bytes]] = {}  # txid and wtxid of what a peer was offered → txid
        self._next_at = 0.0
        self._has_begun = False
        context.pool.on_gone(self._gone)

    # Which there are

    def find(self, tx_hash: bytes) -> OwnTx | None:
        """A transaction of ours by its txid or wtxid."""
        return self._by_hash.get(tx_hash)

    def has_size(self, size: int) -> bool:
        """Whether one of them has so many bytes."""
        return any(len(own.tx.raw) == size for own in self._own.values())

    def load(self) -> None:
        """Take what the books have of ours: at the start, and after a reorganisation or what else brings some back."""
        found, back = dict[bytes, OwnTx](), list[bytes]()
        for txid, raw in self._context.books.own_unconfirmed():
            own = self._own.get(txid)
            if own is None:  # told as confirmed or ended before, unless the run begins
                before = TxStatus.CONFIRMED if self._has_begun else self._context.books.unconfirmed.pending[txid].status
                own = OwnTx(Transaction.parse(raw), is_recorded=True, status=before)
                back.append(txid)
            found[txid] = own
        for txid, own in self._own.items():
            found.setdefault(txid, own)  # being sent, replaced by another of ours, or to be told of
        self._own = found
        self._by_hash = {tx_hash: own for own in found.values() for tx_hash in (own.tx.txid, own.tx.wtxid)}
        self._next_at = 0.0
        for txid in back if self._has_begun else ():
            self._recorded(txid, ())
        self._has_begun = True

    def add(self, tx: Transaction, input_values: tuple[int, ...] | None = None, free_at: float = 0.0) -> OwnTx:
        """The user broadcasts a transaction, in a call that waits to hear of it.

        Before `free_at` it is offered to no peer here.
        """
        books, now = self._context.books, self._context.now.monotonic
        own = self._own.get(tx.txid)
        self._let_go_for(tx)
        if own is None:
            self._revive_parents(tx)
            own = self._own[tx.txid] = OwnTx(
                tx, free_at=free_at, taken=Taken.BEFORE if self._may_be_there(tx) else Taken.NOT
            )
            self._by_hash[tx.txid] = self._by_hash[tx.wtxid] = own
        elif own.tx.raw != tx.raw:
            self._renew(own, tx)
        if own.is_recorded and tx.txid in books.unconfirmed.pending:  # it takes the place of what replaced it
            self._recorded(tx.txid, books.add_unconfirmed(own.tx.raw, self._context.stamp(), own=True))
        own.input_values = input_values or own.input_values
        own.is_called = True
        if books.has_tx(tx.txid):
            self.record(own)
            if own.began is None:
                self._outcomes.answer(own, own.known())
        else:
            own.began = max(now, free_at) if own.began is None else min(own.began, max(now, free_at))
        # whatever it was when it was recorded: it may have been private in an earlier run
        own.free_at = min(own.free_at, free_at)
        own.private = None if free_at <= now else own.private or Private()
        own.due.clear()
        self._wake()
        return own

    def _let_go_for(self, tx: Transaction) -> None:
        """What nobody has asked for is not given to anybody after this one, whose place it, or what it spends from,
        would take.
        """
        for other in list(self._own.values()):
            if not other.is_recorded and any(
                not each.isdisjoint(tx.inputs) for each in self._spent_for(other.tx, but=tx.txid)
            ):
                why = f"it conflicts with {hash_to_hex(tx.txid)}, which was broadcast before a peer requested this one"
                self._outcomes.answer(other, TxConflictError(why, tx.txid))
                self.forget(other)

    def _spent_for(self, tx: Transaction, but: bytes) -> Iterator[set[bytes]]:
        """What a transaction and its unconfirmed ancestors spend, each of them, `but` for one."""
        pending, family = self._context.books.unconfirmed.pending, {tx.txid: tx}
        waiting = [tx]
        while waiting and len(family) <= MAX_ANCESTORS:
            each = waiting.pop()
            if each.txid != but:
                yield set(each.inputs)
            for txid in dict.fromkeys(outpoint[:32] for outpoint in each.inputs):
                own = self._own.get(txid)
                if txid not in family and (own is not None or txid in pending):
                    family[txid] = own.tx if own is not None else Transaction.parse(pending[txid].raw)
                    waiting.append(family[txid])

    def _may_be_there(self, tx: Transaction) -> bool:
        """Whether peers may have, with another witness, what has ended here: they keep that, as in `_renew`, unless a
        rival is taken.
        """
        books = self._context.books
        ended = books.ended.own(tx.txid)
        rivals = (self._own.get(each) for outpoint in tx.inputs for each in books.unconfirmed.spenders(outpoint))
        is_open = ended is not None and ended.raw != tx.raw and ended.status is not TxStatus.REFUSED
        return is_open and not any(rival is not None and rival.is_taken for rival in rivals)

    def _renew(self, own: OwnTx, tx: Transaction) -> None:
        """A transaction has another witness: nobody was given it, and what was said of it was said of the one before.

        Whoever has that one refuses this one: it is no reason to give both up, unless it is known that nobody has.
        """
        for tx_hash in (own.tx.txid, own.tx.wtxid):
            self._by_hash.pop(tx_hash, None)
        is_open = (
            own.began is None
            or own.left
            or any(each.fetched_at is not None and not each.is_settled for each in own.offers.values())
        )
        own.taken = Taken.BEFORE if is_open or own.taken is not Taken.NOT else Taken.NOT
        own.tx, own.began = tx, self._context.now.monotonic
        self._by_hash[tx.txid] = self._by_hash[tx.wtxid] = own
        for offer in own.offers.values():
            offer.is_settled = True
        for told in (own.offers, own.sent, own.refused, own.left):
            told.clear()

    def _revive_parents(self, tx: Transaction) -> None:
        """Parents that were refused may be taken together with a child that pays for them."""
        for txid in dict.fromkeys(outpoint[:32] for outpoint in tx.inputs):
            ended = self._context.books.ended.own(txid)
            if ended is not None and ended.status is TxStatus.REFUSED and txid not in self._own:
                parent = self.add(Transaction.parse(ended.raw))
                parent.is_called = False
                self.record(parent)

    def forget(self, own: OwnTx) -> None:
        """A transaction is offered no more."""
        self._own.pop(own.tx.txid, None)
        for tx_hash in (own.tx.txid, own.tx.wtxid):
            self._by_hash.pop(tx_hash, None)

    def again(self) -> None:
        """After a reorganisation everything is offered anew, whoever had announced it."""
        for own in self._own.values():
            if own.private is not None:
                own.private.was_on_its_way = own.private.was_on_its_way or own.is_on_its_way
                own.private.echoed.clear()
            own.due.clear()
            own.echoed.clear()
        self._wake()

    def look(self) -> None:
        """The books may have something new of ours: a block, a rival, what had ended and counts again."""
        unconfirmed = self._context.books.unconfirmed
        if not self._own.keys() >= unconfirmed.sent.wanted.keys():
            self.load()
        for own in self._own.values():
            pending = unconfirmed.pending.get(own.tx.txid)
            if own.is_recorded and (pending is None or pending.status is not own.status):
                self._wake()

    def _wake(self) -> None:
        self._next_at = 0.0
        self._context.changed()

    # When

    @property
    def next_at(self) -> float:
        """When `advance` should be called next, by the monotonic clock."""
        return self._next_at

    def advance(self) -> None:
        """Offer what is due, ask those who fetched, and settle what is known."""
        now = self._context.now.monotonic
        self.look()
        peers = [peer for peer in self._context.pool.ready() if peer.profile is not None and peer.profile.relays]
        if now < self._next_at and all(peer in self._fetchable for peer in peers):
            return
        self._next_at = inf
        for peer in peers:
            self._fetchable.setdefault(peer, {})
        for own in self._own.values():
            fresh = [peer for peer in peers if peer not in own.due]
            for peer in self._context.random.sample(fresh, len(fresh)):
                own.due[peer] = self._first_due(own, peer)
        for peer in peers:
            self._offer_due(peer, now)
        for own in list(self._own.values()):
            for peer, offer in list(own.offers.items()):
                if offer.next_probe <= now:
                    self._probe(own, peer, offer)
            if not self._outcomes.settle(own):
                self.forget(own)
                self.load()  # what it had replaced may come back
        self._next_at = min(self._next_at, min(self._moments(now, peers), default=inf))

    def _offer_due(self, peer: Peer, now: float) -> None:
        due = [own for own in self._own.values() if own.due.get(peer, inf) <= now and self.is_offered(own)]
        announced, held = arranged(self._context.books, peer, due, self._own)
        for own in (*announced, *held):
            self._permit(peer, own)
            own.due[peer] = now + self._context.random.uniform(*(SLOW_S if own.echoed else AGAIN_S))
        for own in announced:
            self._permit_parents(peer, own, now)
            self._offer(peer, own)

    def is_offered(self, own: OwnTx) -> bool:
        """Whether it is to be offered: not while another one of ours replaces it, nor once it has ended."""
        unconfirmed = self._context.books.unconfirmed
        if own.tx.txid in unconfirmed.pending:
            return own.tx.txid in unconfirmed.sent.wanted
        return not own.is_recorded

    def _first_due(self, own: OwnTx, peer: Peer) -> float:
        now, random = self._context.now.monotonic, self._context.random
        witness_s = min(WITNESS_S, self._context.options.patience.reply_s / 8)
        if now < own.free_at:
            return own.free_at + random.uniform(0.0, witness_s)
        if peer.address in own.echoed:
            return now + random.uniform(*SLOW_S)
        if own.echoed:
            return now + random.expovariate(1 / REST_S)
        if own.offers or any(due <= now for due in own.due.values()):
            return now + random.choice((0.0, random.uniform(0.5, 1.0) * witness_s))
        return now

    def _moments(self, now: float, peers: Sequence[Peer]) -> Iterator[float]:
        """When something is due."""
        keep_s, reply_s = self._outcomes.keep_s, self._context.options.patience.reply_s
        for own in self._own.values():
            yield from (due for peer in peers if (due := own.due.get(peer, inf)) > now)
            yield from (offer.next_probe for offer in own.offers.values() if offer.next_probe > now)
            if own.began is not None and not own.is_taken:
                yield from (at for offer in own.offers.values() if (at := offer.at + keep_s) > now)
                yield from (at for at in (own.began, own.began + reply_s) if at > now)

    # To whom

    def _permit(self, peer: Peer, own: OwnTx) -> None:
        """A peer may fetch a transaction."""
        fetchable = self._fetchable[peer]
        for tx_hash in (own.tx.txid, own.tx.wtxid):
            fetchable.pop(tx_hash, None)
            fetchable[tx_hash] = own.tx.txid
        while len(fetchable) > 2 * MAX_OFFERED:
            del fetchable[next(iter(fetchable))]

    def _permit_parents(self, peer: Peer, own: OwnTx, now: float) -> None:
        """A peer that lacks what a transaction spends asks for it, though others may have announced that."""
        for txid in dict.fromkeys(outpoint[:32] for outpoint in own.tx.inputs):
            parent = self._own.get(txid)
            if parent is not None and parent.free_at <= now and txid not in self._fetchable[peer]:
                self._permit(peer, parent)

    def _offer(self, peer: Peer, own: OwnTx) -> None:
        """Announce a transaction to a peer, and ask for it: the answer shows whether the peer has it already."""
        offer = own.offers.get(peer)
        if offer is None or offer.is_settled:
            offer = own.offers[peer] = Offer(self._context.now.monotonic)
        self._context.out.send(peer.number, Inv((_item(peer, own, InvType.TX),)))
        self._ask(peer, own, offer)

    def _ask(self, peer: Peer, own: OwnTx, offer: Offer) -> None:
        offer.is_asked = True
        self._context.out.send(peer.number, GetData((_item(peer, own, InvType.WITNESS_TX),)))

    def serve(self, peer: Peer, items: Sequence[InvItem]) -> None:
        """Answer a getdata: with each transaction once, by whatever names and kinds it is asked for."""
        fetchable, missing, asked = self._fetchable.get(peer, {}), [], set[bytes]()
        for item in dict.fromkeys(items):
            txid = fetchable.get(item.hash, b"")
            if txid in asked:
                continue
            own = self._own.get(txid)
            if own is None:
                missing.append(item)
                continue
            asked.add(txid)
            self.record(own)
            if txid not in self._own:  # it cannot count any more
                missing.append(item)
                continue
            offer = own.offers.setdefault(peer, Offer(self._context.now.monotonic))
            if not offer.is_awaited:
                offer.is_awaited = True
                # what a peer has of ours is in the database
                self._context.out.after_commit(partial(self._deliver, peer, own, offer))
        if missing:
            self._context.out.send(peer.number, NotFound(tuple(missing)))

    def _deliver(self, peer: Peer, own: OwnTx, offer: Offer) -> None:
        offer.is_awaited = False
        if not self._context.pool.has(peer):
            return
        if self._own.get(own.tx.txid) is not own:  # it was given up meanwhile
            self._context.out.send(peer.number, NotFound((_item(peer, own, InvType.WITNESS_TX),)))
            return
        # with its witness, even if asked for by MSG_TX: bcoin does so
        self._context.out.send(peer.number, Tx(own.tx.raw))
        if offer.fetched_at is None:
            offer.fetched_at = self._context.now.monotonic
            self._outcomes.sent(own, peer.address)
            self._probe(own, peer, offer)

    def _probe(self, own: OwnTx, peer: Peer, offer: Offer) -> None:
        """Ask a peer that fetched a transaction whether it has it."""
        offer.next_probe, offer.is_answered = inf, False
        if own.echoed:
            offer.is_settled = True
        if not offer.is_settled:
            offer.probes += 1
            self._context.out.send(peer.number, GetData((_item(peer, own, InvType.WITNESS_TX),)))
            self._context.out.fence(peer.number, partial(self._probed, own, offer))

    def _probed(self, own: OwnTx, offer: Offer) -> None:
        """The peer has dealt with the question: one that does not answer it tells nothing."""
        if not offer.is_answered and not offer.is_settled:
            offer.is_settled = True
            self._taken(own)

    # What peers tell

    def announced(self, peer: Peer, own: OwnTx) -> None:
        """A peer announces a transaction of ours."""
        if peer.address not in own.sent:
            # it may only repeat what it was told; that it has it shows when it gives it
            if own.tx.txid in self._fetchable.get(peer, {}):
                offer = own.offers.setdefault(peer, Offer(self._context.now.monotonic, is_asked=False))
                if not offer.is_asked:
                    self._ask(peer, own, offer)
                return
            self._echo(own, peer)
        self.record(own)
        self._taken(own)

    def given(self, peer: Peer, txid: bytes) -> bool:
        """A peer sends a transaction; whether it was asked for, since it was offered it."""
        if txid not in self._fetchable.get(peer, {}):
            return False
        own = self._own.get(txid)
        if own is not None:
            offer = own.offers.get(peer)
            if offer is not None and offer.fetched_at is not None:
                offer.is_settled = True
            elif peer.address not in own.sent:
                self._echo(own, peer)
            self.record(own)
            self._taken(own)
        return True

    def not_found(self, peer: Peer, tx_hash: bytes) -> None:
        """A peer does not have a transaction."""
        own = self._by_hash.get(tx_hash)
        offer = own.offers.get(peer) if own is not None else None
        if own is None or offer is None:
            return
        offer.is_asked = False
        if offer.fetched_at is None or offer.is_settled or offer.is_answered:
            return
        offer.is_answered = True
        if offer.probes < len(_PROBES):
            offer.next_probe = offer.fetched_at + _PROBES[offer.probes] * self._outcomes.keep_s
            self._next_at = min(self._next_at, offer.next_probe)
            self._context.changed()
        else:
            self._refuse(own, peer, offer, f"does not have it {self._outcomes.keep_s:.0f} s after it received it")

    def rejected(self, peer: Peer, message: Reject) -> None:
        """A peer says that it does not take a transaction (BIP-61); one that it was not sent, it cannot judge."""
        own = self._own.get(message.data)
        offer = own.offers.get(peer) if own is not None else None
        if own is not None and offer is not None and offer.fetched_at is not None and is_refusal(message):
            self._refuse(own, peer, offer, reason_of(message))

    def _refuse(self, own: OwnTx, peer: Peer, offer: Offer, reason: str) -> None:
        offer.is_settled = True
        self._outcomes.refused(own, peer.address, reason)
        now = self._context.now.monotonic
        if not own.is_taken and own.free_at <= now:  # those that should have announced it are asked at once
            own.due.update({each: now for each in own.due if each not in own.offers})
        self._wake()

    def _echo(self, own: OwnTx, peer: Peer) -> None:
        """A peer has a transaction that it did not get from us: others are in no hurry any more."""
        if peer.address in own.echoed:
            return
        now, random = self._context.now.monotonic, self._context.random
        was_on_its_way = own.is_on_its_way
        if own.private is not None and peer.profile is not None:
            own.private.echoed.add(dialling_group(peer.profile.host))
        self._outcomes.echoed(own, peer.address)
        if own.is_on_its_way and not was_on_its_way:
            # whoever is told of a private one learns that it is ours, since we announce no other
            own.free_at = min(own.free_at, now) if own.private is None else now + random.uniform(*SLOW_S)
            for each in own.due:
                own.due[each] = max(now, own.free_at) + (
                    random.uniform(*SLOW_S) if each in own.offers else random.expovariate(1 / REST_S)
                )
        own.due[peer] = max(now, own.free_at) + random.uniform(*SLOW_S)
        self._next_at = min(self._next_at, *own.due.values())

    def _taken(self, own: OwnTx) -> None:
        if not own.is_taken:
            own.taken = Taken.YES
            if own.is_called or own.began is not None:
                self._wake()

    def _gone(self, peer: Peer) -> None:
        self._fetchable.pop(peer, None)
        for own in self._own.values():
            own.due.pop(peer, None)
            offer = own.offers.pop(peer, None)
            if offer is not None and offer.fetched_at is not None and not offer.is_settled:
                own.left[peer.address] = None
                shorten(own.left)
        self._next_at = 0.0

    def record(self, own: OwnTx) -> None:
        """A transaction is in the books from now on: a peer has it, or will."""
        if own.is_recorded:
            return
        own.is_recorded = True
        books, txid = self._context.books, own.tx.txid
        self._recorded(txid, books.add_unconfirmed(own.tx.raw, self._context.stamp(), own=True))
        if txid not in books.unconfirmed.pending and books.in_block(txid) is None:
            self._outcomes.answer(own, TxConflictError("it is in a block, or conflicts with another transaction"))
            self.forget(own)
        self._wake()


def _item(peer: Peer, own: OwnTx, by_txid: InvType) -> InvItem:
    """How a peer and we name a transaction: by its wtxid (BIP-339), or by its txid in an item of this kind."""
    assert peer.profile is not None
    return InvItem(InvType.WTX, own.tx.wtxid) if peer.profile.wtxid_relay else InvItem(by_txid, own.tx.txid)
