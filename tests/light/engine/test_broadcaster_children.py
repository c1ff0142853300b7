"""A peer that announces a child of an own transaction, from somebody else, has the transaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simulation.behaviours.relay import _GivenResponder
from simulation.connection import Connection
from spvfilter.address import script_to_address
from spvfilter.light.engine.requests import AddAccount, RemoveAccount, Request, SearchStart
from spvfilter.light.events import Broadcast, BroadcastStep, Mode
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import Lock, p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages.table import GetData, InvItem, InvType, Message
from spvfilter.wire.session import Session
from support.blocks.locks import LOCKS, STRANGER, build_tx, key
from support.client.sending import MODES, Hoards, answer, send, spend, status, steps, synced
from support.client.stage import Stage, stage


class Keeps(Hoards):
    """Takes transactions, and serves none of them. It serves what a test lets it announce."""

    def given(self, responder: Responder, raw: bytes) -> None:
        pass

    def has(self, responder: Responder, raw: bytes) -> None:
        super().given(responder, raw)


class _IgnoresInv(_GivenResponder):
    def on_inv(self, items: Sequence[InvItem]) -> None:
        pass


class KeepsUnasked(Keeps):
    """Requests no transaction."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _IgnoresInv(view, session, self)


def child_of(raw: bytes, index: int = 0, payee: Lock = STRANGER) -> bytes:
    """A transaction of somebody else that spends an output."""
    tx = Transaction.parse(raw)
    return build_tx([LOCKS[0].spends(OutPoint(tx.txid, index), tx.outputs[0].value)], [payee.pays(1_000)])


def announce(world: Stage, number: int, raw: bytes) -> None:
    """Let a node announce a transaction, and serve it on request."""
    node = world.nodes[number]
    assert isinstance(node.behaviour, Keeps)
    for end in node.ends:
        node.behaviour.has(end.responder, raw)
        end.responder.send_inv([InvItem(InvType.WTX, Transaction.parse(raw).wtxid)])
        end.work()
    world.pass_time(1)


def ask(world: Stage, request: Request) -> None:
    """Let the user ask for a change."""
    token = len(world.wishes.waiting) + 1
    world.wishes.waiting[token] = request
    world.running.ask(token, request)


def requests(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record the hashes of later requests."""
    asked, send_on = list[bytes](), Connection.send

    def sent(connection: Connection, message: Message) -> None:
        if isinstance(message, GetData):
            asked.extend(item.hash for item in message.items)
        send_on(connection, message)

    monkeypatch.setattr(Connection, "send", sent)
    return asked


@pytest.mark.few(1)
@MODES
def test_a_child_proves_that_its_peer_has_the_parent(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Keeps, Keeps) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(17)  # both have it
        assert answer(world, txid) is None
        announce(world, 0, child_of(raw))
        assert isinstance(answer(world, txid), Broadcast)
        world.pass_time(60)
        refused = [peer for peer, step in steps(world, txid) if step is BroadcastStep.REFUSED]
        assert refused == world.nodes[1].addresses


def test_a_later_announcement_of_the_child_counts(tmp_path: Path) -> None:
    """The second peer announces a child that the client has fetched from the first."""
    with stage(tmp_path, Mode.COMPACT, Keeps, Keeps) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(17)  # both have it
        announce(world, 0, child_of(raw))
        announce(world, 1, child_of(raw))
        world.pass_time(60)
        assert {step for _, step in steps(world, txid)} == {BroadcastStep.SENT}


@MODES
def test_a_spend_of_a_missing_output_proves_nothing(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Keeps) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(5)
        announce(world, 0, child_of(raw, 1))
        assert answer(world, txid) is None


@MODES
def test_a_peer_without_a_request_must_serve_the_parent(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have made the child itself from the announcement."""
    with stage(tmp_path, mode, KeepsUnasked) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(5)
        asked = requests(monkeypatch)
        announce(world, 0, child_of(raw))
        assert answer(world, txid) is None
        assert Transaction.parse(raw).wtxid in asked
        node = world.nodes[0]
        assert isinstance(node.behaviour, Keeps)
        for end in node.ends:
            node.behaviour.has(end.responder, raw)
        announce(world, 0, child_of(raw))
        assert isinstance(answer(world, txid), Broadcast)
        assert {step for _, step in steps(world, txid)} == {BroadcastStep.ECHOED}


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("payee", [STRANGER, LOCKS[1]], ids=["stranger", "wallet"])
def test_a_child_proves_the_parent_after_a_restart(mode: Mode, payee: Lock, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Keeps, Keeps) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(17)  # both have it
        announce(world, 0, child_of(raw, payee=payee))
        assert isinstance(answer(world, txid), Broadcast)
        world.kill()
        world.told.clear()
        world.pass_time(25)  # both get it again
        assert {step for _, step in steps(world, txid)} == {BroadcastStep.SENT}
        announce(world, 0, child_of(raw, payee=payee))
        world.pass_time(60)
        refused = [peer for peer, step in steps(world, txid) if step is BroadcastStep.REFUSED]
        assert refused == world.nodes[1].addresses
        assert status(world, txid) is TxStatus.PENDING


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_child_that_pays_an_account_proves_the_parent(
    mode: Mode, restarts: bool, is_removed: bool, tmp_path: Path
) -> None:
    shop = p2wpkh(key(55))
    with stage(tmp_path, mode, Keeps, Keeps) as world:
        synced(world)
        account = WatchList.of_account("shop", [str(script_to_address(shop.script_pubkey, REGTEST))], REGTEST)
        ask(world, AddAccount(account, SearchStart(0)))
        world.pass_time(30)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(17)  # both have it
        if is_removed:
            ask(world, RemoveAccount("shop"))
        if restarts:
            world.pass_time(1)
            world.kill()
            world.pass_time(25)  # both get it again
        announce(world, 0, child_of(raw, payee=shop))
        world.pass_time(60)
        refused = [peer for peer, step in steps(world, txid) if step is BroadcastStep.REFUSED]
        assert refused == world.nodes[1].addresses
        assert status(world, txid) is TxStatus.PENDING
        assert ("shop" in world.engine.books.watch.accounts) is not is_removed
