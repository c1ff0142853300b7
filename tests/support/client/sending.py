"""A user who sends transactions in a staged life: broadcasts, their events, and their rows in the database."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulation.behaviours.relay import Taker
from simulation.connection import Connection
from simulation.node import Node
from simulation.world import World
from spvfilter.light.events import Broadcast, BroadcastChanged, BroadcastProgress, BroadcastStep, Mode
from spvfilter.node.responder import Responder
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import Inv, InvItem, Message
from support.blocks.locks import LOCKS, build_tx
from support.client.stage import Prompt, Stage

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])


class Hoards(Taker):
    """Keeps a transaction, serves it on request, and relays it to no node."""

    def __init__(self, rng: object, world: World) -> None:
        super().__init__(rng, world)  # type: ignore[arg-type]  # as the base's
        self.kept: dict[bytes, bytes] = {}

    def given(self, responder: Responder, raw: bytes) -> None:
        tx = Transaction.parse(raw)
        self.kept[tx.txid] = self.kept[tx.wtxid] = raw
        find = responder.regtest.find_tx
        responder.regtest.find_tx = (  # type: ignore[method-assign]  # of its own copy
            lambda txid, *, by_wtxid=False: (
                Transaction.parse(self.kept[txid]) if txid in self.kept else find(txid, by_wtxid=by_wtxid)
            )
        )

    def view(self) -> object:  # type: ignore[override]
        from simulation.truth import copy_chain

        return copy_chain(self.world.truth.regtest, self.world.true_wall)


class _WaitsResponder(Responder):
    def on_inv(self, items: Sequence[InvItem]) -> None:
        if Waits.asks:
            super().on_inv(items)


class Waits(Prompt):
    """An honest node that waits before it requests announced transactions."""

    asks = True
    responder = _WaitsResponder


def synced(world: Stage) -> None:
    world.boot()
    world.wait_synced(within=60)


def spend(world: Stage) -> bytes:
    """A transaction that spends a confirmed coin."""
    coin = next(each for each in world.truth.coins if bytes(each.outpoint) in world.truth.regtest.chain.coins)
    world.truth.coins.remove(coin)
    return build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 500)])


def send(world: Stage, *, is_private: bool = False, raw: bytes | None = None, is_forced: bool = False) -> bytes:
    """Broadcast a spend. Returns its txid."""
    raw = raw or spend(world)
    world.running.broadcast(raw, is_private=is_private, is_forced=is_forced)
    return Transaction.parse(raw).txid


def answer(world: Stage, txid: bytes) -> Broadcast | Exception | None:
    return world.running.answers.get(txid)


def steps(world: Stage, txid: bytes) -> list[tuple[str, BroadcastStep]]:
    return [(each.peer, each.step) for each in world.told if isinstance(each, BroadcastProgress) and each.txid == txid]


def changes(world: Stage, txid: bytes) -> list[tuple[TxStatus, bytes | None]]:
    return [(each.status, each.by) for each in world.told if isinstance(each, BroadcastChanged) and each.txid == txid]


def status(world: Stage, txid: bytes) -> TxStatus | None:
    entry = world.running.disk.store.views.transaction(txid)
    return None if entry is None else entry.status


def named(world: Stage, peers: Sequence[str]) -> list[Node]:
    return [world.directory[peer] for peer in peers]


def stranger(world: Stage) -> Node:
    """The node that is not connected."""
    there = {id(each.node) for each in world.running.connections.values()}
    (found,) = [node for node in world.nodes if id(node) not in there]
    return found


def announced_from_now(world: Stage, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bool]]:
    """Record later announcements: hashes, and whether the peer's connection is private."""
    told = list[tuple[bytes, bool]]()
    send_on = Connection.send

    def sent(connection: Connection, message: Message) -> None:
        if isinstance(message, Inv):
            to_stranger = world.process is not None and connection.number in world.process.private
            told.extend((item.hash, to_stranger) for item in message.items)
        send_on(connection, message)

    monkeypatch.setattr(Connection, "send", sent)
    return told


def rivals(world: Stage) -> list[bytes]:
    """Two transactions that conflict."""
    coin = next(each for each in world.truth.coins if bytes(each.outpoint) in world.truth.regtest.chain.coins)
    return [build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 9_000)]
