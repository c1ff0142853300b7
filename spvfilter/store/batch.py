"""The changes of one commit of a wallet's database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.kernel import EntryKind
from spvfilter.store.addresses import KnownAddress
from spvfilter.store.events import StoredEvent
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.keychains import KeychainChange
from spvfilter.store.ledger import StoredMatch, StoredTx
from spvfilter.store.sqlite import number, numbers


@public
class Bip37Parameters(NamedTuple):
    """Parameters that make this wallet's BIP-37 filter the same in every run: the intersection of different filters
    reveals the wallet.
    """

    tweak: int
    elements: int
    """Number of elements to size it for."""
    fp_rate: float
    decoy_key: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The inverse of `encode`."""
        tweak, elements = numbers(raw[:16])
        return cls(tweak, elements, float.fromhex(raw[16:48].rstrip(b"\0").decode("ascii")), raw[48:])

    def encode(self) -> bytes:
        """Tweak and elements (8 bytes LE each), the rate in hexadecimal ASCII padded to 32 bytes, the key."""
        return (
            number(self.tweak)
            + number(self.elements)
            + self.fp_rate.hex().encode("ascii").ljust(32, b"\0")
            + self.decoy_key
        )


@public
class NewEntry(NamedTuple):
    """An entry of the watch list that the database does not have yet, and the id that it gets."""

    id: int
    kind: EntryKind
    value: bytes
    label: str | None


@public
@dataclass(slots=True)
class Batch:
    """Changes of one commit, applied in this order. Empty parts change nothing."""

    fork: int | None = (
        None  # height up to which the stored chain stays; headers, matches and transactions above are deleted
    )
    headers: bytes = b""
    """Of the next blocks, 80 bytes each."""
    matches: list[StoredMatch] = field(default_factory=list)
    """New ones, and confirmed ones that were unconfirmed."""
    withdrawn: list[tuple[bool, bytes, int]] = field(default_factory=list)
    """Identities (spend, txid, n)."""
    transactions: dict[bytes, StoredTx | None] = field(default_factory=dict)
    """By txid; None deletes."""
    cursor: int | None = None
    """Height up to which blocks have been searched."""
    notes: dict[str, bytes | None] = field(default_factory=dict)
    """Named values of the light client; None deletes."""
    bip37_parameters: Bip37Parameters | None = None
    compact_filters: CompactFilterBatch | None = None
    """BIP-158."""
    entries: list[NewEntry] = field(default_factory=list)
    """Of the attached watch list, those that follow."""
    keychains: list[KeychainChange] = field(default_factory=list)
    """Of the attached watch list."""
    labels: dict[int, str | None] = field(default_factory=dict)
    """By number of the entry."""
    removed: Sequence[int] = ()
    """Numbers of entries; the others are numbered anew by the next batch."""
    searched: bytes | None = None
    """Which blocks were searched for which entries: Searched.encode."""
    addresses: dict[str, KnownAddress | None] = field(default_factory=dict)
    """Of peers, by address; None deletes."""
    events: list[StoredEvent] = field(default_factory=list)
    """That tell of these changes, numbered on from the last one."""
    told: int | None = None
    """Height of the highest block that is connected by the events so far."""

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        if (
            self.fork is not None
            or self.cursor is not None
            or self.bip37_parameters is not None
            or self.compact_filters is not None
        ):
            return False
        parts = (
            self.headers,
            self.matches,
            self.withdrawn,
            self.transactions,
            self.notes,
            self.entries,
            self.addresses,
            self.events,
        )
        return not any((*parts, self.keychains, self.labels, self.removed, self.searched))
