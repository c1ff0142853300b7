"""Keychains in a live client: uses move windows while it runs, and the client searches blocks again for new scripts."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import InexpressibleError, KeychainError, ParameterError, StoreFullError
from spvfilter.light import LightClient
from spvfilter.network import REGTEST
from spvfilter.node import Node
from spvfilter.primitives import TxOut
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch import windows
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from support.client.regtests import mined
from support.vectors import effort
from support.wallets.keychains import script_at

MODES = pytest.mark.parametrize("mode", ["compact", "bip37"])


def wallet(lookahead: int = GAP_LIMIT) -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_keychain("mine", script_at, "savings", lookahead=lookahead)
    return watch


def client_of(watch: WatchList, node: Node, mode: str, store: Path | None = None, **options: float) -> LightClient:
    return LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store, mode=mode, **options)  # type: ignore[arg-type]


async def indexes(client: LightClient) -> list[int | None]:
    """Return the indexes of the matches in the order of blocks, once all blocks are searched."""
    async with asyncio.timeout(60):
        await client.wait_synced()
    return [found.match.keychain_index for found in await client.matches()]


def pay(node: Node, *used: int) -> None:
    for index in used:
        node.regtest.pay(TxOut(1_000 + index, script_at(index)))
        node.regtest.mine()


@pytest.mark.few(1)
@MODES
async def test_addresses_used_out_of_order_are_found_in_one_run(mode: str, tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        pay(node, 90, 65, 7, 30)
        watch, path = wallet(), tmp_path / "wallet.db"
        async with client_of(watch, node, mode, path) as client:
            assert await indexes(client) == [90, 65, 7, 30]
            assert client.watch.keychains[0].end == 90 + 1 + 2 * GAP_LIMIT
            status = await client.status()
            assert status.skipped == ()
            assert len(status.searched) == 1
            assert watch.keychains[0].end == GAP_LIMIT  # the user's list is unchanged until the client is left
            assert [coin.keychain_index for coin in await client.coins(keychain="mine")] == [30, 7, 65, 90]
            assert {coin.label for coin in await client.coins()} == {"savings"}
            assert (
                (await client.balance("savings")).confirmed
                == (await client.balance(keychain="mine")).confirmed
                == 4_192
            )
            assert [entry.net for entry in await client.history(keychain="savings")] == [1_030, 1_007, 1_065, 1_090]
            assert [each.used for each in await client.keychains()] == [(7, 30, 65, 90)]
            assert await client.next_address() == script_to_address(script_at(0), REGTEST)
            assert [await client.is_used(str(script_to_address(script_at(at), REGTEST))) for at in (30, 31)] == [
                True,
                False,
            ]
        assert sorted(watch.keychains[0].used) == [7, 30, 65, 90]
        assert watch.keychains[0].end == 90 + 1 + 2 * GAP_LIMIT
        for again in (watch, wallet()):  # the same list, or a new list that takes the keychain from the database
            async with client_of(again, node, mode, path) as client:
                assert await indexes(client) == [90, 65, 7, 30]
                assert client.watch.next_address() == watch.next_address()
        with WalletStore.open(path) as books:
            (group,) = books.searched()
            assert group.skipped == ()


@pytest.mark.few(1)
@MODES
async def test_a_confirmed_payment_moves_a_window_of_a_running_client(mode: str) -> None:
    async with Node(mined(101)) as node, client_of(wallet(), node, mode) as client:
        assert await indexes(client) == []
        for index in (39, 79, 119):  # the last watched index each time: only a block moves the window
            node.regtest.pay(TxOut(1_000, script_at(index)))
            async with asyncio.timeout(30):
                async for event in client.events():
                    if isinstance(event, MatchFound) and event.match.keychain_index == index:
                        break
            assert client.watch.keychains[0].end == index + 1
            node.regtest.mine()
            while client.watch.keychains[0].end == index + 1:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0.01)
            assert client.watch.keychains[0].end == index + 1 + 2 * GAP_LIMIT
        pay(node, 159)
        async with asyncio.timeout(30):
            while client.searched_height < node.regtest.height:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await indexes(client) == [39, 79, 119, 159]


async def test_a_payment_within_twice_the_lookahead_moves_no_window() -> None:
    async with Node(mined(101)) as node:
        pay(node, GAP_LIMIT - 1)
        watch = wallet()
        async with client_of(watch, node, "compact") as client:
            assert await indexes(client) == [GAP_LIMIT - 1]
            assert client.watch.keychains[0].end == 2 * GAP_LIMIT
        assert watch.next_address() == wallet().next_address()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(2, 5, 100)))
@MODES
async def test_any_order_of_uses_equals_a_later_scan(mode: str, seed: int, tmp_path: Path) -> None:
    print(f"\nseed {seed}")
    rng = random.Random(seed)
    async with Node(mined(101)) as node:
        paid = rng.sample(range(rng.choice((60, 150, 300))), 25)
        watch, path = wallet(), tmp_path / "wallet.db"
        while paid or rng.random() < 0.5:
            more, paid = paid[:8], paid[8:]
            pay(node, *more)
            with suppress(TimeoutError):  # the client is left at any moment
                async with client_of(watch if rng.random() < 0.5 else wallet(), node, mode, path) as client:
                    async with asyncio.timeout(rng.random() * 0.3):
                        await client.wait_synced()
        async with client_of(wallet(), node, mode, path) as client:
            found = await indexes(client)
            end = client.watch.keychains[0].end
        everything = WatchList(REGTEST)
        for index in range(end):
            everything.add_script(script_at(index))
        known = [
            match.value - 1_000
            for block in node.regtest.chain.active
            for match in everything.match_block(block.raw)
            if match.value
        ]
        assert found == known
        assert end >= max(known, default=-1) + 1 + GAP_LIMIT


async def test_scripts_that_cannot_be_derived_end_the_client() -> None:
    def failing(index: int) -> bytes:
        if index >= 2 * GAP_LIMIT:
            raise RuntimeError("the device was unplugged")
        return script_at(index)

    async with Node(mined(101)) as node:
        pay(node, 30)
        watch = WatchList(REGTEST)
        watch.add_keychain("mine", failing, lookahead=GAP_LIMIT)
        with pytest.raises(KeychainError, match="RuntimeError while deriving index"):
            async with client_of(watch, node, "compact") as client:
                await indexes(client)


@pytest.mark.few(1)
@MODES
async def test_the_next_run_searches_for_an_unstored_window(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, path = Store.commit, tmp_path / "wallet.db"

    def commit(self: Store, *batches: Batch) -> None:
        if any(batch.entries for batch in batches):
            raise StoreFullError("the disk is full")
        true(self, *batches)

    async with Node(mined(101)) as node:
        pay(node, 45, 30)
        monkeypatch.setattr(Store, "commit", commit)
        with pytest.raises(StoreFullError):
            async with client_of(wallet(), node, mode, path) as client:
                await indexes(client)
        monkeypatch.undo()
        async with client_of(wallet(), node, mode, path) as client:
            assert await indexes(client) == [45, 30]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::spvfilter.errors.FpRateWarning")
async def test_a_full_bip37_filter_shortens_the_lookahead() -> None:
    async with Node(mined(101)) as node:
        pay(node, 5, 1_100)
        async with client_of(
            wallet(1_000), node, "bip37", fp_rate=1e-60
        ) as client:  # which has room for 1,002 elements
            assert await indexes(client) == [5]
            assert client.watch.keychains[0].end == 1_000
        pay(node, 999)
        with pytest.raises(InexpressibleError, match="would not fit into a BIP-37 filter"):
            async with client_of(wallet(1_000), node, "bip37", fp_rate=1e-60) as client:
                await indexes(client)
        async with client_of(wallet(900), node, "bip37", fp_rate=1e-60) as client:
            assert await indexes(client) == [5]
        pay(node, 890)
        async with client_of(wallet(900), node, "bip37", fp_rate=1e-60) as client:
            assert await indexes(client) == [5, 890]
            assert 890 + GAP_LIMIT < client.watch.keychains[0].end < 1_000
            assert GAP_LIMIT <= client.watch.keychains[0].lookahead < 900


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::spvfilter.errors.FpRateWarning")
async def test_a_filter_without_room_for_the_margin_keeps_the_lookahead() -> None:
    """The margin of a second lookahead only saves searches. A shorter lookahead could miss payments."""
    async with Node(mined(101)) as node, client_of(wallet(400), node, "bip37", fp_rate=1e-60) as client:
        assert await indexes(client) == []
        pay(node, 500)
        while not await indexes(client):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert client.watch.keychains[0].end == 901
        assert client.watch.keychains[0].lookahead == 400


@pytest.mark.few(1)
@MODES
async def test_a_restart_has_the_window_and_searches_no_block_again(mode: str, tmp_path: Path) -> None:
    derived: list[int] = []

    def counted(index: int) -> bytes:
        derived.append(index)
        return script_at(index)

    async with Node(mined(101)) as node:
        pay(node, 90, 65, 7, 30, 100)
        path = tmp_path / "wallet.db"
        async with client_of(wallet(), node, mode, path) as client:
            await indexes(client)
            (before,) = client.watch.keychains
        node.regtest.pay(TxOut(1_000, script_at(0)))
        for _ in range(2):
            watch = WatchList(REGTEST)
            watch.add_keychain("mine", counted, "savings", lookahead=GAP_LIMIT)
            derived.clear()
            async with client_of(watch, node, mode, path) as client:
                (chain,) = client.watch.keychains
                assert (chain.end, {*chain.used} - {0}) == (before.end, {*before.used})
                assert client.searched_height == node.regtest.height  # from the start
                assert len(derived) <= 3
                async with asyncio.timeout(30):
                    while client.watch.next_address() != script_to_address(script_at(1), REGTEST):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
        with WalletStore.open(path) as books:
            assert books.searched_height() == node.regtest.height


async def test_a_restart_skips_the_address_of_a_pending_payment(tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        path, script = tmp_path / "wallet.db", script_at(0)
        async with client_of(wallet(), node, "compact", path) as client:
            await indexes(client)
            node.regtest.pay(TxOut(1_000, script))
            async with asyncio.timeout(30):
                async for event in client.events():
                    if isinstance(event, MatchFound):
                        break
        async with client_of(wallet(), node, "compact", path, mempool=False) as client:
            assert client.watch.next_address() == script_to_address(script_at(1), REGTEST)
            assert await client.is_used(str(script_to_address(script, REGTEST)))


@pytest.mark.few(1)
@MODES
async def test_the_next_address_is_always_watched(mode: str, tmp_path: Path) -> None:
    """Pending payments move no window, because an attacker can fake them. Still their addresses are used."""
    async with Node(mined(101)) as node, client_of(wallet(), node, mode, tmp_path / "wallet.db") as client:
        await indexes(client)
        (chain,) = client.watch.keychains
        for index in range(end := chain.end):
            node.regtest.pay(TxOut(1_000 + index, script_at(index)))
        async with asyncio.timeout(30):
            while len(await client.matches()) < end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for told in ("mine", None):
            with pytest.raises(
                ParameterError,
                match="all watched addresses of keychain 'mine' are used, the last ones by unconfirmed",
            ):
                client.watch.next_address(told)
            with pytest.raises(
                ParameterError,
                match="all watched addresses of keychain 'mine' are used, the last ones by unconfirmed",
            ):
                await client.next_address(told)
        node.regtest.mine()
        async with asyncio.timeout(30):
            while chain.end == end:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        following = script_to_address(script_at(end), REGTEST)
        assert client.watch.next_address() == await client.next_address() == following


async def test_a_missing_function_ends_the_client_when_its_window_moves(tmp_path: Path) -> None:
    async with Node(mined(101)) as node:
        path = tmp_path / "wallet.db"
        async with client_of(wallet(), node, "compact", path) as client:
            await indexes(client)
        pay(node, 19)
        async with client_of(WatchList(REGTEST), node, "compact", path) as client:
            assert await indexes(client) == [19]
            assert client.watch.label(0) == "savings"
        pay(node, 25)
        with pytest.raises(KeychainError, match=r"cannot derive the script .*: call add_keychain"):
            async with client_of(WatchList(REGTEST), node, "compact", path) as client:
                await indexes(client)
        async with client_of(wallet(), node, "compact", path) as client:
            assert await indexes(client) == [19, 25]


@pytest.mark.few(1)
@MODES
async def test_a_window_grows_in_parts_of_a_bounded_size(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MAX_AHEAD", 7)
    parts: list[int] = []
    move = windows.Windows.move

    def counted(self: windows.Windows, ahead: windows.Ahead) -> bool:
        parts.append(sum(map(len, ahead.values())))
        return move(self, ahead)

    monkeypatch.setattr(windows.Windows, "move", counted)
    async with Node(mined(101)) as node:
        pay(node, 39, 58, 3)
        watch = wallet()
        watch.add_keychain("other", lambda index: script_at(index + 1_000), lookahead=GAP_LIMIT)
        pay(node, 1_039, 1_050)
        async with client_of(watch, node, mode) as client:
            assert await indexes(client) == [39, 58, 3, 39, 50]
            assert [chain.end >= chain.required for chain in client.watch.keychains] == [True, True]
            assert (await client.status()).skipped == ()
    assert sum(parts) >= 2 * GAP_LIMIT
    assert 0 < max(parts) <= 7
