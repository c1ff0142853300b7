"""Check whether a block may contain a transaction, judging by its bytes alone."""

from __future__ import annotations

from spvfilter.kernel import TxSpan
from spvfilter.protocol import MAX_BLOCK_WEIGHT, MAX_MONEY
from spvfilter.transaction import NULL_OUTPOINT, Transaction


def are_amounts(raw: bytes, span: TxSpan) -> bool:
    """Return True if the value of each output, and their sum, is from 0 to 21 million coins (Core CheckTransaction).

    `span` contains the offsets of the transaction's parts in `raw`. Neither a txid nor a block header proves this: on a
    chain with little work, a peer can mine a block with any amounts.
    """
    total = 0
    for at, _, _ in span.outputs:
        value = int.from_bytes(raw[at : at + 8], "little")  # a negative value is above 2^63
        if value > MAX_MONEY:
            return False
        total += value
    return total <= MAX_MONEY


def why_impossible(tx: Transaction) -> str | None:
    """Return why no block may contain a transaction after the coinbase, or None (Core CheckTransaction)."""
    inputs = tx.inputs
    if not inputs or not tx.span.outputs:
        return "it has no inputs" if not inputs else "it has no outputs"
    if inputs == (NULL_OUTPOINT,):
        return "it is a coinbase"
    if NULL_OUTPOINT in inputs or len(set(inputs)) < len(inputs):
        return "it spends the null outpoint" if NULL_OUTPOINT in inputs else "it spends an output twice"
    if not are_amounts(tx.raw, tx.span):
        return "the values of its outputs are out of range"
    if len(tx.raw) > MAX_BLOCK_WEIGHT // 4 and tx.weight > MAX_BLOCK_WEIGHT:
        return f"its weight of {tx.weight:,} is above {MAX_BLOCK_WEIGHT:,}"
    return None
