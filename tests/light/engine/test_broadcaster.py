"""Own transactions: announced until the network relays them, rejected, in conflict, queued without a peer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import NoneType

import pytest

from simulation.behaviours.relay import Drops, FalseEcho, Rejects, Taker
from spvfilter.errors import ParameterError, TxConflictError, TxRefusedError, UselessPeerError
from spvfilter.light.engine.inputs import Abandon, Heard
from spvfilter.light.events import Broadcast, BroadcastStep, Mode
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchWithdrawn, Reason
from spvfilter.wire.messages.table import Inv, InvItem, InvType, Message, Reject, Tx
from support.blocks.locks import LOCKS, STRANGER, build_tx, key
from support.client.sending import (
    MODES,
    Hoards,
    announced_from_now,
    answer,
    changes,
    send,
    spend,
    status,
    steps,
    synced,
)
from support.client.stage import Kind, Prompt, stage

DAY_S = 86_400


class RejectsAndServes(Hoards):
    """Says that it rejects a transaction, and serves it later."""

    def given(self, responder: Responder, raw: bytes) -> None:
        responder.send(Reject(b"tx", 0x10, b"bad-txns", Transaction.parse(raw).txid))
        self.world.timeline.after(4.0, partial(super().given, responder, raw))


class Leaves(Taker):
    """Disconnects when it gets a transaction, and does not come back."""

    def given(self, responder: Responder, raw: bytes) -> None:
        for node in self.world.nodes:
            if node.behaviour is self:
                node.is_up = False
                self.world.timeline.after(0.0, node.hang_up)


@pytest.mark.few(1)
@MODES
def test_rejection_by_all_peers_frees_the_coins(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Rejects, Rejects) as world:
        synced(world)
        before = world.running.disk.store.views.balance()
        txid = send(world)
        world.pass_time(50)
        error = answer(world, txid)
        assert isinstance(error, TxRefusedError)
        assert sorted(error.refusals) == [
            (f"10.{each}.0.{each}:18444", "mempool min fee not met (0x42)") for each in (1, 2)
        ]
        assert status(world, txid) is TxStatus.REFUSED
        assert changes(world, txid) == [(TxStatus.REFUSED, None)]
        assert world.running.disk.store.views.balance() == before
        assert {each.reason for each in world.told if isinstance(each, MatchWithdrawn)} == {Reason.REFUSED}
        assert not world.warnings  # no peer is banned
        told = len(steps(world, txid))
        world.pass_time(2_000)
        assert len(steps(world, txid)) == told  # the client does not announce it again


# Each row is what the peers do with a transaction, then seconds, the answer to the broadcast, and the status. A reject
# message alone frees no coin: a peer could send it and pass the payment on.
ANSWERS: dict[str, tuple[list[Kind], list[tuple[float, type[object], TxStatus]]]] = {
    "the only peer drops it": ([Drops], [(30, NoneType, TxStatus.PENDING), (60, TxRefusedError, TxStatus.REFUSED)]),
    "the only peer rejects it": ([Rejects], [(30, NoneType, TxStatus.PENDING), (60, TxRefusedError, TxStatus.REFUSED)]),
    "the only peer rejects it and serves it": ([RejectsAndServes], [(200, Broadcast, TxStatus.PENDING)]),
    "one of two peers rejects it": ([Rejects, Prompt], [(30, Broadcast, TxStatus.PENDING)]),
}


@MODES
@pytest.mark.parametrize("case", ANSWERS)
def test_transaction_is_refused_once_every_peer_has_lacked_it(case: str, mode: Mode, tmp_path: Path) -> None:
    nodes, expected = ANSWERS[case]
    with stage(tmp_path, mode, *nodes) as world:
        synced(world)
        txid, begun = send(world), world.timeline.now
        for at, kind, known in expected:
            world.timeline.run(begun + at)
            assert isinstance(answer(world, txid), kind)
            assert status(world, txid) is known
        is_relayed = any(isinstance(node.behaviour, Prompt) for node in world.nodes)
        assert (txid in world.truth.regtest.mempool) == is_relayed


@pytest.mark.few(1)
@MODES
def test_rounded_times_do_not_delay_the_answer(mode: Mode, tmp_path: Path) -> None:
    at, reply_s = 431.51765560206405, 120.0
    assert (at + reply_s) - at < reply_s
    with stage(tmp_path, mode, Drops, Leaves) as world:
        synced(world)
        world.running.lateness = 0.0
        world.timeline.run(at)
        txid = send(world)
        world.timeline.run(at + reply_s - 1)
        assert answer(world, txid) is None  # one peer has left before it decided
        world.timeline.run(at + reply_s + 1)
        assert isinstance(answer(world, txid), TxRefusedError)


@pytest.mark.few(1)
@MODES
def test_a_block_confirms_a_refused_transaction(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Rejects) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(50)
        assert isinstance(answer(world, txid), TxRefusedError)
        world.truth.regtest.submit_tx(raw)  # the peer had lied
        world.truth.mine()
        world.wait_synced(within=60)
        entry = world.running.disk.store.views.transaction(txid)
        assert entry is not None
        assert (entry.status, entry.is_own) == (TxStatus.CONFIRMED, True)
        assert world.has_found_all()


@pytest.mark.few(1)
@MODES
def test_a_peer_that_announces_first_is_reported_as_echo(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt, Prompt, Prompt) as world:
        synced(world)
        txid = send(world)
        world.pass_time(20)
        told = steps(world, txid)
        assert {step for _, step in told} == {BroadcastStep.SENT, BroadcastStep.ECHOED}
        assert len(told) == len(set(told))
        sent = {peer for peer, step in told if step is BroadcastStep.SENT}
        assert not sent & {peer for peer, step in told if step is BroadcastStep.ECHOED}
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        assert {*known.sent, *known.echoed} <= {peer for peer, _ in told}
        world.truth.mine()
        world.wait_synced(within=60)
        world.pass_time(5)
        assert changes(world, txid) == [(TxStatus.CONFIRMED, None)]


@pytest.mark.few(1)
@MODES
def test_false_echoes_do_not_stop_a_broadcast(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, FalseEcho, FalseEcho, FalseEcho, FalseEcho, FalseEcho, Prompt) as world:
        world.nodes[5].is_up = False
        synced(world)
        txids = [send(world) for _ in range(4)]
        world.pass_time(60)
        assert sum(any(step is BroadcastStep.ECHOED for _, step in steps(world, txid)) for txid in txids) >= 3
        world.nodes[5].is_up = True
        world.pass_time(3 * 3_600)
        assert all(txid in world.truth.regtest.mempool for txid in txids)


@pytest.mark.few(1)
@MODES
def test_after_a_restart_other_peers_get_the_transaction(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards, Prompt) as world:
        world.nodes[1].is_up = False
        synced(world)
        txid = send(world)
        world.pass_time(10)
        assert isinstance(answer(world, txid), Broadcast)
        world.kill()
        world.pass_time(60)
        assert world.process is not None
        world.nodes[1].is_up = True
        world.nodes[0].is_up = False
        world.pass_time(400)
        assert txid in world.truth.regtest.mempool


def test_a_transaction_is_stored_before_a_peer_has_it(tmp_path: Path) -> None:
    for effects in (1, 2, 3, 4, 6, 9):
        folder = tmp_path / str(effects)
        folder.mkdir()
        with stage(folder, Mode.COMPACT, Hoards) as world:
            synced(world)
            txid = send(world)
            world.running.steps_left = effects
            world.pass_time(120)
            behaviour = world.nodes[0].behaviour
            assert isinstance(behaviour, Hoards)
            assert txid not in behaviour.kept or status(world, txid) is TxStatus.PENDING


@MODES
@pytest.mark.parametrize("is_private", [False, True])
def test_a_transaction_abandoned_before_its_commit_reaches_no_peer(
    mode: Mode, is_private: bool, tmp_path: Path
) -> None:
    """The database is slow, and the user may spend the coins in another transaction."""
    if is_private and mode is Mode.BIP37:
        return
    with stage(tmp_path, mode, Hoards, Hoards, max_peers=1 if is_private else 2) as world:
        synced(world)
        world.running.disk.slowness = 5.0
        txid, books = send(world, is_private=is_private), world.engine.books
        while not books.facts.is_without_block(txid):
            world.pass_time(0.001)
        assert status(world, txid) is None
        world.running.report(Abandon(txid))
        world.pass_time(600)
        assert status(world, txid) is TxStatus.ABANDONED
        assert not [step for _, step in steps(world, txid) if step is BroadcastStep.SENT]
        for node in world.nodes:
            assert isinstance(node.behaviour, Hoards)
            assert txid not in node.behaviour.kept
        assert not world.warnings


@pytest.mark.few(1)
@pytest.mark.parametrize("skew_s", [-20 * DAY_S, 20 * DAY_S])
def test_a_wrong_clock_at_the_start_expires_nothing(skew_s: int, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Hoards, Prompt) as world:
        world.nodes[1].is_up = False
        synced(world)
        before = send(world)
        world.pass_time(10)
        world.set_skew(skew_s)
        world.kill()
        world.pass_time(120)
        meanwhile = send(world)
        world.pass_time(60)
        world.set_skew(0)
        world.kill()
        world.pass_time(300)
        assert {status(world, txid) for txid in (before, meanwhile)} == {TxStatus.PENDING}
        assert not [each for each in world.told if isinstance(each, MatchWithdrawn)]


@MODES
def test_a_confirmed_conflict_is_reported_with_its_txid(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards, Prompt) as world:
        world.nodes[1].is_up = False
        synced(world)
        coin = world.truth.coins[-1]
        ours, theirs = (build_tx([coin.spend()], [STRANGER.pays(coin.value - fee)]) for fee in (500, 600))
        txid = send(world, raw=ours)
        world.pass_time(10)
        assert isinstance(answer(world, txid), Broadcast)
        world.nodes[1].is_up = True
        world.nodes[0].is_up = False
        world.truth.regtest.submit_tx(theirs)
        world.truth.mine()
        world.break_lines()
        world.wait_synced(within=900)
        world.pass_time(10)
        assert changes(world, txid)[-1] == (TxStatus.CONFLICTED, Transaction.parse(theirs).txid)


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_spend_of_foreign_coins_is_announced_after_a_reorganization(
    mode: Mode, restarts: bool, tmp_path: Path
) -> None:
    """No node has the transaction: the new blocks come from a miner without it."""
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        regtest = world.truth.regtest
        coin = OutPoint(regtest.pay(STRANGER.pays(90_000)), 0)
        regtest.mine()
        synced(world)
        height = regtest.height
        txid = send(world, raw=build_tx([STRANGER.spends(coin, 90_000)], [STRANGER.pays(80_000)]))
        world.pass_time(60)
        assert txid in regtest.mempool
        regtest.mine()
        world.wait_synced(within=300)
        world.pass_time(10)
        assert status(world, txid) is TxStatus.CONFIRMED
        if restarts:
            world.kill()
            world.pass_time(60)
        regtest.reorg(regtest.height - height)
        regtest.evict(txid)
        world.wait_synced(within=300)
        world.pass_time(60)
        assert [each for each, _ in changes(world, txid)] == [TxStatus.CONFIRMED, TxStatus.PENDING]
        assert txid in regtest.mempool
        regtest.mine()
        world.wait_synced(within=300)
        world.pass_time(10)
        assert status(world, txid) is TxStatus.CONFIRMED


@pytest.mark.few(1)
@MODES
def test_a_spend_of_foreign_coins_is_found_after_a_reorganization(mode: Mode, tmp_path: Path) -> None:
    """The filters of peers do not match it: it was confirmed, and no entry matches it."""
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        regtest = world.truth.regtest
        coin = OutPoint(regtest.pay(STRANGER.pays(90_000)), 0)
        regtest.mine()
        synced(world)
        raw = build_tx([STRANGER.spends(coin, 90_000)], [STRANGER.pays(80_000)])
        txid = send(world, raw=raw)
        world.pass_time(60)
        regtest.mine()
        world.wait_synced(within=300)
        world.kill()
        world.pass_time(60)
        assert status(world, txid) is TxStatus.CONFIRMED
        regtest.reorg(1, transactions=[[], [raw]], blocks=2)
        world.wait_synced(within=300)
        world.pass_time(10)
        assert status(world, txid) is TxStatus.CONFIRMED


@pytest.mark.few(1)
@MODES
def test_a_coinbase_spend_returns_with_its_chain(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        regtest = world.truth.regtest
        height = regtest.height
        regtest.mine(to=LOCKS[0].script_pubkey)
        reward = regtest.chain.txs(regtest.chain.tip)[0]
        first = regtest.mine(100)[-1]
        synced(world)
        value = reward.outputs[0].value
        spend = LOCKS[0].spends(OutPoint(reward.txid, 0), value)
        txid = send(world, raw=build_tx([spend], [STRANGER.pays(value - 500)]))
        world.pass_time(60)
        assert txid in regtest.mempool
        regtest.reorg(regtest.height - height)
        world.wait_synced(within=600)
        world.pass_time(10)
        assert txid not in regtest.mempool
        assert status(world, txid) is TxStatus.CONFLICTED
        regtest.mine(2, on=first)
        world.wait_synced(within=600)
        world.pass_time(60)
        assert status(world, txid) is TxStatus.PENDING
        assert changes(world, txid)[-1] == (TxStatus.PENDING, None)
        assert txid in regtest.mempool


@pytest.mark.few(1)
@MODES
def test_a_rejection_names_the_conflict_that_peers_have(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        coin = world.truth.coins[-1]
        ours, theirs = (build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 600))
        world.truth.regtest.submit_tx(theirs)
        world.pass_time(10)
        txid = send(world, raw=ours)
        world.pass_time(60)
        error = answer(world, txid)
        assert isinstance(error, TxConflictError)
        assert (error.by, error.height) == (Transaction.parse(theirs).txid, None)
        assert status(world, txid) is TxStatus.REFUSED
        assert status(world, Transaction.parse(theirs).txid) is TxStatus.PENDING  # it is canonical again


@pytest.mark.few(1)
@MODES
def test_a_new_entry_causes_no_announcement(mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each new address would reveal the own transactions to all peers."""
    with stage(tmp_path, mode, Prompt, Prompt, Prompt) as world:
        announced: list[Message] = []
        monkeypatch.setattr(world.privacy, "sent", announced.append)
        synced(world)
        txid = send(world)
        world.pass_time(600)
        told = steps(world, txid)
        assert [step for _, step in told].count(BroadcastStep.ECHOED) == 2
        announced.clear()
        world.watch_lock(p2wpkh(key(78)))
        world.pass_time(600)
        assert not [message for message in announced if isinstance(message, Inv)]
        assert steps(world, txid) == told


