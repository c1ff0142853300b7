"""Events and values that a light client reports: changes to the wallet, progress, peers, broadcasts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.p2p.address import cause_of
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.wallet.events import WalletEvent
from spvfilter.wire.transport import Transport


@public
class Mode(StrEnum):
    """How a client searches blocks."""

    BIP37 = "bip37"
    """BIP-37: peers filter the blocks. A peer sees a Bloom filter of the wallet and can omit a payment."""
    COMPACT = "compact"
    """Compact filters (BIP-157, BIP-158): the client filters. A peer sees only which blocks the client fetches."""
    AUTO = "auto"
    """COMPACT if a peer serves compact filters and they can find every entry of the watch list, otherwise BIP37."""


@public
class Phase(StrEnum):
    """Kind of data that the client is downloading."""

    HEADERS = "headers"
    """Block headers, 80 bytes each."""
    FILTER_HEADERS = "filter headers"
    """Headers of compact filters (BIP-157), which show whether peers agree about the filters."""
    FILTERS = "filters"
    """Compact filters, and the blocks that match them."""
    BLOCKS = "blocks"
    """Blocks that peers filter by BIP-37."""


@public
@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the client's current phase. `total` may grow; at the end of the phase, `done` equals `total`."""

    phase: Phase
    """The phase."""
    done: int
    """Number of headers or blocks processed so far."""
    total: int
    """Number of headers or blocks to process, as far as known."""


@public
@dataclass(frozen=True, slots=True)
class Synced:
    """The client has searched every block up to the tip of the best chain.

    The event is emitted once for each tip. It is emitted again for the same tip in three cases:

    - Blocks were searched again, for new entries or by `LightClient.rescan`.
    - `disputed` has grown since the last event. The pauses before such events double, from two seconds to five minutes.
    - All peers had left or gone silent, and a peer has confirmed the tip again.

    When a dispute ends, `disputed` shrinks with the event of the next tip. `LightClient.status` shows it immediately.
    """

    height: int
    """Height of the tip."""
    hash: bytes
    """Block hash of the tip, 32 bytes in wire order."""
    peers: tuple[str, ...] = ()
    """Peers that the result relies on, as HOST:PORT."""
    proven_height: int = -1
    """Height up to which two independent peers agree on the filter headers; -1 for none, and always with BIP-37."""
    disputed: tuple[tuple[int, int], ...] = ()
    """Ranges of heights (first, last) where peers disagree about filters.

    A range stays here if the dispute ended without a decision, or if the other peer left before all its filters had
    been compared.
    """
    skipped: tuple[tuple[int, int], ...] = ()
    """Ranges of heights (first, last) that were not searched for every entry, because the search began above them.

    `LightClient.rescan` searches them.
    """
    sees_unconfirmed: bool = True
    """True if a peer announces unconfirmed transactions.

    Otherwise, payments appear only once they are in a block, because `mempool` is False or the peers' slots are full.
    """

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


@public
@dataclass(frozen=True, slots=True)
class PeerChanged:
    """The client now downloads blocks from another peer, or from none."""

    address: str | None
    """HOST:PORT of the peer; None while there is no peer."""
    user_agent: str = ""
    """User agent that the peer sent, with control characters escaped."""
    transport: Transport | None = None
    """`V2` if the connection is encrypted (BIP-324), else `V1`; None while there is no peer."""


@public
@dataclass(frozen=True, slots=True)
class PeerWarning:
    """A peer failed or broke a rule, or the peers revealed a problem, such as this machine's clock being wrong."""

    address: str
    """HOST:PORT of the peer, or the name of `spent_source` or `tweak_source`."""
    error: Exception
    """The problem. The `cause` of a `LieError` is the kind of lie."""
    banned: bool
    """True if the peer's own messages or a block prove a lie. The client then avoids its address for a day."""

    @property
    def cause(self) -> str:
        """The problem in words, without the peer's address."""
        return cause_of(self.error, self.address)


@public
@dataclass(frozen=True, slots=True)
class FeeFloor:
    """The lowest fee rate that peers relay: the median of the rates that they announce (BIP-133)."""

    rate: int
    """Fee rate in satoshi per 1,000 virtual bytes."""
    peers: int
    """Number of peers in the median, at most one from each network group."""


@public
@dataclass(frozen=True, slots=True)
class BlockFeeRate:
    """The average fee rate of a block: (outputs of the coinbase - subsidy) / virtual size of its other transactions."""

    height: int
    """Height of the block."""
    block_hash: bytes
    """Block hash, 32 bytes in wire order."""
    rate: int
    """Average fee rate in satoshi per 1,000 virtual bytes, rounded down."""
    virtual_size: int
    """Total virtual size of all transactions except the coinbase, in virtual bytes; about 1,000,000 in a full block."""

    @property
    def block_hash_hex(self) -> str:
        """The field `block_hash` in hex, as block explorers show it."""
        return hash_to_hex(self.block_hash)


