"""Transactions that spend the same: what a peer tells of their order moves few matches, and a block with one of them
ends the other.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from light.engine.test_bounds import OURS, Run
from spvfilter.light.engine import mempool
from spvfilter.light.engine.effects import Effect, Emit
from spvfilter.light.engine.inputs import Heard, Tick
from spvfilter.light.events import Mode
from spvfilter.node.build import build_tx
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType
from support.build import TxIn, TxOut, tx
from support.locks import key
from support.stage import Prompt, stage

RNG = random.Random(1)
MATCHES, PAIRS = 50, 20


class Rivals:
    """Transactions that spend the same, two by two: one with many matches, and one with a single match that was seen
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
        effects = self.run.do(Heard(1, wire.Inv(tuple(InvItem(InvType.TX, txid) for txid in txids))))
        while self.run.engine._context.is_due:  # a step takes a part of them
            effects += [*self.run.commit(), *self.run.do(Tick())]
        return effects

    def forgotten(self) -> None:
        """The peer announces so much else that what it announced before is forgotten."""
        self.announce([RNG.randbytes(32) for _ in range(mempool._MAX_ORDERED)])

    def live(self) -> list[bool]:
        return [self.run.engine.books.is_pending(txid) for side in self.txids for txid in side]


def test_a_peer_that_announces_rivals_back_and_forth_moves_each_of_them_once() -> None:
    rivals = Rivals()
    many, few = rivals.txids
    told = []
    for number in range(8):
        rivals.forgotten()
        first, then = (few, many) if number % 2 == 0 else (many, few)
        rivals.announce(first)
        told.append(sum(isinstance(effect, Emit) for effect in rivals.announce(then)))
    assert told == [PAIRS * (MATCHES + 2)] * 2 + [0] * 6  # each match, and each replacement
    assert rivals.live() == [False] * PAIRS + [True] * PAIRS


def test_of_so_many_transactions_and_no_more_the_order_is_taken_from_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    rivals = Rivals()
    many, few = rivals.txids
    monkeypatch.setattr(mempool, "_MAX_ORDERED", 2 * PAIRS)
    watch = rivals.run.engine._mempool
    watch._inventory(next(iter(rivals.run.engine.pool))).later |= {bytes([at]) * 32 for at in range(PAIRS + 1)}
    rivals.announce([*few, *many])
    assert rivals.live() == [True] * (PAIRS - 1) + [False] + [False] * (PAIRS - 1) + [True]


def test_a_block_contradicts_an_unconfirmed_payment_to_what_was_not_watched_when_it_came(tmp_path: Path) -> None:
    """By compact filters its block is found by what the payment spends."""
    payer, other, lock = p2wpkh(key(78)), p2wpkh(key(79)), p2wpkh(key(77))
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        regtest = world.truth.regtest
        coin = payer.spends(OutPoint(regtest.pay(payer.pays(50_000)), 0))
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
        rival = build_tx([coin], [other.pays(45_000)])
        regtest.mempool.remove_for([Transaction.parse(rival)])
        regtest.submit_tx(rival)
        regtest.mine()
        world.wait_synced(within=60)
        ended = [event.reason for event in world.told if isinstance(event, MatchWithdrawn) and event.match.txid == paid]
        assert ended == [Reason.CONFLICT]
