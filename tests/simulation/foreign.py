"""Foreign unconfirmed transactions of a twin life: payments, spends and conflicts that no block contains."""

from __future__ import annotations

import random
from typing import NamedTuple

from simulation.behaviours.faulty import Honest
from simulation.behaviours.floods import InventingResponder
from simulation.keychain import INDEXES, script_at
from simulation.node import NodeEnd
from simulation.pipe import Quality
from simulation.world import World
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import Lock
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from spvfilter.wire.session import Session
from support.blocks.locks import build_tx

_POPULAR = 20  # most foreign scripts that a transaction pays
_INFINITE = float("inf")


class Steady(Honest):
    """Honest, over a line that delays every message equally: additional messages change no other message."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self.invented: dict[bytes, bytes] = {}
        """Foreign transactions that the node has announced, by txid and wtxid."""

    def quality(self) -> Quality:
        return Quality(0.02, 0.0, _INFINITE, 0.0)

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _SteadyResponder(view, session, self.invented)


class _SteadyResponder(InventingResponder):
    """Answers `mempool` with the foreign transactions, too, as far as the peer's filter matches them."""

    def on_bloom(self, message: Message) -> None:
        super().on_bloom(message)
        if isinstance(message, wire.Mempool):
            self.tell([Transaction.parse(raw) for raw in dict.fromkeys(self._invented.values())])

    def tell(self, txs: list[Transaction]) -> None:
        """Announce transactions that the peer's filter matches."""
        is_open = self.relay and self.session.ready is not None
        wanted = [tx for tx in txs if is_open and (self.filter is None or self.filter.matches_tx(tx.raw))]
        self.send_inv([self._tx_item(tx) for tx in wanted])


class Foreign(NamedTuple):
    """Foreign transactions that were announced together."""

    height: int
    """Height of the true chain at that time."""
    time: float
    """Virtual time."""


class ForeignTraffic:
    """Invents transactions at random times. Its choices come from a random stream of its own.

    A silent one makes the same choices and announces nothing.
    """

    def __init__(self, rng: random.Random, world: World, *, is_silent: bool) -> None:
        self.told: list[Foreign] = []
        """The announcements."""
        self.hashes: set[bytes] = set()
        """Txids and wtxids of the transactions."""
        self._rng = rng
        self._world = world
        self._is_silent = is_silent
        self._made: list[Transaction] = []

    def schedule(self, duration: float) -> None:
        """Announce transactions at some times within a duration."""
        for _ in range(self._rng.choice([1, 1, 2, 4, 8])):
            self._world.at(self._rng.uniform(30.0, duration), "foreign transactions", self._announce)

    def _announce(self) -> None:
        world, rng = self._world, self._rng
        made = [Transaction.parse(self._make()) for _ in range(rng.choice([1, 1, 2, 6]))]
        self._made += made
        nodes = rng.sample(world.nodes, rng.randrange(1, len(world.nodes) + 1))
        self.hashes |= {tx_hash for tx in made for tx_hash in (tx.txid, tx.wtxid)}
        self.told.append(Foreign(world.truth.height, world.timeline.now))
        for node in nodes if not self._is_silent else ():
            assert isinstance(node.behaviour, Steady)
            node.behaviour.invented.update({tx_hash: tx.raw for tx in made for tx_hash in (tx.txid, tx.wtxid)})
            for end in list(node.ends):
                _tell(end, made)

    def _make(self) -> bytes:
        """A payment to the wallet, a spend of its coins, a conflict with a waiting transaction, or a chain of them."""
        rng, truth = self._rng, self._world.truth
        waiting, coins = list(truth.regtest.mempool), truth.coins
        kind = rng.random()
        spent = OutPoint(rng.randbytes(32), 0)
        if kind < 0.25 and coins:
            spent = rng.choice(coins).outpoint
        elif kind < 0.4 and waiting:
            spent = OutPoint.parse(rng.choice(waiting).inputs[0])
        elif kind < 0.6 and (self._made or waiting):
            spent = OutPoint(rng.choice(self._made or waiting).txid, 0)
        outputs = [rng.choice(truth.locks).pays(rng.randrange(600, 3_000)) for _ in range(rng.choice([1, 1, 2]))]
        if self._world.keychain is not None and rng.random() < 0.6:
            outputs.append(Lock(script_at(rng.randrange(INDEXES))).pays(700))
        if rng.random() < 0.5:
            outputs += [Lock(script).pays(600) for script in self._popular()]
        return build_tx([self._spend(spent)], outputs)

    def _spend(self, outpoint: OutPoint) -> TxIn:
        """An input that spends an outpoint, signed if it is a coin of the wallet: honest nodes relay no other spend."""
        truth = self._world.truth
        for each in truth.coins:
            if each.outpoint == outpoint:
                return each.spend()
        coin = truth.regtest.chain.coins.get(bytes(outpoint))
        found = None if coin is None else TxOut(coin.value, coin.script_pubkey)
        for tx in (*self._made, *truth.regtest.mempool) if found is None else ():
            if tx.txid == outpoint.txid and outpoint.index < len(tx.outputs):
                found = tx.outputs[outpoint.index]
        lock = None if found is None else truth.lock_of(found.script_pubkey)
        if found is None or lock is None:
            return TxIn(outpoint, self._rng.randbytes(4))
        return lock.spends(outpoint, found.value)

    def _popular(self) -> list[bytes]:
        """Foreign scripts that the chain pays, with the script that most blocks pay."""
        chain, rng = self._world.truth.regtest.chain, self._rng
        found = [self._world.truth.regtest.lock.script_pubkey]
        for block in rng.sample(chain.active, min(_POPULAR, len(chain.active))):
            outputs = [out for tx in chain.txs(block) for out in tx.outputs]
            found += [rng.choice(outputs).script_pubkey]
        return [script for script in dict.fromkeys(found) if not script.startswith(b"\x6a")]


def _tell(end: NodeEnd, txs: list[Transaction]) -> None:
    if end.is_open and isinstance(end.responder, _SteadyResponder):
        end.responder.tell(txs)
        end.work()


def without(items: tuple[InvItem, ...], hashes: set[bytes]) -> tuple[InvItem, ...]:
    """The items, without transactions with these hashes."""
    kinds = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)
    return tuple(item for item in items if item.kind not in kinds or item.hash not in hashes)
