"""Entries that leave the watch list: what matched them leaves the books, unless another entry matches it as well."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from spvfilter.kernel import NO_ENTRY, EntryKind, Hit
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.confirmed import ConfirmedMatches
from spvfilter.wallet.unconfirmed import Unconfirmed, identity
from spvfilter.wallet.unmatched import Arrival
from spvfilter.watch.match import Completeness
from spvfilter.watch.watchlist import WatchList


class Renumbering:
    """A watch list without some of its entries; those that are left are numbered anew."""

    def __init__(self, watch: WatchList, removed: Collection[int]) -> None:
        self._removed = frozenset(removed)
        self.left: WatchList = watch.without_entries(self._removed)
        self._olds = [number for number in range(len(watch)) if number not in self._removed]  # by new number
        self._numbers = {old: new for new, old in enumerate(self._olds)}

    def hit(self, hit: Hit) -> Hit | None:
        """The hit under the new number of an entry that it matches; None if it matches none any more."""
        if hit.entry not in self._removed:
            return hit._replace(entry=self._numbers[hit.entry])
        table = self.left.table
        number = table.find(EntryKind.OUTPOINT, hit.outpoint) if hit.spend else NO_ENTRY
        if number == NO_ENTRY and hit.script is not None:
            number = table.match_script(hit.script)
        return None if number == NO_ENTRY else hit._replace(entry=number)

    def ids(self, ids: Iterable[int]) -> list[int]:
        """The ids, by number, of the entries that are left."""
        return [row for number, row in enumerate(ids) if number not in self._removed]

    def apply(self, confirmed: ConfirmedMatches, unconfirmed: Unconfirmed, batch: Batch) -> list[StoredMatch]:
        """Renumber the matches; those that hold no more, in the order in which they are withdrawn.

        `batch` must be empty.
        """
        unsure = Completeness.UNPROVEN
        waiting = [
            StoredMatch(hit, None, None, unsure)
            for txid in unconfirmed.pending
            for hit in unconfirmed.hits(txid).values()
        ]
        batch.matches = [each for found in (*confirmed, *waiting) for each in self._moved(found)]
        lost = confirmed.change(self.hit)
        gone = unconfirmed.change(self.hit)
        lost += (StoredMatch(hit, None, None, unsure) for hits in gone.values() for hit in hits)
        late: list[Arrival] = []  # another entry may match what was not recorded yet
        for txid, pending in list(unconfirmed.pending.items()):
            if pending.own or unconfirmed.hits(txid):
                continue
            if txid in gone or not self.left.table.scan_tx(pending.raw):
                if (arrival := unconfirmed.unmatch(txid)) is not None:
                    late.append(arrival)
                batch.transactions[txid] = None
        unconfirmed.unfinished.add_late(late)
        batch.removed = sorted(self._removed)
        batch.withdrawn = [identity(found.hit) for found in lost]
        return lost[::-1]

    def _moved(self, found: StoredMatch) -> Iterable[StoredMatch]:
        """A match of a removed entry, under the old number of another that it matches, if there is one."""
        if found.hit.entry in self._removed and (hit := self.hit(found.hit)) is not None:
            yield found._replace(hit=hit._replace(entry=self._olds[hit.entry]))
