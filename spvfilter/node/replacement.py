"""Replacement by fee as Bitcoin Core 28 and 29 do it: any transaction of the mempool may be replaced (full RBF), by
Core's other rules.

Core policy/rbf.cpp, doc/policy/mempool-replacements.md; the numbers below are those of the rules there. Rule 1, that a
transaction signals BIP-125, is gone since Core 28. Sigops do not count towards sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spvfilter.node.consensus import refused
from spvfilter.primitives import hash_to_hex
from spvfilter.transaction import Transaction

INCREMENTAL_RATE = 1_000  # satoshi per 1,000 virtual bytes, Core 29 policy.h DEFAULT_INCREMENTAL_RELAY_FEE
MAX_REPLACED = 100  # transactions, Core policy/rbf.h MAX_REPLACEMENT_CANDIDATES


def least_fee(replaced: Iterable[Transaction], fees: Mapping[bytes, int], size: int) -> int:
    """The least fee of a transaction of `size` virtual bytes that replaces these, descendants included (rules 3 and
    4).
    """
    return sum(fees[tx.txid] for tx in replaced) + -(-INCREMENTAL_RATE * size // 1_000)


def check_replacement(
    tx: Transaction,
    fee: int,
    direct: Sequence[Transaction],
    counts: Iterable[int],
    replaced: Sequence[Transaction],
    fees: Mapping[bytes, int],
    mempool: Mapping[bytes, Transaction],
) -> None:
    """Whether a transaction may take the place of `direct`, which spend what it spends, and of their descendants:
    together `replaced`.

    `counts` are the numbers of descendants of each of `direct`, itself included. Raises RefusedError.
    """
    for other in direct:  # rule 6
        mine, theirs = _rate(fee, tx), _rate(fees[other.txid], other)
        if mine <= theirs:
            why = (
                f"it pays {mine} satoshi per 1,000 virtual bytes, no more than the {theirs} of"
                f" {hash_to_hex(other.txid)}"
            )
            raise refused(tx, "insufficient fee", why)
    count = sum(counts)  # those that descend from several count several times, as in Core
    if count > MAX_REPLACED:  # rule 5
        raise refused(tx, "too many potential replacements", f"{count}, at most {MAX_REPLACED}")
    parents = {outpoint[:32] for other in direct for outpoint in other.inputs}
    for outpoint in tx.inputs:  # rule 2
        if outpoint[:32] in mempool and outpoint[:32] not in parents:
            why = f"what it replaces does not spend from the unconfirmed {hash_to_hex(outpoint[:32])}"
            raise refused(tx, "replacement-adds-unconfirmed", why)
    least = least_fee(replaced, fees, tx.virtual_size)
    if fee < least:
        raise refused(
            tx,
            "insufficient fee",
            f"a fee of {fee} satoshi, at least {least} to replace {len(replaced)} transaction(s)",
        )


def _rate(fee: int, tx: Transaction) -> int:
    """Satoshi per 1,000 virtual bytes, rounded down as in Core's CFeeRate."""
    return fee * 1_000 // tx.virtual_size
