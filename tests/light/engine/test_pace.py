"""Pace: a network group whose transactions cost much rests, and the others do not wait for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, strategies as st

from light.engine import test_bounds
from light.engine.test_bounds import Run
from simulation.floods import SHAPES
from spvfilter.light.engine.inputs import Instant, Tick
from spvfilter.light.engine.pace import AHEAD_S, SHARE, Pace
from spvfilter.light.events import Mode
from support.blocks.build import TxIn, TxOut, tx, txid
from support.blocks.locks import LOCKS
from support.client.engineparts import queue_of
from support.held import most_held

COST_S = 9e-6
"""Processor time of a walked record or input, in seconds."""


@given(st.lists(st.floats(0.0001, 0.05), min_size=1, max_size=300), st.floats(0, 1e6))
def test_a_busy_group_gets_its_share_of_any_minute(costs: list[float], begun: float) -> None:
    pace, now, used = Pace(), begun, list[tuple[float, float]]()
    for cost in costs:
        now = max(now, pace.ready_at("a"))
        assert pace.is_ready("a", now)
        pace.charge("a", cost, now)
        used.append((now, cost))
        assert pace.is_ready("b", now)
    for first, _ in used:
        spent = sum(cost for at, cost in used if first <= at < first + 60)
        assert spent <= SHARE * (60 + AHEAD_S) + 2 * max(costs)
    assert SHARE * (60 + AHEAD_S) <= 0.05 * 60


def test_a_rested_group_may_use_no_more_than_its_advance() -> None:
    pace = Pace()
    pace.charge("a", 1.0, 1e6)
    assert pace.ready_at("a") == 1e6 - AHEAD_S + 1.0 / SHARE
    for number in range(3_000):
        pace.charge(str(number), 0.001, 1e6 + number)
    assert 0 < most_held(pace) <= 1_001


@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_takes_more_than_its_share_of_a_minute(
    shape: Callable[[random.Random, int], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_bounds, "OURS", LOCKS[1].script_pubkey)
    run, rng = Run(Mode.COMPACT), random.Random(1)
    engine = run.engine
    queue, graph = queue_of(engine), engine.books.facts.graph
    hostile = [raw for _ in range(4) for raw in shape(rng, 200)]
    for raw in hostile:
        queue.put(raw, "hostile")
    walked = graph.walked
    for step in range(600):
        now = step / 10
        if step % 100 == 50:
            honest = tx([TxIn(rng.randbytes(32), 0)], [TxOut(1_000, LOCKS[1].script_pubkey)])
            queue.put(honest, "honest")
        engine.step(Tick(), Instant(now, now))
        run.commit()
        if step % 100 == 60:
            assert engine.books.facts.is_without_block(txid(honest))
    assert (graph.walked - walked) * COST_S <= 3.1
