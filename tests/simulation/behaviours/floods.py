"""Behaviours of nodes that send too much: inventories, fake payments and conflicts, addresses, pings."""

from __future__ import annotations

import random
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from simulation import oracle
from simulation.behaviours.bloom import Liar
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from spvfilter.wire.session import Session

if TYPE_CHECKING:
    from simulation.node import Node, NodeEnd
    from simulation.world import World


class Flood(Liar):
    """Sends unsolicited messages, again and again, up to a limit."""

    every_s: ClassVar[float] = 200.0
    most: ClassVar[int] = 40  # rounds

    def begin(self, node: Node) -> None:
        self.world.timeline.after(self.rng.expovariate(1 / self.every_s), partial(self._again, node, self.most))

    def _again(self, node: Node, left: int) -> None:
        for end in list(node.ends):
            if end.is_open and end.session.ready is not None:
                for message in self.messages(end):
                    end.session.send(message)
                end.work()
        if left:
            self.world.timeline.after(self.rng.expovariate(1 / self.every_s), partial(self._again, node, left - 1))

    def messages(self, end: NodeEnd) -> list[Message]:
        """The messages of one round."""
        return []


class FloodsInv(Flood):
    """Announces transactions that do not exist."""

    def messages(self, end: NodeEnd) -> list[Message]:
        kind = self.rng.choice([InvType.TX, InvType.WTX, InvType.BLOCK])
        number = 3 if kind is InvType.BLOCK else self.rng.choice([10, 1_000, 5_000])
        return [wire.Inv(tuple(InvItem(kind, self.rng.randbytes(32)) for _ in range(number)))]


class FloodsAddresses(Flood):
    """Announces addresses."""

    def messages(self, end: NodeEnd) -> list[Message]:
        return [wire.Unknown("addr", b"\x01" + self.rng.randbytes(30)) for _ in range(50)]


class FloodsPings(Flood):
    """Sends pings without need."""

    def messages(self, end: NodeEnd) -> list[Message]:
        return [wire.Ping(self.rng.getrandbits(64)) for _ in range(200)]


class InventingResponder(Responder):
    """Serves fake transactions besides those of the mempool."""

    def __init__(self, regtest: Regtest, session: Session, invented: dict[bytes, bytes]) -> None:
        super().__init__(regtest, session)
        self._invented = invented

    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.GetData):
            for item in message.items:
                if (raw := self._invented.get(item.hash)) is not None:
                    self.send(wire.Tx(raw))
            message = wire.GetData(tuple(item for item in message.items if item.hash not in self._invented))
        super().on_message(message)


class Invents(Flood):
    """Announces dozens of fake unconfirmed payments to the wallet."""

    number: ClassVar[int] = 30
    inputs: ClassVar[int] = 1

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._invented: dict[bytes, bytes] = {}  # by txid and wtxid

    def respond(self, view: Regtest, session: Session) -> Responder:
        return InventingResponder(view, session, self._invented)

    def messages(self, end: NodeEnd) -> list[Message]:
        items = []
        for _ in range(self.number):
            tx = Transaction.parse(self.invent())
            self._invented[tx.txid] = self._invented[tx.wtxid] = tx.raw
            assert end.session.ready is not None
            wtx = end.session.ready.wtxid_relay
            items.append(InvItem(InvType.WTX if wtx else InvType.TX, tx.wtxid if wtx else tx.txid))
        return [wire.Inv(tuple(items))]

    def invent(self) -> bytes:
        """Make a fake transaction."""
        inputs = [TxIn(OutPoint(self.rng.randbytes(32), 0)) for _ in range(self.inputs)]
        return build_tx(inputs, [self.rng.choice(self.world.truth.locks).pays(self.rng.randrange(1_000, 10**8))])


class InventsMany(Invents):
    """Announces hundreds of fake payments at once."""

    number = 600
    every_s = 600.0
    most = 4


class InventsLarge(Invents):
    """Announces fake payments with thousands of inputs, to fill a BIP-37 filter."""

    number = 2
    inputs = 2_400
    most = 6


class InventsConflicts(Invents):
    """Announces fake spends of the wallet's coins, and conflicts with mempool transactions."""

    number = 5

    def invent(self) -> bytes:
        truth, rng = self.world.truth, self.rng
        waiting = list(truth.regtest.mempool)
        if waiting and rng.random() < 0.5:
            outpoint = OutPoint.parse(rng.choice(waiting).inputs[0])
        elif truth.coins:
            outpoint = rng.choice(truth.coins).outpoint
        else:
            outpoint = OutPoint(rng.randbytes(32), 0)
        return build_tx(
            [TxIn(outpoint, rng.randbytes(4))], [rng.choice(truth.locks).pays(rng.randrange(1_000, 50_000))]
        )


class InventsChains(Invents):
    """Announces fake payments that spend each other."""

    number = 10

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._last = OutPoint(sha256(b"nothing").digest(), 0)

    def invent(self) -> bytes:
        raw = build_tx(
            [TxIn(self._last)], [self.rng.choice(self.world.truth.locks).pays(self.rng.randrange(1_000, 50_000))]
        )
        self._last = OutPoint(oracle.txid(raw), 0)
        return raw