class TakesTime(Hoards):
    """Serves a new transaction only after its next round of announcements, as Core does."""

    def given(self, responder: Responder, raw: bytes) -> None:
        self.world.timeline.after(20, partial(super().given, responder, raw))


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_foreign_conflict_does_not_answer_a_broadcast(is_kept: bool, mode: Mode, tmp_path: Path) -> None:
    """An attacker may have made it. After an error, the user could pay a second time with other coins."""
    with stage(tmp_path, mode, TakesTime if is_kept else Drops) as world:
        synced(world)
        coin = world.truth.coins[-1]
        ours, theirs = (build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 600))
        rival = Transaction.parse(theirs).txid
        txid = send(world, raw=ours)
        world.pass_time(5)
        (peer,) = world.running.connections
        for message in (Inv((InvItem(InvType.TX, rival),)), Tx(theirs)):
            world.running.report(Heard(peer, message))
        world.pass_time(5)
        assert (status(world, txid), answer(world, txid)) == (TxStatus.PENDING, None)
        world.pass_time(60)
        known = answer(world, txid)
        if is_kept:
            assert isinstance(known, Broadcast)
        else:
            assert isinstance(known, TxConflictError)
            assert known.by == rival


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_foreign_conflict_does_not_stop_announcements(mode: Mode, restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards, Prompt) as world:
        world.nodes[1].is_up = False
        synced(world)
        coin = world.truth.coins[-1]
        ours, foreign = (build_tx([coin.spend()], [LOCKS[0].pays(coin.value - fee)]) for fee in (500, 600))
        txid = send(world, raw=ours)
        world.pass_time(5)
        (peer,) = world.running.connections
        for message in (Inv((InvItem(InvType.TX, Transaction.parse(foreign).txid),)), Tx(foreign)):
            world.running.report(Heard(peer, message))
        world.pass_time(5)
        assert status(world, txid) is TxStatus.PENDING
        if restarts:
            world.kill()
        world.nodes[1].is_up = True
        world.pass_time(400)
        assert txid in world.truth.regtest.mempool


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_broadcast_without_a_peer_is_queued_in_the_books(mode: Mode, restarts: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards) as world:
        synced(world)
        world.nodes[0].is_up = False
        world.nodes[0].hang_up()
        world.pass_time(1)
        txid = send(world)
        world.pass_time(1)
        assert status(world, txid) is TxStatus.PENDING
        assert answer(world, txid) is None
        if restarts:
            world.kill()
        world.pass_time(200)
        if not restarts:
            error = answer(world, txid)
            assert isinstance(error, UselessPeerError)
            assert "the wallet keeps it" in str(error)
        assert status(world, txid) is TxStatus.PENDING
        world.nodes[0].is_up = True
        world.pass_time(600)
        assert [step for _, step in steps(world, txid)] == [BroadcastStep.SENT]


