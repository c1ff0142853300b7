"""Own transactions in conflict with each other: only the last broadcast is announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import TxConflictError
from spvfilter.light.engine.inputs import Abandon, Heard
from spvfilter.light.events import Broadcast, Mode
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import Inv, InvItem, InvType, Message, Tx
from support.blocks.locks import LOCKS, STRANGER, build_tx
from support.client.sending import MODES, Hoards, Waits, answer, changes, rivals, send, status, synced
from support.client.stage import Prompt, stage


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_broadcast_replaces_the_replacement(mode: Mode, restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards) as world:
        synced(world)
        coin = world.truth.coins[-1]
        raws = [build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 800)]
        first, bump = (Transaction.parse(raw).txid for raw in raws)
        for raw in raws:
            send(world, raw=raw)
            world.pass_time(10)
        assert (status(world, first), status(world, bump)) == (TxStatus.REPLACED, TxStatus.PENDING)
        if restarts:
            world.kill()
            world.pass_time(100)
        send(world, raw=raws[0])
        world.pass_time(10)
        assert (status(world, first), status(world, bump)) == (TxStatus.PENDING, TxStatus.REPLACED)
        assert changes(world, bump)[-1] == (TxStatus.REPLACED, first)
        assert isinstance(answer(world, first), Broadcast)


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_replaced_transaction_with_a_foreign_conflict_is_not_announced(
    mode: Mode, restarts: bool, tmp_path: Path
) -> None:
    """An attacker can make a conflict. It must not bring back a payment that the user cancelled."""
    with stage(tmp_path, mode, Hoards, Hoards, mempool_groups=1) as world:
        world.nodes[1].is_up = False
        synced(world)
        coin = world.truth.coins[-1]
        ours, theirs, bump = (build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 600, 9_000))
        first, rival, second = (Transaction.parse(raw).txid for raw in (ours, theirs, bump))
        send(world, raw=ours)
        world.pass_time(10)
        (peer,) = world.running.connections
        for message in (Inv((InvItem(InvType.TX, rival),)), Tx(theirs)):
            world.running.report(Heard(peer, message))
        world.pass_time(5)
        assert status(world, first) is TxStatus.PENDING
        send(world, raw=bump)
        world.pass_time(10)
        assert [status(world, each) for each in (first, rival, second)] == [
            TxStatus.REPLACED,
            TxStatus.REPLACED,
            TxStatus.PENDING,
        ]
        if restarts:
            world.kill()
            world.pass_time(60)
        world.nodes[1].is_up = True
        world.pass_time(1_000)
        there = world.nodes[1].behaviour
        assert isinstance(there, Hoards)
        assert second in there.kept
        assert first not in there.kept


@MODES
def test_abandoning_a_replaced_transaction_announces_nothing(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next announcement was due while it was replaced."""
    with stage(tmp_path, mode, Hoards) as world:
        synced(world)
        raws = rivals(world)
        for raw in raws:
            send(world, raw=raw)
            world.pass_time(10)
        world.pass_time(1_000)
        announced: list[Message] = []
        monkeypatch.setattr(world.privacy, "sent", announced.append)
        world.running.report(Abandon(Transaction.parse(raws[0]).txid))
        world.pass_time(60)
        names = {item.hash for message in announced if isinstance(message, Inv) for item in message.items}
        assert names.isdisjoint({Transaction.parse(raws[0]).txid, Transaction.parse(raws[0]).wtxid})
        assert status(world, Transaction.parse(raws[0]).txid) is TxStatus.ABANDONED


