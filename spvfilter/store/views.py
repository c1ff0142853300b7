"""Views of a wallet's database: balance, coins, history and keychains. Each call sees a single commit."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any, Self, TypeVar  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import FormatError, ParameterError, StoreCorruptError, UnknownAccountError
from spvfilter.hashes import sha256d
from spvfilter.network import Network
from spvfilter.primitives import OutPoint, Serializable, hash_of, hash_to_hex, outpoint_of, to_bytes
from spvfilter.protocol import COINBASE_MATURITY, HEADER_SIZE
from spvfilter.store import labels as labelrows, psbt as psbts, spentviews
from spvfilter.store.events import EventLog
from spvfilter.store.headers import PER_ROW
from spvfilter.store.ledger import WAITING_PLACE, Totals, TxStatus, stored_completeness
from spvfilter.store.schema import ACCEPTED, HAS_VALUE, MARKED, check_row
from spvfilter.store.scriptviews import TxEffects, TxProof, confirmed_in, effects_of, proof_of
from spvfilter.store.searched import BlockRange, Searched, common, gaps
from spvfilter.store.sqlite import mark, reading, translated
from spvfilter.store.txcheck import CheckCause, impossible
from spvfilter.store.windowviews import (
    EntryPlaces,
    KeychainStatus,
    chosen,
    is_script_used,
    keychains_of,
    narrowed,
    next_address_of,
)
from spvfilter.transaction import Transaction
from spvfilter.watch import entrynames
from spvfilter.watch.accounts import normalized
from spvfilter.watch.arguments import EntryName
from spvfilter.watch.labels import Label
from spvfilter.watch.match import Completeness

T = TypeVar("T")

_TOP = (1 << 63) - 1  # higher than every place
_COLUMNS = {  # the columns of each table, 1 if their values are allowed, and the mark
    table: ", ".join(f"{table}.{column}" for column in columns.split(", ")) + f", {ACCEPTED[table]}, {table}.mark"
    for table, columns in MARKED.items()
}


@public
class Snapshot(list[T]):
    """A list that reflects the wallet at one point in time, and the number of the last event that it includes.

    The events after that number report exactly the later changes.
    """

    __slots__ = ("sequence",)

    def __init__(self, entries: Iterable[T], sequence: int) -> None:
        super().__init__(entries)
        self.sequence: int = sequence
        """Number of the last event that the list includes."""

    def __reduce__(self) -> tuple[type[Self], tuple[list[T], int]]:
        return type(self), (list(self), self.sequence)


@public
@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of a wallet, or of one account, in satoshi.

    A transaction is pending if it is unconfirmed and counts toward the balance, unlike, for example, a replaced one.
    """

    confirmed: int
    """Unspent outputs in the best chain, except immature ones. Pending transactions do not change it."""
    immature: int
    """Unspent coinbase outputs with fewer than 100 confirmations, which the next block may not spend."""
    pending_in: int
    """Outputs of pending transactions that no pending transaction spends: payments, and the wallet's change."""
    pending_out: int
    """Outputs in the best chain that pending transactions spend, at full value."""
    spendable: int
    """The part of `confirmed` that you may spend now: the sum of `unspent`.

    It excludes frozen coins, and coins spent by a pending transaction that the wallet broadcast, whose signatures it
    verified, or that was in a block before a reorganization. Change counts once it is in a block.
    """
    sequence: int = field(default=0, compare=False, repr=False)
    """Number of the last event that the balance includes; see `Snapshot`."""
    trusted_pending: int = 0
    """The part of `pending_in` from transactions that this wallet broadcast and that spend only its own coins.

    Each of these coins must be confirmed or trusted as well. Change is thus never trusted while it depends on somebody
    else's unconfirmed payment.

    BDK and Core use the word *trusted* for such outputs.
    """

    @property
    def untrusted_pending(self) -> int:
        """The part of `pending_in` that is not trusted, such as payments from other people, in satoshi."""
        return self.pending_in - self.trusted_pending

    @property
    def total(self) -> int:
        """Balance after all pending transactions, in satoshi: confirmed + immature + pending_in - pending_out."""
        return self.confirmed + self.immature + self.pending_in - self.pending_out


