"""Unconfirmed transactions of a wallet: those that count, their rivals, and those that a late parent may turn into a
match.

Of transactions that spend the same coin one counts, the one that was seen last; a descendant of one that does not count
does not count either. The others are kept as rivals: a block may have them, and they count again when nothing newer
stands against them.

Everything is found by outpoint, so that the work for one transaction does not grow with the number of the others:
anybody can invent unconfirmed payments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from math import inf
from typing import NamedTuple

from spvfilter.kernel import Hit
from spvfilter.protocol import MAX_BLOCK_WEIGHT
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.transaction import NULL_OUTPOINT, Transaction
from spvfilter.wallet.amounts import are_amounts
from spvfilter.wallet.sent import Sent
from spvfilter.wallet.unfinished import Unfinished
from spvfilter.wallet.unmatched import Arrival, Unmatched
from spvfilter.wallet.words import Groups, Words

MAX_PENDING = (
    100_000  # unconfirmed matched transactions; each takes 2 kB in memory and 1 kB in the database, however short it is
)
MAX_PENDING_SIZE = 50_000_000  # bytes of these; those beyond are found once a block confirms them
MAX_RIVALS = 1_000  # transactions that were replaced and not broadcast here; the oldest are forgotten
MAX_RIVALS_OF_COIN = 10  # of these, that spend the same
MAX_DISPLACED = 100  # transactions that one may keep from counting, Core policy/rbf.h MAX_REPLACEMENT_CANDIDATES
MAX_DISPLACED_MATCHES = 1_000  # matches of these, where it is ours; ours
MAX_INVENTED_MATCHES = (
    200  # the same where anybody may have invented it: it displaces more only once a block has it; ours
)
MAX_DISPLACED_OUTPUTS = (
    10_000  # of these and of what spends from them; three of Core's largest standard transactions have fewer; ours
)
MAX_SPARED = (
    25  # transactions that make room for one that other peers tell of, Core's longest chain of unconfirmed ones
)
MAX_SPARED_MATCHES = (
    3_300  # of these; one of Core's largest standard transactions, if all its outputs pay us, has fewer; ours
)
_RANKED = 50  # rivals of which the oldest are found for a unit of work
MAX_FAMILY = (
    100  # ancestors that count again with a transaction that spends from them; Core allows 25, clusters have 64
)


class Identity(NamedTuple):
    """What makes a match the same one: the input or output of a transaction."""

    spend: bool
    txid: bytes
    n: int


def identity(hit: Hit) -> Identity:
    """The identity of a hit's match."""
    return Identity(hit.spend, hit.txid, hit.n)


class Contest(NamedTuple):
    """What becomes of others if a transaction counts."""

    revived: list[bytes]
    """Its ancestors that count again, parents first."""
    displaced: list[bytes]
    """That count no more: rivals of it and of these, and their descendants."""


