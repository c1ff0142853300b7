"""The consensus rules for a single transaction that the embedded node checks.

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

_LOCK_TIME_THRESHOLD = 500_000_000  # a lock time below this is a height; any other is a Unix time (Core script.h)
_FINAL_SEQUENCE = 0xFFFFFFFF  # sequence number of an input that ignores the lock time


@public
class UnspentOutput(NamedTuple):
    """An unspent output, the height of its block, and whether it belongs to a coinbase."""

    value: int
    """Value in satoshi."""
    script_pubkey: bytes
    """The scriptPubKey of the output."""
    height: int
    """Height of the block that contains the output. For an output in the mempool, the height of the next block."""
    coinbase: bool
    """True if the output belongs to a coinbase."""


def unspent_output(tx: Transaction, index: int, height: int) -> UnspentOutput | None:
    """Return output number `index` of a transaction in a block at `height` as an UnspentOutput, or None.

    None means that there is no such output, or that nobody can spend it (Core CScript::IsUnspendable).
    """
    if index >= len(tx.span.outputs):
        return None
    out = tx.output(index)
    if out.script_pubkey[:1] == b"\x6a" or len(out.script_pubkey) > MAX_SCRIPT_SIZE:
        return None
    return UnspentOutput(out.value, out.script_pubkey, height, tx.is_coinbase)


def unspent_outputs(tx: Transaction, height: int) -> dict[bytes, UnspentOutput]:
    """Return the spendable outputs of a transaction in a block at `height`, keyed by outpoint (36 bytes)."""
    created = ((tx.outpoint(index), unspent_output(tx, index, height)) for index in range(len(tx.span.outputs)))
    return {outpoint: coin for outpoint, coin in created if coin is not None}


def is_final(tx: Transaction, height: int, median_time: int) -> bool:
    """Return True if the lock time allows a transaction in a block at `height` (Core IsFinalTx, BIP-113).

    `median_time` is the median time past of the block's parent (Unix time).
    """
    limit = height if tx.lock_time < _LOCK_TIME_THRESHOLD else median_time
    return tx.lock_time < limit or all(sequence == _FINAL_SEQUENCE for sequence in tx.sequences)


def check_transaction(tx: Transaction) -> None:
    """Check the rules that need only the transaction itself (Core consensus/tx_check.cpp CheckTransaction).

    Raises RefusedError if the transaction breaks one of these rules.
    """
    inputs, stripped = tx.inputs, tx.stripped
    values = [out.value for out in tx.outputs]
    if not inputs:
        raise refused(tx, "bad-txns-vin-empty", "it has no inputs")
    if not values:
        raise refused(tx, "bad-txns-vout-empty", "it has no outputs")
    if 4 * len(stripped) > MAX_BLOCK_WEIGHT:
        raise refused(
            tx,
            "bad-txns-oversize",
            f"it must be at most {MAX_BLOCK_WEIGHT // 4} bytes long without its witness, not {len(stripped)}",
        )
    if min(values) < 0:
        raise refused(tx, "bad-txns-vout-negative", f"an output must be 0 satoshi or more, not {min(values)}")
    if max(values) > MAX_MONEY:
        raise refused(tx, "bad-txns-vout-toolarge", f"an output must be at most {MAX_MONEY} satoshi, not {max(values)}")
    if sum(values) > MAX_MONEY:
        why = f"the outputs must be at most {MAX_MONEY} satoshi in total, not {sum(values)}"
        raise refused(tx, "bad-txns-txouttotal-toolarge", why)
    if len(set(inputs)) != len(inputs):
        raise refused(tx, "bad-txns-inputs-duplicate", "two inputs have the same outpoint")
    if tx.is_coinbase:
        size = stripped[41]
        if not 2 <= size <= 100:
            raise refused(tx, "bad-cb-length", f"a coinbase's scriptSig must be 2 to 100 bytes long, not {size}")
    elif NULL_OUTPOINT in inputs:
        raise refused(tx, "bad-txns-prevout-null", "an input spends the null outpoint")


def fee(tx: Transaction, find: Callable[[bytes], UnspentOutput | None], height: int) -> int:
    """Compute the fee, in satoshi, of a transaction in a block at `height` (Core CheckTxInputs).

    `find` looks up an unspent output by its outpoint. Raises RefusedError if a spent output is missing or belongs to an
    immature coinbase, or if the inputs are worth less than the outputs.
    """
    value = 0
    for outpoint in tx.inputs:
        spent = find(outpoint)
        if spent is None:
            raise refused(
                tx,
                "bad-txns-inputs-missingorspent",
                f"it spends {OutPoint.parse(outpoint)}, which is missing or already spent",
            )
        if spent.coinbase and height - spent.height < COINBASE_MATURITY:
            age = f"which is only {height - spent.height} of {COINBASE_MATURITY} blocks old"
            raise refused(
                tx,
                "bad-txns-premature-spend-of-coinbase",
                f"it spends the coinbase output {OutPoint.parse(outpoint)}, {age}",
            )
        value += spent.value
    paid = sum(out.value for out in tx.outputs)
    if value < paid:
        raise refused(tx, "bad-txns-in-belowout", f"its inputs are worth {value} satoshi, but its outputs {paid}")
    return value - paid


def refused(tx: Transaction, reason: str, why: str) -> RefusedError:
    """Return the error for a transaction that breaks a rule. `reason` is Core's reject reason."""
    return RefusedError(reason, f"transaction {hash_to_hex(tx.txid)}: {why}")
