"""Amounts: whether what a transaction pays can be, which neither its txid nor a block's header shows."""

from __future__ import annotations

from spvfilter.kernel import TxSpan
from spvfilter.protocol import MAX_MONEY


def are_amounts(raw: bytes, span: TxSpan) -> bool:
    """Whether the outputs of a transaction, and their sum, are from 0 to 21 million coins (Core consensus/tx_check.cpp
    CheckTransaction).

    `span` is of a transaction in `raw`. A peer can mine a block that says otherwise where work costs next to nothing,
    and anywhere for the price of a block.
    """
    total = 0
    for at, _, _ in span.outputs:
        value = int.from_bytes(raw[at : at + 8], "little")  # a negative one is above 2^63
        if value > MAX_MONEY:
            return False
        total += value
    return total <= MAX_MONEY
