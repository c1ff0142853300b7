"""The changes of one commit of a wallet's database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.errors import StoreCorruptError
from spvfilter.kernel import EntryKind
from spvfilter.protocol import MAX_FILTER_SIZE
from spvfilter.store.addresses import KnownAddress
from spvfilter.store.events import StoredEvent
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.keychains import KeychainChange, NewKeychain, SilentKeys
from spvfilter.store.ledger import StoredMatch, StoredTx
from spvfilter.store.sqlite import number, numbers
from spvfilter.watch.labels import Label


@public
class Bip37Parameters(NamedTuple):
    """Parameters that keep a wallet's BIP-37 filter the same in every run.

    Two different filters would reveal the wallet, because only its own elements match both.
    """

    tweak: int
    """Tweak of the filter, 32 bits."""
    elements: int
    """Number of elements that the filter is sized for."""
    fp_rate: float
    """False-positive rate for each element, 0 < p < 1."""
    decoy_key: bytes
    """Secret from which the filter's decoys are derived."""

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse the result of `encode`. Raises StoreCorruptError for anything else."""
        try:
            tweak, elements = numbers(raw[:16])
            made = cls(tweak, elements, float.fromhex(raw[16:48].rstrip(b"\0").decode("ascii")), raw[48:])
        except (ValueError, OverflowError) as error:
            raise StoreCorruptError(f"the BIP-37 filter's parameters cannot be read: {error}") from error
        tweak_ok, rate_ok = 0 <= tweak < 1 << 32, 0 < made.fp_rate < 1
        # beyond the limit on elements, every element matches
        if not (tweak_ok and rate_ok and 1 <= elements <= 8 * MAX_FILTER_SIZE):
            raise StoreCorruptError(f"the BIP-37 filter's parameters are out of range: {made[:3]}")
        return made

    def encode(self) -> bytes:
        """Return the tweak and number of elements (8 bytes LE each), the rate (32-byte ASCII hex float) and the key."""
        return (
            number(self.tweak)
            + number(self.elements)
            + self.fp_rate.hex().encode("ascii").ljust(32, b"\0")
            + self.decoy_key
        )


@public
class NewEntry(NamedTuple):
    """A watch list entry that is new to the database."""

    id: int
    """Id of its row in the database."""
    kind: EntryKind
    """Kind of entry."""
    value: bytes
    """Script, outpoint or data element."""
    label: str | None
    """Label of the entry."""
    account: str | None = None
    """Account of the entry, which is added if it is new. None for no account."""


@public
class AccountChange(NamedTuple):
    """A change to an account in one commit."""

    name: str
    """Name of the account before the change. An account with a new name is added."""
    renamed: str | None = None
    """New name, or None to keep the old one."""
    keychains: Sequence[NewKeychain] = ()
    """New keychains of the account."""
    adopted: Sequence[str] = ()
    """Names of stored keychains that belong to the account from now on."""
    claimed: Sequence[int] = ()
    """Numbers of entries that belong to the account from now on."""
    is_removed: bool = False
    """True to remove the account. Its entries must then be in `Batch.removed`."""
    left: Sequence[tuple[int, str | None]] = ()
    """Numbers of entries that stay when the account is removed, each with its new account."""


@public
@dataclass(slots=True)
class Batch:
    """Changes of one commit, applied in the order of the fields. A field that has its default value changes nothing."""

    fork: int | None = None
    """Height of the last block to keep. Headers, matches and transactions above it are deleted."""
    headers: bytes = b""
    """Headers of the next blocks, 80 bytes each."""
    matches: list[StoredMatch] = field(default_factory=list)
    """New matches, and unconfirmed matches that are now confirmed."""
    withdrawn: list[tuple[bool, bytes, int]] = field(default_factory=list)
    """Matches to delete, each given as (spend, txid, n)."""
    transactions: dict[bytes, StoredTx | None] = field(default_factory=dict)
    """Transactions, keyed by txid. None deletes one."""
    branches: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    """Block hash and merkle branch of confirmed transactions, keyed by txid."""
    cursor: int | None = None
    """Height up to which blocks have been searched."""
    notes: dict[str, bytes | None] = field(default_factory=dict)
    """Named values of the light client. None deletes one."""
    bip37_parameters: Bip37Parameters | None = None
    """Parameters of the wallet's BIP-37 filter."""
    compact_filters: CompactFilterBatch | None = None
    """Changes to the compact filters (BIP-158)."""
    entries: list[NewEntry] = field(default_factory=list)
    """Entries that follow the last entry of the attached watch list."""
    accounts: list[AccountChange] = field(default_factory=list)
    """Changes to accounts."""
    keychains: list[KeychainChange] = field(default_factory=list)
    """Changes to keychains of the attached watch list."""
    labels: dict[int, str | None] = field(default_factory=dict)
    """New labels, keyed by the number of the entry. None removes a label."""
    sp_keys: list[tuple[str, SilentKeys]] = field(default_factory=list)
    """Secrets and labels of sp() keychains, each with the keychain's name. The keychains are in the database, or
    `accounts` adds them.
    """
    sp_outputs: dict[int, tuple[int | None, bytes]] = field(default_factory=dict)
    """Label and tweak of each silent payment found, keyed by the row id of its script."""
    keychain_labels: dict[str, str | None] = field(default_factory=dict)
    """New labels of keychains, keyed by name. None removes a label. The labels of their entries are in `labels`."""
    bip329: Sequence[Label] = ()
    """BIP-329 labels to write. `Store.commit` merges them with the watch list."""
    frozen: dict[bytes, bool] = field(default_factory=dict)
    """Outpoints (36 bytes) of coins. True freezes a coin, and False unfreezes it."""
    removed: Sequence[int] = ()
    """Numbers of entries to remove. The next batch uses the remaining entries' new numbers."""
    searched: bytes | None = None
    """Blocks that have been searched for each entry, as returned by `Searched.encode`."""
    addresses: dict[str, KnownAddress | None] = field(default_factory=dict)
    """Addresses of nodes, keyed by address with port. None deletes one."""
    events: list[StoredEvent] = field(default_factory=list)
    """Events that report these changes, numbered after the last event."""
    told: int | None = None
    """Height of the highest block that any event so far has reported as connected."""

    @property
    def is_empty(self) -> bool:
        """True if the batch changes nothing."""
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
            self.branches,
            self.notes,
            self.entries,
            self.addresses,
            self.events,
        )
        changes = (self.accounts, self.keychains, self.labels, self.bip329, self.frozen, self.removed, self.searched)
        silent = (self.sp_keys, self.sp_outputs)
        return not any((*parts, *changes, *silent, self.keychain_labels))
