"""A life: a client among peers, with what happens to it drawn from a seed, until faults end and everything must be
right.
"""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simulation import invariants
from simulation.balance import check_views
from simulation.behaviours import ERRATIC, FAULTY, HONEST, LATE, LIARS, RELAYS, SCHEMES, Behaviour, named
from simulation.host import Make
from simulation.keychain import Keychain
from simulation.planted import planted
from simulation.record import Record
from simulation.small import small_limits
from simulation.truth import LATE_LOCKS, late_lock
from simulation.violation import Violation
from simulation.world import Placed, World
from spvfilter.light.engine.options import Options, PeerTimeouts, Reach
from spvfilter.light.events import Mode

FAULTS = ("peers", "lies", "lines", "disk", "kill", "clock", "reorg", "entries", "mempool")
KINDS = ("schemes", "keychain", "discovery", "small", "user")  # fields of a plan that make other lives of its seed
SETTLE_S = 2 * 3600.0  # after faults end, until which everything must be right
_STEP_S = 20.0
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a life is made from; the same plan gives the same life."""

    seed: int
    mode: Mode
    faults: tuple[str, ...] = FAULTS
    peers: tuple[str, ...] | None = None  # behaviours of the peers besides an honest one; by default they are drawn
    bug: str | None = None  # a planted one
    schemes: bool = False  # whether there are more peers, of the library's later part: other lives stay as they were
    keychain: bool = False  # whether the wallet has one, whose addresses are used out of order
    discovery: bool = False  # whether the client knows few addresses or none, and finds the others
    small: bool = (
        False  # whether limits of blocks and messages are small, and mode and kept filters change between runs
    )
    user: bool = False  # whether the user does more: sends again, bumps, gives up, labels


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a life."""

    plan: Plan
    violation: Violation | None
    hours: float  # virtual
    seconds: float  # of processor time
    messages: int
    blocks: int
    restarts: int
    slowest_step_s: float
    digest: str


