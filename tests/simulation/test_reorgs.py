"""Lives with restarts in the middle of reorganizations, and a planted bug that they notice."""

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
def test_client_is_at_tip_soon_after_reorganization(mode: Mode, seed: int) -> None:
    plan = Plan(seed, mode, reorgs=True)
    outcome = live(plan, make)
    assert outcome.violation is None, f"{outcome.violation}\n{replay(plan)}"
    assert outcome.tally.restarts


def test_lives_notice_client_that_never_asks_again() -> None:
    found = hunt_one("ignored_questions_wait_for_the_end_of_the_connection", None, 10)
    assert found is not None
    assert found.violation is not None
    assert found.violation.invariant == "alive"
