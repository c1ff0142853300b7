"""A light client at the tip: mempool, conflicts, expiry, reorganizations, new entries and broadcasts. It finds the same
matches as a full scan.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import AddressError, InexpressibleError, ParameterError, UselessPeerError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Synced
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.primitives import OutPoint
from spvfilter.transaction import TxIn
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    Reason,
)
from spvfilter.watch.watchlist import WatchList
from support.lightworld import IMPATIENT, LOCKS, START, STRANGER, Books, World, key, place, running
from support.locks import build_tx
from support.vectors import effort


def has_events_or_is_synced(count: int, before: Synced | None, books: Books) -> bool:
    return len(books.events) >= count or books.synced is not before


async def test_a_payment_is_found_in_the_mempool_and_then_confirmed() -> None:
    world = World(2)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        digest = world.receive()
        await run.until(lambda books: digest in books.waiting())
        spent = world.spend()
        await run.until(lambda books: spent in books.waiting())
        world.regtest.mine()
        books = await run.synced(world)
        assert books.confirmed() == world.scan()
        assert not books.waiting()
        assert sum(isinstance(event, MatchConfirmed) for event in books.events) == 2


async def test_a_new_client_finds_transactions_that_wait_in_the_mempool() -> None:
    world = World(3)
    first = world.receive()
    child = world.spend(change=LOCKS[0])
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.until(lambda books: {first, child} <= books.waiting())


async def test_a_confirmed_conflict_withdraws_a_payment_and_its_child(tmp_path: Path) -> None:
    world = World(4)
    world.receive()
    world.regtest.mine()
    ((outpoint, value, lock),) = world.coins
    async with Node(world.regtest) as node, running(world, node, store=tmp_path / "w.db") as run:
        await run.synced(world)
        waiting = world.regtest.submit_tx(build_tx([lock.spends(outpoint, value)], [LOCKS[1].pays(value - 500)]))
        child = world.regtest.submit_tx(
            build_tx([LOCKS[1].spends(OutPoint(waiting, 0), value - 500)], [LOCKS[2].pays(value - 1_000)])
        )
        await run.until(lambda books: {waiting, child} <= books.waiting())
        conflict = build_tx([lock.spends(outpoint, value)], [STRANGER.pays(value - 700)])
        world.regtest.mine(transactions=[conflict])
        books = await run.synced(world)
        assert books.confirmed() == world.scan()
        assert not books.waiting()
        assert {(event.match.txid, event.reason) for event in books.withdrawn} == {
            (waiting, Reason.CONFLICT),
            (child, Reason.CONFLICT),
        }


async def test_a_foreign_double_spend_withdraws_the_payment() -> None:
    """A peer would need to know our payments to show the double spend by BIP-37, so this needs compact filters."""
    world = World(5)
    async with Node(world.regtest) as node, running(world, node, mode="compact") as run:
        await run.synced(world)
        digest = world.receive()
        await run.until(lambda books: digest in books.waiting())
        paid = world.regtest.find_tx(digest)
        assert paid is not None
        coin = OutPoint.parse(paid.inputs[0])
        world.regtest.mine(transactions=[build_tx([TxIn(coin)], [STRANGER.pays(1_000)])])
        books = await run.synced(world)
        assert [event.reason for event in books.withdrawn] == [Reason.CONFLICT]
        assert not books.matches


async def test_a_transaction_without_a_block_expires_after_336_hours() -> None:
    now = [float(START)]
    world = World(6, clock=lambda: now[0])
    lived = Clock(monotonic=lambda: time.monotonic() + now[0] - START, wall=lambda: now[0])
    async with Node(world.regtest) as node, running(world, node, clock=lived) as run:
        await run.synced(world)
        digest = world.receive()
        await run.until(lambda books: digest in books.waiting())
        now[0] += 336 * 3600 - 100
        world.regtest.mine(transactions=[])
        await run.synced(world)
        assert digest in run.books.waiting()
        now[0] += 200
        world.regtest.mine(transactions=[])
        await run.until(lambda books: books.withdrawn)
        assert [event.reason for event in run.books.withdrawn] == [Reason.EXPIRED]


@pytest.mark.few(1)
@pytest.mark.parametrize("depth", [1, 6, 100])
@pytest.mark.parametrize("stopped", [False, True])
async def test_a_reorganization_withdraws_old_matches_and_finds_new_ones(
    depth: int, stopped: bool, tmp_path: Path
) -> None:
    await reorganise(depth, stopped, tmp_path)


@pytest.mark.slow
async def test_a_reorganization_of_2016_blocks(tmp_path: Path) -> None:
    await reorganise(effort(250, 300, 2_016), True, tmp_path)


async def reorganise(depth: int, stopped: bool, tmp_path: Path) -> None:
    world = World(depth)
    world.grow(15)
    world.grow(depth, share=min(0.5, 40 / depth))
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, store=path) as run:
            await run.synced(world)
            books = run.books
            if not stopped:
                turn(world, depth)
                await run.synced(world)
        if stopped:
            turn(world, depth)
            async with running(world, node, store=path) as run:
                run.books.matches, books = books.matches, run.books
                await run.synced(world)
        assert books.confirmed() == world.scan()
        gone = [event for event in books.events if isinstance(event, BlockDisconnected)]
        assert [event.height for event in gone] == list(
            range(world.regtest.height - 1, world.regtest.height - 1 - depth, -1)
        )
        check_order(books)
        world.regtest.mine()  # transactions that returned to the mempool are confirmed again


def turn(world: World, depth: int) -> None:
    world.regtest.reorg(depth)


def check_order(books: Books) -> None:
    """Blocks connect in order, some of them implied by the next one. They disconnect from the top, after their matches
    are withdrawn.
    """
    top: list[tuple[int, bytes | None]] = []
    for event in books.events:
        match event:
            case BlockConnected(height, digest):
                assert not top or top[-1][0] < height
                top += ((each, None) for each in range(top[-1][0] + 1 if top else height, height))
                top.append((height, digest))
            case BlockDisconnected(height, digest):
                if top:
                    assert top.pop() in ((height, digest), (height, None))
            case MatchFound(match) | MatchConfirmed(match):
                assert match.height is None or top[-1] == (match.height, match.block_hash)
            case MatchWithdrawn(match, reason) if reason is Reason.REORG and match.height is not None and top:
                assert top[-1] == (match.height, match.block_hash)


async def test_a_disconnected_payment_is_found_in_the_mempool_again() -> None:
    world = World(8)
    async with Node(world.regtest) as node, running(world, node) as run:
        digest = world.receive()
        world.regtest.mine()
        await run.synced(world)
        world.regtest.reorg(1)
        await run.until(lambda books: digest in books.waiting())
        world.regtest.mine()
        books = await run.synced(world)
        assert books.confirmed() == world.scan()


async def test_new_blocks_are_followed_one_by_one() -> None:
    world = World(9)
    async with Node(world.regtest) as node, running(world, node) as run:
        for _ in range(effort(10, 15, 60)):
            world.grow(1, share=1.0)
            await run.synced(world)
        assert run.books.confirmed() == world.scan()


@pytest.mark.slow
async def test_fifty_hits_in_one_block_cause_few_new_filters() -> None:
    world = World(10, mature=160)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        for _ in range(6):
            for _ in range(50):
                world.receive(value=20_000)
            world.regtest.mine()
            await run.synced(world)
        for _ in range(3):
            for _ in range(50):
                world.spend()
            world.regtest.mine()
            await run.synced(world)
        assert run.books.confirmed() == world.scan()
        (responder,) = node.responders
        assert responder.filter is not None
        assert responder.filter.current_fp_rate < 0.001
        assert not run.books.warnings


@pytest.mark.few(1)
@pytest.mark.parametrize("from_height", [0, 120])
async def test_an_address_added_while_running_is_searched_from_its_height(from_height: int, tmp_path: Path) -> None:
    world = World(11)
    new = p2wpkh(b"\x03" + bytes(32))
    for _ in range(20):
        world.receive()
        world.regtest.pay(new.pays(5_000))
        world.regtest.mine()
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, store=path) as run:
            await run.synced(world)
            address = script_to_address(new.script_pubkey, REGTEST)
            assert address is not None
            await run.client.add_address(address, "new", from_height=from_height)
            run.books.synced = None
            await run.synced(world)
            later = world.watch()
            later.add_script(new.script_pubkey)
            expected = {each for each in world.scan(later) if (each[3] or 0) >= from_height or each in world.scan()}
            assert run.books.confirmed() == expected
        async with running(world, node, store=path) as again:  # the address is stored
            assert address in {match.match.address for match in await again.client.matches()}
            assert new.script_pubkey in again.client.watch


@pytest.mark.slow
async def test_addresses_added_in_the_middle_of_a_search_lose_nothing() -> None:
    world = World(12)
    late = world.locks[4:]
    world.grow(60)
    few = WatchList(REGTEST)
    for lock in world.locks[:4]:
        few.add_script(lock.script_pubkey)
    async with Node(world.regtest) as node, running(world, node, watch=few) as run:
        for number, lock in enumerate(late):
            # in the middle of the search; a finished search reports nothing more
            await run.until(partial(has_events_or_is_synced, 30 * number, run.books.synced))
            await run.client.add_script(lock.script_pubkey)
        await run.synced(world)
        await run.until(lambda books: books.confirmed() == world.scan())


async def test_a_new_entry_at_restart_is_searched_in_old_blocks(tmp_path: Path) -> None:
    world = World(13)
    world.grow(40)
    few = WatchList(REGTEST)
    few.add_script(world.locks[0].script_pubkey)
    async with Node(world.regtest) as node:
        async with running(world, node, store=tmp_path / "w.db", watch=few) as run:
            await run.synced(world)
        async with running(world, node, store=tmp_path / "w.db") as run:
            await run.synced(world)
            found = {place(each.match) for each in await run.client.matches()}
            assert found == world.scan()


async def test_a_later_entry_may_start_below_the_first_search(tmp_path: Path) -> None:
    world = World(14)
    world.grow(30)
    async with Node(world.regtest) as node:
        async with running(world, node, store=tmp_path / "w.db", from_height=115) as run:
            await run.synced(world)
            assert min(event.height for event in run.books.events if isinstance(event, BlockConnected)) >= 115
            await run.client.add_script(STRANGER.script_pubkey, from_height=0)
        async with running(world, node, store=tmp_path / "w.db", from_height=115) as run:
            run.books.matches = {}
            await run.synced(world)
            whole = world.watch()
            whole.add_script(STRANGER.script_pubkey)
            found = {place(each.match) for each in await run.client.matches()}
            assert found == world.scan(whole)


async def test_a_search_starts_two_hours_before_the_birthday() -> None:
    now = [float(START)]
    world = World(15, clock=lambda: now[0])
    for _ in range(40):
        now[0] += 3_600
        world.grow(1, share=1.0)
    clock = Clock(wall=lambda: now[0])
    async with Node(world.regtest) as node, running(world, node, clock=clock, birthday=int(START + 20 * 3_600)) as run:
        await run.synced(world)
        first = min(event.height for event in run.books.events if isinstance(event, BlockConnected))
        times = [block.header.time for block in world.regtest.chain.active]
        assert max(times[:first]) < START + 18 * 3_600
        assert first > 105


async def test_an_entry_that_cannot_be_found_is_refused_without_effect(tmp_path: Path) -> None:
    world = World(16)
    async with Node(world.regtest) as node:
        async with running(world, node, store=tmp_path / "w.db") as run:
            await run.synced(world)
            with pytest.raises(InexpressibleError):
                await run.client.add_script(b"\x51")
            with pytest.raises(AddressError):
                await run.client.add_address("nonsense")
            world.grow(3, share=1.0)
            await run.synced(world)
        async with running(world, node, store=tmp_path / "w.db") as run:
            await run.synced(world)
        silent = WatchList(REGTEST)
        silent.add_script(b"\x51")
        with pytest.raises(InexpressibleError):
            await LightClient(silent, peers=["127.0.0.1:1"], mode="bip37", store=tmp_path / "w.db").__aenter__()
        with pytest.raises(ParameterError, match="nothing to watch for"):
            await LightClient(WatchList(REGTEST), peers=["127.0.0.1:1"]).__aenter__()
        async with running(world, node, store=tmp_path / "w.db") as run:  # the refused entry was not stored
            await run.synced(world)


async def test_a_broadcast_is_a_pending_and_then_a_confirmed_match(tmp_path: Path) -> None:
    world = World(17)
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, store=tmp_path / "w.db") as run:
        await run.synced(world)
        digest = (await run.client.broadcast(world.spending(change=LOCKS[0]))).txid
        assert digest in world.regtest.mempool
        await run.until(lambda books: digest in books.waiting())
        world.regtest.mine()
        books = await run.synced(world)
        assert books.confirmed() == world.scan()


async def test_a_broadcast_without_a_peer_is_refused_and_not_recorded() -> None:
    world = World(18)
    world.receive()
    world.regtest.mine()
    raw = world.spending()
    async with Node(world.regtest) as node:
        port = f"{node.host}:{node.port}"
    async with running(world, port, limits=IMPATIENT) as run:
        with pytest.raises(UselessPeerError, match="has accepted the transaction"):
            await run.client.broadcast(raw)
        assert not await run.client.matches()


async def test_a_broadcast_is_announced_to_later_peers_until_it_returns(tmp_path: Path) -> None:
    world = World(19)
    world.receive()
    world.regtest.mine()
    elsewhere = Regtest(clock=lambda: START)  # a node with the same blocks and another mempool
    for block in world.regtest.chain.active[1:]:
        elsewhere.submit_block(block.raw)
    raw = world.spending()
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node, running(world, node, store=path) as run:
        await run.synced(world)
        digest = (await run.client.broadcast(raw)).txid
    assert digest not in elsewhere.mempool
    async with Node(elsewhere) as other, running(world, other, store=path) as run:
        await run.synced(world)
        while digest not in elsewhere.mempool:  # noqa: ASYNC110  # the node has no event for it
            await asyncio.sleep(0.01)


async def test_public_keys_find_payments_to_every_script_type() -> None:
    world = World(20, locks=LOCKS[:3])
    keys = WatchList(REGTEST)
    for number in (1, 2, 3):
        keys.add_pubkey(key(number))
    world.grow(30)
    async with Node(world.regtest) as node, running(world, node, watch=keys) as run:
        await run.synced(world)
        assert {each[:4] for each in run.books.confirmed()} == {each[:4] for each in world.scan()}


async def test_a_disconnected_coinbase_withdraws_its_descendants() -> None:
    world = World(21)
    async with Node(world.regtest) as node, running(world, node) as run:
        world.regtest.mine(to=LOCKS[0].script_pubkey)
        coinbase = world.regtest.chain.txs(world.regtest.chain.tip)[0]
        world.regtest.mine(100)
        coin = LOCKS[0].spends(OutPoint(coinbase.txid, 0), coinbase.outputs[0].value)
        spend = build_tx([coin], [LOCKS[1].pays(1_000)])
        digest = world.regtest.submit_tx(spend)
        await run.until(lambda books: digest in books.waiting())
        await run.synced(world)
        world.regtest.reorg(101, blocks=102)
        await run.synced(world)
        assert not run.books.waiting()
        assert run.books.confirmed() == world.scan()