@MODES
def test_an_unrequested_replacement_is_replaced_by_a_second_broadcast(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last broadcast wins."""
    with stage(tmp_path, mode, Waits) as world:
        synced(world)
        raws = rivals(world)
        first = send(world, raw=raws[0])
        world.pass_time(10)
        monkeypatch.setattr(Waits, "asks", False)
        bump = send(world, raw=raws[1])
        world.pass_time(2)
        send(world, raw=raws[0])
        monkeypatch.setattr(Waits, "asks", True)
        world.pass_time(1_000)
        assert (status(world, first), status(world, bump)) == (TxStatus.PENDING, TxStatus.REPLACED)
        assert isinstance(answer(world, bump), TxConflictError)
        assert first in world.truth.regtest.mempool


@MODES
def test_an_unrequested_child_is_replaced_with_its_parent(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the child would bring back its parent, which the user replaced."""
    with stage(tmp_path, mode, Waits) as world:
        synced(world)
        coin = world.truth.coins[-1]
        parent, bump = (build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 9_000))
        first = send(world, raw=parent)
        world.pass_time(10)
        monkeypatch.setattr(Waits, "asks", False)
        spend = LOCKS[0].spends(OutPoint(first, 0), coin.value - 500)
        child = send(world, raw=build_tx([spend], [STRANGER.pays(coin.value - 2_000)]))
        world.pass_time(2)
        monkeypatch.setattr(Waits, "asks", True)
        second = send(world, raw=bump)
        world.pass_time(10)
        assert [status(world, each) for each in (first, second, child)] == [
            TxStatus.REPLACED,
            TxStatus.PENDING,
            TxStatus.REPLACED,
        ]
        assert isinstance(answer(world, child), TxConflictError)


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_every_new_status_of_a_replaced_transaction_is_reported(mode: Mode, restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards, Prompt) as world:
        world.nodes[1].is_up = False
        synced(world)
        raws = rivals(world)
        first, bump = (send(world, raw=raw) for raw in raws)
        world.pass_time(10)
        if restarts:
            world.kill()
            world.pass_time(100)
        world.nodes[1].is_up, world.nodes[0].is_up = True, False
        regtest = world.truth.regtest
        regtest.submit_tx(raws[0])
        world.truth.mine()
        world.break_lines()
        world.wait_synced(within=900)
        world.pass_time(10)
        assert changes(world, first) == [(TxStatus.REPLACED, bump), (TxStatus.CONFIRMED, None)]
        assert changes(world, bump) == [(TxStatus.CONFLICTED, first)]
        regtest.reorg(1)
        regtest.evict(first)
        world.wait_synced(within=900)
        world.pass_time(10)
        assert (status(world, first), status(world, bump)) == (TxStatus.REPLACED, TxStatus.PENDING)
        assert changes(world, first)[2:] == [(TxStatus.REPLACED, bump)]
        assert changes(world, bump)[1:] == [(TxStatus.PENDING, None)]
        world.pass_time(60)
        assert bump in regtest.mempool


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_abandoned_versions_are_reported(mode: Mode, restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards) as world:
        synced(world)
        first, bump = (send(world, raw=raw) for raw in rivals(world))
        world.pass_time(10)
        if restarts:
            world.kill()
            world.pass_time(100)
        world.running.report(Abandon(bump))
        world.pass_time(10)
        assert changes(world, first) == [(TxStatus.REPLACED, bump), (TxStatus.ABANDONED, None)]
        assert changes(world, bump) == [(TxStatus.ABANDONED, None)]


@MODES
def test_a_conflict_names_the_earlier_parent_of_a_later_child(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, mode, Waits) as world:
        synced(world)
        raws = rivals(world)
        parent = send(world, raw=raws[0])
        world.pass_time(10)
        monkeypatch.setattr(Waits, "asks", False)
        bump = send(world, raw=raws[1])
        world.pass_time(2)
        value = Transaction.parse(raws[0]).outputs[0].value
        send(world, raw=build_tx([LOCKS[0].spends(OutPoint(parent, 0), value)], [STRANGER.pays(value - 2_000)]))
        world.pass_time(2)
        monkeypatch.setattr(Waits, "asks", True)
        error = answer(world, bump)
        assert isinstance(error, TxConflictError)
        assert error.by == parent
        assert str(error) == f"a later broadcast replaced it: it conflicts with {hash_to_hex(parent)}"
