"""What a client would give peers as the wallet's BIP-37 filter, read from the database without a client."""

from __future__ import annotations

from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.store.ledger import UNCONFIRMED, stored_tx
from spvfilter.store.windowviews import Checked
from spvfilter.wallet.invented import InventedOutpoints
from spvfilter.wallet.kept import filter_elements
from spvfilter.wallet.sent import Sent
from spvfilter.watch.watchlist import WatchList

_STATUSES = tuple(status.value for status in UNCONFIRMED)


def stored_elements(checked: Checked, network: Network) -> list[bytes]:
    """The elements. Raises InexpressibleError, StoreCorruptError."""
    watch = WatchList(network)
    entries = {
        row: watch.add_entry(EntryKind(kind), value)
        for row, kind, value, _ in checked("watch", "FROM watch ORDER BY id", ())
    }
    for outpoint, row, value, script in checked("coins", "FROM coins", ()):
        watch.table.set_coin(outpoint, entries[row], value, script)
    rows = checked("transactions", "FROM transactions WHERE status IN (?, ?)", _STATUSES)
    unconfirmed = {row[0]: stored_tx(row) for row in rows}
    invented = []
    for _, txid, _, _, outpoint, value, script, row, *_ in checked(
        "matches", "FROM matches WHERE spend = 0 AND block IS NULL", ()
    ):
        watch.table.set_coin(outpoint, entries[row], value, script)
        if txid not in unconfirmed or not unconfirmed[txid].own:
            invented.append(outpoint)
    own = {txid: unconfirmed[txid].raw for txid in Sent(unconfirmed).wanted}
    return filter_elements(watch, InventedOutpoints(watch, invented), own)
