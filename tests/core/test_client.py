"""Bitcoin Core as judge of the light client: after every step both know the same coins of the wallet."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from spvfilter.light.client import LightClient
from spvfilter.light.events import Synced
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.watch.watchlist import WatchList
from support.blocks.openlocks import live, open_lock
from support.oracles.coreengine import CoreEngine
from support.vectors import effort

pytestmark = pytest.mark.core


@pytest.mark.long
@pytest.mark.parametrize("mode", ["compact", "bip37"])
@pytest.mark.parametrize("seed", range(effort(1, 2, 40)))
async def test_client_has_the_coins_that_core_has(mode: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    made = Regtest()
    made.mine(105)
    locks = {lock.script_pubkey: lock for lock in (open_lock(rng) for _ in range(40))}
    watch = WatchList(REGTEST)
    watched = rng.sample(list(locks), len(locks) // 2)
    for script in watched:
        watch.add_script(script)
    given = 1  # the chain has the genesis block
    with CoreEngine(tmp_path) as core:
        async with Node(made) as node, LightClient(watch, peers=[f"127.0.0.1:{node.port}"], mode=mode) as client:
            events = client.events()
            for _ in range(20):
                for _ in range(rng.randrange(1, 4)):
                    live(made, rng, locks)
                blocks = list(made.chain.blocks.values())
                assert all(core.accepts(block.raw) for block in blocks[given:])
                given = len(blocks)
                async with asyncio.timeout(60):
                    await anext(each async for each in events if isinstance(each, Synced) and each.hash == core.tip)
                expected = {place: coin for place, coin in core.coins().items() if coin[1] in watched}
                found = [coin for coin in await client.coins() if coin.height is not None]
                assert {bytes(coin.outpoint): (coin.value, coin.script_pubkey) for coin in found} == expected
                assert (await client.balance()).confirmed == sum(value for value, _ in expected.values())
            assert expected
