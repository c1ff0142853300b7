"""Private transactions that the user replaces, abandons or broadcasts again during a handover."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import TxConflictError
from spvfilter.light.engine.inputs import Abandon
from spvfilter.light.events import Broadcast, BroadcastStep, Mode
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from support.client.sending import Waits, announced_from_now, answer, rivals, send, spend, status, steps, synced
from support.client.stage import Stage, stage


def hand_over_again(world: Stage, monkeypatch: pytest.MonkeyPatch, raw: bytes) -> list[tuple[bytes, bool]]:
    """Start a handover of a private transaction that no node has, and return all later announcements.

    The new peer does not request it at once.
    """
    txid = send(world, is_private=True, raw=raw)
    world.pass_time(130)
    assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
    mempool = world.truth.regtest.mempool
    mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])
    monkeypatch.setattr(Waits, "asks", False)
    told = announced_from_now(world, monkeypatch)
    while not told:
        world.pass_time(4)
    assert told == [(Transaction.parse(raw).wtxid, True)]
    monkeypatch.setattr(Waits, "asks", True)
    return told


def test_two_private_transactions_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, max_peers=1) as world:
        synced(world)
        monkeypatch.setattr(Waits, "asks", False)
        told = announced_from_now(world, monkeypatch)
        raws = [spend(world) for _ in range(2)]
        for raw in raws:
            send(world, is_private=True, raw=raw)
        world.pass_time(5)
        assert sorted(told) == sorted((Transaction.parse(raw).wtxid, True) for raw in raws)


@pytest.mark.slow
def test_a_call_after_abandon_sends_the_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handover of the abandoned transaction must not answer the new call."""
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        raw = spend(world)
        txid = Transaction.parse(raw).txid
        hand_over_again(world, monkeypatch, raw)
        world.running.report(Abandon(txid))
        world.pass_time(2)
        assert status(world, txid) is TxStatus.ABANDONED
        world.running.answers.pop(txid)
        send(world, is_private=True, raw=raw)
        world.pass_time(60)
        assert isinstance(answer(world, txid), Broadcast)
        assert status(world, txid) is TxStatus.PENDING
        assert txid in world.truth.regtest.mempool


@pytest.mark.slow
def test_a_transaction_replaced_during_a_handover_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        old, new = rivals(world)
        txid = Transaction.parse(old).txid
        told = hand_over_again(world, monkeypatch, old)
        told.clear()
        send(world, raw=new)
        world.pass_time(200)
        assert status(world, txid) is TxStatus.REPLACED
        assert Transaction.parse(old).wtxid not in {each for each, _ in told}


def test_an_unrequested_private_transaction_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a cancelled payment would be sent after its replacement."""
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        old, new = rivals(world)
        monkeypatch.setattr(Waits, "asks", False)
        txid = send(world, is_private=True, raw=old)
        world.pass_time(2)
        monkeypatch.setattr(Waits, "asks", True)
        instead = send(world, raw=new)
        world.pass_time(5)
        assert isinstance(answer(world, instead), Broadcast)
        told = announced_from_now(world, monkeypatch)
        world.pass_time(300)
        assert status(world, instead) is TxStatus.PENDING
        assert status(world, txid) is TxStatus.REPLACED
        assert isinstance(answer(world, txid), TxConflictError)
        assert Transaction.parse(old).wtxid not in {each for each, _ in told}


def test_an_unrequested_private_replacement_can_be_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        new, old = rivals(world)
        instead = send(world, raw=new)
        world.pass_time(5)
        assert isinstance(answer(world, instead), Broadcast)
        monkeypatch.setattr(Waits, "asks", False)
        txid = send(world, is_private=True, raw=old)
        world.pass_time(2)
        monkeypatch.setattr(Waits, "asks", True)
        send(world, raw=new)
        world.pass_time(300)
        assert status(world, instead) is TxStatus.PENDING
        assert status(world, txid) is TxStatus.REPLACED
        assert isinstance(answer(world, txid), TxConflictError)
