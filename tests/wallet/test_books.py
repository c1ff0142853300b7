"""The books against a naive recomputation: random chains, mempools, reorganizations, conflicts, crashes and events."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.kernel import EntryKind
from spvfilter.light.events import Event
from spvfilter.network import REGTEST
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.batch import Batch
from spvfilter.store.place import MEMORY
from spvfilter.transaction import Transaction
from spvfilter.wallet import orphanage
from spvfilter.wallet.books import Books
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.refusals import check_broadcast
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, coinbase, header, outpoint, p2wpkh, sha256d, tx, txid
from support.client.lightworld import Books as Told, identity
from support.oracles.ledger import check_ledger
from support.vectors import effort, first_of
from support.wallets.stores import opened

OURS = [p2wpkh(bytes([number]) * 20) for number in range(1, 4)]
THEIRS = p2wpkh(b"\xee" * 20)


class Model:
    """Blocks as lists of transactions, and books that receive them from a peer with a perfect filter."""

    def __init__(self, seed: int, limits: PendingLimits | None = None) -> None:
        self.limits = limits
        self.values: dict[bytes, int] = {}  # value of each output, by outpoint
        self.rng = random.Random(seed)
        self.store = opened(MEMORY)
        self.store.commit(Batch(headers=REGTEST.genesis, cursor=0))
        self.watch = WatchList(REGTEST)
        for number, script in enumerate(OURS):
            self.watch.add_script(script, f"label {number // 2}")
        self.books = self.opened()
        self.told = Told()
        self.chain: list[tuple[bytes, list[bytes]]] = [(REGTEST.genesis, [])]
        self.scanned = 0
        self.mempool: dict[bytes, bytes] = {}  # transactions of the network, including conflicting ones
        self.own: set[bytes] = set()  # txids of canonical own transactions
        self.now = 0

    def opened(self) -> Books:
        """The books, restored from the database."""
        self.store.attach(self.watch)
        saved = SavedBooks(
            matches=list(self.store.matches()),
            transactions=self.store.transactions(-1),
            cursor=self.store.cursor,
            searched=self.store.searched,
            blocks=self.store.searched_blocks,
            ids=self.store.ids,
        )
        return Books(self.watch, saved, self.limits)

    def tell(self, events: Iterable[Event]) -> None:
        """Commit the changes of the books, then process the events."""
        self.store.commit(*self.books.take_batches())
        for event in events:
            self.told.take(event)
        check_ledger(self.store)
        self.check_unconfirmed()
        assert all(self.store.views.transaction(digest) is not None for digest in self.own), "what we broadcast is lost"

    # Events of the network

    def coins(self) -> list[tuple[bytes, int]]:
        """Outputs of the best chain and the mempool that no block spends."""
        made: dict[bytes, tuple[bytes, int]] = {}
        spent: set[bytes] = set()
        for _, txs in self.chain:
            for raw in txs:
                for number in range(len(Transaction.parse(raw).outputs)):
                    made[outpoint(txid(raw), number)] = (txid(raw), number)
                spent |= spends(raw)
        for raw in self.mempool.values():
            for number in range(3):
                made[outpoint(txid(raw), number)] = (txid(raw), number)
        return [coin for point, coin in made.items() if point not in spent]

    def is_coinbase(self, spent: TxIn) -> bool:
        return any(spent.outpoint[:32] == txid(txs[0]) for _, txs in self.chain if txs)

    def make(self) -> bytes:
        coins = self.coins()
        inputs: list[TxIn] = []
        for _ in range(self.rng.randint(1, 2)):
            digest, number = (
                self.rng.choice(coins) if coins and self.rng.random() < 0.85 else (self.rng.randbytes(32), 0)
            )
            if outpoint(digest, number) not in {each.outpoint for each in inputs}:
                inputs.append(TxIn(digest, number))
        scripts = [self.rng.choice(OURS) if self.rng.random() < 0.4 else THEIRS for _ in range(3)]
        most = sum(self.values.get(each.outpoint, 0 if self.is_coinbase(each) else 10**9) for each in inputs) // 3
        outputs = [TxOut(self.rng.randrange(most + 1), script) for script in scripts]
        raw = tx(inputs, outputs, lock_time=self.rng.randrange(1 << 30))
        self.values |= {outpoint(txid(raw), number): output.value for number, output in enumerate(outputs)}
        return raw

    # Steps

    def announce(self) -> None:
        self.now += 1
        raw = self.make()
        self.mempool[txid(raw)] = raw
        self.tell(self.books.observe(raw, self.now))

    def repeat(self) -> None:
        for raw in self.rng.sample(list(self.mempool.values()), min(3, len(self.mempool))):
            self.tell(self.books.observe(raw, self.now))

    def mine(self) -> None:
        self.append(self.body(), at=len(self.chain))
        self.books.extend(self.chain[-1][0])
        self.tell(())

    def body(self) -> list[bytes]:
        """The transactions of a valid block: parents first, no outpoint spent twice."""
        gone = set().union(*(spends(raw) for _, txs in self.chain for raw in txs))
        there = {txid(raw) for _, txs in self.chain for raw in txs}
        chosen: list[bytes] = [
            coinbase(len(self.chain), [TxOut(5, self.rng.choice([*OURS, THEIRS]))], self.rng.randbytes(4))
        ]
        for digest, raw in self.mempool.items():
            parents = {point[:32] for point in spends(raw)} & set(self.mempool)
            if self.rng.random() < 0.6 and not spends(raw) & gone and parents <= there and digest not in there:
                chosen.append(raw)
                there.add(digest)
                gone |= spends(raw)
        return chosen

    def append(self, txs: list[bytes], at: int) -> None:
        previous = sha256d(self.chain[at - 1][0])
        self.chain.append((header(previous, self.rng.randbytes(32)), txs))
        there = {txid(raw) for _, body in self.chain for raw in body}
        gone = set().union(*(spends(raw) for _, body in self.chain for raw in body))
        dead = {digest for digest, raw in self.mempool.items() if digest not in there and spends(raw) & gone}
        self.drop(dead)
        self.mempool = {digest: raw for digest, raw in self.mempool.items() if digest not in there}

    def drop(self, dead: set[bytes]) -> None:
        """Transactions that no block can contain, with all their descendants."""
        while dead:
            self.mempool = {digest: raw for digest, raw in self.mempool.items() if digest not in dead}
            dead = {digest for digest, raw in self.mempool.items() if any(point[:32] in dead for point in spends(raw))}

    def search(self) -> None:
        """Connect blocks above the cursor, a random number at once."""
        first = self.books.cursor + 1
        last = min(len(self.chain) - 1, first + self.rng.randrange(4))
        events: list[Event] = []
        for height in range(first, last + 1):
            raw_header, txs = self.chain[height]
            block = ScannedBlock(height, sha256d(raw_header), [FoundTx(at, raw) for at, raw in enumerate(txs)])
            events += self.books.connect(block, block.hits(self.books.watch.table))
        self.tell(events)

    def reorg(self) -> None:
        depth = self.rng.randint(1, min(5, len(self.chain) - 1)) if len(self.chain) > 1 else 0
        if not depth:
            return
        fork = len(self.chain) - 1 - depth
        left = [raw for _, txs in self.chain[fork + 1 :] for raw in txs[1:]]
        gone = {txid(txs[0]) for _, txs in self.chain[fork + 1 :]}
        hashes = [sha256d(each) for each, _ in self.chain[fork + 1 :]]
        del self.chain[fork + 1 :]
        for raw in left:
            self.mempool.setdefault(txid(raw), raw)
        self.drop(gone)  # coinbases are lost for ever
        for _ in range(depth + 1):
            self.append(self.body(), at=len(self.chain))
        self.tell(self.books.disconnect(fork, hashes, b"".join(each for each, _ in self.chain[fork + 1 :]), self.now))

    def rewind(self) -> None:
        self.books.searches.rewind(self.rng.randrange(-1, len(self.chain)))
        self.tell(())

    def crash(self) -> None:
        """A restart with the same database."""
        watch = WatchList(REGTEST)
        for script in OURS:
            watch.add_script(script)
        self.watch = watch
        self.books = self.opened()

    def expire(self) -> None:
        self.now += MEMPOOL_EXPIRY_S // 3
        self.tell(self.books.expire(self.now))

    def broadcast(self) -> None:
        self.now += 1
        raw = self.make()
        self.mempool[txid(raw)] = raw
        try:
            check_broadcast(self.books, Transaction.parse(raw))
        except ValueError:
            return
        self.tell(self.books.broadcast(raw, self.now))
        self.own.add(txid(raw))

    def again(self) -> None:
        known = [record.txid for record in self.books.facts.unconfirmed()]
        for digest in self.rng.sample(known, min(2, len(known))):
            self.tell(self.books.announce_later(digest, self.now))

    def abandon(self) -> None:
        own = [record.txid for record in self.books.facts.unconfirmed() if record.is_own]
        if own:
            dropped = self.rng.choice(own)
            self.tell(self.books.abandon(dropped))
            assert not self.books.judgement.is_pending(dropped)
            entry = self.store.views.transaction(dropped)
            assert entry is not None
            assert entry.status in ("abandoned", "conflicted")

    # Invariants

    def check_unconfirmed(self) -> None:
        """No two canonical transactions conflict, and the parents of a canonical transaction are canonical."""
        records = {record.txid: record for record in self.books.facts.unconfirmed()}
        live = {digest for digest in records if self.books.judgement.is_pending(digest)}
        spent = [point for digest in live for point in spends(records[digest].raw)]
        assert len(spent) == len(set(spent))
        for digest in live:
            parents = {point[:32] for point in spends(records[digest].raw)} & records.keys()
            assert parents <= live
        assert self.told.waiting() <= live
        assert {entry.txid for entry in self.store.views.history(limit=None) if entry.status == "pending"} <= live

    def check(self) -> None:
        kept = {(identity(found.match), found.match.height, found.match.block_hash) for found in self.books.matches()}
        told = {(identity(match), match.height, match.block_hash) for match in self.told.matches.values()}
        assert kept == told
        while self.books.cursor < len(self.chain) - 1:
            self.search()
        confirmed = {(*each, match.height) for each, match in self.told.matches.items() if match.height is not None}
        assert confirmed == self.expected()
        blocks = [({*map(txid, txs)}, set[bytes]().union(*map(spends, txs))) for _, txs in self.chain]
        for record in self.books.facts.unconfirmed():
            is_pending = self.books.judgement.is_pending(record.txid)
            # the blocks below were searched before the wallet knew it: perhaps it was an orphan at that time
            for txids, spent in blocks[record.first_height + 1 :]:
                assert record.txid not in txids
                assert not is_pending or not spends(record.raw) & spent

    def expected(self) -> set[tuple[str, bytes, int, int | None]]:
        watch = WatchList(REGTEST)
        for script in OURS:
            watch.add_script(script)
        return {
            (str(match.kind), match.txid, match.index, height)
            for height, (_, txs) in enumerate(self.chain)
            for raw in txs
            for match in watch.match_tx(raw)
        }


def spends(raw: bytes) -> set[bytes]:
    return {outpoint for outpoint in Transaction.parse(raw).inputs if outpoint[:32] != bytes(32)}


STEPS = [
    "announce",
    "announce",
    "announce",
    "repeat",
    "mine",
    "mine",
    "search",
    "search",
    "search",
    "reorg",
    "rewind",
    "crash",
    "expire",
    "broadcast",
    "again",
    "abandon",
]


@pytest.mark.slow
@settings(max_examples=effort(15, 30, 2_000))
@given(st.integers(0, 1 << 32), st.lists(st.sampled_from(STEPS), min_size=5, max_size=40))
def test_events_and_database_agree_with_a_naive_recomputation(seed: int, steps: list[str]) -> None:
    model = Model(seed)
    try:
        for step in steps:
            getattr(model, step)()
        model.check()
    finally:
        model.store.close()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", first_of(2, *range(effort(5, 8, 200))))
def test_small_limits_end_with_the_naive_recomputation(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that are evicted for lack of room change no confirmed balance and break nothing."""
    monkeypatch.setattr(orphanage, "MAX_ORPHANS", 3)
    model = Model(seed, PendingLimits(matches=8, number=5, component=3, spenders=1))
    for _ in range(80):
        getattr(model, model.rng.choice(STEPS))()
    model.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(2, 2, 100)))
