"""Requests of programs inside a client: a window that reaches an index, and blocks that are fetched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut
from spvfilter.watch.watchlist import WatchList
from support.client.engineparts import block_requests_of, running_of
from support.client.regtests import mined


def script(index: int) -> bytes:
    return b"\x00\x14" + index.to_bytes(20, "big")


@asynccontextmanager
async def entered(**options: Any) -> AsyncIterator[tuple[Node, LightClient]]:
    watch = WatchList(REGTEST)
    watch.add_keychain("till", script, lookahead=20)
    async with Node(mined(101)) as node:
        node.regtest.pay(TxOut(4_000, script(300)))
        node.regtest.mine()
        peers = [f"{node.host}:{node.port}"]
        async with LightClient(watch, peers=peers, **{"mode": "compact", **options}) as client:
            await client.wait_synced()
            yield node, client


async def test_reached_index_is_watched_and_searched(nothing_is_left: None, tmp_path: Path) -> None:
    async with entered(store=tmp_path / "w.db") as (_, client):
        assert (await client.balance()).confirmed == 0
        await client.watch_to("till", 290)
        await client.wait_synced()
        assert (await client.balance()).confirmed == 4_000
        (found,) = await client.keychains("till")
        assert (found.window >= 321, found.revealed) == (True, 0)
        await client.watch_to("till", 7)  # it is watched already
        assert (await client.keychains("till"))[0].window == found.window
        await client.watch_to("till", 2_000)
        (found,) = await client.keychains("till")
    async with LightClient(WatchList(REGTEST), peers=["127.0.0.1:1"], store=tmp_path / "w.db") as later:
        assert (await later.keychains("till"))[0].window == found.window >= 2_021


async def test_index_that_a_wallet_watches_is_not_revealed(nothing_is_left: None) -> None:
    async with entered() as (_, client):
        assert await client.reveal_address() == script_to_address(script(0), REGTEST)
        await client.watch_to("till", 120)
        for name, index in (("shop", 3), ("till", -1), ("till", 1 << 31)):
            with pytest.raises(ParameterError, match="has no"):
                await client.watch_to(name, index)
        assert await client.reveal_address() == script_to_address(script(1), REGTEST)


async def test_index_beyond_the_room_of_a_bip37_filter_is_refused() -> None:
    async with entered(mode="bip37") as (_, client):
        with pytest.raises(InexpressibleError, match="no room"):
            await client.watch_to("till", 100_000)
        assert (await client.keychains("till"))[0].revealed == 0


@pytest.mark.parametrize("mode", ["compact", "bip37"])
async def test_block_is_fetched_whole(mode: str, nothing_is_left: None) -> None:
    async with entered(mode=mode) as (node, client):
        tip = node.regtest.chain.tip
        running = running_of(client)
        found = await asyncio.gather(running.fetch_block(tip.hash), running.fetch_block(tip.hash))
        assert list(found) == [tip.raw] * 2
        with pytest.raises(ParameterError, match="not in the best chain"):
            await running.fetch_block(bytes(32))


async def test_cancelled_fetch_leaves_no_request(nothing_is_left: None) -> None:
    async with entered() as (node, client):
        running = running_of(client)
        fetching = asyncio.create_task(running.fetch_block(client.chain.hash_at(50)))
        await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        assert not len(block_requests_of(running.engine))
        assert await running.fetch_block(client.chain.hash_at(50)) == node.regtest.chain.active[50].raw