@public
@dataclass(frozen=True, slots=True)
class Coin:
    """An output of the wallet, confirmed or pending, that no transaction of the best chain spends."""

    outpoint: OutPoint
    """Txid of its transaction, and its index there."""
    value: int
    """Value in satoshi."""
    script_pubkey: bytes
    """Script that it pays."""
    address: str | None
    """Address of the script, or None if it has none."""
    label: str | None
    """Label of the entry that it matches."""
    height: int | None
    """Height of its block. None while it is pending."""
    is_coinbase: bool
    """True if a coinbase transaction created it."""
    is_spendable: bool
    """True if you may spend it now: it is confirmed, mature, not frozen, and not certainly spent.

    A pending transaction certainly spends it if the wallet broadcast that transaction or verified its signatures, or if
    it was in a block before a reorganization."""
    spent_by: bytes | None
    """Txid of the pending transaction that spends it, 32 bytes in wire order. None if there is none."""
    cursor: str
    """Position in the list. Pass it as `before` to get the next page."""
    time: int | None = None
    """Time of its block (Unix time). None while it is pending."""
    completeness: Completeness | None = None
    """How certain it is that no match in its block is missing. None while it is pending."""
    keychain: str | None = None
    """Name of the keychain that derives the script. None if it does not belong to a keychain."""
    keychain_index: int | None = None
    """Index of the script in the keychain, starting at 0. None if it does not belong to a keychain."""
    is_spender_own: bool | None = None
    """True if this wallet broadcast the transaction `spent_by`. None if there is none.

    If one of the wallet's own transactions spends the coin, it replaces somebody else's.
    """
    output_label: str | None = None
    """Label of the output itself, as stored by `LightClient.import_labels`. None if it has none."""
    is_frozen: bool = False
    """True if `LightClient.freeze` or an imported label has frozen it."""
    account: str | None = None
    """Name of the account that the coin belongs to, or None."""
    is_trusted: bool = False
    """True if it is pending change from a transaction that this wallet broadcast and that spends only its own coins.

    Each of those coins must be confirmed or trusted as well."""
    sp_label: int | None = None
    """Label number of the silent payment address that was paid; 0 for the wallet's change. None if the address has no
    label, or if the coin is not a silent payment.
    """
    sp_tweak: bytes | None = field(default=None, repr=False)
    """32-byte secret to add to the private spend key to get the private key of a silent payment.

    None if the coin is not a silent payment, or if the wallet does not know the secret."""

    @property
    def spent_by_hex(self) -> str | None:
        """The field `spent_by` in hex, as block explorers show it. None if there is none."""
        return None if self.spent_by is None else hash_to_hex(self.spent_by)


@public
@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A wallet transaction and its status."""

    txid: bytes
    """Txid, 32 bytes in wire order."""
    net: int
    """Value of the matching outputs minus the known value of the matching inputs, in satoshi.

    In an account's history, only its own outputs and inputs count. For a transaction that no longer counts, this is the
    value from when it did.
    """
    fee: int | None
    """Fee in satoshi. None unless every input matches and its value is known.

    In an account's history, it is None unless the account paid all inputs.
    """
    status: TxStatus
    """Status of the transaction."""
    height: int | None
    """Height of its block. None unless it is confirmed."""
    block_hash: bytes | None
    """Hash of the block that contains it or, failing that, a conflicting transaction, 32 bytes in wire order."""
    time: int | None
    """Time of its block or, failing that, when it was first seen (Unix time)."""
    first_seen: int | None
    """When it was first seen unconfirmed (Unix time). None if it was first seen in a block."""
    confirmations: int
    """Number of confirmations: 1 in the tip of the best chain, and 0 unless it is confirmed."""
    rival: bytes | None
    """Txid of the transaction that replaced it or conflicts with it, 32 bytes in wire order."""
    is_own: bool
    """True if this wallet broadcast it."""
    is_coinbase: bool
    """True if it is the first transaction of its block."""
    labels: tuple[str, ...]
    """Labels of the entries that it matches."""
    raw: bytes
    """Bytes of the transaction."""
    cursor: str
    """Position in the list. Pass it as `before` to get the next page."""
    completeness: Completeness | None = None
    """How certain it is that no match in its block is missing. None unless it is confirmed."""
    label: str | None = None
    """Label of the transaction itself, as stored by `LightClient.import_labels`. None if it has none."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def block_hash_hex(self) -> str | None:
        """The field `block_hash` in hex, as block explorers show it. None if there is none."""
        return None if self.block_hash is None else hash_to_hex(self.block_hash)

    @property
    def rival_hex(self) -> str | None:
        """The field `rival` in hex, as block explorers show it. None if there is none."""
        return None if self.rival is None else hash_to_hex(self.rival)


@public
@dataclass(frozen=True, slots=True)
class SearchedEntries:
    """A group of watch list entries, and the blocks that have been searched for them."""

    entries: int
    """Number of entries in the group."""
    ranges: tuple[BlockRange, ...]
    """Blocks of the best chain that have been searched for the group, in ascending order."""
    skipped: tuple[BlockRange, ...]
    """Blocks up to the searched height that have not been searched for the group. `rescan` searches them."""


