"""Announced transactions, and nodes on another chain: the client gets elsewhere what one peer withholds or lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.faulty import BlocksOnly
from simulation.truth import copy_chain
from spvfilter.errors import TxRefusedError, UselessPeerError
from spvfilter.kernel import parse_tx, wtxid
from spvfilter.light.engine import mempool
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.store.ledger import TxStatus
from spvfilter.wallet import queue
from spvfilter.wallet.events import MatchConfirmed, MatchFound
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.locks import LOCKS, STRANGER, build_tx
from support.client.regtests import cut
from support.client.sending import answer, send, spend, status, synced
from support.client.stage import Prompt, Stage, answering, stage

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
PATIENT = PeerTimeouts(reply_s=3_600)


def waiting(world: Stage) -> set[bytes]:
    return world.running.books.waiting()


def is_accepted(world: Stage, txid: bytes) -> bool:
    return isinstance(answer(world, txid), Broadcast)


@MODES
def test_a_transaction_may_be_broadcast_again_at_any_time(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, timeouts=PATIENT) as world:
        synced(world)
        raw = spend(world)
        for pause_s, blocks in ((0, 0), (20, 0), (0, 1), (20, 0), (20, 0)):
            txid = send(world, raw=raw)
            world.pass_time(pause_s)
            world.truth.mine(blocks)
            assert is_accepted(world, txid) or not pause_s
        assert sorted(world.running.answered) == [1, 2, 3, 4, 5]
        assert status(world, txid) is TxStatus.CONFIRMED
        assert world.has_found_all()
        assert not waiting(world)


@MODES
def test_a_transaction_that_a_peer_already_has_is_accepted(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, timeouts=PATIENT) as world:
        coins = [OutPoint(world.truth.regtest.pay(STRANGER.pays(9_000)), 0) for _ in range(2)]
        world.truth.mine()
        synced(world)
        paid = zip(coins, (LOCKS[1], p2wpkh(b"\x02" + bytes(32))), strict=True)
        ours, theirs = (build_tx([STRANGER.spends(coin, 9_000)], [lock.pays(8_500)]) for coin, lock in paid)
        for raw in (ours, theirs):
            txid = world.truth.regtest.submit_tx(raw)
            send(world, raw=raw)
            world.pass_time(20)
            assert is_accepted(world, txid)
            assert (txid in waiting(world)) == (raw is ours)
        assert not world.warnings


class MinesAtOnce(Responder):
    """Mines each transaction at once."""

    def on_tx(self, raw: bytes) -> None:
        super().on_tx(raw)
        self.regtest.mine()


@MODES
def test_a_broadcast_is_reported_before_its_confirmation(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, answering(MinesAtOnce, is_honest=True)) as world:
        synced(world)
        txid = send(world)
        world.pass_time(20)
        kinds = [
            type(event)
            for event in world.told
            if isinstance(event, MatchFound | MatchConfirmed) and event.match.txid == txid
        ]
        assert kinds == [MatchFound, MatchFound, MatchConfirmed, MatchConfirmed]
        assert world.has_found_all()


@MODES
def test_peers_that_leave_with_the_transaction_are_not_awaited(mode: Mode, tmp_path: Path) -> None:
    class Leaves(Responder):
        def on_tx(self, raw: bytes) -> None:
            super().on_tx(raw)
            self.end("that was all")

    with stage(tmp_path, mode, *[answering(Leaves, is_honest=True)] * 2, timeouts=PATIENT) as world:
        synced(world)
        txid = send(world)
        world.pass_time(60)
        assert is_accepted(world, txid)


class Malleates(Responder):
    """Sends a transaction back with another witness."""

    def on_tx(self, raw: bytes) -> None:
        other = bytearray(raw)
        other[-5] ^= 1
        self.send(wire.Inv((InvItem(InvType.WTX, wtxid(bytes(other), parse_tx(bytes(other)))),)))
        self.send(wire.Tx(bytes(other)))


@MODES
def test_a_rebroadcast_has_the_original_witness(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, answering(Malleates), Prompt) as world:
        world.nodes[1].is_up = False
        world.truth.receive(LOCKS[1])
        world.truth.mine()
        synced(world)
        coin = world.truth.coins.pop()
        raw = build_tx([coin.spend()], [LOCKS[1].pays(coin.value - 500)])
        txid = send(world, raw=raw)
        world.pass_time(20)
        assert txid in waiting(world)
        assert not world.truth.regtest.mempool
        world.kill()
        world.nodes[0].is_up, world.nodes[1].is_up = False, True
        world.boot()
        world.pass_time(60)
        assert [tx.raw for tx in world.truth.regtest.mempool] == [raw]


class SaysWhy(Responder):
    """States why it refuses a transaction, as Core did before 0.20."""

    says_why = True


@pytest.mark.parametrize("responder", [Responder, SaysWhy])
@MODES
def test_a_transaction_with_missing_inputs_is_refused(mode: Mode, responder: type[Responder], tmp_path: Path) -> None:
    with stage(tmp_path, mode, answering(responder, is_honest=True)) as world:
        synced(world)
        before = world.running.disk.store.views.balance().total
        txid = send(world, raw=build_tx([STRANGER.spends(OutPoint(bytes(32), 0))], [LOCKS[0].pays(777)]))
        world.pass_time(60)
        error = answer(world, txid)
        assert isinstance(error, TxRefusedError)
        ((peer, reason),) = error.refusals
        assert peer == world.nodes[0].addresses[0]
        is_stated = responder is SaysWhy
        assert reason == "bad-txns-inputs-missingorspent (0x10)" if is_stated else "does not have it" in reason
        assert world.running.disk.store.views.balance().total == before
        assert txid not in waiting(world)
        assert status(world, txid) is TxStatus.REFUSED
        world.kill()
        synced(world)
        assert status(world, txid) is TxStatus.REFUSED
        assert txid not in waiting(world)
        assert world.running.disk.store.views.balance().total == before
        assert not world.warnings


@MODES
def test_a_peer_without_transaction_relay_receives_no_announcement(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, BlocksOnly) as world:
        synced(world)
        txid = send(world)
        world.pass_time(200)
        assert isinstance(answer(world, txid), UselessPeerError)
        assert not world.warnings


class Promises(Responder):
    """Announces transactions, and sends none."""

    def on_bloom(self, message: Message) -> None:
        if isinstance(message, wire.Mempool):
            self.send_inv([InvItem(InvType.WTX, number.to_bytes(32, "big")) for number in range(1, 500)])

    def _answer_txs(self) -> None:
        self._requests.clear()


def test_a_peer_that_withholds_transactions_hides_no_payment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MAX_ASKED_UNFILTERED", 10)
    with stage(tmp_path, Mode.COMPACT, answering(Promises), Prompt, mempool_groups=1) as world:
        synced(world)
        for _ in range(3):
            world.truth.others(20)
            world.truth.receive()
            world.pass_time(30)
            assert world.truth.coins[-1].outpoint.txid in waiting(world)


@pytest.mark.parametrize("nodes", [1, 3])
def test_no_payment_in_a_large_mempool_is_missed(nodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool, "MAX_ASKED_UNFILTERED", 10)
    monkeypatch.setattr(queue.Queue, "MOST", 50)
    monkeypatch.setattr(queue.Queue, "MOST_SIZE", 20_000)

    def busy(world: Stage) -> set[bytes]:
        world.truth.others(60)
        for _ in range(20):
            world.truth.receive()
        assert len(list(world.truth.regtest.mempool)) > queue.Queue.MOST
        return {coin.outpoint.txid for coin in world.truth.coins[-20:]}

    with stage(tmp_path, Mode.COMPACT, *[Prompt] * nodes) as world:
        expected = busy(world)
        synced(world)
        world.pass_time(60)
        assert expected <= waiting(world)
        expected |= busy(world)
        world.pass_time(60)
        assert expected <= waiting(world)
        world.truth.mine()
        world.wait_synced(within=60)
        assert world.has_found_all()


# Chains of peers


def branch(world: Stage, kept: int, mined: int) -> Regtest:
    """A chain that shares the first `kept` blocks, and mines others on them."""
    made = copy_chain(world.truth.regtest, world.true_wall)
    cut(made, made.height - kept)
    made.mine(mined, transactions=())
    world.truth.others_blocks.update((block.hash, block) for block in made.chain.active[kept + 1 :])
    return made


class Behind(Prompt):
    """Lacks the last blocks."""

    is_full = is_prompt = False
    kept, mined = 60, 0
    words = "does not know block"

    def view(self) -> Regtest:
        return branch(self.world, self.kept, self.mined)  # type: ignore[arg-type]  # it is a stage


class Forked(Behind):
    """Has a branch with less work."""

    kept, mined = 50, 10
    words = "below the required"


class Elsewhere(Behind):
    """Shares only the genesis block."""

    kept, mined = 0, 10
    words = "has a different chain"


@pytest.mark.parametrize("kind", [Behind, Forked, Elsewhere])
@MODES
def test_a_node_that_is_behind_does_not_prove_the_tip(mode: Mode, kind: type[Behind], tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, kind) as world:
        honest, late = world.nodes
        late.is_up = False
        synced(world)
        world.kill()
        honest.is_up, late.is_up = False, True
        told = len(world.synced)
        world.boot()
        world.pass_time(60)
        assert any(kind.words in str(event.error) for event in world.warnings)
        assert len(world.synced) == told
        assert world.has_found_all()
        world.kill()
        honest.is_up = True
        world.boot()
        world.pass_time(60)
        assert len(world.synced) > told
        assert world.has_found_all()


class Equal(Behind):
    """Has another last block."""

    def view(self) -> Regtest:
        return branch(self.world, self.world.truth.height - 1, 1)  # type: ignore[arg-type]  # it is a stage


@MODES
def test_a_node_on_an_equal_branch_gets_no_warning(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Equal) as world:
        honest, other = world.nodes
        other.is_up = False
        synced(world)
        world.kill()
        honest.is_up, other.is_up = False, True
        warned = len(world.warnings)
        world.boot()
        world.pass_time(10)
        assert [event for event in world.warnings[warned:] if event.address == other.addresses[0]] == []
        other.view.mine()
        world.truth.others_blocks[other.view.chain.tip.hash] = other.view.chain.tip
        world.pass_time(30)
        assert world.synced[-1].hash == other.view.chain.tip.hash
        assert [event for event in world.warnings[warned:] if event.address == other.addresses[0]] == []


class Keeps(Responder):
    """Serves no block and no filter of its own branch."""

    top = 0

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if block.height <= self.top:
            super().on_block_wanted(block, kind)

    def on_filters_wanted(self, asked: FilterRequest) -> None:
        stop = self.regtest.chain.blocks.get(asked.stop_hash)
        if stop is not None and stop.height <= self.top:
            super().on_filters_wanted(asked)


class Longer(Behind):
    responder = Keeps

    def view(self) -> Regtest:
        Keeps.top = self.world.truth.height - 10
        return branch(self.world, Keeps.top, 20)  # type: ignore[arg-type]  # it is a stage


@MODES
def test_an_unserved_longer_chain_does_not_stop_the_search(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Longer, Prompt) as world:
        world.boot()
        world.pass_time(300)
        assert {event.address for event in world.warnings} >= {world.nodes[0].addresses[0]}
        for _ in range(12):
            world.truth.receive()
            world.truth.mine()
        world.wait_synced(within=200)
        assert world.has_found_all()
        assert not world.banned
