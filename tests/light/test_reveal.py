"""Addresses for invoices: each is revealed once and always watched. An exclusive keychain causes no search of all
blocks.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import InexpressibleError, KeychainError, ParameterError, StoreFullError
from spvfilter.light import LightClient
from spvfilter.light.engine import bloomsearch, peers
from spvfilter.light.events import PeerWarning
from spvfilter.network import REGTEST
from spvfilter.node import Node, Responder
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.server import SETTINGS
from spvfilter.primitives import TxOut
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.reader import WalletStore
from spvfilter.wallet.searches import Searches
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Service
from support.client.regtests import mined
from support.vectors import effort
from support.wallets.keychains import script_at

MODES = pytest.mark.parametrize("mode", ["compact", "bip37"])
ADDRESSES = [str(script_to_address(script_at(index), REGTEST)) for index in range(1_000)]


def wallet(lookahead: int = GAP_LIMIT) -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_keychain("mine", script_at, "savings", lookahead=lookahead)
    return watch


def client_of(
    node: Node, mode: str, store: Path | None = None, watch: WatchList | None = None, **options: Any
) -> LightClient:
    watch = wallet() if watch is None else watch
    return LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store, mode=mode, **options)


async def paid_to(client: LightClient, height: int) -> dict[int | None, int]:
    """Return the value that blocks pay to each index, once all blocks up to a height are searched."""
    async with asyncio.timeout(60):
        while (await client.wait_synced()).height < height:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    found = [each.match for each in await client.matches()]
    received: dict[int | None, int] = {}
    for match in found:
        if match.height is not None:
            received[match.keychain_index] = received.get(match.keychain_index, 0) + (match.value or 0)
    return received


async def revealed(client: LightClient, count: int, *, exclusive: bool = True) -> list[str]:
    """Reveal addresses in calls at the same time, which share a commit."""
    return await asyncio.gather(*(client.reveal_address(exclusive=exclusive) for _ in range(count)))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collect the first block of each search that went back below the searched height."""
    true, begun = Searches.search_again, list[int]()

    def search_again(self: Searches, height: int) -> None:
        if height < self.cursor:
            begun.append(height + 1)
        true(self, height)

    monkeypatch.setattr(Searches, "search_again", search_again)
    yield begun


