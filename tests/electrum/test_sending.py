"""Transactions that wallets send to the server: stored or relayed, refused, and given up."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("aiorpcx")

from spvfilter.electrum import ElectrumLimits
from spvfilter.light.client import LightClient
from spvfilter.light.engine import relay
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import p2wpkh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.testing import RegtestNode
from spvfilter.transaction import Transaction, TxIn
from support.blocks.locks import build_tx, key
from support.peers.electrumclient import ElectrumClient, ElectrumError
from support.peers.electrumserver import KNOWN, LOCK, SCRIPT, connected, numbered, served


@asynccontextmanager
async def paid(node: RegtestNode) -> AsyncIterator[tuple[LightClient, ElectrumClient, OutPoint]]:
    """A client with one coin of 50,000 satoshi, and a session with its server."""
    node.call(lambda regtest: regtest.pay(TxOut(50_000, SCRIPT)))
    node.mine()
    async with served(node) as (light, server), connected(server, "1.6") as client:
        (coin,) = await light.coins()
        yield light, client, coin.outpoint


async def test_sent_transaction_is_shown_to_wallets(regtest_node: RegtestNode) -> None:
    async with paid(regtest_node) as (_, client, coin):
        raw = build_tx([LOCK.spends(coin, 50_000)], [TxOut(49_400, SCRIPT)])
        txid = await client.ask("blockchain.transaction.broadcast", raw.hex())
        assert txid == Transaction.parse(raw).txid_hex
        assert (await client.ask("blockchain.transaction.get", txid)) == raw.hex()
        rows = await client.ask("blockchain.scripthash.get_mempool", KNOWN)
        assert [(row["tx_hash"], row["fee"]) for row in rows] == [(txid, 600)]


# Each row is a transaction that conflicts with an earlier payment of 45,000 satoshi, and why it is refused. A program
# without keys makes up a signature, because it wants to cancel the payment.
REFUSED: dict[str, tuple[Callable[[OutPoint], bytes], str]] = {
    "more than it spends": (
        lambda coin: build_tx([LOCK.spends(coin, 50_000)], [TxOut(60_000, SCRIPT)]),
        "the transaction was rejected: .* its outputs are worth 60000 satoshi, but its inputs only 50000",
    ),
    "a lower fee": (
        lambda coin: build_tx([LOCK.spends(coin, 50_000)], [TxOut(46_000, SCRIPT)]),
        "too low to replace",
    ),
    "a later lock time": (
        lambda coin: build_tx([LOCK.spends(coin, 50_000)], [TxOut(9, SCRIPT)], lock_time=999),
        "its lock time has not passed",
    ),
    "a made-up signature": (
        lambda coin: build_tx([LOCK.spends(coin)], [TxOut(10_000, numbered(1))]),
        "input 0: a signature is wrong",
    ),
}


async def test_refused_transaction_is_not_stored(regtest_node: RegtestNode) -> None:
    async with paid(regtest_node) as (light, client, coin):
        payment = build_tx([LOCK.spends(coin, 50_000)], [TxOut(45_000, SCRIPT)])
        await client.ask("blockchain.transaction.broadcast", payment.hex())
        before = await light.history(), await light.balance()
        for case, (make, reason) in REFUSED.items():
            raw = make(coin)
            with pytest.raises(ElectrumError, match=reason):
                await client.ask("blockchain.transaction.broadcast", raw.hex())
            child = build_tx([TxIn(OutPoint(Transaction.parse(raw).txid, 0))], [TxOut(5_000, numbered(2))])
            found = await client.ask("blockchain.transaction.broadcast_package", [raw.hex(), child.hex()])
            assert not found["success"], case
            assert (await light.history(), await light.balance()) == before, case


async def test_transactions_of_others_are_relayed_and_not_stored(
    regtest_node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_RELAYED", 4)
    other = p2wpkh(key(34))

    def pay(regtest: Regtest) -> list[bytes]:
        return [regtest.pay(TxOut(20_000, other.script_pubkey)) for _ in range(3)]

    txids = regtest_node.call(pay)
    regtest_node.mine()
    raws = [build_tx([other.spends(OutPoint(txid, 0), 20_000)], [TxOut(15_000, other.script_pubkey)]) for txid in txids]
    async with served(regtest_node) as (light, server), connected(server) as client:
        for raw in raws[:2]:
            txid = await client.ask("blockchain.transaction.broadcast", raw.hex())
            assert txid == Transaction.parse(raw).txid_hex
            with pytest.raises(ElectrumError, match="No such mempool"):
                await client.ask("blockchain.transaction.get", txid)
        with pytest.raises(ElectrumError, match=r"at most 2 transactions from 127\.0\.0\.1"):
            await client.ask("blockchain.transaction.broadcast", raws[2].hex())
        waiting = regtest_node.call(lambda regtest: {tx.txid for tx in regtest.mempool})
        assert waiting == {Transaction.parse(raw).txid for raw in raws[:2]}
        assert await light.history() == []


async def test_broadcast_continues_after_the_end_of_its_session(
    nothing_is_left: None, caplog: pytest.LogCaptureFixture
) -> None:
    node = RegtestNode()
    coin = OutPoint(bytes(31) + b"\x07", 0)
    spent = p2wpkh(key(34)).spends(coin)
    raws = [build_tx([spent], [TxOut(value, SCRIPT)]).hex() for value in (9_000, 8_000)]
    async with served(node) as (light, server):
        node.close()  # no peer gives a verdict
        for raw in raws:
            async with connected(server) as client:
                await client.ask("blockchain.scripthash.subscribe", KNOWN)
                asking = asyncio.create_task(client.ask("blockchain.transaction.broadcast", raw))
                await client.until(lambda client=client: client.notices)
                asking.cancel()
        assert sorted(each.status for each in await light.history()) == ["pending", "replaced"]
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_a_transaction_that_no_peer_requests_is_not_sent(nothing_is_left: None) -> None:
    """The payment that it would have replaced counts again."""
    node = RegtestNode()
    node.call(lambda regtest: regtest.pay(TxOut(50_000, SCRIPT)))
    node.mine()
    limits = ElectrumLimits(broadcast_timeout_s=0.3)
    async with served(node, limits=limits) as (light, server), connected(server) as client:
        (coin,) = await light.coins()
        spent = LOCK.spends(coin.outpoint, 50_000)
        first = build_tx([spent], [TxOut(45_000, SCRIPT)])
        txid = await client.ask("blockchain.transaction.broadcast", first.hex())
        node.close()
        bumped = build_tx([spent], [TxOut(40_000, SCRIPT)])
        with pytest.raises(ElectrumError, match="not sent: no peer requested it in time, and it was abandoned"):
            await client.ask("blockchain.transaction.broadcast", bumped.hex())
        entries = {entry.txid_hex: entry.status for entry in await light.history()}
        assert entries[txid] == TxStatus.PENDING
        assert entries[Transaction.parse(bumped).txid_hex] == TxStatus.ABANDONED
        assert (await light.balance()).total == 45_000
