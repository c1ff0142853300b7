"""The documentation: its programs print the output shown, and count money correctly."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spvfilter import REGTEST, LightClient, Node, OutPoint, TxOut, WatchList, address_to_script
from spvfilter.node.regtest import Regtest
from support.peers.redisserver import running_redis
from support.project.pages import PROGRAMS

MARKS = {
    "add_descriptor": pytest.mark.descriptors,
    "wpkh(": pytest.mark.descriptors,
    "read_wallet_file": pytest.mark.descriptors,
    "bdkpython": pytest.mark.kyoto,
    "ElectrumServer": pytest.mark.electrum,
    "pyarrow": pytest.mark.columns,
    "polars": pytest.mark.columns,
    'v2="require"': pytest.mark.v2,
}
REDIS_URL = "redis://localhost:6379/0"
RECIPES = ("'found/matches.parquet'", "tables/{table}")  # files of recipes, which tests/scan/test_recipes.py runs
KEY = bytes(31) + b"\x01"  # private key of the pages' address, published in BIP-173
ELSEWHERE = TxOut(300, b"\x00\x14" + bytes(20))
AGENT = re.compile(r"(?<=/spvfilter:)[^/]+")  # the version in a user agent


def run(code: str, folder: Path) -> str:
    """The standard output of a program, which must end without a message."""
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    printed = set()
    for _ in range(2 if "store=" in code else 1):  # the database that a run leaves must not stop the next run
        done = subprocess.run(
            [sys.executable, "-W", "error", script], capture_output=True, text=True, cwd=folder, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, "")
        printed.add(done.stdout)
    (only,) = printed
    return only


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param(code, shown, id=f"{page}:{number}", marks=[mark for word, mark in MARKS.items() if word in code])
        for page, number, code, shown in PROGRAMS
        if REDIS_URL not in code and not any(file in code for file in RECIPES)
    ],
)
def test_program_prints_the_output_shown(code: str, shown: str, tmp_path: Path) -> None:
    if "pytest_plugins" in code:
        (tmp_path / "test_example.py").write_text(code, encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "test_example.py"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, shown) == (0, ""), done.stdout
    else:
        assert AGENT.sub("", run(code, tmp_path)) == AGENT.sub("", shown) != ""


@pytest.mark.redis
@pytest.mark.parametrize(("code", "shown"), [(code, shown) for _, _, code, shown in PROGRAMS if REDIS_URL in code])
def test_program_with_redis_prints_the_output_shown(code: str, shown: str, tmp_path: Path) -> None:
    with running_redis(tmp_path) as server:
        assert run(code.replace(REDIS_URL, server.url), tmp_path) == shown


def names_of(page: str, name: str) -> dict[str, Any]:
    """Return what a program of a page defines. The program is the one with this text; its `main` does not run."""
    (code,) = (code for each, _, code, _ in PROGRAMS if each == page and name in code)
    names: dict[str, Any] = {}
    exec(code.removesuffix("asyncio.run(main())\n"), names)
    return names


@asynccontextmanager
async def following(address: str) -> AsyncIterator[tuple[LightClient, Regtest, bytes]]:
    async with Node() as node:
        node.regtest.mine(101)
        watch = WatchList.from_addresses([address], REGTEST)
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            yield client, node.regtest, address_to_script(address, REGTEST)


async def until(client: LightClient, regtest: Regtest, what: str, txid: bytes) -> None:
    """Wait until the wallet knows the node's tip, and a transaction has this status."""
    async with asyncio.timeout(30):
        events = client.events(since=await client.sequence())
        while (await client.tip(), getattr(await client.transaction(txid), "status", None)) != (regtest.height, what):
            await anext(events)


@pytest.mark.descriptors
async def test_shop_of_the_events_page_counts_each_confirmed_output_once() -> None:
    names = names_of("howto/events.md", "class Shop")
    shop = names["Shop"]()
    async with following(names["ADDRESS"]) as (client, regtest, script):
        events = await shop.resume(client)

        async def received(what: str, txid: bytes) -> int:
            await until(client, regtest, what, txid)
            again = names["Shop"]()
            await again.resume(client)
            while shop.number < again.number:
                shop.process(await anext(events))
            assert (again.payments, again.number, again.run_id) == (shop.payments, shop.number, shop.run_id)
            total: int = sum(shop.payments.values())
            return total

        first = regtest.pay(TxOut(1_000, script), TxOut(200, script))
        assert await received("pending", first) == 0
        second = regtest.bump(first)
        assert await received("pending", second) == 0
        regtest.mine()
        assert await received("confirmed", second) == 1_200
        spend = regtest.spend(OutPoint(second, 0), outputs=[ELSEWHERE], fee=700, keys=[KEY])
        regtest.mine()
        assert await received("confirmed", spend) == 1_200
        regtest.reorg(2)
        assert await received("pending", second) == 0
        regtest.double_spend(second, in_block=True)
        assert await received("conflicted", second) == 0


@pytest.mark.descriptors
async def test_waiting_ends_at_a_payment_with_three_confirmations() -> None:
    names = names_of("howto/books.md", "wait_paid")
    async with following(names["ADDRESS"]) as (client, regtest, script):
        small = regtest.pay(TxOut(999, script))
        stuck = regtest.pay(TxOut(1_000, script))
        await until(client, regtest, "pending", stuck)
        paid = asyncio.create_task(names["wait_paid"](client, names["ADDRESS"], 1_000))
        await asyncio.sleep(0)  # it begins to wait
        regtest.evict(stuck)
        regtest.mine()
        regtest.spend(OutPoint(small, 0), outputs=[ELSEWHERE], fee=699, keys=[KEY])
        first = regtest.pay(TxOut(1_000, script))
        await until(client, regtest, "pending", first)
        second = regtest.bump(first)
        regtest.mine()
        await until(client, regtest, "confirmed", second)
        regtest.reorg(1)
        await until(client, regtest, "pending", second)
        regtest.double_spend(second, in_block=True)
        third = regtest.pay(TxOut(1_000, script))
        regtest.mine(2)
        await until(client, regtest, "confirmed", third)
        assert not paid.done()
        regtest.mine()
        assert (await asyncio.wait_for(paid, 30)).txid == third
