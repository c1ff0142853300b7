"""Lives of the light client's engine in the simulated world.

`scripts/simulate` runs hundreds more, of every kind. With `--past` it repeats every life that ever failed.
"""

from __future__ import annotations

import pytest

from simulation.behaviours import BUSY, GARBLERS
from simulation.behaviours.forged import (
    FloodsForgeries,
    HasNoWitnesses,
    SpendsUnsigned,
    SpendsWronglySigned,
    StripsWitnesses,
    WithholdsAnnounced,
)
from simulation.command import failed_before, replay
from simulation.engine import make
from simulation.life import live
from simulation.plan import FAULTS, Plan
from spvfilter.light.events import Mode


def check(plan: Plan) -> None:
    outcome = live(plan, make)
    assert outcome.violation is None, f"{outcome.violation}\n{replay(plan)}"


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", list(Mode))
def test_no_invariant_is_violated(mode: Mode) -> None:
    check(Plan(0, mode))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
def test_keychain_is_complete_in_any_order_of_use(mode: Mode, seed: int) -> None:
    check(Plan(seed, mode, keychain=True))


@pytest.mark.long
@pytest.mark.parametrize("mode", list(Mode))
def test_garbled_messages_harm_no_life(mode: Mode) -> None:
    shown: list[str] = []
    plan = Plan(1, mode, peers=tuple(kind.__name__ for kind in GARBLERS))
    outcome = live(plan, make, show=shown.append)
    assert outcome.violation is None, f"{outcome.violation}\n{replay(plan)}"
    assert any("PeerWarning" in line for line in shown)


@pytest.mark.long
@pytest.mark.parametrize("mode", list(Mode))
def test_busy_nodes_violate_no_invariant(mode: Mode) -> None:
    check(Plan(1, mode, peers=tuple(kind.__name__ for kind in BUSY)))


@pytest.mark.long
@pytest.mark.parametrize("mode", list(Mode))
def test_forged_spends_violate_no_invariant(mode: Mode) -> None:
    kinds = (SpendsUnsigned, SpendsWronglySigned, FloodsForgeries, StripsWitnesses, HasNoWitnesses, WithholdsAnnounced)
    check(Plan(1, mode, peers=tuple(kind.__name__ for kind in kinds)))


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", list(Mode))
def test_restored_databases_violate_no_invariant(mode: Mode) -> None:
    check(Plan(0, mode, restores=True))


@pytest.mark.long
def test_accounts_are_added_renamed_removed_and_revealed() -> None:
    shown: list[str] = []
    assert live(Plan(3, Mode.COMPACT, accounts=True), make, show=shown.append).violation is None
    for word in ("accounts: add", "accounts: rename", "accounts: remove", "accounts: reveal", "accounts: transfer"):
        assert any(word in line for line in shown), word


@pytest.mark.long
def test_a_life_restores_an_earlier_database() -> None:
    shown: list[str] = []
    assert live(Plan(25, Mode.COMPACT, restores=True), make, show=shown.append).violation is None
    assert any("the database is restored" in line for line in shown)


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", list(Mode))
def test_without_faults_no_peer_is_dropped(mode: Mode) -> None:
    outcome = live(Plan(1, mode, ()), make)
    assert outcome.violation is None
    assert outcome.tally.restarts == 0
    assert outcome.tally.blocks >= 200


@pytest.mark.slow
def test_all_seeds_of_earlier_failures_are_read() -> None:
    plans = failed_before()
    assert len({replay(plan) for plan in plans}) == len(plans) >= 70
    check(plans[0])


@pytest.mark.long
def test_a_life_has_restarts_reorganisations_and_liars() -> None:
    shown: list[str] = []
    outcomes = [live(Plan(seed, Mode.COMPACT), make, show=shown.append) for seed in range(3)]
    assert sum(outcome.tally.restarts for outcome in outcomes) >= 1
    for word in ("reorganisation", "killed", "Block", "CFilter", "Synced", "MatchFound"):
        assert any(word in line for line in shown), word


@pytest.mark.slow
def test_a_life_has_only_the_faults_of_its_plan() -> None:
    shown: list[str] = []
    live(Plan(2, Mode.COMPACT, tuple(name for name in FAULTS if name not in ("kill", "disk"))), make, show=shown.append)
    assert not any("killed" in line or "disk" in line for line in shown)
