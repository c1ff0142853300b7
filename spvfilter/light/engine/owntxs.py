"""The wallet's own transactions and their progress in this run. They can be looked up by hash or family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Broadcast, Refusal
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction

PRIVATE_ECHO_GROUPS = 2
"""Number of network groups that must announce a private transaction before it counts as relayed (our choice)."""
_SPARE = 64
"""Number of outdated entries in a schedule beyond which they are removed (our choice)."""


class BroadcastState(Enum):
    """Progress of a broadcast in this run."""

    QUEUED = "queued"
    """Recorded in the books, but not announced in this run."""
    ANNOUNCED = "announced"
    """Announced to a peer."""
    REQUESTED = "requested"
    """A peer requested and received it."""
    ACCEPTED = "accepted"
    """A peer has it, or received it and ignores requests."""


@dataclass(slots=True, eq=False)
class PeerRecord:
    """One connection to which a transaction was announced. Times are monotonic seconds."""

    announced: float
    """When it was announced."""
    requested: float | None = None
    """When the peer first requested and received it."""
    answered: float | None = None
    """When it became known that the peer has the transaction, rejects it, or ignores requests."""
    is_asked: bool = True
    """True if the peer was asked for it before requesting it, and has not answered."""
    probes: int = 0
    """How often the peer has been asked since it received it."""
    next_probe: float = inf
    """When to ask again."""
    is_missing: bool = False
    """True if the peer answered notfound after it had received the transaction."""
    has_round_passed: bool = False
    """True if the peer has since announced a transaction."""
    reason: str = ""
    """Why the peer rejects it, according to its reject message (BIP-61); empty if it sent none."""


@dataclass(slots=True, eq=False)
class Private:
    """Progress of a private broadcast, which connected peers must not learn about."""

    until: float
    """When the next private connection, or the announcement to all peers, is due (monotonic seconds)."""
    receivers: set[str] = field(default_factory=set)
    """Network groups that the transaction was announced to."""
    echoed: set[str] = field(default_factory=set)
    """Network groups that announced it in this run."""
    is_handed: bool = False
    """True if a peer requested it."""
    was_relayed: bool = False
    """True if the network relayed it in an earlier run or before a reorganization, or if a block contained it."""

    @property
    def is_relayed(self) -> bool:
        """True if enough network groups announced it without receiving it from this client. A single one could lie."""
        return len(self.echoed - self.receivers) >= PRIVATE_ECHO_GROUPS


@dataclass(slots=True, eq=False)
class OwnTx:
    """A transaction of the wallet, and the peers' reactions in this run."""

    tx: Transaction
    """The transaction."""
    reported_status: TxStatus
    """The last reported status."""
    state: BroadcastState = BroadcastState.QUEUED
    """Progress of the broadcast."""
    unstored: int = 0
    """Number of its broadcasts that have not been stored yet."""
    calls: list[int] = field(default_factory=list)
    """Numbers of the calls that are waiting for an answer."""
    waits_until: float = inf
    """Latest time at which these calls get an answer (monotonic seconds)."""
    place: int = 0
    """Position in the order in which the wallet's own transactions are examined."""
    next_at: float = inf
    """When to examine it next (monotonic seconds)."""
    is_judged: bool = False
    """True if it was broadcast in this run. Otherwise, a peer may have accepted it in an earlier run."""
    announced_at: float | None = None
    """When it was first announced to a connected peer after the latest broadcast (monotonic seconds)."""
    has_other_witness: bool = False
    """True if peers may have it with a different witness, in which case their rejection proves nothing."""
    input_values: tuple[int, ...] | None = None
    """Values of the inputs in satoshi, if the user gave them."""
    private: Private | None = None
    """Progress of the private broadcast; None if connected peers may learn of it."""
    due: dict[Peer, float] = field(default_factory=dict)
    """When to announce it to each peer (monotonic seconds)."""
    peers: dict[Peer, PeerRecord] = field(default_factory=dict)
    """Connections to which it was announced."""
    sent: dict[str, None] = field(default_factory=dict)
    """Addresses of peers that received it."""
    echoed: dict[str, None] = field(default_factory=dict)
    """Addresses of peers that have it from another node."""
    refused: dict[str, str] = field(default_factory=dict)
    """Addresses of peers that rejected it, with the reasons."""
    left: dict[str, None] = field(default_factory=dict)
    """Addresses of peers that received it but disconnected before answering."""
    lacking: dict[bytes, None] = field(default_factory=dict)
    """Parents that a peer requested after it received the transaction, and that the client cannot serve."""

    @property
    def is_open(self) -> bool:
        """True if it was reported as pending or replaced."""
        return self.reported_status.is_open

    @property
    def is_durable(self) -> bool:
        """True if all its broadcasts have been stored. Only then does the client announce it."""
        return not self.unstored

    @property
    def is_relayed(self) -> bool:
        """True if the network is relaying it, because enough peers have it from other nodes."""
        return bool(self.echoed) if self.private is None else self.private.is_relayed

    @property
    def is_hidden(self) -> bool:
        """True if connected peers do not have it, so that announcing a descendant would reveal it to them."""
        return not self.is_durable or (self.private is not None and not self.is_with_others)

    @property
    def is_with_others(self) -> bool:
        """True if peers have ever had it from other nodes, even in an earlier run, so descendants cannot reveal it."""
        return bool(self.echoed) or (self.private is not None and self.private.was_relayed)

    def known(self) -> Broadcast:
        """Return the peers' reactions so far."""
        refused = tuple(Refusal(peer, reason) for peer, reason in self.refused.items())
        return Broadcast(self.tx.txid, tuple(self.sent), tuple(self.echoed), refused)