def test_a_long_life_ends_with_the_naive_recomputation(seed: int) -> None:
    model = Model(seed)
    for _ in range(150):
        getattr(model, model.rng.choice(STEPS))()
    model.check()
    model.store.close()


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model(1)
    yield made
    made.store.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["many inputs", "many outputs"])
def test_fake_payments_change_no_filter(model: Model, kind: str) -> None:
    """Own transactions change it: their inputs, and their change outputs."""
    known = set(model.books.bloom_elements())
    own = tx([TxIn(bytes([200]) * 32, number) for number in range(1_200)], [TxOut(1, OURS[0])])
    model.tell(model.books.broadcast(own, 0))
    many = 20 if kind == "many inputs" else 6
    for number in range(many):
        inputs = [TxIn(bytes([number]) * 32, index) for index in range(2_400 if kind == "many inputs" else 1)]
        outputs = [TxOut(1_000, OURS[1])] * (1 if kind == "many inputs" else 400)
        model.tell(model.books.observe(tx(inputs, outputs), number + 1))
    assert len(model.told.matches) == 1 + many * (1 if kind == "many inputs" else 400)
    spent = {bytes([200]) * 32 + number.to_bytes(4, "little") for number in range(1_200)}
    for _ in range(2):
        assert set(model.books.bloom_elements()) == known | spent | {outpoint(txid(own), 0)}
        model.crash()


