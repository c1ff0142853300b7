"""A transaction as the embedded node keeps it, and the consensus rules that bind it. Scripts and relative lock times are not checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.errors import RefusedError
from spvfilter.kernel import parse_tx, strip_witness, txid, wtxid
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.protocol import MAX_BLOCK_WEIGHT, MAX_MONEY, MAX_SCRIPT_SIZE

COINBASE_MATURITY = 100  # blocks, Core consensus/consensus.h
_LOCK_TIME_THRESHOLD = 500_000_000  # below it a lock time is a height, Core script.h
_FINAL_SEQUENCE = 0xFFFFFFFF
_NULL_OUTPOINT = bytes(32) + b"\xff" * 4


class UnspentOutput(NamedTuple):
    """An unspent output and where it came from."""

    value: int  # satoshi
    script_pubkey: bytes
    height: int  # of its block; that of the next block for one in the mempool
    coinbase: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tx:
    """A transaction and what is looked up in it; outpoints are 36 bytes."""

    raw: bytes
    txid: bytes
    wtxid: bytes
    inputs: tuple[bytes, ...]  # the outpoints it spends
    outputs: tuple[TxOut, ...]
    sequences: tuple[int, ...]
    lock_time: int
    stripped: bytes  # without witness

    @classmethod
    def parse(cls, raw: bytes) -> Tx:
        """Raises FormatError for bytes that are not exactly one transaction."""
        span = parse_tx(raw)
        stripped = strip_witness(raw, span)
        return cls(
            raw=raw,
            txid=txid(raw, span),
            wtxid=wtxid(raw, span),
            inputs=tuple(raw[at : at + 36] for at, _, _ in span.inputs),
            outputs=tuple(
                TxOut(int.from_bytes(raw[at : at + 8], "little", signed=True), raw[start:end]) for at, start, end in span.outputs
            ),
            sequences=tuple(int.from_bytes(raw[end : end + 4], "little") for _, _, end in span.inputs),
            lock_time=int.from_bytes(raw[-4:], "little"),
            stripped=stripped,
        )

    @property
    def is_coinbase(self) -> bool:
        return self.inputs == (_NULL_OUTPOINT,)

    @property
    def weight(self) -> int:
        """Weight units (BIP-141)."""
        return 3 * len(self.stripped) + len(self.raw)

    @property
    def virtual_size(self) -> int:
        """Virtual bytes, rounded up (BIP-141)."""
        return -(-self.weight // 4)

    def outpoint(self, index: int) -> bytes:
        return self.txid + index.to_bytes(4, "little")

    def coin(self, index: int, height: int) -> UnspentOutput | None:
        """The coin that one of its outputs is in a block at `height`; None where nothing can spend it (Core CScript::IsUnspendable)."""
        out = self.outputs[index] if index < len(self.outputs) else None
        if out is None or out.script_pubkey[:1] == b"\x6a" or len(out.script_pubkey) > MAX_SCRIPT_SIZE:
            return None
        return UnspentOutput(out.value, out.script_pubkey, height, self.is_coinbase)

    def coins(self, height: int) -> dict[bytes, UnspentOutput]:
        """All the coins it creates, by outpoint."""
        made = ((self.outpoint(index), self.coin(index, height)) for index in range(len(self.outputs)))
        return {outpoint: coin for outpoint, coin in made if coin is not None}

    def is_final(self, height: int, median_time: int) -> bool:
        """Whether its lock time lets it into a block at `height` on one of this median time past (Core IsFinalTx, BIP-113)."""
        limit = height if self.lock_time < _LOCK_TIME_THRESHOLD else median_time
        return self.lock_time < limit or all(sequence == _FINAL_SEQUENCE for sequence in self.sequences)

    def check(self) -> None:
        """Core consensus/tx_check.cpp CheckTransaction, coinbase included. Raises RefusedError."""
        if not self.inputs:
            raise self.refused("bad-txns-vin-empty", "no inputs")
        if not self.outputs:
            raise self.refused("bad-txns-vout-empty", "no outputs")
        if 4 * len(self.stripped) > MAX_BLOCK_WEIGHT:
            raise self.refused("bad-txns-oversize", f"{len(self.stripped)} bytes")
        values = [out.value for out in self.outputs]
        if min(values) < 0:
            raise self.refused("bad-txns-vout-negative", f"an output of {min(values)} satoshi")
        if max(values) > MAX_MONEY:
            raise self.refused("bad-txns-vout-toolarge", f"an output of {max(values)} satoshi")
        if sum(values) > MAX_MONEY:
            raise self.refused("bad-txns-txouttotal-toolarge", f"outputs of {sum(values)} satoshi")
        if len(set(self.inputs)) != len(self.inputs):
            raise self.refused("bad-txns-inputs-duplicate", "an outpoint is spent twice")
        if self.is_coinbase:
            size = self.stripped[41]
            if not 2 <= size <= 100:
                raise self.refused("bad-cb-length", f"a coinbase's scriptSig has 2 to 100 bytes, not {size}")
        elif _NULL_OUTPOINT in self.inputs:
            raise self.refused("bad-txns-prevout-null", "the null outpoint is spent")

    def fee(self, coin: Callable[[bytes], UnspentOutput | None], height: int) -> int:
        """Its fee in satoshi in a block at `height`, where `coin` finds unspent outputs (Core CheckTxInputs). Raises RefusedError."""
        value = 0
        for outpoint in self.inputs:
            spent = coin(outpoint)
            if spent is None:
                raise self.refused("bad-txns-inputs-missingorspent", f"no unspent output {OutPoint.parse(outpoint)}")
            if spent.coinbase and height - spent.height < COINBASE_MATURITY:
                age = f"{height - spent.height} of {COINBASE_MATURITY} blocks old"
                raise self.refused("bad-txns-premature-spend-of-coinbase", f"coinbase output {OutPoint.parse(outpoint)}, {age}")
            value += spent.value
        paid = sum(out.value for out in self.outputs)
        if value < paid:
            raise self.refused("bad-txns-in-belowout", f"inputs of {value} satoshi, outputs of {paid}")
        return value - paid

    def refused(self, reason: str, why: str) -> RefusedError:
        return RefusedError(reason, f"transaction {hash_to_hex(self.txid)}: {why}")
