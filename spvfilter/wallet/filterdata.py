"""The elements of the wallet's BIP-37 filter, read from the database without a client."""

from __future__ import annotations

from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.store.ledger import stored_tx
from spvfilter.store.windowviews import Checked
from spvfilter.wallet.books import Books
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList


def stored_elements(checked: Checked, network: Network) -> list[bytes]:
    """Return the elements. Raises InexpressibleError, StoreCorruptError."""
    watch = WatchList(network)
    entries = {
        row: watch.add_entry(EntryKind(kind), value)
        for row, kind, value, *_ in checked("watch", "FROM watch ORDER BY id", ())
    }
    for outpoint, row, value, script in checked("coins", "FROM coins", ()):
        watch.table.set_coin(outpoint, entries[row], value, script)
    without_block = "SELECT conflicts_with FROM transactions WHERE status != 'confirmed'"
    where = f"FROM transactions WHERE status != 'confirmed' OR txid IN ({without_block})"
    rows = checked("transactions", where, ())
    return Books(watch, SavedBooks(transactions={row[0]: stored_tx(row) for row in rows})).bloom_elements()
