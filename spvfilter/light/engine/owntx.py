"""A transaction of ours and what peers did with it, as far as this run knows; BIP-61 rejects."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Broadcast, Refusal
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.fields import printable
from spvfilter.wire.messages.table import Reject

PRIVATE_WORDS = 2  # groups that have announced a private transaction, with which it is offered to nobody else; ours
_KNOWN = (b"txn-already-in-mempool", b"txn-already-known")  # reasons of a reject that are none


class Taken(Enum):
    """Whether a peer has a transaction."""

    NOT = "not"
    """As far as is known."""
    BEFORE = "before"
    """With another witness, or in an earlier run: who has that takes no other."""
    YES = "yes"
    """Or it has fetched it and does not tell more."""


@dataclass(slots=True, eq=False)
class Offer:
    """A transaction that one peer was offered, in one connection."""

    at: float
    is_asked: bool = True
    """By us, with the offer: whether the peer has it already."""
    is_awaited: bool = False
    """It was asked for, and is sent once it is in the database."""
    fetched_at: float | None = None
    probes: int = 0
    """Times it was asked for it since."""
    next_probe: float = inf
    is_answered: bool = False
    """The last of these."""
    is_settled: bool = False
    """It keeps it, refuses it, or does not tell."""


@dataclass(slots=True, eq=False)
class Private:
    """Who has a private transaction, by groups of addresses, of which one is dialled at a time."""

    strangers: set[str] = field(default_factory=set)
    """That were given it."""
    echoed: set[str] = field(default_factory=set)
    """That have announced it in this run."""
    was_on_its_way: bool = False
    """In an earlier run, or before a reorganisation."""


@dataclass(slots=True, eq=False)
class OwnTx:
    """A transaction of ours, and what is known of it in this run."""

    tx: Transaction
    began: float | None = None
    """When it was broadcast in this run."""
    input_values: tuple[int, ...] | None = None
    """Satoshi, where the user states them."""
    is_recorded: bool = False
    """In the books."""
    is_called: bool = False
    """Somebody waits to hear what becomes of it."""
    taken: Taken = Taken.NOT
    free_at: float = 0.0
    """Before which only one peer may have it."""
    private: Private | None = None
    """None if others than strangers may have it."""
    status: TxStatus = TxStatus.PENDING
    """That was told last."""
    due: dict[Peer, float] = field(default_factory=dict)
    """When each peer is offered it next."""
    offers: dict[Peer, Offer] = field(default_factory=dict)
    sent: dict[str, None] = field(default_factory=dict)
    """Addresses of peers."""
    echoed: dict[str, None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """With reasons."""
    left: dict[str, None] = field(default_factory=dict)
    """That ended the connection once they had it."""

    @property
    def is_taken(self) -> bool:
        """Whether a peer has it, with this witness as far as is known."""
        return self.taken is Taken.YES

    @property
    def is_on_its_way(self) -> bool:
        """Whether enough others have announced it: of a private one, two groups beside those that were given it.

        One could lie.
        """
        return (
            bool(self.echoed)
            if self.private is None
            else len(self.private.echoed - self.private.strangers) >= PRIVATE_WORDS
        )

    @property
    def is_with_others(self) -> bool:
        """Whether others have announced it; of a private one also before: it is not told for what spends from it."""
        return bool(self.echoed) or (self.private is not None and self.private.was_on_its_way)

    def known(self) -> Broadcast:
        """What is known of it."""
        refused = tuple(Refusal(peer, reason) for peer, reason in self.refused.items())
        return Broadcast(self.tx.txid, tuple(self.sent), tuple(self.echoed), refused)


def is_refusal(message: Reject) -> bool:
    """Whether a reject says that a transaction is not taken, not that it is there already."""
    return message.message == b"tx" and message.reason not in _KNOWN


def reason_of(message: Reject) -> str:
    """The reason of a reject, safe to be shown."""
    return f"{printable(message.reason) or 'no reason'} (0x{message.code:02x})"
