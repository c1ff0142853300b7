"""Keychains in a live client: uses are noted, and what lies beyond a window is said and found by the next run."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from spvfilter.errors import WindowWarning
from spvfilter.light import LightClient, Synced
from spvfilter.network import REGTEST
from spvfilter.node import Node
from spvfilter.primitives import TxOut
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from support.keychains import script_at


def wallet() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_keychain("mine", script_at, "savings", lookahead=GAP_LIMIT)
    return watch


async def run(watch: WatchList, node: Node, store: Path, mode: str) -> list[int | None]:
    """The indexes of the matches of one run, in the order of blocks."""
    async with LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store, mode=mode) as client:
        async for event in client.events():
            if isinstance(event, Synced):
                break
        return [found.match.keychain_index for found in await client.matches()]


@pytest.mark.parametrize("mode", ["compact", "bip37"])
async def test_what_a_window_does_not_reach_is_said_and_found_by_the_next_run(mode: str, tmp_path: Path) -> None:
    async with Node() as node:
        node.regtest.mine(101)
        for index in (45, 7, 30):
            node.regtest.pay(TxOut(1_000 + index, script_at(index)))
            node.regtest.mine()
        watch = wallet()
        with pytest.warns(WindowWarning, match="index 30 of keychain 'mine' was used"):
            assert await run(watch, node, tmp_path / "wallet.db", mode) == [7, 30]
        assert sorted(watch.keychains[0].used) == [7, 30]
        assert watch.next_address() == wallet().next_address()
        for again in (watch, wallet()):  # the same list, or a new one that learns from the database
            twin = again.copy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", WindowWarning)
                (tmp_path / f"{id(again)}.db").write_bytes((tmp_path / "wallet.db").read_bytes())
                assert await run(twin, node, tmp_path / f"{id(again)}.db", mode) == [45, 7, 30]


async def test_a_payment_within_twice_the_lookahead_is_no_reason_to_warn(tmp_path: Path) -> None:
    async with Node() as node:
        node.regtest.mine(101)
        node.regtest.pay(TxOut(1_000, script_at(GAP_LIMIT - 1)))
        node.regtest.mine()
        watch = wallet()
        assert await run(watch, node, tmp_path / "wallet.db", "compact") == [GAP_LIMIT - 1]
        assert watch.next_address() == wallet().next_address()
        assert watch.keychains[0].end == 2 * GAP_LIMIT
