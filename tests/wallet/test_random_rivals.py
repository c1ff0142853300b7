"""Random lives of unconfirmed transactions, ours and strangers', that spend the same: what is remembered is what would
be found anew.
"""

from __future__ import annotations

import random

import pytest

from spvfilter.network import REGTEST
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.transaction import Transaction
from spvfilter.wallet import unconfirmed
from spvfilter.wallet.filterdata import stored_elements
from spvfilter.wallet.refusals import check_broadcast
from spvfilter.wallet.sent import Sent
from support.build import txid
from support.vectors import effort
from wallet.test_rivals import OURS, THEIRS, Wallet, coin, out, pay
from wallet.test_sent import ancestry, naively_wanted


class Life(Wallet):
    """A wallet that hears and does anything."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.value = 100_000
        self.raws: dict[bytes, bytes] = {}  # of all that were ever made, by txid
        self.coins: list[bytes] = []
        self.fund()

    def fund(self) -> None:
        self.value -= 1
        raw = pay(self.value, coin(100 + len(self.chain)))
        self.raws[txid(raw)] = raw
        self.coins.append(out(raw))
        self.mine(raw)

    def new(self) -> bytes:
        self.value -= 1
        places = [*self.coins[-4:], coin(1), coin(2), *(out(raw) for raw in list(self.raws.values())[-8:])]
        raw = pay(
            self.value,
            *self.rng.sample(places, self.rng.choice((1, 1, 2, 3))),
            to=self.rng.choice((OURS, OURS, THEIRS)),
        )
        self.raws[txid(raw)] = raw
        return raw

    def send(self, raw: bytes) -> None:
        try:
            check_broadcast(self.books, Transaction.parse(raw))
        except ValueError:
            return
        self.hear(raw, own=True)

    def mine_some(self) -> None:
        """A block with a few that are pending, and what they spend from."""
        pending, spent, found = self.books.unconfirmed.pending, set[bytes](), dict[bytes, None]()
        for each in self.rng.sample(list(pending), min(2, len(pending))):
            family = [one for one in self.books.unconfirmed.parents_first(ancestry(pending, each)) if one not in found]
            inputs = [outpoint for one in family for outpoint in Transaction.parse(pending[one].raw).inputs]
            missing = {outpoint[:32] for outpoint in inputs} & self.raws.keys() - {*family, *found}
            if len(set(inputs)) == len(inputs) and spent.isdisjoint(inputs) and all(map(self.books.in_block, missing)):
                spent |= set(inputs)
                found.update(dict.fromkeys(family))
        self.mine(*(pending[each].raw for each in found))

    def step(self) -> None:
        chance, rng = self.rng.random(), self.rng
        ours = [each for each, tx in self.books.unconfirmed.pending.items() if tx.own]
        self.now += rng.choice((1, 1, 1_000))
        if chance < 0.30:
            self.hear(self.new())
        elif chance < 0.55:
            self.send(self.new())
        elif chance < 0.65 and self.raws:
            raw = rng.choice(list(self.raws.values())[-20:])
            self.send(raw) if rng.random() < 0.6 else self.hear(raw)
        elif chance < 0.70:
            if known := list(self.books.unconfirmed.pending):
                self.tell(self.books.see_again(rng.choice(known)))
        elif chance < 0.80 and ours:
            self.tell(self.books.abandon(rng.choice(ours), refused=rng.random() < 0.5))
        elif chance < 0.84:
            self.tell(self.books.expire(self.now - rng.choice((500, 5_000)) + MEMPOOL_EXPIRY_S))
        elif chance < 0.90:
            self.mine_some()
        elif chance < 0.94 and len(self.chain) > 3:
            self.reorganise()
        elif chance < 0.97:
            self.fund()
        else:
            self.check_restart()

    def check(self) -> None:
        books, pending = self.books, self.books.unconfirmed.pending
        wanted = list(books.unconfirmed.sent.wanted)
        assert wanted == list(Sent(dict(pending)).wanted)
        assert set(wanted) == naively_wanted(pending) == {each for each, _ in books.own_unconfirmed()}
        assert {each: tx._replace(hits=()) for each, tx in pending.items()} == self.store.unconfirmed()
        numbers = [tx.own for tx in pending.values() if tx.own]
        assert len(set(numbers)) == len(numbers)
        live = {each for each in pending if books.unconfirmed.is_live(each)}
        spent = [outpoint for each in live for outpoint in Transaction.parse(pending[each].raw).inputs]
        assert len(set(spent)) == len(spent)
        for each in live:
            assert all(
                outpoint[:32] in live
                for outpoint in Transaction.parse(pending[each].raw).inputs
                if outpoint[:32] in pending
            )

    def check_restart(self) -> None:
        before, told = self.books.unconfirmed, {each.match.outpoint for each in self.books.matches()}
        self.restart()
        after = self.books.unconfirmed
        assert after.pending == {each: tx._replace(hits=()) for each, tx in before.pending.items()}
        assert list(after.sent.wanted) == list(before.sent.wanted)
        assert {each.match.outpoint for each in self.books.matches()} == told
        assert set(stored_elements(self.store.views._checked, REGTEST)) == set(self.books.bloom_elements())


@pytest.mark.parametrize("seed", range(effort(4, 15, 2_000)))
def test_whatever_happens_what_is_remembered_is_what_would_be_found_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed, "MAX_RIVALS", 2)
    monkeypatch.setattr(unconfirmed, "MAX_RIVALS_OF_COIN", 2)
    monkeypatch.setattr(unconfirmed, "MAX_DISPLACED", 5)
    life = Life(seed)
    for _ in range(60):
        life.step()
        life.check()
