"""A parent below the least fee that peers take, and the child that pays for both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spvfilter.errors import TxRefusedError
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.build import build_tx
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import FeeFilter, GetData, InvItem, InvType
from spvfilter.wire.session import Session
from support.locks import LOCKS, STRANGER
from support.sending import answer, send, synced
from support.stage import Prompt, stage


class _Package(Responder):
    """As Core since 28: a child whose parent it lacks waits while the parent is asked for by txid; both are looked at
    together.
    """

    FLOOR = 5_000

    def __init__(self, regtest: object, session: Session) -> None:
        super().__init__(regtest, session)  # type: ignore[arg-type]  # as the base's
        self.orphan: bytes | None = None
        self.announced: list[bytes] = []

    def on_message(self, message: object) -> None:
        super().on_message(message)  # type: ignore[arg-type]  # any message
        self.send_floor()

    def send_floor(self) -> None:
        if not getattr(self, "told", False):
            self.told = True
            self.send(FeeFilter(self.FLOOR))

    def on_inv(self, items: Sequence[InvItem]) -> None:
        self.announced += [item.hash for item in items]
        super().on_inv(items)

    def on_tx(self, raw: bytes) -> None:
        tx = Transaction.parse(raw)
        parent = tx.inputs[0][:32]
        if self.orphan is not None and Transaction.parse(self.orphan).inputs[0][:32] == tx.txid:
            super().on_tx(raw)
            super().on_tx(self.orphan)
        elif self.regtest.mempool.get(parent) is None and not any(
            each[:32] == parent for each in self.regtest.chain.coins
        ):
            self.orphan = raw
            self.send(GetData((InvItem(InvType.WITNESS_TX, parent),)))


class Packages(Prompt):
    responder = _Package


def test_a_parent_below_the_fee_floor_follows_its_child(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Packages) as world:
        synced(world)
        coin = world.truth.coins[-1]
        parent = build_tx([coin.lock.spends(coin.outpoint)], [LOCKS[0].pays(coin.value - 1)])
        ours = Transaction.parse(parent)
        child = build_tx([LOCKS[0].spends(OutPoint(ours.txid, 0))], [STRANGER.pays(coin.value - 5_000)])
        send(world, raw=parent)
        world.pass_time(60)
        assert isinstance(answer(world, ours.txid), TxRefusedError)
        (end,) = world.nodes[0].ends
        assert isinstance(end.responder, _Package)
        end.responder.announced.clear()
        txid = send(world, raw=child)
        world.pass_time(30)
        assert isinstance(answer(world, txid), Broadcast)
        assert {ours.txid, txid} <= {each.txid for each in world.truth.regtest.mempool}
        assert end.responder.announced == [Transaction.parse(child).wtxid]  # the parent is not announced