class Unconfirmed:
    """Unconfirmed transactions by txid and by the outpoints that they spend."""

    def __init__(self, pending: Mapping[bytes, StoredTx], hits: Iterable[Hit], last: int = 0) -> None:
        """As the database has them; `last` is the number of the latest broadcast of what is not pending."""
        self.pending: dict[bytes, StoredTx] = {}  # what counts, and rivals
        self.sent: Sent = Sent(self.pending, last)
        self._since: float = inf  # no one of them arrived before
        self.size: int = 0  # bytes of those that are not ours
        self._hits: dict[bytes, dict[Identity, Hit]] = {}  # of those that count
        self._spenders: dict[bytes, dict[bytes, None]] = {}  # outpoint → txids
        self._by_hash: dict[bytes, bytes] = {}  # txid and wtxid → txid
        self._wtxids: dict[bytes, bytes] = {}  # txid → wtxid
        self._ages: dict[bytes, int] = {}  # txid → number; the higher, the later it was seen
        self._seen = 0  # of these numbers
        self._rivals: dict[bytes, None] = {}  # txids of those that were replaced
        self.unmatched: Unmatched = Unmatched()
        for txid, each in sorted(pending.items(), key=lambda item: item[1].seen or 0):
            self.add(Transaction(each.raw, txid, Transaction.parse(each.raw).span), each)
        for hit in hits:
            self.record(hit)
        self.unfinished: Unfinished = Unfinished(self.pending)
        self.words: Words = Words(txid for txid, each in self.pending.items() if not each.own)

    def __len__(self) -> int:
        return len(self.pending)

    def hits(self, txid: bytes) -> dict[Identity, Hit]:
        """The matches of an unconfirmed transaction."""
        return self._hits.get(txid, {})

    def spenders(self, outpoint: bytes) -> list[bytes]:
        """The unconfirmed transactions that spend an outpoint."""
        return list(self._spenders.get(outpoint, ()))

    def has_room(self, raw: bytes) -> bool:
        """Whether there is room for another transaction of a stranger's; ours take none of it."""
        return self._has_room(len(raw), ())

    def _has_room(self, size: int, gone: Collection[bytes]) -> bool:
        freed = sum(len(self.pending[each].raw) for each in gone)
        return len(self.words) - len(gone) < MAX_PENDING and self.size - freed + size <= MAX_PENDING_SIZE

    def crowded_out(self, tx: Transaction, groups: Groups) -> list[bytes] | None:
        """Which transactions make room for one of a stranger's, on the word of network groups; None if there is none
        for it.

        Who invents payments has at most its share: the room is taken from what few groups tell, and from those who tell
        most of it.
        """
        if self.has_room(tx.raw):
            return []
        gone: dict[bytes, None] = {}
        parents = self._parents(tx)
        for txid in self.words.spare(groups):
            family = self.descendants([txid], MAX_SPARED)
            is_kept = any(self.pending[each].own or self.words.rank(each) > self.words.rank(txid) for each in family)
            is_much = self._is_much_to_spare({*gone, *family})
            if not is_much and parents.isdisjoint(family) and not is_kept:
                gone.update(dict.fromkeys(family))
                if self._has_room(len(tx.raw), gone):
                    self.words.made_room(*gone, *map(self._wtxids.__getitem__, gone))
                    return list(gone)
            elif is_much and self._is_much_to_spare(family):
                self.words.spare_before(txid, family[-1])
        self.words.leave_out(tx.txid, tx.wtxid)
        return None

    def _is_much_to_spare(self, txids: Collection[bytes]) -> bool:
        """Whether these are too many to make room at once, or have too many matches; one alone may always."""
        matches = sum(len(self.hits(txid)) for txid in txids)
        return len(txids) > MAX_SPARED or (len(txids) > 1 and matches > MAX_SPARED_MATCHES)

    def rest(self, txid: bytes, groups: Groups) -> None:
        """A new transaction rests on the word of groups.

        One that came after what spends from it goes after that: few go with each.
        """
        self.words.said(txid, *groups)
        if any(outpoint in self._spenders for outpoint in self.outpoints(txid)):
            self.words.spare_last(txid)

    def find(self, tx_hash: bytes) -> bytes | None:
        """The txid of a transaction by its txid or wtxid."""
        return self._by_hash.get(tx_hash)

    def wtxid_of(self, txid: bytes) -> bytes | None:
        """The wtxid of a transaction that is there."""
        return self._wtxids.get(txid)

    def is_live(self, txid: bytes) -> bool:
        """Whether a transaction is there and counts."""
        return txid in self.pending and txid not in self._rivals

    @property
    def has_rivals(self) -> bool:
        """Whether there is one that does not count."""
        return bool(self._rivals)

    def add(self, tx: Transaction, pending: StoredTx, age: int | None = None) -> None:
        """Keep a transaction that is not there yet, as the one seen last, unless it has an `age`."""
        self.pending[tx.txid] = pending
        self.sent.changed(tx.txid)
        self._since = min(self._since, pending.since or 0)
        self.size += _size(pending)
        self._name(tx)
        self.see(tx.txid, age)
        if pending.status is TxStatus.REPLACED:
            self._rivals[tx.txid] = None
        for outpoint in tx.inputs:
            self._spenders.setdefault(outpoint, {})[tx.txid] = None

    def _name(self, tx: Transaction) -> None:
        self._wtxids[tx.txid] = wtxid = tx.wtxid
        self._by_hash[tx.txid] = self._by_hash[wtxid] = tx.txid

    def see(self, txid: bytes, age: int | None = None) -> None:
        """A transaction was seen last, or at an `age`."""
        self._ages[txid] = max(self._ages.get(txid, 0), self._next_age() if age is None else age)

    def _next_age(self) -> int:
        self._seen += 1
        return self._seen

    def replace(self, txid: bytes, pending: StoredTx) -> None:
        """Change what is known of a transaction; a peer may have sent it with another witness."""
        before = self.pending[txid]
        self.size += _size(pending) - _size(before)
        self.pending[txid] = pending
        if pending.own != before.own:
            self.sent.changed(txid)
        if pending.raw != before.raw:
            self._by_hash.pop(self._wtxids[txid], None)
            self._name(Transaction.parse(pending.raw))
        self._rivals.pop(txid, None)
        if pending.status is TxStatus.REPLACED:
            self._rivals[txid] = None

    def take_hits(self, txid: bytes) -> dict[Identity, Hit]:
        """Remove and return the matches of a transaction that counts no more."""
        return self._hits.pop(txid, {})

    def record(self, hit: Hit) -> None:
        """Keep a match of a transaction."""
        self._hits.setdefault(hit.txid, {})[identity(hit)] = hit

    def fresh(self, hits: Sequence[Hit]) -> list[Hit]:
        """The matches of a transaction that are not kept and may be recorded now; those left over are `unfinished`."""
        if not hits:
            return []
        txid, unfinished, found = hits[0].txid, self.unfinished, list[Hit]()
        known = self._hits.get(txid, {})
        unfinished.matches.pop(txid, None)
        for at, hit in enumerate(hits):
            if unfinished.left <= 0:
                unfinished.matches[txid] = hits[at:]
                break
            if identity(hit) not in known:
                found.append(hit)
                unfinished.left -= 1
        return found

    def change(self, hit_of: Callable[[Hit], Hit | None]) -> dict[bytes, list[Hit]]:
        """Change all hits; those for which there is none are removed and returned, by txid."""
        self.unfinished.match_again()
        lost: dict[bytes, list[Hit]] = {}
        for txid, hits in self._hits.items():
            self._hits[txid] = {mark: made for mark, hit in hits.items() if (made := hit_of(hit)) is not None}
            if len(self._hits[txid]) < len(hits):
                lost[txid] = [hit for mark, hit in hits.items() if mark not in self._hits[txid]]
        for txid, pending in self.pending.items():
            if pending.hits:
                self.pending[txid] = pending._replace(
                    hits=tuple(hit for hit in map(hit_of, pending.hits) if hit is not None)
                )
        return lost

    def remove(self, txid: bytes) -> dict[Identity, Hit] | None:
        """Forget a transaction; its matches, or None if it is not there."""
        if (pending := self.pending.pop(txid, None)) is None:
            return None
        tx = Transaction.parse(pending.raw)
        self.size -= _size(pending)
        for outpoint in dict.fromkeys(tx.inputs):
            spenders = self._spenders[outpoint]
            del spenders[txid]
            if not spenders:
                del self._spenders[outpoint]
        self._rivals.pop(txid, None)
        self.sent.changed(txid)
        self.words.forget(txid)
        del self._ages[txid]
        for tx_hash in (txid, self._wtxids.pop(txid)):
            self._by_hash.pop(tx_hash, None)
        return self._hits.pop(txid, {})

    def descendants(self, txids: Iterable[bytes], enough: int = MAX_PENDING, outputs: float = inf) -> list[bytes]:
        """Transactions and all that spend from them, directly or through others; ends once these, or `outputs` of
        these, are more.
        """
        found: list[bytes] = []
        for txid, count in self._family(txids):
            found.append(txid)
            if len(found) > enough or (outputs := outputs - count) < 0:
                break
        return found

    def _family(self, txids: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        """Transactions and all that spend from them, each with the number of its outputs; its children are looked for
        when it is taken.
        """
        family = list(dict.fromkeys(txids))
        members = set(family)
        for parent in family:  # grows while it is walked
            self.unfinished.looked_at(1)
            raw = self.pending.get(parent)
            outputs = len(Transaction.parse(raw.raw).span.outputs) if raw is not None else 0
            yield parent, outputs
            for index in range(outputs):
                for child in self.spenders(parent + index.to_bytes(4, "little")):
                    if child not in members:
                        members.add(child)
                        family.append(child)

    def _displaced(self, rivals: Iterable[bytes], most: float) -> set[bytes] | None:
        """Those and their descendants, where they count, of at most so many matches; None as soon as it is too much,
        however much it is.

        With no limit to the matches there is none at all.
        """
        displaced, outputs, matches = set[bytes](), 0, 0
        for txid, count in self._family(rivals):
            outputs += count
            if self.is_live(txid):
                displaced.add(txid)
                matches += len(self.hits(txid))
            if matches > most or (most < inf and (len(displaced) > MAX_DISPLACED or outputs > MAX_DISPLACED_OUTPUTS)):
                return None
        return displaced

    def older_than(self, since: int, began: int, proven: int) -> list[bytes]:
        """The transactions that arrived at `since` or before; of those that did before `began`, which arrived at
        `proven` or before.
        """
        if since < self._since:  # mostly: they may be many
            return []
        ages = {txid: pending.since or 0 for txid, pending in self.pending.items()}
        found = [txid for txid, age in ages.items() if age <= (since if age >= began else min(since, proven))]
        self._since = min(ages.values(), default=inf)
        return found

    # Rivals

    def contest(self, tx: Transaction, *, own: bool = False, moves_all: bool = False) -> Contest | None:
        """What becomes of others if a transaction counts; None if it cannot.

        That is so if it spends what one of its ancestors spends, or from two that spend the same, if too many ancestors
        would have to count again, or if too much would count no more: a few bytes of a stranger's are not to move
        thousands of matches. What a reorganisation brings back `moves_all`, as its block did.
        """
        most = inf if moves_all else MAX_DISPLACED_MATCHES if own else MAX_INVENTED_MATCHES
        family = self.replaced_ancestors(tx)
        if family is None:
            return None
        members = [*(Transaction.parse(self.pending[txid].raw) for txid in family), tx]
        spent: set[bytes] = set()
        for member in members:
            inputs = set(member.inputs)
            if inputs & spent:
                return None
            spent |= inputs
        rivals = {txid for outpoint in spent for txid in self._spenders.get(outpoint, ()) if self.is_live(txid)} - {
            tx.txid
        }
        if len(rivals) > MAX_DISPLACED and not moves_all:
            return None
        displaced = self._displaced(rivals, most)
        if displaced is None or any(parent in displaced for member in members for parent in self._parents(member)):
            return None
        if sum(len(member.span.outputs) for member in members[:-1]) > MAX_DISPLACED_MATCHES:
            return None
        self.unfinished.looked_at(len(members) + len(displaced))
        return Contest(family, self.by_age(displaced))

    def by_age(self, txids: Iterable[bytes]) -> list[bytes]:
        """Transactions in the order in which they were seen."""
        return sorted(txids, key=self._ages.__getitem__)

    def seen_after(self, tx: Transaction, age: int, contest: Contest) -> bytes | None:
        """What came after a transaction of an `age` and all that spends from it, and stands against it; None if nothing
        does.
        """
        spenders = [(self._ages[txid], txid) for txid in contest.displaced[-1:]]
        spenders += [
            (each.age, each.txid)
            for outpoint in tx.inputs
            for each in self.unmatched.spenders(outpoint)
            if each.txid != tx.txid
        ]
        latest, txid = max(spenders, default=(0, None))
        seen = max((age, *(self._ages[each] for each in self.spending(tx) or () if self.is_live(each))))
        return txid if latest > seen else None

    def spending(self, tx: Transaction) -> set[bytes] | None:
        """What counts and spends from a transaction that is not there, directly or through others; None if it is too
        much.
        """
        children = (child for index in range(len(tx.span.outputs)) for child in self.spenders(tx.outpoint(index)))
        return self._displaced(children, MAX_INVENTED_MATCHES)

    def parents_first(self, txids: Iterable[bytes]) -> list[bytes]:
        """Transactions in an order in which none comes before one that it spends from."""
        wanted = dict.fromkeys(txids)
        waiting, ordered = list(reversed(wanted)), dict[bytes, None]()
        while waiting:
            txid = waiting[-1]
            parents = self._parents(Transaction.parse(self.pending[txid].raw)) if txid not in ordered else set()
            first = [each for each in wanted.keys() & parents if each not in ordered]
            waiting += sorted(first)
            if not first:
                ordered[waiting.pop()] = None
        return list(ordered)

    def replaced_ancestors(self, tx: Transaction) -> list[bytes] | None:
        """Rivals that a transaction spends from, directly or through others of them, parents first; None if they are
        too many.
        """
        parents: dict[bytes, set[bytes]] = {}
        waiting = sorted(self._parents(tx) & self._rivals.keys())
        while waiting:
            txid = waiting.pop()
            if txid not in parents:
                parents[txid] = self._parents(Transaction.parse(self.pending[txid].raw)) & self._rivals.keys()
                waiting += sorted(parents[txid])
                self.unfinished.looked_at(2)
            if len(parents) > MAX_FAMILY:
                return None
        found: dict[bytes, None] = {}
        while len(found) < len(parents):  # a transaction is not its own ancestor: its txid is a hash over theirs
            found.update(dict.fromkeys(txid for txid in parents if parents[txid] <= found.keys()))
        return list(found)

    def inputs_of(self, txids: Iterable[bytes]) -> list[bytes]:
        """The outpoints that they spend."""
        return [outpoint for txid in txids for outpoint in Transaction.parse(self.pending[txid].raw).inputs]

    def outpoints(self, txid: bytes) -> list[bytes]:
        """The outpoints of its outputs."""
        tx = Transaction.parse(self.pending[txid].raw)
        return [tx.outpoint(index) for index in range(len(tx.span.outputs))]

    def _parents(self, tx: Transaction) -> set[bytes]:
        return {outpoint[:32] for outpoint in tx.inputs if outpoint[:32] in self.pending}

    def comebacks(self, freed: Iterable[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
        """Rivals that spend these outpoints, or from each other, and against which nothing stands: the one seen last
        first.

        With each what it displaces: ours that the user has replaced by it. Each must be made to count before the next
        is asked for.
        """
        waiting = set(freed)
        while waiting:
            rivals = {txid for outpoint in waiting for txid in self._spenders.get(outpoint, ()) if txid in self._rivals}
            waiting = set()
            for txid in sorted(rivals, key=self._ages.__getitem__, reverse=True):
                if txid in self._rivals and (displaced := self._gives_way(txid)) is not None:
                    yield txid, displaced
                    waiting.update(self.outpoints(txid), self.inputs_of(displaced))

    def _gives_way(self, txid: bytes) -> list[bytes] | None:
        """What a rival displaces if it counts again; None if it cannot."""
        rival = self.pending[txid].rival
        if rival is not None and (rival in self.unmatched or rival in self.unfinished.late):
            return None
        tx, wanted = Transaction.parse(self.pending[txid].raw), self.sent.wanted
        others = {each for outpoint in tx.inputs for each in self._spenders[outpoint] if self.is_live(each)}
        if any(outpoint[:32] in self._rivals for outpoint in tx.inputs):
            return None
        if txid not in wanted or any(each not in self.sent or each in wanted for each in others):
            return None if others else []
        contest = self.contest(tx, own=True)
        return None if contest is None else contest.displaced

    def excess(self, replaced: Iterable[bytes]) -> list[bytes]:
        """What is to be forgotten once these were replaced: the oldest rivals of a coin, or of all, with what spends
        from them.

        Those on the word of fewest groups go first: who invents rivals has none forgotten that more groups tell of.
        """
        coins = set(self.inputs_of(txid for txid in replaced if txid in self.pending))
        groups = [
            ([txid for txid in self._spenders[outpoint] if txid in self._rivals], MAX_RIVALS_OF_COIN)
            for outpoint in coins
        ]
        if len(self._rivals) > MAX_RIVALS:
            groups.append((list(self._rivals), MAX_RIVALS))
        found: dict[bytes, None] = {}
        for rivals, most in groups:
            if len(rivals) <= most:
                continue
            self.unfinished.spend(len(rivals) / _RANKED)
            others = [txid for txid in rivals if not self.pending[txid].own and txid not in found]
            for txid in nsmallest(
                len(others) - most, others, key=lambda txid: (self.words.rank(txid), self._ages[txid])
            ):
                if txid in found:
                    continue
                family = self.descendants([txid])
                if not any(self.pending[each].own for each in family):
                    found.update(dict.fromkeys(family))
        return list(found)

    def trim(self, replaced: Iterable[bytes], batch: Batch) -> None:
        """Forget the oldest rivals where these have become too many; last of all, since until then one may count
        again.
        """
        for each in self.excess(replaced):
            self.remove(each)
            batch.transactions[each] = None

    # Without a match so far

    def set_aside(self, tx: Transaction, since: int, age: int | None) -> None:
        """Keep a transaction that does not match; `age` if it is no new one."""
        self.unmatched.put(Arrival(tx.txid, tx.raw, since, self._next_age() if age is None else age))

    def unmatch(self, txid: bytes) -> Arrival | None:
        """A transaction matches no more: it still stands against rivals.

        One of which not all was recorded is looked at again.
        """
        pending, age = self.pending[txid], self._ages[txid]
        self.remove(txid)
        arrival = Arrival(txid, pending.raw, pending.since or 0, age)
        if txid in self.unfinished.matches:
            return arrival
        self.unmatched.put(arrival)
        return None

    def follow(self, made: Iterable[bytes]) -> None:
        """Outputs became known: unmatched transactions that spend them are `unfinished`, of rivals the one seen last
        comes last.
        """
        self.unfinished.add_late(self.unmatched.take(made))


def why_impossible(tx: Transaction) -> str | None:
    """Why no block can have a transaction, as far as it tells by itself (Core consensus/tx_check.cpp CheckTransaction);
    None if one can.

    A coinbase is in a block, but never in a mempool.
    """
    inputs = tx.inputs
    if not inputs or not tx.span.outputs:
        return "it has no inputs" if not inputs else "it has no outputs"
    if tx.is_coinbase:
        return "it is a coinbase"
    if NULL_OUTPOINT in inputs or len(set(inputs)) < len(inputs):
        return "it spends the null outpoint" if NULL_OUTPOINT in inputs else "it spends an output twice"
    if not are_amounts(tx.raw, tx.span):
        return "the values of its outputs are out of range"
    if len(tx.raw) > MAX_BLOCK_WEIGHT // 4 and tx.weight > MAX_BLOCK_WEIGHT:
        return f"its weight of {tx.weight:,} is above {MAX_BLOCK_WEIGHT:,}"
    return None


def _size(pending: StoredTx) -> int:
    """The bytes of a stranger's transaction; ours take none of their room."""
    return 0 if pending.own else len(pending.raw)


def made_by(hits: Iterable[Hit]) -> Iterator[bytes]:
    """The outpoints of the outputs among the hits."""
    return (hit.outpoint for hit in hits if not hit.spend)
