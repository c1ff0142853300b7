"""Relay of other people's transactions: announced and served, in no books, bounded, forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.relay import Drops, Rejects, Taker
from spvfilter.errors import ParameterError, TxCheckError, TxRefusedError, UselessPeerError
from spvfilter.light.engine import relay
from spvfilter.light.engine.inputs import Abandon, BroadcastAsked as Sending
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint
from spvfilter.protocol import MAX_STANDARD_TX_WEIGHT
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages import Message, Tx
from spvfilter.wire.messages.table import GetData, InvItem, InvType, Reject
from support.blocks.locks import LOCKS, STRANGER, build_tx
from support.client.sending import MODES, Hoards, Waits, announced_from_now, answer, spend, status, synced
from support.client.stage import Prompt, Stage, stage


class AsksForParent(Taker):
    """Drops a transaction and requests its parent, as Core does for an orphan."""

    def given(self, responder: Responder, raw: bytes) -> None:
        parent = Transaction.parse(raw).inputs[0][:32]
        responder.send(GetData((InvItem(InvType.WITNESS_TX, parent),)))


class HasIt(Taker):
    """Says that it already has a transaction, in a reject message (BIP-61)."""

    def given(self, responder: Responder, raw: bytes) -> None:
        responder.send(Reject(b"tx", 0x12, b"txn-already-known", Transaction.parse(raw).txid))


def foreign(number: int = 1, size: int = 0) -> bytes:
    """A transaction that concerns no script of the wallet; nobody knows its input."""
    spent = STRANGER.spends(OutPoint(bytes([7, number // 256, number % 256]) + bytes(29), 0), 10_000)
    return build_tx([spent], [STRANGER.pays(9_000)] * (1 + size // 31))


def send(world: Stage, *raws: bytes, guest: str = "") -> bytes:
    """Send transactions as the guest of a server, parents first. Returns the txid of the last one."""
    world.running.report(Sending(raws[-1], parents=raws[:-1], guest=guest))
    return Transaction.parse(raws[-1]).txid


def kept(world: Stage) -> int:
    return len(world.engine.relay)


@MODES
def test_transaction_of_others_is_served_and_in_no_books(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Hoards, Hoards) as world:
        synced(world)
        events = len(world.told)
        txid = send(world, foreign())
        world.pass_time(10)
        found = answer(world, txid)
        assert isinstance(found, Broadcast)
        assert found.sent
        assert status(world, txid) is None
        assert world.engine.books.facts.record(txid) is None
        assert [each for each in world.told[events:] if getattr(each, "txid", None) == txid] == []
        world.pass_time(relay.RELAY_S + 10)
        assert kept(world) == 0


@MODES
def test_transaction_that_concerns_the_wallet_is_recorded(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        coin = next(each for each in world.truth.coins if bytes(each.outpoint) in world.truth.regtest.chain.coins)
        parent = build_tx([coin.spend()], [STRANGER.pays(coin.value - 500)])
        made = Transaction.parse(parent)
        child = build_tx([STRANGER.spends(OutPoint(made.txid, 0), coin.value - 500)], [STRANGER.pays(1_000)])
        pays = build_tx([STRANGER.spends(OutPoint(bytes([9]) * 32, 0), 10_000)], [LOCKS[0].pays(9_000)])
        for raws in ((parent,), (parent, child), (pays,)):
            txid = send(world, *raws)
            world.pass_time(10)
            assert status(world, txid) is TxStatus.PENDING
        assert kept(world) == 0


def test_own_and_foreign_transactions_are_served_together(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Hoards) as world:
        synced(world)
        own = spend(world)
        first, second = send(world, own), send(world, foreign())
        world.pass_time(10)
        assert isinstance(answer(world, first), Broadcast)
        assert isinstance(answer(world, second), Broadcast)
        assert (status(world, first), status(world, second)) == (TxStatus.PENDING, None)


def test_number_and_size_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_RELAYED", 3)
    monkeypatch.setattr(relay, "MAX_SIZE", 40_000)
    with stage(tmp_path, Mode.COMPACT, Hoards) as world:
        synced(world)
        large = send(world, foreign(1, 39_000))
        send(world, foreign(2))
        too_large = send(world, foreign(3, 2_000))
        third = send(world, foreign(4))
        too_many = send(world, foreign(5))
        again = send(world, foreign(2))
        world.pass_time(10)
        for txid in (too_large, too_many):
            refused = answer(world, txid)
            assert isinstance(refused, ParameterError)
            assert "at most 3 transactions from others" in str(refused)
        for txid in (large, third, again):
            assert isinstance(answer(world, txid), Broadcast)
        heavy = send(world, foreign(6, MAX_STANDARD_TX_WEIGHT // 4))
        world.pass_time(1)
        assert isinstance(answer(world, heavy), ParameterError)
        assert kept(world) == 3
        world.pass_time(relay.RELAY_S)
        assert kept(world) == 0
        txid = send(world, foreign(5))
        world.pass_time(10)
        assert isinstance(answer(world, txid), Broadcast | UselessPeerError)


@pytest.mark.parametrize(("most", "size", "raws"), [(8, 10**6, 4), (100, 8_000, 2)])
def test_one_guest_fills_half_of_the_room(
    most: int, size: int, raws: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_RELAYED", most)
    monkeypatch.setattr(relay, "MAX_SIZE", size)
    with stage(tmp_path, Mode.COMPACT, Hoards) as world:
        synced(world)
        for at, guest in enumerate(("10.0.0.1", "10.0.0.2")):
            txids = [send(world, foreign(9 * at + number, 1_500), guest=guest) for number in range(raws + 1)]
            world.pass_time(10)
            assert [isinstance(answer(world, txid), Broadcast) for txid in txids] == [True] * raws + [False]
            refused = answer(world, txids[-1])
            assert isinstance(refused, ParameterError)
            assert f"transactions from {guest} are relayed" in str(refused)
        assert kept(world) == 2 * raws
        third = send(world, foreign(99), guest="10.0.0.3")
        world.pass_time(10)
        assert isinstance(answer(world, third), Broadcast if size == 8_000 else ParameterError)
        world.pass_time(relay.RELAY_S)
        again = send(world, foreign(98), guest="10.0.0.1")
        world.pass_time(10)
        assert isinstance(answer(world, again), Broadcast)


def test_restart_forgets_transactions_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, Mode.COMPACT, Hoards) as world:
        synced(world)
        txid = send(world, foreign())
        world.pass_time(10)
        assert kept(world) == 1
        world.kill()
        told = announced_from_now(world, monkeypatch)
        world.pass_time(120)
        assert kept(world) == 0
        assert status(world, txid) is None
        assert txid not in [each for each, _ in told]


def test_new_peer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage(tmp_path, Mode.COMPACT, Hoards, Hoards) as world:
        world.boot_without(1)
        told = announced_from_now(world, monkeypatch)
        world.nodes[1].is_up = False
        for end in [*world.nodes[1].ends]:
            end.close()
        world.pass_time(5)
        raw = foreign()
        send(world, raw)
        world.pass_time(5)
        before = len(told)
        world.nodes[1].is_up = True
        world.pass_time(400)
        assert len(told) > before


def test_transaction_that_no_peer_requests_can_be_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Waits, "asks", False)
    with stage(tmp_path, Mode.COMPACT, Waits) as world:
        synced(world)
        txid = send(world, foreign())
        world.pass_time(5)
        assert world.engine.is_unsent(txid)
        world.running.report(Abandon(txid, is_unsent=True))
        world.pass_time(1)
        assert isinstance(answer(world, txid), UselessPeerError)
        assert kept(world) == 0
        monkeypatch.setattr(Waits, "asks", True)
        txid = send(world, foreign(2))
        world.pass_time(5)
        assert not world.engine.is_unsent(txid)
        world.running.report(Abandon(txid, is_unsent=True))
        assert kept(world) == 1


def test_peer_that_requests_the_parent_does_not_know_it(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, AsksForParent) as world:
        synced(world)
        raw = foreign()
        txid = send(world, raw)
        world.pass_time(8)
        assert answer(world, txid) is None
        assert world.engine.lacking(txid) == (Transaction.parse(raw).inputs[0][:32],)


@pytest.mark.slow
def test_rejection_by_all_peers_is_the_answer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Rejects, Rejects) as world:
        synced(world)
        txid = send(world, foreign())
        world.pass_time(10)
        assert isinstance(answer(world, txid), TxRefusedError)
        assert kept(world) == 0


def test_peer_that_drops_it_leaves_no_verdict_for_a_while(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Drops) as world:
        synced(world)
        txid = send(world, foreign())
        world.pass_time(8)
        assert answer(world, txid) is None
        world.pass_time(300)
        assert isinstance(answer(world, txid), Broadcast)


def test_peer_that_says_it_has_it_does_not_reject_it(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, HasIt, HasIt) as world:
        synced(world)
        txid = send(world, foreign())
        world.pass_time(300)
        assert isinstance(answer(world, txid), Broadcast)


def test_transaction_that_no_block_can_contain_is_refused(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        synced(world)
        spent = STRANGER.spends(OutPoint(bytes([7]) * 32, 0), 10_000)
        txid = send(world, build_tx([spent, spent], [STRANGER.pays(9_000)]))
        world.pass_time(1)
        assert isinstance(answer(world, txid), TxCheckError)
        assert kept(world) == 0


def test_without_peers_the_answer_comes_in_time(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Hoards) as world:
        synced(world)
        world.nodes[0].is_up = False
        for end in [*world.nodes[0].ends]:
            end.close()
        world.pass_time(5)
        txid = send(world, foreign())
        world.pass_time(world.engine.options.timeouts.reply_s + 1)
        assert isinstance(answer(world, txid), UselessPeerError)
        world.pass_time(relay.RELAY_S)
        assert kept(world) == 0


def test_another_witness_replaces_one_without_takers(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Drops) as world:
        given, before = list[Message](), world.sent

        def note(peer: int, message: Message, is_private: bool) -> None:
            given.append(message)
            before(peer, message, is_private)

        world.sent = note  # type: ignore[method-assign]
        synced(world)
        good = Transaction.parse(foreign())
        at = good.raw.rindex(good.witnesses[0][0])
        bad = good.raw[:at] + bytes(len(good.witnesses[0][0])) + good.raw[at + len(good.witnesses[0][0]) :]
        assert Transaction.parse(bad).txid == good.txid
        assert Transaction.parse(bad).wtxid != good.wtxid
        for raw in (bad, good.raw):
            send(world, raw)
            world.pass_time(5)
        assert kept(world) == 1
        assert [each.raw for each in given if isinstance(each, Tx)][-1] == good.raw
