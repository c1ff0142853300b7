"""WalletStore: a wallet's database, read by other processes and threads while a client writes it, without a network."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred, public
from spvfilter.errors import FormatError, ParameterError, StoreCorruptError, StoreError
from spvfilter.network import NETWORKS
from spvfilter.store.batch import Bip37Parameters
from spvfilter.store.events import StoredEvent, stored_events
from spvfilter.store.schema import check_schema
from spvfilter.store.sqlite import translated
from spvfilter.store.views import Snapshot, Views
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.filterdata import stored_elements
from spvfilter.wallet.journal import decode

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = deferred("sqlite3")

_NETWORKS = {network.genesis_hash: network for network in NETWORKS}
MAX_PAGE = 10_000  # events of one call
_PATIENCE_S = 5.0  # for a client that is just opening or closing the file


@public
class WalletStore(Views):
    """A wallet's database, read only.

        with WalletStore.open("wallet.db") as wallet:
            print(wallet.balance().confirmed, wallet.history(limit=10))

    A process that follows the wallet keeps the number of the last event that it has dealt with, and asks for more from
    time to time:

        for event in wallet.events(since=last):
            last = event.sequence

    Each call sees what was committed last, whole; a client that writes meanwhile is neither delayed nor waited for.
    Rows are checked as they are read; that a damaged index hides some from it, the next start of a client finds. Use it
    from one thread at a time; opening it takes a millisecond.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the database at `path`.

        Raises StoreForeignError, StoreCorruptError, StoreReadOnlyError, StoreError if there is none, or none yet: a
        client is creating it.
        """
        file = Path(path)
        if not file.is_file():
            raise StoreError(f"{file}: there is no such file" if not file.exists() else f"{file}: is no file")
        with translated(file):
            name = f"{file.absolute().as_uri()}?mode=ro"
            db = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False, timeout=_PATIENCE_S)
        try:
            with translated(file):
                db.execute("BEGIN")  # of one moment: a client may be creating it
                (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if not tables and not db.execute("PRAGMA application_id").fetchone()[0]:
                    raise StoreError(f"{file}: there is no wallet in it yet")
                check_schema(db, file)
                db.execute("COMMIT")
                row = db.execute("SELECT value FROM meta WHERE key = 'network'").fetchone()
            if row is None or row[0] not in _NETWORKS:
                raise StoreCorruptError(f"{file}: of an unknown network")
            return cls(db, file, _NETWORKS[row[0]])
        except BaseException:
            db.close()
            raise

    def events(self, since: int, limit: int = 1_000) -> Snapshot[WalletEvent]:
        """Up to `limit` events of the wallet (at most 10,000) that follow number `since`, in order; none if there are
        no more.

        With `since` from a snapshot (`balance().sequence`, `history().sequence`) they tell all that has changed after
        it, and nothing that it has. The latest 250,000 are kept, and those of the last 30 days, but always 10,000.
        Raises EventGapError if some that follow `since` were dropped, ParameterError for a number that no event has
        yet, or a limit out of range, StoreError.
        """
        if not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
            raise ParameterError(f"a limit of events is from 1 to {MAX_PAGE}, not {limit}")
        with self._moment():
            log = self._log()
            log.check(since)
            found = decoded(stored_events(self._db, self._path, since, limit), self._path)
        return Snapshot(found, found[-1].sequence if found else since)

    def bip37_parameters(self) -> Bip37Parameters | None:
        """What makes the wallet's BIP-37 filter the same at every start; None before the first.

        `decoy_key` is a secret of the wallet.

        Raises StoreCorruptError.
        """
        with self._moment():
            raw = self._meta("filter")
        return None if raw is None else Bip37Parameters.parse(raw)

    def bip37_elements(self) -> list[bytes]:
        """What a client that starts with this database would put into its BIP-37 filter.

        Raises InexpressibleError, StoreCorruptError.
        """
        with self._moment():
            return stored_elements(self._checked, self._network)

    def close(self) -> None:
        """Close the file; no other method may be called afterwards."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def decoded(stored: Iterable[StoredEvent], path: Path) -> list[WalletEvent]:
    """Events of a database. Raises StoreCorruptError."""
    try:
        return [decode(each) for each in stored]
    except FormatError as error:
        raise StoreCorruptError(f"{path}: {error}") from error
