"""The event loop of a client: long work runs in other threads, or in steps whose size these tests count."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.kernel import EntryKind
from spvfilter.light import LightClient, running as runs
from spvfilter.light.engine import engine as engines
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.requests import (
    AddEntries,
    RelabelEntries,
    RemoveAccount,
    RemoveEntries,
    Request,
    SearchStart,
)
from spvfilter.light.entries import apply_changes
from spvfilter.light.workers import THREAD_NAME
from spvfilter.network import REGTEST
from spvfilter.node import Node
from spvfilter.primitives import TxOut
from spvfilter.wallet.books import Books
from spvfilter.wallet.reports import Reports
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.keychain import GAP_LIMIT, Keychain
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import STEP
from support.client.engineparts import engine_of, filter_search_of
from support.client.regtests import mined
from support.wallets.keychains import script_at

MODES = pytest.mark.parametrize("mode", ["compact", "bip37"])


def client_of(watch: WatchList, node: Node, mode: str = "compact", store: Path | None = None) -> LightClient:
    return LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store, mode=mode)


def wallet_of(*scripts: bytes) -> WatchList:
    watch = WatchList(REGTEST)
    for script in scripts:
        watch.add_script(script)
    return watch


def fund(node: Node, blocks: int, payments: int) -> None:
    for _ in range(blocks):
        for index in range(payments):
            node.regtest.pay(TxOut(1_000, script_at(index)))
        node.regtest.mine()


async def test_another_thread_builds_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []
    made = ClientEngine.__init__

    def noted(self: ClientEngine, *arguments: Any) -> None:
        places.append(threading.current_thread().name)
        made(self, *arguments)

    monkeypatch.setattr(ClientEngine, "__init__", noted)
    async with Node() as node, client_of(wallet_of(script_at(0)), node):
        assert [place.startswith(THREAD_NAME) for place in places] == [True]


async def test_removal_looks_at_every_entry_only_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 4,000 keychains, it would block the event loop for a tenth of a second."""
    places: list[str] = []
    without, elements = TxOutIndex.without_coins, TxOutIndex.gcs_scripts

    def noted(self: TxOutIndex, *arguments: Any) -> TxOutIndex:
        places.append(threading.current_thread().name)
        return without(self, *arguments)

    def counted(self: TxOutIndex, first: int = 0) -> list[bytes]:
        places.append("" if first < 29 and threading.current_thread() is threading.main_thread() else THREAD_NAME)
        return elements(self, first)

    async with Node() as node, client_of(wallet_of(*map(script_at, range(30))), node) as client:
        await client.wait_synced()
        monkeypatch.setattr(TxOutIndex, "without_coins", noted)
        monkeypatch.setattr(TxOutIndex, "gcs_scripts", counted)
        await client.remove(script_at(3))
        assert len(places) >= 2
        assert all(place.startswith(THREAD_NAME) for place in places)


