"""Ledger in the wallet's database: matches and transactions, and what follows from them: unspent coins, net values,
labels and totals.

What follows is written in the same commit, for the coins and transactions that the commit touches: a balance is then
three numbers, a page of the history a range of an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple  # rows are as SQLite gives them

from spvfilter._public import deferred, public
from spvfilter.errors import StoreCorruptError
from spvfilter.kernel import NO_VALUE, Hit
from spvfilter.store.schema import MARKED
from spvfilter.store.sqlite import MarkedRows
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import pathlib
    import sqlite3
else:
    pathlib = deferred("pathlib")
    sqlite3 = deferred("sqlite3")

UNCONFIRMED_PLACE = 1 << 62  # above the place of every block
_MASK = (1 << 32) - 1
_MOST = (
    1 << 63
) - 1  # satoshi that a column holds; blocks that nobody validated may state more, where work costs next to nothing


@public
class TxStatus(StrEnum):
    """What became of a transaction that concerns the wallet."""

    CONFIRMED = "confirmed"
    """A block of the best chain has it."""
    PENDING = "pending"
    """Unconfirmed, and counted."""
    REPLACED = "replaced"
    """A later transaction, also unconfirmed, spends what it or an ancestor spends; a block may have it yet."""
    CONFLICTED = "conflicted"
    """A block has a transaction that spends what it or an ancestor spends."""
    ABANDONED = "abandoned"
    """Given up by the user, or a descendant of such a one; a block may have it yet."""
    EXPIRED = "expired"
    """Unconfirmed for 336 hours."""
    REFUSED = "refused"
    """Broadcast here, and refused by every peer that was given it; a block may have it yet."""


LIVE = (TxStatus.CONFIRMED, TxStatus.PENDING)  # whose matches are in the database and count
UNCONFIRMED = (TxStatus.PENDING, TxStatus.REPLACED)  # that may be confirmed


@public
class StoredMatch(NamedTuple):
    """A match in the database: the hit and its block in the best chain; block hash and height are None while it is
    unconfirmed.
    """

    hit: Hit
    block_hash: bytes | None
    height: int | None
    completeness: Completeness
    time: int | None = None
    """Of the block, seconds since 1970; not stored with the match, as its header is."""


def stored_completeness(text: str, path: pathlib.Path) -> Completeness:
    """The completeness in a row of the database at `path`. Raises StoreCorruptError for an unknown one."""
    try:
        return Completeness(text)
    except ValueError:
        raise StoreCorruptError(f"{path}: a match has the unknown completeness {text[:20]!r}") from None


@public
class StoredTx(NamedTuple):
    """A transaction that concerns the wallet."""

    raw: bytes
    status: TxStatus
    own: int
    """The number of its last broadcast here, the higher the later; 0: others sent it."""
    seen: int | None = None
    """When it was first seen unconfirmed, seconds since 1970."""
    since: int | None = None
    """From when on its 336 hours count; later than `seen` after a reorganisation."""
    block_hash: bytes | None = (
        None  # of the block that has it; of one that is conflicted, of the block that has its rival
    )
    height: int | None = (
        None  # of that block; of one that was abandoned or expired, up to which blocks had been searched then
    )
    position: int | None = None
    """In its block."""
    rival: bytes | None = None
    """Txid of what replaced it or conflicts with it."""
    hits: tuple[Hit, ...] = ()
    """Its matches where they are no longer in the database; they are not stored."""

    @property
    def place(self) -> int:
        """Its place in the history, in ascending order: by block and position, then what is unconfirmed by its second
        of arrival.
        """
        if self.status in UNCONFIRMED:
            return UNCONFIRMED_PLACE + 2 * (self.seen or 0) + (self.status is TxStatus.PENDING)
        return place_of(self.height or 0, _MASK if self.position is None else self.position)


def place_of(height: int, position: int) -> int:
    """The place of a transaction in a block."""
    return height << 32 | position


@public
class Ended(NamedTuple):
    """A transaction that no longer counts, but is kept."""

    txid: bytes
    status: TxStatus
    size: int
    """Bytes."""
    tx: StoredTx | None
    """Only of what was broadcast here."""


class Totals(NamedTuple):
    """Sums over the unspent coins, in satoshi."""

    confirmed: int = 0
    """Of outputs in blocks."""
    pending_in: int = 0
    """Of outputs of unconfirmed transactions that no other spends."""
    pending_out: int = 0
    """Of those in blocks that an unconfirmed transaction spends."""

    def plus(self, value: int, height: int | None, spender: bytes | None, times: int = 1) -> Totals:
        """With one more coin, or one less."""
        value *= times
        if height is None:
            return self if spender is not None else self._replace(pending_in=self.pending_in + value)
        spent = value if spender is not None else 0
        return self._replace(confirmed=self.confirmed + value, pending_out=self.pending_out + spent)

    @classmethod
    def parse(cls, raw: bytes | None) -> Totals:
        """From the database. A stranger can invent outputs whose sum does not fit into 64 bits."""
        return cls() if raw is None else cls(*map(int, raw.split()))

    def __bytes__(self) -> bytes:
        return " ".join(map(str, self)).encode("ascii")


class Ledger:
    """Writes matches and transactions within a commit, and at its end what follows from them."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._totals = Totals()
        self._coins: dict[bytes, None] = {}  # outpoints that the commit touches
        self._txs: dict[bytes, StoredTx | None] = {}  # by txid: what the commit makes of it
        self._touched: dict[bytes, None] = {}  # txids whose matches or labels the commit changes

    def state(self) -> Totals:
        """The totals now, for `reset`."""
        return self._totals

    def reset(self, totals: Totals) -> None:
        """Forget what a commit that failed has touched: the totals are as they were."""
        self._totals = totals
        self._forget()

    def verify(self) -> None:
        """Read the totals. Raises StoreCorruptError if they are not the sums over the unspent coins."""
        query = (  # halves of the values: a sum of them fits into 64 bits
            "SELECT coalesce(sum(value >> 32), 0), coalesce(sum(value & 4294967295), 0) FROM unspent WHERE height IS "
        )
        parts = ("NOT NULL", "NULL AND spender IS NULL", "NOT NULL AND spender IS NOT NULL")
        sums = [(high << 32) + low for high, low in (self._db.execute(query + part).fetchone() for part in parts)]
        if Totals(*sums) != Totals.parse(self._rows.meta("totals")):
            raise StoreCorruptError(f"{self._path}: the totals are not the sums of the unspent coins")
        self.reset(Totals(*sums))

    def _forget(self) -> None:
        self._coins, self._txs, self._touched = {}, {}, {}

    # Within a commit

    def cut(self, fork: int) -> None:
        """Remove the matches and transactions of the blocks above a height."""
        for txid, outpoint in self._db.execute(
            "SELECT txid, outpoint FROM matches WHERE height > ?", (fork,)
        ).fetchall():
            self._touch(txid, outpoint)
        self._rows.remove("matches", "height > ?", (fork,))
        for txid, tx in self._txs.items():
            if tx is not None and tx.status is TxStatus.CONFIRMED and (tx.height or 0) > fork:
                self._txs[txid] = None
        above = (place_of(fork + 1, 0), UNCONFIRMED_PLACE, TxStatus.CONFIRMED.value)
        for (txid,) in self._db.execute(
            "SELECT txid FROM transactions WHERE place >= ? AND place < ? AND status = ?", above
        ).fetchall():
            self._txs.setdefault(txid, None)

    def withdraw(self, identity: tuple[bool, bytes, int]) -> None:
        """Remove a match (spend, txid, n)."""
        row = self._db.execute(
            "SELECT outpoint FROM matches WHERE spend = ? AND txid = ? AND n = ?", identity
        ).fetchone()
        if row is not None:
            self._touch(identity[1], row[0])
            self._rows.remove("matches", "spend = ? AND txid = ? AND n = ?", identity)

    def put(self, found: StoredMatch, entry: int) -> None:
        """Write a match, in place of its earlier state; `entry` is the id of its row in the watch list."""
        hit, block, height, completeness, _ = found
        self._touch(hit.txid, hit.outpoint)
        self._rows.remove("matches", "spend = ? AND txid = ? AND n = ?", (hit.spend, hit.txid, hit.n))
        place = (int(hit.spend), hit.txid, hit.n, hit.position, hit.outpoint)
        self._rows.insert("matches", (*place, hit.value, hit.script, entry, block, height, completeness.value))

    def keep(self, txid: bytes, tx: StoredTx | None) -> None:
        """Write what is known of a transaction, or forget it."""
        self._txs[txid] = tx

    def drop_unmatched(self, txids: Iterable[bytes]) -> None:
        """Forget those transactions that no entry matches any more, but for unconfirmed ones that were broadcast
        here.
        """
        for txid in dict.fromkeys(txids):
            if self._db.execute("SELECT 1 FROM matches WHERE txid = ?", (txid,)).fetchone() is not None:
                continue
            stored = self._db.execute(
                f"SELECT {MARKED['transactions']} FROM transactions WHERE txid = ?", (txid,)
            ).fetchone()
            tx = self._txs.get(txid, None if stored is None else stored_tx(stored))
            if tx is None or not tx.own or tx.status is TxStatus.CONFIRMED:
                self._txs[txid] = None

    def relabelled(self, entry: int) -> None:
        """The label of an entry has changed."""
        for (txid,) in self._db.execute("SELECT DISTINCT txid FROM matches WHERE entry = ?", (entry,)):
            self._touched[txid] = None

    def _touch(self, txid: bytes, outpoint: bytes) -> None:
        self._touched[txid] = None
        self._coins[outpoint] = None

    # At its end

    def settle(self) -> None:
        """Write what follows from the changes."""
        before = self._totals
        for outpoint in self._coins:
            self._settle_coin(outpoint)
        for txid in dict.fromkeys([*self._txs, *self._touched]):
            self._settle_tx(txid)
        if self._totals != before:
            self._rows.set_meta("totals", bytes(self._totals))
        self._forget()

    def _settle_coin(self, outpoint: bytes) -> None:
        made, spender, is_spent = None, None, False
        query = "SELECT spend, txid, value, script, entry, height, position FROM matches WHERE outpoint = ?"
        for spend, txid, value, script, entry, height, position in self._db.execute(query, (outpoint,)):
            if not spend:
                is_coinbase = height is not None and position == 0
                place = UNCONFIRMED_PLACE if height is None else place_of(height, position)
                made = (entry, value, script, height, int(is_coinbase), place)
            elif height is not None:
                is_spent = True
            else:
                spender = txid if spender is None else min(spender, txid)
        row = None
        if made is not None and not is_spent:
            *coin, place = made
            row = (outpoint, *coin, spender, place)
        query = (
            "SELECT outpoint, entry, value, script, height, coinbase, spender, place FROM unspent WHERE outpoint = ?"
        )
        old = self._db.execute(query, (outpoint,)).fetchone()
        if old == row:
            return
        if old is not None:
            self._rows.remove("unspent", "outpoint = ?", (outpoint,))
            self._totals = self._totals.plus(old[2], old[4], old[6], -1)
        if row is not None:
            self._rows.insert("unspent", row)
            self._totals = self._totals.plus(row[2], row[4], row[6])

    def _settle_tx(self, txid: bytes) -> None:
        stored = self._db.execute(
            f"SELECT {MARKED['transactions']} FROM transactions WHERE txid = ?", (txid,)
        ).fetchone()
        old = None if stored is None else stored_tx(stored)
        tx = self._txs.get(txid, old)
        if tx is None:
            self._rows.remove("tx_labels", "txid = ?", (txid,))
            self._rows.remove("transactions", "txid = ?", (txid,))
            return
        if old is not None and old.status is tx.status is TxStatus.CONFIRMED:  # found again, for another entry
            tx = tx._replace(
                raw=old.raw if old.own else tx.raw,
                own=max(old.own, tx.own),
                seen=old.seen if tx.seen is None else tx.seen,
            )
        labels, net, fee = self._effect(txid, tx, stored)
        row = (txid, tx.raw, tx.status.value, *tx[2:-1], tx.place, net, fee)
        if stored != row:
            self._rows.remove("transactions", "txid = ?", (txid,))
            self._rows.insert("transactions", row)
        self._rows.remove("tx_labels", "txid = ?", (txid,))
        for label in labels:
            self._rows.insert("tx_labels", (txid, label, tx.place))

    def _effect(self, txid: bytes, tx: StoredTx, stored: tuple[Any, ...] | None) -> tuple[list[str], int, int | None]:
        """The labels of the entries that it matches, its net value and its fee."""
        if tx.status in LIVE:
            query = "SELECT spend, value, entry FROM matches WHERE txid = ?"
            found = self._db.execute(query, (txid,)).fetchall()
        elif tx.hits or stored is None:
            found = [(hit.spend, hit.value, hit.entry) for hit in tx.hits]
        else:
            query = "SELECT label FROM tx_labels WHERE txid = ?"
            return [label for (label,) in self._db.execute(query, (txid,))], stored[-2], stored[-1]
        spent = [value for spend, value, _ in found if spend]
        net = sum(value for spend, value, _ in found if not spend) - sum(value for value in spent if value != NO_VALUE)
        return self._labels({entry for *_, entry in found}), max(-_MOST, min(net, _MOST)), _fee(tx.raw, spent)

    def _labels(self, entries: Iterable[int]) -> list[str]:
        query = "SELECT label FROM watch WHERE id = ?"
        labels = (self._db.execute(query, (entry,)).fetchone()[0] for entry in entries)
        return sorted({label for label in labels if label is not None})


def _fee(raw: bytes, spent: list[int]) -> int | None:
    """The fee of a transaction that spends coins of these values, where these are all its inputs and every value is
    known.
    """
    if not spent or NO_VALUE in spent:
        return None
    tx = Transaction.parse(raw)
    fee = sum(spent) - sum(output.value for output in tx.outputs)
    return min(fee, _MOST) if len(spent) == len(tx.span.inputs) and fee >= 0 else None


def stored_tx(row: Sequence[Any]) -> StoredTx:
    """A row of the table of transactions."""
    _, raw, status, own, seen, since, block, height, position, rival, *_ = row
    return StoredTx(raw, TxStatus(status), own, seen, since, block, height, position, rival)
