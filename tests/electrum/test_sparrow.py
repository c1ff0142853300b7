"""A scripted session in the order of Sparrow's calls: named arguments, batches, headers, transactions, proofs.

The order follows Sparrow's sources (ElectrumServer.java and BatchedElectrumServerRpc.java).
"""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("aiorpcx")

from spvfilter.address import address_to_script
from spvfilter.electrum import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.testing import RegtestNode
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import ONE
from support.oracles.electrumoracle import hash_of_script
from support.peers.electrumclient import ElectrumClient, ElectrumError

ADDRESSES = [
    "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080",
    "bcrt1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qzf4jry",
]
HASHES = [hash_of_script(address_to_script(each, REGTEST)) for each in ADDRESSES]


async def test_session_in_sparrows_order_of_calls(nothing_is_left: None, regtest_node: RegtestNode) -> None:
    node = regtest_node
    paid = node.pay(ADDRESSES[0], 90_000)
    node.mine()
    watch = WatchList.from_addresses(ADDRESSES, REGTEST)
    async with LightClient(watch, peers=[node.address], mode="compact") as client:
        await client.wait_synced()
        async with ElectrumServer(client, port=0) as server, ElectrumClient(server.port or 0) as sparrow:
            named = {"client_name": "Sparrow", "protocol_version": ["1.3", "1.4.2"]}
            assert (await sparrow.ask("server.version", **named))[1] == "1.4.2"
            assert isinstance(await sparrow.ask("server.banner"), str)
            tip = await sparrow.ask("blockchain.headers.subscribe")
            assert tip["height"] == node.height
            fees = [("blockchain.estimatefee", blocks) for blocks in (1, 2, 3, 4, 5, 10, 25, 50)]
            assert await sparrow.batch(*fees) == [-1] * 8
            assert await sparrow.ask("mempool.get_fee_histogram") == []
            assert await sparrow.ask("blockchain.relayfee") == 0.00001
            statuses = await sparrow.batch(*(("blockchain.scripthash.subscribe", each) for each in HASHES))
            assert [status is None for status in statuses] == [False, True]
            (history,) = await sparrow.batch(("blockchain.scripthash.get_history", HASHES[0]))
            txid = paid[::-1].hex()
            assert history == [{"tx_hash": txid, "height": node.height}]
            (header,) = await sparrow.batch(("blockchain.block.header", node.height))
            assert header == tip["hex"]
            raw, details = await sparrow.batch(
                ("blockchain.transaction.get", txid), ("blockchain.transaction.get", txid, True)
            )
            assert (details["hex"], details["confirmations"], details["blockhash"]) == (
                raw,
                1,
                client.chain.tip_hash_hex,
            )
            (proof,) = await sparrow.batch(("blockchain.transaction.get_merkle", txid, node.height))
            assert (proof["block_height"], proof["pos"]) == (node.height, 1)
            with pytest.raises(ElectrumError, match="unknown method"):
                await sparrow.batch(("blockchain.block.stats", node.height))
            node.spend(OutPoint(paid, 0), to=ADDRESSES[1], value=50_000, keys=[ONE])
            await sparrow.until(lambda: len(sparrow.notices) == 2)  # one for each script
            (pending,) = await sparrow.batch(("blockchain.scripthash.get_mempool", HASHES[1]))
            assert [row["height"] for row in pending] == [0]
            assert await sparrow.batch(*(("blockchain.scripthash.unsubscribe", each) for each in HASHES)) == [True] * 2
            assert await sparrow.ask("server.ping") is None
        await asyncio.sleep(0)
