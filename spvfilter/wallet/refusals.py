"""Why the books refuse what the user asks for: a transaction that cannot count, one that cannot be given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter.errors import ParameterError, TxConflictError
from spvfilter.primitives import hash_to_hex
from spvfilter.transaction import Transaction
from spvfilter.wallet.unconfirmed import why_impossible

if TYPE_CHECKING:
    from spvfilter.wallet.books import Books


def check_broadcast(books: Books, tx: Transaction) -> None:
    """Raises ParameterError for a transaction of ours that cannot count:

    TxConflictError where another one stands against it.
    """
    spender = books.spender_of(tx)
    if (reason := why_impossible(tx)) is not None:
        raise ParameterError(f"no block can contain the transaction: {reason}")
    if spender is not None:
        block = books.in_block(spender)
        height = None if block is None else block.height
        raise TxConflictError(f"it conflicts with {hash_to_hex(spender)}, which is in a block", spender, height)
    if books.ended.rules_out(tx, own=True):
        raise TxConflictError("it conflicts with a block, or spends from a transaction that does")
    if (
        tx.txid not in books.unconfirmed.pending
        and books.unconfirmed.contest(tx, own=True) is None
        and books.rival_of(tx) is None
    ):
        raise ParameterError("it conflicts with its own ancestors, or with more own transactions than it can replace")


def check_abandon(books: Books, txid: bytes) -> None:
    """Raises ParameterError for a transaction that is not unconfirmed, or not ours."""
    pending = books.unconfirmed.pending.get(txid)
    if pending is None:
        raise ParameterError(f"{hash_to_hex(txid)} is not an unconfirmed transaction of the wallet")
    if not pending.own:
        raise ParameterError(f"{hash_to_hex(txid)} was not broadcast here: only own transactions can be abandoned")
