"""Related own transactions: the order of their announcements, and a child that pays for its parent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation.behaviours.relay import Rejects
from spvfilter.errors import ParameterError, TxRefusedError
from spvfilter.light.engine.inputs import Abandon
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import FeeFilter, GetData, InvItem, InvType
from spvfilter.wire.session import Session
from support.blocks.locks import LOCKS, STRANGER, build_tx
from support.client.sending import MODES, answer, changes, send, spend, status, synced
from support.client.stage import Prompt, stage


class _Package(Responder):
    """Behaves like Core since version 28: a child waits for its missing parent, which is requested by txid. Both are
    checked together.
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
        parent = build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 1)])
        ours = Transaction.parse(parent)
        child = build_tx([LOCKS[0].spends(OutPoint(ours.txid, 0), coin.value - 1)], [STRANGER.pays(coin.value - 5_000)])
        send(world, raw=parent, is_forced=True)
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


class _Listener(Responder):
    """Keeps the order of announcements."""

    def __init__(self, regtest: object, session: Session) -> None:
        super().__init__(regtest, session)  # type: ignore[arg-type]  # as the base's
        self.announced: list[bytes] = []

    def on_inv(self, items: Sequence[InvItem]) -> None:
        self.announced += [item.hash for item in items]
        super().on_inv(items)


class Listens(Prompt):
    responder = _Listener


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_ancestors_are_announced_before_descendants(mode: Mode, restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Listens) as world:
        synced(world)
        coin = world.truth.coins[-1]
        chain = [Transaction.parse(build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 500)]))]
        for number in range(2, 31):
            spend = LOCKS[0].spends(OutPoint(chain[-1].txid, 0), chain[-1].outputs[0].value)
            chain.append(Transaction.parse(build_tx([spend], [LOCKS[0].pays(coin.value - 500 * number)])))
        world.nodes[0].is_up = False
        world.nodes[0].hang_up()
        world.pass_time(1)
        for each in (*chain[1:], chain[0]):  # the oldest ancestor comes last
            send(world, raw=each.raw)
        world.pass_time(5)
        if restarts:
            world.kill()
        world.nodes[0].is_up = True
        world.pass_time(600)
        (end,) = world.nodes[0].ends
        assert isinstance(end.responder, _Listener)
        names = {tx_hash: number for number, each in enumerate(chain) for tx_hash in (each.txid, each.wtxid)}
        assert list(dict.fromkeys(names[each] for each in end.responder.announced)) == list(range(30))
        assert {each.txid for each in chain} <= {each.txid for each in world.truth.regtest.mempool}


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("length", [1, 3])
def test_a_child_brings_back_ancestors_that_peers_rejected(mode: Mode, length: int, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Rejects, Prompt) as world:
        world.nodes[1].is_up = False
        synced(world)
        coin = world.truth.coins[-1]
        raws = [build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 500)])]
        for number in range(2, length + 2):
            spend = LOCKS[0].spends(OutPoint(Transaction.parse(raws[-1]).txid, 0), coin.value - 500 * (number - 1))
            raws.append(build_tx([spend], [LOCKS[0].pays(coin.value - 500 * number)]))
        for raw in raws[:-1]:
            send(world, raw=raw)
        world.pass_time(60)
        txids = [Transaction.parse(raw).txid for raw in raws]
        assert {status(world, txid) for txid in txids[:-1]} == {TxStatus.REFUSED}
        world.nodes[0].is_up, world.nodes[1].is_up = False, True
        world.nodes[0].hang_up()
        world.pass_time(400)
        send(world, raw=raws[-1])
        world.pass_time(60)
        assert isinstance(answer(world, txids[-1]), Broadcast)
        assert {status(world, txid) for txid in txids} == {TxStatus.PENDING}
        assert set(txids) <= {each.txid for each in world.truth.regtest.mempool}
        assert changes(world, txids[0]) == [(TxStatus.REFUSED, None), (TxStatus.PENDING, None)]


@MODES
def test_a_child_of_an_abandoned_parent_is_refused_with_advice(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        parent = spend(world)
        txid = send(world, raw=parent)
        world.running.report(Abandon(txid))
        world.pass_time(1)
        paid = Transaction.parse(parent).outputs[0].value
        child = send(world, raw=build_tx([LOCKS[0].spends(OutPoint(txid, 0), paid)], [LOCKS[0].pays(paid - 500)]))
        world.pass_time(1)
        error = answer(world, child)
        assert isinstance(error, ParameterError)
        assert f"broadcast {hash_to_hex(txid)} first" in str(error)
        assert (status(world, txid), status(world, child)) == (TxStatus.ABANDONED, None)