class OwnTxs:
    """The wallet's own transactions that no block contains, in the order in which they are examined."""

    def __init__(self) -> None:
        self._all: dict[bytes, OwnTx] = {}  # by txid
        self._by_hash: dict[bytes, OwnTx] = {}  # by txid and wtxid
        self._children: dict[bytes, dict[bytes, None]] = {}  # txids of children, by the txid of a parent
        self._sizes: Counter[int] = Counter()  # numbers of transactions, by bytes
        self._hidden: dict[bytes, OwnTx] = {}
        self._places = count()

    def __iter__(self) -> Iterator[OwnTx]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def get(self, txid: bytes) -> OwnTx | None:
        """Return a transaction, or None."""
        return self._all.get(txid)

    def find(self, tx_hash: bytes) -> OwnTx | None:
        """Return a transaction by its txid or wtxid, or None."""
        return self._by_hash.get(tx_hash)

    def has_size(self, size: int) -> bool:
        """Return True if any of the transactions is `size` bytes long."""
        return size in self._sizes

    # Changes

    def put(self, own: OwnTx) -> None:
        """Add a transaction at the end, or replace its earlier progress."""
        before = self.remove(own.tx.txid)
        own.place = next(self._places) if before is None else before.place
        self._all[own.tx.txid] = own
        for tx_hash in (own.tx.txid, own.tx.wtxid):
            self._by_hash[tx_hash] = own
        for outpoint in own.tx.inputs:
            self._children.setdefault(outpoint[:32], {})[own.tx.txid] = None
        self._sizes[len(own.tx.raw)] += 1
        self.note(own)

    def remove(self, txid: bytes) -> OwnTx | None:
        """Remove a transaction, and return it if there was one."""
        own = self._all.pop(txid, None)
        if own is None:
            return None
        own.next_at = inf
        self._hidden.pop(txid, None)
        for tx_hash in (txid, own.tx.wtxid):
            self._by_hash.pop(tx_hash, None)
        for outpoint in own.tx.inputs:
            children = self._children.get(outpoint[:32], {})
            children.pop(txid, None)
            if not children:
                self._children.pop(outpoint[:32], None)
        size = len(own.tx.raw)
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
        return own

    def change_witness(self, own: OwnTx, tx: Transaction) -> None:
        """Replace the witness of a transaction. `tx` is the transaction with the new witness."""
        self.remove(tx.txid)
        place, own.tx = own.place, tx
        self.put(own)
        own.place = place

    def note(self, own: OwnTx) -> bool:
        """Record whether a transaction is hidden. Return True if it was hidden and no longer is."""
        if own.is_hidden:
            self._hidden[own.tx.txid] = own
            return False
        return self._hidden.pop(own.tx.txid, None) is not None

    # Families

    def parents(self, own: OwnTx) -> Iterator[OwnTx]:
        """Yield the parents of a transaction."""
        for txid in dict.fromkeys(outpoint[:32] for outpoint in own.tx.inputs):
            if (parent := self._all.get(txid)) is not None:
                yield parent

    def children(self, own: OwnTx) -> Iterator[OwnTx]:
        """Yield the children of a transaction."""
        yield from self.children_of(own.tx.txid)

    def children_of(self, txid: bytes) -> Iterator[OwnTx]:
        """Yield the wallet's own transactions that spend from the transaction `txid`, which may be foreign."""
        yield from (self._all[child] for child in self._children.get(txid, ()))

    def has_child(self, own: OwnTx) -> bool:
        """Return True if one of the transactions spends an output of `own`."""
        return own.tx.txid in self._children

    def descendants(self, owns: Iterable[OwnTx]) -> dict[bytes, OwnTx]:
        """Return the descendants of some transactions, keyed by txid."""
        found, waiting = dict[bytes, OwnTx](), list(owns)
        while waiting:
            for child in self.children(waiting.pop()):
                if child.tx.txid not in found:
                    found[child.tx.txid] = child
                    waiting.append(child)
        return found

    def behind_hidden(self) -> Collection[bytes]:
        """Return the txids of all descendants of hidden transactions."""
        return self.descendants(self._hidden.values()) if self._hidden else ()

    def parents_first(self, owns: Iterable[OwnTx]) -> list[OwnTx]:
        """Return these transactions in the order in which they are examined, but parents before their children."""
        chosen = {own.tx.txid: own for own in sorted(owns, key=_place)}
        ordered = dict[bytes, OwnTx]()
        for own in chosen.values():
            waiting = [own]
            while waiting:
                each = waiting[-1]
                missing = [up for up in self.parents(each) if up.tx.txid in chosen and up.tx.txid not in ordered]
                if each.tx.txid not in ordered and missing:
                    waiting += missing
                else:
                    ordered[waiting.pop().tx.txid] = each
        return list(ordered.values())


