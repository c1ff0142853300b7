"""Announcements that find no room in the queue: peers are asked again only when there is room."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from light.engine.test_bounds import NOW, OURS, Run
from spvfilter.hashes import sha256d
from spvfilter.light.engine.effects import Effect, Send, Wake, Work
from spvfilter.light.engine.inputs import Heard, Instant, Tick, Worked
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.primitives import Header
from spvfilter.transaction import Transaction
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.queue import Queue
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.build import TxIn, TxOut, tx
from support.client.engineparts import bloom_search_of, delay_commits, queue_of, receive

RNG = random.Random(1)
MOST, PAYMENTS = 40, 100


class Announcing:
    """A client at the tip, with a peer that has payments to it in its mempool."""

    def __init__(self, mode: Mode, peers: int = 1) -> None:
        self.run = Run(mode, peers)
        effects = self.run.commit()
        if mode is Mode.BIP37:
            genesis = Header.parse(REGTEST.genesis)
            effects += self.run.do(Heard(1, MerkleBlock.from_txids(genesis, [genesis.merkle_root], [])))
            self.run.commit()
            effects += self.run.pong(effects)
            self.run.commit()
        else:
            tip, empty = self.run.engine.chain.tip_hash, b"\x00"  # a filter without elements
            for number in range(1, peers + 1):
                self.run.do(Heard(number, wire.CFHeaders(0, tip, bytes(32), (sha256d(empty),))))
            for effect in self.run.do(Heard(1, wire.CFilter(0, tip, empty))):
                if isinstance(effect, Work):
                    effects += self.run.do(Worked(effect.token, effect.function()))
            self.run.commit()
        assert self.run.engine.status.synced == self.run.engine.chain.tip_hash
        payments = [Transaction.parse(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)])) for _ in range(PAYMENTS)]
        self.mempool = {each.txid: each.raw for each in payments}
        self.sent: Counter[str] = Counter()
        self.waiting: list[Message] = self.answers(self.run.sent(effects)) or [self.inventory()]

    def inventory(self) -> wire.Inv:
        return wire.Inv(tuple(InvItem(InvType.TX, txid) for txid in self.mempool))

    def answers(self, questions: list[Message]) -> list[Message]:
        answers: list[Message] = []
        for each in questions:
            self.sent[type(each).__name__] += 1
            if isinstance(each, wire.Mempool):
                answers.append(self.inventory())
            elif isinstance(each, wire.GetData):
                answers += (wire.Tx(self.mempool[item.hash]) for item in each.items if item.hash in self.mempool)
        return answers

    def round_trip(self) -> None:
        """The peer's answers arrive one by one, and it answers the new requests."""
        effects = [effect for message in self.waiting for effect in self.run.do(Heard(1, message))]
        self.waiting = self.answers(self.run.sent(effects))

    def recorded(self) -> int:
        return len(self.mempool.keys() & {record.txid for record in self.run.engine.books.facts.unconfirmed()})


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_slow_database_causes_no_repeated_requests_and_no_loss(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A liar fills the queue. Otherwise every payment of an honest peer would cause another request for its whole
    mempool.
    """
    monkeypatch.setattr(Queue, "MOST", MOST)
    world = Announcing(mode)
    delay_commits(world.run.engine, 40)
    for _ in range(8):
        world.round_trip()
    assert not world.waiting
    assert world.sent["Mempool"] <= 2
    assert world.sent["GetData"] <= 2
    assert not world.recorded()
    for _ in range(100):
        world.waiting += world.answers(world.run.sent([*world.run.commit(), *world.run.do(Tick())]))
        world.round_trip()
    assert world.recorded() == PAYMENTS
    assert world.sent["Mempool"] <= 12


def test_a_full_queue_that_empties_in_one_step_is_refilled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "MOST", 4)
    world = Announcing(Mode.COMPACT)
    (peer,) = world.run.engine.pool
    for _ in range(4):
        receive(world.run.engine, tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]), peer.group)
    effects = world.run.do(Heard(1, world.inventory()))
    assert not queue_of(world.run.engine)
    assert Wake(NOW.monotonic) in effects
    assert any(isinstance(message, wire.GetData) for message in world.run.sent(world.run.do(Tick())))


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_transaction_evicted_from_the_queue_is_requested_from_others(
    mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A liar sends the transaction first, between floods of its own. It must not keep the transaction out."""
    monkeypatch.setattr(Queue, "MOST", 4)
    world = Announcing(mode)
    world.mempool = dict(list(world.mempool.items())[:2])
    given, _ = world.mempool
    for raw in [*(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]) for _ in range(3)), world.mempool[given]]:
        receive(world.run.engine, raw, "10.9.0.0/16")
    delay_commits(world.run.engine, 40)
    world.waiting = [world.inventory()]
    for _ in range(4):
        world.round_trip()
    for _ in range(10):
        world.waiting += world.answers(world.run.sent([*world.run.commit(), *world.run.do(Tick())]))
        world.round_trip()
    assert world.recorded() == 2


