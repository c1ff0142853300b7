"""Intake of foreign unconfirmed transactions: decides which of them the wallet keeps and which it evicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from spvfilter.kernel import Hit
from spvfilter.primitives import TxOut
from spvfilter.protocol import HASH_SIZE
from spvfilter.signatures import SpendCheck, Validity
from spvfilter.transaction import Transaction
from spvfilter.wallet.admission import MempoolLayer
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.confirmed import Identity
from spvfilter.wallet.facts import Facts
from spvfilter.wallet.hits import Hits
from spvfilter.wallet.judgement import Judgement
from spvfilter.wallet.netgroupquota import MANY, Groups
from spvfilter.wallet.orphanage import Orphan, Orphanage
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.searches import Searches
from spvfilter.wallet.txgraph import Component, DropReason, Signatures, TxRecord

Verify = Callable[[Transaction, Sequence[TxOut | None], Sequence[int]], SpendCheck]
"""A function that checks some of a transaction's inputs against the outputs that they spend; see `verify_spends`."""


_MOST_WALKED = 500
"""Number of records and inputs to visit before the remaining orphans are left to the next step (our choice)."""
_OPEN = (Status.CONFIRMED, Status.CANONICAL, Status.REPLACED, Status.WAITING)  # a block may still contain it


class Intake:
    """Admits foreign unconfirmed transactions, and evicts them when space runs out or they turn out to be invalid.

    It has no access to the watch list.
    """

    def __init__(
        self,
        facts: Facts,
        hits: Hits,
        judgement: Judgement,
        searches: Searches,
        limits: PendingLimits | None = None,
        verify: Verify | None = None,
    ) -> None:
        self._facts = facts
        self._hits = hits
        self._judgement = judgement
        self._searches = searches
        self._verify = verify
        self._wrong: list[tuple[bytes, bytes]] = []  # txids and wtxids of transactions with a wrong signature
        self.pool: MempoolLayer = MempoolLayer(limits or PendingLimits())
        """The foreign unconfirmed transactions that are kept, with the limits on them."""
        self.orphans: Orphanage = Orphanage()
        """Foreign unconfirmed transactions without a match and without a link to a match."""
        self.turned_away: int = 0
        """Number of foreign payments that were dropped or evicted because of a limit in this run."""
        self._turned_away: list[bytes] = []  # txids and wtxids of transactions that did not fit or were evicted
        self._due: dict[bytes, None] = {}  # txids of orphans that touch a kept transaction or may match

    def take_turned_away(self) -> list[bytes]:
        """Return the txids and wtxids of transactions that were evicted or turned away since the last call."""
        taken, self._turned_away = self._turned_away, []
        return taken

    def take_wrong(self) -> list[tuple[bytes, bytes]]:
        """Return the txids and wtxids of transactions dropped because of a wrong signature since the last call.

        The same transaction with a different witness may be valid.
        """
        taken, self._wrong = self._wrong, []
        return taken

    def would_be(self, tx: Transaction) -> tuple[Verdict, TxRecord | None]:
        """Return the verdict on a transaction as if this wallet had broadcast it, and an abandoned ancestor, if any."""
        record = TxRecord.parse(tx.raw)._replace(broadcast_seq=self._facts.number + 1)
        ancestors = self.ancestors(record)
        active = {txid: each._replace(dropped=None) for txid, each in {record.txid: record, **ancestors}.items()}
        verdicts = self._judgement.judge(Component(active, {}))
        abandoned = (each for each in ancestors.values() if each.active_drop is DropReason.ABANDONED)
        return verdicts[tx.txid], next(abandoned, None)

    def ancestors(self, record: TxRecord) -> dict[bytes, TxRecord]:
        """Return the unconfirmed transactions from which one spends, directly or through others, keyed by txid.

        Ancestors in the orphanage are included, because a broadcast admits them.
        """
        found = dict[bytes, TxRecord]()
        for each in (waiting := [record]):  # the list grows during the loop
            for outpoint in each.inputs:
                parent = self.known(outpoint[:HASH_SIZE])
                if parent is not None and parent.txid not in found and parent.anchor_in(self._facts.best) is None:
                    found[parent.txid] = parent
                    waiting.append(parent)
        return found

    def known(self, txid: bytes) -> TxRecord | None:
        """Return the record of a transaction in the wallet or the orphanage, or None."""
        return self._facts.graph.get(txid) or self.orphans.get(txid)

    def note_verdict(self, txid: bytes, verdict: Verdict) -> None:
        """Record whether a block may still contain a foreign transaction."""
        self.pool.note_ended(txid, is_ended=verdict.status not in _OPEN)

    # Records

    def enter(self, record: TxRecord, groups: Groups = (), hits: dict[Identity, Hit] | None = None) -> None:
        """Add and match an unconfirmed record, and account for the space that it takes."""
        self._facts.enter(record)
        hits = self._hits.match(record) if hits is None else hits
        self._hits.enter(record, hits)
        if record.is_own:
            self.pool.remove(record.txid)
        else:
            self.pool.put(record, len(hits), groups or record.announced_by)

    def enter_again(self, txid: bytes) -> None:
        """Update the space that a foreign transaction takes, after its matches have changed."""
        record = self._facts.record(txid)
        if record is not None and txid in self.pool:
            self.pool.put(record, len(self._hits.of(txid)))

    def leave(self, txid: bytes) -> None:
        """Record that a block contains a transaction."""
        self._facts.leave(txid)
        self._hits.drop(txid)
        self.pool.remove(txid)

    def remove(self, txid: bytes) -> None:
        """Remove an unconfirmed record. The settlement withdraws its matches and deletes its row."""
        self._facts.remove(txid)
        self._hits.drop(txid)
        self.pool.remove(txid)

    def lower(self, fork: int) -> list[bytes]:
        """Record that unconfirmed transactions may be in blocks above height `fork`. Returns the changed txids."""
        lowered = self._facts.lower(fork)
        for txid in lowered:
            self.pool.note_changed(txid)
        return lowered

    def verify_returned(self, txids: Iterable[bytes]) -> list[bytes]:
        """Verify the foreign unconfirmed transactions that spend the wallet's coins.

        These came from the database or from disconnected blocks, not from peers. Returns the txids whose verdicts may
        change.
        """
        spends = [
            txid for txid in txids if txid in self.pool and any(hit.spend for hit in self._hits.of(txid).values())
        ]
        return self.rematch(spends)

    def drop_unlinked(self, component: Component) -> list[TxRecord]:
        """Remove and return the foreign transactions of a component that are no longer needed."""
        unlinked = self._unlinked(component.records)
        for record in unlinked:
            del component.records[record.txid]
            self.remove(record.txid)
            if record.active_drop is None:
                self.orphans.put(Orphan(record, arrived=-1))
        return unlinked

    # Admission

    def admit(self, orphan: Orphan) -> list[bytes]:
        """Admit a foreign unconfirmed transaction, or put it into the orphanage.

        Related orphans are also admitted, some of them later. Returns the txids whose verdicts may change.
        """
        return [*self._admit_one(orphan), *self.admit_due()]

    @property
    def due_groups(self) -> Groups | None:
        """The network groups that announced the first orphan that `admit_due` will admit; None if there is none."""
        orphans = (self.orphans.find(txid) for txid in self._due)
        return next((orphan.groups for orphan in orphans if orphan is not None), None)

    def admit_due(self) -> list[bytes]:
        """Admit some of the orphans related to a stored transaction. Returns the txids whose verdicts may change."""
        touched, graph = list[bytes](), self._facts.graph
        most = graph.walked + _MOST_WALKED
        while self._due and graph.walked <= most:
            txid = next(iter(self._due))
            del self._due[txid]
            if (orphan := self.orphans.take(txid)) is not None:
                touched += self._admit_one(orphan)
        return touched

    def _admit_one(self, orphan: Orphan) -> list[bytes]:
        # the wallet has not known the orphan until now, so earlier blocks are not searched for its scripts
        record = orphan.record._replace(first_height=self._searches.first_height)
        self._facts.graph.walked += 1 + len(record.inputs)
        touched = self._admit_record(record, orphan)
        if record.txid in self._facts.without_block:
            self._due |= dict.fromkeys(self.orphans.relatives(record))
        return touched

    def _admit_record(self, record: TxRecord, orphan: Orphan) -> list[bytes]:
        groups = orphan.groups
        hits = self._hits.match(record)
        if record.txid in self._facts.graph or any(mark in self._facts.confirmed for mark in hits):
            return []  # confirmed in a deep block
        if not hits and not self._decides(record):
            self.orphans.put(orphan._replace(record=record))
            return []
        has_room = len(hits) <= self.pool.limits.matches
        if not has_room or self._is_invalid(record):
            self.turned_away += not has_room
            self._turned_away += (record.txid, record.wtxid)
            return []
        verified = self._verified(record, hits)
        if verified is None:
            self._wrong.append((record.txid, record.wtxid))
            return []
        record = verified
        if self._has_no_room(record, groups, is_match=bool(hits)):
            self.turned_away += bool(hits)
            self._turned_away += (record.txid, record.wtxid)
            return []
        self.enter(record, groups, hits)
        touched = [record.txid, *self.rematch_children(record.txid)]
        children = [
            each
            for txid in self._facts.graph.children(record.txid)
            if (each := self._facts.graph.get(txid)) is not None
        ]
        if record.has_evidence or any(each.has_evidence for each in children):
            touched += self._facts.give_evidence(record.txid)
        return touched + self._make_room(self._facts.graph.get(record.txid) or record, groups)

    def adopt(self, record: TxRecord) -> list[bytes]:
        """Admit the orphans related to a stored transaction, and return the txids whose verdicts may change."""
        self._due |= dict.fromkeys(self.orphans.relatives(record))
        return self.admit_due()

    def admit_spenders(self, outpoints: Iterable[bytes]) -> list[bytes]:
        """Admit the orphans that spend these outpoints, and return the txids whose verdicts may change."""
        self._due |= dict.fromkeys(self.orphans.spenders(outpoints))
        return self.admit_due()

    def match_orphans(self) -> None:
        """Schedule the recent orphans for `admit_due`, because they may match new entries."""
        self._due |= dict.fromkeys(self.orphans.keep_recent())

    def _decides(self, record: TxRecord) -> bool:
        """True if this transaction is a parent of a kept unconfirmed transaction, or conflicts with one."""
        near = self._facts.graph.children(record.txid)
        near += (each for outpoint in record.inputs for each in self._facts.graph.spenders(outpoint))
        return any(each in self._facts.without_block for each in near)

    def _unlinked(self, records: Mapping[bytes, TxRecord]) -> list[TxRecord]:
        """Return the foreign transactions of a component that need not be kept.

        A transaction that matches and has not expired is kept, as are all transactions on which its fate depends: its
        ancestors, its conflicts, and so on.
        """
        kept = [txid for txid in records if txid not in self.pool or self._is_live(records[txid])]
        met = set(kept)
        if len(met) == len(records):
            return []
        for txid in kept:  # grows while it is walked
            for outpoint in records[txid].inputs:
                near = {outpoint[:HASH_SIZE], *self._facts.graph.spenders(outpoint)} & records.keys() - met
                met |= near
                kept += near
        return [record for txid, record in records.items() if txid not in met]

    def _is_live(self, record: TxRecord) -> bool:
        return self._hits.is_match(record.txid) and record.active_drop is None

    def _is_invalid(self, record: TxRecord) -> bool:
        """True if this transaction spends an output that its parent lacks, or pays more than its inputs are worth.

        Inputs with an unknown parent may have any value.
        """
        for outpoint in record.inputs:
            parent = self._facts.graph.get(outpoint[:HASH_SIZE])
            if parent is not None and int.from_bytes(outpoint[HASH_SIZE:], "little") >= parent.outputs:
                return True
        made = dict[bytes, Transaction]()  # parents: each is parsed once
        total = 0
        for outpoint in record.inputs:
            txid, value = outpoint[:HASH_SIZE], self._hits.coin_value(outpoint)
            if value is not None:
                total += value
            elif (parent := self._facts.graph.get(txid)) is None:
                return False
            else:
                if txid not in made:
                    made[txid] = Transaction.parse(parent.raw)
                at = made[txid].span.outputs[int.from_bytes(outpoint[HASH_SIZE:], "little")][0]
                total += int.from_bytes(parent.raw[at : at + 8], "little")
        return sum(output.value for output in Transaction.parse(record.raw).outputs) > total

    # Signatures

    def _verified(self, record: TxRecord, hits: Mapping[Identity, Hit]) -> TxRecord | None:
        """Verify a foreign record's signatures for the wallet's coins. Returns None if any of them is wrong.

        A block that contained the transaction is evidence too, unless the witness in it is wrong.
        """
        mine = [hit for hit in hits.values() if hit.spend]
        if not mine or record.is_own:
            return record
        validity = self._validity(record, mine)
        is_stripped = record.wtxid == record.txid  # as in a filtered block, which has no witnesses
        if record.anchors and (is_stripped or validity is not Validity.WRONG):
            validity = Validity.VALID
        match validity:
            case Validity.WRONG:
                return None
            case Validity.VALID:
                since = self._facts.number if record.counts_since is None else record.counts_since
                return record._replace(signatures=Signatures.VALID, counts_since=since)
            case Validity.UNKNOWN:
                return record

    def _validity(self, record: TxRecord, mine: Sequence[Hit]) -> Validity:
        if self._verify is None:
            return Validity.UNKNOWN
        known = {hit.n: TxOut(hit.value, hit.script) for hit in mine if hit.script is not None and hit.value >= 0}
        tx = Transaction.parse(record.raw)
        spent = [known.get(n) or self._hits.output(outpoint) for n, outpoint in enumerate(tx.inputs)]
        return self._verify(tx, spent, [hit.n for hit in mine]).validity

    def _drop_wrong(self, record: TxRecord) -> list[bytes]:
        """Remove a transaction with a wrong signature. Its descendants are judged without it.

        Returns the txids whose verdicts may change.
        """
        near, children = self._facts.graph.neighbours(record), self._facts.graph.children(record.txid)
        self._wrong.append((record.txid, record.wtxid))
        self.remove(record.txid)
        return [record.txid, *near, *self.rematch(children)]

    # Eviction

    def _make_room(self, record: TxRecord, groups: Groups) -> list[bytes]:
        """Evict foreign transactions until no limit is exceeded, and return the txids whose verdicts may change."""
        if any(self._facts.is_own(each) for each in self._facts.graph.descendants(record.txid)):
            return self._bound_ancestors(record)
        return [*self._bound_spenders(record), *self._bound_component(record), *self._bound_layer(record, groups)]

    def _bound_ancestors(self, record: TxRecord) -> list[bytes]:
        """Remove a foreign ancestor of our own transaction if its component is too large.

        Its descendants are judged without it.
        """
        pooled = self._pooled(self._facts.graph.component(record.txid, self._facts.best).records)
        if not self._is_too_large(pooled):
            return []
        near, children = self._facts.graph.neighbours(record), self._facts.graph.children(record.txid)
        self._turn_away(record)
        return [record.txid, *near, *self.rematch(children)]

    def _bound_spenders(self, record: TxRecord) -> list[bytes]:
        touched = list[bytes]()
        for outpoint in record.inputs:
            spenders = self._facts.graph.spenders(outpoint)
            if len(spenders) > self.pool.limits.spenders:
                evictable = self._evictable(spenders)
                excess = max(0, len(evictable) - self.pool.limits.spenders)
                for each in self._for_eviction(evictable, oldest=True)[:excess]:
                    touched += self._evict(each.txid)
        return touched

    def _bound_component(self, record: TxRecord) -> list[bytes]:
        touched, limit = list[bytes](), self.pool.limits.component
        most = self._facts.graph.walked + 10 * _MOST_WALKED
        while record.txid in self._facts.without_block:
            near = [*self._near(record), *self._evictable([record.txid])]
            if not self._is_too_large(near):
                break
            if self._facts.graph.walked > most:  # it joins many components
                touched += self._evict(record.txid)
                break
            if not self._hits.is_match(record.txid):  # its children are judged without it
                touched += (record.txid, *self._facts.graph.neighbours(record))
                self._turn_away(record)
                break
            ancestors = {each.txid for each in self._facts.graph.ancestors(record)}
            others = [each for each in near if each.txid not in ancestors]
            excess = max(len(near) - limit, 1)
            for each in self._for_eviction(others or near)[: (excess + 1) // 2]:
                if record.txid in self._facts.without_block:
                    touched += self._evict(each.txid)
        return touched

    def _is_too_large(self, records: Sequence[TxRecord]) -> bool:
        """True if these foreign transactions exceed one of the limits on a component."""
        limits, links = self.pool.limits, self._facts.graph.links
        return (
            len(records) > limits.component
            or sum(len(each.raw) for each in records) > limits.component_size
            or sum(len(links(each)) for each in records) > limits.component_links
        )

    def _has_no_room(self, record: TxRecord, groups: Groups, *, is_match: bool) -> bool:
        """True if a newcomer makes its component too large and would be the first transaction to be evicted from it.

        The newcomer is then not admitted, so that nobody can have a full component judged over and over.
        """
        graph = self._facts.graph
        if graph.children(record.txid) or any(
            len(graph.spenders(outpoint)) >= self.pool.limits.spenders for outpoint in record.inputs
        ):
            return False  # its children or conflicts may leave in its place
        near = self._near(record)
        if not self._is_too_large([*near, record]):
            return False
        if not is_match:
            return True
        ancestors = {each.txid for each in graph.ancestors(record)}
        number = min(max(len(dict.fromkeys(groups or record.announced_by)), 1), MANY)
        others = (each for each in near if each.txid not in ancestors)
        return all(
            (self._hits.is_match(each.txid), self.pool.quota.groups_of(each.txid), -each.last_seen)
            > (True, number, -record.last_seen)
            for each in others
        )

    def _near(self, record: TxRecord) -> list[TxRecord]:
        """Return the other foreign records in an unconfirmed record's component that may be evicted."""
        graph = self._facts.graph
        limits = self.pool.limits  # the search goes beyond them, but not far
        near, is_whole = graph.nearby(
            record, self._facts.best, 2 * limits.component, 2 * limits.component_size, 2 * limits.component_links
        )
        txids = [each.txid for each in near]
        if is_whole and not record.is_own and not any(each.is_own for each in near):
            return self._pooled(txids)  # there is no need to examine the descendants of each
        return self._evictable(txids)

    def _bound_layer(self, record: TxRecord, groups: Groups) -> list[bytes]:
        touched = list[bytes]()
        while self.pool.is_over and record.txid in self._facts.without_block:
            evictable = (txid for txid in self.pool.evictable(groups) if self._may_evict(txid, record))
            touched += self._evict(next(evictable, record.txid))
        return touched

    def _may_evict(self, txid: bytes, newcomer: TxRecord) -> bool:
        """True if this transaction may be evicted, with its descendants, to admit the newcomer."""
        family, groups_of = self._facts.graph.descendants(txid), self.pool.quota.groups_of
        if newcomer.txid in family or any(map(self._facts.is_own, family)):
            return False
        return self.pool.is_ended(txid) or all(groups_of(each) <= groups_of(txid) for each in family)

    def _for_eviction(self, records: list[TxRecord], *, oldest: bool = False) -> list[TxRecord]:
        """Sort records for eviction: transactions without a match first, then by ascending number of groups."""
        ordered = self.pool.fewest_groups(records, oldest=oldest)
        return sorted(ordered, key=lambda record: self._hits.is_match(record.txid))

    def _pooled(self, txids: Iterable[bytes]) -> list[TxRecord]:
        """Return the records of the foreign unconfirmed transactions among these."""
        found = (self._facts.graph.get(txid) for txid in txids if txid in self.pool)
        return [record for record in found if record is not None]

    def _evictable(self, txids: Iterable[bytes]) -> list[TxRecord]:
        """Return the records of the foreign unconfirmed transactions among these that have only foreign descendants."""
        return [
            record
            for record in self._pooled(txids)
            if not any(map(self._facts.is_own, self._facts.graph.descendants(record.txid)))
        ]

    def _evict(self, txid: bytes, *, for_room: bool = True) -> list[bytes]:
        """Remove a foreign transaction and its descendants, and return the txids whose verdicts may change."""
        touched = list[bytes]()
        for each in reversed(self._facts.graph.descendants(txid)):
            record = self._facts.graph.get(each)
            if record is None or each not in self._facts.without_block:
                continue
            near = sorted(self._facts.graph.neighbours(record))
            self._turn_away(record, for_room=for_room)
            touched += (each, *(other for other in near if other in self._facts.without_block))
        return touched

    def _turn_away(self, record: TxRecord, *, for_room: bool = True) -> None:
        """Remove a foreign transaction that is invalid or for which there is no room. A peer may announce it again."""
        verdict = self._judgement.verdict(record.txid)
        is_open = verdict is None or verdict.counts or verdict.status is Status.WAITING
        is_payment = self._hits.is_match(record.txid) and is_open
        self.turned_away += for_room and is_payment
        self._turned_away += (record.txid, record.wtxid)
        self.remove(record.txid)

    # Matching

    def rematch_children(self, txid: bytes) -> list[bytes]:
        """Match the unconfirmed children of a transaction again, and return their txids."""
        return self.rematch(self._facts.graph.children(txid))

    def rematch_spenders(self, outpoints: Iterable[bytes]) -> list[bytes]:
        return self.rematch(
            dict.fromkeys(txid for outpoint in outpoints for txid in self._facts.graph.spenders(outpoint))
        )

    def rematch(self, txids: Iterable[bytes]) -> list[bytes]:
        """Match unconfirmed transactions again, and return the txids whose verdicts may change.

        A foreign transaction is evicted if it pays more than its inputs turn out to be worth.
        """
        touched = list[bytes]()
        for txid in list(txids):
            record = self._facts.graph.get(txid)
            if record is None or txid not in self._facts.without_block:
                continue
            touched.append(txid)
            if self._evictable([txid]) and self._is_invalid(record):
                touched += self._evict(txid, for_room=False)
                continue
            hits = self._hits.match(record)
            verified = self._verified(record, hits)
            is_of_block = not record.announced_by
            if verified is None and is_of_block and record.wtxid == record.txid:
                verified = record  # a filtered block has no witnesses, so nothing is known about its signatures
            if verified is None:
                touched += self._drop_wrong(record)
                continue
            self.enter(verified, hits=hits)
            if verified.has_evidence and not record.has_evidence:
                touched += self._facts.give_evidence(txid)
        return touched
