"""Coins of a running client: which exist, which may be spent now, and frozen ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError
from spvfilter.light.client import LightClient
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint
from spvfilter.store.views import Coin
from spvfilter.transaction import Transaction
from spvfilter.wallet.reader import WalletStore
from support.blocks.locks import build_tx
from support.client.lightworld import LOCKS, STRANGER, World, running

OTHER = OutPoint(bytes(31) + b"\x07", 3)


async def values(client: LightClient) -> tuple[list[int], list[int], int]:
    """Return the values of all coins, of the spendable coins, and the spendable balance."""
    coins, unspent, balance = await client.coins(), await client.unspent(), await client.balance()
    assert [coin for coin in coins if coin.is_spendable] == unspent
    return sorted(coin.value for coin in coins), sorted(coin.value for coin in unspent), balance.spendable


def of_value(coins: list[Coin], value: int) -> Coin:
    (found,) = (coin for coin in coins if coin.value == value)
    return found


async def test_unspent_has_the_coins_that_may_be_spent_now() -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, mode="compact") as run:
        client = run.client
        for value in (50_000, 60_000, 70_000):
            world.receive(LOCKS[0], value)
        world.regtest.mine(to=LOCKS[0].script_pubkey)  # an immature coinbase
        await run.synced(world)
        coins = await client.coins()
        reward = max(coin.value for coin in coins)
        assert await values(client) == ([50_000, 60_000, 70_000, reward], [50_000, 60_000, 70_000], 180_000)
        own = build_tx(
            [LOCKS[0].spends(of_value(coins, 50_000).outpoint, 50_000)], [STRANGER.pays(40_000), LOCKS[0].pays(9_000)]
        )
        txid = (await client.broadcast(own)).txid
        await run.until(lambda books: books.waiting() == {txid})
        assert await values(client) == ([9_000, 50_000, 60_000, 70_000, reward], [60_000, 70_000], 130_000)
        (change,) = [coin for coin in await client.coins() if coin.is_trusted]
        assert (change.value, change.is_spendable) == (9_000, False)
        assert sum(coin.value for coin in await client.unspent(trusted_change=True)) == 139_000
        page = await client.unspent(trusted_change=True, limit=1)
        assert page == [change]
        assert (await client.unspent(limit=2, before=page[0].cursor)) == await client.unspent(limit=2)
        with pytest.raises(ParameterError, match="trusted_change must be True or False"):
            await client.unspent(trusted_change="yes")  # type: ignore[arg-type]
        await client.freeze(change.outpoint)
        assert sum(coin.value for coin in await client.unspent(trusted_change=True)) == 130_000
        await client.unfreeze(change.outpoint)
        foreign = build_tx([LOCKS[0].spends(of_value(coins, 60_000).outpoint, 60_000)], [STRANGER.pays(55_000)])
        world.regtest.submit_tx(foreign)
        spender = Transaction.parse(foreign).txid
        await run.until(lambda books: spender in books.waiting())
        coin = of_value(await client.coins(), 60_000)
        assert (coin.spent_by, coin.is_spender_own, coin.is_spendable) == (spender, False, False)  # it is signed
        assert (await values(client))[1:] == ([70_000], 70_000)
        await client.freeze(coin.outpoint)
        assert (await values(client))[1:] == ([70_000], 70_000)


@pytest.mark.few(1)
@pytest.mark.parametrize("rebuild", [False, True])
async def test_a_frozen_coin_stays_frozen_until_it_is_unfrozen(rebuild: bool, tmp_path: Path) -> None:
    world, path = World(), tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, mode="compact", store=path) as run:
            world.receive(LOCKS[0], 50_000)
            world.receive(LOCKS[1], 60_000)
            world.regtest.mine()
            await run.synced(world)
            coin = of_value(await run.client.coins(), 50_000)
            await run.client.freeze(coin.outpoint)
            await run.client.freeze(str(coin.outpoint))  # a second call changes nothing
            assert await values(run.client) == ([50_000, 60_000], [60_000], 60_000)
            assert (await run.client.balance()).confirmed == 110_000
            assert (await run.client.balance("lock 0")).spendable == 0
            assert of_value(await run.client.coins(), 50_000) == replace(coin, is_frozen=True, is_spendable=False)
        async with running(world, node, mode="compact", store=path, rebuild=rebuild) as run:
            await run.client.wait_synced()
            assert await values(run.client) == ([50_000, 60_000], [60_000], 60_000)
            with WalletStore.open(path) as wallet:  # in another process
                assert wallet.frozen() == (coin.outpoint,)
                assert [each.value for each in wallet.unspent()] == [60_000]
            await run.client.unfreeze(str(coin.outpoint))
            assert await values(run.client) == ([50_000, 60_000], [50_000, 60_000], 110_000)


async def test_a_frozen_coin_returns_frozen_after_a_reorganization(tmp_path: Path) -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, mode="compact") as run:
        world.receive(LOCKS[0], 50_000)
        world.regtest.mine()
        await run.synced(world)
        (coin,) = await run.client.coins()
        await run.client.freeze(coin.outpoint)
        world.regtest.reorg(1, blocks=2)
        await run.synced(world)
        assert (await values(run.client))[1:] == ([], 0)
        world.regtest.mine()
        await run.synced(world)
        assert await values(run.client) == ([50_000], [], 0)


async def test_a_refused_freeze_names_the_reason() -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, mode="compact") as run:
        await run.synced(world)
        with pytest.raises(ParameterError, match=r"has no coin 0700.*:3: freeze an outpoint that `coins` lists"):
            await run.client.freeze(OTHER)
        with pytest.raises(ParameterError, match=r"output 0700.*:3 is not frozen"):
            await run.client.unfreeze(OTHER)
        with pytest.raises(ParameterError, match="an outpoint must be TXID:INDEX"):
            await run.client.freeze("07:3:1")
        with pytest.raises(ParameterError, match="an OutPoint or a string TXID:INDEX, not bytes"):
            await run.client.freeze(bytes(OTHER))  # type: ignore[arg-type]
