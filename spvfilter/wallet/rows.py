"""Conversion of transactions between the books' records and the database's rows."""

from __future__ import annotations

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.txgraph import Anchor, DropReason, LatestDrop, Signatures, TxRecord

ROW_STATUS = {
    Status.CONFIRMED: TxStatus.PENDING,  # through a child: no block is known to contain the transaction itself
    Status.CANONICAL: TxStatus.PENDING,
    Status.REPLACED: TxStatus.REPLACED,
    Status.CONFLICTED: TxStatus.CONFLICTED,
    Status.ABANDONED: TxStatus.ABANDONED,
    Status.REJECTED: TxStatus.REFUSED,
    Status.EXPIRED: TxStatus.EXPIRED,
    Status.WAITING: TxStatus.WAITING,
}
"""The status that the database stores for a transaction outside the best chain, by the status of its verdict."""
_STATUS = {row: status for status, row in ROW_STATUS.items()} | {TxStatus.CONFIRMED: Status.CONFIRMED}


def status_of(status: TxStatus) -> Status:
    """Return the verdict's status that corresponds to the status stored in a row."""
    return _STATUS[status]


def record_of(row: StoredTx) -> TxRecord:
    """Return the record of a stored transaction. Raises FormatError."""
    block = row.block_hash
    anchors = [] if block is None or row.height is None else [Anchor(row.height, block, row.position or 0)]
    return TxRecord.parse(row.raw)._replace(
        anchors=frozenset(anchors),
        first_seen=row.first_seen,
        first_height=row.first_height,
        expires_at=row.expires_at,
        last_seen=row.last_seen,
        broadcast_seq=row.broadcast_seq,
        dropped=None if row.dropped is None else LatestDrop(DropReason(row.dropped), row.dropped_seq),
        signatures=Signatures(row.signatures),
        counts_since=row.counts_since,
        announced_by=tuple(row.announced_by.split("\n")) if row.announced_by else (),
        was_requested=row.was_requested,
    )


def row_of(
    record: TxRecord,
    status: TxStatus,
    conflicts_with: bytes | None,
    anchor: Anchor | None,
    hits: tuple[Hit, ...],
    *,
    is_listed: bool,
) -> StoredTx:
    """Return a transaction's complete row.

    Args:
        record: The facts about the transaction.
        status: The status that follows from them.
        conflicts_with: Txid of the transaction that replaced it or conflicts with it.
        anchor: The block of the best chain that contains it.
        hits: Its matches, if no block contains it.
        is_listed: True if the history shows it, because this wallet broadcast it or it matches and has evidence.
    """
    return StoredTx(
        record.raw,
        status,
        record.broadcast_seq,
        record.first_seen,
        record.first_height,
        record.expires_at,
        record.last_seen,
        None if record.dropped is None else record.dropped.reason.value,
        0 if record.dropped is None else record.dropped.number,
        None if anchor is None else anchor.block_hash,
        None if anchor is None else anchor.height,
        None if anchor is None else anchor.position,
        conflicts_with,
        is_listed,
        hits,
        record.signatures.value,
        record.counts_since,
        "\n".join(record.announced_by),
        record.was_requested,
    )
