"""Entries that are added, removed and relabelled while a client runs, and the caller's watch list. Real sockets, both
modes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import AddressError, InexpressibleError, ParameterError, WatchListInUseError
from spvfilter.kernel import EntryKind
from spvfilter.light.events import Mode, PeerChanged
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint, script_pushes
from spvfilter.wallet.events import MatchWithdrawn, Reason
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import FOREIGN, build_tx
from support.client.engineparts import add_to_watch_list
from support.client.lightworld import STRANGER, Place, Run, World, check_stored, key, place, running

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])


async def found(run: Run) -> set[Place]:
    return {place(each.match) for each in await run.client.matches()}


def without(world: World, *numbers: int) -> WatchList:
    watch = WatchList(REGTEST)
    for number, lock in enumerate(world.locks):
        if number not in numbers:
            watch.add_script(lock.script_pubkey)
    return watch


async def balanced(run: Run, world: World, watch: WatchList) -> None:
    """Compare the views with a full scan of the list."""
    scripts = set(watch.script_pubkeys())
    coins = {bytes(each.outpoint): each.value for each in await run.client.coins() if each.height is not None}
    chain = world.regtest.chain.coins
    assert coins == {bytes(point): coin.value for point, coin in chain.items() if coin.script_pubkey in scripts}
    history = await run.client.history(limit=None)
    assert {each.txid for each in history if each.height is not None} == {txid for _, txid, *_ in world.scan(watch)}


@pytest.mark.few(1)
@MODES
async def test_matches_of_a_removed_entry_return_with_the_entry(mode: Mode, tmp_path: Path) -> None:
    world = World(31)
    world.grow(60, share=0.9)
    world.receive(world.locks[1])  # pending
    removed = world.locks[1]
    path, given = tmp_path / "w.db", world.watch()
    address = script_to_address(removed.script_pubkey, REGTEST)
    assert address is not None
    async with Node(world.regtest) as node:
        async with running(world, node, mode=mode, store=path, watch=given) as run:
            await run.synced(world)
            await run.until(lambda books: books.waiting())
            before = await found(run)
            await run.client.remove(address)
            left = without(world, 1)
            assert removed.script_pubkey not in run.client.watch
            assert await found(run) == world.scan(left)
            await balanced(run, world, left)
            await run.until(lambda books: {place(match) for match in books.matches.values()} == world.scan(left))
            told = [event for event in run.books.events if isinstance(event, MatchWithdrawn)]
            assert {event.reason for event in told} == {Reason.REMOVED}
            assert {place(event.match) for event in told} == before - world.scan(left)
            with pytest.raises(ParameterError, match="not watched"):
                await run.client.remove(address)
            world.grow(10, share=0.9)  # some of these pay the removed entry
            await run.synced(world)
            assert await found(run) == world.scan(left)
            if mode is Mode.BIP37:
                (responder,) = node.responders
                assert responder.filter is not None
                pushes = [push for push in script_pushes(removed.script_pubkey) if len(push) >= 20]
                assert pushes
                assert not any(push in responder.filter for push in pushes)
            world.regtest.reorg(4)
            world.grow(2)
            await run.synced(world)
            assert {each for each in await found(run) if each[3] is not None} == world.scan(left)
        assert removed.script_pubkey not in given
        with WalletStore.open(path) as wallet:
            assert sum(each.entries for each in wallet.searched()) == len(world.locks) - 1
        async with running(world, node, mode=mode, store=path, watch=given) as run:
            await run.synced(world)
            assert {each for each in await found(run) if each[3] is not None} == world.scan(left)
            await run.client.add_address(address, "back")
            run.books.synced = None
            await run.synced(world)
            assert {each for each in await found(run) if each[3] is not None} == world.scan()
            await balanced(run, world, world.watch())
    check_stored(path, world)


async def test_matches_keep_their_labels_while_an_earlier_entry_is_removed() -> None:
    """The list has lost the entry while the database still has it, because another change is being committed."""
    world = World(31)
    for lock in world.locks:
        world.receive(lock)
    world.regtest.mine()
    labels = {lock.script_pubkey: f"lock {number}" for number, lock in enumerate(world.locks)}
    first, *_, last = labels
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        changes = run.client.relabel(last, labels[last]), run.client.remove(first)
        *_, there = await asyncio.gather(*changes, run.client.matches())
        assert {each.match.script_pubkey: each.match.label for each in there} == {
            script: label for script, label in labels.items() if script != first
        }


async def test_several_entries_are_removed_together_or_not_at_all() -> None:
    world = World(32)
    world.grow(20)
    watch = world.watch()
    pubkey = key(700)
    watch.add_pubkey(pubkey, "key")
    watch.add_data(b"data", "data")
    point = OutPoint(bytes(range(32)), 5)
    watch.add_outpoint(point)
    async with Node(world.regtest) as node, running(world, node, watch=watch) as run:
        await run.synced(world)
        number = len(run.client.watch)
        for wrong in ("pubkey:" + key(701).hex(), "data:00", OutPoint(bytes(32), 1), b"\x00\x14" + bytes(20)):
            with pytest.raises(ParameterError, match="not watched"):
                await run.client.remove(world.locks[0].script_pubkey, wrong)
        with pytest.raises(ParameterError, match="no entry"):
            await run.client.remove()
        with pytest.raises(AddressError):
            await run.client.remove("nonsense")
        with pytest.raises(ParameterError, match="not int"):
            await run.client.remove(5)  # type: ignore[arg-type]  # a wrong type
        assert len(run.client.watch) == number
        await run.client.remove(f"pubkey:{pubkey.hex()}", "data:64617461", point)
        assert len(run.client.watch) == len(world.locks)
        assert run.client.watch == run.client.watch.copy()
        assert await found(run) == world.scan()
        with pytest.raises(ParameterError, match="no entries would be left"):
            await run.client.remove(*(lock.script_pubkey for lock in world.locks))


async def test_an_output_with_two_matching_entries_keeps_one(tmp_path: Path) -> None:
    world = World(33, [p2wpkh(b"\x02" + bytes(32))])
    for _ in range(5):
        world.receive()
        world.regtest.mine()
    (lock,) = world.locks
    watch = world.watch()
    watch.add_data(lock.script_pubkey[2:], "by its hash")
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, watch=watch, store=path) as run:
            await run.synced(world)
            await run.client.remove(lock.script_pubkey)
            assert await found(run) == world.scan()
            assert {each.match.label for each in await run.client.matches()} == {"by its hash"}
            assert {each.label for each in await run.client.coins()} == {"by its hash"}
            assert not any(isinstance(event, MatchWithdrawn) for event in run.books.events)
        async with running(world, node, watch=watch, store=path) as run:
            assert await found(run) == world.scan()


async def test_an_outpoint_keeps_its_script_without_its_address(
    tmp_path: Path,
) -> None:
    """Compact filters find the spend by this script. Without the script, the next run in that mode would be refused."""
    world = World(35)
    lock, other = world.locks[:2]
    point = OutPoint(world.receive(lock), 0)
    world.regtest.mine()
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(
            world, node, mode=Mode.AUTO, store=path, watch=without(world, *range(2, len(world.locks)))
        ) as run:
            await run.synced(world)
            await run.client.add_outpoint(point, "special")
            await run.client.remove(lock.script_pubkey)
        watch = WatchList(REGTEST)
        watch.add_script(other.script_pubkey)
        async with running(world, node, mode=Mode.COMPACT, store=path, watch=watch) as run:
            await run.synced(world)
            world.regtest.submit_tx(build_tx([lock.spends(point, 20_000)], [STRANGER.pays(1_000)]))
            world.regtest.mine()
            await run.synced(world)
            (spend,) = await run.client.matches()
            assert (spend.match.kind, spend.match.outpoint, spend.match.value, spend.match.label) == (
                "input",
                point,
                20_000,
                "special",
            )


@pytest.mark.few(1)
@MODES
async def test_a_coin_of_a_removed_outpoint_stays_with_its_address(mode: Mode, tmp_path: Path) -> None:
    """Its row left with the outpoint, although the address is watched. The client never saw its spend."""
    world = World(35)
    lock = world.locks[0]
    point = OutPoint(world.receive(lock), 0)
    world.regtest.mine()
    path = tmp_path / "w.db"
    watch = without(world, *range(1, len(world.locks)))
    watch.add_outpoint(point, "special", script_pubkey=lock.script_pubkey)
    async with Node(world.regtest) as node:
        async with running(world, node, mode=mode, store=path, watch=watch) as run:
            await run.synced(world)
            await run.client.remove(point)
        world.regtest.submit_tx(build_tx([lock.spends(point, 20_000)], [STRANGER.pays(1_000)]))
        world.regtest.mine()
        async with running(
            world, node, mode=mode, store=path, watch=without(world, *range(1, len(world.locks)))
        ) as run:
            await run.synced(world)
            assert [found.match.kind for found in await run.client.matches()] == ["output", "input"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_coin_below_the_start_outlives_its_removed_outpoint(restarts: bool, tmp_path: Path) -> None:
    """The user stated that it pays a watched address. The same run saw its spend, and the next run missed it."""
    world = World(36)
    lock = world.locks[0]
    point = OutPoint(world.receive(lock), 0)
    world.regtest.mine()
    start, path = world.regtest.height + 1, tmp_path / "w.db"
    watch = without(world, *range(1, len(world.locks)))
    watch.add_outpoint(point, "special", script_pubkey=lock.script_pubkey)
    async with Node(world.regtest) as node:
        async with running(world, node, mode=Mode.COMPACT, store=path, watch=watch, from_height=start) as run:
            await run.synced(world)
            await run.client.remove(point)
            if not restarts:
                world.regtest.submit_tx(build_tx([lock.spends(point, 20_000)], [STRANGER.pays(1_000)]))
                world.regtest.mine()
                await run.synced(world)
                assert [found.match.kind for found in await run.client.matches()] == ["input"]
                return
        world.regtest.submit_tx(build_tx([lock.spends(point, 20_000)], [STRANGER.pays(1_000)]))
        world.regtest.mine()
        async with running(
            world, node, mode=Mode.COMPACT, store=path, watch=without(world, *range(1, len(world.locks)))
        ) as run:
            await run.synced(world)
            assert [found.match.kind for found in await run.client.matches()] == ["input"]


@pytest.mark.few(1)
@MODES
async def test_a_label_changes_at_once_and_permanently(mode: Mode, tmp_path: Path) -> None:
    world = World(34)
    world.grow(20, share=0.9)
    lock, path, given = world.locks[0], tmp_path / "w.db", world.watch()
    world.receive(lock)
    world.regtest.mine()
    async with Node(world.regtest) as node:
        async with running(world, node, mode=mode, store=path, watch=given) as run:
            await run.synced(world)
            assert await run.client.coins(label="lock 0")
            await run.client.relabel(lock.script_pubkey, "rent")
            assert not await run.client.coins(label="lock 0")
            assert await run.client.coins(label="rent")
            assert await run.client.history(label="rent")
            assert "rent" in {each.match.label for each in await run.client.matches()}
            with pytest.raises(ParameterError, match="surrogates or NUL"):
                await run.client.relabel(lock.script_pubkey, "a\0b")
            with pytest.raises(ParameterError, match="not watched"):
                await run.client.relabel(b"\x00\x14" + bytes(20), "x")
            with pytest.raises(ParameterError, match="a label must be text, not int"):
                await run.client.relabel(lock.script_pubkey, 5)  # type: ignore[arg-type]  # a wrong type
            assert await run.client.coins(label="rent")  # the client still runs
        assert given.label(0) == "rent"
        other = WatchList(REGTEST)
        other.add_script(FOREIGN.script_pubkey)
        async with running(world, node, mode=mode, store=path, watch=other) as run:
            assert await run.client.coins(label="rent")
            await run.client.relabel(lock.script_pubkey, None)
            assert not await run.client.history(label="rent")
            assert None in {each.match.label for each in await run.client.matches()}


async def test_a_watch_list_in_use_refuses_additions() -> None:
    world = World(35)
    given, address = world.watch(), "bcrt1qar0srrr7xfkvy5l643lydnw9re59gtzzc4pz6h"
    before = given.copy()
    async with Node(world.regtest) as node:
        async with running(world, node, watch=given) as run:
            for watch in (given, run.client.watch):
                calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
                    (watch.add_address, (script_to_address(FOREIGN.script_pubkey, REGTEST),)),
                    (watch.add_script, (b"\x51",)),
                    (watch.add_pubkey, (key(1),)),
                    (watch.add_data, (b"x",)),
                    (watch.add_outpoint, (OutPoint(bytes(32), 0),)),
                    (watch.add_address_lines, (f"{address}\n".encode(), 0)),
                    (watch.add_entry, (EntryKind.SCRIPT, b"\x51")),
                ]
                for call, arguments in calls:
                    with pytest.raises(WatchListInUseError, match="call the client's add_"):
                        call(*arguments)
            assert given == before
            await run.client.add_addresses([(script_to_address(FOREIGN.script_pubkey, REGTEST) or "", "new")])
            assert FOREIGN.script_pubkey in run.client.watch
            assert FOREIGN.script_pubkey not in given
        assert FOREIGN.script_pubkey in given  # after the client is left
        given.add_script(b"\x00\x14" + bytes(20))
        with pytest.raises(ParameterError):
            async with running(world, "127.0.0.1:1", watch=given, store=Path("/proc"), network="regtest", proxy="?"):
                pass
        given.add_script(b"\x00\x14" + bytes(range(20)))  # a client that could not be entered does not lock the list


async def test_a_watch_list_carries_no_coins_between_clients() -> None:
    world = World(36)
    given = world.watch()
    async with Node(world.regtest) as node:
        world.receive()
        world.regtest.mine()
        async with running(world, node, watch=given) as run:
            await run.synced(world)
            assert list(run.client.watch.outpoints())
    assert not list(given.outpoints())


async def test_entries_that_no_mode_finds_together_are_refused() -> None:
    world = World(37)
    async with Node(world.regtest) as node:
        watch = world.watch()
        watch.add_data(b"only BIP-37")
        async with running(world, node, watch=watch, mode="auto") as run:
            await run.synced(world)
            with pytest.raises(InexpressibleError, match="use two clients"):
                await run.client.add_script(b"\x51")  # only compact filters find it
            await run.client.add_script(FOREIGN.script_pubkey)
            assert b"\x51" not in run.client.watch
        async with running(world, node, mode="auto") as run:
            client = run.client
            both = client.add_script(b"\x51"), add_to_watch_list(client, lambda watch: watch.add_data(b"only BIP-37"))
            first, second = await asyncio.gather(*both, return_exceptions=True)
            assert first is None
            assert isinstance(second, InexpressibleError)
            await run.synced(world)


async def test_a_script_may_be_relabelled_and_many_added_at_once() -> None:
    world = World(38)
    many = [script_to_address(b"\x00\x14" + number.to_bytes(20, "big"), REGTEST) or "" for number in range(3_000)]
    async with Node(world.regtest) as node, running(world, node, mode="compact") as run:
        await run.synced(world)
        await run.client.add_addresses([(each, "many") for each in many])
        await run.client.add_address(many[7], "seven")
        labels = [label for _, _, label in run.client.watch.entries()]
        assert (labels.count("many"), labels.count("seven")) == (2_999, 1)
        bad = [*many[:3], "nonsense"]
        with pytest.raises(AddressError):
            await run.client.add_addresses(bad)
        (each,) = (await run.client.status()).searched[-1:]
        assert each.entries >= 3_000


class HeadersOnly(Responder):
    """Serves neither blocks nor filters."""

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        pass

    def on_filters_wanted(self, asked: FilterRequest) -> None:
        pass


@pytest.mark.few(1)
@MODES
async def test_an_unfinished_first_search_starts_again_after_a_restart(mode: Mode, tmp_path: Path) -> None:
    world = World(36)
    world.grow(20, share=0.9)
    path, late = tmp_path / "w.db", world.locks[1].script_pubkey
    options = {"mode": mode, "store": path, "watch": without(world, 1), "from_height": 118}
    # by name
    async with Node(world.regtest, responder=HeadersOnly) as node, running(world, node, **options) as run:  # type: ignore[arg-type]
        await run.client.add_script(late, from_height=0)
        await run.until(lambda books: any(isinstance(each, PeerChanged) for each in books.events))
    options["watch"] = without(world, 1)
    async with Node(world.regtest) as node, running(world, node, **options) as run:  # type: ignore[arg-type]  # by name
        await run.client.add_script(STRANGER.script_pubkey, from_height=117)
        await run.synced(world)
        assert {each for each in world.scan() if each[3] is not None and each[3] <= 116} <= await found(run)
        assert not (await run.client.status()).skipped
