"""Match, an output or input of the wallet, and Completeness, the certainty that no match is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest

from spvfilter._public import public
from spvfilter.primitives import OutPoint, hash_to_hex


@public
class Completeness(StrEnum):
    """The certainty that no match is missing from a range of blocks."""

    UNPROVEN = "unproven"
    """A BIP-37 peer searched the blocks. It can omit transactions, and the client cannot notice that."""
    ONE_PEER = "1 peer"
    """Compact filters were used, and only one peer confirmed their filter headers."""
    PROVEN = "proven"
    """Compact filters were used, and two peers of different network groups confirmed their filter headers."""


@public
class MatchKind(StrEnum):
    """The direction of a match."""

    OUTPUT = "output"
    """An output pays the wallet."""
    INPUT = "input"
    """An input spends an output of the wallet."""


@public
@dataclass(frozen=True, slots=True)
class Match:
    """One output or input that concerns the wallet. Its identity is (kind, txid, index).

    The comparison of two matches ignores `completeness` and `fee`: they depend on how the block was searched.
    """

    kind: MatchKind
    """Payment to the wallet, or spend of one of its outputs."""
    txid: bytes
    """Transaction id, 32 bytes in wire order."""
    index: int
    """Index of the output or the input in its transaction, from 0."""
    outpoint: OutPoint
    """Outpoint of the output that pays the wallet or that is spent."""
    value: int | None
    """Value of the output in satoshi. None for a spend whose output was never seen."""
    script_pubkey: bytes | None
    """Script of the output. None for a spend whose output was never seen."""
    address: str | None
    """Address of the script. None if the script is unknown or has no address."""
    label: str | None
    """Label of the entry that matched, or of its keychain. None if there is no label."""
    block_hash: bytes | None
    """Hash of the block, 32 bytes in wire order. None for an unconfirmed transaction."""
    height: int | None
    """Height of the block. None for an unconfirmed transaction, or if the height is unknown."""
    time: int | None = None
    """Time in the block's header, in seconds since 1970. None without a block or without its header."""
    is_coinbase: bool = False
    """True if the transaction is a coinbase."""
    completeness: Completeness | None = field(default=None, compare=False)
    """Completeness of the search of the block. None without a block, or if the caller supplied the block."""
    keychain: str | None = None
    """Name of the keychain that has the script. None if no keychain has it."""
    keychain_index: int | None = None
    """Index of the script in the keychain, from 0. None if no keychain has it."""
    fee: int | None = field(default=None, compare=False)
    """Fee of the transaction in satoshi. None unless the block was scanned with its undo record."""

    def __setstate__(self, state: list[object]) -> None:
        """Restore a pickle. Pickles of older versions lack the last fields."""
        for name, value in zip_longest(_FIELDS, state, fillvalue=None):
            object.__setattr__(self, str(name), value if name != "is_coinbase" else bool(value))

    def __repr__(self) -> str:
        return (
            f"<Match {self.kind} {hash_to_hex(self.txid)}:{self.index} value={self.value} "
            f"address={self.address} label={self.label!r} height={self.height}>"
        )


_FIELDS = Match.__match_args__
