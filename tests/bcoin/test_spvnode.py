"""bcoin's SPV client against our embedded node: it syncs, sees its payments, spends them, and follows a
reorganisation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from spvfilter.node.blocktree import TipChange
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut, script_pushes
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session
from support.bcoin.process import Bcoin, running_bcoin

pytestmark = [pytest.mark.bcoin, pytest.mark.long]

BLOCKS = 440
PATIENCE_S = 60


class News:
    """Wakes a test when the node's mempool or a connection's filter has changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def on_tip(self, change: TipChange) -> None:
        pass

    def on_tx(self, tx: Transaction) -> None:
        self._changed.set()

    def responder(self, regtest: Regtest, session: Session) -> Responder:
        """A responder that reports when a filter is loaded."""
        changed = self._changed

        class Watched(Responder):
            def on_bloom(self, message: Message) -> None:
                super().on_bloom(message)
                changed.set()

        return Watched(regtest, session)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                await self._changed.wait()
                self._changed.clear()


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture
async def node(news: News) -> AsyncIterator[Node]:
    regtest = Regtest()
    regtest.mine(BLOCKS)
    regtest.listeners.append(news)
    async with Node(regtest, responder=news.responder) as node:
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[Bcoin]:
    """bcoin's client, synced with our node."""
    async with running_bcoin("spv", f"127.0.0.1:{node.port}") as client:
        await client.event("connect", lambda event: event["height"] == BLOCKS)
        yield client


async def watched_script(client: Bcoin, node: Node, news: News) -> bytes:
    """The script of a fresh address, once our node has the filter with it: bcoin sends a filter for every new
    address.
    """
    script = bytes.fromhex((await client.call("address", {"account": "segwit"}))["script"])
    [program] = script_pushes(script)
    await news.until(
        lambda: any(responder.filter is not None and program in responder.filter for responder in node.responders)
    )
    return script


async def confirmed(client: Bcoin, node: Node, *txids: bytes) -> None:
    """Mine a block, in which the client finds these transactions."""
    [mined] = node.regtest.mine()
    event = await client.event("connect", lambda event: event["hash"] == mined[::-1].hex())
    assert event["txs"] == [txid[::-1].hex() for txid in txids]


async def test_it_syncs_sees_a_receipt_and_its_spend_is_confirmed(client: Bcoin, node: Node, news: News) -> None:
    tip = await client.call("tip")
    assert tip == {"height": BLOCKS, "hash": node.regtest.chain.tip.hash[::-1].hex(), "synced": True}
    script = await watched_script(client, node, news)
    paid = node.regtest.pay(TxOut(5_000_000, script))
    await client.event("tx", lambda event: event["txid"] == paid[::-1].hex())
    assert await client.call("balance") == {"confirmed": 0, "unconfirmed": 5_000_000}
    await confirmed(client, node, paid)
    assert await client.call("balance") == {"confirmed": 5_000_000, "unconfirmed": 5_000_000}
    spent = await client.call("send", {"outputs": [["0014" + "77" * 20, 2_000_000]], "account": "segwit"})
    txid = bytes.fromhex(spent["txid"])[::-1]
    await news.until(lambda: txid in node.regtest.mempool)
    await confirmed(client, node, txid)
    left = await client.call("balance")
    assert left["confirmed"] == left["unconfirmed"]
    assert 2_990_000 < left["confirmed"] < 3_000_000
    assert not [event for event in client.events if event["event"] in ("error", "ban", "peer close")]


async def test_it_follows_a_reorganisation(client: Bcoin, node: Node, news: News) -> None:
    """bcoin goes back to the fork at once, but requests the new branch only when the block after it is announced."""
    paid = node.regtest.pay(TxOut(5_000_000, await watched_script(client, node, news)))
    await confirmed(client, node, paid)
    stale, branch = node.regtest.chain.tip.hash, node.regtest.reorg(1)
    await client.event("disconnect", lambda event: event["hash"] == stale[::-1].hex())
    assert await client.call("balance") == {"confirmed": 0, "unconfirmed": 5_000_000}
    await confirmed(client, node, paid)
    assert await client.call("balance") == {"confirmed": 5_000_000, "unconfirmed": 5_000_000}
    connected = [event["hash"] for event in client.events if event["event"] == "connect"]
    assert connected[-3:-1] == [digest[::-1].hex() for digest in branch]
