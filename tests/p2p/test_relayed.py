"""Relayed transactions from real nodes over loopback: several peers, peers that stay silent, nodes that restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from spvfilter.errors import ParameterError
from spvfilter.network import REGTEST
from spvfilter.node import Node, Regtest, Responder
from spvfilter.p2p import Limits, RelayedTransactions, relayed, txrequests
from spvfilter.p2p.clock import Clock
from spvfilter.primitives import TxOut
from spvfilter.wire.events import Ready, SessionEvent
from spvfilter.wire.messages import Tx
from spvfilter.wire.messages.table import Message
from support.blocks import build
from support.blocks.build import TxIn, tx

pytestmark = pytest.mark.usefixtures("nothing_is_left")
PATIENCE_S = 30.0
LIMITS = Limits(retry_s=0.01, max_retry_s=0.05)


class Silent(Responder):
    """A peer that announces transactions and never sends them."""

    def send(self, message: Message) -> None:
        if not isinstance(message, Tx):
            super().send(message)


def at(node: Node) -> str:
    return f"{node.host}:{node.port}"


async def connected(txs: RelayedTransactions, *nodes: Node) -> None:
    """Wait until these nodes are connected, and ready to announce transactions."""

    def is_ready(node: Node) -> bool:
        return any(each.session.ready and each.relay for each in node.responders)

    async with asyncio.timeout(PATIENCE_S):
        while txs.connected != len(nodes) or not all(map(is_ready, nodes)):  # noqa: ASYNC110  no event tells it
            await asyncio.sleep(0.001)


async def taken(txs: RelayedTransactions, count: int) -> set[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        return {await anext(txs) for _ in range(count)}


def paid(regtest: Regtest, count: int) -> set[bytes]:
    txids = [regtest.pay(TxOut(1_000 + number, b"\x51")) for number in range(count)]
    return {tx.raw for tx in regtest.mempool if tx.txid in txids}


async def test_transactions_of_two_peers_are_yielded_once() -> None:
    regtest = Regtest()
    regtest.mine(120)
    async with Node(regtest) as one, Node(regtest) as two:
        async with RelayedTransactions([at(one), at(two)], REGTEST, limits=LIMITS) as txs:
            await connected(txs, one, two)
            assert paid(regtest, 10) == await taken(txs, 10)
            assert paid(regtest, 1) == await taken(txs, 1)
            assert (txs.received, txs.repeated, txs.unanswered) == (11, 0, 0)
        assert txs.connected == 0


async def test_another_peer_is_asked_for_an_unsent_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txrequests, "REQUEST_S", 0.2)
    monkeypatch.setattr(relayed, "LOOK_S", 0.05)
    regtest = Regtest()
    regtest.mine(120)
    async with Node(regtest, responder=Silent) as silent, Node(regtest) as honest:
        async with RelayedTransactions([at(silent)], REGTEST, limits=LIMITS) as txs:
            await connected(txs, silent)
            paid(regtest, 3)
            async with asyncio.timeout(PATIENCE_S):
                while txs.unanswered < 3:  # noqa: ASYNC110  no event tells it
                    await asyncio.sleep(0.01)
            assert txs.received == 0
        async with RelayedTransactions([at(silent), at(honest)], REGTEST, limits=LIMITS) as txs:
            await connected(txs, silent, honest)
            assert paid(regtest, 5) == await taken(txs, 5)


async def test_a_node_that_returns_is_reconnected() -> None:
    regtest = Regtest()
    regtest.mine(120)
    async with Node(regtest) as node:
        port = node.port
        txs = RelayedTransactions([at(node)], REGTEST, limits=LIMITS)
        await txs.__aenter__()
        await connected(txs, node)
    await connected(txs)
    async with Node(regtest, port=port) as again:
        await connected(txs, again)
        assert paid(regtest, 2) == await taken(txs, 2)
        await txs.__aexit__(None, None, None)


async def test_peers_wait_while_no_transactions_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    regtest = Regtest()
    regtest.mine(140)
    size = len(paid(regtest, 1).pop())
    regtest.mine()
    monkeypatch.setattr(relayed, "WAITING", 5 * size)
    monkeypatch.setattr(relayed, "LOOK_S", 0.01)
    now = 0.0
    monkeypatch.setattr(relayed, "Clock", lambda: Clock(monotonic=lambda: now))
    async with Node(regtest) as node, RelayedTransactions([at(node)], REGTEST, limits=LIMITS) as txs:
        await connected(txs, node)
        expected = paid(regtest, 30)
        async with asyncio.timeout(PATIENCE_S):
            while txs.received < 6:  # noqa: ASYNC110  no event tells it
                await asyncio.sleep(0.001)
        now += 2 * txrequests.REQUEST_S
        await asyncio.sleep(0.05)
        assert txs.received == 6  # five wait in the queue, and one is next
        assert txs.unanswered == 0  # the responses of the peer are not read yet
        assert await taken(txs, 30) == expected


async def test_large_transaction_is_hashed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    large, original, calls = tx([TxIn(bytes(32), 0)], [build.TxOut(1, b"\x6a" + bytes(70_000))]), asyncio.to_thread, []

    class Large(Responder):
        """A peer that sends a large transaction in place of every other one."""

        def send(self, message: Message) -> None:
            super().send(Tx(large) if isinstance(message, Tx) else message)

    async def to_thread(work: Callable[..., object], *args: object) -> object:
        calls.append(args)
        return await original(work, *args)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    regtest = Regtest()
    regtest.mine(120)
    async with Node(regtest, responder=Large) as node, RelayedTransactions([at(node)], REGTEST, limits=LIMITS) as txs:
        await connected(txs, node)
        paid(regtest, 2)
        assert await taken(txs, 1) == {large}
        async with asyncio.timeout(PATIENCE_S):
            while not txs.repeated:  # noqa: ASYNC110  no event tells it
                await asyncio.sleep(0.001)
        assert calls == [(large,), (large,)]


async def test_pauses_grow_while_a_peer_closes_every_connection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spvfilter.p2p.relayed")

    class Leaving(Responder):
        """A peer that ends the connection after the handshake."""

        def on_event(self, event: SessionEvent) -> None:
            super().on_event(event)
            if isinstance(event, Ready):
                self.end("enough")

    async with Node(responder=Leaving) as node:
        limits = Limits(retry_s=0.01, max_retry_s=0.04)
        async with RelayedTransactions([at(node)], REGTEST, limits=limits), asyncio.timeout(PATIENCE_S):
            while caplog.text.count("reconnecting in") < 4:  # noqa: ASYNC110  no event tells it
                await asyncio.sleep(0.001)
    pauses = [record.message.rpartition(" in ")[2] for record in caplog.records if "reconnecting" in record.message]
    assert pauses[:4] == ["0.01 s", "0.02 s", "0.04 s", "0.04 s"]


async def test_unexpected_failure_is_raised_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("a bug")

    regtest = Regtest()
    regtest.mine(120)
    async with Node(regtest) as node:
        with pytest.raises(RuntimeError, match="a bug"):
            async with RelayedTransactions([at(node)], REGTEST, limits=LIMITS) as txs:
                await connected(txs, node)
                monkeypatch.setattr(txrequests.TxRequests, "announced", fail)
                paid(regtest, 1)
                await taken(txs, 1)


async def test_wrong_peers_are_refused() -> None:
    for wrong in ([], ["a b"], ["127.0.0.1:0"], "127.0.0.1:8333"):
        with pytest.raises(ParameterError):
            RelayedTransactions(wrong)
    with pytest.raises(ParameterError, match="used with `async with`"):
        await anext(RelayedTransactions(["127.0.0.1"]))
