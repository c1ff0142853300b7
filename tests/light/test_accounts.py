"""Accounts in a live client: books of their own, changes while it runs, windows, birthdays and restarts."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import InexpressibleError, KeychainError, ParameterError, UnknownAccountError
from spvfilter.light import LightClient, SyncLightClient
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.reveals import Reveals
from spvfilter.network import REGTEST
from spvfilter.node import Node
from spvfilter.primitives import TxOut
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, Reason
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.keychain import GAP_LIMIT, Budget, Keychain
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import p2wpkh
from support.client.regtests import mined

MODES = pytest.mark.parametrize("mode", ["compact", "bip37"])


def script(owner: int, index: int) -> bytes:
    return p2wpkh(owner.to_bytes(10, "big") + index.to_bytes(10, "big"))


def address(owner: int, index: int) -> str:
    return script_to_address(script(owner, index), REGTEST) or ""


def chain(owner: int) -> Keychain:
    return Keychain(f"chain {owner}", lambda index: (script(owner, index),), lookahead=GAP_LIMIT)


def base() -> WatchList:
    return WatchList.from_addresses([address(0, 0)], REGTEST)


def client_of(watch: WatchList, node: Node, mode: str, store: Path | None, **options: int) -> LightClient:
    return LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store, mode=mode, **options)  # type: ignore[arg-type]


def pay(node: Node, owner: int, index: int, value: int) -> bytes:
    return node.regtest.pay(TxOut(value, script(owner, index)))


async def confirmed(client: LightClient, node: Node) -> None:
    """Mine a block, and wait until the client has searched it and every earlier block."""
    node.regtest.mine()
    async with asyncio.timeout(60):
        while client.tip_height < node.regtest.height:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
        await client.wait_synced()


@pytest.mark.few(1)
@MODES
async def test_accounts_have_books_of_their_own_while_the_client_runs(mode: str, tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    async with Node(mined(101)) as node:
        pay(node, 1, 3, 1_000)
        node.regtest.mine()
        async with client_of(watch, node, mode, path) as client:
            await client.wait_synced()
            await client.add_account("alice", chain(1))
            await client.add_account("bob", address(2, 0))
            await client.wait_synced()
            assert await client.accounts() == ("alice", "bob")
            assert (await client.balance(account="alice")).confirmed == 1_000
            assert (await client.balance(account="bob")).total == 0
            assert await client.next_address(account="alice") == address(1, 0)
            for index in (3 + GAP_LIMIT, 3 + 2 * GAP_LIMIT, 3 + 3 * GAP_LIMIT):
                pay(node, 1, index, index)
                await confirmed(client, node)
            pay(node, 2, 0, 5)
            await confirmed(client, node)
            alice = 1_000 + 3 * 3 + 6 * GAP_LIMIT
            await client.rename_account("bob", "robert")
            assert [each.account for each in await client.coins(account="robert")] == ["robert"]
            assert {each.match.account for each in await client.matches()} == {"alice", "robert"}
            for method in (client.balance, client.coins, client.history, client.next_address, client.keychains):
                with pytest.raises(UnknownAccountError, match="no account 'bob'"):
                    await method(account="bob")
            with pytest.raises(UnknownAccountError):
                client.events(account="bob")
            with pytest.raises(ParameterError, match="belongs to account 'alice'"):
                await client.add_account("carol", address(1, 30))
        assert watch.accounts == ("alice", "robert")
        assert watch.account(watch.table.match_script(script(1, 60))) == "alice"
        for again in (watch, base()):
            async with client_of(again, node, mode, path) as client:
                await client.wait_synced()
                assert await client.accounts() == ("alice", "robert")
                assert (await client.balance(account="alice")).confirmed == alice
                assert sum(each.net for each in await client.history(account="alice")) == alice
        with WalletStore.open(path) as wallet:
            assert wallet.balance(account="robert").confirmed == 5
            assert [each.account for each in wallet.keychains(account="alice")] == ["alice"]
            events = wallet.events(0, account="robert")
            assert [each.match.account for each in events if isinstance(each, MatchFound)] == ["robert"]
            assert events.sequence == wallet.sequence()


@pytest.mark.few(1)
@MODES
async def test_removed_account_comes_back_with_a_search(mode: str, tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    watch.add_account("alice", chain(1))
    watch.add_account("bob", address(2, 0))
    async with Node(mined(101)) as node:
        pay(node, 1, 0, 1_000)
        pay(node, 2, 0, 50)
        node.regtest.mine()
        pay(node, 1, 1, 300)
        async with client_of(watch, node, mode, path) as client:
            await client.wait_synced()
            async with asyncio.timeout(30):
                while (await client.balance(account="alice")).pending_in == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            stream = client.events(account="alice")
            await client.remove_account("alice")
            reasons = [each.reason async for each in stream if isinstance(each, MatchWithdrawn)]
            assert reasons == [Reason.REMOVED, Reason.REMOVED], "the stream ends with the account"
            assert (await client.balance()).total == 50
            assert [each.net for each in await client.history()] == [50]
            assert await client.keychains() == ()
            await client.add_account("alice again", chain(1))
            await client.wait_synced()
            async with asyncio.timeout(30):
                while (await client.balance(account="alice again")).total != 1_300:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await client.remove_account("bob")
            await client.remove(address(0, 0))
            with pytest.raises(ParameterError, match="no entries would be left"):
                await client.remove_account("alice again")
        assert watch.accounts == ("alice again",)
        Store.open(path, REGTEST).close()  # the store checks every row


@pytest.mark.few(1)
@MODES
async def test_account_is_searched_from_its_own_birthday(mode: str, tmp_path: Path) -> None:
    path, longer = tmp_path / "w.db", Keychain("chain 1", lambda index: (script(1, index),), lookahead=3 * GAP_LIMIT)
    async with Node(mined(101)) as node:
        for index in (3 * GAP_LIMIT, GAP_LIMIT + 10, GAP_LIMIT - 1):  # the last payment moves the window
            pay(node, 1, index, index)
            node.regtest.mine()
        node.regtest.mine(10)
        async with client_of(base(), node, mode, path, from_height=110) as client:
            await client.wait_synced()
            await client.add_account("alice", chain(1), from_height=104)
            await client.wait_synced()
            assert (await client.balance(account="alice")).confirmed == GAP_LIMIT - 1
            await client.add_account("alice", chain(1), from_height=0)
            await client.wait_synced()
            assert (await client.balance(account="alice")).confirmed == 2 * GAP_LIMIT + 9
        watch = base()
        watch.add_account("alice", longer)
        async with client_of(watch, node, mode, path, from_height=110) as client:
            await client.wait_synced()
            assert (await client.balance(account="alice")).confirmed == 5 * GAP_LIMIT + 9


@pytest.mark.few(1)
@MODES
async def test_keychain_without_an_account_moves_into_one_without_events(mode: str, tmp_path: Path) -> None:
    watch = base()
    watch.add_keychain("chain 1", lambda index: script(1, index), lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node:
        pay(node, 1, 0, 1_000)
        node.regtest.mine()
        path = tmp_path / "w.db"
        async with client_of(watch, node, mode, path) as client:
            await client.wait_synced()
            before = (await client.balance()).sequence
            await client.add_account("alice", chain(1))
            balance = await client.balance(account="alice")
            assert (balance.confirmed, balance.sequence) == (1_000, before)
            assert [each.net for each in await client.history(account="alice")] == [1_000]
        assert watch.keychains[0].account == "alice"
        other = base()
        other.add_account("bob", chain(1))
        with pytest.raises(ParameterError, match="belongs to account 'alice'"):
            async with client_of(other, node, mode, path):
                pass


@pytest.mark.parametrize("is_earlier", [True, False])
async def test_account_stream_follows_a_rename_under_way(is_earlier: bool, tmp_path: Path) -> None:
    watch = base()
    watch.add_account("alice", address(1, 0))
    async with Node(mined(101)) as node, client_of(watch, node, "compact", tmp_path / "w.db") as client:
        await client.wait_synced()
        stream = client.events(account="alice") if not is_earlier else None
        renames = asyncio.gather(
            client.rename_account("alice", "bob"), client.rename_account("bob", "carol")
        )  # the second commit waits for the first one
        await asyncio.sleep(0)
        stream = stream or client.events(account="carol")
        pay(node, 1, 0, 1_000)
        await confirmed(client, node)
        async with asyncio.timeout(30):
            async for event in stream:
                if isinstance(event, MatchFound):
                    assert event.match.account == "carol"
                    break
        await renames


async def test_stream_of_a_removed_account_ends_though_another_is_added(tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    watch.add_account("alice", address(1, 0))
    async with Node(mined(101)) as node:
        for _ in range(2):  # the second run has no added account yet
            async with client_of(watch, node, "compact", path) as client:
                await client.wait_synced()
        async with client_of(watch, node, "compact", path) as client:
            await client.wait_synced()
            stream = client.events(account="alice")
            await client.remove_account("alice")
            await client.add_account("bob", address(2, 0))
            pay(node, 2, 0, 1_000)
            await confirmed(client, node)
            async with asyncio.timeout(30):
                assert not [event async for event in stream if isinstance(event, MatchFound)]


async def test_rebuilt_database_keeps_accounts(tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    watch.add_account("alice", chain(1))
    watch.add_account("bob", address(2, 0))
    async with Node(mined(101)) as node:
        pay(node, 2, 0, 70)
        node.regtest.mine()
        async with client_of(watch, node, "compact", path) as client:
            await client.wait_synced()
        async with client_of(base(), node, "compact", path, rebuild=True) as client:
            await client.wait_synced()
            assert await client.accounts() == ("alice", "bob")
            assert (await client.balance(account="bob")).confirmed == 70
            assert [each.account for each in await client.keychains()] == ["alice"]


@pytest.mark.slow
async def test_account_beyond_the_capacity_of_a_bip37_filter_is_refused(tmp_path: Path) -> None:
    path, large = tmp_path / "w.db", Keychain("large", lambda index: (script(1, index),), lookahead=30_000)
    async with Node() as node:
        async with client_of(base(), node, "bip37", path) as client:
            with pytest.raises(InexpressibleError, match="would not fit into a BIP-37 filter"):
                await client.add_account("alice", large)
            assert await client.accounts() == client.watch.accounts == ()
        with WalletStore.open(path) as wallet:
            assert (wallet.accounts(), wallet.keychains()) == ((), ())


async def test_blocking_client_has_accounts() -> None:
    async with Node(mined(101)) as node:
        pay(node, 1, 0, 9)
        node.regtest.mine()

        def use() -> tuple[tuple[str, ...], int, str | None]:
            with SyncLightClient(base(), peers=[f"{node.host}:{node.port}"], mode="compact") as client:
                client.add_account("alice", chain(1))
                client.rename_account("alice", "alicia")
                client.wait_synced()
                events = client.events(account="alicia")
                found = next(each.match.account for each in events if isinstance(each, MatchFound))
                made = client.accounts(), client.balance(account="alicia").confirmed, found
                client.remove_account("alicia")
                assert [each for each in events if isinstance(each, MatchWithdrawn)], "the stream ends with the account"
                return made

        assert await asyncio.to_thread(use) == (("alicia",), 9, "alicia")


@pytest.mark.descriptors
async def test_database_knows_a_descriptor_in_every_spelling(tmp_path: Path) -> None:
    key = (
        "tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUG"
        "LnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"
    )
    first = f"wpkh([d34db33f/84h/1h/0h]{key}/<0;1>/*)"
    spellings = (
        [first],
        [f"wpkh([d34db33f/84'/1'/0']{key}/<0;1>/*)"],
        [f"wpkh([D34DB33F/84h/1h/0h]{key}/0/*)", f"wpkh({key}/1/*)"],
    )
    path = tmp_path / "w.db"
    async with Node(mined(101)) as node:
        for sources in spellings:
            watch = base()
            watch.add_account("alice", *sources, lookahead=GAP_LIMIT)
            async with client_of(watch, node, "compact", path) as client:
                await client.wait_synced()
                names = [each.name.partition("#")[0] for each in await client.keychains(account="alice")]
                assert names == [first.replace("<0;1>", each) for each in "01"]
                assert len(client.watch) == 1 + 4 * GAP_LIMIT
        other = base()
        other.add_account("alice", f"wpkh({key}/7/*)", lookahead=GAP_LIMIT)
        with pytest.raises(ParameterError, match="a different descriptor in the database"):
            async with client_of(other, node, "compact", path):
                pass


@pytest.mark.few(1)
@MODES
async def test_account_reveals_addresses_and_never_gives_one_twice(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    async with Node(mined(101)) as node:
        async with client_of(base(), node, mode, path) as client:
            await client.add_account("alice", chain(1))
            await client.add_account("bob", chain(2))
            await client.add_account("carol", address(3, 0))
            with pytest.raises(ParameterError, match="account 'carol' has no keychain"):
                await client.reveal_address("carol")
            with pytest.raises(ParameterError, match=r"pass pathlib\.Path"):
                await client.add_account("dora", str(path))
            assert [await client.reveal_address("bob") for _ in range(2)] == [address(2, 0), address(2, 1)]
            assert await client.reveal_address("alice") == address(1, 0)
            for _ in range(2 * GAP_LIMIT):
                await client.reveal_address("bob")
            pay(node, 2, 2 * GAP_LIMIT + 1, 70)  # the last revealed address, after many unpaid addresses
            await confirmed(client, node)
            assert (await client.balance(account="bob")).confirmed == 70
            assert [coin.account for coin in await client.unspent(account="bob")] == ["bob"]
            assert not await client.unspent(account="alice")
            await client.remove_account("bob")
            with pytest.raises(ParameterError, match="no keychain 'bob'"):
                await client.reveal_address("bob")
            await client.add_account("robert", chain(2))
            assert await client.reveal_address("robert") == address(2, 2 * GAP_LIMIT + 2)
            await client.wait_synced()
            assert (await client.balance(account="robert")).confirmed == 70
        async with client_of(base(), node, mode, path) as client:
            await client.wait_synced()
            with pytest.raises(KeychainError):  # the function that derives its scripts is not stored
                await client.reveal_address("robert")


async def test_overlapping_keychains_give_no_address_twice(tmp_path: Path) -> None:
    shifted = Keychain("shifted", lambda index: (script(1, index + 2 * GAP_LIMIT),), lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node, client_of(base(), node, "compact", tmp_path / "w.db") as client:
        await client.add_account("alice", chain(1))
        await client.add_account("bob", shifted)  # their windows do not overlap yet
        given = [await client.reveal_address("bob") for _ in range(5)]
        given += [await client.reveal_address("alice") for _ in range(2 * GAP_LIMIT + 3)]
        given += [await client.reveal_address("bob") for _ in range(5)]
        assert len(set(given)) == len(given)
        with pytest.raises(ParameterError, match="belongs to account"):
            await client.add_account("carol", Keychain("again", lambda index: (script(1, index + 1),)))


def test_a_keychain_refuses_addresses_that_others_have_revealed() -> None:
    watch = base()
    first = watch.add_keychain("first", lambda index: script(1, index), lookahead=GAP_LIMIT)
    second = Keychain("second", lambda index: (script(1, index),), lookahead=GAP_LIMIT, size=5)
    first.reveal(9)
    watch.watch_keychains([second], Budget(100))
    with pytest.raises(
        ParameterError, match="other keychains have revealed the addresses of keychain 'second' starting"
    ):
        watch.windows.to_reveal(second, REGTEST)


def test_keychain_that_comes_back_is_revealed_as_far_as_before() -> None:
    """The database may not contain the latest reveals yet."""
    reveals = Reveals(cast(Context, SimpleNamespace(chain=SimpleNamespace(height=0))))
    gone, back = chain(1), chain(1)
    gone.reveal(4)
    reveals.removing([gone])
    back.reveal(2)
    reveals.added([back])
    assert back.revealed == gone.revealed == 5


@pytest.mark.few(1)
@MODES
async def test_account_that_comes_back_watches_its_revealed_addresses(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    async with Node(mined(101)) as node, client_of(base(), node, mode, path) as client:
        await client.add_account("alice", chain(1))
        for _ in range(4 * GAP_LIMIT):
            await client.reveal_address("alice")
        await client.remove_account("alice")
        await client.add_account("alicia", chain(1))
        await client.wait_synced()
        pay(node, 1, 3 * GAP_LIMIT, 77)
        await confirmed(client, node)
        assert (await client.balance(account="alicia")).confirmed == 77


async def test_account_that_comes_back_at_once_gives_no_address_twice(tmp_path: Path) -> None:
    async with Node(mined(101)) as node, client_of(base(), node, "compact", tmp_path / "w.db") as client:
        await client.add_account("0", chain(1))
        given = []
        for number in range(2 * GAP_LIMIT):  # some of these reveals wait for the window
            made, *_ = await asyncio.gather(
                client.reveal_address(str(number)),
                client.remove_account(str(number)),
                client.add_account(str(number + 1), chain(1)),
            )
            given.append(made)
        assert given == [address(1, index) for index in range(2 * GAP_LIMIT)]


@pytest.mark.few(1)
@pytest.mark.parametrize("is_rebuilt", [False, True])
async def test_shifted_keychain_gives_no_address_of_a_removed_one(is_rebuilt: bool, tmp_path: Path) -> None:
    """Its first address is another one, so it is another keychain, but later addresses are the same."""
    path = tmp_path / "w.db"

    def shifted(by: int) -> Keychain:
        return Keychain(f"shifted by {by}", lambda index: (script(1, index + by),), lookahead=GAP_LIMIT)

    async with Node(mined(101)) as node:
        async with client_of(base(), node, "compact", path) as client:
            await client.add_account("alice", chain(1))
            given = [await client.reveal_address("alice") for _ in range(8)]
            await client.remove_account("alice")
            await client.add_account("bob", shifted(5))
            given += [await client.reveal_address("bob") for _ in range(3)]
            await client.remove_account("bob")
        if is_rebuilt:
            with closing(sqlite3.connect(path)) as db:
                db.execute("UPDATE watch SET label = 'damaged'")
                db.commit()
        async with client_of(base(), node, "compact", path, rebuild=is_rebuilt) as client:
            await client.add_account("carol", shifted(2))
            given += [await client.reveal_address("carol") for _ in range(3)]
            assert given == [address(1, index) for index in range(14)]


@pytest.mark.few(1)
@pytest.mark.parametrize("new", [None, "b"])
async def test_entry_that_is_added_again_leaves_its_account(new: str | None, tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    watch.add_account("a", address(1, 0), address(1, 1))
    async with Node(mined(101)) as node:
        pay(node, 1, 0, 70)
        node.regtest.mine()
        async with client_of(watch, node, "compact", path) as client:
            await client.remove(address(1, 0))
            if new is None:
                await client.add_address(address(1, 0))
            else:
                await client.add_account(new, address(1, 0))
            names = await client.accounts()
        assert watch.accounts == names
        for store in (path, None):
            async with client_of(watch, node, "compact", store) as client:
                await client.wait_synced()
                assert await client.accounts() == names
                assert [each.account for each in await client.coins()] == [new]


@pytest.mark.few(1)
@MODES
async def test_account_keeps_its_address_of_a_removed_keychain(mode: str, tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    watch.add_keychain("chain 1", lambda index: script(1, index), "till", lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node:
        pay(node, 1, 3, 70)
        node.regtest.mine()
        async with client_of(watch, node, mode, path) as client:
            await client.wait_synced()
            await client.add_account("alice", address(1, 3))
            await client.add_account("bob", chain(1))
            await client.remove_account("bob")
            await client.wait_synced()
            pay(node, 1, 3, 5)
            await confirmed(client, node)
            assert {(each.account, each.label) for each in await client.coins()} == {("alice", None)}
            assert (await client.balance(account="alice")).confirmed == 75
        assert (watch.accounts, script(1, 3) in watch, script(1, 4) in watch) == (("alice",), True, False)
        async with client_of(watch, node, mode, path) as client:
            await client.wait_synced()
            assert {(each.account, each.label) for each in await client.coins()} == {("alice", None)}
            assert (await client.balance(account="alice")).confirmed == 75


@pytest.mark.few(1)
@MODES
async def test_script_of_two_keychains_keeps_its_account(mode: str, tmp_path: Path) -> None:
    watch, path = base(), tmp_path / "w.db"
    watch.add_keychain("chain 1", lambda index: script(1, index), lookahead=GAP_LIMIT)
    overlapping = Keychain("high", lambda index: (script(1, index + 50),), lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node:
        async with client_of(watch, node, mode, path) as client:
            await client.wait_synced()
            await client.add_account("alice", overlapping)
            pay(node, 1, 55, 70)
            await confirmed(client, node)
            for _ in range(2 * GAP_LIMIT):  # the window of "chain 1" grows over scripts of "high"
                await client.reveal_address("chain 1")
            await client.add_account("bob", chain(1))
            for _ in range(2 * GAP_LIMIT):
                await client.reveal_address("bob")
            await client.wait_synced()
            assert [each.match.account for each in await client.matches()] == ["alice"]
            assert (await client.balance(account="alice")).confirmed == 70
        for again in (watch, base()):
            async with client_of(again, node, mode, path) as client:
                await client.wait_synced()
                assert [each.match.account for each in await client.matches()] == ["alice"]
                assert (await client.balance(account="alice")).confirmed == 70


async def test_name_of_an_account_precedes_names_of_keychains() -> None:
    watch = base()
    watch.add_keychain("alice", lambda index: script(1, index), "bob", lookahead=GAP_LIMIT)
    watch.add_account("alice", chain(2))
    watch.add_account("bob", address(3, 0))
    async with Node() as node, client_of(watch, node, "compact", None) as client:
        assert await client.reveal_address("alice") == address(2, 0)
        with pytest.raises(ParameterError, match="account 'bob' has no keychain"):
            await client.reveal_address("bob")
        await client.remove_account("bob")
        assert await client.reveal_address("bob") == address(1, 0), "now it is the label of a keychain"


@pytest.mark.few(1)
@MODES
async def test_account_keeps_the_labels_of_its_sources(mode: str, tmp_path: Path) -> None:
    watch, path = WatchList.from_addresses([address(1, 1), address(1, 50)], REGTEST), tmp_path / "w.db"
    till = Keychain("chain 1", lambda index: (script(1, index),), label="till", lookahead=GAP_LIMIT)
    async with Node(mined(101)) as node:
        async with client_of(watch, node, mode, path) as client:
            await client.add_account("alice", till)
            await client.wait_synced()
            for _ in range(2 * GAP_LIMIT):
                await client.reveal_address()
            for index in (0, 1, 50):
                pay(node, 1, index, 70)
            await confirmed(client, node)
            assert [each.label for each in await client.coins()] == ["till"] * 3
            assert [each.account for each in await client.coins()] == ["alice"] * 3
            assert [each.match.label for each in await client.matches()] == ["till"] * 3
        async with client_of(base(), node, mode, path) as client:
            await client.wait_synced()
            assert [each.label for each in await client.coins()] == ["till"] * 3


async def test_name_that_is_no_text_does_not_end_the_client() -> None:
    watch = base()
    watch.add_account("alice", address(1, 0))
    async with Node() as node, client_of(watch, node, "compact", None) as client:
        for name in (["alice"], 5, None):
            with pytest.raises(UnknownAccountError):
                await client.remove_account(name)  # type: ignore[arg-type]
            with pytest.raises(UnknownAccountError):
                await client.rename_account(name, "bob")  # type: ignore[arg-type]
            with pytest.raises(ParameterError):
                await client.rename_account("alice", name)  # type: ignore[arg-type]
        assert await client.accounts() == ("alice",)
