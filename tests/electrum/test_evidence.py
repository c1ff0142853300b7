"""Transactions of others at the Electrum port: while they wait for a second network group, and when they count."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest

from spvfilter.electrum.histories import script_hash_of
from spvfilter.electrum.server import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SIGHASH_ALL, find_curve
from spvfilter.transaction import Transaction
from spvfilter.watch.watchlist import WatchList
from support.blocks.signing import Kind, signed_tx, tr_script, wpkh
from support.peers.electrumclient import ElectrumClient, ElectrumError
from support.peers.hostile import HostileNode, until
from support.wallets.walletbooks import THEIRS

pytestmark = pytest.mark.skipif(find_curve() is None, reason="libsecp256k1 is not installed")


class Edge(NamedTuple):
    """A client of two nodes in two network groups, its Electrum port, and the outpoint of its only coin."""

    client: LightClient
    electrum: ElectrumClient
    nodes: list[HostileNode]
    coin: OutPoint
    script_hash: str

    async def of_script(self, method: str) -> Any:
        return await self.electrum.ask(f"blockchain.scripthash.{method}", self.script_hash)


@asynccontextmanager
async def edge(kind: Kind) -> AsyncIterator[Edge]:
    regtest, watch = Regtest(), WatchList(REGTEST)
    regtest.mine(101)
    coin = OutPoint(regtest.pay(TxOut(50_000, kind.script_pubkey)), 0)
    regtest.mine()
    watch.add_script(kind.script_pubkey)
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(HostileNode(regtest, f"127.{group}.0.1")) for group in (1, 2)]
        peers = [f"{node.host}:{node.port}" for node in nodes]
        client = await stack.enter_async_context(LightClient(watch, peers=peers, mode="compact"))
        await client.wait_synced()
        server = await stack.enter_async_context(ElectrumServer(client, port=0))
        electrum = await stack.enter_async_context(ElectrumClient(server.port or 0))
        await electrum.ask("server.version", "test", "1.4")
        yield Edge(client, electrum, nodes, coin, script_hash_of(kind.script_pubkey))


def spend_of(kind: Kind, coin: OutPoint) -> Transaction:
    return signed_tx([(kind, 50_000)], [TxOut(40_000, THEIRS)], [SIGHASH_ALL], outpoints=[coin])[0]


async def test_an_unverified_spend_waits_and_leaves_the_coin() -> None:
    """The script path of taproot is not evaluated. `listunspent` equals `unspent()` at every moment."""
    kind = tr_script(5)
    async with edge(kind) as at:
        spend = spend_of(kind, at.coin)
        before = await at.of_script("listunspent")
        assert [(row["value"], row["tx_hash"]) for row in before] == [(50_000, at.coin.txid_hex)]
        first, second = at.nodes
        first.tell(spend, spend.raw)

        async def waits() -> bool:
            return (await at.client.status()).waiting == 1

        await until(waits)
        proof = await at.client.proof(spend.txid)
        assert proof is not None
        assert not proof.status.counts
        for verbose in (False, True):
            with pytest.raises(ElectrumError, match="No such mempool or blockchain transaction"):
                await at.electrum.ask("blockchain.transaction.get", spend.txid_hex, verbose)
        assert await at.of_script("get_mempool") == []
        assert await at.of_script("listunspent") == before

        second.tell(spend, spend.raw)

        async def counts() -> bool:
            return len(await at.of_script("get_mempool")) == 1

        await until(counts)
        assert await at.electrum.ask("blockchain.transaction.get", spend.txid_hex) == spend.raw.hex()
        assert [row["tx_hash"] for row in await at.of_script("get_history")][1:] == [spend.txid_hex]
        balance = await at.client.balance()
        assert (balance.pending_out, balance.spendable) == (50_000, 50_000)
        assert [coin.outpoint for coin in await at.client.unspent()] == [at.coin]
        assert await at.of_script("listunspent") == before
        assert await at.of_script("get_balance") == {"confirmed": 50_000, "unconfirmed": -50_000}


async def test_a_verified_spend_leaves_nothing_to_list() -> None:
    kind = wpkh(5)
    async with edge(kind) as at:
        spend = spend_of(kind, at.coin)
        at.nodes[0].tell(spend, spend.raw)

        async def is_taken() -> bool:
            return await at.client.unspent() == []

        await until(is_taken)
        assert await at.of_script("listunspent") == []
        assert await at.electrum.ask("blockchain.transaction.get", spend.txid_hex) == spend.raw.hex()


async def test_frozen_coins_are_not_listed() -> None:
    async with edge(wpkh(5)) as at:
        await at.client.freeze(at.coin)
        assert await at.of_script("listunspent") == [] == await at.client.unspent()
        assert await at.of_script("get_balance") == {"confirmed": 50_000, "unconfirmed": 0}
        await at.client.unfreeze(at.coin)
        assert len(await at.of_script("listunspent")) == 1