def test_only_confirmed_payments_enter_the_filter(model: Model) -> None:
    # a watched outpoint is in every filter, even if a transaction claims to create it
    model.watch.add_outpoint(f"{'07' * 32}:0")
    first, second = (tx([TxIn(bytes([number]) * 32, 0)], [TxOut(1_000, OURS[1])]) for number in (9, 10))
    for raw in (first, second):
        model.tell(model.books.observe(raw, 0))
    assert not {outpoint(txid(raw), 0) for raw in (first, second)} & set(model.books.bloom_elements())
    model.mempool[txid(first)] = first
    model.append([coinbase(1, [TxOut(5, THEIRS)], b"none"), first], at=1)
    model.books.extend(model.chain[-1][0])
    model.search()
    model.tell(model.books.expire(MEMPOOL_EXPIRY_S))
    assert not any(map(model.books.judgement.is_pending, [record.txid for record in model.books.facts.unconfirmed()]))
    for _ in range(2):
        elements = set(model.books.bloom_elements())
        assert {outpoint(txid(first), 0), b"\x07" * 32 + bytes(4)} <= elements
        assert outpoint(txid(second), 0) not in elements
        model.crash()
        model.watch.add_outpoint(f"{'07' * 32}:0")


def test_an_early_spend_expires_by_its_own_time(model: Model) -> None:
    """A spend arrives in the mempool before its parent. The parent's block shows that it spends an own coin."""
    model.now = 1_700_000_000
    paying = coinbase(1, [TxOut(5, OURS[0])], b"late")
    spending = tx([TxIn(txid(paying), 0)], [TxOut(4, THEIRS)])
    model.tell(model.books.observe(spending, model.now))
    assert not model.told.matches
    model.append([paying], at=1)
    model.books.extend(model.chain[-1][0])
    model.search()
    assert txid(spending) in model.told.waiting()
    model.tell(model.books.expire(model.now + MEMPOOL_EXPIRY_S - 1))
    assert txid(spending) in model.told.waiting()
    model.tell(model.books.expire(model.now + MEMPOOL_EXPIRY_S))
    assert txid(spending) not in model.told.waiting()


