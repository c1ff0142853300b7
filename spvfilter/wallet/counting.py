"""Which unconfirmed transactions count: their matches are recorded and told, or withdrawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredMatch, TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason, WalletEvent
from spvfilter.wallet.invented import InventedOutpoints
from spvfilter.wallet.unconfirmed import MAX_DISPLACED, MAX_DISPLACED_OUTPUTS, Contest, Identity, Unconfirmed, identity
from spvfilter.watch.match import Completeness, Match
from spvfilter.watch.watchlist import WatchList


class Counting:
    """Lets transactions of `unconfirmed` count, and count no more. `watch` learns outpoints from those that do."""

    def __init__(
        self, watch: WatchList, unconfirmed: Unconfirmed, invented: InventedOutpoints, changes: Changes
    ) -> None:
        self._watch = watch
        self._unconfirmed = unconfirmed
        self._invented = invented
        self._changes = changes

    def _match_of(self, hit: Hit) -> Match:
        return self._watch.matches((hit,))[0]

    def count(
        self, txid: bytes, contest: Contest, hits: list[Hit] | None = None, age: int | None = None
    ) -> list[WalletEvent]:
        """A transaction, with these hits, counts from now on, and its ancestors; what spends from them is followed."""
        freed = self._unconfirmed.inputs_of(contest.displaced)
        events, made = self.displace(contest.displaced, txid), list[bytes]()
        for each in (*contest.revived, txid):
            self._unconfirmed.see(each, age)
            found, known = self._make_live(each, None if contest.revived else hits)
            events += found
            made += known
            freed += self._unconfirmed.outpoints(each) if self._unconfirmed.has_rivals else ()
        events += self.come_back(freed)
        self._unconfirmed.trim(contest.displaced, self._changes.batch)
        self._unconfirmed.follow(made)
        return events

    def _make_live(self, txid: bytes, hits: list[Hit] | None = None) -> tuple[list[WalletEvent], list[bytes]]:
        live = self._unconfirmed.pending[txid]._replace(status=TxStatus.PENDING, rival=None, hits=())
        self._changes.batch.transactions[txid] = live
        self._unconfirmed.replace(txid, live)
        return self.record(self.hits_of(txid) if hits is None else hits)

    def displace(self, txids: Sequence[bytes], by: bytes) -> list[WalletEvent]:
        """Transactions count no more, because another came that spends the same. They are kept as rivals."""
        events: list[WalletEvent] = []
        self.unwrite(txids)
        for txid in txids:
            hits = self._unconfirmed.take_hits(txid)
            before = self._unconfirmed.pending[txid]
            rival = before._replace(status=TxStatus.REPLACED, rival=by, hits=tuple(hits.values()))
            self._changes.batch.transactions[txid] = rival
            self._unconfirmed.replace(txid, rival)
            events += self.withdraw(hits, Reason.REPLACED, by)
        return events

    def come_back(self, freed: Iterable[bytes]) -> Iterator[WalletEvent]:
        """Rivals count again against which nothing stands any more."""
        gone: list[bytes] = []
        for txid, displaced in self._unconfirmed.comebacks(freed):
            if displaced:
                gone += displaced
                yield from self.displace(displaced, txid)
                self._unconfirmed.see(txid)
            events, made = self._make_live(txid)
            yield from events
            self._unconfirmed.follow(made)
        if gone:
            self._unconfirmed.trim(gone, self._changes.batch)

    def after_ends(self, freed: Iterable[bytes]) -> Iterator[WalletEvent]:
        """Transactions have ended: rivals count again, those included that are wanted because ours has ended, whatever
        that spent.
        """
        unconfirmed = self._unconfirmed
        wanted = (
            []
            if unconfirmed.sent.is_found
            else [txid for txid in unconfirmed.sent.wanted if not unconfirmed.is_live(txid)]
        )
        yield from self.come_back([*freed, *unconfirmed.inputs_of(wanted)])

    def record(self, hits: Sequence[Hit]) -> tuple[list[WalletEvent], list[bytes]]:
        """Record matches, and those of unconfirmed transactions that spend what they make.

        A loop: a chain of them may be long.
        """
        events, made = list[WalletEvent](), list[bytes]()
        waiting = deque([hits])
        while waiting:
            found = self._unconfirmed.fresh(waiting.popleft())
            self._watch.table.learn(found)
            self._watch.windows.note(found)  # for the next address; an invented payment moves no window
            children: dict[bytes, None] = {}
            for hit in found:
                self._unconfirmed.record(hit)
                self._changes.batch.matches.append(StoredMatch(hit, None, None, Completeness.UNPROVEN))
                events.append(MatchFound(self._match_of(hit)))
                if not hit.spend:
                    made.append(hit.outpoint)
                    if hit.txid not in self._unconfirmed.sent:
                        self._invented.add(hit.outpoint)
                    children.update(dict.fromkeys(self._unconfirmed.spenders(hit.outpoint)))
            waiting.extend(self.hits_of(txid) for txid in children)
        return events, made

    def hits_of(self, txid: bytes) -> list[Hit]:
        """The hits of a transaction, if it counts."""
        return self._watch.table.scan_tx(self._unconfirmed.pending[txid].raw) if self._unconfirmed.is_live(txid) else []

    def rescan(self, txids: Iterable[bytes]) -> list[WalletEvent]:
        """Match pending transactions again, which spend what has become known."""
        return [event for txid in txids for event in self.record(self.hits_of(txid))[0]]

    def stand_back(self, txid: bytes, spending: Iterable[bytes], later: bytes) -> list[WalletEvent]:
        """What spends from a transaction counts no more, because that is kept as a rival of one that came `later`."""
        displaced = self._unconfirmed.by_age(spending)
        freed = self._unconfirmed.inputs_of(displaced)
        events = [*self.displace(displaced, later), *self.come_back(freed)]
        self._unconfirmed.trim([txid, *displaced], self._changes.batch)
        return events

    def rival_of(self, tx: Transaction) -> bytes | None:
        """A transaction of others that counts and spends the same as this one or its replaced ancestors, or from what
        does.

        None also if they spend from that themselves, or the same as one another.
        """
        unconfirmed = self._unconfirmed
        ancestors = unconfirmed.replaced_ancestors(tx) or []
        spent = [*unconfirmed.inputs_of(ancestors), *tx.inputs]
        spenders = [txid for outpoint in spent for txid in unconfirmed.spenders(outpoint) if txid not in ancestors]
        family = unconfirmed.descendants(spenders, MAX_DISPLACED, MAX_DISPLACED_OUTPUTS)
        if len(set(spent)) < len(spent) or any(outpoint[:32] in family for outpoint in spent):
            return None  # no block can have it
        return next((each for each in family if unconfirmed.is_live(each) and each not in unconfirmed.sent), None)

    def withdraw(self, hits: Mapping[Identity, Hit], reason: Reason, by: bytes | None) -> Iterator[WalletEvent]:
        """Matches of an unconfirmed transaction hold no more; `unwrite` must have been called with it."""
        self._unconfirmed.unfinished.spend(len(hits))
        self._changes.batch.withdrawn += hits
        yield from (MatchWithdrawn(self._match_of(hit), reason, by) for hit in hits.values())

    def unwrite(self, txids: Iterable[bytes]) -> None:
        """Matches of transactions that count no more need not be written, if they are not yet."""
        marks, batch = {mark for txid in txids for mark in self._unconfirmed.hits(txid)}, self._changes.batch
        if marks and batch.matches:
            batch.matches = [found for found in batch.matches if found.block_hash or identity(found.hit) not in marks]
