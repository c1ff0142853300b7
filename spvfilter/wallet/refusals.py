"""Checks of the user's calls before the books record them: a broadcast, and an abandonment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spvfilter.errors import ParameterError, TxConflictError
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.transaction import Transaction
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.txgraph import DropReason
from spvfilter.wallet.validity import why_impossible

if TYPE_CHECKING:
    from spvfilter.wallet.books import Books


def check_broadcast(books: Books, tx: Transaction, input_values: Sequence[int] | None = None) -> None:
    """Check that a block may contain a transaction of this wallet, as far as the books know.

    Raises:
        ParameterError: No block can contain it, its outputs exceed its inputs, or the user abandoned an ancestor.
        TxConflictError: It conflicts with a block.
    """
    if (reason := why_impossible(tx)) is not None:
        raise ParameterError(f"no block can contain the transaction: {reason}")
    if books.facts.is_confirmed(tx.txid):
        anchor = books.facts.anchor(tx.txid)
        raise TxConflictError("a block contains the transaction", tx.txid, None if anchor is None else anchor.height)
    if (spender := books.facts.confirmed_spender(tx)) is not None:
        block = books.facts.anchor(spender)
        height = None if block is None else block.height
        raise TxConflictError(f"it conflicts with {hash_to_hex(spender)}, which is in a block", spender, height)
    for outpoint in map(OutPoint.parse, tx.inputs):
        parent = books.intake.known(outpoint.txid)
        if parent is not None and outpoint.index >= parent.outputs:
            name = hash_to_hex(outpoint.txid)
            raise ParameterError(
                f"no block can contain the transaction: it spends output {outpoint.index} of {name}, which has"
                f" {parent.outputs} outputs"
            )
    values = input_values or [value for value in map(books.hits.value_of, tx.inputs) if value is not None]
    paid = sum(output.value for output in tx.outputs)
    if len(values) == len(tx.inputs) and paid > sum(values):
        raise ParameterError(
            f"no block can contain the transaction: its outputs have {paid} satoshi, its inputs {sum(values)}"
        )
    verdict, ancestor = books.intake.would_be(tx)
    if verdict.status is Status.CONFLICTED:
        if verdict.conflicts_with is not None:
            rival, by = books.facts.record(verdict.conflicts_with), hash_to_hex(verdict.conflicts_with)
            is_direct = rival is not None and not set(rival.inputs).isdisjoint(tx.inputs)
            conflict = "it conflicts" if is_direct else "it spends from a transaction that conflicts"
            raise TxConflictError(f"{conflict} with {by}, which is confirmed", verdict.conflicts_with)
        raise ParameterError("no block can contain the transaction: it or an ancestor conflicts with an ancestor")
    if ancestor is not None and ancestor.active_drop is DropReason.ABANDONED:
        name = hash_to_hex(ancestor.txid)
        raise ParameterError(
            f"it spends from {name}, which was abandoned: broadcast {name} first, or spend other coins"
        )


def check_abandon(books: Books, txid: bytes) -> None:
    """Check that a transaction is unconfirmed and own. Raises ParameterError."""
    record = books.facts.record(txid)
    if record is None or not books.facts.is_without_block(txid):
        raise ParameterError(f"{hash_to_hex(txid)} is not an unconfirmed transaction of the wallet")
    if not record.is_own:
        raise ParameterError(f"{hash_to_hex(txid)} was not broadcast here: only own transactions can be abandoned")
