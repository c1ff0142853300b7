"""A transaction of ours and what peers did with it, as far as this run knows; BIP-61 rejects."""

from __future__ import annotations

from math import inf

from spvfilter._dataclass import dataclass, field
from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Broadcast, Refusal
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.fields import printable
from spvfilter.wire.messages.table import Reject

_KNOWN = (b"txn-already-in-mempool", b"txn-already-known")  # reasons of a reject that are none


@dataclass(slots=True, eq=False)
class Offer:
    """A transaction that one peer was offered, in one connection."""

    at: float
    is_asked: bool = True  # by us, with the offer: whether the peer has it already
    is_awaited: bool = False  # it was asked for, and is sent once it is in the database
    fetched_at: float | None = None
    probes: int = 0  # times it was asked for it since
    next_probe: float = inf
    is_answered: bool = False  # the last of these
    is_settled: bool = False  # it keeps it, refuses it, or does not tell


@dataclass(slots=True, eq=False)
class OwnTx:
    """A transaction of ours, and what is known of it in this run."""

    tx: Transaction
    began: float | None = None  # when it was broadcast in this run
    input_values: tuple[int, ...] | None = None  # satoshi, where the user states them
    is_recorded: bool = False  # in the books
    is_called: bool = False  # somebody waits to hear what becomes of it
    is_taken: bool = False  # a peer has it, or has fetched it and does not tell more
    free_at: float = 0.0  # before which only one peer may have it
    is_private: bool = False  # given to strangers, until nothing was heard of it for a while
    status: TxStatus = TxStatus.PENDING  # that was told last
    due: dict[Peer, float] = field(default_factory=dict)  # when each peer is offered it next
    offers: dict[Peer, Offer] = field(default_factory=dict)
    sent: dict[str, None] = field(default_factory=dict)  # addresses of peers
    echoed: dict[str, None] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # with reasons
    left: dict[str, None] = field(default_factory=dict)  # that ended the connection once they had it

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
