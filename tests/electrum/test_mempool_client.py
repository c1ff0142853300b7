"""The Electrum client of mempool.space (npm) against the server: calls, batches and a notification."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("aiorpcx")

from spvfilter.address import address_to_script
from spvfilter.electrum import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.testing import RegtestNode
from spvfilter.watch.watchlist import WatchList
from support.oracles.electrumoracle import hash_of_script

DRIVER = Path(__file__).parent / "npm/driver.js"
ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"


@pytest.mark.mempool
async def test_client_of_mempool_space_gets_its_answers(regtest_node: RegtestNode) -> None:
    paid = regtest_node.pay(ADDRESS, 30_000)[::-1].hex()
    regtest_node.mine()
    height, script_hash = regtest_node.height, hash_of_script(address_to_script(ADDRESS, REGTEST))
    watch = WatchList.from_addresses([ADDRESS], REGTEST)
    async with LightClient(watch, peers=[regtest_node.address], mode="compact") as client:
        await client.wait_synced()
        async with ElectrumServer(client, port=0) as server:
            words = ["node", str(DRIVER), str(server.port), script_hash, "00" * 32, paid]
            child = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            assert child.stdout is not None
            async with asyncio.timeout(60):
                found = json.loads(await child.stdout.readline())
                regtest_node.mine()
                header = json.loads(await child.stdout.readline())
                assert await child.wait() == 0
    assert found["version"][1] == "1.4"
    assert found["tip"]["height"] == height
    assert found["history"] == [{"tx_hash": paid, "height": height}]
    balances = [each["result"] for each in found["balances"]]
    assert balances == [{"confirmed": 30_000, "unconfirmed": 0}, {"confirmed": 0, "unconfirmed": 0}]
    assert found["unspent"] == [{"tx_hash": paid, "tx_pos": 0, "height": height, "value": 30_000}]
    assert [each["result"]["txid"] for each in found["txs"]] == [paid]
    assert (found["merkle"]["pos"], found["fee"]) == (1, -1)
    assert "No such mempool or blockchain transaction" in found["refused"]
    assert header["height"] == height + 1