@MODES
async def test_leaving_derives_no_script(mode: str) -> None:
    calls: list[int] = []

    def counted(index: int) -> bytes:
        calls.append(index)
        return script_at(index)

    watch = WatchList(REGTEST)
    watch.add_keychain("mine", counted, lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node:
        fund(node, 1, 1)
        node.regtest.pay(TxOut(1_000, script_at(3 * GAP_LIMIT // 2)))
        node.regtest.mine()
        async with client_of(watch, node, mode) as client:
            await client.wait_synced()
            end = client.watch.keychains[0].end
            derived = len(calls)
        assert len(calls) == derived
        assert watch.keychains[0].end == end > 2 * GAP_LIMIT
        assert sorted(watch.keychains[0].used) == [0, 3 * GAP_LIMIT // 2]


def scripts_from(first: int) -> Callable[[int], bytes]:
    return lambda index: script_at(first + index)


@pytest.mark.slow
async def test_a_cancelled_leave_takes_all_changes() -> None:
    async with Node(mined(101)) as node:
        fund(node, 1, 1)
        watch = WatchList(REGTEST)
        for number in range(5):
            watch.add_keychain(f"chain {number}", scripts_from(number * 10_000), lookahead=STEP)
        client = await client_of(watch, node).__aenter__()
        await client.wait_synced()
        (end, *_) = {chain.end for chain in client.watch.keychains}
        leaving = asyncio.ensure_future(client.__aexit__(None, None, None))
        while watch.keychains[0].end < end:  # noqa: ASYNC110  no event tells of the first step
            await asyncio.sleep(0)
        assert watch.keychains[-1].end < end
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert {chain.end for chain in watch.keychains} == {end}
        watch.add_script(script_at(77))  # the list is free again


@MODES
async def test_a_step_records_a_bounded_number_of_matches(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "MATCHES_AT_ONCE", 5)
    steps: list[int] = [0]
    step, connect = ClientEngine.step, Books.connect_in_parts

    def counted_step(self: ClientEngine, *arguments: Any) -> list[Any]:
        steps.append(0)
        return step(self, *arguments)

    def counted_connect(self: Books, block: Any, hits: Any) -> Any:
        steps[-1] += len(hits)
        return connect(self, block, hits)

    monkeypatch.setattr(ClientEngine, "step", counted_step)
    monkeypatch.setattr(Books, "connect_in_parts", counted_connect)
    async with Node(mined(101)) as node:
        fund(node, 30, 3)
        async with client_of(wallet_of(*map(script_at, range(3))), node, mode) as client:
            await client.wait_synced()
            assert len(await client.matches()) == 90
    assert sum(steps) >= 90
    assert max(steps) <= 6  # the block of the fifth match is recorded as a whole


async def test_matches_are_made_a_few_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PER_TURN", 4)
    turns: list[int] = [0]
    match_of = Reports.match_of

    def counted(self: Reports, *arguments: Any) -> Any:
        turns[-1] += 1
        return match_of(self, *arguments)

    async def beat() -> None:
        while True:
            turns.append(0)
            await asyncio.sleep(0)

    async with Node(mined(101)) as node:
        fund(node, 5, 5)
        async with client_of(wallet_of(*map(script_at, range(5))), node) as client:
            await client.wait_synced()
            monkeypatch.setattr(Reports, "match_of", counted)
            beating = asyncio.ensure_future(beat())
            found = await client.matches()
            beating.cancel()
            assert len(found) == sum(turns) == 25
            assert max(turns) <= 4


async def test_new_entries_do_not_read_existing_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    gcs_scripts = TxOutIndex.gcs_scripts

    def counted(self: TxOutIndex, first: int = 0) -> list[bytes]:
        found = gcs_scripts(self, first)
        sizes.append(len(found))
        return found

    async with Node(mined(101)) as node:
        fund(node, 1, 1)
        async with client_of(wallet_of(*map(script_at, range(50))), node) as client:
            await client.wait_synced()
            scripts = filter_search_of(engine_of(client)).scripts
            before = scripts.position.base
            monkeypatch.setattr(TxOutIndex, "gcs_scripts", counted)
            for index in range(50, 55):
                await client.add_address(script_to_address(script_at(index), REGTEST) or "")
            await client.wait_synced()
            assert scripts.position.base == before + 5
    assert max(sizes) <= 2  # the new script, and the script of the only coin


def applied(watch: WatchList, *requests: Request) -> int:
    """Apply requests to a list, and return the number of steps."""
    return sum(1 for _ in apply_changes(watch.index, requests, watch.copy().index))


def entries(indexes: Iterable[int]) -> tuple[tuple[EntryKind, bytes], ...]:
    return tuple((EntryKind.SCRIPT, script_at(index)) for index in indexes)


def relabelled(indexes: Iterable[int], label: str | None) -> RelabelEntries:
    return RelabelEntries(tuple((*each, label) for each in entries(indexes)))


def added(indexes: Iterable[int], label: str | None = None) -> AddEntries:
    return AddEntries(tuple((*each, label) for each in entries(indexes)), SearchStart())


def test_changes_of_a_run_are_applied_in_their_order() -> None:
    watch = wallet_of(*map(script_at, range(4)))
    for number in range(4):
        watch.relabel(number, f"old {number}")
    applied(
        watch,
        added([4, 5, 6], "new"),
        relabelled([0, 4], "changed"),
        RemoveEntries(entries([1, 2, 5])),
        relabelled([2], "never"),
        added([2]),  # an entry that is added again has lost its label
        added([3]),  # an entry that is watched keeps its label
        relabelled([3], None),
    )
    found = {value: label for _, value, label in watch.entries()}
    assert found == {
        script_at(0): "changed",
        script_at(2): None,
        script_at(3): None,
        script_at(4): "changed",
        script_at(6): "new",
    }


def test_many_removals_make_one_copy_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    without = TxOutIndex.without_entries

    def counted(self: TxOutIndex, numbers: Any) -> TxOutIndex:
        copies.append(len(numbers))
        return without(self, numbers)

    monkeypatch.setattr(TxOutIndex, "without_entries", counted)
    watch = wallet_of(*map(script_at, range(30)))
    applied(watch, *(RemoveEntries(entries([index])) for index in range(20)))
    assert copies == [20]
    assert list(watch.script_pubkeys()) == [script_at(index) for index in range(20, 30)]


def test_removed_account_is_applied_in_steps() -> None:
    watch = wallet_of(*map(script_at, range(3 * STEP)))
    watch.add_account("shop", Keychain("shop", lambda index: (b"\x51" + index.to_bytes(4, "big"),)))
    assert applied(watch, RemoveAccount("shop")) >= 3
    assert watch == wallet_of(*map(script_at, range(3 * STEP)))


def test_entry_added_while_its_account_is_removed_stays() -> None:
    """Another client that uses the same list is left at the same time."""
    watch = wallet_of(*map(script_at, range(STEP)))
    watch.add_account("shop", Keychain("shop", lambda index: (b"\x51" + index.to_bytes(4, "big"),)))
    steps = apply_changes(watch.index, [RemoveAccount("shop")], watch.copy().index)
    next(steps)
    watch.add_script(script_at(STEP))
    for _ in steps:
        pass
    assert watch == wallet_of(*map(script_at, range(STEP + 1)))


def test_many_new_entries_are_applied_in_steps() -> None:
    watch = wallet_of(script_at(0))
    assert applied(watch, added(range(3 * STEP))) >= 3
    assert len(watch) == 3 * STEP
