"""Conflicting transactions: a peer's announcements reorder few of them, and a block with one of them ends the other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from light.engine.test_bounds import OURS, Run
from spvfilter.light.engine import mempool
from spvfilter.light.engine.effects import Effect, Emit
from spvfilter.light.engine.inputs import Heard, Tick
from spvfilter.light.events import Mode
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType
from support.build import TxIn, TxOut, tx
from support.locks import build_tx, key
from support.stage import Prompt, stage

RNG = random.Random(1)
MATCHES, PAIRS = 50, 20


class Conflicts:
    """Pairs of conflicting transactions: the first has many matches, and the second has a single match and was seen
    later.
    """

    def __init__(self) -> None:
        self.run = Run(Mode.COMPACT)
        self.txids: tuple[list[bytes], list[bytes]] = [], []
        for _ in range(PAIRS):
            coin = TxIn(RNG.randbytes(32), 0)
            for side, outputs in enumerate(([TxOut(1_000, OURS)] * MATCHES, [TxOut(9_000, OURS)])):
                raw = tx([coin], outputs)
                self.run.engine.books.observe(raw, 1_700_000_000)
                self.txids[side].append(Transaction.parse(raw).txid)
        self.run.do(Tick())

    def announce(self, txids: list[bytes]) -> list[Effect]:
        context = self.run.engine._context
        effects = self.run.do(Heard(1, wire.Inv(tuple(InvItem(InvType.TX, txid) for txid in txids))))
        while context.is_due or context.change.is_under_way:  # a step processes a part of them
            effects += [*self.run.commit(), *self.run.do(Tick())]
        return effects

    def forgotten(self) -> None:
        """Let the peer announce enough hashes to make the client forget its earlier announcements."""
        self.announce([RNG.randbytes(32) for _ in range(mempool._MAX_ORDERED)])

    def live(self) -> list[bool]:
        return [self.run.engine.books.judgement.is_pending(txid) for side in self.txids for txid in side]


def test_repeated_announcements_reorder_each_conflict_once() -> None:
    conflicts = Conflicts()
    many, few = conflicts.txids
    told = []
    for number in range(8):
        conflicts.forgotten()
        first, then = (few, many) if number % 2 == 0 else (many, few)
        conflicts.announce(first)
        told.append(sum(isinstance(effect, Emit) for effect in conflicts.announce(then)))
    assert told == [PAIRS * (MATCHES + 2)] * 2 + [0] * 6  # each match and each replacement
    assert conflicts.live() == [False] * PAIRS + [True] * PAIRS


def test_a_replaced_transaction_counts_again_if_nodes_forgot_its_replacement() -> None:
    """A node that restarts forgets the replacement. The peers that announced it are connected no more."""
    conflicts = Conflicts()
    many, _ = conflicts.txids
    assert conflicts.live() == [False] * PAIRS + [True] * PAIRS
    conflicts.announce(many)
    assert conflicts.live() == [True] * PAIRS + [False] * PAIRS
    conflicts.announce(many)
    assert conflicts.live() == [True] * PAIRS + [False] * PAIRS


def test_a_late_peer_changes_nothing_while_another_has_the_replacement() -> None:
    conflicts = Conflicts()
    _, few = conflicts.txids
    engine = conflicts.run.engine
    conflicts.announce(few)
    late = next(iter(engine.pool))
    mempool_watch = engine._mempool
    ids = {each for txid in few for each in engine.books.facts.hashes(txid)}
    assert not mempool_watch._has_left(ids)
    mempool_watch._inventory(late).heard.clear()
    assert mempool_watch._has_left(ids)


def test_the_order_of_a_bounded_number_of_announcements_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    conflicts = Conflicts()
    many, few = conflicts.txids
    monkeypatch.setattr(mempool, "_MAX_ORDERED", 2 * PAIRS)
    watch = conflicts.run.engine._mempool
    watch._inventory(next(iter(conflicts.run.engine.pool))).later |= {bytes([at]) * 32 for at in range(PAIRS + 1)}
    conflicts.announce([*few, *many])
    assert conflicts.live() == [True] * (PAIRS - 1) + [False] + [False] * (PAIRS - 1) + [True]


def test_a_block_conflicts_with_a_payment_to_a_later_entry(tmp_path: Path) -> None:
    """Compact filters find the block by the script of the coin that the payment spends."""
    payer, other, lock = p2wpkh(key(78)), p2wpkh(key(79)), p2wpkh(key(77))
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        regtest = world.truth.regtest
        coin = payer.spends(OutPoint(regtest.pay(payer.pays(50_000)), 0), 50_000)
        regtest.mine()
        world.boot()
        world.wait_synced(within=60)
        paid = regtest.submit_tx(build_tx([coin], [lock.pays(40_000)]))
        world.pass_time(60)
        world.watch_lock(lock)
        world.wait_synced(within=60)
        world.pass_time(10)
        assert [
            event.match.height for event in world.told if isinstance(event, MatchFound) and event.match.txid == paid
        ] == [None]
        double_spend = build_tx([coin], [other.pays(45_000)])
        regtest.mempool.remove_for([Transaction.parse(double_spend)])
        regtest.submit_tx(double_spend)
        regtest.mine()
        world.wait_synced(within=60)
        ended = [event.reason for event in world.told if isinstance(event, MatchWithdrawn) and event.match.txid == paid]
        assert ended == [Reason.CONFLICT]
