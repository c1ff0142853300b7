"""The data that the engine reads from the database once, at the start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple  # JSON

from spvfilter.chain import HeaderChain
from spvfilter.light.engine.coverage import NOTE as COVERAGE_NOTE, Coverage
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.store.addresses import KnownAddress
from spvfilter.store.batch import Bip37Parameters
from spvfilter.store.events import EventLog
from spvfilter.store.ledger import StoredMatch
from spvfilter.store.store import Store
from spvfilter.wallet.books import KEPT_DEPTH
from spvfilter.wallet.events import BlockConnected, MatchUnconfirmed
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.reader import decoded
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList

BANS_NOTE = "bans"
ANCHORS_NOTE = "anchors"
PRIVATE_NOTE = "private"
# The corresponding depth for the wallet's own transactions, because no other node may have them any more. No accepted
# fork is longer.
_OWN_KEPT_DEPTH = 20_160


class PrivateRecord(NamedTuple):
    """A private transaction, as the database stores it."""

    until: float
    """When the next private connection, or the announcement to all peers, is due (Unix time)."""
    is_relayed: bool
    """True if enough network groups announced it, or a block contained it."""
    receivers: list[str]
    """Network groups that received it."""
    is_handed: bool = True
    """True if a peer requested it."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of an earlier run, or the empty state."""

    chain: HeaderChain
    rows: FilterRows
    books: SavedBooks
    coverage: Coverage
    bans: dict[str, float]
    bip37_parameters: Bip37Parameters | None
    secret: bytes
    addresses: Sequence[KnownAddress] = ()
    anchors: list[str] = field(default_factory=list)
    """Addresses to connect to first."""
    private: dict[str, PrivateRecord] = field(default_factory=dict)
    """Private transactions, keyed by txid in hex."""
    events: EventLog = field(default_factory=EventLog)
    """The range of event numbers in the database."""
    mined: frozenset[bytes] = frozenset()
    """Txids of transactions whose blocks left the best chain, according to stored events."""
    has_filters: bool = False
    """True if the database contains compact filters."""

    def journal(self) -> Journal:
        """Return a journal that continues after the last event.

        The previous run may have connected blocks without reporting them. The journal then reports the highest of
        these, even if new entries have moved the search below it, because that block may be disconnected.
        """
        last, told, height = self.events.last, self.events.told, self.books.searched
        is_untold = told < height <= self.chain.height
        return Journal(last, told, BlockConnected(height, self.chain.hash_at(height)) if is_untold else None)

    @classmethod
    def read(cls, store: Store, watch: WatchList, since: int | None = None, chain: HeaderChain | None = None) -> Saved:
        """Merge `watch` with the database, and read the state. Raises StoreError.

        Blocks are searched for new entries starting at height `since`, or by default at the start of the wallet's first
        search.
        """
        cursor = store.cursor
        store.attach(watch, since)
        coverage = Coverage.parse(store.note(COVERAGE_NOTE))
        if store.cursor < cursor:
            coverage.forget_unwitnessed(store.cursor)
        rows = FilterRows(store.compact_filters.pieces())
        # A disconnection may be stored in an earlier commit than the note.
        coverage.proven = min(coverage.proven, rows.height)
        known = json.loads(store.note(BANS_NOTE) or b"{}")
        chain = chain or HeaderChain.restore(store.network, store.headers(1))
        return cls(
            chain=chain,
            rows=rows,
            books=SavedBooks(
                matches=list(_timed(store.matches(), chain)),
                transactions=store.transactions(store.tip - KEPT_DEPTH, store.tip - _OWN_KEPT_DEPTH),
                cursor=store.cursor,
                searched=store.searched,
                blocks=store.searched_blocks,
                ids=store.ids,
            ),
            coverage=coverage,
            bans={str(address): float(until) for address, until in known.items()},
            bip37_parameters=store.bip37_parameters,
            secret=store.secret,
            addresses=store.addresses.load(),
            events=store.events.log,
            mined=_unconfirmed_again(store),
            has_filters=store.compact_filters.has_any,
            anchors=[str(address) for address in json.loads(store.note(ANCHORS_NOTE) or b"[]")],
            private={
                str(txid): _private(record) for txid, record in json.loads(store.note(PRIVATE_NOTE) or b"{}").items()
            },
        )


def _unconfirmed_again(store: Store) -> frozenset[bytes]:
    """Return the txids of transactions whose blocks have left the best chain. Raises StoreError."""
    events = decoded(store.events.of_kind("unconfirmed"), store.path)
    return frozenset(event.match.txid for event in events if isinstance(event, MatchUnconfirmed))


def _private(stored: list[Any] | float) -> PrivateRecord:
    """Return a private transaction from the note. Earlier versions stored `until` alone."""
    return PrivateRecord(*stored) if isinstance(stored, list) else PrivateRecord(stored, False, [])


def _timed(matches: Iterable[StoredMatch], chain: HeaderChain) -> Iterator[StoredMatch]:
    """Yield the matches with the times of their blocks. The matches are given lowest first."""
    above, time = -1, 0  # height of the latest block, and its time
    for found in matches:
        if found.height is None or found.height > chain.height:
            yield found
            continue
        if found.height != above:
            above, time = found.height, chain.time_at(found.height)
        yield StoredMatch(found.hit, found.block_hash, found.height, found.completeness, time)
