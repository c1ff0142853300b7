"""A wallet's view of a running client: balance, coins, history, fee bumps, replaced payments, and readers of its
database.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import NotRunningError, ParameterError
from spvfilter.light import database
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.wallet.reader import WalletStore
from support.blocks.locks import build_tx
from support.client.lightworld import LOCKS, STRANGER, World, running, where
from support.client.regtests import miner_coins
from support.oracles.ledger import check_ledger


def conflicting(regtest: Regtest, value: int) -> bytes:
    """Return a payment to the wallet from the same coins at each call. A lower value means a higher fee."""
    coins = miner_coins(regtest, 90_000)
    return build_tx([replace(regtest.lock.spends(coin), sequence=0xFFFFFFFD) for coin in coins], [LOCKS[0].pays(value)])


def put(regtest: Regtest, raw: bytes) -> bytes:
    """Add a transaction to the node's mempool, and remove the transactions that it replaces."""
    regtest.mempool.remove_for([Transaction.parse(raw)])
    return regtest.submit_tx(raw)


@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_an_incoming_payment_replaced_twice_counts_once(mode: str, tmp_path: Path) -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, mode=mode, store=tmp_path / "w.db") as run:
        await run.synced(world)
        raws = [conflicting(world.regtest, value) for value in (90_000, 80_000, 70_000)]
        for raw in raws:
            txid = put(world.regtest, raw)
            await run.until(lambda books, txid=txid: txid in books.waiting())  # type: ignore[misc]  # bound now
        assert run.books.waiting() == {txid}
        assert (await run.client.balance()).pending_in == 70_000
        assert [str(entry.status) for entry in await run.client.history()] == ["pending", "replaced", "replaced"]
        assert [withdrawn.by for withdrawn in run.books.withdrawn] == [Transaction.parse(raw).txid for raw in raws[1:]]
        world.regtest.mine()
        await run.until(lambda books: not books.waiting())
        balance = await run.client.balance()
        assert (balance.confirmed, balance.spendable, balance.total) == (70_000, 70_000, 70_000)
        assert [str(entry.status) for entry in await run.client.history()].count("conflicted") == 2


async def test_own_fee_bumps_count_once_and_can_be_abandoned(tmp_path: Path) -> None:
    world = World()
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node, running(world, node, store=path) as run:
        world.receive(LOCKS[0], 50_000)
        world.regtest.mine()
        await run.synced(world)
        (coin,) = await run.client.coins()
        assert (coin.value, coin.label, coin.height, coin.is_spendable) == (
            50_000,
            "lock 0",
            world.regtest.height,
            True,
        )
        first, bump = (
            build_tx([LOCKS[0].spends(coin.outpoint, coin.value)], [STRANGER.pays(20_000), LOCKS[0].pays(change)])
            for change in (29_000, 28_000)
        )
        await run.client.broadcast(first)
        world.regtest.mempool.remove_for([Transaction.parse(bump)])  # the node replaces by fee
        txid = (await run.client.broadcast(bump)).txid
        await run.until(lambda books: books.waiting() == {txid})
        assert (await run.client.balance()).total == 28_000
        with WalletStore.open(path) as wallet:  # while the client runs
            assert wallet.balance() == await run.client.balance()
            entry = wallet.transaction(txid)
            assert entry is not None
            assert (entry.net, entry.fee, entry.is_own, entry.raw) == (-22_000, 2_000, True, bump)
        await run.client.abandon(txid)
        assert (await run.client.balance()).spendable == 50_000
        before = await run.client.balance()
        await run.client.abandon(txid)  # a second call changes nothing and stores no event
        assert (await run.client.balance()).sequence == before.sequence
        world.regtest.mine()  # the node still has it
        await run.until(
            lambda books: txid in {match.txid for match in books.matches.values() if match.height is not None}
        )
        assert (await run.client.balance()).total == 28_000
        with pytest.raises(ParameterError, match="is in a block"):
            await run.client.broadcast(first)
    with pytest.raises(NotRunningError):
        await run.client.balance()


async def test_conflicting_payments_from_two_nodes_count_once(tmp_path: Path) -> None:
    world, other = World(), Regtest(clock=lambda: 1_700_000_000)
    for block in world.regtest.chain.active[1:]:
        other.submit_block(block.raw)
    mine, theirs = conflicting(world.regtest, 90_000), conflicting(world.regtest, 80_000)
    async with (
        Node(world.regtest) as one,
        Node(other, host="127.0.0.2") as two,
        running(world, one, two, mode="compact") as run,
    ):
        await run.synced(world)
        put(world.regtest, mine)
        await run.until(lambda books: books.waiting())
        put(other, theirs)
        await run.until(lambda books: Transaction.parse(theirs).txid in books.waiting())
        assert (await run.client.balance()).pending_in == 80_000
        world.regtest.mine()
        await run.until(lambda books: books.confirmed())
        balance = await run.client.balance()
        assert (balance.confirmed, balance.total) == (90_000, 90_000)


async def test_history_follows_reorganizations(tmp_path: Path) -> None:
    world = World(3)
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node, running(world, node, store=path, mode="compact") as run:
        world.grow(12)
        await run.synced(world)
        world.regtest.reorg(5)
        await run.synced(world)
        world.grow(3)
        await run.synced(world)
        history = await run.client.history(limit=None)
        scripts = {lock.script_pubkey for lock in world.locks}
        there = sum(coin.value for coin in world.regtest.chain.coins.values() if coin.script_pubkey in scripts)
        balance = await run.client.balance()
        assert balance.confirmed + balance.immature == there
        assert sum(entry.net for entry in history if entry.confirmations) == there
        for entry in history:
            if entry.height is not None:
                block = world.regtest.chain.active[entry.height]
                assert (entry.block_hash, entry.time) == (block.hash, int.from_bytes(block.raw[68:72], "little"))
                assert entry.confirmations == world.regtest.height - entry.height + 1
    with Store.open(path, REGTEST) as store:
        store.attach(world.watch())
        check_ledger(store)


@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_a_broadcast_that_a_peer_already_has_is_stored(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded and answered in one step. The client may be left at once, and the next run must know it as its
    own.
    """
    monkeypatch.setattr(database, "INTERVAL_S", 3_600)  # only awaited transactions begin
    world, path = World(3), tmp_path / "w.db"
    world.receive()
    world.regtest.mine()
    raw = world.spending(change=LOCKS[1])
    async with Node(world.regtest) as node, running(world, node, store=path, mode=mode, mempool=False) as run:
        await run.synced(world)
        world.regtest.submit_tx(raw)
        assert (await run.client.broadcast(raw)).echoed == (where(node),)
    with WalletStore.open(path) as wallet:
        entry = wallet.transaction(Transaction.parse(raw).txid)
        assert entry is not None
        assert entry.is_own
