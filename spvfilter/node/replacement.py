"""Replacement by fee as in Bitcoin Core 28 and 29: any transaction in the mempool may be replaced (full RBF).

The sources are Core's policy/rbf.cpp and doc/policy/mempool-replacements.md, which numbers the rules. Rule
1, that a transaction must signal BIP-125, was removed in Core 28. Sigops do not count toward sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spvfilter.errors import counted
from spvfilter.node.consensus import refused
from spvfilter.primitives import hash_to_hex
from spvfilter.transaction import Transaction

# Fee rate that a replacement must add, in satoshi per 1,000 virtual bytes (Core 29 policy.h
# DEFAULT_INCREMENTAL_RELAY_FEE).
INCREMENTAL_RATE = 1_000
# Most transactions that one replacement may remove (Core policy/rbf.h MAX_REPLACEMENT_CANDIDATES).
MAX_REPLACED = 100


def least_fee(replaced: Iterable[Transaction], fees: Mapping[bytes, int], size: int) -> int:
    """Compute the lowest fee, in satoshi, of a transaction that replaces the `replaced` ones (rules 3 and 4).

    `replaced` includes descendants, `fees` contains the fee in satoshi for each txid, and `size` is the size of the new
    transaction in virtual bytes.
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
    """Check that a transaction may replace the transactions that it conflicts with.

    Raises RefusedError if the transaction may not replace them.

    Args:
        tx: The new transaction.
        fee: Fee of `tx` in satoshi.
        direct: The transactions that spend an output that `tx` also spends.
        counts: For each transaction in `direct`, the number of its descendants plus one.
        replaced: The transactions in `direct` and all their descendants.
        fees: Fees in satoshi, keyed by txid.
        mempool: The mempool's transactions, keyed by txid.
    """
    for other in direct:  # rule 6
        mine, theirs = _rate(fee, tx), _rate(fees[other.txid], other)
        if mine <= theirs:
            why = (
                f"it pays {mine} satoshi per 1,000 virtual bytes, but {hash_to_hex(other.txid)}, which it would"
                f" replace, pays {theirs}"
            )
            raise refused(tx, "insufficient fee", why)
    count = sum(counts)  # a descendant of several transactions counts several times, as in Core
    if count > MAX_REPLACED:  # rule 5
        why = f"it would remove {count} transactions, but at most {MAX_REPLACED} are allowed"
        raise refused(tx, "too many potential replacements", why)
    parents = {outpoint[:32] for other in direct for outpoint in other.inputs}
    for outpoint in tx.inputs:  # rule 2
        if outpoint[:32] in mempool and outpoint[:32] not in parents:
            parent = hash_to_hex(outpoint[:32])
            why = f"it spends the unconfirmed {parent}, which no transaction that it would replace spends"
            raise refused(tx, "replacement-adds-unconfirmed", why)
    least = least_fee(replaced, fees, tx.virtual_size)
    if fee < least:
        raise refused(
            tx,
            "insufficient fee",
            f"it pays a fee of {fee} satoshi, but needs {least} to replace {counted(len(replaced), 'transaction')}",
        )


def _rate(fee: int, tx: Transaction) -> int:
    """Return the fee rate in satoshi per 1,000 virtual bytes, rounded down as in Core's CFeeRate."""
    return fee * 1_000 // tx.virtual_size
