"""Own transactions in this run: the progress of each broadcast."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Broadcast, Refusal
from spvfilter.store.ledger import UNCONFIRMED, TxStatus
from spvfilter.transaction import Transaction

PRIVATE_ECHO_GROUPS = 2
"""The network relays a private transaction once this many network groups announced it (our choice)."""


class State(Enum):
    """Progress of a broadcast in this run."""

    QUEUED = "queued"
    """Recorded in the books, and not announced in this run."""
    ANNOUNCED = "announced"
    """Announced to a peer."""
    REQUESTED = "requested"
    """A peer requested and received it."""
    ACCEPTED = "accepted"
    """A peer has it, or received it and answers no questions."""


@dataclass(slots=True, eq=False)
class PeerRecord:
    """One connection to which a transaction was announced. Times are monotonic seconds."""

    announced: float
    """When it was announced."""
    requested: float | None = None
    """When the peer first requested and received it."""
    answered: float | None = None
    """When it became known that the peer keeps it, rejects it, or answers no questions."""
    is_asked: bool = True
    """True if the peer was asked for it before it requested it, and has not answered."""
    probes: int = 0
    """Number of questions since the peer received it."""
    next_probe: float = inf
    """When to ask again."""
    is_missing: bool = False
    """True if the peer lacked it after it received it."""
    has_round_passed: bool = False
    """True if the peer announced a transaction after that."""


@dataclass(slots=True, eq=False)
class Private:
    """Progress of a private broadcast, which connected peers must not learn of."""

    until: float
    """When the next private connection, or the announcement to all peers, is due (monotonic seconds)."""
    receivers: set[str] = field(default_factory=set)
    """Network groups that the transaction was announced to."""
    echoed: set[str] = field(default_factory=set)
    """Network groups that announced it in this run."""
    is_handed: bool = False
    """True if a peer requested it."""
    was_relayed: bool = False
    """True if the network relayed it in an earlier run or before a reorganization, or a block contained it."""

    @property
    def is_relayed(self) -> bool:
        """True if enough network groups announced it that did not receive it from this client. One could lie."""
        return len(self.echoed - self.receivers) >= PRIVATE_ECHO_GROUPS


@dataclass(slots=True, eq=False)
class OwnTx:
    """An own transaction and the reactions of peers in this run."""

    tx: Transaction
    """The transaction."""
    reported_status: TxStatus
    """Status that was reported last."""
    state: State = State.QUEUED
    """Progress of the broadcast."""
    unstored: int = 0
    """Number of its broadcasts that are not stored yet."""
    calls: list[int] = field(default_factory=list)
    """Numbers of the calls that wait for an answer."""
    waits_until: float = inf
    """When these calls get an answer at the latest (monotonic seconds)."""
    is_judged: bool = False
    """True if it was broadcast in this run. In an earlier run, a peer may have accepted it."""
    announced_at: float | None = None
    """When it was first announced to a connected peer since the latest broadcast (monotonic seconds)."""
    has_other_witness: bool = False
    """True if peers may have it with another witness. Then their rejection proves nothing."""
    input_values: tuple[int, ...] | None = None
    """Values of the inputs in satoshi, if the user gave them."""
    private: Private | None = None
    """None if connected peers may learn of it."""
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
    """Addresses of peers that received it and disconnected before they answered."""

    @property
    def is_open(self) -> bool:
        """True if it was reported as pending or replaced."""
        return self.reported_status in UNCONFIRMED

    @property
    def is_durable(self) -> bool:
        """True if all broadcasts of it are stored. The client announces it only then."""
        return not self.unstored

    @property
    def is_relayed(self) -> bool:
        """True if the network relays it: enough peers have it from other nodes."""
        return bool(self.echoed) if self.private is None else self.private.is_relayed

    @property
    def is_with_others(self) -> bool:
        """True if peers have it from other nodes, also from before this run. Its descendants need not announce it."""
        return bool(self.echoed) or (self.private is not None and self.private.was_relayed)

    def known(self) -> Broadcast:
        """Return the reactions of peers so far."""
        refused = tuple(Refusal(peer, reason) for peer, reason in self.refused.items())
        return Broadcast(self.tx.txid, tuple(self.sent), tuple(self.echoed), refused)
