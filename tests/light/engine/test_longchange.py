"""Long changes: they take many steps, other inputs wait, and the database gets all of a change or nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from light.engine import test_bounds
from light.engine.test_bounds import Run
from spvfilter.light.engine import longchange
from spvfilter.light.engine.coverage import UnwitnessedRange, Witnesses
from spvfilter.light.engine.effects import Commit, Effect, Wake
from spvfilter.light.engine.inputs import Committed, Input, Instant, Tick
from spvfilter.light.engine.longchange import LongChange
from spvfilter.light.engine.quorum import Quorum
from spvfilter.light.events import Mode
from spvfilter.wallet.parts import Parts
from support.blocks.build import TxIn, TxOut, tx
from support.blocks.locks import LOCKS
from support.client.engineparts import context_of, filter_search_of, queue_of
from support.client.stage import Prompt, Stage, stage


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longchange, "MANY_MATCHES", 3)
    monkeypatch.setattr(longchange, "AT_ONCE", 5)
    monkeypatch.setattr(Quorum, "needed", lambda self, groups: 1)


@pytest.fixture(params=[Mode.BIP37, Mode.COMPACT])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, request.param, Prompt, Prompt) as made:
        made.boot()
        made.wait_synced(within=60)
        yield made


def watch_steps(world: Stage, monkeypatch: pytest.MonkeyPatch, kill_after: int | None = None) -> list[list[Effect]]:
    """Collect the effects of each step that ends in the middle of a change. The client may be killed after some."""
    process = world.process
    assert process is not None
    engine, found = process.engine, list[list[Effect]]()
    true = engine.step

    def step(event: Input, now: Instant) -> list[Effect]:
        effects = true(event, now)
        if context_of(engine).change.is_under_way:
            found.append(effects)
            process.steps_left = 0 if len(found) == kill_after else None
        return effects

    monkeypatch.setattr(engine, "step", step)
    return found


def mine_many(world: Stage) -> None:
    for _ in range(30):
        world.truth.receive()
    world.pass_time(30)
    world.truth.mine()


@pytest.mark.few(1)
def test_a_block_with_many_matches_is_committed_whole(world: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = watch_steps(world, monkeypatch)
    mine_many(world)
    world.wait_synced(within=30)
    assert world.has_found_all()
    assert len(steps) > 20
    assert all([type(each) for each in effects] == [Wake] for effects in steps)


@pytest.mark.few(1)
@pytest.mark.parametrize("steps", [1, 8, 15, 22])
def test_a_client_killed_in_a_long_change_loses_nothing(
    world: Stage, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    for _ in range(30):
        world.truth.receive()
    world.pass_time(30)
    before, taken = world.truth.scan(), watch_steps(world, monkeypatch, kill_after=steps)
    process = world.process
    assert process is not None
    world.truth.mine()
    while process.is_running:
        world.pass_time(0.1)
    assert len(taken) == steps
    world.boot()
    assert world.running.stored() == before
    world.wait_synced(within=60)
    assert world.has_found_all()
    assert len(world.truth.scan()) >= len(before) + 30


@pytest.mark.few(1)
def test_a_removal_beside_many_matches_takes_many_steps(world: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    mine_many(world)
    world.wait_synced(within=30)
    steps = watch_steps(world, monkeypatch)
    world.forget_lock(LOCKS[0])
    world.pass_time(5)
    assert len(steps) > 3
    assert all([type(each) for each in effects] == [Wake] for effects in steps)
    world.truth.receive(LOCKS[1])
    world.truth.mine()
    world.wait_synced(within=30)
    assert world.has_found_all()


def test_blocks_above_the_lowest_unwitnessed_one_are_searched_again(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        coverage, books = world.engine.coverage, world.engine.books
        assert coverage.proven == books.cursor > 9
        coverage.unwitnessed += [UnwitnessedRange(first, first + 1, Witnesses()) for first in (3, 8)]
        filter_search_of(world.engine).search_unwitnessed()
        assert (books.cursor, coverage.unwitnessed) == (2, [])


def test_unwitnessed_blocks_wait_until_a_long_change_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        engine, owed = world.engine, [UnwitnessedRange(0, 3, Witnesses())]  # since a search by BIP-37
        change, compact = context_of(engine).change, filter_search_of(engine)
        true = change.begin

        def begin(parts: Parts[None]) -> None:
            true(parts)
            if engine.books.cursor < engine.chain.height:  # the change records a block
                engine.coverage.unwitnessed += owed
                owed.clear()

        def search() -> None:
            during.append(change.is_under_way)
            true_search()

        true_search, during = compact.search_unwitnessed, list[bool]()
        monkeypatch.setattr(change, "begin", begin)
        monkeypatch.setattr(compact, "search_unwitnessed", search)
        mine_many(world)
        world.wait_synced(within=60)
        assert world.has_found_all()
        assert not engine.coverage.unwitnessed
        assert during
        assert not any(during)


@pytest.mark.few(1)
def test_a_rescan_in_the_step_that_begins_a_block_counts(world: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    true, moved = LongChange.begin, list[int]()

    def begin(self: LongChange, parts: Parts[None]) -> None:
        true(self, parts)
        books = world.engine.books
        if not moved:
            moved.append(books.cursor)
            books.searches.search_again(books.cursor - 3)

    monkeypatch.setattr(LongChange, "begin", begin)
    mine_many(world)
    world.wait_synced(within=30)
    assert moved
    assert world.has_found_all()


def put(run: Run, outputs: int) -> None:
    """Let a payment with many outputs wait in the engine's queue."""
    run.commit()
    raw = tx([TxIn(bytes([1]) * 32, 0)], [TxOut(1_000, test_bounds.OURS)] * outputs)
    queue_of(run.engine).put(raw, "a group")


def test_a_payment_of_many_outputs_is_told_in_one_commit() -> None:
    run = Run(Mode.COMPACT)
    put(run, 500)
    effects, steps = run.do(Tick()), 1
    while run.engine.is_changing:
        assert [type(each) for each in effects] == [Wake]
        effects, steps = run.do(Tick()), steps + 1
    assert steps > 100
    assert sum(isinstance(each, Commit) for each in effects) == 1
    assert run.engine.books.intake.pool.matches == 500


def test_inputs_wait_in_order_until_a_change_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    run, taken = Run(Mode.COMPACT), list[int]()
    put(run, 50)
    run.do(Tick())
    monkeypatch.setattr(context_of(run.engine).out, "committed", taken.append)
    given = [-number for number in range(1, 8)]
    for each in given:
        assert [type(effect) for effect in run.do(Committed(each))] == [Wake]
    while run.engine.is_changing:
        assert isinstance(run.do(Tick())[-1], Wake)
    assert taken == given


def test_a_flood_of_inputs_ends_a_change_at_once() -> None:
    run = Run(Mode.COMPACT)
    put(run, 3_000)
    run.do(Tick())
    steps = 0
    while context_of(run.engine).change.is_under_way:
        run.do(Committed(-1))
        steps += 1
    assert steps < 150
    assert run.engine.books.intake.pool.matches == 3_000