def live(plan: Plan, make: Make, *, is_full: bool = False, show: Callable[[str], None] | None = None) -> Outcome:
    """Live a life to its end. Python's collector of cycles, which would look at everything again and again, rests
    meanwhile.
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
    rng = random.Random(f"{plan.seed} {plan.mode}")
    limits = random.Random(f"{plan.seed} {plan.mode} small") if plan.small else None
    folder = Path(tempfile.mkdtemp(prefix="spvfilter-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None))
    violation = None
    try:
        world = World(
            rng,
            make,
            _options(plan, rng),
            _place(plan, rng),
            folder / "wallet.db",
            lambda timeline: Record(lambda: timeline.now, is_full=is_full, show=show),
            keychain=Keychain(random.Random(f"{plan.seed} keychain")) if plan.keychain else None,
            discovery=random.Random(f"{plan.seed} {plan.mode} discovery") if plan.discovery else None,
            turns=limits,
            user=random.Random(f"{plan.seed} {plan.mode} user") if plan.user else None,
        )
        try:
            with planted(plan.bug), small_limits(limits):
                _happen(plan, world)
        except Exception as error:
            what = f"the simulation itself raised {error!r}\n{traceback.format_exc()}"
            violation = error if isinstance(error, Violation) else Violation("world", what)
            world.record.note("VIOLATION", violation)
        if world.process is not None:
            world.process.disk.store.close()
    finally:
        shutil.rmtree(folder)
    return Outcome(
        plan,
        violation,
        world.timeline.now / 3600,
        time.process_time() - begun,
        world.record.messages,
        len(world.truth.regtest.chain.blocks),
        world.restarts,
        world.record.slowest_s,
        world.record.digest,
    )


def _options(plan: Plan, rng: random.Random) -> Options:
    timeouts = rng.choice(
        [PeerTimeouts(), PeerTimeouts(), PeerTimeouts(filters=40, flight=30, flights=3, small_block=0)]
    )
    return Options(
        mode=plan.mode,
        mempool=rng.random() < 0.8,
        keep_filters=rng.random() < 0.3,
        from_height=rng.choice([rng.randrange(1, 200), 10_000]) if rng.random() < 0.25 else rng.choice([0, None]),
        max_peers=rng.choice([8, 8, 8, 4, 12]) if not plan.discovery else 12,
        timeouts=timeouts,
        reach=Reach.DIRECT if plan.discovery else Reach.NAMED,
    )


def _place(plan: Plan, rng: random.Random) -> list[Placed]:
    """At least one honest node with all services; the others are drawn."""
    placed = _place_first(plan, rng)
    if plan.schemes:
        theirs = random.Random(f"{plan.seed} {plan.mode} schemes")
        plot = theirs.choice(SCHEMES) if theirs.random() < 0.3 else None  # several of the same kind
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
    # several of the same kind, which agree
    plot = rng.choice(LIARS) if "lies" in plan.faults and rng.random() < 0.3 else None
    drawn: list[type[Behaviour]] = [rng.choice([HONEST, HONEST, LATE]) if "peers" in plan.faults else HONEST]
    while len(drawn) < number:
        (library,) = rng.choices([[HONEST], FAULTY, [plot] if plot is not None else LIARS], chances)
        drawn.append(rng.choice(library))
    if "mempool" in plan.faults and rng.random() < 0.4:  # who do something else with our transactions
        drawn += rng.choices(
            [kind for kind in RELAYS if kind.is_honest or "lies" in plan.faults], k=rng.choice([1, 1, 2])
        )
    is_one_party = "lies" in plan.faults and rng.random() < 0.15  # all of one network
    return [_at(kind, number, rng, is_one_party or not kind.is_honest) for number, kind in enumerate(drawn, 1)]


def _at(kind: type[Behaviour], number: int, rng: random.Random, may_share: bool) -> Placed:
    """Most hosts are of different networks; some share one, and have several names and ports."""
    host = f"10.99.0.{number}" if may_share and rng.random() < 0.4 else f"10.{number}.0.{number}"
    addresses = [f"{host}:18444"]
    if may_share and rng.random() < 0.25:
        addresses += [f"{host}:18445", f"name{number}.example:18444"]
    return Placed(kind, host, addresses)


def _apart(placed: Placed, number: int) -> Placed:
    """Of a network at most one address is connected unless the user names it: honest nodes are of networks without
    liars.
    """
    host = f"10.{number}.0.{number}"
    return Placed(placed.behave, host, [f"{host}:18444"]) if getattr(placed.behave, "is_honest", True) else placed


def _happen(plan: Plan, world: World) -> None:
    """Everything that happens, to the end."""
    rng, faults = world.rng, plan.faults
    duration = rng.uniform(900, 5_400)
    world.boot()
    _schedule_chain(world, duration, faults)
    _schedule_faults(world, duration, faults)
    if world.user is not None:
        world.user.schedule(duration)
    world.timeline.run(duration)
    world.record.note("calm")
    world.calm()
    world.truth.receive()
    world.truth.mine()
    world.truth.receive()
    settled = 0
    # twice, since who comes last may show that all is to be searched again
    while world.timeline.now < duration + SETTLE_S and settled < 2:
        world.timeline.run(world.timeline.now + _STEP_S)
        world.outgrow()
        settled = settled + 1 if invariants.is_settled(world) else 0
    if settled < 2:
        invariants.check_end(world)  # else that was seen just now
    assert world.process is not None
    check_views(world.process.disk.store)
    invariants.check_modest(world.process.engine, world.process.disk.unconfirmed())


def _moment(rng: random.Random, duration: float) -> float:
    """When something happens: while the client catches up as often as later."""
    return rng.uniform(0, rng.choice([3.0, 30.0, duration, duration]))


def _schedule_chain(world: World, duration: float, faults: tuple[str, ...]) -> None:
    rng, truth = world.rng, world.truth
    for _ in range(rng.randrange(8, 24)):
        at = _moment(rng, duration)
        kind = rng.random()
        if kind < 0.3:
            world.at(at, "a payment to us waits", truth.receive)
        elif kind < 0.42:
            world.at(at, "a spend of ours waits", truth.spend)
        elif kind < 0.5:
            world.at(at, "strangers pay", partial(truth.others, rng.randrange(1, 6)))
        elif kind < 0.57 and "mempool" in faults:
            world.at(at, "a replacement", truth.replace)
        elif kind < 0.9:
            world.at(at, "blocks", partial(truth.mine, rng.choice([1, 1, 1, 2, 6])))
        elif "mempool" in faults:
            world.at(at, "we broadcast", partial(_broadcast, world))
    if "reorg" in faults:
        for _ in range(rng.choice([1, 1, 2, 3])):
            depth = rng.choice(
                [1, 2, 3, 6, 6, rng.randrange(1, 40), rng.randrange(1, 200) if rng.random() < 0.2 else 2]
            )
            world.at(_moment(rng, duration), f"a reorganisation of {depth}", partial(truth.reorganise, depth))
    if "entries" in faults:
        _schedule_wishes(world, duration)


def _schedule_wishes(world: World, duration: float) -> None:
    """Other scripts, some from heights of their own, are added, some removed again; blocks are searched again."""
    rng = world.rng
    if rng.random() < 0.6:
        for number in rng.sample(range(LATE_LOCKS), rng.choice([1, 1, 2, LATE_LOCKS])):
            first = rng.choice([None, None, 0, rng.randrange(1, 250), 10_000])
            at, lock = _moment(rng, duration), late_lock(number)
            world.at(at, f"another script from {first}", partial(world.watch_lock, lock, first))
            if rng.random() < 0.3:
                world.at(
                    min(at + rng.uniform(0, rng.choice([1, duration])), max(at, duration - 1)),
                    "a script is removed",
                    partial(world.forget_lock, lock),
                )
    if rng.random() < 0.3:
        at, lock = (
            _moment(rng, duration),
            rng.choice([lock for lock in world.truth.locks if not world.is_of_keychain(lock.script_pubkey)]),
        )
        world.at(at, "a script of the first is removed", partial(world.forget_lock, lock))
    if rng.random() < 0.4:
        for _ in range(rng.choice([1, 1, 2])):
            first = rng.choice([0, rng.randrange(1, 250), rng.randrange(1, 250), 10_000])
            world.at(_moment(rng, duration), f"a rescan from {first}", partial(world.rescan, first))


def _broadcast(world: World) -> None:
    if world.process is not None and (raw := world.truth.spending()) is not None:
        world.broadcast(raw, is_private=world.rng.random() < 0.2)


def _schedule_faults(world: World, duration: float, faults: tuple[str, ...]) -> None:
    rng = world.rng
    if "kill" in faults:
        for _ in range(rng.choice([1, 1, 2, 4])):
            if rng.random() < 0.5:
                world.at(_moment(rng, duration), "killed", world.kill)
            else:
                effects = int(10 ** rng.uniform(0, 3))
                world.at(
                    _moment(rng, duration),
                    f"to be killed after {effects} effects",
                    partial(_kill_after, world, effects),
                )
    if "disk" in faults and rng.random() < 0.4:
        world.at(_moment(rng, duration), "the disk will fail", partial(_fail, world, rng.randrange(0, 12)))
    if "disk" in faults and rng.random() < 0.3:
        at = _moment(rng, duration)
        world.at(at, "the disk is full", partial(world.set_disk_full, True))
        world.at(at + rng.uniform(1, 600), "the disk has room", partial(world.set_disk_full, False))
    if "lines" in faults and rng.random() < 0.4:
        world.at(_moment(rng, duration), "lines go dead", world.cut_lines)
    if "lines" in faults and rng.random() < 0.4:
        world.at(_moment(rng, duration), "every connection breaks", world.break_lines)
    if "clock" in faults and rng.random() < 0.4:
        at, skew = _moment(rng, duration), rng.choice([-86_400.0 * 3, -7_200.0, 7_200.0, 86_400.0 * 20])
        world.at(at, f"the clock jumps by {skew:.0f} s", partial(world.set_skew, skew))
        world.at(at + rng.uniform(1, 3_600), "the clock is right", partial(world.set_skew, 0.0))


def _kill_after(world: World, effects: int) -> None:
    if world.process is not None:
        world.process.steps_left = effects


def _fail(world: World, commits: int) -> None:
    if world.process is not None:
        world.process.disk.fails_at = world.process.disk.commits + commits
