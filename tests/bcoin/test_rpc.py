"""bcoin's JSON-RPC as a source of blocks: a scan of its chain, and its chain followed through a reorganisation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from spvfilter.errors import NodeRefusedError
from spvfilter.network import REGTEST
from spvfilter.rpc import FullNode, Password, RpcLimits
from spvfilter.scan import Connected, Disconnected, Matcher, NodeBlocks, follow
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.bcoin.process import Bcoin, running_bcoin
from support.blocks.chains import found_by
from support.client.pauses import Pauses

pytestmark = [pytest.mark.bcoin, pytest.mark.long]
KEY = "a key of this test"
PATIENCE_S = 60.0


@pytest.fixture
async def bcoin() -> AsyncIterator[Bcoin]:
    """A full node that serves JSON-RPC."""
    async with running_bcoin("full", KEY) as node:
        yield node


def url(bcoin: Bcoin) -> str:
    return f"http://127.0.0.1:{bcoin.rpc_port}"


async def paid(bcoin: Bcoin) -> tuple[WatchList, str]:
    """A chain of 110 blocks in which an address is paid and pays; the address watched, and the one that mines."""
    watched, miner = await bcoin.call("address", {"account": "segwit"}), (await bcoin.call("address"))["address"]
    await bcoin.call("mine", {"count": 105, "address": miner})
    await bcoin.call("send", {"outputs": [[watched["script"], 70_000_000]]})
    await bcoin.call("mine", {"count": 2, "address": miner})
    watch = WatchList(REGTEST)
    watch.add_script(bytes.fromhex(watched["script"]))
    return watch, miner


async def test_its_chain_is_scanned_as_the_same_blocks_are(bcoin: Bcoin) -> None:
    watch, _ = await paid(bcoin)
    raws = [
        bytes.fromhex(await bcoin.call("getblock", [await bcoin.call("getblockhash", [height]), 0]))
        for height in range(108)
    ]
    async with FullNode.open(url(bcoin), REGTEST, credentials=Password("x", KEY), patience=Pauses().patience()) as node:
        assert (await node.info()).height == 107
        found = await found_by(Matcher(watch), NodeBlocks(node))
    assert found == await found_by(Matcher(watch), raws)
    assert [(match.height, match.value) for match in found] == [(106, 70_000_000)]


async def test_a_wrong_key_is_refused(bcoin: Bcoin) -> None:
    with pytest.raises(NodeRefusedError, match="401"):
        async with FullNode.open(
            url(bcoin), REGTEST, credentials=Password("x", "geheim"), patience=Pauses().patience()
        ):
            pass


async def test_its_chain_is_followed_through_a_reorganisation(bcoin: Bcoin) -> None:
    watch, miner = await paid(bcoin)
    limits = RpcLimits(connections=2)
    events: list[Match | Connected | Disconnected] = []
    async with (
        FullNode.open(url(bcoin), REGTEST, credentials=Password("x", KEY), limits=limits) as node,
        aclosing(follow(Matcher(watch), NodeBlocks(node), poll_s=0.05)) as following,
        asyncio.timeout(PATIENCE_S),
    ):
        async for event in following:
            events.append(event)
            if isinstance(event, Connected) and event.height == 107:
                break
        new = await bcoin.call("branch", {"depth": 2, "count": 3, "address": miner})
        async for event in following:
            events.append(event)
            if isinstance(event, Connected) and event.height == 108:
                break
    assert [event.height for event in events if isinstance(event, Disconnected)] == [107, 106]
    assert [event.hash[::-1].hex() for event in events if isinstance(event, Connected)][-3:] == new
    assert [event.height for event in events if isinstance(event, Match)] == [106]