@public
class Views:
    """Reads balance, coins, history and keychains from a wallet's database.

    `WalletStore` and `Store.views` are such views. The methods raise StoreError if the database cannot be read.
    """

    def __init__(self, db: sqlite3.Connection, path: pathlib.Path, network: Network) -> None:
        self._db = db
        self._path = path
        self._network = network

    @property
    def network(self) -> Network:
        """The network of the wallet."""
        return self._network

    def tip(self) -> int:
        """Return the height of the tip of the best chain, or -1 if there is none.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            return self._tip()

    def sequence(self) -> int:
        """Return the number of the last event, or 0 if there is none.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            return self._log().last

    def searched_height(self) -> int:
        """Return the height up to which blocks have been searched, or -1 if none have.

        Blocks up to this height may have been skipped for some entries: `searched` lists them.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            raw = self._meta("cursor")
            return -1 if raw is None else int.from_bytes(raw[:8], "little", signed=True)

    def searched(self) -> tuple[SearchedEntries, ...]:
        """Return which blocks have been searched for which entries.

        Entries that have been searched for in the same blocks form a group. Groups are in the order in which their
        entries were added.

        Raises:
            StoreError: The database cannot be read.
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

    def searched_for(self, entry: EntryName) -> tuple[BlockRange, ...]:
        """Return the blocks that have been searched for an entry.

        Args:
            entry: An address, a scriptPubKey as bytes, an outpoint, or a line of a watch list file, such as
                `pubkey:HEX`.

        Raises:
            ParameterError: The entry is not watched.
            StoreError: The database cannot be read.
        """
        wanted = entrynames.named([entry], self._network)
        with self._moment():
            searched = self._searched()
            found: list[tuple[BlockRange, ...]] = []
            for kind, value in wanted:
                query = f"SELECT id FROM watch WHERE {HAS_VALUE.format('?')} AND kind = ?"
                row = self._db.execute(query, (value, value, int(kind))).fetchone()
                if row is None:
                    raise ParameterError(f"this entry is not watched: {value.hex()[:80]}")
                found.append(searched.ranges_of(row[0]))
        return reduce(common, found)

    def _searched(self) -> Searched:
        raw = self._meta("searched")
        if raw is None and self._db.execute("SELECT 1 FROM watch LIMIT 1").fetchone() is not None:
            raise StoreCorruptError(f"{self._path}: the list of searched blocks is missing")
        return Searched.parse(raw)

    # Accounts and keychains

    def accounts(self) -> tuple[str, ...]:
        """Return the names of the accounts in the order in which they were added.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            return tuple(name for _, name, _ in self._checked("accounts", "FROM accounts ORDER BY id", ()))

    def _account(self, name: str) -> tuple[int, Totals]:
        """Return the id and the totals of an account. Raises UnknownAccountError."""
        name = normalized(name)
        is_text = isinstance(name, str) and name.isprintable()  # SQLite cannot store surrogates
        row = next(self._checked("accounts", "FROM accounts WHERE name = ?", (name,)), None) if is_text else None
        if row is None:
            raise UnknownAccountError(name)
        return row[0], Totals.parse(row[2])

    def keychains(self, keychain: str | None = None, *, account: str | None = None) -> tuple[KeychainStatus, ...]:
        """Return the keychains in the order in which they were added.

        Args:
            keychain: Only the keychains with this name or label. By default, all keychains.
            account: Only the keychains of this account.

        Raises:
            UnknownAccountError: The wallet has no such account.
            ParameterError: The wallet has no such keychain.
            StoreError: The database cannot be read.
        """
        with self._moment():
            owner = None if account is None else self._account(account)[0]
            return tuple(keychains_of(self._checked, self._network, keychain, owner))

    def next_address(self, keychain: str | None = None, *, account: str | None = None) -> str:
        """Return the first address of a keychain that, according to the database, has been neither paid nor revealed.

        Args:
            keychain: Name or label of the keychain. By default, the first keychain.
            account: Only keychains of this account. The first of them derives its receiving addresses.

        Raises:
            UnknownAccountError: The wallet has no such account.
            ParameterError: There is no such keychain, it has no unused address, or its scripts do not have addresses.
            StoreError: The database cannot be read.
        """
        with self._moment():
            owner = None if account is None else self._account(account)[0]
            return next_address_of(self._checked, self._network, keychain, owner)

    def is_used(self, address: str) -> bool:
        """Return True if a confirmed or pending transaction pays an address, or if its keychain index has been used.

        A payment that was replaced, or that conflicts with a block, does not count.

        Args:
            address: Address of the wallet's network.

        Raises:
            AddressError: The text is not an address.
            WrongNetworkError: The address belongs to another network.
            StoreError: The database cannot be read.
        """
        script = address_to_script(address, self._network)
        with self._moment():
            return is_script_used(self._checked, script)

    def _of_keychain(self, keychain: str) -> tuple[list[int], int | None]:
        """Return the row ids of the keychains with this name or label, and the id of their account if they share it."""
        rows = chosen(self._checked, keychain)
        owners = {row[7] for row in rows}
        return [row[0] for row in rows], owners.pop() if len(owners) == 1 else None

    # The books

    def balance(self, label: str | None = None, *, keychain: str | None = None, account: str | None = None) -> Balance:
        """Return the balance of the wallet, or of one account, label or keychain.

        For the wallet or an account, this takes the same time however many coins there are. For a label or a keychain,
        the coins are added up.

        Args:
            label: Count only coins of entries with this label.
            keychain: Count only coins of the keychain with this name or label.
            account: Count only coins of this account.

        Raises:
            UnknownAccountError: The wallet has no such account.
            ParameterError: The label is not valid text, or the wallet has no such keychain.
            StoreError: The database cannot be read.
        """
        with self._moment():
            if label is not None or keychain is not None:
                totals = self._totals_of(label, keychain, account)
            else:
                totals = self._totals() if account is None else self._account(account)[1]
            mature_from = self._tip() + 1 - COINBASE_MATURITY
            young = self._coins_where("coinbase = 1 AND height > ?", (mature_from,), label, keychain, account)
            immature = sum(coin[2] for coin in young)
            mature = totals.confirmed - immature
            spendable = mature - self._held_value(label, keychain, account)
            sequence = self._log().last
        return Balance(
            mature, immature, totals.pending_in, totals.pending_out, spendable, sequence, trusted_pending=totals.trusted
        )

    def _held_value(self, label: str | None, keychain: str | None, account: str | None) -> int:
        """Return the total value of the mature coins that are frozen, or that a pending transaction certainly spends.

        The arguments are those of `balance`.
        """
        where, values = "height IS NOT NULL AND (coinbase = 0 OR height <= ?)", (self._tip() + 1 - COINBASE_MATURITY,)
        return sum(self._reserved_values(where, values, label, keychain, account).values())

    def _reserved_values(
        self, where: str, values: tuple[object, ...], label: str | None, keychain: str | None, account: str | None
    ) -> dict[bytes, int]:
        """Return the outpoints and values of the `reserved` coins that meet a condition."""
        found, is_spent = dict[bytes, int](), "spender > x''"
        for is_reserved in (
            "outpoint IN (SELECT outpoint FROM frozen)",
            "outpoint IN (SELECT outpoint FROM held)",
            is_spent,
        ):
            rows = self._coins_where(f"{is_reserved} AND {where}", values, label, keychain, account)
            found |= {
                outpoint: value
                for outpoint, _, value, *_, spender, _, _, _ in rows
                if is_reserved is not is_spent or (spender is not None and self._is_proven(spender))
            }
        return found

    def _totals(self) -> Totals:
        raw = self._meta("totals")
        if raw is None and self._totals_of(None, None) != Totals():  # they are written once they are no longer 0
            raise StoreCorruptError(f"{self._path}: the totals are missing")
        return Totals.parse(raw)

    def _totals_of(self, label: str | None, keychain: str | None, account: str | None = None) -> Totals:
        totals = Totals()
        for coin in self._coins_where("1", (), label, keychain, account):
            totals = totals.plus(coin[2], coin[4], coin[6], is_trusted=bool(coin[8]))
        return totals

    def coins(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        account: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Snapshot[Coin]:
        """Return all outputs that are unspent in the best chain: pending ones first, then confirmed ones, latest first.

        Some may be immature, frozen, or spent by a pending transaction. `unspent` returns the coins that you may spend
        now.

        Args:
            label: Only coins of entries with this label.
            keychain: Only coins of the keychain with this name or label.
            account: Only coins of this account.
            limit: Length of the page. By default, one page contains everything.
            before: `cursor` of the last item on the previous page, to get the next one.

        Raises:
            UnknownAccountError: The wallet has no such account.
            ParameterError: An argument is not valid, or the wallet has no such keychain.
            StoreError: The database cannot be read.
        """
        with self._moment():
            return Snapshot(self._coins(label, keychain, account, before, limit), self._log().last)

    def _coins(
        self, label: str | None, keychain: str | None, account: str | None, before: str | None, limit: int | None
    ) -> Iterator[Coin]:
        where = "(place, outpoint) < (?, ?) ORDER BY place DESC, outpoint DESC LIMIT ?"
        return self._coins_of(where, (*_behind(before), _checked_limit(limit)), label, keychain, account)

    def _coins_of(
        self, where: str, values: tuple[object, ...], label: str | None, keychain: str | None, account: str | None
    ) -> Iterator[Coin]:
        found = self._coins_where(where, values, label, keychain, account)
        tip, places, names = self._tip(), EntryPlaces(self._checked), dict[int, str]()
        for row in found:
            owner = row[-1]
            if owner is not None and owner not in names:
                names[owner] = next(self._checked("accounts", "FROM accounts WHERE id = ?", (owner,)))[1]
            yield self._coin(row, tip, places, names)

    def unspent(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        account: str | None = None,
        trusted_change: bool = False,
        limit: int | None = None,
        before: str | None = None,
    ) -> Snapshot[Coin]:
        """Return the coins that you may spend now (`Coin.is_spendable`), latest first.

        They include coins that somebody else's pending transaction spends, unless the spend is certain: see `reserved`.
        `Balance.spendable` is the sum of these coins.

        Args:
            label: Only coins of entries with this label.
            keychain: Only coins of the keychain with this name or label.
            account: Only coins of this account.
            trusted_change: True to include pending change (`Coin.is_trusted`) that is neither frozen nor spent by
                another of the wallet's own transactions.
            limit: Length of the page. By default, one page contains everything.
            before: `cursor` of the last item on the previous page, to get the next one.

        Raises:
            ParameterError: An argument is not valid, or the wallet has no such keychain.
            UnknownAccountError: The wallet has no such account.
            StoreError: The database cannot be read.
        """
        if not isinstance(trusted_change, bool):
            raise ParameterError(f"trusted_change must be True or False, not {trusted_change!r}")
        most = None if limit is None else _checked_limit(limit)
        with self._moment():
            coins = self._coins(label, keychain, account, before, None)
            chosen = (
                coin
                for coin in coins
                if coin.is_spendable
                or (
                    trusted_change
                    and coin.is_trusted
                    and not coin.is_frozen
                    and not self._is_taken(bytes(coin.outpoint), coin.spent_by)
                )
            )
            return Snapshot(islice(chosen, most), self._log().last)

    def frozen(self) -> tuple[OutPoint, ...]:
        """Return all frozen outpoints, even those of coins that a block has spent.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            rows = self._checked("frozen", "FROM frozen ORDER BY outpoint", ())
            return tuple(OutPoint.parse(outpoint) for (outpoint,) in rows)

    def reserved(self) -> tuple[OutPoint, ...]:
        """Return the coins, confirmed or pending, that are frozen or that a pending transaction certainly spends.

        A spend is certain if the wallet broadcast the transaction or verified its signatures, or if the transaction was
        in a block before a reorganization. `unspent` excludes these coins.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            return tuple(map(OutPoint.parse, sorted(self._reserved_values("1", (), None, None, None))))

    def coin(self, outpoint: OutPoint | str) -> Coin | None:
        """Return the coin at an outpoint, or None if the wallet has no such coin.

        Args:
            outpoint: The outpoint, or a string of the form TXID:INDEX.

        Raises:
            ParameterError: The text is not an outpoint.
            StoreError: The database cannot be read.
        """
        with self._moment():
            return next(self._coins_of("outpoint = ?", (bytes(outpoint_of(outpoint)),), None, None, None), None)

    def _is_frozen(self, outpoint: bytes) -> bool:
        return any(self._checked("frozen", "FROM frozen WHERE outpoint = ?", (outpoint,)))

    def _is_held(self, outpoint: bytes) -> bool:
        """True if one of the wallet's own waiting transactions spends an output."""
        return any(self._checked("held", "FROM held WHERE outpoint = ?", (outpoint,)))

    def history(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        account: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        waiting: bool = False,
        script: bytes | str | None = None,
    ) -> Snapshot[HistoryEntry]:
        """Return transactions, latest first: unconfirmed ones, then confirmed ones.

        Abandoned, expired and conflicted transactions are placed at the height that the chain had when they were first
        seen. With `keychain` or `script`, they are omitted.

        An account's history gives, for each transaction, the account's own net value and labels, and the fee if the
        account paid all inputs.

        Cursors stay valid, but if a block arrives between two pages, an entry may be missing or appear twice. To
        prevent that, read all pages within one call of `read`.

        Args:
            label: Only transactions of entries with this label.
            keychain: Only transactions of the keychain with this name or label.
            account: Only transactions of this account.
            limit: Length of the page. By default, one page contains everything.
            before: `cursor` of the last item on the previous page, to get the next one.
            waiting: True to return only other people's transactions that still lack evidence.
            script: Only transactions that pay or spend this watched address, or this watched scriptPubKey as bytes.

        Raises:
            UnknownAccountError: The wallet has no such account.
            ParameterError: An argument is not valid, the script is not watched, or the wallet has no such keychain.
            StoreError: The database cannot be read.
        """
        values: tuple[object, ...] = (*_behind(before), _checked_limit(limit))
        with self._moment():
            of, owner = f"transactions.place = {WAITING_PLACE}" if waiting else "transactions.place >= 0", None
            place = "transactions.first_seen" if waiting else "transactions.place"
            if keychain is not None:
                keychains, owner = self._of_keychain(keychain)
                matching = f"matches.txid = transactions.txid AND {narrowed('matches.entry', keychains)}"
                of += f" AND EXISTS (SELECT 1 FROM matches WHERE {matching})"
            source = "transactions"
            if script is not None:
                touching = f"SELECT DISTINCT txid FROM matches WHERE entry = {self._entry_of(script)}"
                of += f" AND transactions.txid IN ({touching})"
                source = f"({touching}) CROSS JOIN transactions USING (txid)"  # they are fewer than the wallet's
            if account is not None:
                place = place if waiting else "account_txs.place"
                return Snapshot(self._account_entries(account, label, of, place, values), self._log().last)
            if label is None and owner is not None:  # the account's transactions are fewer than the wallet's
                place = place if waiting else "account_txs.place"
                where = (
                    f"FROM account_txs CROSS JOIN transactions USING (txid) WHERE account = {owner} AND {of} AND"
                    f" ({place}, account_txs.txid) < (?, ?) ORDER BY {place} DESC, account_txs.txid DESC LIMIT ?"
                )
            elif label is None:
                where = (
                    f"FROM {source} WHERE {of} AND ({place}, txid) < (?, ?) ORDER BY {place} DESC, txid DESC LIMIT ?"
                )
            else:
                place = place if waiting else "tx_labels.place"
                where = (
                    f"FROM tx_labels JOIN transactions USING (txid) WHERE label = ? AND {of} AND ({place},"
                    f" tx_labels.txid) < (?, ?) ORDER BY {place} DESC, tx_labels.txid DESC LIMIT ?"
                )
                values = (_checked_label(label), *values)
            return Snapshot(self._entries(where, values), self._log().last)

    def _entry_of(self, script: bytes | str) -> int:
        """Return the row id of a script's entry. Raises ParameterError if the script is not watched."""
        raw = address_to_script(script, self._network) if isinstance(script, str) else script
        if not isinstance(raw, bytes):
            raise ParameterError(f"script: expected an address or a scriptPubKey as bytes, not {type(raw).__name__}")
        where = f"FROM watch WHERE kind = 0 AND {HAS_VALUE.format('?')}"
        row = next(self._checked("watch", where, (raw, raw)), None)
        if row is None:
            raise ParameterError(f"this script is not watched: {raw.hex()[:80]}")
        return int(row[0])

    def _account_entries(
        self, account: str, label: str | None, of: str, place: str, values: tuple[object, ...]
    ) -> Iterator[HistoryEntry]:
        """Yield a page of the history of an account.

        `of` is a condition on the rows of transactions. `place` is the column by which they are sorted.
        """
        is_labelled, named = "1", tuple[object, ...]()
        if label is not None:
            is_labelled = "instr(char(10) || labels || char(10), char(10) || ? || char(10)) > 0"
            named = (_checked_label(label),)
        where = (
            f"FROM account_txs JOIN transactions USING (txid) WHERE account = ? AND {is_labelled} AND {of} AND"
            f" ({place}, account_txs.txid) < (?, ?) ORDER BY {place} DESC, account_txs.txid DESC LIMIT ?"
        )
        tip = self._tip()
        for _, txid, _, net, fee, labels in self._checked(
            "account_txs", where, (self._account(account)[0], *named, *values)
        ):
            for row in self._checked("transactions", "FROM transactions WHERE txid = ?", (txid,)):
                own = (*row[:15], net, fee, *row[17:])
                yield self._entry(own, tip, tuple(labels.split("\n")) if labels else ())

    def transaction(self, txid: bytes | str) -> HistoryEntry | None:
        """Return a transaction of the wallet, or None if the wallet does not know it.

        Args:
            txid: Txid, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The txid is neither 32 bytes nor 64 hex digits.
            StoreError: The database cannot be read.
        """
        found = hash_of(txid, "txid")
        with self._moment():
            return next(self._entries("FROM transactions WHERE txid = ? AND place >= 0", (found,)), None)

    def psbt(self, unsigned_tx: bytes | Serializable) -> bytes:
        """Return a PSBT (BIP-174) for a transaction, to pass to a signing program.

        Each of the wallet's inputs gets the transaction that it spends, its scripts, and the origin of each key, as far
        as a descriptor includes it. The wallet's outputs get scripts and keys, so that the signing program recognizes
        change. Inputs of other wallets stay empty.

        Args:
            unsigned_tx: The transaction without signatures, as bytes or an object that serializes to them.

        Returns:
            The PSBT as bytes. Most programs expect it in base64. Its version is 2 (BIP-370) if it spends a silent
            payment (BIP-376), otherwise 0.

        Raises:
            FormatError: The bytes are not a transaction.
            ParameterError: The transaction has signatures, spends no output of a transaction in the history, or cannot
                be in any block, or the tweak of a silent payment is unknown.
            DescriptorError: A descriptor contains musig(), or the `descriptors` extra is not installed.
            StoreError: The database cannot be read.
        """
        tx = Transaction.parse(to_bytes(unsigned_tx))
        with self._moment():
            fault = impossible(tx, spentviews.StoreFacts(self._checked, self._db, self._path, self._tip()))
            if fault is not None and fault.cause is not CheckCause.ABANDONED_PARENT:
                raise ParameterError(fault.message)
            found = {txid: self.transaction(txid) for txid in {outpoint[:32] for outpoint in tx.inputs}}
            previous = {txid: Transaction.parse(entry.raw) for txid, entry in found.items() if entry is not None}
            return psbts.psbt_of(self._checked, self._network, tx, previous)

    def effects(self, txids: Iterable[bytes | str] | None = None) -> Snapshot[TxEffects]:
        """Return the transactions that count, with the wallet's outputs that each creates and spends.

        A program can compute the history of any script from them. Outputs of the genesis block are omitted, because
        they cannot be spent.

        Args:
            txids: Only these transactions, each 32 bytes in wire order or 64 hex digits. By default, all transactions.

        Raises:
            ParameterError: A txid is neither 32 bytes nor 64 hex digits.
            StoreError: The database cannot be read.
        """
        wanted = None if txids is None else [hash_of(txid, "txid") for txid in txids]
        with self._moment():
            return Snapshot(effects_of(self._checked, wanted), self._log().last)

    def proof(self, txid: bytes | str) -> TxProof | None:
        """Return a transaction with its block and merkle branch, or None if it is not in the database.

        The database also contains transactions that are waiting or no longer count, and parents of pending ones, so
        check `status`.

        Args:
            txid: Txid, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The txid is neither 32 bytes nor 64 hex digits.
            StoreError: The database cannot be read.
        """
        found = hash_of(txid, "txid")
        with self._moment():
            return proof_of(self._checked, found)

    def confirmed_in(self, block: bytes | str, txids: Iterable[bytes | str]) -> frozenset[bytes]:
        """Return which of these transactions are, according to the database, in this block of the best chain.

        Args:
            block: Block hash, 32 bytes in wire order or 64 hex digits.
            txids: Txids, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: A hash is neither 32 bytes nor 64 hex digits.
            StoreError: The database cannot be read.
        """
        block_hash, wanted = hash_of(block, "block hash"), [hash_of(txid, "txid") for txid in txids]
        with self._moment():
            return frozenset(confirmed_in(self._checked, block_hash, wanted))

    def labels(self) -> list[Label]:
        """Return all labels of the wallet as BIP-329 records, sorted by type and `ref`.

        They include labels of watched addresses, frozen outputs and imported records, but not labels of keychains or of
        entries without an address.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            return list(labelrows.stored_labels(self._checked, self._network))

    def read(self, function: Callable[[Views], T]) -> T:
        """Call a function that makes several queries, and return its result. All queries see the same commit.

            balance, coins = wallet.read(lambda views: (views.balance(), views.coins()))

        Args:
            function: Called with a view of the wallet, which may only be used within the call.

        Raises:
            StoreError: The database cannot be read.
        """
        with self._moment():
            return function(self)

    # Rows

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Context manager: all calls within the `with` block see the same commit, for example all pages of an export.

        Raises StoreError if the database cannot be read.
        """
        if self._db.in_transaction:
            yield
            return
        with translated(self._path):
            self._db.execute("BEGIN")
        try:
            yield  # errors of the caller, such as a broken pipe, are not errors of the database
        finally:
            with translated(self._path):
                self._db.rollback()  # unless SQLite has ended the transaction because of an error

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """Context manager: all reads see the same commit, and SQLite's errors become StoreError."""
        with reading(self._path), self.moment():
            yield

    def _checked(self, table: str, select: str, values: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, without the marks. Raises StoreCorruptError for a damaged row."""
        for whole in self._db.execute(f"SELECT {_COLUMNS[table]} {select}", values):
            row = whole[:-2]
            if whole[-1] != mark(table, row):
                raise StoreCorruptError(f"{self._path}: a row in table {table} is damaged")
            if not whole[-2]:
                check_row(self._path, table, row)  # this raises an error that names the column
            yield row

    def _meta(self, key: str) -> bytes | None:
        row = next(self._checked("meta", "FROM meta WHERE key = ?", (key,)), None)
        return None if row is None else row[1]

    def _log(self) -> EventLog:
        """Return the range of event numbers."""
        try:
            return EventLog.parse(self._meta("events"))
        except FormatError as error:
            raise StoreCorruptError(f"{self._path}: {error}") from None

    def _tip(self) -> int:
        row = self._db.execute("SELECT first, length(raw) FROM headers ORDER BY first DESC LIMIT 1").fetchone()
        if row is not None and not all(isinstance(each, int) for each in row):
            raise StoreCorruptError(f"{self._path}: the last headers are damaged")
        return -1 if row is None else int(row[0]) + row[1] // HEADER_SIZE - 1

    def _coins_where(
        self,
        where: str,
        values: tuple[object, ...],
        label: str | None,
        keychain: str | None,
        account: str | None = None,
    ) -> Iterator[tuple[Any, ...]]:
        owner = None if account is None else self._account(account)[0]
        if keychain is not None:
            keychains, of_account = self._of_keychain(keychain)
            where = f"{narrowed('unspent.entry', keychains)} AND {where}"
            owner = of_account if owner is None else owner
        if owner is not None:
            where = f"account = {owner} AND {where}"
        if label is not None:
            _checked_label(label)
            where, values = (
                f"EXISTS (SELECT 1 FROM watch WHERE watch.id = unspent.entry AND watch.label = ?) AND {where}",
                (
                    label,
                    *values,
                ),
            )
        return self._checked("unspent", f"FROM unspent WHERE {where}", values)

    def _coin(self, row: tuple[Any, ...], tip: int, places: EntryPlaces, accounts: Mapping[int, str]) -> Coin:
        outpoint, entry, value, script, height, is_coinbase, spender, place, is_trusted, account = row
        found = next(self._checked("watch", "FROM watch WHERE id = ?", (entry,)), None)
        if found is None:
            raise StoreCorruptError(f"{self._path}: entry {entry} of the watch list is missing")
        label = found[3]
        time, completeness = (None, None) if height is None else self._found_in(outpoint, height, tip)
        is_mature = height is not None and (not is_coinbase or height <= tip + 1 - COINBASE_MATURITY)
        is_frozen, is_spender_own = self._is_frozen(outpoint), None if spender is None else self._is_own(spender)
        is_taken = self._is_taken(outpoint, spender)
        payment = next(self._checked("sp_outputs", "FROM sp_outputs WHERE entry = ?", (entry,)), None)
        return Coin(
            outpoint=OutPoint.parse(outpoint),
            value=value,
            script_pubkey=script,
            address=script_to_address(script, self._network),
            label=label,
            height=height,
            is_coinbase=bool(is_coinbase),
            is_spendable=is_mature and not is_frozen and not is_taken,
            spent_by=spender,
            cursor=_cursor(place, outpoint),
            time=time,
            completeness=completeness,
            keychain=(owner := places.find(entry))[0],
            keychain_index=owner[1] if payment is None else None,
            is_spender_own=is_spender_own,
            is_frozen=is_frozen,
            output_label=labelrows.label_of(self._checked, "output", str(OutPoint.parse(outpoint))),
            account=None if account is None else accounts[account],
            is_trusted=bool(is_trusted),
            sp_label=None if payment is None else payment[2],
            sp_tweak=None if payment is None else payment[1] or None,
        )

    def _is_own(self, txid: bytes) -> bool:
        query = "FROM transactions WHERE txid = ? AND broadcast_seq IS NOT NULL"
        return next(self._checked("transactions", query, (txid,)), None) is not None

    def _is_taken(self, outpoint: bytes, spender: bytes | None) -> bool:
        """True if one of the wallet's own waiting transactions spends an output, or if its spender is proven."""
        return self._is_held(outpoint) or (spender is not None and self._is_proven(spender))

    def _is_proven(self, txid: bytes) -> bool:
        """True if this wallet broadcast a transaction, or has evidence that the owner of its coins signed it."""
        query = "FROM transactions WHERE txid = ? AND (broadcast_seq IS NOT NULL OR signatures = 'valid')"
        return next(self._checked("transactions", query, (txid,)), None) is not None

    def _entries(self, where: str, values: tuple[object, ...]) -> Iterator[HistoryEntry]:
        tip = self._tip()
        for row in self._checked("transactions", where, values):
            rows = self._checked("tx_labels", "FROM tx_labels WHERE txid = ?", (row[0],))
            yield self._entry(row, tip, tuple(label for _, label, _ in rows))

    def _entry(self, row: tuple[Any, ...], tip: int, labels: tuple[str, ...]) -> HistoryEntry:
        txid, raw, status, broadcast_seq, seen, *_ = row
        block, height, position, rival, place, net, fee, *_ = row[10:]
        is_confirmed = status == TxStatus.CONFIRMED
        return HistoryEntry(
            txid=txid,
            net=net,
            fee=fee,
            status=TxStatus(status),
            height=height if is_confirmed else None,
            block_hash=block,
            time=self._time_of(height, block, tip) if is_confirmed else seen,
            first_seen=seen,
            confirmations=tip - height + 1 if is_confirmed else 0,
            rival=rival,
            is_own=broadcast_seq is not None,
            is_coinbase=is_confirmed and position == 0,
            labels=labels,
            raw=raw,
            cursor=_cursor(seen if place == WAITING_PLACE else place, txid),
            completeness=self._completeness_of(txid) if is_confirmed else None,
            label=labelrows.label_of(self._checked, "tx", hash_to_hex(txid)),
        )

    def _found_in(self, outpoint: bytes, height: int, tip: int) -> tuple[int, Completeness]:
        """Return the time and completeness of the block at a given height that contains an output."""
        values = outpoint[:32], int.from_bytes(outpoint[32:], "little"), height
        row = next(
            self._checked("matches", "FROM matches WHERE txid = ? AND spend = 0 AND n = ? AND height = ?", values), None
        )
        if row is None or row[8] is None:
            raise StoreCorruptError(f"{self._path}: the match of output {OutPoint.parse(outpoint)} is missing")
        return self._time_of(height, row[8], tip), stored_completeness(row[10], self._path)

    def _completeness_of(self, txid: bytes) -> Completeness | None:
        """Return the least certain completeness of a transaction's matches."""
        found = {row[10] for row in self._checked("matches", "FROM matches WHERE txid = ?", (txid,))}
        return min(
            (stored_completeness(each, self._path) for each in found), key=list(Completeness).index, default=None
        )

    def block_time(self, height: int, block: bytes | str) -> int:
        """Return the time of a block of the best chain (Unix time).

        Args:
            height: Height of the block.
            block: Block hash, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The block hash is neither 32 bytes nor 64 hex digits.
            StoreError: The best chain has a different block at this height, or the database cannot be read.
        """
        wanted = hash_of(block, "block hash")
        with self._moment():
            return self._time_of(height, wanted, self._tip())

    def _time_of(self, height: int, block_hash: bytes, tip: int) -> int:
        header = b""
        if height <= tip:
            with self._db.blobopen("headers", "raw", height - height % PER_ROW, readonly=True) as headers:
                headers.seek(height % PER_ROW * HEADER_SIZE)
                header = headers.read(HEADER_SIZE)
        if sha256d(header) != block_hash:
            raise StoreCorruptError(
                f"{self._path}: the header at height {height} does not belong to block {hash_to_hex(block_hash)}"
            )
        return int.from_bytes(header[68:72], "little")


def _checked_label(label: str) -> str:
    if not isinstance(label, str) or any("\ud800" <= each <= "\udfff" for each in label):
        raise ParameterError(f"a label must be text without surrogates, not {ascii(label)[:80]}")
    return label


def _checked_limit(limit: int | None) -> int:
    if limit is None:
        return -1
    if not isinstance(limit, int) or limit < 1:
        raise ParameterError(f"limit must be at least 1, not {limit}")
    return min(limit, _TOP)


def _cursor(place: int, key: bytes) -> str:
    return f"{place:x}-{key.hex()}"


def _behind(cursor: str | None) -> tuple[int, bytes]:
    """Parse a cursor, and return its place and key."""
    if cursor is None:
        return _TOP, b""
    try:
        place, key = cursor.split("-")
        found = int(place, 16), bytes.fromhex(key)
    except (ValueError, AttributeError, TypeError):
        raise ParameterError(f"not a valid cursor: {str(cursor)[:80]!r}") from None
    if not 0 <= found[0] <= _TOP:
        raise ParameterError(f"not a valid cursor: {cursor[:80]!r}")
    return found
