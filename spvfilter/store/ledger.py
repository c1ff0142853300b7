"""Ledger: stores a wallet's matches and transactions, and the values computed from them.

Computed values are unspent coins, net values, labels and totals. A commit updates them for each coin and transaction
that it changes. Reading a balance therefore means reading a few numbers, and a page of the history is a range of an
index.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.errors import StoreCorruptError
from spvfilter.kernel import Hit
from spvfilter.protocol import HASH_SIZE
from spvfilter.store.accounts import AccountRows, MatchEffect, effect_of, effects_by_account
from spvfilter.store.schema import MARKED
from spvfilter.store.sqlite import MarkedRows
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Completeness

UNCONFIRMED_PLACE = 1 << 62
"""First place of unconfirmed transactions in the history, above the places of all blocks."""
NOT_LISTED = -1
"""Place of a transaction that is not shown in the history."""
WAITING_PLACE = -2
"""Place of a matching foreign transaction that is not shown in the history because it is waiting."""
_MASK = (1 << 32) - 1
"""Highest position in a block."""
_OF_TX = (  # matches, each with the label and the account of its entry
    "SELECT spend, matches.value, entry, outpoint, label, account FROM matches LEFT JOIN watch ON watch.id = entry"
    " WHERE txid = ?"
)
_OF_COIN = (  # matches, each with the account of its entry
    "SELECT spend, txid, matches.value, script, entry, height, position, account FROM matches"
    " LEFT JOIN watch ON watch.id = entry WHERE outpoint = ?"
)


@public
class TxStatus(StrEnum):
    """The status of a wallet transaction."""

    CONFIRMED = "confirmed"
    """A block of the best chain contains it."""
    PENDING = "pending"
    """It is unconfirmed, and counts in `Balance.pending_in` and `Balance.pending_out`."""
    REPLACED = "replaced"
    """A later unconfirmed transaction replaced it or one of its ancestors. A block may still confirm it."""
    CONFLICTED = "conflicted"
    """A block contains a transaction that conflicts with it or with one of its ancestors."""
    ABANDONED = "abandoned"
    """The user abandoned it or one of its ancestors. A block may still confirm it."""
    EXPIRED = "expired"
    """It remained unconfirmed for 336 hours."""
    REFUSED = "refused"
    """The wallet broadcast it, and every peer that received it refused it. A block may still confirm it."""
    WAITING = "waiting"
    """It does not count yet.

    Somebody else's transaction waits until a second network group announces it. If peers already have a conflicting
    broadcast by this wallet, a new one waits until a peer requests it."""

    @property
    def counts(self) -> bool:
        """True if the transaction counts in balances: it is confirmed or pending."""
        return self in (TxStatus.CONFIRMED, TxStatus.PENDING)

    @property
    def is_open(self) -> bool:
        """True if the transaction is unconfirmed and may still win: it is pending, replaced or waiting."""
        return self in (TxStatus.PENDING, TxStatus.REPLACED, TxStatus.WAITING)


@public
class StoredMatch(NamedTuple):
    """A match in the database, and its block in the best chain."""

    hit: Hit
    """The output or input that matches."""
    block_hash: bytes | None
    """Block hash, 32 bytes in wire order. None while the match is unconfirmed."""
    height: int | None
    """Height of the block. None while the match is unconfirmed."""
    completeness: Completeness
    """How certain it is that no match in the block is missing."""
    time: int | None = None
    """Time of the block (Unix time). It comes from the header and is not stored with the match."""


def stored_completeness(text: str, path: pathlib.Path) -> Completeness:
    """Return the completeness in a row as an enum. Raises StoreCorruptError if it is unknown."""
    try:
        return Completeness(text)
    except ValueError:
        raise StoreCorruptError(f"{path}: a match has an unknown completeness, {text[:20]!r}") from None


@public
class StoredTx(NamedTuple):
    """A wallet transaction as the database stores it."""

    raw: bytes
    """Bytes of the transaction."""
    status: TxStatus
    """Status of the transaction."""
    broadcast_seq: int | None
    """Number of the wallet's latest broadcast of it. Numbers increase with time. None for a foreign transaction."""
    first_seen: int | None = None
    """When it was first seen unconfirmed (Unix time). None if it was first seen in a block.
    """
    first_height: int = 0
    """The searched height at that time."""
    expires_at: int = 0
    """When it expires unless a block contains it (Unix time)."""
    last_seen: int = 0
    """Number of the latest recorded observation, from the same counter as broadcasts. 0 if it was never observed."""
    dropped: str | None = None
    """Why the wallet dropped it: abandoned, rejected or expired. None if it did not."""
    dropped_seq: int = 0
    """Number of the drop, from the same counter."""
    block_hash: bytes | None = None
    """Hash of its block in the best chain, 32 bytes in wire order. None if it is not in a block."""
    height: int | None = None
    """Height of this block."""
    position: int | None = None
    """Position in this block, starting at 0."""
    conflicts_with: bytes | None = None
    """Txid of the transaction that replaced it or conflicts with it, 32 bytes in wire order."""
    is_listed: bool = True
    """True if the history shows it. Other rows only affect the status of listed transactions."""
    hits: tuple[Hit, ...] = ()
    """Its matches, if it does not count toward the balance. The database does not contain them."""
    signatures: str = "unknown"
    """Whether its signatures for the wallet's coins are known to be valid: valid or unknown."""
    counts_since: int | None = None
    """Number, from the same counter, of the observation or block since which it may count. None if it is waiting."""
    announced_by: str = ""
    """Network groups that announced it before it counted, one per line."""
    was_requested: bool = False
    """True if a peer requested or announced it after this wallet broadcast it."""

    @property
    def place(self) -> int:
        """Sort key of the transaction in the history.

        Transactions in blocks are sorted by height and position. Open ones come after them, in the order in which they
        were first seen. A transaction that ended without being confirmed comes right after the block that was the tip
        when it was first seen.
        """
        if not self.is_listed:
            return WAITING_PLACE if self.status is TxStatus.WAITING and self.hits else NOT_LISTED
        if self.status.is_open:
            return UNCONFIRMED_PLACE + 2 * (self.first_seen or 0) + (self.status is TxStatus.PENDING)
        if self.height is None:
            return place_of(self.first_height, _MASK)
        return place_of(self.height, self.position or 0)


