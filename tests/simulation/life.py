"""A life: a client among peers, with events drawn from a seed. Once faults end, everything must become right."""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from simulation import cancels, floods, invariants, reorgs, stories, twins
from simulation.accounts import Accounts
from simulation.balance import check_verdicts, check_views
from simulation.behaviours import ERRATIC, FAULTY, HONEST, LATE, LIARS, RELAYS, SCHEMES, Behaviour, named
from simulation.host import Make
from simulation.keychain import Keychain
from simulation.plan import Outcome, Plan, Tally
from simulation.planted import planted
from simulation.record import Record
from simulation.schedule import schedule_chain, schedule_faults, schedule_restores
from simulation.silent import Silent
from simulation.small import small_limits
from simulation.timeline import Timeline
from simulation.violation import Violation
from simulation.world import Placed, World
from spvfilter.light.engine.options import Options, PeerTimeouts, Reach
from spvfilter.light.events import Mode

SETTLE_S = 2 * 3600.0  # time to settle after faults end
_STEP_S = 20.0
_SHARED_MEMORY = Path("/dev/shm")


def live(plan: Plan, make: Make, *, is_full: bool = False, show: Callable[[str], None] | None = None) -> Outcome:
    """Live a life to its end. Python's cycle collector is paused meanwhile, because it would traverse all objects again
    and again.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        return _live(plan, make, is_full=is_full, show=show)
    finally:
        if was_collecting:
            gc.enable()


def _live(plan: Plan, make: Make, *, is_full: bool, show: Callable[[str], None] | None) -> Outcome:
    begun = time.process_time()
    folder = Path(tempfile.mkdtemp(prefix="spvfilter-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None))
    violation = None
    worlds: list[World] = []

    def record(timeline: Timeline) -> Record:
        return Record(lambda: timeline.now, is_full=is_full, show=show)

    limits = random.Random(f"{plan.seed} {plan.mode} small") if plan.small else None
    try:
        with planted(plan.bug), small_limits(limits):
            try:
                if plan.twins:
                    twins.happen(plan, make, folder, record, worlds.append)
                elif plan.cancels:
                    cancels.happen(plan, folder)
                elif plan.floods:
                    floods.happen(plan, make, folder, record, worlds.append)
                elif plan.reorgs:
                    reorgs.happen(plan, make, folder, record, worlds.append)
                else:
                    _happen(plan, make, folder, record, worlds.append, limits)
            except Exception as error:
                what = f"the simulation itself raised {error!r}\n{traceback.format_exc()}"
                violation = error if isinstance(error, Violation) else Violation("world", what)
                for world in worlds[-1:]:
                    world.record.note("VIOLATION", violation)
            finally:
                for world in worlds:
                    if world.process is not None:
                        world.process.disk.close_stores()
    finally:
        shutil.rmtree(folder)
    return Outcome(plan, violation, time.process_time() - begun, _tally(worlds))


def _tally(worlds: list[World]) -> Tally:
    return Tally(
        sum(world.timeline.now for world in worlds) / 3600,
        sum(world.record.messages for world in worlds),
        sum(len(world.truth.regtest.chain.blocks) for world in worlds),
        sum(world.restarts for world in worlds),
        max((world.record.slowest_s for world in worlds), default=0.0),
        " ".join(world.record.digest for world in worlds),
    )


def _options(plan: Plan, rng: random.Random) -> Options:
    timeouts = rng.choice(
        [PeerTimeouts(), PeerTimeouts(), PeerTimeouts(filters=40, flight=30, flights=3, small_block=0)]
    )
    return Options(
        mode=Mode.AUTO if plan.silent and plan.mode is Mode.BIP37 else plan.mode,
        mempool=rng.random() < 0.8,
        keep_filters=rng.random() < 0.3,
        from_height=rng.choice([rng.randrange(1, 200), 10_000]) if rng.random() < 0.25 else rng.choice([0, None]),
        max_peers=rng.choice([8, 8, 8, 4, 12]) if not plan.discovery else 12,
        timeouts=timeouts,
        reach=Reach.DIRECT if plan.discovery else Reach.NAMED,
    )


def _place(plan: Plan, rng: random.Random) -> list[Placed]:
    """At least one honest node with all services. All other nodes are drawn."""
    placed = _place_first(plan, rng)
    if plan.schemes:
        theirs = random.Random(f"{plan.seed} {plan.mode} schemes")
        plot = theirs.choice(SCHEMES) if theirs.random() < 0.3 else None  # several nodes of the same class
        for number in range(len(placed) + 1, len(placed) + theirs.choice([2, 2, 3, 4])):
            placed.append(_at(plot or theirs.choice(SCHEMES), number, theirs, theirs.random() < 0.5))
    if plan.small:
        theirs = random.Random(f"{plan.seed} {plan.mode} small peers")
        library = [*ERRATIC, named("FalseCheckpoints"), named("Pruned")]
        for number in range(len(placed) + 1, len(placed) + theirs.choice([2, 2, 3, 4])):
            placed.append(_at(theirs.choice(library), number, theirs, theirs.random() < 0.5))
    return [_apart(each, number) for number, each in enumerate(placed, 1)] if plan.discovery else placed


def _place_first(plan: Plan, rng: random.Random) -> list[Placed]:
    if plan.peers is not None:
        return [
            _at(kind, number, rng, "lies" in plan.faults)
            for number, kind in enumerate([HONEST, *map(named, plan.peers)], 1)
        ]
    number = rng.choice([1, 2, 3, 3, 3, 3, 3, 4, 5, 8, 12])
    chances = [0.4, 0.3 if "peers" in plan.faults else 0.0, 0.3 if "lies" in plan.faults else 0.0]
    # several liars of the same class, which agree
    plot = rng.choice(LIARS) if "lies" in plan.faults and rng.random() < 0.3 else None
    drawn: list[type[Behaviour]] = [rng.choice([HONEST, HONEST, LATE]) if "peers" in plan.faults else HONEST]
    while len(drawn) < number:
        (library,) = rng.choices([[HONEST], FAULTY, [plot] if plot is not None else LIARS], chances)
        drawn.append(rng.choice(library))
    if "mempool" in plan.faults and rng.random() < 0.4:  # nodes that mishandle own transactions
        drawn += rng.choices(
            [kind for kind in RELAYS if kind.is_honest or "lies" in plan.faults], k=rng.choice([1, 1, 2])
        )
    is_one_party = "lies" in plan.faults and rng.random() < 0.15  # all nodes in one network group
    return [_at(kind, number, rng, is_one_party or not kind.is_honest) for number, kind in enumerate(drawn, 1)]


def _at(kind: type[Behaviour], number: int, rng: random.Random, may_share: bool) -> Placed:
    """Most hosts are in different network groups. Some hosts share a group and have several names and ports."""
    host = f"10.99.0.{number}" if may_share and rng.random() < 0.4 else f"10.{number}.0.{number}"
    addresses = [f"{host}:18444"]
    if may_share and rng.random() < 0.25:
        addresses += [f"{host}:18445", f"name{number}.example:18444"]
    return Placed(kind, host, addresses)


def _apart(placed: Placed, number: int) -> Placed:
    """Place an honest node in a group without liars, because the client connects to one address of each group."""
    host = f"10.{number}.0.{number}"
    return Placed(placed.behave, host, [f"{host}:18444"]) if getattr(placed.behave, "is_honest", True) else placed


def _happen(
    plan: Plan,
    make: Make,
    folder: Path,
    record: Callable[[Timeline], Record],
    begin: Callable[[World], None],
    turns: random.Random | None,
) -> None:
    """Live an ordinary life to its end. `begin` is called with its world."""
    rng = random.Random(f"{plan.seed} {plan.mode}")
    if plan.stops:
        make = stories.stopping(make, random.Random(f"{plan.seed} {plan.mode} stops"))
    world = World(
        rng,
        make,
        _options(plan, rng),
        _place(plan, rng),
        folder / "wallet.db",
        record,
        keychain=Keychain(random.Random(f"{plan.seed} keychain")) if plan.keychain else None,
        accounts=Accounts(random.Random(f"{plan.seed} {plan.mode} accounts")) if plan.accounts else None,
        discovery=random.Random(f"{plan.seed} {plan.mode} discovery") if plan.discovery else None,
        turns=turns,
        user=random.Random(f"{plan.seed} {plan.mode} user") if plan.user else None,
        is_high=plan.high,
        silent=Silent(random.Random(f"{plan.seed} {plan.mode} silent"), is_late=plan.mode is Mode.BIP37)
        if plan.silent
        else None,
    )
    begin(world)
    faults = plan.faults
    duration = rng.uniform(900, 5_400)
    world.boot()
    schedule_chain(world, duration, faults)
    schedule_faults(world, duration, faults)
    if world.user is not None:
        world.user.schedule(duration)
    if world.accounts is not None:
        world.accounts.schedule(duration)
    if world.silent is not None:
        world.silent.schedule(duration)
    if plan.restores:
        schedule_restores(world, random.Random(f"{plan.seed} {plan.mode} restores"), duration)
    world.timeline.run(duration)
    world.record.note("calm")
    world.calm()
    world.truth.receive()
    if world.accounts is not None:
        world.accounts.farewell()
    if world.silent is not None:
        world.silent.farewell()
    world.truth.mine()
    world.truth.receive()
    settled = 0
    # the state must be settled twice: the latest peer may require a complete new search
    while world.timeline.now < duration + SETTLE_S and settled < 2:
        world.timeline.run(world.timeline.now + _STEP_S)
        world.outgrow()
        if world.process is not None:
            stories.check_stories(world.process.engine)
        settled = settled + 1 if invariants.is_settled(world) else 0
    if settled < 2:
        invariants.check_end(world)  # checks again only if the loop did not just do so
    assert world.process is not None
    check_views(world.process.disk.store)
    check_verdicts(world.process.disk.store)
    world.process.disk.check()
    world.fetched.check_end()
    stories.check_stories(world.process.engine)
    invariants.check_modest(world.process.engine, world.process.disk.unconfirmed())
