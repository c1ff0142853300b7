"""Functions that spend coins, double-spend them, or raise the fee of a transaction.

They sign with the keys that they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spvfilter.errors import ParameterError
from spvfilter.node.consensus import UnspentOutput
from spvfilter.node.scripts import Lock, p2sh, p2wsh
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.signatures.sign import sign_inputs
from spvfilter.transaction import Transaction, TxIn, serialize

_OPEN = [p2wsh(b"\x51"), p2sh(Lock(b"\x51"))]  # locks of OP_TRUE


def inputs_of(coins: Sequence[tuple[OutPoint, UnspentOutput | None]], lock: Lock) -> list[TxIn]:
    """Return an input for each coin. Only inputs that spend `lock` or OP_TRUE contain their witness.

    Raises ParameterError if there are no coins, or if a coin is missing or given twice.
    """
    if not coins:
        raise ParameterError("pass at least one coin to spend")
    if len({coin for coin, _ in coins}) < len(coins):
        raise ParameterError("a coin is listed twice")
    locks = {each.script_pubkey: each for each in (*_OPEN, lock)}
    inputs = []
    for coin, found in coins:
        if found is None:
            raise ParameterError(f"the coin {coin} is neither in the chain nor in the mempool")
        spender = locks.get(found.script_pubkey) or Lock(found.script_pubkey)
        inputs.append(spender.spends(coin, found.value))
    return inputs


def copied_inputs(tx: Transaction, coins: Sequence[UnspentOutput | None]) -> list[TxIn]:
    """Return the inputs of a transaction, along with the outputs that they spend."""
    parts = zip(tx.inputs, tx.script_sigs, tx.witnesses, tx.sequences, coins, strict=True)
    return [
        TxIn(OutPoint.parse(outpoint), script_sig, witness, sequence, TxOut(coin.value, coin.script_pubkey))
        for outpoint, script_sig, witness, sequence, coin in parts
        if coin is not None
    ]


def spending(
    inputs: Sequence[TxIn], outputs: Sequence[TxOut], fee: int, miner: bytes, keys: Iterable[bytes], *, to: bytes
) -> bytes:
    """Return a serialized transaction with these inputs. Change goes to the script `to`.

    Coins of the script `miner` need no keys. Raises ParameterError if the fee is negative, if the coins are not worth
    enough, or if an input cannot be signed.
    """
    if fee < 0:
        raise ParameterError(f"a fee must be at least 0 satoshi, not {fee}")
    value = sum(txin.spent.value for txin in inputs if txin.spent is not None)
    paid = sum(output.value for output in outputs)
    left = value - paid - fee
    if left < 0 or not (outputs or left):
        raise ParameterError(f"the coins are worth {value} satoshi, but the outputs and the fee need {paid + fee}")
    return _signed(inputs, [*outputs, *([TxOut(left, to)] if left else [])], miner, keys, version=2, lock_time=0)


def with_fee(tx: Transaction, inputs: Sequence[TxIn], more: int, miner: bytes, keys: Iterable[bytes]) -> bytes:
    """Raise the fee of a transaction by `more` satoshi, and return the new serialized transaction.

    The difference is taken from the last output that pays the script `miner` or, if there is none, from the largest
    output. Raises ParameterError if nothing would be left of that output, or if an input cannot be signed.
    """
    outputs = list(tx.outputs)
    own = [index for index, output in enumerate(outputs) if output.script_pubkey == miner]
    index = own[-1] if own else max(range(len(outputs)), key=lambda each: outputs[each].value)
    value = outputs[index].value - more
    if value <= 0:
        raise ParameterError(
            f"the fee of {hash_to_hex(tx.txid)} cannot rise by {more} satoshi: its output {index} is worth only"
            f" {outputs[index].value}"
        )
    outputs[index] = TxOut(value, outputs[index].script_pubkey)
    return _signed(inputs, outputs, miner, keys, version=tx.version, lock_time=tx.lock_time)


def _signed(
    inputs: Sequence[TxIn],
    outputs: Sequence[TxOut],
    miner: bytes,
    keys: Iterable[bytes],
    *,
    version: int,
    lock_time: int,
) -> bytes:
    """Sign the inputs. Spends of the script `miner` are left as they are."""
    signed = sign_inputs(inputs, outputs, keys, version=version, lock_time=lock_time, others=(miner,))
    return serialize(signed, outputs, version=version, lock_time=lock_time)
