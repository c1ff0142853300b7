"""Cancelled calls of the real client: no effect or the whole effect."""

from __future__ import annotations

import pytest

from simulation.command import hunt_one, replay
from simulation.engine import make
from simulation.life import live
from simulation.plan import Plan
from spvfilter.light.events import Mode
from support.vectors import first_of


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", first_of(1, *range(3)))
@pytest.mark.parametrize("mode", list(Mode))
def test_cancelled_calls_have_their_whole_effect_or_none(mode: Mode, seed: int) -> None:
    plan = Plan(seed, mode, cancels=True)
    outcome = live(plan, make)
    assert outcome.violation is None, f"{outcome.violation}\n{replay(plan)}"


@pytest.mark.long
@pytest.mark.parametrize("name", ["a_broadcast_waits_before_it_is_recorded", "a_cancelled_call_loses_its_label"])
def test_half_an_effect_is_noticed(name: str) -> None:
    found = hunt_one(name, None, 20)
    assert found is not None
    assert found.violation is not None
    assert found.violation.invariant == "cancels"
