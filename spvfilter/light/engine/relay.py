"""Relay for the users of a server: announces (inv) and serves (tx) other people's transactions, outside the books.

The client keeps them in memory only, for 20 minutes. A named guest of the server gets at most half of the space, so
that one program cannot lock the others out.

The client announces each transaction once to each peer. As with the wallet's own transactions, it asks a peer that
received a transaction whether the peer has accepted it. If a peer requests a parent that the client cannot serve, the
peer does not know the inputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from spvfilter.errors import ParameterError, TxRefusedError, UselessPeerError
from spvfilter.light.engine.broadcaster import PROBE_S, is_rejection, reason_of
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Broadcast, Refusal
from spvfilter.protocol import MAX_STANDARD_TX_WEIGHT
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import GetData, Inv, InvItem, InvType, Reject, Tx

MAX_RELAYED = 100
"""Largest number of relayed transactions (our choice)."""
MAX_SIZE = 5_000_000
"""Largest total size of relayed transactions in bytes (our choice)."""
_GUEST_PART = 2
"""Both limits are divided by this number for a single named guest, who gets at most half of each (our choice)."""
RELAY_S = 1_200.0
"""Seconds for which a transaction is announced to new peers and served (our choice)."""
MAX_PROBES = 30
"""How often one peer is asked whether it has a transaction (our choice)."""


@dataclass(slots=True, eq=False)
class RelayedTx:
    """Somebody else's transaction, and the peers' reactions to it."""

    tx: Transaction
    until: float
    """When it is forgotten (monotonic seconds)."""
    guest: str = ""
    """Name of the guest that sent it first; empty if the guest has none."""
    calls: list[int] = field(default_factory=list)
    """Numbers of the calls that are waiting for an answer."""
    waits_until: float = inf
    """Latest time at which these calls get an answer (monotonic seconds)."""
    told: dict[Peer, int] = field(default_factory=dict)
    """Peers that it was announced to, and how often each was asked after receiving it."""
    probe_at: dict[Peer, float] = field(default_factory=dict)
    """For each peer that received the transaction: when to ask again whether it has it (monotonic seconds)."""
    sent: dict[str, None] = field(default_factory=dict)
    """Addresses of peers that received it."""
    echoed: dict[str, None] = field(default_factory=dict)
    """Addresses of peers that have it from another node."""
    refused: dict[str, str] = field(default_factory=dict)
    """Addresses of peers that rejected it, with the reasons."""
    lacking: dict[bytes, None] = field(default_factory=dict)
    """Parents that a peer requested after it received the transaction."""
    is_accepted: bool = False
    """True if a peer has it, or received it and ignores requests."""

    @property
    def is_unsent(self) -> bool:
        """True if no peer can have it."""
        return not (self.sent or self.is_accepted)

    def answer(self) -> Broadcast | Exception:
        """Return the peers' reactions so far, or an error if no peer requested it."""
        if self.is_unsent:
            return UselessPeerError("no peer has requested the transaction yet")
        refused = tuple(Refusal(*each) for each in self.refused.items())
        return Broadcast(self.tx.txid, tuple(self.sent), tuple(self.echoed), refused)