@public
@dataclass(frozen=True, slots=True)
class FeeRates:
    """Fee rates that the client has seen for itself. They are facts about the past, not estimates."""

    block_averages: tuple[BlockFeeRate, ...]
    """Averages of those of the latest 144 blocks that the client fetched whole in this run, by ascending height.

    Blocks with only a coinbase are left out.
    """
    largest_fee_filter: int | None
    """Largest rate below which a connected peer refuses transactions (BIP-133), in satoshi per 1,000 virtual bytes.

    None if no peer has announced one. Peers in their initial download do not count.
    """
    fee_filters: int
    """Number of connected peers that have announced a rate."""


@public
@dataclass(frozen=True, slots=True)
class FeeWarning:
    """A broadcast transaction pays less than the fee floor, so at least half of the peers will not relay it."""

    txid: bytes
    """Txid of the transaction, 32 bytes in wire order."""
    rate: int
    """Fee rate of the transaction in satoshi per 1,000 virtual bytes, rounded down."""
    floor: FeeFloor
    """The fee floor at that moment."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)


@public
@dataclass(frozen=True, slots=True)
class PendingWarning:
    """An unconfirmed payment from somebody else was dropped because of a limit. A block can still contain it.

    The event is emitted once per run. `ClientStatus.turned_away` counts the payments.
    """

    transactions: int
    """Number of foreign unconfirmed transactions that the client now keeps."""
    matches: int
    """Number of their matches; see `max_pending_matches` of `LightClient`."""
    size: int
    """Total size of these transactions in bytes; see `max_pending_bytes` of `LightClient`."""


@public
class BroadcastStep(StrEnum):
    """How a peer reacted to a broadcast transaction."""

    SENT = "sent"
    """The peer requested the transaction and received it. The peer may still reject it."""
    ECHOED = "echoed"
    """The peer has the transaction from another node. If the peer is honest, the network is relaying it."""
    REFUSED = "refused"
    """The peer still lacked the transaction up to 40 seconds after receiving it. A reject message may say why."""


@public
@dataclass(frozen=True, slots=True)
class BroadcastProgress:
    """A peer reacted to a broadcast transaction.

    Each peer and step is reported once per run. After a reorganization, the client announces the transaction again, and
    `ECHOED` may be repeated.
    """

    txid: bytes
    """Txid of the transaction, 32 bytes in wire order."""
    peer: str
    """HOST:PORT of the peer."""
    step: BroadcastStep
    """The peer's reaction."""
    reason: str = ""
    """The peer's reason if it refused the transaction, with control characters escaped."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)


@public
@dataclass(frozen=True, slots=True)
class BroadcastChanged:
    """The status of a broadcast transaction has changed.

    A new broadcast becomes `PENDING` without an event. After a reorganization, any status may change.
    """

    txid: bytes
    """Txid of the transaction, 32 bytes in wire order."""
    status: TxStatus
    """The new status."""
    by: bytes | None = None
    """Txid of the transaction that replaced it or conflicts with it, 32 bytes in wire order."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def by_hex(self) -> str | None:
        """The field `by` in hex, as block explorers show it; None if there is none."""
        return None if self.by is None else hash_to_hex(self.by)


@public
class Refusal(NamedTuple):
    """A peer that refused a transaction, and its reason."""

    peer: str
    """HOST:PORT of the peer."""
    reason: str
    """The peer's reason, with control characters escaped."""


@public
@dataclass(frozen=True, slots=True)
class Broadcast:
    """State of a broadcast transaction: how each peer in this run has reacted so far.

    Later changes arrive as `BroadcastProgress` events.
    """

    txid: bytes
    """Txid of the transaction, 32 bytes in wire order."""
    sent: tuple[str, ...] = ()
    """Peers that requested and received the transaction, as HOST:PORT."""
    echoed: tuple[str, ...] = ()
    """Peers that have the transaction from another node, as HOST:PORT."""
    refused: tuple[Refusal, ...] = ()
    """Peers that refused the transaction. A single refusal proves nothing."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)


Event = (
    WalletEvent
    | Progress
    | Synced
    | PeerChanged
    | PeerWarning
    | FeeWarning
    | PendingWarning
    | BroadcastProgress
    | BroadcastChanged
)
"""Everything that `LightClient.events` yields: numbered wallet events, and unnumbered events of this run."""
