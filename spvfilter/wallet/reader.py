"""WalletStore: reads a wallet's database offline, even while a client is writing to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError, StoreCorruptError, StoreError
from spvfilter.network import Network
from spvfilter.primitives import Serializable, to_bytes
from spvfilter.store.batch import Bip37Parameters
from spvfilter.store.events import StoredEvent, run_of, stored_events
from spvfilter.store.networkrows import read_network
from spvfilter.store.place import FileIdentity
from spvfilter.store.schema import check_schema
from spvfilter.store.spentviews import StoreFacts
from spvfilter.store.sqlite import translated
from spvfilter.store.txcheck import CheckFinding, check_input_values, check_package
from spvfilter.store.views import Snapshot, Views
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import RunStarted, WalletEvent
from spvfilter.wallet.filterdata import stored_elements
from spvfilter.wallet.journal import decode

MAX_PAGE = 10_000  # events per call
_PATIENCE_S = 5.0  # seconds to wait for a client that is opening or closing the file


@public
class WalletStore(Views):
    """A wallet's database, opened for reading in any process, even while a client is writing to it.

        with WalletStore.open("wallet.db") as wallet:
            print(wallet.balance().confirmed, wallet.history(limit=10))

    A process that follows the wallet remembers the number of the last event that it has processed. From time to time,
    it reads the next events:

        for event in wallet.events(since=last):
            last = event.sequence

    Each call reads the state of the last commit. Reading never delays a client that is writing. Each row is checked
    when it is read, but rows hidden by a damaged index are noticed only when a client next starts. Use the object from
    one thread at a time.

    If the file is removed or replaced, for example by a copy, every call raises StoreError: open the new file.
    """

    def __init__(self, db: sqlite3.Connection, path: Path, network: Network) -> None:
        super().__init__(db, path, network)
        self._identity = FileIdentity(path, "open it again")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a database. This takes about a millisecond.

        Args:
            path: Path of the database.

        Raises:
            StoreForeignError: The file belongs to another program, or has a different schema version.
            StoreCorruptError: The file is damaged.
            StoreReadOnlyError: The file cannot be opened.
            StoreError: The file does not exist, or a client is still creating it.
        """
        file = Path(path)
        if not file.is_file():
            lacking = f"there is no database at {file}: create one with LightClient or spvfilter watch --db {file}"
            raise StoreError(f"{file}: not a file" if file.exists() else lacking)
        with translated(file):
            name = f"{file.absolute().as_uri()}?mode=ro"
            db = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False, timeout=_PATIENCE_S)
        try:
            with translated(file):
                db.execute("BEGIN")  # a single snapshot, because a client may be creating the database
                (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if not tables and not db.execute("PRAGMA application_id").fetchone()[0]:
                    raise StoreError(f"{file}: this file does not contain a wallet yet")
                check_schema(db, file)
                db.execute("COMMIT")
                network = read_network(db, file)
            return cls(db, file, network)
        except BaseException:
            db.close()
            raise

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Context manager: all calls within the `with` block see the same commit, for example all pages of an export.

        Raises StoreError if the database cannot be read, or if the file was replaced since it was opened.
        """
        if not self._db.in_transaction:
            with translated(self._path):
                self._identity.check()
        with super().moment():
            yield

    def events(self, since: int, limit: int = 1_000, *, account: str | None = None) -> Snapshot[WalletEvent]:
        """Return the next events of the wallet or of an account, in order; empty if there are no more.

        The database keeps up to 250,000 events from the last 30 days, and at least 10,000. It also keeps the latest
        10,000 events about other people's unconfirmed transactions; events that were dropped leave gaps in the
        numbering.

        Args:
            since: Number of the last event that the program has processed, or `sequence` of a `Snapshot` or `Balance`.
            limit: Number of events to return, from 1 to 10,000.
            account: Name of an account. Only events about this account's matches, about blocks, and about starts of
                runs are then returned. Continue after the result's `sequence`, which also covers events of other
                accounts.

        Raises:
            UnknownAccountError: The wallet has no such account.
            EventGapError: `since` is neither 0 nor the number of an event in this database, or later events were
                dropped because they were too old or too many. Read a snapshot, such as `history`, and continue from its
                `sequence`.
            ParameterError: `since` is negative, or `limit` is out of range.
            StoreError: The database cannot be read.
        """
        if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
            raise ParameterError(f"limit must be from 1 to {MAX_PAGE}, not {limit}")
        with self._moment():
            log, owner = self._log(), None if account is None else self._account(account)[0]
            found = decoded(stored_events(self._db, self._path, log, since, limit, owner), self._path)
        is_last = account is not None and len(found) < limit
        return Snapshot(found, log.last if is_last else found[-1].sequence if found else since)

    def check(
        self,
        raw_tx: bytes | Serializable,
        *,
        parents: Iterable[bytes | Serializable] = (),
        input_values: Iterable[int] | None = None,
    ) -> tuple[CheckFinding, ...]:
        """Return the problems with a transaction, as far as the database reveals them.

        `LightClient.check` also knows the fees that connected peers require, and which transactions they have accepted.

        Args:
            raw_tx: The signed transaction, as bytes or as an object that serializes to them.
            parents: Transactions that it spends from, parents first. Their fees are added up.
            input_values: Value of each input in satoshi, in order, if the wallet does not know them.

        Returns:
            The findings, most serious first; empty if no problem was found.

        Raises:
            FormatError: The bytes are not a transaction.
            ParameterError: The input values are wrong.
            StoreError: The database cannot be read.
        """
        transactions = [Transaction.parse(to_bytes(each)) for each in (*parents, raw_tx)]
        values = None if input_values is None else tuple(input_values)
        check_input_values(transactions[-1], values)
        with self._moment():
            return check_package(transactions, StoreFacts(self._checked, self._db, self._path, self._tip()), values)

    def run_id(self, sequence: int) -> bytes | None:
        """Return the id of the client's run that stored an event; see `RunStarted`.

        Returns None for the number 0, or if the run's `RunStarted` event has been dropped.

        Args:
            sequence: Number of the event.

        Raises:
            EventGapError: The number is neither 0 nor the number of an event in this database.
            ParameterError: The number is negative.
            StoreError: The database cannot be read.
        """
        with self._moment():
            return run_id_of(run_of(self._db, self._path, self._log(), sequence), self._path)

    def bip37_parameters(self) -> Bip37Parameters | None:
        """Return the parameters of the wallet's BIP-37 filter, or None if there has been no filter yet.

        Because they are stored, the filter is the same at every start. `decoy_key` is a secret of the wallet. Raises
        StoreCorruptError if the database is damaged.
        """
        with self._moment():
            raw = self._meta("filter")
        return None if raw is None else Bip37Parameters.parse(raw)

    def bip37_elements(self) -> list[bytes]:
        """Return the elements that a client would put into its BIP-37 filter when it starts with this database.

        Raises:
            InexpressibleError: BIP-37 cannot find some entries of the watch list.
            StoreCorruptError: The database is damaged.
        """
        with self._moment():
            return stored_elements(self._checked, self._network, self._tip())

    def close(self) -> None:
        """Close the file. Do not call other methods afterwards."""
        self._db.close()

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def run_id_of(started: StoredEvent | None, path: Path) -> bytes | None:
    """Return the id of a run, given its first event; None if there is no such event. Raises StoreCorruptError."""
    if started is None:
        return None
    (event,) = decoded([started], path)
    return event.id if isinstance(event, RunStarted) else None


def decoded(stored: Iterable[StoredEvent], path: Path) -> list[WalletEvent]:
    """Return the events of stored rows. Raises StoreCorruptError."""
    try:
        return [decode(each) for each in stored]
    except FormatError as error:
        raise StoreCorruptError(f"{path}: {error}") from error