@MODES
def test_a_queued_broadcast_that_is_abandoned_is_never_announced(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        world.nodes[0].is_up = False
        world.nodes[0].hang_up()
        world.pass_time(1)
        txid = send(world)
        world.running.report(Abandon(txid))
        world.pass_time(1)
        assert isinstance(answer(world, txid), TxConflictError)
        assert status(world, txid) is TxStatus.ABANDONED
        told = announced_from_now(world, monkeypatch)
        world.nodes[0].is_up = True
        world.pass_time(1_000)
        assert not told
        assert txid not in world.truth.regtest.mempool


@pytest.mark.few(3)
@MODES
@pytest.mark.parametrize("after_s", [0.5, 4.0, 11.0, 25.0])
def test_the_answer_comes_soon_after_a_peer_serves_it(mode: Mode, after_s: float, tmp_path: Path) -> None:
    """Core serves a new transaction only after its next round of announcements."""

    class Delays(Hoards):
        def given(self, responder: Responder, raw: bytes) -> None:
            self.world.timeline.after(after_s, partial(super().given, responder, raw))

    with stage(tmp_path, mode, Delays) as world:
        synced(world)
        txid = send(world)
        world.pass_time(after_s)
        assert answer(world, txid) is None
        world.pass_time(3)
        assert isinstance(answer(world, txid), Broadcast)


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("is_private", [False, True])
def test_the_wallet_refuses_a_wrong_transaction_at_once(mode: Mode, is_private: bool, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt, max_peers=1) as world:
        synced(world)
        coin = world.truth.coins[-1]
        paid = send(world, raw=build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 500)]))
        world.pass_time(60)
        world.truth.mine()
        world.wait_synced(within=60)
        pay = LOCKS[0].pays(coin.value)
        spends = [LOCKS[0].spends(OutPoint(paid, index), coin.value - 500) for index in (0, 1)]
        exceeds, absent = (build_tx([spend], [pay]) for spend in spends)
        spent = build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 900)])
        twice = build_tx([spends[0]] * 2, [LOCKS[0].pays(1)])
        for raw, reason in (
            (exceeds, "its outputs are worth"),
            (absent, "it spends output 1 of"),
            (spent, "which is in a block"),
            (twice, "it spends an output twice"),
        ):
            txid = send(world, raw=raw, is_private=is_private and mode is Mode.COMPACT)
            world.pass_time(0.1)
            error = answer(world, txid)
            assert isinstance(error, ParameterError)
            assert reason in str(error)
            assert status(world, txid) is None
