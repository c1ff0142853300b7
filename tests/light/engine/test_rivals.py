"""What a peer tells of the order of unconfirmed transactions that spend the same moves few matches, however often it tells it."""

from __future__ import annotations

import random

import pytest

from light.engine.test_bounds import OURS, Run
from spvfilter.light.engine import mempool
from spvfilter.light.engine.effects import Effect, Emit
from spvfilter.light.engine.inputs import Heard, Tick
from spvfilter.light.events import Mode
from spvfilter.transaction import Transaction
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType
from support.build import TxIn, TxOut, tx

RNG = random.Random(1)
MATCHES, PAIRS = 50, 20


class Rivals:
    """Transactions that spend the same, two by two: one with many matches, and one with a single match that was seen later."""

    def __init__(self) -> None:
        self.run = Run(Mode.COMPACT)
        self.txids: tuple[list[bytes], list[bytes]] = [], []
        for _ in range(PAIRS):
            coin = TxIn(RNG.randbytes(32), 0)
            for side, outputs in enumerate(([TxOut(1_000, OURS)] * MATCHES, [TxOut(9_000, OURS)])):
                raw = tx([coin], outputs)
                self.run.engine.books.add_unconfirmed(raw, 1_700_000_000)
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
        return [self.run.engine.books.unconfirmed.is_live(txid) for side in self.txids for txid in side]


def test_a_peer_that_announces_rivals_back_and_forth_moves_each_of_them_once() -> None:
    rivals = Rivals()
    many, few = rivals.txids
    told = []
    for number in range(8):
        rivals.forgotten()
        first, then = (few, many) if number % 2 == 0 else (many, few)
        rivals.announce(first)
        told.append(sum(isinstance(effect, Emit) for effect in rivals.announce(then)))
    assert told == [PAIRS * (MATCHES + 1)] * 2 + [0] * 6
    assert rivals.live() == [False] * PAIRS + [True] * PAIRS


def test_after_a_reorganisation_it_may_tell_the_order_anew() -> None:
    rivals = Rivals()
    many, few = rivals.txids
    for _ in range(2):
        rivals.announce([*few, *many])
        assert rivals.live() == [True] * PAIRS + [False] * PAIRS
        rivals.forgotten()
        rivals.announce([*many, *few])
        assert rivals.live() == [False] * PAIRS + [True] * PAIRS
        rivals.run.engine._mempool.forget()
        rivals.forgotten()


def test_of_so_many_transactions_and_no_more_the_order_is_taken_from_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    rivals = Rivals()
    many, few = rivals.txids
    monkeypatch.setattr(mempool, "_MAX_ORDERED", 2 * PAIRS)
    watch = rivals.run.engine._mempool
    watch._stand(next(iter(rivals.run.engine.pool))).later |= {bytes([at]) * 32 for at in range(PAIRS + 1)}
    rivals.announce([*few, *many])
    assert rivals.live() == [True] * (PAIRS - 1) + [False] + [False] * (PAIRS - 1) + [True]


def test_rivals_are_found_by_their_wtxids_without_reading_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one may have displaced a hundred: it is not to be hashed for each announcement of one of these."""

    class Unread:
        @staticmethod
        def parse(raw: bytes) -> Transaction:
            raise AssertionError("a transaction is read")

    run = Run(Mode.COMPACT)
    coin = RNG.randbytes(32)
    old, new = (Transaction.parse(tx([TxIn(coin, 0, witness=(bytes(size),))], [TxOut(1_000, OURS)] * size)) for size in (1, 2))
    for each in (old, new):
        run.engine.books.add_unconfirmed(each.raw, 1_700_000_000)
    run.do(Tick())
    monkeypatch.setattr(mempool, "Transaction", Unread)
    run.do(Heard(1, wire.Inv((InvItem(InvType.WTX, new.wtxid), InvItem(InvType.WTX, old.wtxid)))))
    unconfirmed = run.engine.books.unconfirmed
    assert (unconfirmed.is_live(old.txid), unconfirmed.is_live(new.txid)) == (True, False)
