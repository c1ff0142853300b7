"""Twin lives: foreign unconfirmed transactions change nothing that peers could use."""

from __future__ import annotations

import pytest

from simulation.command import hunt_one, replay
from simulation.engine import make
from simulation.life import live
from simulation.plan import Plan
from spvfilter.light.events import Mode


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", list(Mode))
def test_foreign_transactions_change_no_request(mode: Mode, seed: int) -> None:
    plan = Plan(seed, mode, twins=True)
    outcome = live(plan, make)
    assert outcome.violation is None, f"{outcome.violation}\n{replay(plan)}"


@pytest.mark.slow
def test_the_client_of_one_twin_sees_the_foreign_transactions() -> None:
    shown: list[str] = []
    assert live(Plan(1, Mode.COMPACT, twins=True), make, show=shown.append).violation is None
    boots = [number for number, line in enumerate(shown) if "* boot" in line and line.strip().startswith("0.0000")]
    silent, loud = shown[: boots[1]], shown[boots[1] :]
    assert sum("Tx(" in line for line in loud) > sum("Tx(" in line for line in silent)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "foreign_outpoints_are_elements_of_the_filter",
        "foreign_payments_move_windows",
        "scripts_of_foreign_transactions_are_wanted_in_all_blocks",
    ],
)
def test_twins_notice_a_layer_that_leaks(name: str) -> None:
    found = hunt_one(name, None, 5)
    assert found is not None
    assert found.violation is not None
    assert found.violation.invariant == "twins"
