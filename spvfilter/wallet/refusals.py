"""Checks of the user's calls to broadcast or abandon a transaction, before the books record them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spvfilter.errors import ParameterError, TxCheckError, TxConflictError
from spvfilter.primitives import hash_to_hex
from spvfilter.store.txcheck import CheckCause, CheckFinding, CheckWeight, impossible
from spvfilter.transaction import Transaction
from spvfilter.wallet.bookfacts import BookFacts
from spvfilter.wallet.books import Books


def check_broadcast(books: Books, tx: Transaction, input_values: Sequence[int] | None = None) -> None:
    """Check that, as far as the books know, a block may contain a transaction of this wallet.

    Raises:
        ParameterError: No block can contain it, its outputs exceed its inputs, or the user abandoned an ancestor.
        TxConflictError: It conflicts with a transaction in a block.
    """
    if (found := impossible(tx, BookFacts(books), input_values)) is not None:
        raise refusal_of([found])


def refusal(findings: Iterable[CheckFinding], *, is_forced: bool) -> ParameterError | None:
    """Return the error that prevents a broadcast, or None if nothing does.

    Args:
        findings: Findings of a check.
        is_forced: True to ignore findings which say that peers will refuse the transaction.
    """
    weights = (CheckWeight.INVALID,) if is_forced else (CheckWeight.INVALID, CheckWeight.REFUSED)
    grave = [finding for finding in findings if finding.weight in weights]
    return refusal_of(grave) if grave else None


def refusal_of(findings: Sequence[CheckFinding]) -> ParameterError:
    """Return the error for findings, which are given most serious first."""
    first = findings[0]
    if first.cause in (CheckCause.CONFIRMED, CheckCause.CONFLICT) and first.by is not None:
        return TxConflictError(first.message, first.by, first.height)
    message = "; ".join(dict.fromkeys(finding.message for finding in findings))
    can_force = all(finding.weight is not CheckWeight.INVALID for finding in findings)
    return TxCheckError(message, tuple(finding.cause.value for finding in findings), can_force=can_force)


def check_abandon(books: Books, txid: bytes) -> None:
    """Raise ParameterError unless a transaction is unconfirmed and the wallet's own."""
    record = books.facts.record(txid)
    if record is None or not books.facts.is_without_block(txid):
        raise ParameterError(f"{hash_to_hex(txid)} is not an unconfirmed transaction of the wallet")
    if not record.is_own:
        raise ParameterError(f"{hash_to_hex(txid)} was not broadcast here: only your own transactions can be abandoned")
