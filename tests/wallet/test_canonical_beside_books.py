"""Verdicts of `canonical` beside the books: both get the same inputs in random lives, and are compared at each step.

Both always confirm the same transactions. All statuses are equal in lives in which versions of single payments replace
one another (36,000 steps). In other lives the books differ. The table counts the transactions that differ at the first
differing step of each of 300 lives of 60 steps. `Life` tries conflicts, and `Model` follows a chain.

| difference | Life | Model |
|---|---|---|
| OWN_FIRST | 266 | 139 |
| IMPOSSIBLE | 113 | 42 |
| INACTIVE_PARENT | 44 | 63 |
| UNMATCHED | 31 | 21 |
| BLOCK_FIRST | 21 | 21 |
| PATH | 17 | 12 |
| REORGANIZATION | 7 | 13 |
| REVIVED_PARENT | 1 | 18 |
| NO_SUCH_OUTPUT | 0 | 42 |
| lives without a difference | 2 | 79 |
| equal steps until then | 3,199 of 3,497 | 10,599 of 10,820 |

`Difference` in `support.shadow` says what each name means. None of them is an error of `canonical`: at each step its
verdicts equal those of a naive oracle on the same facts.
"""

from __future__ import annotations

from collections import Counter

import pytest

from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.canonical import Status
from support.build import txid
from support.facts import INACTIVE, naive_statuses
from support.shadow import ENDED, EQUAL, Difference, Shadow, classified, differences
from support.vectors import effort
from wallet import test_books, test_rivals
from wallet.test_books import STEPS, Model
from wallet.test_random_rivals import Life
from wallet.test_rivals import OURS, coin, out, pay


@pytest.fixture
def shadow(monkeypatch: pytest.MonkeyPatch) -> Shadow:
    """Facts of the books that a life opens from now on."""
    shadow = Shadow()
    monkeypatch.setattr(test_rivals, "Books", shadow.open)
    monkeypatch.setattr(test_books, "Books", shadow.open)
    return shadow


def check(shadow: Shadow, life: Life | Model, seen: Counter[Difference]) -> None:
    """Compare what must be equal, and count the classes of the other differences."""
    found = differences(shadow, life.store)
    for pair in found.values():
        assert TxStatus.CONFIRMED not in pair
        assert Status.CONFIRMED not in pair
    seen.update(classified(shadow, found))
    statuses = {digest: verdict.status for digest, verdict in shadow.verdicts().items()}
    assert {digest: None if each in INACTIVE else each for digest, each in statuses.items()} == naive_statuses(shadow)


@pytest.mark.parametrize("seed", range(effort(3, 6, 300)))
def test_verdicts_beside_lives_of_conflicts(seed: int, shadow: Shadow) -> None:
    life, seen = Life(seed), Counter[Difference]()
    for _ in range(60):
        life.step()
        check(shadow, life, seen)
    print(seen)


@pytest.mark.parametrize("seed", range(effort(3, 6, 300)))
def test_verdicts_beside_lives_of_a_chain(seed: int, shadow: Shadow) -> None:
    model, seen = Model(seed), Counter[Difference]()
    for _ in range(60):
        getattr(model, model.rng.choice(STEPS))()
        check(shadow, model, seen)
    print(seen)


class Plain(Life):
    """A life in which versions of single payments replace one another. All of them are foreign, or all are own."""

    def __init__(self, seed: int, *, own: bool) -> None:
        self.own = own
        super().__init__(seed)

    def ended(self) -> set[bytes]:
        statuses = {entry.txid: entry.status for entry in self.store.views.history(limit=None)}
        return {digest for digest, status in statuses.items() if status in (*ENDED, TxStatus.CONFLICTED)}

    def new(self) -> bytes:
        """A payment to the wallet with one input."""
        self.value -= 1
        places = [coin(1), coin(2), *self.coins[-4:], *map(out, list(self.raws.values())[-8:])]
        raw = pay(self.value, self.rng.choice(places), to=OURS)
        self.raws[txid(raw)] = raw
        return raw

    def step(self) -> None:
        chance, rng = self.rng.random(), self.rng
        pending = list(self.books.unconfirmed.pending)
        self.now += 1
        if chance < 0.65:
            raw = self.new() if chance < 0.55 else rng.choice(list(self.raws.values())[-20:])
            known = {txid(raw), *(spent[:32] for spent in Transaction.parse(raw).inputs)}
            if known.isdisjoint(self.ended()):
                self.send(raw) if self.own else self.hear(raw)
        elif chance < 0.75 and pending and self.own:
            self.tell(self.books.abandon(rng.choice(pending), refused=rng.random() < 0.5))
        elif chance < 0.75 and pending:
            self.tell(self.books.see_again(rng.choice(pending)))
        elif chance < 0.87:
            self.mine_some()
        elif chance < 0.95 or not self.own:  # a restart makes the books forget which announcement came last
            self.fund()
        else:
            self.check_restart()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("seed", range(effort(3, 6, 300)))
def test_verdicts_equal_books_while_versions_replace_one_another(seed: int, own: bool, shadow: Shadow) -> None:
    life = Plain(seed, own=own)
    for _ in range(60):
        life.step()
        found = differences(shadow, life.store)
        assert not [pair for pair in found.values() if not (pair[0] in ENDED and pair[1] is Status.CONFLICTED)]
    assert set(EQUAL.values()) == set(Status)