def come(world: Announcing, raw: bytes, group: str) -> None:
    """A peer of this network group sends a transaction, and it is recorded."""
    receive(world.run.engine, raw, group)
    world.run.do(Tick())
    world.run.commit()


def test_an_evicted_pending_transaction_is_requested_from_other_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Announcing(Mode.COMPACT)
    world.run.engine.books.intake.pool.limits = PendingLimits(number=4)
    world.mempool = dict(list(world.mempool.items())[:1])
    (given,) = world.mempool.values()
    for raw in [*(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]) for _ in range(3)), given]:
        come(world, raw, "10.9.0.0/16")
    assert world.recorded() == 1
    come(world, tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]), "10.8.0.0/16")
    assert world.recorded() == 0
    world.waiting = [world.inventory()]
    for _ in range(3):
        world.round_trip()
        world.run.commit()
    assert world.recorded() == 1


def test_a_child_without_room_is_requested_from_other_peers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Announcing(Mode.COMPACT)
    world.run.engine.books.intake.pool.limits = PendingLimits(number=1)
    parent = Transaction.parse(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1_000, OURS)]))
    child = Transaction.parse(tx([TxIn(parent.txid, 0)], [TxOut(900, bytes(22))]))
    for each in (child, parent):
        come(world, each.raw, "10.9.0.0/16")
    assert [record.txid for record in world.run.engine.books.facts.unconfirmed()] == [parent.txid]
    world.mempool = {child.txid: child.raw}
    world.waiting = [world.inventory()]
    world.round_trip()
    assert world.waiting == [wire.Tx(child.raw)]


def test_an_evicted_transaction_is_requested_from_its_announcer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first peer does not have it. The liar's transactions are in the queue, and this one is the latest."""
    monkeypatch.setattr(Queue, "MOST", 4)
    world = Announcing(Mode.COMPACT, peers=2)
    run, (given, other, *spam) = world.run, world.mempool.values()
    for raw in [*spam[:3], given]:
        receive(run.engine, raw, "10.9.0.0/16")
    delay_commits(run.engine, 40)
    announced = wire.Inv(tuple(InvItem(InvType.TX, Transaction.parse(raw).txid) for raw in (given, other)))
    effects = run.do(Heard(2, announced)) + run.do(Heard(2, wire.Tx(other)))
    for _ in range(10):
        effects += [*run.commit(), *run.do(Tick())]
    asked = [each.peer for each in effects if isinstance(each, Send) and isinstance(each.message, wire.GetData)]
    assert asked == [2, 2]


def test_a_doubted_filter_is_reloaded_once_in_ten_seconds() -> None:
    """A missing announced transaction and a transaction outside the filter cost 300 bytes. A filter may have 36,000
    bytes.
    """
    world = Announcing(Mode.BIP37)
    run, loads, effects = world.run, 0, list[Effect]()
    for _ in range(4):
        run.pong(effects)
        effects = []
        for _ in range(10):
            missing, other = (
                RNG.randbytes(32),
                Transaction.parse(tx([TxIn(RNG.randbytes(32), 0)], [TxOut(1, bytes(22))])),
            )
            effects += run.do(Heard(1, wire.Inv((InvItem(InvType.TX, missing),))))
            effects += run.do(Heard(1, wire.NotFound((InvItem(InvType.TX, missing),))))
            effects += run.do(Heard(1, wire.Inv((InvItem(InvType.TX, other.txid),))))
            effects += run.do(Heard(1, wire.Tx(other.raw)))
        loads += sum(isinstance(message, wire.FilterLoad) for message in run.sent(effects))
    assert loads == 1
    assert bloom_search_of(run.engine).next_at == NOW.monotonic + 10
    later = run.engine.step(Tick(), Instant(NOW.monotonic + 10, NOW.wall + 10))
    assert sum(isinstance(message, wire.FilterLoad) for message in run.sent(later)) == 1
