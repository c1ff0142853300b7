"""Labels of a running client: events, coins and the next run have them at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.light.client import LightClient
from spvfilter.light.engine.requests import RelabelEntries, Request
from spvfilter.light.running import Running
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.labels import Label, read_labels
from spvfilter.watch.watchlist import WatchList
from support.client.engineparts import after_waiting_labels, before_growth, engine_of
from support.client.lightworld import LOCKS, STRANGER, World, running
from support.client.regtests import mined

ADDRESS = script_to_address(LOCKS[0].script_pubkey, REGTEST) or ""
TPUB = "tpubDC5FSnBiZDMmhiuCmWAYsLwgLYrrT9rAqvTySfuCCrgsWz8wxMXUS9Tb9iVMvcRbvFcAHGkMD5Kx8koh4GquNGNTfohfk7pgjhaPCdXpoba"
FOREIGN = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"


async def test_imported_label_is_on_the_next_match(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "labels.jsonl"
    path.write_bytes(b"\n".join(map(bytes, [Label("addr", ADDRESS, "rent"), Label("addr", FOREIGN, "later")])))
    async with Node(world.regtest) as node, running(world, node, store=tmp_path / "w.db") as run:
        await run.synced(world)
        await run.client.import_labels(path)
        world.receive(LOCKS[0], 50_000)
        world.regtest.mine()
        await run.until(lambda books: any(isinstance(each, MatchFound) for each in books.events))
        (coin,) = await run.client.coins()
        assert coin.label == "rent"
        assert {each.match.label for each in await run.client.matches()} == {"rent"}
        await run.client.import_labels([Label("addr", ADDRESS, ""), Label("output", str(coin.outpoint), "deposit")])
        (coin,) = await run.client.coins()
        assert (coin.label, coin.output_label) == (None, "deposit")
        await run.client.export_labels(path)
        assert await asyncio.to_thread(read_labels, path) == await run.client.labels()
        await run.client.add_address(FOREIGN)
        with pytest.raises(TypeError, match="source: expected Label objects, not str"):
            await run.client.import_labels(["rent"])  # type: ignore[list-item]
        path.write_bytes(b"no")
        with pytest.raises(FormatError, match="line 1: "):
            await run.client.import_labels(path)
    async with Node(world.regtest) as node, running(world, node, store=tmp_path / "w.db") as run:
        labels = {each.ref: each.label for each in await run.client.labels()}
        assert labels[FOREIGN] == "later"
        assert run.client.watch.label(len(run.client.watch) - 1) == "later"


async def test_waiting_label_is_used_when_its_address_is_added(tmp_path: Path) -> None:
    world, path = World(), tmp_path / "w.db"
    other = script_to_address(STRANGER.script_pubkey, REGTEST) or ""
    async with Node(world.regtest) as node:
        async with running(world, node, store=path) as run:
            client, watch = run.client, engine_of(run.client).books.watch
            await client.import_labels([Label("addr", FOREIGN, "later"), Label("addr", other, "rent")])
            await client.add_account("alice", FOREIGN)
            await client.add_address(other, "mine")  # the label of the call precedes the waiting one
            for text, label in ((FOREIGN, "later"), (other, "mine")):
                found = watch.table.find(EntryKind.SCRIPT, address_to_script(text, REGTEST))
                assert watch.label(found) == label
            labels = {each.ref: each.label for each in await client.labels()}
            assert (labels[FOREIGN], labels[other]) == ("later", "mine")
            await client.relabel(FOREIGN, None)
        async with running(world, node, store=path) as run:
            labels = {each.ref: each.label for each in await run.client.labels()}
            assert (labels.get(FOREIGN), labels[other]) == (None, "mine")


async def test_waiting_label_is_used_beside_a_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store reads the label while a thread computes the watch list without another entry."""
    scripts = [bytes((0, 20)) + index.to_bytes(20, "big") for index in range(1, 200)]
    addresses = [script_to_address(script, REGTEST) or "" for script in scripts]
    watch = WatchList(REGTEST)
    watch.add_keychain("chain", lambda index: scripts[index], lookahead=20)
    watch.add_address(FOREIGN)
    computed, told = threading.Event(), threading.Event()
    waiting_labels, without_coins = Store.waiting_labels, TxOutIndex.without_coins
    removals = list[asyncio.Task[None]]()

    def remove(gained: Sequence[bytes]) -> None:
        if scripts[50] in gained:
            removals.append(asyncio.get_running_loop().create_task(client.remove(FOREIGN)))

    def wait_for_removal(self: Store, wanted: Collection[bytes]) -> list[Label]:
        if scripts[50] in wanted:
            computed.wait(60)
        return waiting_labels(self, wanted)

    def wait_for_labels(self: TxOutIndex, *given: Any) -> TxOutIndex:
        left = without_coins(self, *given)
        computed.set()
        told.wait(60)
        return left

    def tell(waiting: object) -> None:
        if waiting:
            told.set()

    before_growth(monkeypatch, remove)
    monkeypatch.setattr(Store, "waiting_labels", wait_for_removal)
    monkeypatch.setattr(TxOutIndex, "without_coins", wait_for_labels)
    after_waiting_labels(monkeypatch, tell)
    async with Node() as node, LightClient(watch, peers=[f"{node.host}:{node.port}"], mode="compact") as client:
        await client.import_labels([Label("addr", addresses[50], "later")])
        while await client.reveal_address() != addresses[40]:
            pass
        await removals[0]
        assert computed.is_set()
        assert told.is_set()
        for watched in (client.watch, engine_of(client).books.watch):
            assert watched.label(watched.table.find(EntryKind.SCRIPT, scripts[50])) == "later"


