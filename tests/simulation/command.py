"""The command scripts/simulate: live many lives on all processors, then print a table and the seeds of violations."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice, repeat
from pathlib import Path
from types import FrameType
from typing import Any

from simulation.behaviours import named
from simulation.engine import make
from simulation.life import live
from simulation.plan import FAULTS, KINDS, Outcome, Plan, Tally
from simulation.planted import BUGS, changes_of
from simulation.violation import Violation
from spvfilter.light.events import Mode

_LONGEST_S = 120  # Processor time of a life.
_AGAIN_S = 5  # Until the next signal: an `except` may have caught the first violation.
_LONGEST_PLANTED_S = 20  # Some planted bugs keep a life from ending.
_AHEAD = 4  # Lives queued for each process.
_MOST_SHOWN = 20  # Violations printed.


def main() -> int:
    """Run the command. Return 1 if a life violated an invariant."""
    arguments = _arguments()
    if arguments.planted:
        return _hunt(arguments.seed, arguments.lives, arguments.jobs)
    if arguments.past:
        return _live(iter(failed_before()), None, arguments)
    seed = arguments.seed if arguments.seed is not None else time.time_ns() // 1_000_000 % 10**9
    if arguments.trace:
        return _trace(_plan(arguments, seed, Mode(arguments.mode or "compact")))
    print(f"seed {seed}", flush=True)
    modes = [Mode(arguments.mode)] if arguments.mode else list(Mode)
    plans = (_plan(arguments, number, modes[number % len(modes)]) for number in count(seed))
    return _live(plans, None if arguments.minutes else arguments.lives, arguments)


def _live(plans: Iterator[Plan], lives: int | None, arguments: argparse.Namespace) -> int:
    """Live this number of plans, or all, and print the table; return 1 if one violated an invariant."""
    deadline = time.monotonic() + 60 * arguments.minutes if arguments.minutes else None
    begun = time.monotonic()
    outcomes = []
    for outcome in _run(islice(plans, lives), deadline, arguments.jobs):
        outcomes.append(outcome)
        if outcome.violation is not None and sum(each.violation is not None for each in outcomes) <= _MOST_SHOWN:
            print(f"VIOLATION {str(outcome.violation).strip()}\n    {replay(outcome.plan)}", flush=True)
    print(_table(outcomes, time.monotonic() - begun, arguments.jobs))
    return int(any(outcome.violation is not None for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate", description="Lives of the light client's engine among simulated peers."
    )
    parser.add_argument("--lives", type=int, default=200, help="how many; 200 if neither this nor --minutes is given")
    parser.add_argument("--minutes", type=float, help="run for this long instead")
    parser.add_argument(
        "--seed",
        type=int,
        help="of the first life; the others follow. By default from the clock, of a planted bug its own",
    )
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="by default all of them in turn")
    parser.add_argument(
        "--faults",
        type=_faults,
        default=FAULTS,
        help=f"what may go wrong, separated by commas: {', '.join(FAULTS)}, none",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--peers",
        type=_peers,
        help="behaviours of the peers besides an honest one, separated by commas; by default drawn",
    )
    parser.add_argument(
        "--plant", choices=sorted(BUGS), metavar="BUG", help="live with a planted bug; planted.py lists them"
    )
    parser.add_argument(
        "--keychain", action="store_true", help="give the wallet a keychain, whose addresses are used out of order"
    )
    parser.add_argument(
        "--discovery", action="store_true", help="give the client few addresses or none: it finds the others"
    )
    parser.add_argument(
        "--schemes", action="store_true", help="add peers of the library's later part, which other lives do not have"
    )
    parser.add_argument(
        "--small", action="store_true", help="small limits of blocks and messages; the mode changes between runs"
    )
    parser.add_argument(
        "--user", action="store_true", help="the user does more: sends again, bumps fees, gives up, gives labels"
    )
    parser.add_argument(
        "--accounts", action="store_true", help="1 to 50 accounts pay one another, and are added, renamed and removed"
    )
    parser.add_argument("--cancels", action="store_true", help="calls of the real client that the user cancels")
    parser.add_argument("--floods", action="store_true", help="floods of unconfirmed payments at the real bounds")
    parser.add_argument(
        "--reorgs",
        action="store_true",
        help="restarts of the client while its nodes are in a reorganization",
    )
    parser.add_argument("--restores", action="store_true", help="earlier copies of the database take its place")
    parser.add_argument(
        "--twins", action="store_true", help="pairs of lives that differ only in foreign unconfirmed transactions"
    )
    parser.add_argument("--stops", action="store_true", help="tasks of the engine are cancelled at random awaits")
    parser.add_argument("--high", action="store_true", help="a chain of more than 2,000 blocks")
    parser.add_argument(
        "--silent",
        action="store_true",
        help="a silent payment address, with a node or a tweak server that may fail or lie",
    )
    parser.add_argument("--past", action="store_true", help="live again every life of seeds.txt: each failed once")
    parser.add_argument("--planted", action="store_true", help="live with each planted bug until a life notices it")
    parser.add_argument("--trace", action="store_true", help="show everything that happens in the life of --seed")
    return parser.parse_args()


def _plan(of: argparse.Namespace, seed: int, mode: Mode) -> Plan:
    kinds = {kind: getattr(of, kind) for kind in KINDS}
    return Plan(seed, mode, of.faults, of.peers, of.plant, **kinds)


def failed_before() -> list[Plan]:
    """The plans of seeds.txt."""
    lines = (Path(__file__).parent / "seeds.txt").read_text(encoding="ascii").splitlines()
    plans = []
    for line in lines:
        if line and not line.startswith("#"):
            seed, mode, *rest = line.split()
            peers = tuple(name for name in rest if not name.startswith("+"))
            kinds: dict[str, Any] = {kind: f"+{kind}" in rest for kind in KINDS}
            plans.append(Plan(int(seed), Mode(mode), peers=peers or None, **kinds))
    return plans


def _faults(text: str) -> tuple[str, ...]:
    chosen = {name for name in text.split(",") if name and name != "none"}
    if unknown := chosen - set(FAULTS):
        raise argparse.ArgumentTypeError(f"no such fault: {', '.join(sorted(unknown))}")
    return tuple(name for name in FAULTS if name in chosen)


def _peers(text: str) -> tuple[str, ...]:
    try:
        return tuple(named(name).__name__ for name in text.split(",") if name)
    except StopIteration:
        raise argparse.ArgumentTypeError(f"one of these is no behaviour: {text}") from None


def replay(plan: Plan) -> str:
    """The command that repeats a life."""
    faults = "" if plan.faults == FAULTS else f" --faults {','.join(plan.faults) or 'none'}"
    peers = "" if plan.peers is None else f" --peers {','.join(plan.peers)}"
    bug = "" if plan.bug is None else f" --plant {plan.bug}"
    kinds = "".join(f" --{kind}" for kind in KINDS if getattr(plan, kind))
    return f"scripts/simulate --trace --seed {plan.seed} --mode {plan.mode}{faults}{peers}{bug}{kinds}"


def _hunt(seed: int | None, lives: int, jobs: int) -> int:
    """Live with each planted bug until a life notices it. Return 1 if a bug survives `lives` lives."""
    unnoticed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for name, found in zip(BUGS, pool.map(hunt_one, BUGS, repeat(seed), repeat(lives)), strict=True):
            unnoticed += found is None
            what = f"not noticed in {lives} lives" if found is None else f"seed {found.plan.seed}: {found.violation}"
            print(f"{name:50} {what.splitlines()[0][:140]}", flush=True)
    print(f"{len(BUGS) - unnoticed} of {len(BUGS)} planted bugs noticed")
    return int(unnoticed > 0)


def hunt_one(name: str, seed: int | None, lives: int) -> Outcome | None:
    """Return the first life that notices a planted bug, or None. Seeds start at the bug's own if `seed` is None.

    Raises LookupError if the bug changes an attribute that does not exist.
    """
    changes_of(name)
    bug = BUGS[name]
    first = bug.seed if seed is None else seed
    for number in range(first, first + lives):
        kinds: dict[str, Any] = dict.fromkeys(bug.kinds, True)
        outcome = live_watched(Plan(number, bug.mode, peers=bug.peers, bug=name, **kinds))
        if outcome.violation is not None:
            return outcome
    return None


def _trace(plan: Plan) -> int:
    outcome = live(plan, make, show=print)
    print(outcome)
    return int(outcome.violation is not None)


def _run(plans: Iterator[Plan], deadline: float | None, jobs: int) -> Iterator[Outcome]:
    """Yield the outcomes in the order in which the lives end."""
    with ProcessPoolExecutor(jobs) as pool:
        running: set[Future[Outcome]] = set()
        while True:
            while len(running) < jobs * _AHEAD and (deadline is None or time.monotonic() < deadline):
                plan = next(plans, None)
                if plan is None:
                    break
                running.add(pool.submit(live_watched, plan))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def live_watched(plan: Plan) -> Outcome:
    """Live a life. It is a violation if it does not end."""
    signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST_S if plan.bug is None else _LONGEST_PLANTED_S, _AGAIN_S)
    begun = time.process_time()
    try:
        try:
            return live(plan, make)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except Violation as error:  # the signal came while the files of the life were deleted
        return Outcome(plan, error, time.process_time() - begun, Tally())


def _too_long(number: int, frame: FrameType | None) -> None:
    raise Violation("alive", "no end within its processor time")


def _table(outcomes: list[Outcome], seconds: float, jobs: int) -> str:
    head = (
        "mode",
        "lives",
        "virtual hours",
        "messages",
        "blocks",
        "restarts",
        "lives/s",
        "messages/s",
        "slowest step",
        "violations",
    )
    rows = [head]
    for mode in [*Mode, None]:
        chosen = [outcome for outcome in outcomes if mode in (None, outcome.plan.mode)]
        if not chosen:
            continue
        busy = sum(outcome.seconds for outcome in chosen)
        rows.append(
            (
                "all" if mode is None else mode.value,
                f"{len(chosen):,}",
                f"{sum(outcome.tally.hours for outcome in chosen):,.0f}",
                f"{sum(outcome.tally.messages for outcome in chosen):,}",
                f"{sum(outcome.tally.blocks for outcome in chosen):,}",
                f"{sum(outcome.tally.restarts for outcome in chosen):,}",
                f"{len(chosen) / busy:.1f}",
                f"{sum(outcome.tally.messages for outcome in chosen) / busy:,.0f}",
                f"{1_000 * max(outcome.tally.slowest_step_s for outcome in chosen):.0f} ms",
                str(sum(outcome.violation is not None for outcome in chosen)),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(value.rjust(width) for value, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*lines, f"{seconds:.0f} s on {jobs} processes; lives/s and messages/s are of processor time"])


if __name__ == "__main__":
    sys.exit(main())
