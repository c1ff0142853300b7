"""Bounds of the memory of an engine: peers cannot grow it by messages or by silence."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from simulation.weight import weigh
from spvfilter.chain import HeaderChain
from spvfilter.errors import LieError
from spvfilter.filters.bip158 import filter_header
from spvfilter.hashes import sha256d
from spvfilter.kernel import EntryKind
from spvfilter.light.engine.blocks import MAX_NAMED
from spvfilter.light.engine.broadcaster import MAX_PEERS_TOLD
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.effects import Commit, Connect, Effect, Emit, Fence, Send
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.filterheaders import MAX_DISPUTERS
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.headers import MAX_ANNOUNCED
from spvfilter.light.engine.inputs import (
    Asked,
    BroadcastAsked,
    Committed,
    FencePassed,
    Heard,
    HeardTogether,
    Input,
    Instant,
    Lost,
    PeerConnected,
    Tick,
)
from spvfilter.light.engine.options import Options, PeerTimeouts
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.owntxs import PeerRecord
from spvfilter.light.engine.peers import Peer, PeerPool
from spvfilter.light.engine.requests import AddEntries, SearchStart
from spvfilter.light.engine.saved import Saved
from spvfilter.light.events import Mode
from spvfilter.light.lies import Lie
from spvfilter.network import REGTEST
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, WalletEvent
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Received
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.build import TxIn, TxOut, p2wpkh, tx
from support.blocks.headerchains import chain_of, regular, split
from support.client.engineparts import (
    await_transactions,
    block_requests_of,
    commits_issued,
    context_of,
    depart,
    forget_received,
    leave_undecided,
    queue_of,
    undecided_blocks,
)
from support.held import most_held
from support.vectors import first_of

NOW = Instant(0.0, 1_700_000_000.0)
OURS = p2wpkh(b"\x01" * 20)
RNG = random.Random(1)
MAX_TOLD = 300  # events of the wallet in one step


def test_pongs_of_an_absent_peer_are_not_awaited() -> None:
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    out = Outbox(Books(watch, SavedBooks()), HeaderChain(REGTEST), Journal())
    pool = PeerPool(["10.1.0.1:1"], {}, 8, PeerTimeouts(retry_s=0.0), out)
    for number in range(1, 20):
        pool.advance(NOW)
        assert (
            pool.welcome(PeerConnected(number, "10.1.0.1", 0x4D, 0, True, True, "/test/", int(NOW.wall)), NOW)
            is not None
        )
        for _ in range(5):
            out.fence(number, lambda: None)
        pool.lost(number, ConnectionResetError("gone"), NOW)
    out.take()
    assert most_held(out) == 0


@pytest.mark.parametrize("is_running", [False, True])
def test_a_ban_under_a_clock_years_ahead_lasts_a_day(is_running: bool) -> None:
    """The ban lasted for those years. A client without other addresses ended at once, in every run."""
    years, day = 5 * 365 * 86_400.0, 86_400.0
    addresses = ["10.1.0.1:1", "10.2.0.1:1"]
    bans = {} if is_running else {addresses[0]: NOW.wall + years}
    saved = Saved(HeaderChain(REGTEST), FilterRows(), SavedBooks(), Coverage(), bans, None, bytes(32))
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    engine = ClientEngine(Options(Mode.BIP37), watch, saved, addresses, random.Random(1))
    effects = engine.start(Instant(0.0, NOW.wall + years * is_running))
    assert [each.address for each in effects if isinstance(each, Connect)] == addresses[not is_running :]
    for peer in engine.pool if is_running else ():
        if peer.address == addresses[0]:
            engine.pool.drop(peer, LieError("proven", cause=Lie.FALSE_BLOCK), Instant(0.0, NOW.wall + years))
    effects = engine.step(Tick(), Instant(1.0, NOW.wall + 1))
    effects += engine.step(Tick(), Instant(day - 10, NOW.wall + day - 10))
    assert addresses[0] not in [each.address for each in effects if isinstance(each, Connect)]
    effects = engine.step(Tick(), Instant(day + 10, NOW.wall + day + 10))
    assert addresses[0] in [each.address for each in effects if isinstance(each, Connect)]


class Run:
    """An engine on the genesis block with ready peers, by default one."""

    def __init__(self, mode: Mode, peers: int = 1) -> None:
        watch = WatchList(REGTEST)
        watch.add_script(OURS)
        saved = Saved(HeaderChain(REGTEST), FilterRows(), SavedBooks(), Coverage(), {}, None, bytes(32))
        hosts = [f"10.{number}.0.1" for number in range(1, peers + 1)]
        addresses = [f"{host}:1" for host in hosts]
        self.engine = ClientEngine(Options(mode), watch, saved, addresses, random.Random(1))
        self.engine.start(NOW)
        for number, host in enumerate(hosts, 1):
            effects = self.do(PeerConnected(number, host, 0x4D, 0, True, True, "/test/", int(NOW.wall)))
            self.do(Heard(number, wire.Headers(())))
            self.pong(effects, number)

    def do(self, event: Input) -> list[Effect]:
        return self.engine.step(event, NOW)

    def commit(self) -> list[Effect]:
        """Report all changes as committed."""
        return self.do(Committed(commits_issued(self.engine)))

    def pong(self, effects: list[Effect], peer: int = 1) -> list[Effect]:
        """The peer has processed everything up to the fences of these effects."""
        fences = [effect for effect in effects if isinstance(effect, Fence)]
        return [each for fence in fences for each in self.do(FencePassed(peer, fence.token))]

    def sent(self, effects: list[Effect]) -> list[Message]:
        return [effect.message for effect in effects if isinstance(effect, Send)]


def test_the_latest_departed_peers_of_an_own_transaction_are_remembered() -> None:
    run = Run(Mode.COMPACT)
    broadcaster = run.engine.broadcaster
    own = broadcaster.broadcast(Transaction.parse(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)])), 0)
    assert own is not None
    for number in range(2, MAX_PEERS_TOLD + 100):
        peer = Peer(number, f"10.0.{number >> 8}.{number & 255}:1", 0.0)
        own.peers[peer] = PeerRecord(0.0, requested=1.0)
        depart(run.engine, peer)
    assert len(own.left) == MAX_PEERS_TOLD


def test_a_transaction_that_is_requested_many_times_is_sent_once() -> None:
    run = Run(Mode.COMPACT)
    raw = tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)])
    run.do(BroadcastAsked(raw))
    run.commit()
    item = InvItem(InvType.WTX, Transaction.parse(raw).wtxid)
    effects = [*run.do(Heard(1, wire.GetData((item,) * 50_000))), *run.commit()]
    assert [message for message in run.sent(effects) if isinstance(message, wire.Tx)] == [wire.Tx(raw)]
    assert sum(isinstance(effect, Fence) for effect in effects) <= 1


def test_a_transaction_requested_under_many_hashes_is_sent_once() -> None:
    """Once it is stored, each item would be answered at once."""
    run = Run(Mode.COMPACT)
    made = Transaction.parse(tx([TxIn(RNG.randbytes(32), 0, witness=(b"\x01",))], [TxOut(1_000, OURS)]))
    run.do(BroadcastAsked(made.raw))
    run.commit()
    run.do(Heard(1, wire.GetData((InvItem(InvType.WTX, made.wtxid),))))
    names = tuple(InvItem(kind, tx_hash) for kind in range(20_000) for tx_hash in (made.txid, made.wtxid))
    assert run.sent(run.do(Heard(1, wire.GetData(names)))) == [wire.Tx(made.raw)]


def test_an_announcement_of_maximal_size_costs_little_time() -> None:
    run = Run(Mode.COMPACT)
    known = run.engine.chain.hash_at(0)
    for kind, hashes in ((InvType.BLOCK, [known] * 50_000), (InvType.WTX, [RNG.randbytes(32) for _ in range(50_000)])):
        message = wire.Inv(tuple(InvItem(kind, each) for each in hashes))
        begun = time.thread_time()
        run.do(Heard(1, message))
        assert time.thread_time() - begun < 0.1


def test_an_announcement_of_maximal_size_costs_one_object_per_item() -> None:
    run = Run(Mode.COMPACT)
    before = weigh(run.engine)
    run.do(Heard(1, wire.Inv(tuple(InvItem(InvType.WTX, RNG.randbytes(32)) for _ in range(50_000)))))
    after = weigh(run.engine)
    assert 40_000 < after.objects - before.objects < 60_000
    assert after.size - before.size < 2_000_000


def test_one_announcement_causes_a_bounded_number_of_block_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Mode.COMPACT)
    looked_up = 0
    height_of = run.engine.chain.height_of

    def counted(block_hash: bytes) -> int | None:
        nonlocal looked_up
        looked_up += 1
        return height_of(block_hash)

    monkeypatch.setattr(run.engine.chain, "height_of", counted)
    hashes = [RNG.randbytes(32) for _ in range(50_000)]
    asked = run.sent(run.do(Heard(1, wire.Inv(tuple(InvItem(InvType.BLOCK, each) for each in hashes)))))
    assert 0 < looked_up <= MAX_ANNOUNCED
    assert sum(isinstance(message, wire.GetHeaders) for message in asked) == 1


@pytest.mark.slow
def test_foreign_payments_leave_a_slow_database_to_the_search() -> None:
    run = Run(Mode.BIP37)
    books, queue = run.engine.books, queue_of(run.engine)
    for _ in range(3_000):
        queue.put(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]))
    commits = 0
    for _ in range(200):
        commits += sum(isinstance(effect, Commit) for effect in run.do(Tick()))
    assert not context_of(run.engine).out.is_backed_up
    assert len(queue) > 2_000
    while queue:
        assert run.commit()
    assert len(list(books.facts.unconfirmed())) == 3_000


def test_repeated_requests_of_an_own_transaction_cause_one_ping() -> None:
    run = Run(Mode.COMPACT)
    raw = tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)])
    run.do(BroadcastAsked(raw))
    run.commit()
    question = wire.GetData((InvItem(InvType.WITNESS_TX, Transaction.parse(raw).txid),))
    effects = [effect for _ in range(2_000) for effect in run.do(Heard(1, question))]
    assert sum(isinstance(effect, Send) and isinstance(effect.message, wire.Tx) for effect in effects) == 2_000
    assert sum(isinstance(effect, Fence) for effect in effects) == 1


def test_headers_are_not_requested_faster_than_the_database_commits() -> None:
    run = Run(Mode.BIP37)
    headers = chain_of(100).headers(1, 100)
    commits = 0
    for at in range(0, 20 * 80, 80):
        announced = wire.Headers((headers[at : at + 80],))
        commits += sum(isinstance(effect, Commit) for effect in run.do(Heard(1, announced)))
    assert commits == 20
    full = regular(run.engine.chain, 2_000)
    asked = run.sent(run.do(Heard(1, wire.Headers(tuple(split(full))))))
    assert run.engine.chain.height == 2_020
    assert not any(isinstance(message, wire.GetHeaders) for message in asked)
    for number in range(1, commits_issued(run.engine)):
        assert not any(isinstance(message, wire.GetHeaders) for message in run.sent(run.do(Committed(number))))
    (question,) = (message for message in run.sent(run.commit()) if isinstance(message, wire.GetHeaders))
    assert question.locator[0] == run.engine.chain.tip_hash


_BRANCH = tuple(split(chain_of(20).headers(1, 20)))


@pytest.mark.parametrize(
    "messages",
    [
        # the headers between are missing, as if our clock were slow
        [wire.Headers(_BRANCH[:1]), *[wire.Headers(_BRANCH[5:])] * 3],
        [wire.Headers(()), wire.Inv((InvItem(InvType.BLOCK, bytes(31) + b"\x01"),))] * 3,
    ],
    ids=["unconnected", "announced"],
)
def test_unrequested_messages_cause_no_more_requests_than_pongs(
    messages: list[Message],
) -> None:
    """Otherwise each answer of the peer would cause several requests, without end."""
    run = Run(Mode.COMPACT)
    run.do(Heard(1, wire.Headers(_BRANCH[:1])))
    waiting: list[Effect] = []
    asked = 0
    for _ in range(8):
        effects = [each for message in messages for each in run.do(Heard(1, message))]
        effects += run.pong(waiting)
        waiting = [effect for effect in effects if isinstance(effect, Fence)]
        asked += sum(isinstance(message, wire.GetHeaders) for message in run.sent(effects))
        assert len(waiting) <= 2
    assert 4 <= asked <= 9


def test_new_headers_before_the_pong_do_not_end_the_questions() -> None:
    """The peer announced a block between an empty answer and new headers. Once, it was never asked again."""
    run = Run(Mode.COMPACT)
    unknown = wire.Inv((InvItem(InvType.BLOCK, bytes(31) + b"\x01"),))
    messages: list[Message] = [unknown, wire.Headers(()), unknown, wire.Headers(_BRANCH[:1])]
    effects = [effect for message in messages for effect in run.do(Heard(1, message))]
    assert sum(isinstance(message, wire.GetHeaders) for message in run.sent(effects)) == 2
    run.pong([*effects, *run.do(Heard(1, wire.Headers(())))])
    asked = run.sent(run.do(Heard(1, unknown)))
    assert sum(isinstance(message, wire.GetHeaders) for message in asked) == 1


def test_a_question_for_headers_survives_the_end_of_its_task() -> None:
    run = Run(Mode.COMPACT)
    unknown = wire.Inv((InvItem(InvType.BLOCK, bytes(31) + b"\x01"),))
    run.do(Heard(1, unknown))
    (task,) = (each for each in context_of(run.engine).tasks.all if "for headers" in each.what)
    task.cancel()
    context_of(run.engine).changed()
    run.pong(run.do(Tick()))  # without headers before it
    asked = run.sent(run.do(Heard(1, unknown)))
    assert sum(isinstance(message, wire.GetHeaders) for message in asked) == 1


def test_a_bounded_number_of_absent_addresses_is_remembered() -> None:
    run = Run(Mode.COMPACT)
    requests = block_requests_of(run.engine)
    for number in range(3 * MAX_DISPUTERS):
        address = f"10.{number // 256}.{number % 256}.1:8333"
        leave_undecided(run.engine, address, bytes(32))
        requests.name_pruners([Peer(number, address, 0.0)], 1)
    assert len(undecided_blocks(run.engine)) == MAX_DISPUTERS
    assert undecided_blocks(run.engine)[address] == {bytes(32)}
    assert most_held(requests) == MAX_NAMED
    context_of(run.engine).out.take()
    requests.name_pruners([Peer(number, address, 0.0)], 1)
    assert context_of(run.engine).out.take() == []  # the latest addresses are remembered


def test_divergent_filter_headers_are_not_requested_twice() -> None:
    """Otherwise each copy of the answer would count as the next answer and cause one more request."""
    run = Run(Mode.COMPACT)
    run.do(Heard(1, wire.Headers(_BRANCH[:5])))
    stop = sha256d(_BRANCH[4])
    run.do(Heard(1, wire.CFHeaders(0, run.engine.chain.hash_at(0), bytes(32), (bytes(32),))))
    run.do(Heard(1, wire.CFHeaders(0, stop, filter_header(bytes(32), bytes(32)), (bytes(32),) * 5)))
    assert context_of(run.engine).rows.height == 5
    run.do(Lost(1, ConnectionResetError("gone")))
    later = Instant(NOW.monotonic + 10.0, NOW.wall + 10.0)
    (number,) = (effect.peer for effect in run.engine.step(Tick(), later) if isinstance(effect, Connect))
    run.engine.step(PeerConnected(number, "10.1.0.1", 0x4D, 10, True, True, "/test/", int(later.wall)), later)
    run.engine.step(Heard(number, wire.Headers(_BRANCH[:10])), later)
    answer = wire.CFHeaders(0, sha256d(_BRANCH[9]), b"\x07" * 32, (bytes(32),) * 5)
    asked = [message for _ in range(10) for message in run.sent(run.engine.step(Heard(number, answer), later))]
    assert 1 <= sum(isinstance(message, wire.GetCFHeaders) for message in asked) <= 2


def hear(run: Run, *raws: bytes) -> list[list[WalletEvent]]:
    """The peer sends requested transactions. Return the wallet events of each step."""
    peer = run.engine.pool.get(1)
    assert peer is not None
    await_transactions(run.engine, peer, *raws)
    together = HeardTogether(1, tuple(Received(wire.Tx(raw)) for raw in raws))
    return [told(run.do(together)), *settle(run)]


def settle(run: Run) -> list[list[WalletEvent]]:
    """Let commits and ticks pass until none is due."""
    steps: list[list[WalletEvent]] = []
    while context_of(run.engine).is_due or not steps:
        steps += told(run.commit()), told(run.do(Tick()))
    return steps


def told(effects: list[Effect]) -> list[WalletEvent]:
    return [effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, WalletEvent)]


def announce(run: Run, *raws: bytes) -> list[list[WalletEvent]]:
    items = tuple(InvItem(InvType.TX, Transaction.parse(raw).txid) for raw in raws)
    return [told(run.do(Heard(1, wire.Inv(items)))), *settle(run)]


def foreign_tx(number: int, inputs: Sequence[bytes], value: int = 1_000) -> bytes:
    return tx([TxIn(each, 0) for each in inputs], [TxOut(value, OURS)] * number)


@pytest.mark.slow
def test_a_thousand_conflicts_become_canonical_again_in_many_steps() -> None:
    run = Run(Mode.COMPACT)
    coins = [RNG.randbytes(32) for _ in range(500)]
    first, second = ([foreign_tx(1, [coin], value) for coin in coins] for value in (1_000, 1_001))
    hear(run, *first)
    hear(run, *second)
    peer = run.engine.pool.get(1)
    assert peer is not None
    forget_received(run.engine, peer)
    announce(run, *second)
    steps = announce(run, *first)
    assert max(map(len, steps)) <= MAX_TOLD
    live = run.engine.books
    assert all(live.judgement.is_pending(Transaction.parse(raw).txid) for raw in first)
    assert not any(live.judgement.is_pending(Transaction.parse(raw).txid) for raw in second)


def test_a_new_entry_matches_hundreds_of_unconfirmed_payments_in_steps() -> None:
    run, later = Run(Mode.COMPACT), p2wpkh(b"\x07" * 20)
    payments = [
        tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS), TxOut(1_000, later)]) for _ in range(2 * MAX_TOLD)
    ]
    hear(run, *payments)
    entry = EntryKind.SCRIPT, later, None
    first = told(run.do(Asked(1, AddEntries((entry,), SearchStart(0)))))
    steps = [first, *settle(run)]
    assert max(map(len, steps)) <= MAX_TOLD
    found = [event.match.txid for step in steps for event in step if isinstance(event, MatchFound)]
    assert sorted(found) == sorted(Transaction.parse(raw).txid for raw in payments)


@pytest.mark.slow
@pytest.mark.parametrize("is_chain", first_of(1, False, True))
def test_hundreds_of_unconfirmed_payments_expire_in_many_steps(is_chain: bool) -> None:
    run, payments = Run(Mode.COMPACT), [foreign_tx(1, [RNG.randbytes(32)])]
    for number in range(1, 2 * MAX_TOLD):
        is_child = is_chain and number % 50
        payments.append(foreign_tx(1, [Transaction.parse(payments[-1]).txid if is_child else RNG.randbytes(32)]))
    hear(run, *payments)
    late = Instant(NOW.monotonic + MEMPOOL_EXPIRY_S + 60, NOW.wall + MEMPOOL_EXPIRY_S + 60)
    steps = [told(run.engine.step(Tick(), late))]
    while any(
        map(run.engine.books.judgement.is_pending, [record.txid for record in run.engine.books.facts.unconfirmed()])
    ):
        steps.append(told(run.commit()))
        steps.append(told(run.engine.step(Tick(), late)))
    assert max(map(len, steps)) <= MAX_TOLD
    gone = [
        event.match.txid
        for step in steps
        for event in step
        if isinstance(event, MatchWithdrawn) and event.match.kind == "output"
    ]
    assert sorted(gone) == sorted(Transaction.parse(raw).txid for raw in payments)


@pytest.mark.slow
def test_an_overweight_foreign_transaction_waits_for_its_block() -> None:
    run = Run(Mode.COMPACT)
    heavy = foreign_tx(4_000, [RNG.randbytes(32)])  # 496 kWU
    huge = foreign_tx(15_000, [RNG.randbytes(32)])  # 465 kB
    assert not any(hear(run, heavy, huge))
    assert not list(run.engine.books.facts.unconfirmed())
    assert run.engine.pool.get(1) is not None
    run.do(BroadcastAsked(huge))
    run.do(Heard(1, wire.GetData((InvItem(InvType.WTX, Transaction.parse(huge).wtxid),))))
    settle(run)
    assert Transaction.parse(huge).txid in [record.txid for record in run.engine.books.facts.unconfirmed()]
