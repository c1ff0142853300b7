"""Floods: four attackers send unconfirmed payments to one wallet, far beyond the real bounds of the mempool layer.

The work, the memory and the database of the client stay bounded, and a payment that honest peers announce stays.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from simulation.behaviours.floods import Invents
from simulation.foreign import Steady
from simulation.host import Make, Process
from simulation.pipe import Quality
from simulation.plan import Plan
from simulation.record import Record
from simulation.timeline import Timeline
from simulation.violation import Violation
from simulation.weight import weigh
from simulation.world import Placed, World
from spvfilter.light.engine.options import Options
from spvfilter.node.scripts import op_return
from spvfilter.primitives import OutPoint
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import MatchConfirmed, MatchFound
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import MatchKind
from support.blocks.locks import LOCKS
from support.wallets.storesqlite import sqlite_of

_FLOOD_S = 450.0
_SETTLE_S = 300.0
_MAX_OBJECTS = 450_000
"""Objects of the engine. Floods measured at most 311,000."""
_MAX_BYTES = 15_000_000
"""Bytes in byte strings of the engine. Floods measured at most 10 MB."""
_MAX_FILE = 30_000_000
"""Bytes of the database with its write-ahead log. Floods measured at most 22 MB."""
_MAX_PAGES = 20_000_000
"""Bytes of the database without this log. Floods measured at most 13 MB."""
_MAX_STEP_S = 0.3
"""Processor time of one step. Floods measured at most 0.07 s."""
_MAX_WALKED = 12_000
"""Records and inputs that one step walks over, in components. Floods measured at most 3,030."""
_MAX_START_S = 20.0
"""Processor time of a start, with the checks of the simulation. Floods measured at most 2.7 s, on a slow machine."""
_MAX_WORK_S = 60.0
"""Processor time of the whole life. Floods measured at most 14 s."""


class _Flood(Invents):
    """Invents payments to one address, many at once."""

    outputs = 1
    """Outputs of each payment."""
    filler = 0
    """Bytes of each payment for nothing."""
    every_s = 20.0
    most = 15

    def quality(self) -> Quality:
        return Quality(0.02, 0.0, 1e7, 0.0)

    def invent(self) -> bytes:
        rng = self.rng
        outputs = [LOCKS[1].pays(rng.randrange(1_000, 10**8)) for _ in range(self.outputs)]
        if self.filler:
            outputs.append(op_return(rng.randbytes(self.filler)).pays(0))
        return build_tx([TxIn(OutPoint(rng.randbytes(32), 0))], outputs)


class ManyOutputs(_Flood):
    """Payments with 2,900 outputs each: 100 kB."""

    number = 3
    outputs = 2_900


class ManyPayments(_Flood):
    """Small payments."""

    number = 400


class LargePayments(_Flood):
    """Payments of 90 kB with one output for the wallet."""

    number = 5
    filler = 90_000


class LongChains(_Flood):
    """Payments that spend one another in chains of hundreds."""

    number = 300

    def invent(self) -> bytes:
        spent = OutPoint(self.rng.randbytes(32), 0)
        if self._invented and self.rng.random() < 0.99:
            spent = OutPoint(next(reversed(self._invented)), 0)
        return build_tx([TxIn(spent)], [LOCKS[1].pays(10**8 - len(self._invented))])


class Shapes(_Flood):
    """Payments that are linked in shapes which make components expensive: a shape at a time."""

    number = 300

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._shape: Iterator[bytes] = iter(())

    def invent(self) -> bytes:
        while (raw := next(self._shape, None)) is None:
            shape = self.rng.choice(SHAPES)
            self._shape = shape(self.rng, self.rng.randrange(10, 300))
        return raw


def _coin(rng: random.Random) -> OutPoint:
    return OutPoint(rng.randbytes(32), 0)


def _spend(spent: list[OutPoint], values: list[int]) -> tuple[bytes, list[OutPoint]]:
    """A payment to the wallet, and its outputs."""
    raw = build_tx([TxIn(each) for each in spent], [LOCKS[1].pays(value) for value in values])
    txid = Transaction.parse(raw).txid
    return raw, [OutPoint(txid, number) for number in range(len(values))]


def _chain(rng: random.Random, size: int) -> Iterator[bytes]:
    """Each spends the one before."""
    spent = [_coin(rng)]
    for number in range(size):
        raw, spent = _spend(spent, [10**8 - number])
        yield raw


def _star(rng: random.Random, size: int) -> Iterator[bytes]:
    """A parent with many outputs, and children that spend them, twice as many as there are."""
    raw, outputs = _spend([_coin(rng)], [10_000] * size)
    yield raw
    for number in range(2 * size):
        yield _spend([outputs[number % size]], [rng.randrange(546, 10_000)])[0]


def _ladder(rng: random.Random, size: int) -> Iterator[bytes]:
    """Each conflicts with the one before and with the next one."""
    coins = [_coin(rng) for _ in range(size + 1)]
    for number in range(size):
        yield _spend(coins[number : number + 2], [rng.randrange(546, 10**8)])[0]


def _comb(rng: random.Random, size: int) -> Iterator[bytes]:
    """A chain, and two conflicting children of each of its transactions."""
    spent = _coin(rng)
    for number in range(size // 3 + 1):
        raw, (spent, tooth) = _spend([spent], [10**8 - number, 10_000])
        yield raw
        for _ in range(2):
            yield _spend([tooth], [rng.randrange(546, 10_000)])[0]


def _orphans(rng: random.Random, size: int) -> Iterator[bytes]:
    """A chain whose last transaction comes first."""
    yield from reversed([*_chain(rng, min(size, 60))])


def _wide(rng: random.Random, size: int) -> Iterator[bytes]:
    """A hundred outpoints, each spent by every payment."""
    coins = [_coin(rng) for _ in range(100)]
    for _ in range(size // 5 + 1):
        yield _spend(coins, [rng.randrange(546, 10**8)])[0]


SHAPES = [_chain, _star, _ladder, _comb, _orphans, _wide]

KINDS: list[type[_Flood]] = [ManyOutputs, ManyPayments, LargePayments, LongChains]


def happen(
    plan: Plan,
    make: Make,
    folder: Path,
    record: Callable[[Timeline], Record],
    begin: Callable[[World], None],
) -> None:
    """Live through a flood. `begin` is called with the world. Raises Violation."""
    begun = time.process_time()
    rng = random.Random(f"{plan.seed} {plan.mode} floods")
    kinds: list[type[Steady | _Flood]] = [Steady, Steady, *(rng.choice(KINDS) for _ in range(3)), Shapes]
    placed = [Placed(kind, f"10.{at}.0.{at}", [f"10.{at}.0.{at}:18444"]) for at, kind in enumerate(kinds, 1)]
    path = folder / "wallet.db"
    options = Options(mode=plan.mode, mempool_groups=1 + plan.seed % 2)
    world = World(rng, make, options, placed, path, record)
    begin(world)
    world.boot()
    world.truth.receive()
    waiting = world.truth.ours_waiting()
    for number in range(1, 10):
        world.at(number * _FLOOD_S / 10, "the flood is looked at", partial(_check, world, path))
    world.timeline.run(_FLOOD_S)
    world.kill()
    started = time.process_time()
    world.boot()
    if (took := time.process_time() - started) > _MAX_START_S:
        raise Violation("modest", f"after a flood the start takes {took:.1f} s of processor time")
    world.truth.mine(6)
    world.timeline.run(_FLOOD_S + _SETTLE_S)
    _check(world, path)
    process = world.process
    if process is None or process.disk.store.tip != world.truth.height:
        raise Violation("alive", "a flood keeps the client from the tip")
    _read(process, path)
    if missing := waiting - {place.txid for place in process.stored()}:
        raise Violation("true", f"a flood hides {len(missing)} payments")
    if (took := time.process_time() - begun) > _MAX_WORK_S:
        raise Violation("modest", f"a flood takes {took:.1f} s of processor time")


def _read(process: Process, path: Path) -> None:
    """True: a reader that begins to read after the flood finds each match of a block, and no hole before it."""
    found, last = set[tuple[bytes, bool, int, int | None]](), 0
    with WalletStore.open(path) as wallet:
        while page := wallet.events(last, 10_000):
            last = page.sequence
            for event in page:
                if isinstance(event, (MatchConfirmed, MatchFound)):
                    match = event.match
                    found.add((match.txid, match.kind is MatchKind.INPUT, match.index, match.height))
    expected = {(each.txid, each.kind == "input", each.number, each.height) for each in process.stored()}
    if missing := expected - found:
        raise Violation("true", f"a flood has pushed the events of {len(missing)} confirmed matches out")


def _check(world: World, path: Path) -> None:
    """Modest: memory, database and steps stay bounded."""
    process = world.process
    if process is None:
        return
    limits, db = process.options.pending, sqlite_of(process.disk.store)
    (matches,) = db.execute("SELECT count(*) FROM matches WHERE block IS NULL").fetchone()
    (number, size) = db.execute(
        "SELECT count(*), coalesce(sum(length(raw)), 0) FROM transactions WHERE status != 'confirmed'"
    ).fetchone()
    if matches > limits.matches or number > limits.number or size > limits.size:
        raise Violation(
            "modest", f"the database has {matches:,} unconfirmed matches, {number:,} transactions, {size:,} bytes"
        )
    weight, file = weigh(process.engine), sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
    if weight.objects > _MAX_OBJECTS or weight.size > _MAX_BYTES:
        raise Violation("modest", f"the engine has {weight.objects:,} objects and {weight.size:,} bytes in a flood")
    pages = db.execute("PRAGMA page_count").fetchone()[0] * db.execute("PRAGMA page_size").fetchone()[0]
    if file > _MAX_FILE or pages > _MAX_PAGES:
        raise Violation("modest", f"the database has {file:,} bytes in a flood, {pages:,} of them in its pages")
    if process.most_walked > _MAX_WALKED:
        raise Violation("modest", f"a step walks over {process.most_walked:,} linked transactions in a flood")
    if world.record.slowest_s > _MAX_STEP_S:
        raise Violation("modest", f"a step takes {world.record.slowest_s:.2f} s in a flood: {world.record.slowest}")
