"""WalletStore: a wallet's database, read by other processes and threads while a client writes it, without a network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred, public
from spvfilter.errors import StoreCorruptError, StoreError
from spvfilter.network import NETWORKS
from spvfilter.store.schema import check_schema
from spvfilter.store.sqlite import translated
from spvfilter.store.views import Views

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = deferred("sqlite3")

_NETWORKS = {network.genesis_hash: network for network in NETWORKS}
_PATIENCE_S = 5.0  # for a client that is just opening or closing the file


@public
class WalletStore(Views):
    """A wallet's database, read only.

        with WalletStore.open("wallet.db") as wallet:
            print(wallet.balance().confirmed, wallet.history(limit=10))

    Each call sees what was committed last, whole; a client that writes meanwhile is neither delayed nor waited for. Rows are checked as
    they are read. Use it from one thread at a time; opening it takes a millisecond.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the database at `path`. Raises StoreForeignError, StoreCorruptError, StoreReadOnlyError, StoreError if there is none."""
        file = Path(path)
        if not file.is_file():
            raise StoreError(f"{file}: there is no such file" if not file.exists() else f"{file}: is no file")
        with translated(file):
            name = f"{file.absolute().as_uri()}?mode=ro"
            db = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False, timeout=_PATIENCE_S)
        try:
            with translated(file):
                check_schema(db, file)
                row = db.execute("SELECT value FROM meta WHERE key = 'network'").fetchone()
            if row is None or row[0] not in _NETWORKS:
                raise StoreCorruptError(f"{file}: of an unknown network")
            return cls(db, file, _NETWORKS[row[0]])
        except BaseException:
            db.close()
            raise

    def close(self) -> None:
        """Close the file; no other method may be called afterwards."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
