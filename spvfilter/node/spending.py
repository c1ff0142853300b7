"""Functions that spend coins of any script with made-up signatures, or raise the fee of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.errors import ParameterError
from spvfilter.node.consensus import UnspentOutput
from spvfilter.node.scripts import SCHNORR_SIGNATURE, SIGNATURE, push
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.transaction import Transaction, TxIn, build_tx

_KEY = b"\x02" * 33  # a made-up public key; it need not match the script, as scripts are not checked


def unlocked(coin: OutPoint, script: bytes) -> TxIn:
    """Return an input that spends a coin: scriptSig and witness fit the type of the coin's scriptPubKey."""
    match script[:2], len(script):
        case b"\x00\x14", 22:  # P2WPKH
            return TxIn(coin, witness=(SIGNATURE, _KEY))
        case b"\x00\x20", 34:  # P2WSH of OP_TRUE
            return TxIn(coin, witness=(b"\x51",))
        case b"\x51\x20", 34:  # P2TR
            return TxIn(coin, witness=(SCHNORR_SIGNATURE,))
        case b"\x76\xa9", 25:  # P2PKH
            return TxIn(coin, push(SIGNATURE) + push(_KEY))
        case b"\xa9\x14", 23:  # P2SH of OP_TRUE
            return TxIn(coin, push(b"\x51"))
        case _:
            return TxIn(coin, push(SIGNATURE))


def spending(
    coins: Sequence[tuple[OutPoint, UnspentOutput | None]],
    outputs: Sequence[TxOut],
    fee: int,
    *,
    to: bytes | None = None,
) -> bytes:
    """Return a serialized transaction that spends coins.

    Change goes to the script `to`, by default the script of the first coin.

    Raises ParameterError if there are no coins, if a coin is missing or given twice, if the fee is negative, or if the
    coins do not suffice.
    """
    if not coins:
        raise ParameterError("give at least one coin to spend")
    if len({coin for coin, _ in coins}) < len(coins):
        raise ParameterError("a coin is given twice")
    if fee < 0:
        raise ParameterError(f"a fee must be at least 0 satoshi, not {fee}")
    known = [(coin, found) for coin, found in coins if found is not None]
    if len(known) < len(coins):
        missing = next(coin for coin, found in coins if found is None)
        raise ParameterError(f"the coin {missing} is neither in the chain nor in the mempool")
    value, paid = sum(found.value for _, found in known), sum(output.value for output in outputs)
    left = value - paid - fee
    if left < 0 or not (outputs or left):
        raise ParameterError(f"the coins are worth {value} satoshi, but outputs and fee need {paid + fee}")
    change = [TxOut(left, known[0][1].script_pubkey if to is None else to)] if left else []
    return build_tx([unlocked(coin, found.script_pubkey) for coin, found in known], [*outputs, *change])


def with_fee(tx: Transaction, more: int, change: bytes) -> bytes:
    """Raise the fee of a transaction by `more` satoshi, and return the new serialized transaction.

    The difference is taken from the last output that pays the script `change` or, if there is none, from the largest
    output. Raises ParameterError if nothing would be left of that output.
    """
    outputs = tx.outputs
    own = [index for index, output in enumerate(outputs) if output.script_pubkey == change]
    index = own[-1] if own else max(range(len(outputs)), key=lambda each: outputs[each].value)
    value = outputs[index].value - more
    if value <= 0:
        raise ParameterError(
            f"the fee of {hash_to_hex(tx.txid)} cannot rise by {more} satoshi: its output {index} is worth only"
            f" {outputs[index].value}"
        )
    at, _, _ = tx.span.outputs[index]
    return tx.raw[:at] + value.to_bytes(8, "little") + tx.raw[at + 8 :]
