"""Accounts in a wallet's database: their rows, and the effect of a transaction on each account.

An entry of the watch list belongs to one account or to none. The rest follows from that: a coin belongs to the account
of its entry, and a spend to the account of the output that it spends.
"""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from spvfilter.errors import ParameterError, StoreCorruptError, UnknownAccountError
from spvfilter.kernel import NO_VALUE
from spvfilter.store.sqlite import MarkedRows
from spvfilter.transaction import Transaction

_MOST = (1 << 63) - 1
"""Highest number of satoshi that a column can hold. On a chain with little work, a block may contain a higher value."""


class MatchEffect(NamedTuple):
    """How one match contributes to the effect of its transaction."""

    is_spend: bool
    """True for an input, False for an output."""
    value: int
    """Value in satoshi, or NO_VALUE."""
    label: str | None
    """Label of the entry that matches."""
    account: int | None
    """Id of that entry's account, or None."""


class TxEffect(NamedTuple):
    """The effect of a transaction on the wallet, or on one account."""

    net: int
    """Value of the outputs minus the known value of the inputs, in satoshi."""
    fee: int | None
    """Fee in satoshi. None unless every input matches and its value is known."""
    labels: Sequence[str]
    """Labels of the entries, in ascending order."""


def effect_of(found: Sequence[MatchEffect], tx: Transaction | None) -> TxEffect:
    """Return the effect of a transaction, computed from its matches.

    Args:
        found: The matches of the wallet, or of one account.
        tx: The transaction. It may be None if no match is a spend.
    """
    spent = [each.value for each in found if each.is_spend]
    net = sum(each.value for each in found if not each.is_spend) - sum(value for value in spent if value != NO_VALUE)
    labels = sorted({each.label for each in found if each.label is not None})
    return TxEffect(max(-_MOST, min(net, _MOST)), _fee(tx, spent), labels)


def effects_by_account(found: Iterable[MatchEffect], tx: Transaction | None) -> dict[int, TxEffect]:
    """Return the effect of a transaction on each account, keyed by account id."""
    mine: dict[int, list[MatchEffect]] = {}
    for each in found:
        if each.account is not None:
            mine.setdefault(each.account, []).append(each)
    return {account: effect_of(matches, tx) for account, matches in mine.items()}


def _fee(tx: Transaction | None, spent: Sequence[int]) -> int | None:
    """Return the fee in satoshi, or None unless every input spends a known coin of known value."""
    if tx is None or not spent or NO_VALUE in spent:
        return None
    fee = sum(spent) - sum(output.value for output in tx.outputs)
    return min(fee, _MOST) if len(spent) == len(tx.span.inputs) and fee >= 0 else None


class AccountRows:
    """The table of accounts."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path
        self._highest: int | None = None  # no row has ever had a higher id; None if it has not been read yet

    def load(self) -> dict[int, str]:
        """Return the account names, keyed by id, in the order in which the accounts were added."""
        return dict(self._db.execute("SELECT id, name FROM accounts ORDER BY id"))

    def totals(self) -> Iterator[tuple[int, bytes]]:
        """Yield the id and the totals of each account."""
        return iter(self._db.execute("SELECT id, totals FROM accounts").fetchall())

    def of_entry(self, entry: int) -> int | None:
        """Return the id of the account that owns a watch list entry, or None."""
        row = self._db.execute("SELECT account FROM watch WHERE id = ?", (entry,)).fetchone()
        account: int | None = None if row is None else row[0]
        return account

    def find(self, name: str) -> int | None:
        """Return the id of the account with this name, or None."""
        row = self._db.execute("SELECT id FROM accounts WHERE name = ?", (name,)).fetchone()
        account: int | None = None if row is None else row[0]
        return account

    def verify(self) -> None:
        """Raise StoreCorruptError if an entry, keychain or coin belongs to a missing account."""
        for table in ("watch", "keychains", "unspent", "account_txs"):
            there = "account IS NOT NULL AND account NOT IN (SELECT id FROM accounts)"
            query = f"SELECT account FROM {table} WHERE {there} LIMIT 1"
            for (account,) in self._db.execute(query):
                raise StoreCorruptError(f"{self._path}: account {account}, which table {table} refers to, is missing")

    # Within a commit

    def add(self, name: str | None) -> int | None:
        """Return the id of an account, adding the account if it is new. The name None means no account."""
        if name is None:
            return None
        if (known := self.find(name)) is not None:
            return known
        self._highest = self._highest_id() + 1
        self._rows.insert("accounts", (self._highest, name, b""))
        return self._highest

    def _highest_id(self) -> int:
        """Return the highest id that an account has ever had. Events keep the ids of accounts that were removed."""
        if self._highest is not None:
            return self._highest
        query = "SELECT max(coalesce((SELECT max(id) FROM accounts), 0), coalesce(max(account), 0)) FROM events"
        highest: int = self._db.execute(query).fetchone()[0]
        return highest

    def rename(self, old: str, new: str) -> None:
        """Rename an account. Raises UnknownAccountError, and ParameterError if the new name is taken."""
        account = self.find(old)
        if account is None:
            raise UnknownAccountError(old)
        if self.find(new) not in (None, account):
            raise ParameterError(f"there is already an account {new[:80]!r}: choose a different name")
        self._put(account, new, None)

    def write_totals(self, account: int, totals: bytes) -> None:
        """Write the totals of an account."""
        self._put(account, None, totals)

    def _put(self, account: int, name: str | None, totals: bytes | None) -> None:
        query = "SELECT name, totals FROM accounts WHERE id = ?"
        old_name, old_totals = self._db.execute(query, (account,)).fetchone()
        self._rows.remove("accounts", "id = ?", (account,))
        row = (account, old_name if name is None else name, old_totals if totals is None else totals)
        self._rows.insert("accounts", row)

    def remove(self, account: int) -> None:
        """Remove the row of an account, whose entries and keychains have already been removed."""
        self._highest = self._highest_id()  # a stream of events may still use the id
        self._rows.remove("accounts", "id = ?", (account,))