async def test_labels_are_imported_beside_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread computes the watch list without an entry, while labels come for this entry and for another one."""
    begun, imported, without_coins = threading.Event(), threading.Event(), TxOutIndex.without_coins
    watch, store = WatchList(REGTEST), tmp_path / "w.db"
    watch.add_address(ADDRESS)
    watch.add_address(FOREIGN)

    def wait_for_import(self: TxOutIndex, *given: Any) -> TxOutIndex:
        begun.set()
        imported.wait(60)
        return without_coins(self, *given)

    def ask(self: Running, request: Request) -> Awaitable[object]:
        answer = asyncio.ensure_future(asked(self, request))
        if isinstance(request, RelabelEntries):
            asyncio.get_running_loop().call_soon(imported.set)  # the engine has the request then
        return answer

    asked = Running.ask
    monkeypatch.setattr(TxOutIndex, "without_coins", wait_for_import)
    monkeypatch.setattr(Running, "ask", ask)
    async with Node() as node:
        peers = [f"{node.host}:{node.port}"]
        async with LightClient(watch, peers=peers, store=store, mode="compact") as client:
            removal = asyncio.create_task(client.remove(FOREIGN))
            assert await asyncio.to_thread(begun.wait, 60)
            await client.import_labels([Label("addr", FOREIGN, "gone"), Label("addr", ADDRESS, "rent")])
            await removal
            assert [each.label for each in await client.labels()] == ["rent"]
            inside = engine_of(client).books.watch
            assert [inside.label(number) for number in range(len(inside))] == ["rent"]
        assert [watch.label(number) for number in range(len(watch))] == ["rent"]


async def test_waiting_label_is_used_when_a_window_reaches_its_address(tmp_path: Path) -> None:
    path, scripts = tmp_path / "w.db", [bytes((0, 20)) + index.to_bytes(20, "big") for index in range(200)]
    addresses = [script_to_address(script, REGTEST) or "" for script in scripts]
    watch = WatchList(REGTEST)
    watch.add_keychain("chain", lambda index: scripts[index], "shop", lookahead=20)
    async with Node(mined(101)) as node:
        peers = [f"{node.host}:{node.port}"]
        async with LightClient(watch, peers=peers, store=path, mode="compact") as client:
            await client.import_labels([Label("addr", addresses[50], "later"), Label("addr", addresses[120], "never")])
            while await client.reveal_address() != addresses[40]:
                pass
            entry = client.watch.table.find(EntryKind.SCRIPT, scripts[50])
            await client.status()  # the database has the labels once it has answered
            assert client.watch.label(entry) == "later"
            assert client.watch.label(entry + 1) == "shop"
            node.regtest.pay(TxOut(5_000, scripts[50]))
            node.regtest.mine()
            async with asyncio.timeout(60):
                found = await anext(event async for event in client.events(since=0) if isinstance(event, MatchFound))
            assert found.match.label == "later"
        assert watch.label(watch.table.find(EntryKind.SCRIPT, scripts[50])) == "later"
        async with LightClient(WatchList(REGTEST), peers=peers, store=path, mode="compact") as client:
            assert client.watch.label(client.watch.table.find(EntryKind.SCRIPT, scripts[50])) == "later"
            assert {each.ref: each.label for each in await client.labels()}[addresses[120]] == "never"


async def test_removed_label_does_not_come_back_from_an_import(tmp_path: Path) -> None:
    world = World()
    async with Node(world.regtest) as node:
        async with running(world, node, store=tmp_path / "w.db") as run:
            await run.client.import_labels([Label("addr", FOREIGN, "later", other={"height": 5})])
            await run.client.add_address(FOREIGN)
            await run.client.relabel(FOREIGN, "mine")
            await run.client.relabel(FOREIGN, None)
            assert Label("addr", FOREIGN, other={"height": 5}) in await run.client.labels()
        async with running(world, node, store=tmp_path / "w.db") as run:
            assert Label("addr", FOREIGN, other={"height": 5}) in await run.client.labels()
            assert run.client.watch.label(len(run.client.watch) - 1) is None


@pytest.mark.long
@pytest.mark.descriptors
@pytest.mark.parametrize("lookahead", [20, 1_000])
async def test_keychain_is_relabelled_whole_and_stays_so(lookahead: int, tmp_path: Path) -> None:
    text, path = f"wpkh({TPUB}/<0;1>/*)", tmp_path / "w.db"
    watch = WatchList(REGTEST)
    watch.add_account("alice", text, lookahead=lookahead)
    receiving = watch.keychains[0]
    async with Node(mined(101)) as node:
        peers = [f"{node.host}:{node.port}"]

        async def pay(client: LightClient, index: int) -> None:
            txid = node.regtest.pay(TxOut(1_000 + index, receiving.scripts_at(index)[0]))
            node.regtest.mine()
            await client.wait_confirmed(txid)

        async with LightClient(watch, peers=peers, store=path) as client:
            await client.wait_synced()
            await pay(client, 0)
            own = script_to_address(receiving.scripts_at(3)[0], REGTEST) or ""
            await client.relabel(own, "rent")
            pending = node.regtest.pay(TxOut(1_003, receiving.scripts_at(3)[0]))
            for entry in (text, receiving.name, receiving.name.partition("#")[0].replace("'", "h")):
                await client.relabel(entry, f"of {entry[:9]}")
            await client.relabel(text, "savings")
            assert [each.label for each in await client.keychains("savings")] == ["savings"] * 2
            await pay(client, lookahead - 1)
            await client.wait_confirmed(pending)
            await pay(client, lookahead + 15)  # the window has moved
            expected = {0: "savings", 3: "rent", lookahead - 1: "savings", lookahead + 15: "savings"}
            assert {each.keychain_index: each.label for each in await client.coins()} == expected
            assert (await client.balance("savings")).confirmed == 3 * 1_000 + 2 * lookahead + 14
            assert len(await client.history(label="savings")) == 3
            with pytest.raises(ParameterError, match="is not watched"):
                await client.relabel(f"wpkh({TPUB}/7/*)", "x")
            with pytest.raises(ParameterError, match="label"):
                await client.relabel(text, "\ud800")
        assert [each.label for each in watch.keychains] == ["savings"] * 2
        for again in (watch, WatchList(REGTEST)):
            async with LightClient(again, peers=peers, store=path) as client:
                assert {each.keychain_index: each.label for each in await client.coins()} == expected
                assert len(await client.history(label="savings")) == 3
                assert [each.label for each in await client.keychains()] == ["savings"] * 2
                await client.wait_synced()
                await client.relabel(receiving.name, None)
                await client.relabel(receiving.name, "savings")
        async with LightClient(WatchList(REGTEST), peers=peers, store=path) as client:
            await client.relabel(text, None)
            assert {each.label for each in await client.coins()} == {None, "rent"}
            assert [each.label for each in await client.keychains()] == [None, None]
        with WalletStore.open(path) as wallet:
            assert {each.label for each in wallet.labels()} == {"rent"}
            assert not wallet.history(label="savings")
