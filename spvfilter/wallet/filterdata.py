"""The elements of a wallet's BIP-37 filter, read from the database without a running client."""

from __future__ import annotations

from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.store.ledger import kept_transactions
from spvfilter.store.windowviews import Checked
from spvfilter.wallet.books import KEPT_DEPTH, Books
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.elements import refuse_silent
from spvfilter.watch.watchlist import WatchList


def stored_elements(checked: Checked, network: Network, tip: int) -> list[bytes]:
    """Return the elements. `tip` is the height of the best chain. Raises InexpressibleError and StoreCorruptError."""
    refuse_silent([name for _, name, *_ in checked("keychains", "FROM keychains WHERE descriptor GLOB 'sp(*'", ())])
    watch = WatchList(network)
    entries = {
        row: watch.add_entry(EntryKind(kind), value)
        for row, kind, value, *_ in checked("watch", "FROM watch ORDER BY id", ())
    }
    for outpoint, row, value, script in checked("coins", "FROM coins", ()):
        watch.table.set_coin(outpoint, entries[row], value, script)
    saved = kept_transactions(
        lambda where, values: checked("transactions", f"FROM transactions WHERE {where}", values), tip - KEPT_DEPTH
    )
    return Books(watch, SavedBooks(transactions=saved)).bloom_elements()