def place_of(height: int, position: int) -> int:
    """Return the place that a transaction in a block has in the history."""
    return height << 32 | position


def kept_transactions(
    rows: Callable[[str, tuple[object, ...]], Iterable[tuple[Any, ...]]], above: int, own_above: int | None = None
) -> dict[bytes, StoredTx]:
    """Return, keyed by txid, all transactions that are not in a block, and confirmed ones above a height.

    The result also includes two kinds of deeper confirmed transactions:

    - A transaction that conflicts with an unconfirmed one.
    - A child of one of the wallet's own transactions that no block is known to contain: the child confirms its parent.

    Args:
        rows: Function that returns the rows of the "transactions" table that meet an SQL condition with these values.
        above: The height.
        own_above: A lower height, used for transactions that this wallet broadcast.
    """
    lowest = place_of(above + 1, 0)
    own_lowest = place_of(min(above, above if own_above is None else own_above) + 1, 0)
    where = (
        "status != 'confirmed' OR place < 0 OR place >= ? OR (place >= ? AND broadcast_seq IS NOT NULL)"
        " OR txid IN (SELECT conflicts_with FROM transactions WHERE status != 'confirmed') ORDER BY place, rowid"
    )
    found = {row[0]: stored_tx(row) for row in rows(where, (lowest, own_lowest))}
    old = [
        txid
        for txid, each in found.items()
        if each.status is TxStatus.PENDING and each.broadcast_seq is not None and each.first_height <= above
    ]
    for txid in old:
        found |= {row[0]: stored_tx(row) for row in rows("status = 'confirmed' AND instr(raw, ?) > 0", (txid,))}
    return found


class Totals(NamedTuple):
    """Sums over the unspent coins, in satoshi."""

    confirmed: int = 0
    """Sum of the unspent outputs in blocks."""
    pending_in: int = 0
    """Sum of the unspent outputs of unconfirmed transactions."""
    pending_out: int = 0
    """Sum of the outputs in blocks that an unconfirmed transaction spends."""
    trusted: int = 0
    """The part of `pending_in` from the wallet's own transactions that spend only its coins, trusted or in blocks."""

    def plus(
        self, value: int, height: int | None, spender: bytes | None, times: int = 1, *, is_trusted: bool = False
    ) -> Totals:
        """Return the totals after adding a coin (if `times` is 1) or removing it (-1)."""
        value *= times
        if height is None and spender is not None:
            return self
        if height is None:
            trusted = self.trusted + (value if is_trusted else 0)
            return self._replace(pending_in=self.pending_in + value, trusted=trusted)
        spent = value if spender is not None else 0
        return self._replace(confirmed=self.confirmed + value, pending_out=self.pending_out + spent)

    @classmethod
    def parse(cls, raw: bytes | None) -> Totals:
        """Parse the bytes in the database. They are decimal, because fake payments can add up to more than 64 bits.

        Totals of zero are stored as empty or missing values, whether or not there were coins before.
        """
        return cls(*map(int, (raw or b"").split()))

    def __bytes__(self) -> bytes:
        return " ".join(map(str, self)).encode("ascii") if any(self) else b""


