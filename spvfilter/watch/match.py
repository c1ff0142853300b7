"""Match: one output or input that concerns the wallet, and how sure it is that nothing was left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spvfilter._public import public
from spvfilter.primitives import OutPoint, hash_to_hex


@public
class Completeness(StrEnum):
    """How sure it is that no match was left out of a range of blocks."""

    UNPROVEN = "unproven"  # a BIP-37 peer can leave transactions out, and nobody can tell
    ONE_PEER = "1 peer"  # compact filters whose headers one peer alone gave
    PROVEN = "proven"  # compact filters on whose headers two peers or more agree


@public
class MatchKind(StrEnum):
    """`OUTPUT`: the transaction pays the wallet. `INPUT`: it spends from it."""

    OUTPUT = "output"
    INPUT = "input"


@public
@dataclass(frozen=True, slots=True)
class Match:
    """One output or input that concerns the wallet; its identity is (kind, txid, index)."""

    kind: MatchKind
    txid: bytes  # 32 bytes, wire order
    index: int  # of the output or the input within its transaction
    outpoint: OutPoint  # the output itself, or the one spent
    value: int | None  # satoshi; None for the spend of an output never seen
    script_pubkey: bytes | None  # of that output; None where it was never seen
    address: str | None  # of that script, where it has one
    label: str | None
    block_hash: bytes | None  # None for a transaction outside a block
    height: int | None

    def __repr__(self) -> str:
        return (
            f"<Match {self.kind} {hash_to_hex(self.txid)}:{self.index} value={self.value} "
            f"address={self.address} label={self.label!r} height={self.height}>"
        )
