"""The books in random lives: they equal `canonical` of the facts, whatever the restarts and the groups of commits."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from spvfilter.network import REGTEST
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.batch import Batch
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.confirmed import Identity
from spvfilter.wallet.events import (
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    TxReplaced,
    WalletEvent,
)
from spvfilter.wallet.filterdata import stored_elements
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.refusals import check_broadcast
from spvfilter.watch.match import MatchKind
from support.blocks.build import TxOut, coinbase, txid
from support.vectors import effort, first_of
from support.wallets.facts import Facts, naive_statuses
from support.wallets.stores import opened
from support.wallets.storesqlite import checked_rows, sqlite_of
from support.wallets.walletbooks import OURS, THEIRS, Wallet, coin, out, pay

LIMITS = PendingLimits(matches=24, number=16, component=8, spenders=3)
TABLES = ("transactions", "matches", "unspent", "tx_labels", "coins", "watch")


def rows(store: Store) -> dict[str, list[tuple[object, ...]]]:
    return {table: sorted(sqlite_of(store).execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}


class Life(Wallet):
    """A wallet to which anything happens. A second database commits the same batches in random groups."""

    def __init__(self, seed: int, limits: PendingLimits | None) -> None:
        self.rng = Random(seed)
        self.grouped = opened(MEMORY)
        self.grouped.commit(Batch(headers=REGTEST.genesis, cursor=0))
        self.waiting: list[Batch] = []
        super().__init__(limits, scripts=[OURS])
        self.grouped.attach(self.watch_list())
        self.mined: dict[bytes, bytes] = {}  # of all blocks, even disconnected ones: their outputs stay watched
        self.value = 100_000
        self.raws: dict[bytes, bytes] = {}  # of all that were ever made, by txid
        self.quorum = self.rng.choice((1, 2))
        self.evident: set[bytes] = set()  # of all transactions that ever counted, as long as they are kept
        self.fund()

    def tell(self, events: Iterable[WalletEvent]) -> list[WalletEvent]:
        known = list(events)
        batches = self.books.take_batches()
        self.store.commit(*batches)
        self.waiting += batches
        for event in known:
            self.told.take(event)
        marks = [
            _mark(event)
            for event in known
            if isinstance(event, (MatchFound, MatchConfirmed, MatchUnconfirmed, MatchWithdrawn))
        ]
        assert len(set(marks)) == len(marks), "one input gives at most one event per match"
        replaced = [event.txid for event in known if isinstance(event, TxReplaced)]
        assert len(set(replaced)) == len(replaced)
        return known

    # Steps

    def new(self) -> bytes:
        self.value -= 1
        made = list(self.raws.values())
        places = [coin(1), coin(2), *(out(raw, index) for raw in made[-8:] for index in (0, 1))]
        if made and self.rng.random() < 0.05:
            places = [out(self.rng.choice(made[-8:]), 2)]  # its parent does not have this output
        spends = self.rng.sample(places, min(len(places), self.rng.choice((1, 1, 2, 3))))
        value = self.value if self.rng.random() < 0.8 else 1
        raw = pay(value, *spends, to=self.rng.choice((OURS, OURS, THEIRS)))
        self.raws[txid(raw)] = raw
        return raw

    def fund(self) -> None:
        self.value -= 1
        raw = pay(2 * self.value, coin(100 + len(self.chain) + self.value % 50))
        self.raws[txid(raw)] = raw
        self.mine(raw)

    def send(self, raw: bytes) -> None:
        try:
            check_broadcast(self.books, Transaction.parse(raw))
        except ValueError:
            return
        self.broadcast(raw)
        verdict = self.books.judgement.verdict(txid(raw))
        assert verdict is not None
        rival = verdict.conflicts_with
        rivals = [] if rival is None else map(self.books.facts.record, self.books.facts.graph.descendants(rival))
        is_contested = any(each is not None and each.is_own and each.was_requested for each in rivals)
        assert verdict.counts or (verdict.status is Status.WAITING and is_contested), "an accepted broadcast counts"

    def mine_some(self) -> None:
        """A valid block of a few known transactions, or of transactions that the wallet did not see."""
        there = {txid(raw) for block in self.blocks for raw in block}
        spent = {each for block in self.blocks for raw in block for each in Transaction.parse(raw).inputs}
        chosen = []
        for raw in self.raws.values():
            inputs = set(Transaction.parse(raw).inputs)
            parents = {each[:32] for each in inputs} & self.raws.keys()
            if any(each[32] >= len(Transaction.parse(self.raws.get(each[:32], raw)).outputs) for each in inputs):
                continue  # its parent does not have this output
            if self.rng.random() < 0.4 and txid(raw) not in there and not inputs & spent and parents <= there:
                chosen.append(raw)
                there.add(txid(raw))
                spent |= inputs
        reward = coinbase(len(self.chain), [TxOut(5, OURS)], self.rng.randbytes(4)) if self.rng.random() < 0.3 else None
        if reward is not None:
            self.raws[txid(reward)] = reward
        self.mine(*chosen, reward=reward)

    def step(self) -> None:
        chance, rng = self.rng.random(), self.rng
        known = list(self.books.facts.unconfirmed())
        own = [each.txid for each in known if each.is_own]
        self.now += rng.choice((1, 1, 1_000))
        if chance < 0.30:
            self.observe(self.new(), *rng.sample("abcdef", rng.randint(0, 3)), quorum=self.quorum)
        elif chance < 0.50:
            self.send(self.new())
        elif chance < 0.60:
            raw = rng.choice(list(self.raws.values())[-20:])
            self.send(raw) if rng.random() < 0.5 else self.observe(raw, rng.choice("abcdef"), quorum=self.quorum)
        elif chance < 0.64 and known:
            self.tell(self.books.announce_later(rng.choice(known).txid, self.now))
        elif chance < 0.66 and self.books.judgement.waiting:
            waiting = rng.choice(list(self.books.judgement.waiting))
            self.tell(self.books.announce(waiting, [rng.choice("abcdef")], quorum=rng.choice((1, 2, 3))))
        elif chance < 0.68 and own:
            self.tell(self.books.requested(rng.choice(own)))
        elif chance < 0.72 and own:
            self.tell((self.books.abandon if rng.random() < 0.5 else self.books.reject)(rng.choice(own)))
        elif chance < 0.76:
            self.tell(self.books.expire(self.now - rng.choice((500, 5_000)) + MEMPOOL_EXPIRY_S))
        elif chance < 0.86:
            self.mine_some()
        elif chance < 0.91 and len(self.chain) > 4:
            self.reorganize(rng.randint(1, 3))
        elif chance < 0.94:
            self.fund()
        elif chance < 0.96:
            self.scripts[OURS] = label = rng.choice(("w", "x", "y"))
            self.books.watch.relabel(0, label)
            self.books.relabel({0: label})
            self.tell(())
        else:
            self.check_restart()

    # Checks

    def check(self) -> None:
        books = self.books
        facts = Facts()
        for record in books.facts.graph:
            facts.graph.put(record)
            facts.spends[record.txid] = list(record.inputs)
            facts.chain |= {each for each in record.anchors if each in books.facts.best}
            if record.fault is not None:
                facts.faulty.add(record.txid)
        self.check_verdicts(naive_statuses(facts))
        self.check_evidence()
        self.check_matches()
        self.check_bounds()
        self.check_kept()
        own = [each.txid for each in books.judgement.own_records()]
        assert sorted(own) == sorted(each.txid for each in books.facts.unconfirmed() if each.is_own)
        place = {txid: at for at, txid in enumerate(own)}
        for each in books.judgement.own_records():
            assert all(place[parent] < place[each.txid] for spent in each.inputs if (parent := spent[:32]) in place)
        assert books.take_batches() == []

    def check_verdicts(self, expected: dict[bytes, Status | None]) -> None:
        for digest, status in expected.items():
            verdict = self.books.judgement.verdict(digest)
            assert verdict is not None
            if status is None:
                assert verdict.status in (Status.ABANDONED, Status.REJECTED, Status.EXPIRED)
            else:
                assert verdict.status is status, (digest.hex(), verdict, status)

    def check_evidence(self) -> None:
        """No fact takes evidence back. A waiting transaction is only in the list of waiting ones."""
        books, views = self.books, self.store.views
        records = {each.txid: each for each in books.facts.graph}
        self.evident &= records.keys()
        assert all(records[each].has_evidence for each in self.evident)
        self.evident |= {digest for digest, each in records.items() if each.has_evidence}
        foreign = {each.txid for each in books.facts.unconfirmed() if not each.is_own}
        waiting = {each for each in foreign if str(books.judgement.status(each)) == "waiting"}
        assert books.judgement.waiting.keys() == waiting
        assert {each.txid for each in views.history(waiting=True)} == {each for each in waiting if books.hits.of(each)}
        listed = {each.txid for each in views.history()}
        assert all(records[each].has_evidence for each in listed & records.keys())
        held = {
            each
            for record in books.judgement.own_records()
            if str(books.judgement.status(record.txid)) == "waiting"
            for each in record.inputs
        }
        spent = {
            point
            for each in books.judgement.own_records()
            if books.judgement.is_pending(each.txid)
            for point in each.inputs
        }
        assert not {bytes(each.outpoint) for each in views.unspent()} & (held | spent)
        assert views.balance().spendable == sum(each.value for each in views.unspent())

    def check_matches(self) -> None:
        """The matches that count are those of blocks and of transactions with a canonical verdict, found naively."""
        books = self.books
        raws = {record.txid: record.raw for record in books.facts.unconfirmed()}
        blocks = {txid(raw): raw for block in self.blocks for raw in block}
        self.mined |= blocks
        ours = {
            out(raw, n)
            for raw in {**raws, **self.mined}.values()
            for n, each in enumerate(Transaction.parse(raw).outputs)
            if each.script_pubkey == OURS
        }
        wanted = set()
        for digest, raw in {**raws, **blocks}.items():
            if digest in blocks or books.judgement.is_pending(digest):
                tx = Transaction.parse(raw)
                wanted |= {(False, digest, n) for n, each in enumerate(tx.outputs) if each.script_pubkey == OURS}
                wanted |= {(True, digest, n) for n, each in enumerate(tx.inputs) if each in ours}
        found = {_identity(event.match): event.match.height for event in books.matches()}
        assert found.keys() == wanted
        assert {digest for (_, digest, _), height in found.items() if height is not None} <= blocks.keys()
        assert found == {_identity(match): match.height for match in self.told.matches.values()}
        assert found == {
            Identity(bool(each.hit.spend), each.hit.txid, each.hit.n): each.height for each in self.store.matches()
        }

    def check_bounds(self) -> None:
        books, limits = self.books, self.books.intake.pool.limits
        foreign = [each for each in books.facts.unconfirmed() if not each.is_own]
        assert {each.txid for each in foreign} == set(books.intake.pool)
        assert books.intake.pool.size == sum(len(each.raw) for each in foreign)
        assert books.intake.pool.matches == sum(len(books.hits.of(each.txid)) for each in foreign)
        assert len(books.intake.pool.quota) == len(foreign) <= limits.number + 100

    def check_kept(self) -> None:
        """Every foreign transaction matches and has not expired, or decides about another kept transaction."""
        books = self.books
        left = {each.txid: each for each in books.facts.unconfirmed()}
        kept = [
            each for each in left.values() if each.is_own or (books.hits.is_match(each.txid) and not each.active_drop)
        ]
        while kept:
            spent = {outpoint for each in kept for outpoint in each.inputs}
            named = {outpoint[:32] for outpoint in spent}
            for each in kept:
                left.pop(each.txid, None)
            kept = [each for each in left.values() if each.txid in named or not spent.isdisjoint(each.inputs)]
        assert not left

    def check_restart(self) -> None:
        """A restart changes nothing: no verdict, no match, no row, no element of the filter."""
        before = self.books
        verdicts = {each.txid: before.judgement.verdict(each.txid) for each in before.facts.graph}
        matches = {_identity(event.match): event.match for event in before.matches()}
        stored, elements = rows(self.store), set(before.bloom_elements())
        self.restart()
        assert self.books.opening == []
        assert {each.txid: self.books.judgement.verdict(each.txid) for each in self.books.facts.graph} == verdicts
        assert {_identity(event.match): event.match for event in self.books.matches()} == matches
        assert set(self.books.bloom_elements()) == elements
        assert set(stored_elements(checked_rows(self.store), REGTEST, self.store.tip)) == elements
        self.tell(())
        assert rows(self.store) == stored

    def check_grouped(self) -> None:
        """Committing batches in groups gives the same rows as committing them one by one."""
        while self.waiting:
            number = self.rng.choice((1, 2, 3, 7))
            self.grouped.commit(*self.waiting[:number])
            del self.waiting[:number]
        assert rows(self.grouped) == rows(self.store)


def _identity(match: object) -> tuple[bool, bytes, int]:
    return match.kind is MatchKind.INPUT, match.txid, match.index  # type: ignore[attr-defined]


def _mark(event: WalletEvent) -> tuple[bool, bytes, int]:
    return _identity(event.match)  # type: ignore[union-attr]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", first_of(4, *range(effort(10, 40, 5_000))))
def test_books_equal_canonical_of_the_facts(seed: int) -> None:
    life = Life(seed, LIMITS if seed % 2 else None)
    for _ in range(60):
        life.step()
        life.check()
    life.check_restart()
    life.check_grouped()
