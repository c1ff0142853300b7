"""Views of a wallet's database: balance, coins and history, each of one moment, whoever writes meanwhile.

Every row read is checked.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, Self, TypeVar  # rows are as SQLite gives them

from spvfilter._dataclass import dataclass, field
from spvfilter._public import deferred, public
from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import ParameterError, StoreCorruptError
from spvfilter.hashes import sha256d
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.protocol import COINBASE_MATURITY, HEADER_SIZE
from spvfilter.store.events import EventLog
from spvfilter.store.headers import PER_ROW
from spvfilter.store.ledger import Totals, TxStatus, stored_completeness
from spvfilter.store.schema import MARKED
from spvfilter.store.searched import BlockRange, Searched, common, gaps
from spvfilter.store.sqlite import mark, translated
from spvfilter.store.windowviews import (
    KeychainStatus,
    chosen,
    is_script_used,
    keychains_of,
    narrowed,
    next_of,
    place_of_entry,
)
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import pathlib
    import sqlite3
else:
    pathlib = deferred("pathlib")
    sqlite3 = deferred("sqlite3")

T = TypeVar("T")

DEFAULT_LIMIT = 100  # entries of a page
_TOP = (1 << 63) - 1  # above every place
_COLUMNS = {  # of each table, with their mark
    table: ", ".join(f"{table}.{column}" for column in (*columns.split(", "), "mark"))
    for table, columns in MARKED.items()
}


@public
class Snapshot(list[T]):
    """A list of what there was at one moment, with the number of the last event that it includes: `sequence`.

    The events that follow that number tell all that has changed since, and nothing that is in the list already.
    """

    __slots__ = ("sequence",)

    def __init__(self, entries: Iterable[T], sequence: int) -> None:
        super().__init__(entries)
        self.sequence = sequence

    def __reduce__(self) -> tuple[type[Self], tuple[list[T], int]]:
        return type(self), (list(self), self.sequence)


@public
@dataclass(frozen=True, slots=True)
class Balance:
    """What the wallet has, in satoshi. Outputs that were found count, whatever entry of the watch list they match."""

    confirmed: int
    """Outputs in the best chain that no transaction of it spends, but for immature ones; what is pending changes
    nothing.
    """
    immature: int
    """Outputs of coinbases with fewer than 100 confirmations, which the next block may not spend."""
    pending_in: int
    """Outputs of pending transactions that no pending transaction spends: payments, and the change of own spends."""
    pending_out: int
    """Outputs in the best chain that pending transactions spend, each with its whole value."""
    spendable: int
    """What of `confirmed` no pending transaction spends; change counts once a block has it."""
    sequence: int = field(default=0, compare=False, repr=False)
    """Number of the last event that it includes, as of a Snapshot."""

    @property
    def total(self) -> int:
        """What the wallet has once blocks have all that is pending: confirmed + immature + pending_in - pending_out."""
        return self.confirmed + self.immature + self.pending_in - self.pending_out


@public
@dataclass(frozen=True, slots=True)
class Coin:
    """An output that no transaction of the best chain spends, in a block of it or pending."""

    outpoint: OutPoint
    value: int
    """Satoshi."""
    script_pubkey: bytes
    address: str | None
    """Of the scriptPubKey, if it has one."""
    label: str | None
    """Of the entry that it matches."""
    height: int | None
    """None while it is pending."""
    is_coinbase: bool
    is_spendable: bool
    """In a block, mature, and not spent by a pending transaction."""
    spent_by: bytes | None
    """Txid of the pending transaction that spends it."""
    cursor: str
    """To go on behind it."""
    time: int | None = None
    """Of its block, seconds since 1970; None while it is pending."""
    completeness: Completeness | None = None
    """Of its block: how certain it is that no match in it is missing."""
    keychain: str | None = None
    """Name of the keychain whose script it pays."""
    keychain_index: int | None = None
    """Index of the script there."""


@public
@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A transaction that concerns the wallet, and what became of it."""

    txid: bytes
    """32 bytes, wire order."""
    net: int
    """Satoshi: outputs that match less inputs that match and whose value is known; of what no longer counts, as it
    was.
    """
    fee: int | None
    """Satoshi, where every input matches and its value is known."""
    status: TxStatus
    height: int | None
    """Of its block; None unless it is confirmed."""
    block_hash: bytes | None
    """Of its block; of one that is conflicted, of the block that has its rival."""
    time: int | None
    """Seconds since 1970: of its block, or when it was first seen."""
    first_seen: int | None
    """When it was first seen unconfirmed; None if that was in a block."""
    confirmations: int
    """1 in the last block of the best chain, 0 unless it is confirmed."""
    rival: bytes | None
    """Txid of what replaced it or conflicts with it."""
    is_own: bool
    """Whether it was broadcast here."""
    is_coinbase: bool
    labels: tuple[str, ...]
    """Of the entries that it matches."""
    raw: bytes
    cursor: str
    """To go on behind it."""
    completeness: Completeness | None = None
    """Of its block: how certain it is that no match in it is missing."""


