"""What a peer has contradicted stays told after it is gone, over restarts, until it is heard again or enough others contradict it."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.compact import HidesBehindDoubt
from spvfilter.light.engine.coverage import MAX_CONTESTS, Coverage
from spvfilter.light.engine.effects import Connect
from spvfilter.light.engine.engine import Engine
from spvfilter.light.engine.inputs import Tick
from spvfilter.light.events import Mode
from spvfilter.watch.match import Completeness
from support.discovery import Run
from support.stage import Prompt, Stage, stage
from support.swarm import START

ONE, OTHER = "10.1.0.1:1", "10.2.0.1:1"


def doubts(coverage: Coverage) -> list[tuple[int, int]]:
    return [(first, last) for first, last in coverage.in_doubt]


def covered(height: int = 100) -> Coverage:
    """Two peers agree."""
    coverage = Coverage()
    coverage.agreed(height)
    return coverage


def test_what_was_not_compared_is_in_doubt() -> None:
    coverage = covered()
    assert doubts(coverage) == []
    coverage.contest(ONE, 9, 80)
    assert doubts(coverage) == [(10, 80)]
    assert coverage.completeness(9) is Completeness.PROVEN
    assert coverage.completeness(10) is coverage.completeness(80) is Completeness.ONE_PEER
    assert coverage.completeness(81) is Completeness.PROVEN
    assert coverage.proven_matches == 9
    coverage.compared(ONE, 50)
    coverage.contest(OTHER, 59, 70)
    coverage.doubt(20, 30)
    assert doubts(coverage) == [(20, 30), (51, 80)]
    coverage.compared(ONE, 90)  # it has stated more meanwhile
    assert doubts(coverage) == [(20, 30), (60, 70)]
    coverage.uncontested(OTHER)
    assert doubts(coverage) == [(20, 30)]
    assert coverage.proven_matches == 19


def test_who_agrees_withdraws_what_it_stated_below() -> None:
    coverage = covered()
    coverage.contest(ONE, -1, 80)
    coverage.agrees(ONE, 40)
    assert doubts(coverage) == [(41, 80)]
    coverage.agrees(ONE, 30)
    assert doubts(coverage) == [(41, 80)]
    coverage.agrees(OTHER, 80)
    coverage.agrees(ONE, 80)
    assert doubts(coverage) == []
    assert not coverage.contests


def test_who_contradicts_again_takes_back_nothing() -> None:
    coverage = covered()
    coverage.contest(ONE, 9, 80)
    coverage.compared(ONE, 70)
    coverage.contest(ONE, 9, 60)
    assert doubts(coverage) == [(10, 80)]


def test_blocks_that_leave_the_chain_are_in_no_doubt() -> None:
    coverage = covered()
    coverage.contest(ONE, 9, 80)
    coverage.contest(OTHER, 60, 70)
    coverage.limit(50)
    assert doubts(coverage) == [(10, 50)]
    assert coverage.is_changed


def test_few_addresses_are_remembered_and_of_those_rather_the_ones_that_leave_doubt() -> None:
    coverage = covered()
    for number in range(MAX_CONTESTS):
        coverage.contest(f"10.{number}.0.1:1", 9, 80)
    coverage.compared("10.3.0.1:1", 80)
    coverage.contest("10.9.0.1:1", 9, 80)
    assert len(coverage.contests) == MAX_CONTESTS
    assert "10.3.0.1:1" not in coverage.contests
    coverage.contest("10.8.0.1:1", 9, 80)
    assert len(coverage.contests) == MAX_CONTESTS
    assert "10.0.0.1:1" not in coverage.contests
    coverage.contest("10.8.0.1:2", 9, 80)  # one host pushes nobody else out
    assert "10.8.0.1:1" not in coverage.contests
    assert "10.1.0.1:1" in coverage.contests


def test_it_survives_a_restart_and_databases_of_before_have_none() -> None:
    coverage = covered()
    coverage.contest(ONE, 9, 80)
    coverage.contest(OTHER, -1, 3)
    raw = coverage.encode()
    assert not coverage.is_changed
    assert Coverage.parse(raw) == coverage
    before = raw.replace(b'"contests":[["10.1.0.1:1",9,80],["10.2.0.1:1",-1,3]],', b"")
    assert before != raw
    assert Coverage.parse(before).in_doubt == ()


def begin_to_contradict(world: Stage) -> None:
    """Two networks whose filters no block refutes agree; an honest peer contradicts them, and is gone before all was compared."""
    honest = world.nodes[-1]
    honest.is_up = False
    world.boot()
    world.wait_synced(within=60)
    assert not world.has_found_all()
    assert world.synced[-1].disputed == ()
    honest.is_up = True
    assert world.process is not None
    engine = world.process.engine
    assert isinstance(engine, Engine)
    coverage = engine.coverage
    for _ in range(100_000):
        world.pass_time(0.01)
        if coverage.in_doubt and coverage.disputed:
            break
    assert coverage.in_doubt
    honest.is_up = False
    honest.hang_up()
    world.pass_time(5)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_contradiction_is_told_until_who_made_it_is_heard_again(tmp_path: Path, is_restarted: bool) -> None:
    with stage(tmp_path, Mode.COMPACT, HidesBehindDoubt, HidesBehindDoubt, Prompt) as world:
        begin_to_contradict(world)
        if is_restarted:
            world.kill()
            world.pass_time(60)
        world.truth.mine()
        world.wait_synced(within=600)
        assert world.synced[-1].disputed
        world.nodes[-1].is_up = True
        world.pass_time(1_800)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.has_found_all()
        assert world.synced[-1].disputed == ()
        assert not world.banned & set(world.nodes[-1].addresses)


def test_a_contradiction_of_one_that_is_gone_is_outweighed_by_three(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, HidesBehindDoubt, HidesBehindDoubt, HidesBehindDoubt, Prompt) as world:
        world.nodes[2].is_up = False
        begin_to_contradict(world)
        world.truth.mine()
        world.wait_synced(within=600)
        assert world.synced[-1].disputed
        world.nodes[2].is_up = True
        world.pass_time(1_800)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.synced[-1].disputed == ()


def test_an_address_that_was_discovered_is_connected_first_in_at_most_a_quarter_of_the_connections() -> None:
    run = Run()
    discovery = run.engine.pool._discovery
    assert discovery is not None
    contesting = [f"203.{net}.113.77:8333" for net in range(MAX_CONTESTS)]
    for address in contesting:
        run.engine.coverage.contest(address, 9, 80)
    for number in range(300):
        discovery.book.add(f"{101 + number // 256}.{number % 256}.0.1:8333", 0x49, START, "1.1", START)
    dialled = [effect.address for _ in range(8) for effect in run.do(Tick(), 5.0) if isinstance(effect, Connect)]
    assert dialled[:2] == contesting[:2]
    assert len(dialled) == 7
    assert not set(dialled[2:]) & set(contesting)
    run.client.store.close()