@pytest.mark.few(1)
@MODES
async def test_each_call_gives_another_address(mode: str, tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        given: list[str] = []
        for call in range(3):
            async with client_of(node, mode, tmp_path / "w.db") as client:
                given += await asyncio.gather(*(client.reveal_address() for _ in range(20)))
                given.append(await client.reveal_address(["mine", "savings", None][call]))
        assert given == ADDRESSES[:63]
        with WalletStore.open(tmp_path / "w.db") as books:
            (status,) = books.keychains()
            assert (status.revealed, status.next_index) == (63, 63)
            assert status.window >= 63 + GAP_LIMIT


async def test_a_client_without_a_database_gives_no_address_twice() -> None:
    async with Node(mined(101)) as node:
        client = client_of(node, "compact")
        given: list[str] = []
        for _ in range(2):
            async with client:
                given += [await client.reveal_address() for _ in range(30)]
        assert given == ADDRESSES[:60]


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_payment_after_many_unpaid_addresses_is_found(mode: str, exclusive: bool, tmp_path: Path) -> None:
    async with Node(mined(101)) as node, client_of(node, mode, tmp_path / "w.db") as client:
        for _ in range(15):
            last = (await revealed(client, 10, exclusive=exclusive))[-1]
        assert last == ADDRESSES[149]
        node.regtest.pay(TxOut(5_000, script_at(149)))
        node.regtest.mine()
        assert await paid_to(client, node.regtest.height) == {149: 5_000}
        assert (await client.balance(keychain="mine")).confirmed == 5_000


async def test_used_addresses_are_not_given(tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        node.regtest.pay(TxOut(1_000, script_at(7)))
        node.regtest.mine()
        async with client_of(node, "compact", tmp_path / "w.db") as client:
            await paid_to(client, node.regtest.height)
            assert await client.reveal_address() == ADDRESSES[8]
            node.regtest.pay(TxOut(1_000, script_at(9)))
            async with asyncio.timeout(30):
                async for event in client.events():
                    if isinstance(event, MatchFound) and event.match.keychain_index == 9:
                        break
            assert await client.reveal_address() == ADDRESSES[10]
            assert await client.next_address() == ADDRESSES[11]


async def test_an_address_is_stored_before_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = Store.commit

    def commit(self: Store, *batches: Batch) -> None:
        if any(change.revealed == 3 for batch in batches for change in batch.keychains):
            raise StoreFullError("the disk is full")
        true(self, *batches)

    async with Node(mined(101)) as node:
        monkeypatch.setattr(Store, "commit", commit)
        with pytest.raises(StoreFullError):
            async with client_of(node, "compact", tmp_path / "w.db") as client:
                assert [await client.reveal_address() for _ in range(2)] == ADDRESSES[:2]
                await client.reveal_address()
        monkeypatch.undo()
        async with client_of(node, "compact", tmp_path / "w.db") as client:
            assert await client.reveal_address() == ADDRESSES[2]


async def test_a_cancelled_call_gives_its_address_to_nobody_else(tmp_path: Path) -> None:
    async with Node(mined(101)) as node, client_of(node, "compact", tmp_path / "w.db") as client:
        task = asyncio.create_task(client.reveal_address())
        await asyncio.sleep(0)
        task.cancel()
        assert await client.reveal_address() == ADDRESSES[1]


# Exclusive keychains


@pytest.mark.few(1)
@MODES
async def test_exclusive_addresses_cost_one_search_of_all_blocks(
    mode: str, tmp_path: Path, searches: list[int]
) -> None:
    async with Node(mined(101)) as node:
        for _ in range(3):
            async with client_of(node, mode, tmp_path / "w.db") as client:
                for _ in range(20):
                    await revealed(client, 10)
                node.regtest.mine(3)
                await paid_to(client, node.regtest.height)
                status = await client.status()
                assert (status.skipped, len(status.searched)) == ((), 1)
        assert [first for first in searches if first < 101] in ([], [0])  # the first growth, if a block was searched


@pytest.mark.few(1)
@MODES
async def test_shared_keychain_costs_a_search_for_each_growth(mode: str, tmp_path: Path, searches: list[int]) -> None:
    async with Node(mined(101)) as node, client_of(node, mode, tmp_path / "w.db") as client:
        await paid_to(client, 101)
        for exclusive in (True, False, True):  # the flag is off until it is set again
            searches.clear()
            for _ in range(20):
                await revealed(client, 4, exclusive=exclusive)
                await paid_to(client, 101)
            assert searches == [0] * (1 if exclusive else 4)


async def test_a_payment_beyond_the_revealed_addresses_ends_exclusive(searches: list[int]) -> None:
    """Another program has revealed addresses, so old blocks may contain payments to any script."""
    async with Node(mined(101)) as node, client_of(node, "compact") as client:
        await paid_to(client, 101)
        await revealed(client, 2 * GAP_LIMIT)  # the first growth of the window is always followed by a search
        await paid_to(client, 101)
        end = client.watch.keychains[0].end
        node.regtest.pay(TxOut(1_000, script_at(end + 1)))  # not watched yet
        node.regtest.mine()
        await paid_to(client, 102)
        searches.clear()
        node.regtest.pay(TxOut(2_000, script_at(end - 1)))
        node.regtest.mine()
        assert await paid_to(client, 103) == {end - 1: 2_000, end + 1: 1_000}
        assert searches == [0]


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("seed", range(effort(3, 8, 100)))
async def test_random_life_loses_no_payment_to_a_revealed_address(
    mode: str, seed: int, tmp_path: Path, searches: list[int]
) -> None:
    print(f"\nseed {seed}")
    rng, path = random.Random(seed), tmp_path / "w.db"
    is_exclusive = rng.random() < 0.7
    given: list[str] = []
    amount = 0
    async with Node(mined(110)) as node, AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(node, mode, path))
        await paid_to(client, 110)
        for _ in range(25):
            match rng.randrange(6):
                case 0 | 1:
                    count = rng.choice((1, 3, 30, 70))
                    calls = (client.reveal_address(exclusive=is_exclusive) for _ in range(count))
                    given += await asyncio.gather(*calls)
                case 2 | 3 if given:
                    for index in rng.sample(range(len(given)), min(3, len(given))):
                        amount += 1
                        node.regtest.pay(TxOut(1_000 + amount, script_at(ADDRESSES.index(given[index]))))
                    if rng.random() < 0.8:
                        node.regtest.mine()
                case 4:
                    node.regtest.reorg(rng.randrange(1, 4))
                    node.regtest.mine()
                case _:
                    killed = tmp_path / "killed"
                    if is_killed := rng.random() < 0.5:
                        for file in (path, path.with_name("w.db-wal")):
                            shutil.copy(file, killed.with_suffix(file.suffix))
                    await stack.aclose()
                    if is_killed:  # the database as it was at that moment
                        path.with_name("w.db-wal").unlink(missing_ok=True)
                        path.with_name("w.db-shm").unlink(missing_ok=True)
                        shutil.copy(killed.with_suffix(".db"), path)
                        shutil.copy(killed.with_suffix(".db-wal"), path.with_name("w.db-wal"))
                    client = await stack.enter_async_context(client_of(node, mode, path))
        node.regtest.mine()
        received = await paid_to(client, node.regtest.height)
        assert len(set(given)) == len(given)
        everything = WatchList(REGTEST)
        for index in range(len(ADDRESSES)):
            everything.add_script(script_at(index))
        expected: dict[int | None, int] = {}
        for block in node.regtest.chain.active:
            for match in everything.match_block(block.raw):
                index = ADDRESSES.index(str(match.address))
                expected[index] = expected.get(index, 0) + (match.value or 0)
        assert received == expected
        assert client.watch.keychains[0].end >= len(given) + GAP_LIMIT
        assert (await client.status()).skipped == ()
        if is_exclusive:
            assert len([first for first in searches if first < 100]) <= 1


KEPT = 20
"""Blocks that pruned nodes serve in the next test, instead of 288."""


class _Pruned(Responder):
    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if self.regtest.height - block.height > KEPT + 2:
            self.end("a block below the pruned node's limit")
        else:
            super().on_block_wanted(block, kind)


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("is_used", [False, True])
async def test_pruned_nodes_cost_no_payment_to_a_revealed_address(
    mode: str, exclusive: bool, is_used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New scripts of a longer window are searched in all blocks, which a pruned node lacks.

    The client says so, and reports no block as searched that was not. Filters are enough if no old block matches.
    """
    for each in (peers, bloomsearch):
        monkeypatch.setattr(each, "LIMITED_DEPTH", KEPT)
    # with other block hashes, one chain in five has an old block whose filter matches by chance
    path, regtest, expected = tmp_path / "w.db", mined(110, lambda: 1_700_000_000.0), {59: 5_000}
    if is_used:
        expected |= {0: 700}
        regtest.pay(TxOut(700, script_at(0)))
    regtest.mine(2 * KEPT)
    async with Node(regtest) as node, client_of(node, mode, path) as client:
        await paid_to(client, regtest.height)
    pruned = replace(SETTINGS, services=SETTINGS.services & ~Service.NETWORK | Service.NETWORK_LIMITED)
    async with Node(regtest, responder=_Pruned, settings=pruned) as node, client_of(node, mode, path) as client:
        given = [await client.reveal_address(exclusive=exclusive) for _ in range(60)]
        assert given == [each for each in ADDRESSES[: 60 + is_used] if each != ADDRESSES[0] or not is_used]
        regtest.pay(TxOut(5_000, address_to_script(ADDRESSES[59], REGTEST)))
        regtest.mine()
        if mode == "compact" and not is_used:
            assert await paid_to(client, regtest.height) == expected
        else:
            warnings = (str(event.error) async for event in client.events() if isinstance(event, PeerWarning))
            async with asyncio.timeout(60):
                while "keeps only recent blocks" not in await anext(warnings):
                    pass
            assert not (await client.status()).is_synced
            assert client.searched_height < regtest.height
    async with Node(regtest) as node, client_of(node, mode, path) as client:
        assert await paid_to(client, regtest.height) == expected
        assert (await client.status()).skipped == ()
        assert await client.reveal_address(exclusive=exclusive) == ADDRESSES[60 + is_used]


@pytest.mark.few(1)
@MODES
async def test_older_copy_finds_payments_to_addresses_revealed_later(mode: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "w.db", tmp_path / "copy.db"
    async with Node(mined(101)) as node:
        async with client_of(node, mode, path) as client:
            for _ in range(50):
                await client.reveal_address(exclusive=True)
            await paid_to(client, 101)
            with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            for _ in range(30):
                lost = await client.reveal_address(exclusive=True)
            end = client.watch.keychains[0].end
            node.regtest.mine(2)
        node.regtest.pay(TxOut(7_000, script_at(ADDRESSES.index(lost))))
        node.regtest.mine()
        node.regtest.pay(TxOut(8_000, script_at(end + 5)))  # another address that only the lost database gave
        node.regtest.mine()
        async with client_of(node, mode, copy) as client:
            await paid_to(client, node.regtest.height)
            given = [await client.reveal_address(exclusive=True) for _ in range(30)]
            received = await paid_to(client, node.regtest.height)
            assert received == {ADDRESSES.index(lost): 7_000, end + 5: 8_000}
            assert lost not in given


async def test_rebuilt_database_gives_no_address_twice(tmp_path: Path, searches: list[int]) -> None:
    path = tmp_path / "w.db"
    async with Node(mined(101)) as node:
        async with client_of(node, "compact", path) as client:
            await paid_to(client, 101)
            given = await revealed(client, 100)
        async with client_of(node, "compact", path, rebuild=True) as client:
            await paid_to(client, 101)
            searches.clear()
            for _ in range(20):
                given += await revealed(client, 4)
                await paid_to(client, 101)
            assert given == ADDRESSES[:180]
            assert searches == [0]


# Refused calls


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::spvfilter.errors.FpRateWarning")
async def test_full_bip37_filter_refuses_another_address(tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        path, given = tmp_path / "w.db", 0
        async with client_of(node, "bip37", path, wallet(300), fp_rate=1e-60) as client:  # room for 1,002 elements
            await paid_to(client, 101)
            with pytest.raises(InexpressibleError, match=r"a BIP-37 filter has no room for .* use compact mode"):
                while True:
                    given += len(await revealed(client, 10 if given < 600 else 1))
            assert given > 600
            node.regtest.pay(TxOut(5_000, script_at(given - 1)))
            node.regtest.mine()
            assert await paid_to(client, 102) == {given - 1: 5_000}
        async with client_of(node, "bip37", path, wallet(300), fp_rate=1e-60) as client:
            assert await paid_to(client, 102) == {given - 1: 5_000}
        async with client_of(node, "compact", path, wallet(300)) as client:
            assert await client.reveal_address() == ADDRESSES[given]


async def test_refused_calls_name_the_reason(tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        async with client_of(node, "compact", tmp_path / "w.db") as client:
            with pytest.raises(ParameterError, match="no keychain 'other'"):
                await client.reveal_address("other")
            with pytest.raises(ParameterError, match="name of an account or a keychain, not int"):
                await client.reveal_address(7)  # type: ignore[arg-type]
            with pytest.raises(ParameterError, match="exclusive must be True or False, not 1"):
                await client.reveal_address(exclusive=1)  # type: ignore[arg-type]
            assert await client.reveal_address() == ADDRESSES[0]
        async with client_of(node, "compact", tmp_path / "w.db", WatchList(REGTEST)) as client:
            with pytest.raises(KeychainError, match=r"cannot derive the script .*: call add_keychain"):
                await client.reveal_address()
        bare = WatchList(REGTEST)
        bare.add_script(script_at(0))
        async with client_of(node, "compact", None, bare) as client:
            with pytest.raises(ParameterError, match="has no keychain"):
                await client.reveal_address()


async def test_a_changed_function_gives_no_address_that_is_not_watched(tmp_path: Path) -> None:
    shift = 0
    watch = WatchList(REGTEST)
    watch.add_keychain("mine", lambda index: script_at(index + shift), lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node, client_of(node, "compact", tmp_path / "w.db", watch) as client:
        assert await client.reveal_address() == ADDRESSES[0]
        shift = 500
        with pytest.raises(KeychainError, match="the script at index 1 has changed"):
            await client.reveal_address()


@pytest.mark.descriptors
async def test_a_descriptor_without_a_range_gives_its_address_once(tmp_path: Path) -> None:
    watch = WatchList(REGTEST)
    watch.add_descriptor(f"addr({ADDRESSES[3]})", "donations")
    async with Node(mined(101)) as node, client_of(node, "compact", tmp_path / "w.db", watch) as client:
        assert await client.reveal_address("donations") == ADDRESSES[3]
        with pytest.raises(ParameterError, match=r"every address of keychain 'addr\(.* has been revealed or used"):
            await client.reveal_address("donations")
