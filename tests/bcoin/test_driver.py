"""The bcoin driver that the other tests of this folder rely on: mining, paying, reorganising, answering, ending."""

from __future__ import annotations

import asyncio
import os

import pytest

from spvfilter.kernel import check_block, parse_tx
from support.bcoin.process import Bcoin, BcoinError, running_bcoin

pytestmark = [pytest.mark.bcoin, pytest.mark.long]


async def test_it_mines_pays_and_confirms(bcoin: Bcoin) -> None:
    mine = await bcoin.call("address")
    segwit = await bcoin.call("address", {"account": "segwit"})
    assert mine["script"].startswith("76a914")
    assert segwit["script"].startswith("0014")
    # segwit is active from here on
    assert len(await bcoin.call("mine", {"count": 432, "address": mine["address"]})) == 432
    assert (await bcoin.call("tip"))["synced"]
    paid = await bcoin.call("send", {"outputs": [[segwit["script"], 70_000_000], ["6a04deadbeef", 0]]})
    assert await bcoin.call("getrawmempool", []) == [paid["txid"]]
    again = await bcoin.call("send", {"outputs": [[mine["script"], 60_000_000]], "account": "segwit"})
    assert parse_tx(bytes.fromhex(again["raw"])).witness
    [tip] = await bcoin.call("mine", {"count": 1, "address": mine["address"]})
    raw = bytes.fromhex(await bcoin.call("getblock", [tip, 0]))
    check_block(raw)
    connected = await bcoin.event("connect", lambda event: event["hash"] == tip)
    assert (connected["height"], connected["txs"][1:]) == (433, [paid["txid"], again["txid"]])
    assert await bcoin.call("getrawmempool", []) == []


async def test_a_longer_branch_takes_over(bcoin: Bcoin) -> None:
    address = (await bcoin.call("address"))["address"]
    old = await bcoin.call("mine", {"count": 10, "address": address})
    assert await bcoin.call("branch", {"depth": 3, "count": 3, "address": address})
    assert (await bcoin.call("tip"))["hash"] == old[-1]
    new = await bcoin.call("branch", {"depth": 3, "count": 4, "address": address})
    assert await bcoin.call("tip") == {"height": 11, "hash": new[-1], "synced": True}
    gone = [event["hash"] for event in bcoin.events if event["event"] == "disconnect"]
    assert gone == old[:-4:-1]


async def test_what_it_refuses_is_an_error(bcoin: Bcoin) -> None:
    with pytest.raises(BcoinError, match="nonsense: Method not found"):
        await bcoin.call("nonsense", [])
    with pytest.raises(BcoinError, match="send: Not enough funds"):
        await bcoin.call("send", {"outputs": [["0014" + "11" * 20, 1_000_000]]})
    with pytest.raises(BcoinError, match="submit: "):
        await bcoin.call("submit", {"raw": "00"})


async def test_it_ends_with_its_block_even_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        async with running_bcoin("full") as node:
            calling = asyncio.create_task(
                node.call("mine", {"count": 5_000, "address": (await node.call("address"))["address"]})
            )
            await node.event("connect")
            raise ZeroDivisionError
    with pytest.raises(BcoinError, match="bcoin has ended"):
        await calling
    with pytest.raises(ProcessLookupError):
        os.kill(node.process.pid, 0)
    with pytest.raises(BcoinError, match="bcoin has ended"):
        await node.call("tip")
