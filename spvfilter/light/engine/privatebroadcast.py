"""Private broadcast: hand a transaction to one new peer, over a connection that reveals nothing else about the wallet.

Each connection is opened for one transaction, which is announced and served before the connection ends, as in Core's
private broadcast. These peers are not in the pool, and nothing else is sent to them.

If two network groups announce the transaction although they never received it from us, the network is relaying it.
Connected peers are then never told of it, because they would learn that it is the wallet's own. If no block contains it
after about a day, another new peer gets it.

If no such announcement arrives within a random time, the broadcaster announces the transaction to all peers. If no new
peer has requested it, the client tries other new peers later, without telling connected ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import inf
from typing import Any, assert_never  # Any: a task with any result

from spvfilter.errors import PrivacyError, UselessPeerError
from spvfilter.light.engine.broadcaster import (
    DAILY_S,
    REBROADCAST_S,
    Broadcaster,
    is_rejection,
    reason_of,
)
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.inputs import FencePassed, Heard, Input, Lost, Malformed, PeerConnected
from spvfilter.light.engine.netgroups import dialling_group
from spvfilter.light.engine.ownbooks import OwnBooks
from spvfilter.light.engine.owntxs import BroadcastState, OwnTx, Private
from spvfilter.light.engine.saved import PRIVATE_NOTE, PrivateRecord
from spvfilter.light.engine.tasks import Announced, Change, First, Task, Wait
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import GetData, Inv, InvItem, InvType, Reject, Tx

MAX_TRIES = 4
"""Largest number of new peers to try in turn for a transaction (our choice)."""
MAX_RECORDS = 1_000
"""Largest number of private transactions to remember, including confirmed ones (our choice)."""
MAX_AT_ONCE = 8
"""Largest number of transactions to hand over at the same time (our choice)."""


class _Outcome(Enum):
    """The outcome of offering a transaction to a new peer."""

    HANDED = "handed"
    """The peer has processed it."""
    FAILED = "failed"
    """Another peer is tried."""
    POINTLESS = "pointless"
    """The transaction is public, replaced or ended."""


@dataclass(slots=True, eq=False)
class _Handover:
    """One connection that hands a transaction to a new peer."""

    own: OwnTx
    """The transaction."""
    number: int
    """Number of the connection."""
    address: str
    """HOST:PORT of the peer."""
    until: float
    """When to try another peer (monotonic seconds)."""
    task: Task[Any]
    """The task that hands over the transaction."""
    is_handed: bool = False
    """True if the peer requested it."""
    by_wtxid: bool | None = None
    """True if it was announced by wtxid, False if by txid; None if it has not been announced yet."""
    report: PeerConnected | Heard | None = None
    """The current report from the connection. The task gets it only if it is waiting for one."""
    reported: Change = field(default_factory=lambda: Change("a report of a private connection"))
    """A change that is announced with each report."""
    over: Wait[None] = field(default_factory=lambda: Wait("the end of a private connection"))
    """Completes when the connection is lost, or when it is time to try another peer."""

    def next_report(self) -> Announced[PeerConnected | Heard]:
        """Wait for the next report."""
        return self.reported.until(lambda: self.report)


class PrivateBroadcast:
    """Connections for one transaction each, outside the pool of peers."""

    def __init__(
        self, context: Context, broadcaster: Broadcaster, books: OwnBooks, records: Mapping[str, PrivateRecord]
    ) -> None:
        """Start with the `records` of earlier runs, whose keys are txids in hex."""
        self._context = context
        self._broadcaster = broadcaster
        self._books = books
        self._handovers: dict[int, _Handover] = {}  # by the connection's number
        self._records = {bytes.fromhex(txid): record for txid, record in records.items()}
        broadcaster.on_returned(self._returned)

    # Transactions

    def broadcast(
        self, tx: Transaction, call: int, input_values: tuple[int, ...] | None, *, is_shown: bool
    ) -> OwnTx | None:
        """Broadcast a transaction privately, for a waiting call. Return None if the call was answered immediately.

        `is_shown` is True if a peer has a BIP-37 filter of the wallet, or may get one.
        """
        own = self._broadcaster.find(tx.txid)
        handover = next((each for each in self._handovers.values() if each.own is own), None)
        obstacle = None if handover is not None else self._obstacle(tx, own, is_shown=is_shown)
        if obstacle is not None:
            error = PrivacyError(f"the transaction cannot be sent privately: {obstacle}")
            self._context.out.answer(call, tx.txid, error)
            return None
        private = own.private if own is not None and own.private is not None else Private(0.0)
        if handover is None:
            private.until = self._context.now.monotonic
        before = self._records.pop(tx.txid, None) if own is None else self._records.get(tx.txid)
        is_renewed = own is not None and own.tx.raw != tx.raw
        self._write(tx.txid, private)  # in the commit of the record: a later run must know that it is private
        recorded = self._broadcaster.broadcast(tx, call, input_values, private)
        if recorded is None:
            self._store(tx.txid, before)
        elif is_renewed and handover is not None and handover.by_wtxid and not handover.is_handed:
            self._announce(handover)  # by the new wtxid
        return recorded

    def _returned(self, own: OwnTx) -> None:
        """Handle a transaction that was loaded from the books at the start, or that a reorganization has returned.

        A private transaction stays private.
        """
        record = self._records.get(own.tx.txid)
        if record is None:
            return
        now, reply_s = self._context.now.monotonic, self._context.options.timeouts.reply_s
        longest_s = DAILY_S[1] if record.is_relayed else 2 * reply_s  # our clock may be wrong now
        left_s = max(0.0, min(record.until - self._context.unix_now, longest_s)) if record.is_handed else 0.0
        if left_s == 0.0 and (record.is_relayed or not record.is_handed):
            left_s = self._context.random.uniform(0.0, reply_s)
        own.private = Private(
            now + left_s, set(record.receivers), is_handed=record.is_handed, was_relayed=record.is_relayed
        )

    def _obstacle(self, tx: Transaction, own: OwnTx | None, *, is_shown: bool) -> str | None:
        """Return why a transaction cannot be sent privately, or None."""
        if not self._context.options.mempool:
            return (
                "with mempool=False, peers do not announce transactions, so the client could not see that it is "
                "spreading and would send it to all peers"
            )
        if is_shown:
            return "peers have, or may get, a BIP-37 filter that matches it: use compact mode, which has no such filter"
        is_unsent = own is not None and own.private is not None and not own.private.is_handed
        if not is_unsent and (self._books.is_unconfirmed(tx.txid) or self._books.is_confirmed(tx.txid)):
            return "peers already know it"
        for txid in dict.fromkeys(outpoint[:32] for outpoint in tx.inputs):
            parent = self._broadcaster.find(txid)
            if parent is not None and not parent.is_with_others:
                return (
                    f"it spends from {hash_to_hex(txid)}, which no peer is known to have from another node: wait "
                    "until a peer echoes that transaction"
                )
            if self._books.ended(txid) in (TxStatus.REFUSED, TxStatus.EXPIRED):
                return f"it spends from {hash_to_hex(txid)}, which would be announced to all peers again"
        if len(self._handovers) >= MAX_AT_ONCE:
            return f"{MAX_AT_ONCE} private transactions are already being sent: try again later"
        if self._new_peer(()) is None:
            return (
                "the client is already connected to every known address: name more peers than max_peers, or discover"
                " some"
            )
        return None

    def _new_peer(self, tried: Collection[str]) -> str | None:
        """Return an address for a private connection that is not in `tried`, or None if there is none."""
        context = self._context
        return context.pool.stranger(tried, context.now, is_proxied=context.options.is_proxied)

    async def _hand_over(self, own: OwnTx, address: str | None, *, is_repeat: bool) -> None:
        """Offer a transaction to one new peer after another until one has it, and answer the call.

        `is_repeat` is True if the network has already relayed the transaction, and no block contains it.
        """
        tried = list[str]()
        while address is not None:
            tried.append(address)
            with self._connection(own, address) as handover, self._context.tasks.scope() as scope:
                offer = scope.begin(partial(self._offer, handover, is_repeat=is_repeat), "offer it to a new peer")
                await First(offer, handover.over)
                outcome = offer.result() if offer.is_done and not handover.over.is_done else _Outcome.FAILED
            if outcome is _Outcome.HANDED:
                self._broadcaster.answer(own, own.known())
            if outcome is not _Outcome.FAILED or own.private is None or not self._is_current(own):
                return
            is_open = not handover.is_handed if is_repeat else own.state is not BroadcastState.ACCEPTED
            address = self._new_peer(tried) if is_open else None
            if address is None or len(tried) >= MAX_TRIES:
                self._give_up(own, own.private, tried, is_repeat=is_repeat, is_open=is_open)
                return

    @contextmanager
    def _connection(self, own: OwnTx, address: str) -> Iterator[_Handover]:
        """Context manager that keeps a connection to a new peer open until the end of its `with` block."""
        context, number = self._context, self._context.pool.take_number()
        assert context.tasks.current is not None
        until = context.now.monotonic + context.options.timeouts.reply_s / MAX_TRIES
        handover = self._handovers[number] = _Handover(own, number, address, until, context.tasks.current)
        context.out.connect(number, address, is_private=True, v2=context.pool.v2_policy(address))
        context.changed()
        try:
            yield handover
        finally:
            del self._handovers[number]
            context.out.drop(number)
            context.out.gone(number)
            context.changed()

    async def _offer(self, handover: _Handover, *, is_repeat: bool) -> _Outcome:
        """Announce a transaction to a new peer, serve it, and wait until the peer has processed it."""
        context, own, private = self._context, handover.own, handover.own.private
        profile = await handover.next_report()
        assert isinstance(profile, PeerConnected)
        is_known = context.pool.has_host(profile.host) and not context.options.is_proxied
        if is_known or not profile.relays or private is None:
            return _Outcome.FAILED
        private.receivers.add(dialling_group(profile.host))
        handover.by_wtxid = profile.wtxid_relay
        if own.state is BroadcastState.QUEUED:
            own.state = BroadcastState.ANNOUNCED
        self._announce(handover)
        while not _is_request(await handover.next_report(), own.tx):
            pass
        await context.out.committed_all()  # a new witness may not be stored yet
        private = own.private
        if private is None or not self._is_current(own):
            return _Outcome.POINTLESS
        handover.is_handed = private.is_handed = True
        if not is_repeat:
            private.until = context.now.monotonic + context.random.uniform(1.0, 2.0) * context.options.timeouts.reply_s
        self._write(own.tx.txid, private)
        context.out.send(handover.number, Tx(own.tx.raw))
        self._broadcaster.was_sent(own, handover.address)
        return await self._processed(handover)

    async def _processed(self, handover: _Handover) -> _Outcome:
        """Wait until a peer has processed the transaction that it was sent, or until it rejects it."""
        passed = self._context.out.fenced(handover.number)
        while True:
            await First(passed, report := handover.next_report())
            if passed.is_done:
                return _Outcome.HANDED
            reject = _rejection(report.result(), handover.own.tx)
            if reject is not None:
                self._broadcaster.was_rejected(handover.own, handover.address, reason_of(reject))
                return _Outcome.FAILED

    def _announce(self, handover: _Handover) -> None:
        tx = handover.own.tx
        item = InvItem(InvType.WTX, tx.wtxid) if handover.by_wtxid else InvItem(InvType.TX, tx.txid)
        self._context.out.send(handover.number, Inv((item,)))

    def _give_up(self, own: OwnTx, private: Private, tried: list[str], *, is_repeat: bool, is_open: bool) -> None:
        """Answer the call, because no other peer will be tried."""
        if own.refused and own.is_judged and is_open and not is_repeat:
            self._broadcaster.reject(own)
        elif private.is_handed or not is_open:
            self._broadcaster.answer(own, own.known())
        else:
            private.until = self._context.now.monotonic + self._context.random.uniform(*REBROADCAST_S)
            error = UselessPeerError(
                f"no new peer accepted the transaction ({len(tried)} tried), so no peer has it."
                " The wallet keeps it and tries again in 10 to 15 minutes; to spend its coins in a different"
                " transaction, abandon it"
            )
            self._broadcaster.answer(own, error)

    # Connections

    def takes(self, event: Input) -> bool:
        """Pass an input from a private connection to its task. Return False for any other input."""
        if not isinstance(event, PeerConnected | Heard | FencePassed | Lost | Malformed):
            return False
        handover = self._handovers.get(event.peer)
        if handover is None:
            return False
        match event:
            case PeerConnected() | Heard():
                handover.report = event
                handover.reported.announce()
                handover.report = None
            case FencePassed(_, token):
                self._context.out.done(token, None)
            case Lost() | Malformed():
                handover.over.set(None)
            case _:
                assert_never(event)
        self._context.tasks.run()
        return True

    # Time

    def advance(self) -> None:
        """Replace slow peers, hand over transactions that are due, and announce unrelayed transactions to all peers."""
        now = self._context.now.monotonic
        for handover in list(self._handovers.values()):
            own = handover.own
            if own.private is None or (not handover.is_handed and not self._is_current(own)):
                handover.task.cancel()  # broadcast to all, replaced or ended in the meantime
            elif now >= handover.until:
                handover.over.set(None)
                self._context.tasks.run()
        for txid, record in list(self._records.items()):
            found = self._broadcaster.find(txid)
            if found is None:
                self._keep(txid, record)
            elif found.private is None:  # broadcast to all
                self._store(txid, None)
            else:
                self._advance(found, found.private, record)

    def _keep(self, txid: bytes, record: PrivateRecord) -> None:
        """Remember that a confirmed or ended transaction is private, because it may become unconfirmed again."""
        if self._books.is_confirmed(txid):
            if not record.is_relayed or record.until > self._context.unix_now:
                relayed = PrivateRecord(self._context.unix_now, True, record.receivers, True)
                self._store(txid, relayed)
        elif not self._books.is_unconfirmed(txid) and self._books.ended(txid) is None:
            self._store(txid, None)

    def _advance(self, own: OwnTx, private: Private, record: PrivateRecord) -> None:
        if private.is_relayed and not record.is_relayed:
            self._write(own.tx.txid, private)
        if private.until > self._context.now.monotonic or not own.is_durable or self._is_under_way(own):
            return
        was_relayed = private.is_relayed or private.was_relayed
        if private.is_handed and not was_relayed:
            self._store(own.tx.txid, None)
            self._broadcaster.announce_to_all(own)
            return
        delay_s = DAILY_S if was_relayed else REBROADCAST_S
        private.until = self._context.now.monotonic + self._context.random.uniform(*delay_s)
        if private.is_handed:
            self._write(own.tx.txid, private)
        address = self._new_peer(own.sent) or self._new_peer(())
        if address is not None and self._is_current(own) and len(self._handovers) < MAX_AT_ONCE:
            story = partial(self._hand_over, own, address, is_repeat=was_relayed)
            self._context.tasks.begin(story, "hand over a transaction")
            self._context.tasks.run()

    def _is_current(self, own: OwnTx) -> bool:
        """Return True if a transaction is unconfirmed and no later one of the wallet's replaces it."""
        return self._broadcaster.find(own.tx.txid) is own and self._books.is_announceable(own.tx.txid)

    def _is_under_way(self, own: OwnTx) -> bool:
        return any(each.own is own for each in self._handovers.values())

    # Records

    def _write(self, txid: bytes, private: Private) -> None:
        until = self._context.unix_now + private.until - self._context.now.monotonic
        known = self._records.get(txid)
        is_relayed = private.is_relayed or private.was_relayed or (known is not None and known.is_relayed)
        self._store(txid, PrivateRecord(until, is_relayed, sorted(private.receivers), private.is_handed))

    def _store(self, txid: bytes, record: PrivateRecord | None) -> None:
        """Store what a later run needs to know about a transaction; None to store nothing."""
        self._records.pop(txid, None)
        if record is not None:
            self._records[txid] = record
        while len(self._records) > MAX_RECORDS:
            ended = (each for each in self._records if each != txid and self._broadcaster.find(each) is None)
            del self._records[next(ended, next(iter(self._records)))]
        records = {txid.hex(): record for txid, record in self._records.items()}
        self._books.note(PRIVATE_NOTE, json.dumps(records).encode("ascii"))

    @property
    def next_at(self) -> float:
        """When `advance` is due next (monotonic seconds)."""
        owns = (own for txid in self._records if (own := self._broadcaster.find(txid)) is not None and own.is_durable)
        due = (own.private.until for own in owns if own.private is not None and not self._is_under_way(own))
        return min((*(each.until for each in self._handovers.values()), *due), default=inf)


def _is_request(report: PeerConnected | Heard, tx: Transaction) -> bool:
    """Return True if a peer requests a transaction."""
    match report:
        case Heard(_, GetData(items)):
            return any(item.hash in (tx.txid, tx.wtxid) for item in items)
    return False


def _rejection(report: PeerConnected | Heard, tx: Transaction) -> Reject | None:
    """Return the message if it rejects this transaction (BIP-61), or else None."""
    match report:
        case Heard(_, Reject() as reject) if reject.data == tx.txid and is_rejection(reject):
            return reject
    return None