@public
@dataclass(frozen=True, slots=True)
class SearchedEntries:
    """Entries of the watch list, and the blocks of the best chain that were searched for them."""

    entries: int
    """How many."""
    ranges: tuple[BlockRange, ...]
    """Ascending."""
    skipped: tuple[BlockRange, ...]
    """Up to the height of the search: these are searched only if `rescan` is told to."""


@public
class Views:
    """Balance, coins and history from one connection to the database. Methods raise StoreError."""

    def __init__(self, db: sqlite3.Connection, path: pathlib.Path, network: Network) -> None:
        self._db = db
        self._path = path
        self._network = network

    @property
    def network(self) -> Network:
        """The network of the wallet."""
        return self._network

    def tip(self) -> int:
        """Height of the last header of the best chain; -1 for none. Raises StoreError."""
        with self._moment():
            return self._tip()

    def sequence(self) -> int:
        """Number of the last event; 0 for none. Raises StoreError."""
        with self._moment():
            return self._log().last

    def searched_height(self) -> int:
        """Height up to which blocks have been searched, but for those that were skipped (see `searched`); -1 for none.

        Raises StoreCorruptError.
        """
        with self._moment():
            raw = self._meta("cursor")
            return -1 if raw is None else int.from_bytes(raw[:8], "little", signed=True)

    def searched(self) -> tuple[SearchedEntries, ...]:
        """Which blocks were searched for which entries: those searched alike together, in the order in which they were
        added.

        Raises StoreCorruptError.
        """
        with self._moment():
            cursor, searched = self.searched_height(), self._searched()
            groups = searched.groups()
            ends = [*(group.id for group in groups[1:]), _TOP][: len(groups)]
            query = "SELECT count(*) FROM watch WHERE id >= ? AND id < ?"
            counts = [
                self._db.execute(query, (group.id, end)).fetchone()[0] for group, end in zip(groups, ends, strict=True)
            ]
        rows = zip(counts, groups, strict=True)
        return tuple(SearchedEntries(count, ranges, gaps(ranges, cursor)) for count, (_, ranges) in rows if count)

    def searched_for(self, entries: Iterable[tuple[EntryKind, bytes]]) -> tuple[BlockRange, ...]:
        """The blocks that were searched for all of some entries, each as WatchList.entries lists it.

        Raises ParameterError for one that is not watched, StoreCorruptError.
        """
        with self._moment():
            searched = self._searched()
            found: list[tuple[BlockRange, ...]] = []
            for kind, value in entries:
                row = self._db.execute(
                    "SELECT id FROM watch WHERE kind = ? AND value = ?", (int(kind), value)
                ).fetchone()
                if row is None:
                    raise ParameterError(f"this is not watched: {value.hex()[:80]}")
                found.append(searched.ranges_of(row[0]))
        return reduce(common, found) if found else ()

    def _searched(self) -> Searched:
        raw = self._meta("searched")
        if raw is None and self._db.execute("SELECT 1 FROM watch LIMIT 1").fetchone() is not None:
            raise StoreCorruptError(f"{self._path}: which blocks were searched is missing")
        try:
            return Searched.parse(raw)
        except ValueError as error:
            raise StoreCorruptError(f"{self._path}: the searched blocks cannot be read: {error}") from None

    # Keychains

    def keychains(self) -> tuple[KeychainStatus, ...]:
        """The keychains, in the order in which they were added. Raises StoreCorruptError."""
        with self._moment():
            return tuple(each for _, each in keychains_of(self._checked, self._network))

    def next_address(self, keychain: str | None = None) -> str:
        """The address of the lowest index that was never used, of the keychain with a name or a label, by default the
        first.

        It is read, not derived. Raises ParameterError for an unknown keychain, one whose indexes are all used and one
        whose scripts have no address, StoreCorruptError.
        """
        with self._moment():
            return next_of(keychains_of(self._checked, self._network), keychain).next_address or ""

    def is_used(self, address: str) -> bool:
        """Whether an output that pays this address was found.

        Raises AddressError, WrongNetworkError, StoreCorruptError.
        """
        script = address_to_script(address, self._network)
        with self._moment():
            return is_script_used(self._checked, script)

    def _of_keychain(self, column: str, keychain: str | None) -> str:
        """The condition that entries are of the keychains with a name or a label."""
        if keychain is None:
            return "1"
        return narrowed(column, [row for row, _ in chosen(keychains_of(self._checked, self._network), keychain)])

    # The books

    def balance(self, label: str | None = None, *, keychain: str | None = None) -> Balance:
        """The balance: of everything, from sums that each commit keeps, or of the coins of a label or a keychain, which
        are added up.

        Raises ParameterError for what is no label and for an unknown keychain, StoreCorruptError.
        """
        with self._moment():
            of_all = label is None and keychain is None
            totals = self._totals() if of_all else self._totals_of(label, keychain)
            immature = held = 0
            for coin in self._coins_where(
                "coinbase = 1 AND height > ?", (self._tip() + 1 - COINBASE_MATURITY,), label, keychain
            ):
                immature += coin[2]
                # that a pending transaction spends, though it cannot be valid
                held += coin[2] if coin[6] is not None else 0
            sequence = self._log().last
        mature = totals.confirmed - immature
        return Balance(
            mature, immature, totals.pending_in, totals.pending_out, mature - (totals.pending_out - held), sequence
        )

    def _totals(self) -> Totals:
        raw = self._meta("totals")
        if raw is None and self._totals_of(None, None) != Totals():  # they are written when they are not 0 any more
            raise StoreCorruptError(f"{self._path}: the totals are missing")
        return Totals.parse(raw)

    def _totals_of(self, label: str | None, keychain: str | None) -> Totals:
        totals = Totals()
        for coin in self._coins_where("1", (), label, keychain):
            totals = totals.plus(coin[2], coin[4], coin[6])
        return totals

    def coins(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Snapshot[Coin]:
        """The coins, of a label, of a keychain or all: pending ones, then those of blocks, the latest first.

        At most `limit` of them, from behind the one whose cursor is `before`. Raises ParameterError for a bad limit or
        cursor and for an unknown keychain, StoreCorruptError.
        """
        where = "(place, outpoint) < (?, ?) ORDER BY place DESC, outpoint DESC LIMIT ?"
        with self._moment():
            tip = self._tip()
            found = self._coins_where(where, (*_behind(before), _checked_limit(limit)), label, keychain)
            return Snapshot((self._coin(row, tip) for row in found), self._log().last)

    def history(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        before: str | None = None,
    ) -> Snapshot[HistoryEntry]:
        """The transactions, of a label, of a keychain or all: unconfirmed ones, then those of blocks, the latest first.

        At most `limit` of them, from behind the one whose cursor is `before`; None for all. A cursor stays good
        whatever happens; but between two pages a block or a reorganisation may move an entry above or below it: within
        `moment` each is shown once. What was abandoned, expired or is in conflict stands where the chain ended then. Of
        what ended so and was not broadcast here, the latest 1,000 are kept; of a keychain only what is confirmed or
        pending. Raises ParameterError for a bad limit or cursor and for an unknown keychain, StoreCorruptError.
        """
        values: tuple[object, ...] = (*_behind(before), _checked_limit(limit))
        with self._moment():
            of = "1"
            if keychain is not None:
                matching = self._of_keychain("matches.entry", keychain)
                of = f"transactions.txid IN (SELECT txid FROM matches WHERE {matching})"
            if label is None:
                where = (
                    f"FROM transactions WHERE {of} AND (place, txid) < (?, ?) ORDER BY place DESC, txid DESC LIMIT ?"
                )
            else:
                where = (
                    f"FROM tx_labels JOIN transactions USING (txid) WHERE label = ? AND {of} AND (tx_labels.place,"
                    " tx_labels.txid) < (?, ?) ORDER BY tx_labels.place DESC, tx_labels.txid DESC LIMIT ?"
                )
                values = (_checked_label(label), *values)
            return Snapshot(self._entries(where, values), self._log().last)

    def transaction(self, txid: bytes) -> HistoryEntry | None:
        """One transaction by its txid (32 bytes, wire order), or None. Raises ParameterError, StoreCorruptError."""
        if not isinstance(txid, bytes) or len(txid) != 32:
            raise ParameterError(f"a txid has 32 bytes; this is {reprlib.repr(txid)}")
        with self._moment():
            return next(self._entries("FROM transactions WHERE txid = ?", (txid,)), None)

    # Rows

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Within it all calls see the same commit, as the pages of a whole export must. Raises StoreError."""
        with self._moment():
            yield

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """All reads see the same commit."""
        if self._db.in_transaction:
            yield  # of `moment`
            return
        with translated(self._path):
            self._db.execute("BEGIN")
            try:
                yield
            finally:
                self._db.execute("ROLLBACK")

    def _checked(self, table: str, select: str, values: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
        """Rows of a table without their marks. Raises StoreCorruptError for a damaged one."""
        for *row, stated in self._db.execute(f"SELECT {_COLUMNS[table]} {select}", values):
            if stated != mark(table, row):
                raise StoreCorruptError(f"{self._path}: a damaged row in {table}")
            yield tuple(row)

    def _meta(self, key: str) -> bytes | None:
        row = next(self._checked("meta", "FROM meta WHERE key = ?", (key,)), None)
        return None if row is None else bytes(row[1])

    def _log(self) -> EventLog:
        """Which events there are."""
        return EventLog.parse(self._meta("events"))

    def _tip(self) -> int:
        row = self._db.execute("SELECT first, length(raw) FROM headers ORDER BY first DESC LIMIT 1").fetchone()
        if row is not None and not all(isinstance(each, int) for each in row):
            raise StoreCorruptError(f"{self._path}: the last headers are damaged")
        return -1 if row is None else int(row[0]) + row[1] // HEADER_SIZE - 1

    def _coins_where(
        self, where: str, values: tuple[object, ...], label: str | None, keychain: str | None
    ) -> Iterator[tuple[Any, ...]]:
        if keychain is not None:
            where = f"{self._of_keychain('unspent.entry', keychain)} AND {where}"
        if label is not None:
            _checked_label(label)
            where, values = (
                f"entry IN (SELECT id FROM watch WHERE label = ?) AND {where}",
                (
                    label,
                    *values,
                ),
            )
        return self._checked("unspent", f"FROM unspent WHERE {where}", values)

    def _coin(self, row: tuple[Any, ...], tip: int) -> Coin:
        outpoint, entry, value, script, height, is_coinbase, spender, place = row
        found = next(self._checked("watch", "FROM watch WHERE id = ?", (entry,)), None)
        if found is None:
            raise StoreCorruptError(f"{self._path}: entry {entry} of the watch list is missing")
        label = found[-1]
        time, completeness = (None, None) if height is None else self._found_in(outpoint, height)
        is_mature = height is not None and (not is_coinbase or height <= tip + 1 - COINBASE_MATURITY)
        return Coin(
            outpoint=OutPoint.parse(outpoint),
            value=value,
            script_pubkey=script,
            address=script_to_address(script, self._network),
            label=label,
            height=height,
            is_coinbase=bool(is_coinbase),
            is_spendable=is_mature and spender is None,
            spent_by=spender,
            cursor=_cursor(place, outpoint),
            time=time,
            completeness=completeness,
            keychain=(owner := place_of_entry(self._checked, entry))[0],
            keychain_index=owner[1],
        )

    def _entries(self, where: str, values: tuple[object, ...]) -> Iterator[HistoryEntry]:
        tip = self._tip()
        for row in self._checked("transactions", where, values):
            txid, raw, status, own, seen, _, block, height, position, rival, place, net, fee = row
            is_confirmed = status == TxStatus.CONFIRMED
            yield HistoryEntry(
                txid=txid,
                net=net,
                fee=fee,
                status=TxStatus(status),
                height=height if is_confirmed else None,
                block_hash=block,
                time=self.block_time(height, block) if is_confirmed else seen,
                first_seen=seen,
                confirmations=tip - height + 1 if is_confirmed else 0,
                rival=rival,
                is_own=bool(own),
                is_coinbase=is_confirmed and position == 0,
                labels=tuple(
                    label for _, label, _ in self._checked("tx_labels", "FROM tx_labels WHERE txid = ?", (txid,))
                ),
                raw=raw,
                cursor=_cursor(place, txid),
                completeness=self._completeness_of(txid) if is_confirmed else None,
            )

    def _found_in(self, outpoint: bytes, height: int) -> tuple[int, Completeness]:
        """Time and completeness of the block at a height that has an output."""
        values = outpoint[:32], int.from_bytes(outpoint[32:], "little"), height
        row = next(
            self._checked("matches", "FROM matches WHERE txid = ? AND spend = 0 AND n = ? AND height = ?", values), None
        )
        if row is None:
            raise StoreCorruptError(f"{self._path}: the match of output {OutPoint.parse(outpoint)} is missing")
        return self.block_time(height, row[8]), stored_completeness(row[10], self._path)

    def _completeness_of(self, txid: bytes) -> Completeness | None:
        """The least certain completeness of a transaction's matches."""
        found = {row[10] for row in self._checked("matches", "FROM matches WHERE txid = ?", (txid,))}
        return min(
            (stored_completeness(each, self._path) for each in found), key=list(Completeness).index, default=None
        )

    def block_time(self, height: int, block: bytes) -> int:
        """The time in the header of a block of the best chain, seconds since 1970.

        Raises StoreCorruptError if it is none.
        """
        header = b""
        if height <= self._tip():
            with self._db.blobopen("headers", "raw", height - height % PER_ROW, readonly=True) as headers:
                headers.seek(height % PER_ROW * HEADER_SIZE)
                header = headers.read(HEADER_SIZE)
        if sha256d(header) != block:
            raise StoreCorruptError(
                f"{self._path}: the header of height {height} is not that of block {hash_to_hex(block)}"
            )
        return int.from_bytes(header[68:72], "little")


def _checked_label(label: str) -> str:
    if not isinstance(label, str) or any("\ud800" <= each <= "\udfff" for each in label):
        raise ParameterError(f"no label of an entry: {ascii(label)[:80]}")
    return label


def _checked_limit(limit: int | None) -> int:
    if limit is None:
        return -1
    if not isinstance(limit, int) or limit < 1:
        raise ParameterError(f"a limit is at least 1, not {limit}")
    return min(limit, _TOP)


def _cursor(place: int, key: bytes) -> str:
    return f"{place:x}-{key.hex()}"


def _behind(cursor: str | None) -> tuple[int, bytes]:
    """Place and key of a cursor."""
    if cursor is None:
        return _TOP, b""
    try:
        place, key = cursor.split("-")
        found = int(place, 16), bytes.fromhex(key)
    except (ValueError, AttributeError, TypeError):
        raise ParameterError(f"not a cursor of an entry: {cursor[:80]!r}") from None
    if not 0 <= found[0] <= _TOP:
        raise ParameterError(f"not a cursor of an entry: {cursor[:80]!r}")
    return found
