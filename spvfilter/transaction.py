"""Transaction: a parsed transaction with its ids and parts. The module also serializes new transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from spvfilter._arguments import named
from spvfilter._public import readable
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import TxSpan, parse_tx, strip_witness, txid, wtxid
from spvfilter.primitives import OutPoint, Reader, TxOut, check_int, compact_size, hash_to_hex
from spvfilter.protocol import OUTPOINT_SIZE

__all__ = ["NULL_OUTPOINT", "Transaction", "TxIn"]

NULL_OUTPOINT = bytes(32) + b"\xff" * 4  # the outpoint that a coinbase input refers to: 32 zero bytes, index 2^32 - 1


def refuse_psbt(raw: bytes) -> None:
    """Raise FormatError if the bytes are a PSBT (BIP-174), which would otherwise look like a damaged transaction."""
    if raw[:5] == b"psbt\xff":
        raise FormatError(
            "this is a PSBT, not a transaction: sign and finalize it first", offset=0, field="transaction"
        )


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in its serialized form, with or without witness (BIP-144).

    Two transactions are equal if their bytes are equal. Each property computes its value again on each access.
    """

    raw: bytes
    """The serialized transaction."""
    txid: bytes = field(compare=False)
    """Id of the transaction, 32 bytes in wire order. The witness does not change it."""
    span: TxSpan = field(compare=False)
    """Offsets of the transaction's parts in `raw`."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def wtxid_hex(self) -> str:
        """The field `wtxid` in hex, as block explorers show it."""
        return hash_to_hex(self.wtxid)

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse a serialized transaction. Raises FormatError unless `raw` is exactly one transaction."""
        try:
            refuse_psbt(raw)
            span = parse_tx(raw)
        except TypeError as error:
            raise named(cls.parse, error, raw) from None
        except FormatError:
            if raw[:6] == b"cHNidP":
                raise FormatError(
                    "this is a PSBT in base64, not a transaction: sign and finalize it first",
                    offset=0,
                    field="transaction",
                ) from None
            raise
        return cls(raw, txid(raw, span), span)

    def __bytes__(self) -> bytes:
        return self.raw

    def __repr__(self) -> str:
        return f"<Transaction {hash_to_hex(self.txid)}>"

    @property
    def wtxid(self) -> bytes:
        """Witness txid, 32 bytes in wire order (BIP-141). It equals the txid if there is no witness."""
        return wtxid(self.raw, self.span) if self.span.witness else self.txid

    @property
    def version(self) -> int:
        """Version of the transaction, an i32."""
        return int.from_bytes(self.raw[:4], "little", signed=True)

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """Outpoints that the transaction spends, 36 bytes each."""
        return tuple([self.raw[at : at + OUTPOINT_SIZE] for at, _, _ in self.span.inputs])

    @property
    def sequences(self) -> tuple[int, ...]:
        """Sequence number of each input, a u32."""
        return tuple([int.from_bytes(self.raw[end : end + 4], "little") for _, _, end in self.span.inputs])

    @property
    def script_sigs(self) -> tuple[bytes, ...]:
        """ScriptSig of each input. It is empty if the input spends a native segwit output."""
        return tuple([self.raw[start:end] for _, start, end in self.span.inputs])

    @property
    def witnesses(self) -> tuple[tuple[bytes, ...], ...]:
        """Items of the witness stack of each input, the last one on top. An input without witness has no items."""
        if not self.span.witness:
            return ((),) * len(self.span.inputs)
        reader = Reader(self.raw, self.span.witness)
        stacks = []
        for _ in self.span.inputs:
            count = reader.compact_size("witness")
            stacks.append(tuple([reader.take(reader.compact_size("witness"), "witness") for _ in range(count)]))
        return tuple(stacks)

    @property
    def outputs(self) -> tuple[TxOut, ...]:
        """Outputs of the transaction, in order."""
        return tuple([self.output(index) for index in range(len(self.span.outputs))])

    @property
    def lock_time(self) -> int:
        """Lock time, a u32: a height if it is below 500,000,000, else a Unix time."""
        return int.from_bytes(self.raw[-4:], "little")

    @property
    def stripped(self) -> bytes:
        """The serialized transaction without its witness. The txid is the hash of these bytes."""
        return strip_witness(self.raw, self.span)

    @property
    def weight(self) -> int:
        """Weight of the transaction in weight units (BIP-141)."""
        return 3 * len(self.stripped) + len(self.raw)

    @property
    def virtual_size(self) -> int:
        """Virtual size in virtual bytes: a quarter of the weight, rounded up (BIP-141)."""
        return -(-self.weight // 4)

    @property
    def is_coinbase(self) -> bool:
        """True if the only input refers to the null outpoint."""
        return len(self.span.inputs) == 1 and self.inputs[0] == NULL_OUTPOINT

    def output(self, index: int) -> TxOut:
        """Return the output at `index`. Raises IndexError if there is no such output."""
        try:
            at, start, end = self.span.outputs[index]
        except TypeError as error:
            raise named(self.output, error, index) from None
        return TxOut.parsed(int.from_bytes(self.raw[at : at + 8], "little", signed=True), self.raw[start:end])

    def outpoint(self, index: int) -> bytes:
        """Return the outpoint of the output at `index`, 36 bytes. Raises ParameterError if `index` is not a u32."""
        try:
            return self.txid + index.to_bytes(4, "little")
        except OverflowError:
            raise ParameterError(f"index must be from 0 to 2^32 - 1, not {index}") from None
        except AttributeError as error:
            raise named(self.outpoint, error, index) from None


@readable
@dataclass(frozen=True, slots=True)
class TxIn:
    """An input of a transaction.

    Raises TypeError for a value of the wrong type, and ParameterError if the sequence number is not a u32.
    """

    outpoint: OutPoint
    """The output that the input spends."""
    script_sig: bytes = b""
    """The scriptSig of the input."""
    witness: tuple[bytes, ...] = ()
    """Items of the witness stack of the input."""
    sequence: int = 0xFFFFFFFE
    """Sequence number, 0 to 2^32 - 1."""
    spent: TxOut | None = None
    """The output at `outpoint`. Only signing needs it, and it is not serialized."""

    def __post_init__(self) -> None:
        witness = self.witness if isinstance(self.witness, (tuple, list)) else (None,)
        for name, wanted, is_fit in (
            ("outpoint", "an OutPoint", isinstance(self.outpoint, OutPoint)),
            ("script_sig", "bytes", isinstance(self.script_sig, bytes)),
            ("witness", "a tuple of bytes", all(isinstance(item, bytes) for item in witness)),
            ("spent", "a TxOut or None", self.spent is None or isinstance(self.spent, TxOut)),
        ):
            if not is_fit:
                raise TypeError(f"{name}: expected {wanted}, not {type(getattr(self, name)).__name__}")
        check_int("sequence", self.sequence)
        if not 0 <= self.sequence <= 0xFFFFFFFF:
            raise ParameterError(f"sequence must be from 0 to 2^32 - 1, not {self.sequence}")

    def __bytes__(self) -> bytes:
        """Serialize the input without its witness, which follows the outputs in a transaction."""
        return bytes(self.outpoint) + var_bytes(self.script_sig) + self.sequence.to_bytes(4, "little")


def var_bytes(data: bytes) -> bytes:
    """Serialize bytes, preceded by their length as a CompactSize."""
    return compact_size(len(data)) + data


def serialize(inputs: Sequence[TxIn], outputs: Sequence[TxOut], *, version: int, lock_time: int) -> bytes:
    """Serialize a transaction, in segwit form if an input has a witness (BIP-144).

    Raises ParameterError if the version is not an i32, or the lock time is not a u32.
    """
    if not -(1 << 31) <= version < 1 << 31:
        raise ParameterError(f"version must be from -2^31 to 2^31 - 1, not {version}")
    if not 0 <= lock_time <= 0xFFFFFFFF:
        raise ParameterError(f"lock_time must be from 0 to 2^32 - 1, not {lock_time}")
    segwit = any(txin.witness for txin in inputs)
    raw = version.to_bytes(4, "little", signed=True) + (b"\x00\x01" if segwit else b"")
    raw += compact_size(len(inputs)) + b"".join(map(bytes, inputs))
    raw += compact_size(len(outputs)) + b"".join(map(bytes, outputs))
    if segwit:
        raw += b"".join(compact_size(len(txin.witness)) + b"".join(map(var_bytes, txin.witness)) for txin in inputs)
    return raw + lock_time.to_bytes(4, "little")
