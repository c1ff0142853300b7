"""Match: an output or input of the wallet. Completeness: how certain it is that no match is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest

from spvfilter._public import public
from spvfilter.primitives import OutPoint, hash_to_hex


@public
class Completeness(StrEnum):
    """How certain it is that no match is missing from a range of blocks."""

    UNPROVEN = "unproven"
    """A BIP-37 peer searched the blocks. It could have omitted transactions without the client noticing."""
    ONE_PEER = "1 peer"
    """The blocks were searched by compact filters, and only one peer confirmed the filter headers."""
    PROVEN = "proven"
    """The blocks were searched by compact filters, and peers in two network groups confirmed the filter headers."""


@public
class MatchKind(StrEnum):
    """The kind of a match: a payment to the wallet, or a spend of an output of the wallet."""

    OUTPUT = "output"
    """An output pays the wallet."""
    INPUT = "input"
    """An input spends an output of the wallet."""


@public
@dataclass(frozen=True, slots=True)
class Match:
    """One output that pays the wallet, or one input that spends an output of the wallet.

    (kind, txid, index) identifies a match. Comparing two matches ignores `completeness` and `fee`, which depend on how
    the block was searched.
    """

    kind: MatchKind
    """Kind of the match: a payment to the wallet, or a spend of an output of the wallet."""
    txid: bytes
    """Id of the transaction that contains the output or the input, 32 bytes in wire order."""
    index: int
    """Index of the output or the input in its transaction, from 0."""
    outpoint: OutPoint
    """Outpoint of the output that pays the wallet, or of the output that the input spends."""
    value: int | None
    """Value of the output that pays the wallet or is spent, in satoshi, or None if a spent output was never seen."""
    script_pubkey: bytes | None
    """Script of the output that pays the wallet or is spent, or None if a spent output was never seen."""
    address: str | None
    """Address of the output that pays the wallet or is spent, or None if its script is unknown or has no address."""
    label: str | None
    """Label of the watch list's entry that matched, or else of its keychain, or None if both have none."""
    block_hash: bytes | None
    """Hash of the block that contains the transaction, 32 bytes in wire order, or None if it is unconfirmed."""
    height: int | None
    """Height of the block that contains the transaction, or None if it is unconfirmed or the height is unknown."""
    time: int | None = None
    """Time in the block's header (Unix time), or None if there is no block or the header is unknown."""
    is_coinbase: bool = False
    """True if the transaction that contains the output or the input is a coinbase."""
    completeness: Completeness | None = field(default=None, compare=False)
    """How certain it is that the search of the block missed no match.

    None if there is no block, or if the program itself supplied the block."""
    keychain: str | None = None
    """Name of the keychain that derives the output's script, or None if no keychain derives it."""
    keychain_index: int | None = None
    """Index of the output's script in its keychain, from 0, or None if no keychain derives the script."""
    fee: int | None = field(default=None, compare=False)
    """Fee of the transaction in satoshi, or None unless the block was scanned with its undo record."""
    account: str | None = None
    """Name of the account that the match belongs to, or None if it belongs to no account."""
    sp_label: int | None = None
    """Number of the label of the silent payment address that was paid; 0 for the wallet's change.

    None if the address has no label, or if the match is not a silent payment.
    """

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def block_hash_hex(self) -> str | None:
        """The field `block_hash` in hex, as block explorers show it, or None if there is none."""
        return None if self.block_hash is None else hash_to_hex(self.block_hash)

    def __setstate__(self, state: list[object]) -> None:
        """Set the fields from a pickle. Fields missing from an older version's pickle become None or False."""
        for name, value in zip_longest(_FIELDS, state, fillvalue=None):
            object.__setattr__(self, str(name), value if name != "is_coinbase" else bool(value))

    def __repr__(self) -> str:
        return (
            f"<Match {self.kind} {hash_to_hex(self.txid)}:{self.index} value={self.value} "
            f"address={self.address} label={self.label!r} height={self.height}>"
        )


_FIELDS = Match.__match_args__
