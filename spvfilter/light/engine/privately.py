"""Private broadcast: a transaction is given to one stranger first, in a connection that shows nothing else of ours.

As Core's private broadcast: the connection is made for this transaction alone, announces it, hands it over and ends. No
filter, no question and no other transaction of ours goes over it. If two peers that are connected announce the
transaction by themselves, it is on its way, and none of them is told of it at all: they would learn that it is ours. If
no block has it after a day or so, another stranger gets it. If they do not within a random time, in which a stranger
that passes transactions on would have been heard of, all the others are told: a single one may lie, and have it kept
from everybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.errors import PrivacyError, UselessPeerError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.inputs import Connected, Fenced, Heard, Input, Lost, Malformed
from spvfilter.light.engine.netgroups import dialling_group
from spvfilter.light.engine.outcomes import Outcomes
from spvfilter.light.engine.own import SLOW_S, OwnTxs
from spvfilter.light.engine.owntx import OwnTx, Private, is_refusal, reason_of
from spvfilter.light.engine.saved import PRIVATE_NOTE, Held
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import GetData, Inv, InvItem, InvType, Message, Reject, Tx

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

MAX_TRIES = 4  # strangers that are tried for a transaction; ours
MAX_HELD = 1_000  # transactions of which it is remembered that peers are not told, those in blocks included; ours
MAX_AT_ONCE = 8  # transactions that are being sent privately; ours


@dataclass(slots=True, eq=False)
class _Errand:
    """A transaction on its way to a stranger."""

    own: OwnTx
    number: int
    address: str
    until: float
    tried: list[str] = field(default_factory=list)
    is_again: bool = False
    """After a day or so; nobody waits to hear of it."""
    is_handed: bool = False
    by_wtxid: bool | None = None
    """How it was announced, once it was."""


class PrivateRelay:
    """Connections made for one transaction each; the pool of peers does not know them."""

    def __init__(self, context: Context, own: OwnTxs, outcomes: Outcomes, held: Mapping[str, Held]) -> None:
        """`held` is what an earlier run gave to a stranger, by txid in hex."""
        self._context = context
        self._own = own
        self._outcomes = outcomes
        self._errands: dict[int, _Errand] = {}  # by the connection's number
        self._held = {bytes.fromhex(txid): each for txid, each in held.items()}

    def resume(self) -> None:
        """What an earlier run gave to a stranger is held back as long as was meant then, whatever our clock shows
        now.
        """
        for txid, held in self._held.items():
            own = self._own.find(txid)
            most = SLOW_S[1] if held.is_on_its_way else 2 * self._context.options.patience.reply_s
            left = min(held.until - self._context.lived, most)
            if own is not None:
                own.private = Private(set(held.strangers), was_on_its_way=held.is_on_its_way)
                own.free_at = self._context.now.monotonic + max(0.0, left)

    def came_back(self, txid: bytes) -> None:
        """A transaction of ours is unconfirmed again: one that was on its way is told to no peer, but soon to a
        stranger.
        """
        own, held = self._own.find(txid), self._held.get(txid)
        if own is not None and own.private is None and held is not None and held.is_on_its_way:
            soon = self._context.random.uniform(0.0, self._context.options.patience.reply_s)
            own.private = Private(set(held.strangers), was_on_its_way=True)
            own.free_at = self._context.now.monotonic + soon

    def begin(self, tx: Transaction, input_values: tuple[int, ...] | None, *, is_told: bool) -> None:
        """Send a transaction privately, for a call that waits.

        `is_told`: a peer has a filter of what is ours, or may get one.
        """
        for errand in list(self._errands.values()):
            # that has ended: its stranger gets it no more
            if errand.own.tx.txid == tx.txid and self._own.find(tx.txid) is not errand.own:
                self._end(errand)
            elif errand.own.tx.txid == tx.txid:
                errand.own.is_called = True  # by another call, too
                if errand.own.tx.raw != tx.raw and not (errand.is_handed or errand.is_again):
                    self._renew(errand, tx, input_values)
                return
        address = self._context.pool.stranger((), self._context.now, is_proxied=self._context.options.is_proxied)
        why = self._obstacle(tx, is_told=is_told)
        if why is None and address is None:
            why = "every known address is connected already: name more peers than max_peers, or discover some"
        if why is not None or address is None:
            self._context.out.answer(tx.txid, PrivacyError(f"the transaction cannot be sent privately: {why}"))
            return
        if tx.txid in self._held:  # it had ended: who had it then may have it no more
            self._let_go(tx.txid)
        now, reply_s = self._context.now.monotonic, self._context.options.patience.reply_s
        own = self._own.add(tx, input_values, now + self._context.random.uniform(1.0, 2.0) * reply_s)
        self._set_out(own, address, [])

    def _renew(self, errand: _Errand, tx: Transaction, input_values: tuple[int, ...] | None) -> None:
        """A transaction has another witness, and its stranger has not got the one before."""
        own = self._own.add(tx, input_values, errand.own.free_at)
        own.began = own.free_at
        if errand.by_wtxid:  # its txid is the same
            self._announce(errand)

    def _announce(self, errand: _Errand) -> None:
        tx = errand.own.tx
        item = InvItem(InvType.WTX, tx.wtxid) if errand.by_wtxid else InvItem(InvType.TX, tx.txid)
        self._context.out.send(errand.number, Inv((item,)))

    def _obstacle(self, tx: Transaction, *, is_told: bool) -> str | None:
        books = self._context.books
        if not self._context.options.mempool:
            return (
                "with mempool=False no peer announces a transaction, so the client could not see that it spreads and"
                " would send it to all peers"
            )
        if is_told:
            return "peers have, or may get, a BIP-37 filter that matches it: use mode compact, in which they get none"
        if books.has_tx(tx.txid) or self._own.find(tx.txid) is not None:
            return "peers know it already"
        for txid in dict.fromkeys(outpoint[:32] for outpoint in tx.inputs):
            parent = self._own.find(txid)
            if parent is not None and not parent.is_with_others:
                return (
                    f"it spends from {hash_to_hex(txid)}, which no peer is known to have from another node: wait until"
                    " a peer echoes that one"
                )
            ended = books.ended.own(txid)
            if ended is not None and ended.status is TxStatus.REFUSED:
                return f"it spends from {hash_to_hex(txid)}, which peers refused and which all peers would get again"
        if len(self._errands) >= MAX_AT_ONCE:
            return f"{MAX_AT_ONCE} private transactions are being sent already: try again later"
        return None

    def _set_out(self, own: OwnTx, address: str, tried: list[str], *, is_again: bool = False) -> None:
        number = self._context.pool.take_number()
        until = self._context.now.monotonic + self._context.options.patience.reply_s / MAX_TRIES
        self._errands[number] = _Errand(own, number, address, until, [*tried, address], is_again)
        self._context.out.connect(number, address, is_private=True)
        self._context.changed()

    # What happens

    def takes(self, event: Input) -> bool:
        """Take what a connection of this kind reports; whether it is one."""
        if not isinstance(event, Connected | Heard | Fenced | Lost | Malformed):
            return False
        errand = self._errands.get(event.peer)
        if errand is None:
            return False
        match event:
            case Connected():
                self._connected(errand, event)
            case Heard(_, message):
                self._heard(errand, message)
            case Fenced(_, token):
                self._context.out.done(token, None)
            case _:
                self._failed(errand)
        return True

    def _connected(self, errand: _Errand, profile: Connected) -> None:
        is_known = self._context.pool.has_host(profile.host) and not self._context.options.is_proxied
        if is_known or not profile.relays:
            self._failed(errand)
            return
        if errand.own.private is not None:
            errand.own.private.strangers.add(dialling_group(profile.host))
        errand.by_wtxid = profile.wtxid_relay
        self._announce(errand)

    def _heard(self, errand: _Errand, message: Message) -> None:
        tx = errand.own.tx
        match message:
            case GetData(items) if any(item.hash in (tx.txid, tx.wtxid) for item in items) and not errand.is_handed:
                if self._own.find(tx.txid) is errand.own:  # else another of ours spends the same
                    errand.is_handed = True
                    self._hold(errand.own)
                    self._own.record(errand.own)
                # a rival counts, as the caller has been told: nobody gets it
                if self._own.find(tx.txid) is not errand.own:
                    self._end(errand)
                    return
                self._context.out.after_commit(partial(self._hand_over, errand))
            case Reject() if message.data == tx.txid and errand.is_handed and is_refusal(message):
                self._outcomes.refused(errand.own, errand.address, reason_of(message))
                self._failed(errand)
            case _:
                pass

    def _hand_over(self, errand: _Errand) -> None:
        if self._own.find(errand.own.tx.txid) is not errand.own:  # it was given up meanwhile
            self._end(errand)
        elif errand.number in self._errands:
            self._context.out.send(errand.number, Tx(errand.own.tx.raw))
            self._outcomes.sent(errand.own, errand.address)
            self._context.out.fence(errand.number, partial(self._done, errand))

    def _done(self, errand: _Errand) -> None:
        """The stranger has dealt with the transaction."""
        self._end(errand)
        self._outcomes.answer(errand.own, errand.own.known())

    def _end(self, errand: _Errand) -> None:
        if self._errands.pop(errand.number, None) is not None:
            self._context.out.drop(errand.number)
            self._context.out.gone(errand.number)
            self._context.changed()

    def _failed(self, errand: _Errand) -> None:
        """Try another stranger; if there is none, or enough were tried, the call fails."""
        self._end(errand)
        own, tried = errand.own, errand.tried
        is_wanted = own.is_called and not own.is_taken
        if errand.is_again:
            is_wanted = not errand.is_handed and own.private is not None and self._own.find(own.tx.txid) is own
        address = (
            self._context.pool.stranger(tried, self._context.now, is_proxied=self._context.options.is_proxied)
            if is_wanted
            else None
        )
        if address is not None and len(tried) < MAX_TRIES:
            self._set_out(own, address, tried, is_again=errand.is_again)
        elif not is_wanted or errand.is_again:
            # a call that came meanwhile, for what is on its way or taken already
            self._outcomes.answer(own, own.known())
        elif own.refused:
            if self._outcomes.give_up(own):
                self._own.forget(own)
                self._own.load()  # what it had replaced may come back
        elif not own.is_recorded:
            error = UselessPeerError(
                f"none of {len(tried)} further addresses accepts the transaction, so no peer has it: try again"
            )
            self._outcomes.answer(own, error)
            self._own.forget(own)
        else:  # the connection ended after it was sent
            self._outcomes.answer(own, own.known())

    # Time

    def advance(self) -> None:
        """Give up strangers that take too long, and forget what is held no more."""
        now = self._context.now.monotonic
        for errand in list(self._errands.values()):
            if now >= errand.until:
                self._failed(errand)
            elif errand.is_again and not errand.is_handed and not self._own.is_offered(errand.own):
                # another one of ours replaces it
                self._end(errand)
        for txid, held in list(self._held.items()):
            own = self._own.find(txid)
            if own is None and held.is_on_its_way and self._may_come_back(txid):
                continue
            if own is None or own.private is None:  # ended, or broadcast again to all
                self._let_go(txid)
            elif own.is_on_its_way and not held.is_on_its_way:
                self._hold(own)
            elif own.free_at <= now and held.is_on_its_way:
                self._send_again(own)
            elif own.free_at <= now:
                own.private = None
                self._let_go(txid)

    def _may_come_back(self, txid: bytes) -> bool:
        """Whether a transaction that is not offered now may be again: with a reorganisation, or when what stands
        against it has ended.
        """
        books = self._context.books
        return (
            books.in_block(txid) is not None or txid in books.unconfirmed.pending or books.ended.own(txid) is not None
        )

    def _send_again(self, own: OwnTx) -> None:
        """It was on its way, and no block has it: a stranger gets it, if there is one now, rather one that this run has
        not given it.

        Not while another one of ours replaces it.
        """
        own.free_at = self._context.now.monotonic + self._context.random.uniform(*SLOW_S)
        own.due.clear()
        self._hold(own)
        if not self._own.is_offered(own):
            return
        now, is_proxied, stranger = self._context.now, self._context.options.is_proxied, self._context.pool.stranger
        address = stranger(own.sent, now, is_proxied=is_proxied) or stranger((), now, is_proxied=is_proxied)
        if address is not None and len(self._errands) < MAX_AT_ONCE:
            self._set_out(own, address, [], is_again=True)

    def _hold(self, own: OwnTx) -> None:
        """Others are not offered it before `free_at`."""
        held = self._held.get(own.tx.txid)
        until = self._context.lived + own.free_at - self._context.now.monotonic
        is_on_its_way = own.is_on_its_way or (held is not None and held.is_on_its_way)
        self._held[own.tx.txid] = Held(
            until, is_on_its_way, sorted(own.private.strangers) if own.private is not None else []
        )
        while len(self._held) > MAX_HELD:
            ended = (txid for txid in self._held if self._own.find(txid) is None)
            del self._held[next(ended, next(iter(self._held)))]
        self._write()

    def _let_go(self, txid: bytes) -> None:
        del self._held[txid]
        self._write()

    def _write(self) -> None:
        held = {txid.hex(): each for txid, each in self._held.items()}
        self._context.books.batch.notes[PRIVATE_NOTE] = json.dumps(held).encode("ascii")

    @property
    def next_at(self) -> float:
        """When `advance` should be called next, by the monotonic clock."""
        held = (own.free_at for txid in self._held if (own := self._own.find(txid)) is not None)
        return min((*(errand.until for errand in self._errands.values()), *held), default=float("inf"))
