"""Private broadcast: the new peers that get a transaction, and the connected peers that must not learn of it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from simulation.behaviours.relay import Drops, FalseEcho, NeverEchoes, Rejects
from simulation.connection import Connection
from spvfilter.errors import PrivacyError, TxConflictError, UselessPeerError
from spvfilter.light.engine import privatebroadcast
from spvfilter.light.engine.inputs import Heard, HeardTogether, Input
from spvfilter.light.engine.saved import PRIVATE_NOTE
from spvfilter.light.events import Broadcast, BroadcastStep, Mode
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint
from spvfilter.store.batch import Batch
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Received
from spvfilter.wire.messages.table import GetAddr, GetData, Inv, Message
from support.blocks.locks import LOCKS, build_tx
from support.client.sending import (
    Waits,
    announced_from_now,
    answer,
    named,
    rivals,
    send,
    spend,
    status,
    steps,
    stranger,
    synced,
)
from support.client.stage import Prompt, Stage, stage


def test_a_private_transaction_goes_to_one_new_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        other = stranger(world)
        txid = send(world, is_private=True)
        world.pass_time(10)
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        assert named(world, known.sent) == [other]
        assert txid in world.truth.regtest.mempool
        assert not other.ends  # that connection is closed
        world.pass_time(900)
        told = steps(world, txid)
        assert [peer for peer, step in told if step is BroadcastStep.SENT] == list(known.sent)
        assert {peer for peer, step in told if step is BroadcastStep.ECHOED}


def announced_beside(world: Stage, name: str) -> list[bytes]:
    """Restart until the node with this behaviour is not connected, and return the hashes announced from then on."""
    announced: list[bytes] = []

    def sent(message: Message) -> None:
        if isinstance(message, Inv):
            announced.extend(item.hash for item in message.items)

    world.privacy.sent = sent  # type: ignore[method-assign]
    synced(world)
    while stranger(world).behaviour.name != name:  # which of the nodes are connected is random
        world.kill()
        world.pass_time(60)
    return announced


@pytest.mark.few(1)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_relayed_private_transaction_is_not_announced(restarts: bool, tmp_path: Path) -> None:
    """The client announces only own transactions, so a peer would learn that this is an own one."""
    with stage(tmp_path, Mode.COMPACT, Prompt, NeverEchoes, Prompt, Prompt, max_peers=3) as world:
        announced = announced_beside(world, "Prompt")
        raw = spend(world)
        txid, wtxid = send(world, is_private=True, raw=raw), Transaction.parse(raw).wtxid
        world.pass_time(130)
        assert {peer for peer, step in steps(world, txid) if step is BroadcastStep.ECHOED}
        assert announced.count(wtxid) == 1  # sent only to the new peer
        if restarts:
            world.kill()
        world.pass_time(10_000)
        assert announced.count(wtxid) == 1
        world.truth.mine()
        world.pass_time(60)
        assert status(world, txid) is TxStatus.CONFIRMED


def test_one_false_echo_does_not_stop_a_private_transaction(tmp_path: Path) -> None:
    """An attacker gets the transaction and announces it from a second address."""
    with stage(tmp_path, Mode.COMPACT, FalseEcho, FalseEcho, Prompt, max_peers=2) as world:
        synced(world)
        while stranger(world).behaviour.name != "FalseEcho":  # which of the nodes are connected is random
            world.kill()
            world.pass_time(60)
        txid = send(world, is_private=True)
        world.pass_time(100)
        assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
        assert txid not in world.truth.regtest.mempool
        world.pass_time(200)
        assert txid in world.truth.regtest.mempool


@pytest.mark.few(1)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_disconnected_private_transaction_stays_private(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        told: list[bool] = []  # True if the announcement went to a new peer
        send_on = Connection.send

        def sent(connection: Connection, message: Message) -> None:
            if isinstance(message, Inv) and wtxid in {item.hash for item in message.items}:
                told.append(world.process is not None and connection.number in world.process.private)
            send_on(connection, message)

        monkeypatch.setattr(Connection, "send", sent)
        synced(world)
        raw = spend(world)
        wtxid = Transaction.parse(raw).wtxid
        txid = send(world, is_private=True, raw=raw)
        world.pass_time(130)
        world.truth.mine()
        world.pass_time(60)
        assert status(world, txid) is TxStatus.CONFIRMED
        if restarts:
            world.kill()
            world.pass_time(60)
        world.truth.regtest.reorg(1)
        world.wait_synced(within=300)
        world.pass_time(2_000)
        assert status(world, txid) is TxStatus.PENDING
        # soon to a new peer again, unless peers announced it in this run
        assert told == [True, True][: 1 + restarts]


@pytest.mark.long
@pytest.mark.parametrize("restarts", [False, True])
def test_an_old_private_transaction_goes_to_another_new_peer(restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        txid = send(world, is_private=True)
        world.pass_time(130)
        assert {peer for peer, step in steps(world, txid) if step is BroadcastStep.ECHOED}
        mempool = world.truth.regtest.mempool
        raw = next(tx for tx in mempool if tx.txid == txid)
        mempool.remove_for([raw])  # no node has it any longer
        if restarts:
            world.kill()
        world.pass_time(40 * 3_600)
        assert txid in mempool


@pytest.mark.long
@pytest.mark.parametrize("away", ["who was given it", "the others"])
def test_an_old_private_transaction_goes_to_any_reachable_peer(away: str, tmp_path: Path) -> None:
    """Each day, every new peer is tried until a peer accepts."""
    with stage(tmp_path, Mode.COMPACT, *[Prompt] * 5, max_peers=2) as world:
        synced(world)
        txid = send(world, is_private=True)
        world.pass_time(130)
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        (given,) = named(world, known.sent)
        free = [
            node for node in world.nodes if all(each.node is not node for each in world.running.connections.values())
        ]
        for node in free:
            node.is_up = (node is given) is (away == "the others")
        mempool = world.truth.regtest.mempool
        mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])  # no node has it any longer
        others = [node for node in free if node is not given]
        if away != "the others":
            others[0].is_up = False  # one of the two remaining nodes is up
        world.pass_time(40 * 3_600)
        assert txid in mempool


def test_messages_of_a_new_peer_may_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        process = world.process
        assert process is not None
        report = process.report

        def together(input: Input) -> None:
            report(
                HeardTogether(input.peer, (Received(GetAddr()), Received(input.message)))
                if isinstance(input, Heard)
                else input
            )

        monkeypatch.setattr(process, "report", together)
        other = stranger(world)
        txid = send(world, is_private=True)
        world.pass_time(10)
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        assert named(world, known.sent) == [other]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_private_transaction_without_echo_is_announced_to_all(restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Drops, Drops, Prompt, max_peers=2) as world:
        world.nodes[2].is_up = True
        world.boot()
        world.wait_synced(within=60)
        while stranger(world).behaviour.name != "Drops":  # which of the nodes are connected is random
            world.kill()
            world.pass_time(60)
        other = stranger(world)
        txid = send(world, is_private=True)
        world.pass_time(10)
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        assert named(world, known.sent) == [other]
        if restarts:
            other.is_up = False
            world.kill()
        world.pass_time(100)
        assert txid not in world.truth.regtest.mempool
        other.is_up = False
        world.pass_time(900)
        assert txid in world.truth.regtest.mempool
        assert status(world, txid) is TxStatus.PENDING


def test_a_note_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        txid = send(world, is_private=True)
        world.pass_time(10)
        until = world.true_wall() + 100
        world.running.disk.store.commit(Batch(notes={PRIVATE_NOTE: json.dumps({txid.hex(): until}).encode()}))
        world.kill()
        world.pass_time(60)
        engine = world.engine
        own = engine.broadcaster.find(txid)
        assert own is not None
        assert own.private is not None
        assert own.private.until > world.timeline.now


def test_privacy_errors_state_the_reason(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt) as world:
        synced(world)
        txid = send(world, is_private=True)
        world.pass_time(5)
        assert isinstance(answer(world, txid), PrivacyError)
        assert "already connected to every known address" in str(answer(world, txid))
        assert status(world, txid) is None
        public = send(world)
        world.pass_time(30)
        raw = world.truth.regtest.mempool.get(public)
        assert raw is not None
        send(world, is_private=True, raw=raw.raw)
        world.pass_time(1)
        assert "peers already know it" in str(answer(world, public))
    (tmp_path / "bip37").mkdir()
    with stage(tmp_path / "bip37", Mode.BIP37, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        txid = send(world, is_private=True)
        world.pass_time(5)
        assert "BIP-37 filter" in str(answer(world, txid))
        world.pass_time(600)
        assert txid not in world.truth.regtest.mempool


def test_a_private_broadcast_needs_the_mempool(tmp_path: Path) -> None:
    """Peers announce nothing to such a client, so it cannot see that the network relays a transaction."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2, mempool=False) as world:
        announced = list[bytes]()

        def sent(message: Message) -> None:
            if isinstance(message, Inv):
                announced.extend(item.hash for item in message.items)

        world.privacy.sent = sent  # type: ignore[method-assign]
        synced(world)
        txid = send(world, is_private=True)
        world.pass_time(600)
        assert not announced
        assert isinstance(answer(world, txid), PrivacyError)
        assert "mempool" in str(answer(world, txid))


