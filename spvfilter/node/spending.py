"""Transactions that spend coins of any script by made-up signatures, and the same transaction with another fee."""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.errors import ParameterError
from spvfilter.node.build import TxIn, build_tx
from spvfilter.node.consensus import UnspentOutput
from spvfilter.node.scripts import SCHNORR_SIGNATURE, SIGNATURE, push
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.transaction import Transaction

_KEY = b"\x02" * 33  # that no script of a coin commits to: nobody checks


def unlocked(coin: OutPoint, script: bytes) -> TxIn:
    """An input that spends a coin, shaped as for its type of scriptPubKey."""
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
    """A transaction that spends coins; what outputs and fee leave goes to the script `to`, by default the first coin's.

    Raises ParameterError for no coins, one that is not there, one given twice, a negative fee, and if the coins do not
    suffice.
    """
    if not coins:
        raise ParameterError("no coins to spend")
    if len({coin for coin, _ in coins}) < len(coins):
        raise ParameterError("a coin is given twice")
    if fee < 0:
        raise ParameterError(f"a fee must not be negative: {fee}")
    known = [(coin, found) for coin, found in coins if found is not None]
    if len(known) < len(coins):
        missing = next(coin for coin, found in coins if found is None)
        raise ParameterError(f"no unspent output {missing} in the chain or the mempool")
    value, paid = sum(found.value for _, found in known), sum(output.value for output in outputs)
    left = value - paid - fee
    if left < 0 or not (outputs or left):
        raise ParameterError(f"the coins are worth {value} satoshi, outputs and fee {paid + fee}")
    change = [TxOut(left, known[0][1].script_pubkey if to is None else to)] if left else []
    return build_tx([unlocked(coin, found.script_pubkey) for coin, found in known], [*outputs, *change])


def with_fee(tx: Transaction, more: int, change: bytes) -> bytes:
    """A transaction that pays `more` satoshi of fee, from its last output to the script `change` or, if there is none,
    from its largest.

    Raises ParameterError if that output is worth less, or nothing would be left of it.
    """
    outputs = tx.outputs
    own = [index for index, output in enumerate(outputs) if output.script_pubkey == change]
    index = own[-1] if own else max(range(len(outputs)), key=lambda each: outputs[each].value)
    value = outputs[index].value - more
    if value <= 0:
        raise ParameterError(
            f"{more} satoshi more of fee than {hash_to_hex(tx.txid)} pays, but its output {index} is worth"
            f" {outputs[index].value}"
        )
    at, _, _ = tx.span.outputs[index]
    return tx.raw[:at] + value.to_bytes(8, "little") + tx.raw[at + 8 :]
