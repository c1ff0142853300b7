"""ClientStatus and Metrics: a light client's state at one point in time, in detail and as numbers for monitoring."""

from __future__ import annotations

from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.light.events import Mode
from spvfilter.store.searched import BlockRange, join
from spvfilter.store.views import SearchedEntries
from spvfilter.wire.transport import Transport


@public
@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A connected peer that has completed the handshake."""

    address: str
    """HOST:PORT of the peer."""
    user_agent: str
    """User agent that the peer sent, with control characters escaped."""
    services: int
    """Service bits of the peer's version message; `wire.Service` names them."""
    height: int
    """Height of the highest block in the best chain that the peer is known to have; -1 for none."""
    transport: Transport
    """`V2` if the connection is encrypted (BIP-324), else `V1`."""
    relays: bool
    """True if the peer was asked to announce unconfirmed transactions. False while its slots for that are full."""


@public
@dataclass(frozen=True, slots=True)
class ClientStatus:
    """The state of a `LightClient` at one point in time.

    All heights and ranges of blocks belong to one commit of the database.
    """

    mode: Mode
    """Mode that the user chose."""
    way: Mode | None
    """Mode that the client is now using, `COMPACT` or `BIP37`; None while `AUTO` is waiting for peers."""
    tip_height: int
    """Height of the tip of the best chain."""
    tip_time: int
    """Time in the tip's header (Unix time)."""
    searched_height: int
    """Height up to which blocks have been searched, except for those in `skipped`; -1 for none."""
    is_synced: bool
    """True if every block has been searched and a connected peer confirms that there is none above the tip.

    The peer must have sent a message within `Limits.silence_s`, 30 minutes by default. The age of the tip does not
    matter.
    """
    last_heard: int | None
    """When a connected peer last sent a message (Unix time); None if none has in this run.

    The client pings a peer that has been quiet for 90 seconds.
    """
    peers: tuple[PeerStatus, ...]
    """Connected peers."""
    proven_height: int
    """Height up to which two independent peers agree on the filter headers; -1 for none."""
    disputed: tuple[BlockRange, ...]
    """Ranges of blocks where peers disagree about filters.

    A range stays here if the dispute ended without a decision, or if the other peer left before all its filters had
    been compared.
    """
    start_height: int | None
    """Height at which the wallet's first search began, or a lower start from `rescan`; None before any search."""
    turned_away: int
    """Number of other people's unconfirmed payments that were dropped because of a limit in this run."""
    searched: tuple[SearchedEntries, ...]
    """Blocks that were searched for each group of entries, in the order in which the entries were added."""
    waiting: int = 0
    """Number of unconfirmed transactions that do not count until peers in a second network group announce them.

    `history(waiting=True)` lists them."""
    checks_signatures: bool = False
    """True if the client verifies the signatures of transactions that spend coins of the wallet.

    This needs the `descriptors` extra or the btclib-secp256k1 package."""
    unsent: tuple[bytes, ...] = ()
    """Txids of our pending transactions that no peer has or has requested in this run, except private ones."""
    tasks: tuple[str, ...] = ()
    """The client's tasks and what each is waiting for, for use in a bug report. The wording may change at any time."""
    spent_problem: str | None = None
    """Why `spent_source` or `tweak_source` has not answered; None if it has or is not needed.

    The search for silent payments cannot continue until the source answers."""
    silent_source: str | None = None
    """Name of the source that could hide silent payments; None if the watch list contains no sp() descriptor."""

    @property
    def sees_unconfirmed(self) -> bool:
        """True if a connected peer announces unconfirmed transactions. Otherwise, payments appear only in blocks."""
        return any(peer.relays for peer in self.peers)

    @property
    def skipped(self) -> tuple[BlockRange, ...]:
        """Blocks up to `searched_height` that were not searched for every entry."""
        return join(each for entries in self.searched for each in entries.skipped)


@public
@dataclass(frozen=True, slots=True)
class Metrics:
    """Counters and gauges of a `LightClient` at one point in time. Counters start at 0 each time the client starts."""

    uptime_s: float
    """Gauge: seconds since the client was entered."""
    peers: int
    """Gauge: number of connected peers that have completed the handshake."""
    is_synced: bool
    """Gauge: True if the client is synced, as in `ClientStatus.is_synced`."""
    tip_height: int
    """Gauge: height of the tip of the best chain."""
    tip_time: int
    """Gauge: time in the tip's header (Unix time)."""
    searched_height: int
    """Gauge: height up to which blocks have been searched; -1 for none."""
    last_heard: int | None
    """Gauge: when a connected peer last sent a message (Unix time); None if none has in this run."""
    watched_entries: int
    """Gauge: number of watch list entries, including the scripts in keychain windows."""
    pending_transactions: int
    """Gauge: number of foreign unconfirmed transactions that are kept in memory."""
    pending_bytes: int
    """Gauge: total size of these transactions in bytes."""
    pending_matches: int
    """Gauge: number of matches of these transactions."""
    last_event: int
    """Gauge: number of the last wallet event."""
    connections: int
    """Counter: connections that completed the handshake."""
    bans: int
    """Counter: peers that were banned for a lie."""
    bytes_received: int
    """Counter: bytes received from peers, except on connections that failed in the handshake."""
    bytes_sent: int
    """Counter: bytes sent to peers, except on connections that failed in the handshake."""
    messages_received: int
    """Counter: processed messages from peers. A long inv or addr counts as several."""
    messages_sent: int
    """Counter: messages sent to peers, except for the handshake and pings."""
    headers_received: int
    """Counter: block headers in headers messages."""
    blocks_received: int
    """Counter: blocks in block and merkleblock messages."""
    filters_received: int
    """Counter: compact filters in cfilter messages."""
    transactions_received: int
    """Counter: transactions in tx messages, both confirmed and unconfirmed."""
    transactions_turned_away: int
    """Counter: other people's unconfirmed transactions dropped because of a limit. Some may have returned later."""
    reorganizations: int
    """Counter: reorganizations, in which blocks of the best chain were disconnected."""
    commits: int
    """Counter: database commits, except for bookmarks."""