class Relay:
    """Relays transactions that do not involve the wallet."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._txs: dict[bytes, RelayedTx] = {}  # by txid, the oldest first
        self._names: dict[bytes, RelayedTx] = {}  # by txid and wtxid
        self._spending: dict[bytes, dict[bytes, None]] = {}  # txid → txids of relayed transactions that spend it
        self._told: set[Peer] = set()  # peers that were told of all transactions
        self._next_at = inf
        context.pool.on_gone(self._gone)

    def __len__(self) -> int:
        return len(self._txs)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._txs

    def take(self, transactions: Sequence[Transaction], call: int, guest: str = "") -> None:
        """Accept transactions, parents first. The call gets an answer for the last one, or an error."""
        last, now = transactions[-1], self._context.now.monotonic
        self._expire(now)
        for tx in transactions:
            held = self._txs.get(tx.txid)
            if held is not None and held.tx.wtxid != tx.wtxid and not held.is_accepted:
                self._drop(held)  # no node has accepted the other witness, so it may be wrong
        new = {tx.txid: tx for tx in transactions if tx.txid not in self._txs}
        if (error := self._refusal(new.values(), guest)) is not None:
            self._context.out.answer(call, last.txid, ParameterError(error))
            return
        for tx in new.values():
            relayed = self._txs[tx.txid] = RelayedTx(tx, now + RELAY_S, guest)
            self._names |= {tx.txid: relayed, tx.wtxid: relayed}
            for outpoint in tx.inputs:
                self._spending.setdefault(outpoint[:32], {})[tx.txid] = None
        relayed = self._txs[last.txid]
        relayed.calls.append(call)
        relayed.waits_until = now + self._context.options.timeouts.reply_s
        if relayed.is_accepted:
            self._answer(relayed)
        self._next_at = min(self._next_at, relayed.waits_until, relayed.until)
        self._told.clear()
        self._context.changed()

    def _refusal(self, new: Collection[Transaction], guest: str) -> str | None:
        """Return why a guest's new transactions are not accepted, or None."""
        if any(tx.weight > MAX_STANDARD_TX_WEIGHT for tx in new):
            return f"nodes do not relay transactions of more than {MAX_STANDARD_TX_WEIGHT} weight units"
        minutes = round(RELAY_S / 60)
        every, own = self._txs.values(), [each for each in self._txs.values() if each.guest == guest]
        for kept, part, owner in (own, _GUEST_PART if guest else 1, guest or "others"), (every, 1, "others"):
            most = max(1, MAX_RELAYED // part)
            size = sum(len(each.tx.raw) for each in kept) + sum(len(tx.raw) for tx in new)
            if len(kept) + len(new) > most or size > MAX_SIZE // part:
                return f"at most {most} transactions from {owner} are relayed in {minutes} minutes: try again later"
        return None

    def is_unsent(self, txid: bytes) -> bool:
        """Return True if a transaction is being relayed, but no peer can have it."""
        return txid in self._txs and self._txs[txid].is_unsent

    def withdraw(self, txid: bytes) -> None:
        """Forget a transaction, unless a peer may have it."""
        if self.is_unsent(txid):
            self._drop(self._txs[txid])

    def lacking(self, txid: bytes) -> tuple[bytes, ...]:
        """Return the parents of a relayed transaction that a peer requested."""
        relayed = self._txs.get(txid)
        return () if relayed is None or relayed.is_accepted else tuple(relayed.lacking)

    # Time

    @property
    def next_at(self) -> float:
        """When `advance` is due next (monotonic seconds); infinity if nothing is due."""
        return self._next_at

    def advance(self) -> None:
        """Announce transactions to peers that have not been told of them, and query peers that received one."""
        now = self._context.now.monotonic
        peers = [peer for peer in self._context.pool.ready() if peer.profile is not None and peer.profile.relays]
        is_told = self._told.issuperset(peers)
        if not self._txs or (is_told and now < self._next_at):
            return
        self._expire(now)
        self._told = set(peers)
        for peer in peers:
            fresh = [each for each in self._txs.values() if peer not in each.told]
            if fresh:
                for each in fresh:
                    each.told[peer] = 0
                self._context.out.send(peer.number, Inv(_items(peer, fresh, InvType.TX)))
                self._ask(peer, fresh)
        for relayed in self._txs.values():
            for peer in [peer for peer, at in relayed.probe_at.items() if at <= now]:
                self._probe(peer, relayed)
            if relayed.waits_until <= now:
                self._answer(relayed)
        moments = (min(each.until, each.waits_until, *each.probe_at.values()) for each in self._txs.values())
        self._next_at = min(moments, default=inf)

    def _expire(self, now: float) -> None:
        for relayed in [each for each in self._txs.values() if each.until <= now]:
            self._drop(relayed)

    def _drop(self, relayed: RelayedTx) -> None:
        tx = relayed.tx
        del self._txs[tx.txid]
        for name in {tx.txid, tx.wtxid}:
            del self._names[name]
        for parent in {outpoint[:32] for outpoint in tx.inputs}:
            del self._spending[parent][tx.txid]
            if not self._spending[parent]:
                del self._spending[parent]
        self._answer(relayed)

    def _gone(self, peer: Peer) -> None:
        self._told.discard(peer)
        for relayed in self._txs.values():
            relayed.told.pop(peer, None)
            relayed.probe_at.pop(peer, None)

    # Requests of peers

    def serve(self, peer: Peer, items: Sequence[InvItem]) -> list[InvItem]:
        """Send a peer the requested transactions that were announced to it. Return the other items."""
        others, sent = list[InvItem](), dict[bytes, None]()
        for item in dict.fromkeys(items):
            relayed = self._names.get(item.hash)
            if relayed is None or peer not in relayed.told:
                others.append(item)
                for child in map(self._txs.__getitem__, self._spending.get(item.hash, ())):
                    if peer.address in child.sent:
                        child.lacking[item.hash] = None
            elif relayed.tx.txid not in sent:
                sent[relayed.tx.txid] = None
                self._context.out.send(peer.number, Tx(relayed.tx.raw))
                relayed.sent[peer.address] = None
                self._probe(peer, relayed)
        return others

    def _ask(self, peer: Peer, txs: Iterable[RelayedTx]) -> None:
        self._context.out.send(peer.number, GetData(_items(peer, txs, InvType.WITNESS_TX)))

    def _probe(self, peer: Peer, relayed: RelayedTx) -> None:
        """Ask a peer that received a transaction whether it has it. A peer that stays silent ignores such requests."""
        relayed.probe_at.pop(peer, None)
        if relayed.is_accepted or relayed.told[peer] >= MAX_PROBES:
            return
        relayed.told[peer] = number = relayed.told[peer] + 1
        self._ask(peer, (relayed,))
        self._context.out.fence(peer.number, partial(self._probed, peer, relayed, number))

    def _probed(self, peer: Peer, relayed: RelayedTx, number: int) -> None:
        is_silent = relayed.told.get(peer) == number and peer not in relayed.probe_at
        if is_silent and peer.address not in relayed.refused:
            self._accepted(relayed)

    # Reactions of peers

    def announced(self, peer: Peer, items: Collection[InvItem]) -> None:
        """Handle a peer's announcement. If we told the peer of a transaction, the peer must prove that it has it."""
        for item in items if self._txs else ():
            relayed = self._names.get(item.hash)
            if relayed is None or relayed.is_accepted:
                continue
            if peer in relayed.told:
                self._ask(peer, (relayed,))
            else:
                relayed.told[peer] = 0
                relayed.echoed[peer.address] = None
                self._accepted(relayed)

    def given(self, peer: Peer, txid: bytes) -> bool:
        """Handle a transaction from a peer. Return True if we announced it to the peer and then asked for it."""
        relayed = self._txs.get(txid)
        if relayed is None or peer not in relayed.told:
            return False
        if peer.address not in relayed.sent:
            relayed.echoed[peer.address] = None
        self._accepted(relayed)
        return True

    def not_found(self, peer: Peer, tx_hash: bytes) -> None:
        """Record that a peer does not have a transaction. A peer that received it is asked again."""
        relayed = self._names.get(tx_hash)
        if relayed is None or not relayed.told.get(peer) or relayed.is_accepted:
            return
        relayed.probe_at[peer] = self._context.now.monotonic + PROBE_S
        self._next_at = min(self._next_at, relayed.probe_at[peer])
        self._context.changed()

    def rejected(self, peer: Peer, message: Reject) -> None:
        """Record that a peer rejects a transaction that it received (BIP-61)."""
        relayed = self._names.get(message.data)
        if relayed is None or peer.address not in relayed.sent or relayed.is_accepted or not is_rejection(message):
            return
        relayed.refused[peer.address] = reason_of(message)
        if all(each.address in relayed.refused for each in relayed.told):
            told = "; ".join(f"{address}: {reason}" for address, reason in relayed.refused.items())
            error = f"every peer that received the transaction rejected it: {told}"
            self._answer(relayed, TxRefusedError(error, tuple(relayed.refused.items())))
            self._drop(relayed)

    def _accepted(self, relayed: RelayedTx) -> None:
        relayed.is_accepted = True
        relayed.probe_at.clear()
        self._answer(relayed)

    def _answer(self, relayed: RelayedTx, error: Exception | None = None) -> None:
        for call in relayed.calls:
            self._context.out.answer(call, relayed.tx.txid, error or relayed.answer())
        relayed.calls.clear()
        relayed.waits_until = inf


def _items(peer: Peer, txs: Iterable[RelayedTx], by_txid: InvType) -> tuple[InvItem, ...]:
    """Return the items that name transactions: by wtxid (BIP-339), or else by txid with the kind `by_txid`."""
    assert peer.profile is not None
    if peer.profile.wtxid_relay:
        return tuple(InvItem(InvType.WTX, each.tx.wtxid) for each in txs)
    return tuple(InvItem(by_txid, each.tx.txid) for each in txs)
