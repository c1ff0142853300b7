"""Facts from a database about a transaction's inputs, used to check the transaction."""

from __future__ import annotations

import pathlib
import sqlite3

from spvfilter.errors import StoreCorruptError
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.protocol import HEADER_SIZE
from spvfilter.store.headers import PER_ROW
from spvfilter.store.ledger import StoredTx, TxStatus, stored_tx
from spvfilter.store.txcheck import CheckCause, CheckFinding, CheckWeight, FeeLimits, KnownParent, Replaced
from spvfilter.store.windowviews import Checked
from spvfilter.transaction import Transaction

_MEDIAN_SPAN = 11  # number of headers (Core chain.h nMedianTimeSpan)


class StoreFacts:
    """A database's facts for checking a transaction. All reads must see the same commit.

    A database does not know what peers accept or which fees they require.
    """

    def __init__(self, checked: Checked, db: sqlite3.Connection, path: pathlib.Path, tip: int) -> None:
        self._checked = checked
        self._db = db
        self._path = path
        self.tip: int = tip
        """Height of the tip, or -1 if there is none."""
        self.fee_limits: FeeLimits | None = None
        """None, because no peer is connected."""

    def median_time(self, height: int) -> int:
        """Return the median time of the 11 headers up to a height, as Unix time."""
        times = sorted(self._time(each) for each in range(max(0, height - _MEDIAN_SPAN + 1), height + 1))
        return times[len(times) // 2]

    def _time(self, height: int) -> int:
        row = self._db.execute(
            "SELECT substr(raw, ?, 4) FROM headers WHERE first = ?",
            (height % PER_ROW * HEADER_SIZE + 69, height - height % PER_ROW),
        ).fetchone()
        if row is None or not isinstance(row[0], bytes) or len(row[0]) != 4:
            raise StoreCorruptError(f"{self._path}: the header at height {height} is missing or damaged")
        return int.from_bytes(row[0], "little")

    def _stored(self, txid: bytes) -> StoredTx | None:
        row = next(self._checked("transactions", "FROM transactions WHERE txid = ?", (txid,)), None)
        return None if row is None else stored_tx(row)

    def parent(self, outpoint: bytes) -> KnownParent:
        """Return what the database knows about the transaction that an outpoint refers to."""
        stored, index = self._stored(outpoint[:32]), OutPoint.parse(outpoint).index
        if stored is None:
            return KnownParent()
        tx, is_confirmed = Transaction.parse(stored.raw), stored.status is TxStatus.CONFIRMED
        count = len(tx.span.outputs)
        output: TxOut | None = tx.output(index) if index < count else None
        return KnownParent(count, output, stored.height if is_confirmed else None, not is_confirmed, tx.is_coinbase)

    def conflict(self, tx: Transaction) -> CheckFinding | None:
        """Return a finding if a block contains the transaction or a conflicting one."""
        stored = self._stored(tx.txid)
        if stored is not None and stored.status is TxStatus.CONFIRMED:
            message = "a block contains the transaction"
            return CheckFinding(CheckCause.CONFIRMED, CheckWeight.INVALID, message, tx.txid, tx.txid, stored.height)
        where = "FROM matches WHERE outpoint = ? AND spend = 1 AND height IS NOT NULL"
        for outpoint in tx.inputs:
            for row in self._checked("matches", where, (outpoint,)):
                by, height = row[1], row[9]
                message = f"it conflicts with {hash_to_hex(by)}, which is in a block"
                return CheckFinding(CheckCause.CONFLICT, CheckWeight.INVALID, message, tx.txid, by, height)
        return None

    def family_conflict(self, tx: Transaction) -> CheckFinding | None:
        """Return a finding if a parent conflicts with a block or was abandoned."""
        for parent in dict.fromkeys(outpoint[:32] for outpoint in tx.inputs):
            stored, name = self._stored(parent), hash_to_hex(parent)
            if stored is None or stored.status not in (TxStatus.CONFLICTED, TxStatus.ABANDONED):
                continue
            if stored.status is TxStatus.ABANDONED:
                message = f"it spends from {name}, which was abandoned: broadcast {name} first, or spend other coins"
                return CheckFinding(CheckCause.ABANDONED_PARENT, CheckWeight.INVALID, message, tx.txid, parent)
            message = f"it spends from {name}, which conflicts with a transaction in a block"
            return CheckFinding(CheckCause.CONFLICT, CheckWeight.INVALID, message, tx.txid, stored.conflicts_with)
        return None

    def replaced(self, tx: Transaction) -> list[Replaced]:
        """Return our pending transactions that share an input with `tx`. Peers may not have accepted them."""
        where = "FROM matches WHERE outpoint = ? AND spend = 1 AND height IS NULL"
        found = dict[bytes, Replaced]()
        for outpoint in tx.inputs:
            for row in self._checked("matches", where, (outpoint,)):
                stored = self._stored(row[1])
                if row[1] != tx.txid and stored is not None and stored.broadcast_seq is not None:
                    found[row[1]] = Replaced(row[1], 0, is_accepted=False)
        return list(found.values())

    def was_refused(self, tx: Transaction) -> bool:
        """Return True if peers have refused exactly these bytes."""
        stored = self._stored(tx.txid)
        return stored is not None and stored.raw == tx.raw and stored.status is TxStatus.REFUSED