class Ledger:
    """Stores matches and transactions within a commit and, at its end, the values computed from them."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path, accounts: AccountRows) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._accounts = accounts
        self._totals: dict[int | None, Totals] = {}
        """Totals of the wallet (under None), and of each account (under its id)."""
        self._before: dict[int | None, Totals | None] = {}
        """Earlier totals of the accounts whose totals the commit has changed. None for an account that had none."""
        self._unwritten: dict[int | None, Totals] = {}
        """The stored totals of the accounts whose totals have changed since `settle`."""
        self._coins: dict[bytes, None] = {}  # outpoints that the commit changes
        # transactions that the commit writes, keyed by txid; None deletes one
        self._txs: dict[bytes, StoredTx | None] = {}
        self._touched: dict[bytes, None] = {}  # txids whose matches or labels the commit changes

    def begin(self) -> None:
        """Begin a commit."""
        self._before.clear()

    def roll_back(self) -> None:
        """Restore the totals from before a failed commit."""
        for account, totals in self._before.items():
            if totals is None:
                self._totals.pop(account, None)
            else:
                self._totals[account] = totals
        self._before.clear()
        self._forget()

    def verify(self) -> None:
        """Raise StoreCorruptError unless the stored totals are the sums of the unspent coins."""
        sums: dict[int | None, Totals] = {None: Totals.parse(self._rows.meta("totals"))}
        sums.update((account, Totals.parse(raw)) for account, raw in self._accounts.totals())
        found: dict[int | None, Totals] = {account: Totals() for account in sums}
        query = (  # sums of the values' halves, which fit into 64 bits
            "SELECT account, height IS NULL, spender IS NOT NULL, trusted, sum(value >> 32), sum(value & 4294967295)"
            " FROM unspent GROUP BY 1, 2, 3, 4"
        )
        for account, is_pending, is_spent, trusted, high, low in self._db.execute(query):
            height, spender = None if is_pending else 0, b"" if is_spent else None
            for each in {None, account}:
                before = found.get(each, Totals())
                found[each] = before.plus((high << 32) + low, height, spender, is_trusted=bool(trusted))
        if sums != found:
            raise StoreCorruptError(f"{self._path}: the stored totals differ from the sums of the unspent coins")
        self._totals = sums

    def _forget(self) -> None:
        self._coins, self._txs, self._touched, self._unwritten = {}, {}, {}, {}

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
        above = (place_of(fork + 1, 0), UNCONFIRMED_PLACE, NOT_LISTED, fork, TxStatus.CONFIRMED.value)
        query = (
            "SELECT txid FROM transactions WHERE (place >= ? AND place < ? OR place = ? AND height > ?) AND status = ?"
        )
        for (txid,) in self._db.execute(query, above).fetchall():
            self._txs.setdefault(txid, None)

    def withdraw(self, identity: tuple[bool, bytes, int]) -> None:
        """Remove a match, given as (spend, txid, n)."""
        row = self._db.execute(
            "SELECT outpoint FROM matches WHERE spend = ? AND txid = ? AND n = ?", identity
        ).fetchone()
        if row is not None:
            self._touch(identity[1], row[0])
            self._rows.remove("matches", "spend = ? AND txid = ? AND n = ?", identity)

    def put(self, found: StoredMatch, entry: int) -> None:
        """Store a match, replacing its earlier state. `entry` is the row id of its entry in the watch list."""
        hit, block, height, completeness, _ = found
        self._touch(hit.txid, hit.outpoint)
        place = (int(hit.spend), hit.txid, hit.n, hit.position, hit.outpoint)
        same = "spend = ? AND txid = ? AND n = ?", place[:3]
        self._rows.put("matches", (*place, hit.value, hit.script, entry, block, height, completeness.value), *same)

    def keep(self, txid: bytes, tx: StoredTx | None) -> None:
        """Store a transaction, or delete it if `tx` is None."""
        self._txs[txid] = tx

    def keep_branch(self, txid: bytes, block: bytes, branch: bytes) -> None:
        """Store the merkle branch of a transaction in a block."""
        self._rows.put("branches", (txid, block, branch), "txid = ?", (txid,))

    def moved(self, entries: Collection[int]) -> None:
        """Update the coins and transactions of entries whose account has changed."""
        for txid, outpoint, entry in self._db.execute("SELECT txid, outpoint, entry FROM matches").fetchall():
            if entry in entries:
                self._touch(txid, outpoint)

    def relabelled(self, entry: int) -> None:
        """Update the transactions of an entry whose label has changed."""
        for (txid,) in self._db.execute("SELECT DISTINCT txid FROM matches WHERE entry = ?", (entry,)):
            self._touched[txid] = None

    def _touch(self, txid: bytes, outpoint: bytes) -> None:
        self._touched[txid] = None
        self._coins[outpoint] = None

    # At its end

    def settle(self) -> None:
        """Compute and store the values that depend on the changes."""
        for outpoint in self._coins:  # a spend belongs to the account of the output that it spends
            query = "SELECT txid FROM matches WHERE outpoint = ? AND spend = 1"
            self._touched.update((txid, None) for (txid,) in self._db.execute(query, (outpoint,)))
        for txid in dict.fromkeys([*self._txs, *self._touched]):
            self._settle_tx(txid)
        coins: Iterable[bytes] = self._coins
        while spenders := dict.fromkeys(filter(None, map(self._settle_coin, coins))):
            coins = [outpoint for txid in spenders for outpoint in self._outputs_of(txid)]
        for account, before in self._unwritten.items():
            if (totals := self._totals[account]) == before:
                continue
            if account is None:
                self._rows.set_meta("totals", bytes(totals) or None)
            else:
                self._accounts.write_totals(account, bytes(totals))
        self._forget()

    def drop_account(self, account: int) -> None:
        """Forget the totals of a removed account."""
        self._before.setdefault(account, self._totals.pop(account, None))

    def _settle_coin(self, outpoint: bytes) -> bytes | None:
        """Store the row of a coin. Returns its pending spender if the outputs of that may be trusted now, or no longer.

        A pending coin is trusted only if all coins that its transaction spends are trusted or in blocks.
        """
        made, spender, is_spent = None, None, False
        for spend, txid, value, script, entry, height, position, account in self._db.execute(_OF_COIN, (outpoint,)):
            if not spend:
                is_coinbase = height is not None and position == 0
                place = UNCONFIRMED_PLACE if height is None else place_of(height, position)
                made = (entry, value, script, height, int(is_coinbase), place, account)
            elif height is not None:
                is_spent = True
            else:
                spender = txid if spender is None else min(spender, txid)
        row = None
        if made is not None and not is_spent:
            *output, height, is_coinbase, place, account = made
            is_trusted = height is None and self._is_trusted(outpoint[:HASH_SIZE])
            row = (outpoint, *output, height, is_coinbase, spender, place, int(is_trusted), account)
        old = self._db.execute(f"SELECT {MARKED['unspent']} FROM unspent WHERE outpoint = ?", (outpoint,)).fetchone()
        if old == row:
            return None
        if old is not None:
            self._rows.remove("unspent", "outpoint = ?", (outpoint,))
            self._count(old, -1)
        if row is not None:
            self._rows.insert("unspent", row)
            self._count(row, 1)
        return spender if _may_support(old) != _may_support(row) else None

    def _is_trusted(self, txid: bytes) -> bool:
        """Return True if the wallet broadcast a transaction that spends only its coins, each trusted or in a block."""
        query = (
            "SELECT broadcast_seq IS NOT NULL AND fee IS NOT NULL AND NOT EXISTS (SELECT 1 FROM matches CROSS JOIN"
            " unspent USING (outpoint) WHERE matches.spend = 1 AND matches.txid = transactions.txid AND"
            " unspent.height IS NULL AND unspent.trusted = 0) FROM transactions WHERE txid = ?"
        )
        row = self._db.execute(query, (txid,)).fetchone()
        return row is not None and bool(row[0])

    def _outputs_of(self, txid: bytes) -> list[bytes]:
        """Return the outpoints of the wallet's outputs that a transaction creates."""
        query = "SELECT outpoint FROM matches WHERE txid = ? AND spend = 0"
        return [outpoint for (outpoint,) in self._db.execute(query, (txid,))]

    def _count(self, row: tuple[Any, ...], times: int) -> None:
        """Add a row of `unspent` to the totals of the wallet and its account (if `times` is 1), or subtract it (-1)."""
        _, _, value, _, height, _, spender, _, trusted, account = row
        for each in {None, account}:
            before = self._totals.get(each, Totals())
            self._before.setdefault(each, self._totals.get(each))
            self._unwritten.setdefault(each, before)
            self._totals[each] = before.plus(value, height, spender, times, is_trusted=bool(trusted))

    def _settle_tx(self, txid: bytes) -> None:
        stored = self._db.execute(
            f"SELECT {MARKED['transactions']} FROM transactions WHERE txid = ?", (txid,)
        ).fetchone()
        old = None if stored is None else stored_tx(stored)
        tx = self._txs.get(txid, old)
        if tx is None:
            self._rows.remove("tx_labels", "txid = ?", (txid,))
            self._rows.remove("account_txs", "txid = ?", (txid,))
            self._rows.remove("held", "txid = ?", (txid,))
            self._rows.remove("transactions", "txid = ?", (txid,))
            self._rows.remove("branches", "txid = ?", (txid,))
            return
        if old is not None and tx is not old and old.status is tx.status is TxStatus.CONFIRMED:  # in a deep block
            tx = tx._replace(
                raw=tx.raw if old.broadcast_seq is None else old.raw,
                broadcast_seq=max((old.broadcast_seq or 0), (tx.broadcast_seq or 0)) or None,
                first_seen=old.first_seen if tx.first_seen is None else tx.first_seen,
            )
        if tx.status.counts:
            rows = self._db.execute(_OF_TX, (txid,)).fetchall()
        elif txid in self._txs:
            rows = [(hit.spend, hit.value, hit.entry, hit.outpoint, *self._owner_of(hit.entry)) for hit in tx.hits]
        else:
            return  # the books write its row with every change to its matches and labels
        found = [self._effect_of(*row) for row in rows]
        raw, parsed = tx.raw, None if not any(each.is_spend for each in found) else Transaction.parse(tx.raw)
        whole = effect_of(found, parsed)
        evidence = (tx.signatures, tx.counts_since, tx.announced_by, int(tx.was_requested))
        row = (txid, raw, tx.status.value, *tx[2:13], tx.place, whole.net, whole.fee, *evidence)
        if stored != row:
            self._rows.put("transactions", row, "txid = ?", (txid,))
            self._coins.update((outpoint, None) for spend, _, _, outpoint, *_ in rows if not spend)  # trust may change
        if stored is not None:
            self._rows.remove("tx_labels", "txid = ?", (txid,))
            self._rows.remove("account_txs", "txid = ?", (txid,))
        if tx.broadcast_seq is not None:
            self._rows.remove("held", "txid = ?", (txid,))
        if tx.broadcast_seq is not None and tx.status is TxStatus.WAITING:
            for outpoint in dict.fromkeys(outpoint for spend, _, _, outpoint, *_ in rows if spend):
                self._rows.insert("held", (outpoint, txid))
        for label in whole.labels:
            self._rows.insert("tx_labels", (txid, label, tx.place))
        for account, effect in effects_by_account(found, parsed).items() if tx.place != NOT_LISTED else ():
            labels = "\n".join(effect.labels)
            self._rows.insert("account_txs", (account, txid, tx.place, effect.net, effect.fee, labels))

    def _owner_of(self, entry: int) -> tuple[str | None, int | None]:
        """Return the label and the account of an entry."""
        query = "SELECT label, account FROM watch WHERE id = ?"
        label, account = self._db.execute(query, (entry,)).fetchone()
        return label, account

    def _effect_of(
        self, spend: int, value: int, entry: int, outpoint: bytes, label: str | None, account: int | None
    ) -> MatchEffect:
        """Return the contribution of a match to its transaction. A spend belongs to the account of the spent output."""
        if spend:
            query = "SELECT entry FROM matches WHERE outpoint = ? AND spend = 0"
            (owner,) = self._db.execute(query, (outpoint,)).fetchone() or (entry,)
            account = self._accounts.of_entry(owner)
        return MatchEffect(bool(spend), value, label, account)


def _may_support(coin: Sequence[Any] | None) -> bool:
    """True if outputs of a transaction that spends this row of `unspent` may be trusted. None stands for no row."""
    return coin is None or coin[4] is not None or bool(coin[8])


def stored_tx(row: Sequence[Any]) -> StoredTx:
    """Create a transaction from its row."""
    _, raw, status, *facts, place, _, _, signatures, counts_since, announced_by, was_requested = row
    evidence = (signatures, counts_since, announced_by, bool(was_requested))
    return StoredTx._make((raw, TxStatus(status), *facts, place >= 0, (), *evidence))