def test_a_private_transaction_waits_for_a_reachable_new_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, max_peers=1) as world:
        synced(world)
        other = stranger(world)
        other.is_up = False
        txid = send(world, is_private=True)
        world.pass_time(200)
        error = answer(world, txid)
        assert isinstance(error, UselessPeerError)
        assert "no peer has it" in str(error)
        world.pass_time(1_000)
        assert status(world, txid) is TxStatus.PENDING
        assert txid not in world.truth.regtest.mempool
        other.is_up = True
        world.pass_time(1_000)
        assert txid in world.truth.regtest.mempool
        assert [named(world, [peer]) for peer, step in steps(world, txid) if step is BroadcastStep.SENT] == [[other]]


def test_a_conflicted_private_transaction_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block confirms a conflict before the new peer requests the transaction."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        process = world.process
        assert process is not None
        coin = next(each for each in world.truth.coins if bytes(each.outpoint) in world.truth.regtest.chain.coins)
        ours, rival = (build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 900))
        report, asked = process.report, []

        def late(input: Input) -> None:
            if isinstance(input, Heard) and isinstance(input.message, GetData) and input.peer in process.private:
                asked.append(world.timeline.now)
                world.truth.regtest.submit_tx(rival)
                world.truth.mine()
                world.timeline.after(20, partial(report, input))
            else:
                report(input)

        monkeypatch.setattr(process, "report", late)
        txid = send(world, is_private=True, raw=ours)
        world.pass_time(120)
        assert len(asked) == 1
        assert isinstance(answer(world, txid), TxConflictError)
        assert steps(world, txid) == []
        assert process.connections.keys().isdisjoint(process.private)
        world.pass_time(900)
        assert steps(world, txid) == []


