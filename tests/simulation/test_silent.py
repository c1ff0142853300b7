"""Lives of a wallet with a silent payment address, and planted bugs that they notice."""

from __future__ import annotations

import pytest

from simulation.command import hunt_one, replay
from simulation.engine import make
from simulation.life import live
from simulation.plan import Plan
from spvfilter.light.events import Mode
from support.vectors import first_of

pytest.importorskip("btclib_secp256k1")


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", first_of(1, 0, 1))
@pytest.mark.parametrize("mode", list(Mode))
def test_silent_payments_of_a_life_are_found(mode: Mode, seed: int) -> None:
    plan = Plan(seed, mode, silent=True)
    outcome = live(plan, make)
    assert outcome.violation is None, f"{outcome.violation}\n{replay(plan)}"


@pytest.mark.long
def test_lives_have_both_kinds_of_sources_which_fail() -> None:
    shown: list[str] = []
    for seed, mode in ((1, Mode.COMPACT), (15, Mode.BIP37)):
        assert live(Plan(seed, mode, silent=True), make, show=shown.append).violation is None
    for word in ("silent: receive", "silent: reveal", "silent: spend", "AskSpent", "AskTweaks", "no answer now"):
        assert any(word in line for line in shown), word


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("a_source_that_fails_has_no_payments", "true"),
        ("blocks_with_any_tweak_are_downloaded", "modest"),
        ("the_source_of_silent_payments_is_not_named", "honest"),
    ],
)
def test_lives_notice_a_planted_bug(name: str, invariant: str) -> None:
    found = hunt_one(name, None, 30)
    assert found is not None
    assert found.violation is not None
    assert found.violation.invariant == invariant