def test_a_confirmed_orphan_counts_as_unconfirmed_with_its_child(model: Model) -> None:
    """When its block was searched, the orphan had nothing to do with the wallet. Only its child pays the wallet."""
    parent = tx([TxIn(b"\x07" * 32, 0)], [TxOut(900, THEIRS)])
    child = tx([TxIn(txid(parent), 0)], [TxOut(800, OURS[0])])
    model.tell(model.books.observe(parent, 1))
    model.append([coinbase(1, [TxOut(5, THEIRS)], b"none"), parent], at=1)
    model.books.extend(model.chain[-1][0])
    model.search()
    model.tell(model.books.observe(child, 2))
    assert all(map(model.books.judgement.is_pending, (txid(parent), txid(child))))
    assert (model.store.views.balance().confirmed, model.store.views.balance().pending_in) == (0, 800)
    model.append([coinbase(2, [TxOut(5, THEIRS)], b"none"), child], at=2)
    model.books.extend(model.chain[-1][0])
    model.search()
    assert (model.store.views.balance().confirmed, model.store.views.balance().pending_in) == (800, 0)
    model.check()


def test_doubted_blocks_are_searched_again_from_the_lowest_searched() -> None:
    """The search starts neither at the wallet's start nor at the genesis block. Entries may be searched below the
    start, and nothing was searched at the lowest heights.
    """
    books = Books(WatchList(REGTEST), SavedBooks())
    books.entries.store([(EntryKind.SCRIPT, b"\x51", None)])
    books.searches.begin_at(10)
    books.searches.skip_to(9)
    books.connect_empty(15)
    books.searches.doubt(4)
    assert (books.cursor, books.blocks.lowest) == (9, None)
    books.searches.doubt(12)
    assert books.cursor == 9
    books.connect_empty(15)
    books.searches.doubt(12)
    assert (books.cursor, books.blocks.lowest) == (11, 10)
    books.searches.search_again(1)
    books.connect_empty(15)
    assert (books.blocks.start, books.blocks.lowest) == (10, 2)
    books.searches.doubt(4)
    assert books.cursor == 3
