"""Own transactions: families, order, and a schedule whose work does not grow with their number."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given, strategies as st

from light.engine.test_bounds import OURS, Run
from spvfilter.light.engine.inputs import BroadcastAsked, Instant, Tick
from spvfilter.light.engine.owntxs import OwnTx, OwnTxs, Schedule
from spvfilter.light.events import Mode
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from support.blocks.build import TxIn, TxOut, tx
from support.client.engineparts import note_planned, tracked_txs


def family(rng: random.Random, parents: list[list[int]]) -> list[OwnTx]:
    """Transactions, each of which spends outputs of earlier ones and a coin of its own."""
    made: list[OwnTx] = []
    for number, chosen in enumerate(parents):
        spent = [TxIn(made[each % number].tx.txid, number) for each in chosen if number]
        raw = tx([TxIn(rng.randbytes(32), 0), *spent], [TxOut(1_000 + number, OURS)])
        made.append(OwnTx(Transaction.parse(raw), TxStatus.PENDING))
    return made


families = st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=20)


@given(families, st.randoms(use_true_random=False))
def test_parents_come_first_in_any_order_of_arrival(parents: list[list[int]], rng: random.Random) -> None:
    made, owns = family(rng, parents), OwnTxs()
    for own in rng.sample(made, len(made)):
        owns.put(own)
    chosen = rng.sample(made, rng.randrange(len(made) + 1))
    ordered = owns.parents_first(chosen)
    assert sorted(own.place for own in ordered) == sorted(own.place for own in chosen)
    seen: set[bytes] = set()
    for own in ordered:
        assert all(up.tx.txid in seen for up in owns.parents(own) if up in chosen)
        seen.add(own.tx.txid)


@given(families, st.randoms(use_true_random=False))
def test_families_are_those_of_the_present_transactions(parents: list[list[int]], rng: random.Random) -> None:
    made, owns, left = family(rng, parents), OwnTxs(), dict[bytes, OwnTx]()
    for own in rng.choices(made, k=3 * len(made)):
        if own.tx.txid in left and rng.random() < 0.5:
            owns.remove(own.tx.txid)
            del left[own.tx.txid]
        else:
            own.unstored = rng.randrange(2)
            owns.put(own)
            left[own.tx.txid] = own
    spends = {txid: {outpoint[:32] for outpoint in own.tx.inputs} for txid, own in left.items()}
    for own in left.values():
        assert {each.tx.txid for each in owns.children(own)} == {txid for txid in left if own.tx.txid in spends[txid]}
    behind = {txid for txid, own in left.items() if own.is_hidden}
    found: set[bytes] = set()
    while behind:
        behind = {txid for txid in left if spends[txid] & behind} - found
        found |= behind
    assert set(owns.behind_hidden()) == found
    assert [*owns] == sorted(owns, key=lambda own: own.place) or len(owns) == len(left)
    assert all(owns.has_size(len(own.tx.raw)) for own in left.values())
    for own in left.values():
        owns.remove(own.tx.txid)
    assert not any(owns.has_size(len(own.tx.raw)) or owns.has_child(own) or owns.find(own.tx.wtxid) for own in made)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=60), st.integers(1, 5))
def test_a_schedule_forgets_nothing(plans: list[tuple[int, int]], most: int) -> None:
    made, owns = family(random.Random(1), [[] for _ in range(10)]), OwnTxs()
    schedule, times = Schedule(owns), dict[int, float]()
    for own in made:
        owns.put(own)
    for number, at in plans:
        schedule.plan(made[number], float(at))
        times[number] = float(at)
    now = 0.0
    while times:
        now = max(now, schedule.next_at)
        taken = [made.index(own) for own in schedule.take(now, most)]
        assert 0 < len(taken) <= 2 * most
        assert taken == sorted(taken)
        for number in taken:
            assert times.pop(number) <= now
    assert schedule.next_at == inf


@pytest.mark.slow
def test_a_step_looks_at_few_own_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broadcast looked at all own transactions: with 600, the loop stood still for seconds."""
    run, looked, now = Run(Mode.COMPACT), note_planned(monkeypatch), 0.0
    rng = random.Random(2)
    for _ in range(1_000):
        looked.clear()
        raw = tx([TxIn(rng.randbytes(32), 0)], [TxOut(1_000, OURS)])
        run.engine.step(BroadcastAsked(raw), Instant(now, now))
        run.commit()
        assert len(looked) <= 4
    told = dict.fromkeys(own.tx.txid for own in tracked_txs(run.engine) if own.announced_at is not None)
    assert len(told) == 1_000
    for _ in range(100):  # all of them are announced again
        looked.clear()
        now += 20.0
        run.engine.step(Tick(), Instant(now, now))
        assert len(looked) <= 200
