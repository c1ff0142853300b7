"""The behaviour of an honest node of the simulated network. Each subclass in this folder differs in one way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar

from simulation.pipe import Quality
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.events import Service, Settings
from spvfilter.wire.session import Session

if TYPE_CHECKING:
    from simulation.node import Node, NodeEnd
    from simulation.world import World

FULL = Service.NETWORK | Service.BLOOM | Service.WITNESS | Service.COMPACT_FILTERS
_QUIET_S = 1e7  # nodes send no pings of their own


class Behaviour:
    """An honest, reachable node with all services. Each node has its own instance."""

    is_honest: ClassVar[bool] = True  # never to be banned
    is_full: ClassVar[bool] = True  # serves all data once faults end
    omits: ClassVar[bool] = False  # leaves transactions out of filtered blocks
    is_prompt: ClassVar[bool] = False  # answers at once while connected
    think_s: ClassVar[float] = 0.0  # longest delay
    clock_skew_s: ClassVar[float] = 0.0  # error of its clock
    services: ClassVar[int] = FULL
    relay: ClassVar[bool] = True  # accepts transactions
    responder: ClassVar[type[Responder]] = Responder

    def __init__(self, rng: random.Random, world: World) -> None:
        self.rng = rng
        self.world = world
        self.is_calm = False  # True: faults have ended

    @property
    def name(self) -> str:
        return type(self).__name__

    def view(self) -> Regtest:
        """Return the chain that it shows: by default the true one. Called once."""
        return self.world.truth.regtest

    def has_block(self, view: Regtest, block_hash: bytes) -> bool:
        """Return True if the node has a block."""
        return block_hash in view.chain.blocks

    def settings(self, view: Regtest) -> Settings:
        """Settings of its version message."""
        return Settings(REGTEST, self.services, relay=self.relay, start_height=view.height, ping_interval_s=_QUIET_S)

    def respond(self, view: Regtest, session: Session) -> Responder:
        """Return its protocol logic for a new connection."""
        return self.responder(view, session)

    def quality(self) -> Quality:
        """Quality of a new connection to it."""
        rng = self.rng
        return Quality(
            rng.uniform(0.005, 0.15), rng.uniform(0, 0.1), rng.choice([2e5, 1e6, 1e7]), rng.choice([0, 0, 0, 0.2])
        )

    def pause_s(self, end: NodeEnd) -> float:
        """Seconds before it handles new data."""
        return self.think_s * end.node.rng.random() if self.think_s else 0.0

    def on_the_wire(self, data: bytes) -> bytes:
        """Change the bytes that it sends."""
        return data

    def begin(self, node: Node) -> None:
        """Schedule the actions that no peer asked it for."""

    def calm(self) -> None:
        """Faults end; lies do not."""
        self.is_calm = True
