"""Consensus rules for one transaction, as the embedded node enforces them.

Scripts and relative lock times are not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import RefusedError
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.protocol import COINBASE_MATURITY, MAX_BLOCK_WEIGHT, MAX_MONEY, MAX_SCRIPT_SIZE
from spvfilter.transaction import NULL_OUTPOINT, Transaction

_LOCK_TIME_THRESHOLD = 500_000_000  # below it a lock time is a height, Core script.h
_FINAL_SEQUENCE = 0xFFFFFFFF


@public
class UnspentOutput(NamedTuple):
    """An unspent output with the height and kind of the transaction that created it."""

    value: int
    """Satoshi."""
    script_pubkey: bytes
    height: int
    """Of its block; in the mempool, of the next block."""
    coinbase: bool


def unspent_output(tx: Transaction, index: int, height: int) -> UnspentOutput | None:
    """Output `index` of a transaction in a block at `height`; None if it is absent or unspendable.

    Unspendable as in Core's CScript::IsUnspendable.
    """
    if index >= len(tx.span.outputs):
        return None
    out = tx.output(index)
    if out.script_pubkey[:1] == b"\x6a" or len(out.script_pubkey) > MAX_SCRIPT_SIZE:
        return None
    return UnspentOutput(out.value, out.script_pubkey, height, tx.is_coinbase)


def unspent_outputs(tx: Transaction, height: int) -> dict[bytes, UnspentOutput]:
    """The spendable outputs of a transaction in a block at `height`, by 36-byte outpoint."""
    created = ((tx.outpoint(index), unspent_output(tx, index, height)) for index in range(len(tx.span.outputs)))
    return {outpoint: coin for outpoint, coin in created if coin is not None}


def is_final(tx: Transaction, height: int, median_time: int) -> bool:
    """Whether the lock time allows it in a block at `height` whose parent has this median time past (Core IsFinalTx,
    BIP-113).
    """
    limit = height if tx.lock_time < _LOCK_TIME_THRESHOLD else median_time
    return tx.lock_time < limit or all(sequence == _FINAL_SEQUENCE for sequence in tx.sequences)


def check_transaction(tx: Transaction) -> None:
    """The rules that need no context, coinbase included (Core consensus/tx_check.cpp CheckTransaction).

    Raises RefusedError.
    """
    inputs, stripped = tx.inputs, tx.stripped
    values = [out.value for out in tx.outputs]
    if not inputs:
        raise refused(tx, "bad-txns-vin-empty", "no inputs")
    if not values:
        raise refused(tx, "bad-txns-vout-empty", "no outputs")
    if 4 * len(stripped) > MAX_BLOCK_WEIGHT:
        raise refused(tx, "bad-txns-oversize", f"{len(stripped)} bytes")
    if min(values) < 0:
        raise refused(tx, "bad-txns-vout-negative", f"an output of {min(values)} satoshi")
    if max(values) > MAX_MONEY:
        raise refused(tx, "bad-txns-vout-toolarge", f"an output of {max(values)} satoshi")
    if sum(values) > MAX_MONEY:
        raise refused(tx, "bad-txns-txouttotal-toolarge", f"outputs of {sum(values)} satoshi")
    if len(set(inputs)) != len(inputs):
        raise refused(tx, "bad-txns-inputs-duplicate", "an outpoint is spent twice")
    if tx.is_coinbase:
        size = stripped[41]
        if not 2 <= size <= 100:
            raise refused(tx, "bad-cb-length", f"a coinbase's scriptSig has 2 to 100 bytes, not {size}")
    elif NULL_OUTPOINT in inputs:
        raise refused(tx, "bad-txns-prevout-null", "the null outpoint is spent")


def fee(tx: Transaction, find: Callable[[bytes], UnspentOutput | None], height: int) -> int:
    """The fee in satoshi of a transaction in a block at `height`; `find` looks up unspent outputs by outpoint.

    Raises RefusedError where an input is missing, immature or worth too little (Core CheckTxInputs).
    """
    value = 0
    for outpoint in tx.inputs:
        spent = find(outpoint)
        if spent is None:
            raise refused(tx, "bad-txns-inputs-missingorspent", f"no unspent output {OutPoint.parse(outpoint)}")
        if spent.coinbase and height - spent.height < COINBASE_MATURITY:
            age = f"{height - spent.height} of {COINBASE_MATURITY} blocks old"
            raise refused(
                tx, "bad-txns-premature-spend-of-coinbase", f"coinbase output {OutPoint.parse(outpoint)}, {age}"
            )
        value += spent.value
    paid = sum(out.value for out in tx.outputs)
    if value < paid:
        raise refused(tx, "bad-txns-in-belowout", f"inputs of {value} satoshi, outputs of {paid}")
    return value - paid


def refused(tx: Transaction, reason: str, why: str) -> RefusedError:
    """The error for a transaction that breaks a rule; `reason` is Core's reject reason."""
    return RefusedError(reason, f"transaction {hash_to_hex(tx.txid)}: {why}")
