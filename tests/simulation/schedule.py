"""Schedule: the times of changes of the chain, of acts of the user, and of faults."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from simulation.truth import LATE_LOCKS, late_lock

if TYPE_CHECKING:
    from simulation.world import World


def moment(rng: random.Random, duration: float) -> float:
    """Draw the time of an event: as often while the client catches up as later."""
    return rng.uniform(0, rng.choice([3.0, 30.0, duration, duration]))


def schedule_chain(world: World, duration: float, faults: tuple[str, ...]) -> None:
    rng, truth = world.rng, world.truth
    for _ in range(rng.randrange(8, 24)):
        at = moment(rng, duration)
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
            world.at(moment(rng, duration), f"a reorganisation of {depth}", partial(truth.reorganise, depth))
    if "entries" in faults:
        schedule_wishes(world, duration)


def schedule_wishes(world: World, duration: float) -> None:
    """Schedule requests of the user: add scripts, some from other heights, remove some of them, and rescan blocks."""
    rng = world.rng
    if rng.random() < 0.6:
        for number in rng.sample(range(LATE_LOCKS), rng.choice([1, 1, 2, LATE_LOCKS])):
            first = rng.choice([None, None, 0, rng.randrange(1, 250), 10_000])
            at, lock = moment(rng, duration), late_lock(number)
            world.at(at, f"another script from {first}", partial(world.watch_lock, lock, first))
            if rng.random() < 0.3:
                world.at(
                    min(at + rng.uniform(0, rng.choice([1, duration])), max(at, duration - 1)),
                    "a script is removed",
                    partial(world.forget_lock, lock),
                )
    if rng.random() < 0.3:
        at, lock = (
            moment(rng, duration),
            rng.choice([lock for lock in world.truth.locks if not world.has_owner(lock.script_pubkey)]),
        )
        world.at(at, "a script of the first is removed", partial(world.forget_lock, lock))
    if rng.random() < 0.4:
        for _ in range(rng.choice([1, 1, 2])):
            first = rng.choice([0, rng.randrange(1, 250), rng.randrange(1, 250), 10_000])
            world.at(moment(rng, duration), f"a rescan from {first}", partial(world.rescan, first))


def _broadcast(world: World) -> None:
    if world.process is not None and (raw := world.truth.spending()) is not None:
        world.broadcast(raw, is_private=world.rng.random() < 0.2)


def schedule_restores(world: World, rng: random.Random, duration: float) -> None:
    """The user copies the database, and later replaces it by a copy."""
    for _ in range(rng.choice([1, 1, 2])):
        first = moment(rng, duration * 0.7)
        world.at(first, "the database is copied", world.back_up)
        for _ in range(rng.choice([1, 1, 2])):
            world.at(rng.uniform(first, duration), "the database is restored", world.restore)


def schedule_faults(world: World, duration: float, faults: tuple[str, ...]) -> None:
    rng = world.rng
    if "kill" in faults:
        for _ in range(rng.choice([1, 1, 2, 4])):
            if rng.random() < 0.5:
                world.at(moment(rng, duration), "killed", world.kill)
            else:
                effects = int(10 ** rng.uniform(0, 3))
                world.at(
                    moment(rng, duration),
                    f"to be killed after {effects} effects",
                    partial(_kill_after, world, effects),
                )
    if "disk" in faults and rng.random() < 0.4:
        world.at(moment(rng, duration), "the disk will fail", partial(_fail, world, rng.randrange(0, 12)))
    if "disk" in faults and rng.random() < 0.3:
        at = moment(rng, duration)
        world.at(at, "the disk is full", partial(world.set_disk_full, True))
        world.at(at + rng.uniform(1, 600), "the disk has room", partial(world.set_disk_full, False))
    if "lines" in faults and rng.random() < 0.4:
        world.at(moment(rng, duration), "lines go dead", world.cut_lines)
    if "lines" in faults and rng.random() < 0.4:
        world.at(moment(rng, duration), "every connection breaks", world.break_lines)
    if "clock" in faults and rng.random() < 0.4:
        at, skew = moment(rng, duration), rng.choice([-86_400.0 * 3, -7_200.0, 7_200.0, 86_400.0 * 20])
        world.at(at, f"the clock jumps by {skew:.0f} s", partial(world.set_skew, skew))
        world.at(at + rng.uniform(1, 3_600), "the clock is right", partial(world.set_skew, 0.0))


def _kill_after(world: World, effects: int) -> None:
    if world.process is not None:
        world.process.steps_left = effects


def _fail(world: World, commits: int) -> None:
    if world.process is not None:
        world.process.disk.fails_at = world.process.disk.commits + commits
