"""Transaction: one serialised transaction, parsed once, with its ids and parts."""

from __future__ import annotations

from typing import Self

from spvfilter._dataclass import dataclass, field
from spvfilter.kernel import TxSpan, parse_tx, strip_witness, txid, wtxid
from spvfilter.primitives import TxOut, hash_to_hex
from spvfilter.protocol import OUTPOINT_SIZE

__all__ = ["NULL_OUTPOINT", "Transaction"]

NULL_OUTPOINT = bytes(32) + b"\xff" * 4  # of a coinbase's input


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in its serialised form, with or without witness (BIP-144). Two are equal if their bytes are.

    `span` holds the offsets of its parts in `raw`. Properties compute or slice their value on each access.
    """

    raw: bytes
    txid: bytes = field(compare=False)
    """32 bytes, wire order."""
    span: TxSpan = field(compare=False)

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Raises FormatError unless `raw` is exactly one transaction."""
        span = parse_tx(raw)
        return cls(raw, txid(raw, span), span)

    def __bytes__(self) -> bytes:
        return self.raw

    def __repr__(self) -> str:
        return f"<Transaction {hash_to_hex(self.txid)}>"

    @property
    def wtxid(self) -> bytes:
        """32 bytes, wire order (BIP-141); the txid where there is no witness."""
        return wtxid(self.raw, self.span) if self.span.witness else self.txid

    @property
    def version(self) -> int:
        """An i32."""
        return int.from_bytes(self.raw[:4], "little", signed=True)

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """The outpoints it spends, 36 bytes each."""
        return tuple([self.raw[at : at + OUTPOINT_SIZE] for at, _, _ in self.span.inputs])

    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequence number of each input."""
        return tuple([int.from_bytes(self.raw[end : end + 4], "little") for _, _, end in self.span.inputs])

    @property
    def outputs(self) -> tuple[TxOut, ...]:
        """Its outputs in order."""
        return tuple([self.output(index) for index in range(len(self.span.outputs))])

    @property
    def lock_time(self) -> int:
        """A u32: a height below 500,000,000, else seconds since 1970."""
        return int.from_bytes(self.raw[-4:], "little")

    @property
    def stripped(self) -> bytes:
        """The serialised form without witness: what the txid hashes."""
        return strip_witness(self.raw, self.span)

    @property
    def weight(self) -> int:
        """Weight units (BIP-141)."""
        return 3 * len(self.stripped) + len(self.raw)

    @property
    def virtual_size(self) -> int:
        """Virtual bytes, rounded up (BIP-141)."""
        return -(-self.weight // 4)

    @property
    def is_coinbase(self) -> bool:
        """Whether its only input spends the null outpoint."""
        return len(self.span.inputs) == 1 and self.inputs[0] == NULL_OUTPOINT

    def output(self, index: int) -> TxOut:
        """One output. Raises IndexError."""
        at, start, end = self.span.outputs[index]
        return TxOut(int.from_bytes(self.raw[at : at + 8], "little", signed=True), self.raw[start:end])

    def outpoint(self, index: int) -> bytes:
        """The 36-byte outpoint of one of its outputs."""
        return self.txid + index.to_bytes(4, "little")