class Schedule:
    """When to examine the wallet's own transactions, so that a step's work does not grow with their number."""

    def __init__(self, owns: OwnTxs) -> None:
        self._owns = owns
        self._touched: dict[bytes, None] = {}
        self._heap: list[tuple[float, int, OwnTx]] = []  # outdated if the time is not the transaction's `next_at`
        self._numbers = count()

    def touch(self, own: OwnTx) -> None:
        """Examine a transaction as soon as possible."""
        self._touched[own.tx.txid] = None

    def plan(self, own: OwnTx, at: float) -> None:
        """Examine a transaction at a time (monotonic seconds), instead of the time planned earlier."""
        if at != own.next_at:
            own.next_at = at
            if at < inf:
                heappush(self._heap, (at, next(self._numbers), own))
        if len(self._heap) > 2 * len(self._owns) + _SPARE:
            self._heap = [entry for entry in self._heap if entry[0] == entry[2].next_at]
            heapify(self._heap)

    @property
    def next_at(self) -> float:
        """When to examine a transaction next (monotonic seconds)."""
        while self._heap and self._heap[0][0] != self._heap[0][2].next_at:
            heappop(self._heap)
        return 0.0 if self._touched else self._heap[0][0] if self._heap else inf

    def take(self, now: float, most: int) -> list[OwnTx]:
        """Return the transactions to examine now, in order: at most `most`, plus their children."""
        while self._heap and self._heap[0][0] <= now:
            at, _, own = heappop(self._heap)
            if at == own.next_at:
                own.next_at = inf
                self.touch(own)
        waiting = [own for own in map(self._owns.get, self._touched) if own is not None]
        if len(waiting) <= most:
            self._touched = {}
            return sorted(waiting, key=_place)
        waiting.sort(key=_place)
        chosen = dict.fromkeys(own.tx.txid for own in waiting[:most])
        for own in waiting[:most]:  # a parent with a low fee is announced together with a child
            for child in self._owns.children(own) if len(chosen) < 2 * most else ():
                if child.tx.txid in self._touched:
                    chosen[child.tx.txid] = None
        self._touched = {own.tx.txid: None for own in waiting if own.tx.txid not in chosen}
        return [own for own in waiting if own.tx.txid in chosen]


def _place(own: OwnTx) -> int:
    return own.place