def test_a_private_child_of_a_refused_parent_is_refused(tmp_path: Path) -> None:
    """No peer accepts the child without its parent."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Rejects, max_peers=2) as world:
        announced = announced_beside(world, "Rejects")
        raw = spend(world)
        parent = Transaction.parse(raw)
        send(world, is_private=True, raw=raw)
        world.pass_time(30)
        assert status(world, parent.txid) is TxStatus.REFUSED
        assert announced.count(parent.wtxid) == 1  # sent only to the new peer
        paid = parent.outputs[0].value
        child = build_tx([LOCKS[0].spends(OutPoint(parent.txid, 0), paid)], [LOCKS[0].pays(paid - 5_000)])
        txid = send(world, is_private=True, raw=child)
        world.pass_time(60)
        assert isinstance(answer(world, txid), PrivacyError)
        assert announced.count(parent.wtxid) == 1
        assert status(world, txid) is None


@pytest.mark.long
@pytest.mark.parametrize("is_private", [False, True])
def test_a_replaced_private_transaction_goes_to_no_further_peer(
    is_private: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a cancelled payment would be sent again after a day."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        old, new = rivals(world)
        txid, wtxid = send(world, is_private=True, raw=old), Transaction.parse(old).wtxid
        world.pass_time(130)
        assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
        mempool = world.truth.regtest.mempool
        mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])  # nodes accept the replacement
        send(world, is_private=is_private, raw=new)
        world.pass_time(130)
        told = announced_from_now(world, monkeypatch)
        world.pass_time(40 * 3_600)
        assert wtxid not in {each for each, _ in told}
        assert status(world, txid) is TxStatus.REPLACED


@pytest.mark.few(1)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_private_transaction_without_its_conflict_stays_private(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        told = announced_from_now(world, monkeypatch)
        old, new = rivals(world)
        txid, wtxid = send(world, is_private=True, raw=old), Transaction.parse(old).wtxid
        world.pass_time(130)
        assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
        mempool = world.truth.regtest.mempool
        mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])
        world.truth.regtest.submit_tx(new)
        world.truth.mine()
        world.pass_time(60)
        assert status(world, txid) is TxStatus.CONFLICTED
        if restarts:
            world.kill()
            world.pass_time(60)
        world.truth.regtest.reorg(1)
        world.wait_synced(within=300)
        world.pass_time(2_000)
        assert status(world, txid) in (TxStatus.PENDING, TxStatus.REPLACED)
        assert (wtxid, False) not in told


def test_a_public_broadcast_ends_the_private_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another own transaction had replaced it."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        old, new = rivals(world)
        txid, wtxid = send(world, is_private=True, raw=old), Transaction.parse(old).wtxid
        world.pass_time(130)
        mempool = world.truth.regtest.mempool
        mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])  # nodes accept the replacement
        replacing = send(world, raw=new)
        world.pass_time(130)
        assert status(world, txid) is TxStatus.REPLACED
        world.kill()
        world.pass_time(100)
        mempool.remove_for([next(tx for tx in mempool if tx.txid == replacing)])
        told = announced_from_now(world, monkeypatch)
        send(world, raw=old)
        world.pass_time(60)
        assert {to_stranger for each, to_stranger in told if each == wtxid} == {False}
        assert status(world, txid) is TxStatus.PENDING


@pytest.mark.long
def test_a_second_private_call_gets_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network relayed the transaction before, so the answer is no error."""
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, is_private=True, raw=raw)
        world.pass_time(130)
        assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
        mempool = world.truth.regtest.mempool
        mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])  # no node has it any longer
        monkeypatch.setattr(Waits, "asks", False)
        world.kill()
        world.pass_time(60)
        told = announced_from_now(world, monkeypatch)
        while not told:
            world.pass_time(4)
        send(world, is_private=True, raw=raw)
        world.pass_time(130)
        assert isinstance(answer(world, txid), Broadcast)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_public_child_does_not_announce_its_private_parent(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers have the parent. An announcement would tell them that it is an own transaction."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        raw = spend(world)
        txid, wtxid = send(world, is_private=True, raw=raw), Transaction.parse(raw).wtxid
        world.pass_time(130)
        assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
        monkeypatch.setattr(Responder, "on_bloom", lambda responder, message: None)  # no peer announces it again
        if restarts:
            world.kill()
        else:
            world.truth.regtest.reorg(1)
        world.pass_time(100)
        told = announced_from_now(world, monkeypatch)
        paid = Transaction.parse(raw).outputs[0].value
        child = build_tx([LOCKS[0].spends(OutPoint(txid, 0), paid)], [LOCKS[0].pays(paid - 500)])
        send(world, raw=child)
        world.pass_time(60)
        assert Transaction.parse(child).txid in world.truth.regtest.mempool
        assert (Transaction.parse(child).wtxid, False) in told
        assert (wtxid, False) not in told


def test_ended_private_transactions_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would announce a forgotten private transaction to all peers."""
    monkeypatch.setattr(privatebroadcast, "MAX_RECORDS", 2)
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        told = announced_from_now(world, monkeypatch)
        raws = [spend(world) for _ in range(3)]
        for number, raw in enumerate(raws):
            txid = send(world, is_private=True, raw=raw)
            world.pass_time(130)
            assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
            if number == 0:  # no node has it any longer
                mempool = world.truth.regtest.mempool
                mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])
            elif number == 1:
                world.truth.mine()
                world.pass_time(60)
                assert status(world, txid) is TxStatus.CONFIRMED
        world.kill()
        world.pass_time(60)
        assert status(world, Transaction.parse(raws[0]).txid) is TxStatus.PENDING
        assert (Transaction.parse(raws[0]).wtxid, False) not in told


@pytest.mark.parametrize("restarts", [False, True])
def test_a_child_of_a_relayed_private_transaction_is_private(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers announce it only once, also before a restart."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, is_private=True, raw=raw)
        world.pass_time(130)
        assert BroadcastStep.ECHOED in {step for _, step in steps(world, txid)}
        monkeypatch.setattr(Responder, "on_bloom", lambda responder, message: None)  # no peer announces it again
        if restarts:
            world.kill()
        else:
            world.truth.regtest.reorg(1)
        world.pass_time(100)
        paid = Transaction.parse(raw).outputs[0].value
        child = build_tx([LOCKS[0].spends(OutPoint(txid, 0), paid)], [LOCKS[0].pays(paid - 500)])
        send(world, is_private=True, raw=child)
        world.pass_time(60)
        assert isinstance(answer(world, Transaction.parse(child).txid), Broadcast)
        assert Transaction.parse(child).txid in world.truth.regtest.mempool


@pytest.mark.few(1)
@pytest.mark.parametrize("effects", range(1, 16))
def test_no_connected_peer_is_told_after_a_crash(effects: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record and the note that it is private are in one commit."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        synced(world)
        told = announced_from_now(world, monkeypatch)
        world.running.steps_left = effects
        raw = spend(world)
        txid = send(world, is_private=True, raw=raw)
        world.pass_time(2)
        if world.process is not None:
            world.kill()
        world.pass_time(100)  # less than the wait for echoes after the handover
        assert (Transaction.parse(raw).wtxid, False) not in told
        world.pass_time(2_000)
        assert (txid in world.truth.regtest.mempool) is (status(world, txid) is not None)


def test_a_public_child_waits_for_its_private_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An announcement of the child would show the parent to the peer."""
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        raw = spend(world)
        paid = Transaction.parse(raw).outputs[0].value
        parent = send(world, is_private=True, raw=raw)
        child = build_tx([LOCKS[0].spends(OutPoint(parent, 0), paid)], [LOCKS[0].pays(paid - 500)])
        monkeypatch.setattr(Waits, "asks", False)
        told = announced_from_now(world, monkeypatch)
        txid = send(world, raw=child)
        world.pass_time(100)
        names = {Transaction.parse(each).wtxid for each in (raw, child)}
        assert not [name for name, to_new_peer in told if name in names and not to_new_peer]
        monkeypatch.setattr(Waits, "asks", True)
        world.pass_time(2_000)
        assert {parent, txid} <= {each.txid for each in world.truth.regtest.mempool}


@pytest.mark.few(1)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_private_transaction_confirmed_before_an_echo_stays_private(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, Mode.COMPACT, NeverEchoes, NeverEchoes, NeverEchoes, max_peers=2) as world:
        synced(world)
        raw = spend(world)
        txid, wtxid = send(world, is_private=True, raw=raw), Transaction.parse(raw).wtxid
        world.pass_time(10)
        world.truth.mine()
        world.pass_time(60)
        assert status(world, txid) is TxStatus.CONFIRMED
        if restarts:
            world.kill()
            world.pass_time(60)
        told = announced_from_now(world, monkeypatch)
        world.truth.regtest.reorg(1)
        world.wait_synced(within=300)
        world.pass_time(2_000)
        assert status(world, txid) is TxStatus.PENDING
        assert (wtxid, False) not in told


def test_a_rejected_private_parent_stays_private_with_its_child(tmp_path: Path) -> None:
    """The public child brings its parent back, and waits for it."""
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Rejects, max_peers=2) as world:
        announced = announced_beside(world, "Rejects")
        raw = spend(world)
        parent = Transaction.parse(raw)
        send(world, is_private=True, raw=raw)
        world.pass_time(10)
        assert status(world, parent.txid) is TxStatus.REFUSED
        paid = parent.outputs[0].value
        coin = LOCKS[0].spends(OutPoint(parent.txid, 0), paid)
        child = Transaction.parse(build_tx([coin], [LOCKS[0].pays(paid - 5_000)]))
        send(world, raw=child.raw)
        world.pass_time(90)  # the wait for echoes ends later
        assert status(world, parent.txid) is status(world, child.txid) is TxStatus.PENDING
        assert announced.count(parent.wtxid) == 1  # sent only to the new peer
        assert child.wtxid not in announced
        world.pass_time(900)
        assert {parent.txid, child.txid} <= {each.txid for each in world.truth.regtest.mempool}


def test_the_error_of_silent_new_peers_promises_no_announcement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, Waits, Waits, Waits, max_peers=1) as world:
        synced(world)
        monkeypatch.setattr(Waits, "asks", False)
        txid = send(world, is_private=True)
        world.pass_time(400)
        error = answer(world, txid)
        assert isinstance(error, UselessPeerError)
        assert "every new peer" not in str(error)
        assert "abandon it to use its coins again" in str(error)
