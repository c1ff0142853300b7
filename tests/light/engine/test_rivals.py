"""Conflicting transactions: a peer's announcements reorder few of them, and a block with one of them ends the other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from light.engine.test_bounds import OURS, Run
from spvfilter.light.engine.effects import Effect, Emit
from spvfilter.light.engine.inputs import Heard, Lost, Tick
from spvfilter.light.events import Mode
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType
from support.blocks.build import TxIn, TxOut, tx
from support.blocks.locks import build_tx, key
from support.client.engineparts import context_of
from support.client.stage import Prompt, stage

RNG = random.Random(1)
MATCHES, PAIRS = 50, 20


class Conflicts:
    """Pairs of conflicting transactions: the first has many matches, and the second has a single match and was seen
    later.
    """

    def __init__(self, peers: int = 1) -> None:
        self.run = Run(Mode.COMPACT, peers)
        self.txids: tuple[list[bytes], list[bytes]] = [], []
        for _ in range(PAIRS):
            coin = TxIn(RNG.randbytes(32), 0)
            for side, outputs in enumerate(([TxOut(1_000, OURS)] * MATCHES, [TxOut(9_000, OURS)])):
                raw = tx([coin], outputs)
                self.run.engine.books.observe(raw, 1_700_000_000)
                self.txids[side].append(Transaction.parse(raw).txid)
        self.run.do(Tick())

    def announce(self, txids: list[bytes], peer: int = 1) -> list[Effect]:
        context = context_of(self.run.engine)
        effects = self.run.do(Heard(peer, wire.Inv(tuple(InvItem(InvType.TX, txid) for txid in txids))))
        while context.is_due or context.change.is_under_way:  # a step processes a part of them
            effects += [*self.run.commit(), *self.run.do(Tick())]
        return effects

    def forgotten(self) -> None:
        """Let the peer announce enough hashes to make the client forget its earlier announcements."""
        self.announce([RNG.randbytes(32) for _ in range(2_000)])

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


@pytest.mark.parametrize("has_left", [False, True])
def test_a_late_peer_changes_nothing_while_another_has_the_replacement(has_left: bool) -> None:
    conflicts = Conflicts(peers=2)
    many, few = conflicts.txids
    conflicts.announce(few)
    if has_left:
        conflicts.run.do(Lost(1, ConnectionResetError("gone")))
    conflicts.announce(many, peer=2)
    assert conflicts.live() == [has_left] * PAIRS + [not has_left] * PAIRS


def test_the_order_of_a_bounded_number_of_announcements_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    conflicts = Conflicts()
    many, few = conflicts.txids
    monkeypatch.setattr("spvfilter.light.engine.mempool.MAX_ORDERED", PAIRS - 1)
    for txids in (few, many, many[:1]):
        conflicts.announce(txids)
    assert conflicts.live() == [False] + [True] * (PAIRS - 1) + [True] + [False] * (PAIRS - 1)


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
