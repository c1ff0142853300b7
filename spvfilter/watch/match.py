"""Match, an output or input that concerns the wallet, and Completeness, how certain it is that no match is missing."""

from __future__ import annotations

from enum import StrEnum
from itertools import zip_longest

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.primitives import OutPoint, hash_to_hex


@public
class Completeness(StrEnum):
    """How certain it is that no match is missing from a range of blocks."""

    UNPROVEN = "unproven"
    """From a BIP-37 peer, which can omit transactions unnoticed."""
    ONE_PEER = "1 peer"
    """By compact filters whose filter headers come from a single peer."""
    PROVEN = "proven"
    """By compact filters on whose filter headers two peers of different network groups agree."""


@public
class MatchKind(StrEnum):
    """`OUTPUT`: the transaction pays the wallet. `INPUT`: it spends from it."""

    OUTPUT = "output"
    INPUT = "input"


@public
@dataclass(frozen=True, slots=True)
class Match:
    """One output or input that concerns the wallet; its identity is (kind, txid, index).

    Matches are equal if all but completeness and fee is: these tell how the block was searched, which may be learned
    later.
    """

    kind: MatchKind
    txid: bytes
    """32 bytes, wire order."""
    index: int
    """Of the output or the input within its transaction."""
    outpoint: OutPoint
    """The output itself, or the spent output."""
    value: int | None
    """Satoshi; None for the spend of an output that was never seen."""
    script_pubkey: bytes | None
    """Of the output; None if it was never seen."""
    address: str | None
    """Of the scriptPubKey, if it has one."""
    label: str | None
    block_hash: bytes | None
    """None for an unconfirmed transaction."""
    height: int | None
    time: int | None = (
        None  # of the block, seconds since 1970; None without a block, or where its header is not at hand
    )
    is_coinbase: bool = False
    completeness: Completeness | None = field(default=None, compare=False)
    """Of its block; None without one, or if the caller gave it."""
    keychain: str | None = None
    """The name of the keychain whose script it is."""
    keychain_index: int | None = None
    """The index of the script there."""
    fee: int | None = field(default=None, compare=False)
    """Satoshi, of the transaction; known if the block was scanned with its undo record."""

    def __setstate__(self, state: list[object]) -> None:
        """From a pickle, of a version without the last fields, too."""
        for name, value in zip_longest(_FIELDS, state, fillvalue=None):
            object.__setattr__(self, str(name), value if name != "is_coinbase" else bool(value))

    def __repr__(self) -> str:
        return (
            f"<Match {self.kind} {hash_to_hex(self.txid)}:{self.index} value={self.value} "
            f"address={self.address} label={self.label!r} height={self.height}>"
        )


_FIELDS = Match.__match_args__
