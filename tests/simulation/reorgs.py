"""Reorganizations: the client stops and starts while its nodes are in the middle of one.

A node first announces the headers of the new branch. For some seconds it does not answer questions about the filters of
the new branch, like Bitcoin Core while its index lags, and serves the new blocks late. It still serves the old branch.
The client must be at the new tip soon after the nodes have everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from simulation import invariants
from simulation.behaviours.faulty import Honest
from simulation.host import Make
from simulation.node import Node
from simulation.plan import Plan
from simulation.record import Record
from simulation.timeline import Timeline
from simulation.violation import Violation
from simulation.world import Placed, World
from spvfilter.light.engine.options import Options
from spvfilter.node.blocktree import TipChange, TreeBlock
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.transaction import Transaction
from spvfilter.wire.session import Session

_ROUNDS = 6
_PAUSE_S = 40.0  # longest time between two rounds
_BOUND_S = 25.0
"""Longest time to the tip, from the start of the client and from the time at which the nodes have everything.

A node lacks filters for at most 8 s. The client probes an ignored question 2, 6 and 14 s after it. A tick may be 8 s
late, and the answers take up to 3 s. Lives took at most 12.5 s.
"""


class Halfway(Honest):
    """A node in the middle of a reorganization: it announces headers whose filters and blocks it does not have yet."""

    is_prompt = False

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self.think_s = rng.choice([0.0, 0.0, 0.3, 1.0])  # type: ignore[misc]
        self.filters_s = 0.0
        """Time after which the node has the filter of a new block."""
        self.blocks_s = 0.0
        """Time after which the node has a new block."""
        self._came: dict[bytes, float] = {}  # when a block became the tip, or an ancestor of it

    def begin(self, node: Node) -> None:
        self._node = node
        node.view.listeners.append(self)

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _HalfwayResponder(view, session, self)

    def on_tip(self, change: TipChange) -> None:
        """Callback of the chain."""
        self._came |= {block.hash: self.world.timeline.now for block in change.connected}

    def on_tx(self, tx: Transaction) -> None:
        """Callback of the mempool."""

    def age_s(self, block_hash: bytes) -> float:
        """Seconds since a block became part of the best chain."""
        return self.world.timeline.now - self._came.get(block_hash, float("-inf"))

    def serve_later(self, responder: Responder, block: TreeBlock, kind: int) -> None:
        """Serve a block once the node has it."""

        def serve() -> None:
            for end in list(self._node.ends):
                if end.responder is responder:
                    Responder.on_block_wanted(responder, block, kind)
                    end.work()

        self.world.timeline.after(self.blocks_s - self.age_s(block.hash), serve)


class _HalfwayResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, behaviour: Halfway) -> None:
        super().__init__(regtest, session)
        self._behaviour = behaviour

    def on_filters_wanted(self, asked: FilterRequest) -> None:
        if self._behaviour.age_s(asked.stop_hash) >= self._behaviour.filters_s:
            super().on_filters_wanted(asked)

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if self._behaviour.age_s(block.hash) >= self._behaviour.blocks_s:
            super().on_block_wanted(block, kind)
        else:
            self._behaviour.serve_later(self, block, kind)


def happen(
    plan: Plan,
    make: Make,
    folder: Path,
    record: Callable[[Timeline], Record],
    begin: Callable[[World], None],
) -> None:
    """Live through some reorganizations. `begin` is called with the world. Raises Violation."""
    rng = random.Random(f"{plan.seed} {plan.mode} reorgs")
    options = Options(mode=plan.mode, mempool=rng.random() < 0.8, keep_filters=rng.random() < 0.3)
    hosts = [f"10.{number}.0.{number}" for number in range(1, rng.choice([1, 1, 2, 3]) + 1)]
    placed = [Placed(Halfway, host, [f"{host}:18444"]) for host in hosts]
    world = World(rng, make, options, placed, folder / "wallet.db", record)
    begin(world)
    world.boot()
    for _ in range(_ROUNDS):
        world.timeline.run(world.timeline.now + rng.uniform(0, _PAUSE_S))
        _reorganize(world, rng)
    world.timeline.run(world.timeline.now + _BOUND_S)
    invariants.check_end(world)


def _reorganize(world: World, rng: random.Random) -> None:
    """Let the nodes reorganize and the client restart, at nearly the same time, and check that it gets to the tip."""
    nodes = [node.behaviour for node in world.nodes if isinstance(node.behaviour, Halfway)]
    for each in nodes:
        each.filters_s, each.blocks_s = rng.choice([0.0, 0.5, 3.0, 8.0]), rng.choice([0.0, 0.5, 3.0])
    world.truth.receive()
    world.truth.mine()
    now = world.timeline.now
    there = now + 10 + max(max(each.filters_s, each.blocks_s) for each in nodes)
    killed = now + rng.uniform(5, 15)
    booted = killed + rng.choice([0.0, rng.uniform(0, 1), rng.uniform(0, 8)])
    world.at(now + 10, "a reorganization", lambda: world.truth.reorganise(rng.choice([1, 1, 2, 3, 6, 12])))
    world.at(killed, "killed", world.kill)
    world.at(booted, "started", world.boot)
    world.timeline.run(max(there, booted) + _BOUND_S)
    synced = None if world.process is None else world.process.books.synced
    if synced is None or synced.hash != world.truth.tip:
        raise Violation(
            "alive",
            f"{_BOUND_S:.0f} s after a reorganization and a restart Synced is {synced and synced.height}, and the tip"
            f" is {world.truth.height}",
        )
