"""The link between server and client, without sockets or a database: which transactions it reads, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

pytest.importorskip("aiorpcx")

from spvfilter.chain import HeaderChain
from spvfilter.electrum.histories import script_hash_of
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import FindReserved, SendTransactions
from spvfilter.electrum.wallet import WalletLink
from spvfilter.errors import EventGapError
from spvfilter.light.client import LightClient
from spvfilter.light.stream import EventHub, EventStream
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.store.scriptviews import OutputEffect, TxEffects
from spvfilter.store.views import Snapshot
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, RunStarted, TxReplaced, WalletEvent
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import build_tx

SCRIPT = bytes.fromhex("0014" + "11" * 20)
HIDDEN = bytes((0xFF,)) * 32  # a parent that the wallet does not contain
BLOCK = bytes(32)


class Client:
    """A client whose transactions and events are made up."""

    def __init__(self) -> None:
        self.chain, self.watch = HeaderChain(REGTEST), WatchList(REGTEST)
        self.hub = EventHub(0, self._load)
        self.txs: dict[bytes, TxEffects] = {}
        self.reads: list[set[bytes] | None] = []  # None stands for all transactions
        self.while_reading: Callable[[], None] = lambda: None

    async def _load(self, since: int, limit: int) -> list[WalletEvent]:
        raise EventGapError(since, self.hub.sequence)

    def tell(self, event: WalletEvent, *, dropped: int = 0) -> None:
        """Report an event, after some that the database has dropped."""
        self.hub.put([replace(event, sequence=self.hub.sequence + 1 + dropped)])

    def pay(self, *parents: bytes, dropped: int = 0) -> bytes:
        """Add an unconfirmed payment, and report it."""
        txid = len(self.txs).to_bytes(32, "big")
        self.txs[txid] = TxEffects(txid, None, 0, (OutputEffect(SCRIPT, txid + bytes(4), 5, False),), parents=parents)
        self.tell(TxReplaced(txid, bytes(32)), dropped=dropped)
        return txid

    async def effects(self, txids: Collection[bytes] | None = None) -> Snapshot[TxEffects]:
        self.reads.append(None if txids is None else {*txids})
        found = [each for txid, each in self.txs.items() if txids is None or txid in txids]
        for _ in range(3):
            await asyncio.sleep(0)
        self.while_reading()
        return Snapshot(found, self.hub.sequence)

    def events(self, since: int) -> EventStream:
        return EventStream(self.hub, since)

    async def reserved(self) -> list[bytes]:
        """The outpoints that unconfirmed transactions spend."""
        self.while_reading()
        pending = [each for each in self.txs.values() if each.height is None]
        return [effect.outpoint for each in pending for effect in each.effects if effect.is_spend]

    # Sending: no peer gives a verdict in time

    sending: Collection[bytes] = ()
    unsent: Collection[bytes] = ()  # transactions that no peer has requested
    missing: Collection[bytes] = ()

    async def relay(self, tx: Transaction, *, parents: Collection[Transaction], guest: str) -> None:
        raise TimeoutError

    def is_sending(self, txid: bytes) -> bool:
        return txid in self.sending

    async def abandon_unsent(self, txid: bytes) -> bool:
        return txid in self.unsent

    def missing_parents(self, txid: bytes) -> Collection[bytes]:
        return self.missing


@asynccontextmanager
async def linked(client: Client) -> AsyncIterator[WalletLink]:
    """A link that follows a client."""
    link = WalletLink(cast(LightClient, client), ElectrumLimits(), {})

    async def tell(changed: Collection[str]) -> None:
        """No session wants to know."""

    following = asyncio.create_task(link.follow(tell, await link.load()))
    async with asyncio.timeout(20):
        for _ in range(9):
            await asyncio.sleep(0)
        assert link.is_current
        client.reads.clear()
        yield link
        client.hub.end(None)
        await following


def listed(link: WalletLink) -> int:
    return len(link.state.histories.history(script_hash_of(SCRIPT)))


async def test_histories_include_each_event_whenever_it_came() -> None:
    client = Client()
    async with linked(client) as link:
        for first in range(10):
            for second in range(10):
                client.pay()
                for _ in range(first):
                    await asyncio.sleep(0)
                client.pay()
                for _ in range(second):
                    await asyncio.sleep(0)
                await link.catch_up()
                assert listed(link) == len(client.txs), (first, second)


async def test_answers_do_not_wait_for_events_that_never_end() -> None:
    client = Client()
    async with linked(client) as link:
        client.while_reading = lambda: None if len(client.reads) > 9 else [client.pay()].clear()
        client.pay()
        await link.catch_up()
        assert len(client.reads) <= 2
        assert listed(link) >= 1


async def test_gap_in_the_events_reads_everything_again() -> None:
    client = Client()
    async with linked(client) as link:
        for dropped, is_all in ((0, False), (3, True), (0, False)):
            txid = client.pay(dropped=dropped)
            await link.catch_up()
            assert client.reads == [None if is_all else {txid}]
            client.reads.clear()
        client.tell(RunStarted(bytes(16)), dropped=1_000_000)
        for _ in range(1_001):  # more than the memory keeps, so the database would have the first ones
            client.pay()
        await link.catch_up()
        assert client.reads == [None]
        assert listed(link) == len(client.txs)


async def test_start_of_a_run_is_no_gap() -> None:
    client = Client()
    async with linked(client) as link:
        client.tell(RunStarted(bytes(16)), dropped=1_000_000)
        txid = client.pay()
        await link.catch_up()
        assert client.reads == [{txid}]


@pytest.mark.parametrize(("event", "reads"), [(BlockConnected(1, BLOCK), [0]), (BlockDisconnected(1, BLOCK), [0, 1])])
async def test_a_block_reads_children_of_hidden_parents(event: WalletEvent, reads: list[int]) -> None:
    """Only blocks change a parent that no event names."""
    client = Client()
    child, sibling = client.pay(HIDDEN), client.pay(HIDDEN)
    client.pay()
    client.txs[child] = client.txs[child]._replace(has_unconfirmed_parent=True)
    async with linked(client) as link:
        for _ in range(2):
            client.tell(event)
            await link.catch_up()
        assert client.reads == [{(child, sibling)[at] for at in reads}] * 2
        client.reads.clear()
        txid = client.pay()
        await link.catch_up()
        assert client.reads == [{txid}]


PARENT = build_tx([TxIn(OutPoint(HIDDEN, 0))], [TxOut(9_000, SCRIPT)])
PARENT_ID = Transaction.parse(PARENT).txid
CHILD = build_tx([TxIn(OutPoint(PARENT_ID, 0))], [TxOut(8_000, SCRIPT)])
CHILD_ID = Transaction.parse(CHILD).txid


async def sent(link: WalletLink, *raws: bytes) -> list[str | None]:
    found = await link.settle(SendTransactions(raws, "127.0.0.1", lambda errors: errors))
    return cast(list[str | None], found)


async def test_parents_of_a_package_are_read_again() -> None:
    """No event names a parent that does not concern the wallet, but it changes the row of its child."""
    client = Client()
    async with linked(client) as link:
        child = client.pay(PARENT_ID)
        await link.catch_up()
        client.reads.clear()
        assert await sent(link, CHILD) == [None]
        await link.catch_up()
        assert client.reads == []
        assert await sent(link, PARENT, CHILD) == [None, None]
        await link.catch_up()
        assert client.reads == [{PARENT_ID, child}]


async def test_transaction_without_a_verdict_is_sent_unless_abandoned() -> None:
    client = Client()
    async with linked(client) as link:
        client.unsent = {PARENT_ID}
        lost = "not sent: no peer requested it in time, and it was abandoned. Connect to a node and send it again"
        assert await sent(link, PARENT) == [lost]
        assert await sent(link, PARENT, CHILD) == [lost, None]
        client.sending = {PARENT_ID}  # since earlier, so the client continues
        assert await sent(link, PARENT) == [None]
        client.missing = [PARENT_ID, HIDDEN]
        named = f"{hash_to_hex(PARENT_ID)}, {hash_to_hex(HIDDEN)}"
        lacking = f"a peer received it, but does not know the transaction that it spends from: {named}"
        assert await sent(link, CHILD) == [lacking]


async def test_coin_is_not_listed_while_a_block_confirms_its_spend() -> None:
    client, script_hash = Client(), script_hash_of(SCRIPT)
    coin, spend = client.pay(), client.pay()
    client.txs[coin] = client.txs[coin]._replace(height=1)
    spent = OutputEffect(SCRIPT, coin + bytes(4), 5, True)
    client.txs[spend] = client.txs[spend]._replace(effects=(spent,))

    def confirm() -> None:
        if client.txs[spend].height is None:
            client.txs[spend] = client.txs[spend]._replace(height=2)
            client.tell(TxReplaced(spend, bytes(32)))

    async with linked(client) as link:
        listed = FindReserved(lambda reserved: link.state.histories.unspent(script_hash, reserved))
        assert await link.settle(listed) == []
        client.while_reading = confirm
        assert await link.settle(listed) == []
