"""Linked foreign transactions: a step judges a few of them, whatever their shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from light.engine import test_bounds
from light.engine.test_bounds import Run
from simulation.floods import SHAPES
from spvfilter.light.engine.inputs import Instant, Tick
from spvfilter.light.events import Mode
from support.blocks.locks import LOCKS
from support.client.engineparts import queue_of

MOST_WALKED = 8_000
"""Records and inputs that a step may walk over: 700 of its budget, and those of one more transaction."""


@pytest.mark.few(1)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_judges_few_linked_transactions(
    shape: Callable[[random.Random, int], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_bounds, "OURS", LOCKS[1].script_pubkey)
    run, now = Run(Mode.COMPACT), 0.0
    engine, rng = run.engine, random.Random(1)
    queue = queue_of(engine)
    for raw in shape(rng, 200):
        queue.put(raw, "a group")
    walked, steps = engine.books.facts.graph.walked, 0
    while queue and steps < 2_000:
        now += 1.0
        steps += 1
        engine.step(Tick(), Instant(now, now))
        run.commit()
        before, walked = walked, engine.books.facts.graph.walked
        assert walked - before <= MOST_WALKED
    assert not queue
    assert len(engine.books.intake.pool) > 0
