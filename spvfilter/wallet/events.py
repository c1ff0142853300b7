"""A wallet's events: runs started, matches found, confirmed or withdrawn, and blocks connected or disconnected."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from spvfilter._public import public
from spvfilter.primitives import hash_to_hex
from spvfilter.watch.match import Completeness, Match


@public
class Reason(StrEnum):
    """Why a match was withdrawn."""

    REORG = "reorg"
    """The block of a coinbase, or of an ancestor of the transaction, left the best chain.

    A block may confirm it again."""
    CONFLICT = "conflict"
    """A confirmed transaction conflicts with the transaction or one of its ancestors."""
    REPLACED = "replaced"
    """Another unconfirmed transaction replaced the transaction or one of its ancestors.

    A block may still confirm the transaction.
    """

    ABANDONED = "abandoned"
    """The user abandoned the transaction or one of its ancestors."""
    REMOVED = "removed"
    """The match's entry is no longer watched."""
    EXPIRED = "expired"
    """The transaction remained unconfirmed for 336 hours (Core's DEFAULT_MEMPOOL_EXPIRY_HOURS)."""
    SIZELIMIT = "sizelimit"
    """One network group announced too many unconfirmed transactions, and this was one of the latest.

    A block may still confirm the transaction.
    """
    REFUSED = "refused"
    """The wallet broadcast the transaction or an ancestor, and every peer that received it refused it."""


@public
@dataclass(frozen=True, slots=True)
class MatchFound:
    """A new match, in a block of the best chain or unconfirmed."""

    match: Match
    """The match. Its `height` is None if it is unconfirmed."""
    completeness: Completeness = Completeness.UNPROVEN
    """How certain it is that no match in the block is missing."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""


@public
@dataclass(frozen=True, slots=True)
class MatchConfirmed:
    """A block of the best chain now contains a match that was unconfirmed.

    The database may have dropped its `MatchFound`, so a reader that does not have the match should add it.
    """

    match: Match
    """The match, with the block that contains it."""
    completeness: Completeness = Completeness.UNPROVEN
    """How certain it is that no match in the block is missing."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""


@public
@dataclass(frozen=True, slots=True)
class MatchWithdrawn:
    """A reported match no longer counts toward the balance.

    The database may have dropped its `MatchFound`, so a reader that does not have the match should ignore the event.
    """

    match: Match
    """The match as it was before the withdrawal."""
    reason: Reason
    """Why the match was withdrawn."""
    by: bytes | None = None
    """Txid of the transaction that replaces the match's transaction or conflicts with it, 32 bytes in wire order.

    None if the reason is neither a replacement nor a conflict.
    """
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""

    @property
    def by_hex(self) -> str | None:
        """The field `by` in hex, as block explorers show it; None if there is none."""
        return None if self.by is None else hash_to_hex(self.by)


@public
@dataclass(frozen=True, slots=True)
class MatchUnconfirmed:
    """The block that contains a match left the best chain. The match now counts as unconfirmed."""

    match: Match
    """The match. Its `height` and `block_hash` are still those of the block that left the best chain."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""


@public
@dataclass(frozen=True, slots=True)
class TxReplaced:
    """An unconfirmed transaction was replaced. Events that withdraw its matches and report new ones follow.

    If somebody else's transaction double-spends one of the wallet's own, the wallet's transaction is reported as
    replaced.
    """

    txid: bytes
    """Txid of the replaced transaction, 32 bytes in wire order."""
    by: bytes
    """Txid of the transaction that counts in its place, 32 bytes in wire order."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def by_hex(self) -> str:
        """The field `by` in hex, as block explorers show it."""
        return hash_to_hex(self.by)


@public
@dataclass(frozen=True, slots=True)
class BlockConnected:
    """The client has searched the blocks of the best chain up to this one. The events for its matches follow.

    At the tip there is one event for each block. While the client catches up, there is one event for each block with
    matches and one for the last block. Each event then covers all blocks since the previous one.
    """

    height: int
    """Height of the block."""
    hash: bytes
    """Block hash, 32 bytes in wire order."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


@public
@dataclass(frozen=True, slots=True)
class BlockDisconnected:
    """A searched block left the best chain. The events just before this one withdrew its matches."""

    height: int
    """Height of the block."""
    hash: bytes
    """Block hash, 32 bytes in wire order."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


@public
@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run of the client started. It is the first event of the run.

    Numbers may be skipped before this event, whose own number is at least the Unix time in microseconds. A restored
    copy of the database therefore does not reuse numbers, unless the clock was also set back, which the id reveals.
    """

    id: bytes
    """Random id of the run, 16 bytes."""
    sequence: int = field(default=0, compare=False)
    """Number of the event in the database, from 1; 0 for an event that is not from a database."""


WalletEvent = (
    MatchFound
    | MatchConfirmed
    | MatchUnconfirmed
    | MatchWithdrawn
    | TxReplaced
    | BlockConnected
    | BlockDisconnected
    | RunStarted
)
"""The numbered events, which are stored in the wallet's database."""
