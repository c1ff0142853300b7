"""A node of the simulated network: where it listens, which chain it shows, how it behaves, and its ends of
connections.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from simulation.behaviours.base import Behaviour
from simulation.pipe import Pipe
from simulation.timeline import Timeline, Timer
from spvfilter.node.blocktree import TipChange
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Role, Service
from spvfilter.wire.messages.table import LIMITS
from spvfilter.wire.session import Session
from spvfilter.wire.streams import UndecidedStream

_TURN_SIZE = 1 << 16  # bytes sent in one turn
_RELAY_S = 3.0  # longest delay before a node announces what is new


class Node:
    """Listens at `host`, which its addresses (names included) lead to. `view` is the chain it shows."""

    def __init__(
        self,
        number: int,
        host: str,
        addresses: list[str],
        behaviour: Behaviour,
        view: Regtest,
        timeline: Timeline,
        rng: random.Random,
        wall: Callable[[], float],
    ) -> None:
        self.number = number
        self.host = host
        self.addresses = addresses
        self.behaviour = behaviour
        self.view = view
        self.is_up = True
        self.ends: list[NodeEnd] = []
        self.timeline = timeline
        self.rng = rng
        self.wall = wall
        view.listeners.append(self)

    def __repr__(self) -> str:
        return f"{self.addresses[0]} ({self.behaviour.name})"

    def accept(self, pipe: Pipe) -> NodeEnd:
        """A new connection, answered through `pipe`."""
        end = NodeEnd(self, pipe)
        self.ends.append(end)
        return end

    def go_down(self) -> None:
        """Stop: every connection ends."""
        self.is_up = False
        self.hang_up()

    def hang_up(self) -> None:
        """End every connection."""
        for end in list(self.ends):
            end.close()

    def on_tip(self, change: TipChange) -> None:
        """Callback of the chain."""
        for end in self.ends:
            self.timeline.after(self.rng.random() * _RELAY_S, partial(end.announce_tip, change))

    def on_tx(self, tx: Transaction) -> None:
        """Callback of the mempool."""
        for end in self.ends:
            self.timeline.after(self.rng.random() * _RELAY_S, partial(end.announce_tx, tx))


class NodeEnd:
    """A node's end of a connection."""

    def __init__(self, node: Node, pipe: Pipe) -> None:
        self.node = node
        self.pipe = pipe
        self.is_open = True
        self._timer: Timer | None = None
        settings = node.behaviour.settings(node.view)
        speaks_v2 = settings.services & Service.P2P_V2
        self.session = Session(
            settings,
            Role.INBOUND,
            draw_nonce=partial(node.rng.getrandbits, 64),
            now=node.timeline.now,
            timestamp=int(node.wall() + node.behaviour.clock_skew_s),
            stream=UndecidedStream(settings.network.magic, node.rng.randbytes, LIMITS) if speaks_v2 else None,
        )
        self.responder: Responder = node.behaviour.respond(node.view, self.session)

    def arrived(self, data: bytes | None) -> None:
        """Bytes of the client, or the end."""
        if not self.is_open:
            return
        if data is None:
            self.session.receive_eof()
        else:
            self.session.receive_data(data)
        if pause_s := self.node.behaviour.pause_s(self):
            self.node.timeline.after(pause_s, self.work)
        else:
            self.work()

    def announce_tip(self, change: TipChange) -> None:
        if self.is_open and self.session.ready is not None:
            self.responder.queue_tip(change)
            self.work()

    def announce_tx(self, tx: Transaction) -> None:
        if self.is_open and self.session.ready is not None:
            self.responder.queue_tx(tx)
            self.work()

    def work(self) -> None:
        """Let the responder handle its pending work."""
        if not self.is_open:
            return
        responder, session = self.responder, self.session
        while responder.step():
            if session.waiting >= _TURN_SIZE:
                self._flush()
        self._flush()
        if responder.over is not None:
            self.close()
        elif session.deadline is not None and self._timer is None:
            self._timer = self.node.timeline.at(session.deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.is_open:
            self.session.tick(self.node.timeline.now)
            self.work()

    def _flush(self) -> None:
        if (data := self.session.data_to_send()) and (data := self.node.behaviour.on_the_wire(data)):
            self.pipe.send(data)

    def close(self) -> None:
        """End the connection."""
        if self.is_open:
            self.is_open = False
            self.node.ends.remove(self)
            self.pipe.close()
            if self._timer is not None:
                self._timer.cancel()
