"""Behaviours of nodes that mishandle received transactions: refuse, drop, delay, never announce, lie."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from simulation.behaviours.base import Behaviour
from spvfilter.errors import RefusedError
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Settings
from spvfilter.wire.messages.table import InvItem, InvType, Reject
from spvfilter.wire.session import Session
from support.client.regtests import announced

if TYPE_CHECKING:
    from simulation.node import Node, NodeEnd
    from simulation.world import World


class _GivenResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, behaviour: Taker) -> None:
        super().__init__(regtest, session)
        self._behaviour = behaviour

    def on_tx(self, raw: bytes) -> None:
        self._behaviour.given(self, raw)

    def announce(self) -> None:
        if not self._behaviour.announces:
            self._new_txs = {}
        super().announce()


class Taker(Behaviour):
    """A node that handles received transactions in an unusual way."""

    is_full = False
    announces = True

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _GivenResponder(view, session, self)

    def given(self, responder: Responder, raw: bytes) -> None:
        """A peer sends a transaction."""

    def submit(self, raw: bytes) -> None:
        """Submit a transaction to every honest mempool. An invalid one is ignored."""
        with suppress(RefusedError):
            self.world.truth.regtest.submit_tx(raw)


class Rejects(Taker):
    """Rejects every transaction with a reject message (BIP-61): its fee floor is high."""

    def given(self, responder: Responder, raw: bytes) -> None:
        responder.send(Reject(b"tx", 0x42, b"mempool min fee not met", Transaction.parse(raw).txid))


class Drops(Taker):
    """Drops every transaction silently."""


class DropsAsCore(Drops):
    """A Bitcoin Core node that drops every transaction, and announces others in rounds: each shows what it lacks."""

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), user_agent=b"/Satoshi:29.0.0/")

    def begin(self, node: Node) -> None:
        self.world.timeline.after(self.rng.expovariate(1 / 5), partial(self._round, node))

    def _round(self, node: Node) -> None:
        for end in node.ends:
            if end.is_open and end.session.ready is not None:
                end.responder.send_inv([InvItem(InvType.WTX, self.rng.randbytes(32))])
                end.work()
        self.begin(node)


class RelaysLate(Taker):
    """Relays a transaction after minutes."""

    def given(self, responder: Responder, raw: bytes) -> None:
        self.world.timeline.after(self.rng.uniform(30, 900), partial(self.submit, raw))


class NeverEchoes(Taker):
    """Relays transactions to other nodes, and announces none to the client."""

    announces = False

    def given(self, responder: Responder, raw: bytes) -> None:
        self.submit(raw)


class FalseEcho(Taker):
    """A node of a group of attackers: one fetches own transactions and relays them to no honest node. Its partners
    announce them to the client.
    """

    is_honest = False

    def __init__(self, rng: object, world: World) -> None:
        super().__init__(rng, world)  # type: ignore[arg-type]  # as the base's
        self._node: Node | None = None

    def begin(self, node: Node) -> None:
        self._node = node

    def given(self, responder: Responder, raw: bytes) -> None:
        tx = Transaction.parse(raw)
        for node in self.world.nodes:
            if node is not self._node and isinstance(node.behaviour, FalseEcho):
                for end in node.ends:
                    self.world.timeline.after(0.2, partial(_announce, end, tx))


def _announce(end: NodeEnd, tx: Transaction) -> None:
    if end.is_open and end.session.ready is not None:
        end.responder.send_inv([announced(end.responder, tx)])
        end.work()


RELAYS: list[type[Behaviour]] = [Rejects, Drops, RelaysLate, NeverEchoes, FalseEcho]
ROUNDS: list[type[Behaviour]] = [DropsAsCore]
"""Behaviours that no life draws: a plan names them."""
