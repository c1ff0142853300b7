"""Heights that a client searches: starts and rescans, and their status. Real sockets, both modes."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError, StoreFullError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Mode
from spvfilter.light.status import ClientStatus
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.store.batch import Batch
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchWithdrawn
from spvfilter.wallet.reader import WalletStore
from support.client.engineparts import written
from support.client.lightworld import START, Books, Place, Run, World, check_stored, place, running, where

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
ABOVE = 900_000


def untimed(status: ClientStatus) -> ClientStatus:
    """The status without the time for which each task has waited."""
    return replace(status, tasks=tuple(re.sub(r"\d[\d,.]* s\b", "", task) for task in status.tasks))


async def found(run: Run) -> set[Place]:
    return {place(each.match) for each in await run.client.matches()}


async def again(run: Run, world: World) -> Books:
    """Take all events until the requested search ends."""
    stream = run.stream

    def is_next() -> bool:
        return not stream.is_current

    while True:
        await written(run.client)
        while is_next():
            run.books.take(await anext(stream))
        status = await run.client.status()
        if is_next():
            continue
        if status.is_synced and status.searched_height == world.regtest.height:
            return run.books
        run.books.take(await anext(stream))


@pytest.mark.few(1)
@MODES
async def test_a_wrong_birthday_is_reported_and_can_be_corrected(mode: Mode, tmp_path: Path) -> None:
    world = World(21)
    world.grow(30)
    top = world.regtest.height
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, store=path, mode=mode, from_height=ABOVE) as run:
            books = await run.synced(world)
            assert books.synced is not None
            assert books.synced.skipped == ((0, top),)
            assert await found(run) == set()
            assert (run.client.tip_height, run.client.searched_height) == (top, top)
        with WalletStore.open(path) as wallet:
            (each,) = wallet.searched()
            assert (each.ranges, each.skipped) == ((), ((0, top),))
        world.grow(5)
        async with running(world, node, store=path, mode=mode) as run:  # the search continues, and reports it again
            books = await run.synced(world)
            assert books.synced is not None
            assert books.synced.skipped == ((0, top),)
            assert await run.client.rescan(from_height=50) == 50
            books = await again(run, world)
            assert books.synced is not None
            assert books.synced.skipped == ((0, 49),)
            assert books.confirmed() == world.scan()  # the first payment is above the start
            status = await run.client.status()
            assert status.skipped == ((0, 49),)
            assert (status.start_height, status.is_synced) == (50, True)
            assert await run.client.rescan() == 0
            assert (await again(run, world)).confirmed() == world.scan()
            (each,) = (await run.client.status()).searched
            assert (each.entries, each.ranges, each.skipped) == (len(world.locks), ((0, world.regtest.height),), ())
    check_stored(path, world)


async def test_a_lower_start_in_a_later_run_is_a_rescan(tmp_path: Path) -> None:
    world = World(22)
    world.grow(20)
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        for start, missing in ((ABOVE, world.regtest.height), (115, 114), (117, 114), (110, 109), (None, 109), (0, -1)):
            async with running(world, node, store=path, from_height=start, since=0) as run:
                books = await run.synced(world)
                assert books.synced is not None
                assert books.synced.skipped == (((0, missing),) if missing >= 0 else ())
        assert books.confirmed() == world.scan()


@pytest.mark.parametrize(("whole", "skipped"), [(False, ((0, 109),)), (True, ())])
async def test_a_requested_start_is_kept_for_the_next_run(
    whole: bool, skipped: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    world = World(40)
    world.grow(20)
    path, later = tmp_path / "w.db", b"\x00\x14" + bytes(20)
    async with Node(world.regtest) as node:
        nobody = "127.0.0.1:1"
        async with running(world, nobody, store=path, from_height=ABOVE) as run:
            assert await run.client.rescan(from_height=115) == 115
        async with running(world, nobody, store=path, from_height=ABOVE) as run:
            await run.client.add_script(later, from_height=110)
            if whole:
                await run.client.rescan()
        async with running(world, node, store=path, from_height=ABOVE) as run:
            books = await run.synced(world)
            assert books.synced is not None
            assert books.synced.skipped == skipped


async def test_a_status_is_consistent_and_names_the_peers() -> None:
    world = World(23)
    world.grow(10)
    async with Node(world.regtest) as one, Node(world.regtest) as other, running(world, one, other, mode="auto") as run:
        await run.synced(world)
        status = await run.client.status()
        top = world.regtest.height
        assert (status.mode, status.way, status.tip_height, status.searched_height) == (
            Mode.AUTO,
            Mode.COMPACT,
            top,
            top,
        )
        assert {peer.address for peer in status.peers} == {where(one), where(other)}
        assert {peer.height for peer in status.peers} == {top}
        assert (status.start_height, status.skipped, status.disputed) == (0, (), ())
        assert untimed(status) == untimed(await run.client.status())


@pytest.mark.few(1)
@MODES
async def test_entries_have_their_own_starts(mode: Mode, tmp_path: Path) -> None:
    world = World(24)
    late = [p2wpkh(b"\x02" + bytes((number,)) * 32) for number in range(3)]
    for _ in range(12):
        for lock in late:
            world.regtest.pay(lock.pays(4_000))
        world.regtest.mine()
    top = world.regtest.height
    async with (
        Node(world.regtest) as node,
        running(world, node, mode=mode, store=tmp_path / "w.db", from_height=107) as run,
    ):
        await run.synced(world)
        await run.client.add_script(late[0].script_pubkey, from_height=ABOVE)
        await run.client.add_script(late[1].script_pubkey)
        await run.client.add_script(late[2].script_pubkey, "third", birthday=0)
        await again(run, world)
        for lock in late:
            assert await run.client.searched_for(lock.script_pubkey) == ((0, top),)
        (each,) = (await run.client.status()).searched  # a search from height 0 covers all entries
        assert each.entries == len(world.locks) + 3
        mine = [
            match
            for match in run.books.matches.values()
            if match.script_pubkey in {lock.script_pubkey for lock in late}
        ]
        assert len(mine) == 36
        with pytest.raises(ParameterError, match="not watched"):
            await run.client.searched_for(b"\x00\x14" + bytes(20))


async def test_an_entry_with_a_later_start_changes_no_other_entry() -> None:
    world = World(25)
    late = [p2wpkh(b"\x02" + bytes((number,)) * 32) for number in range(2)]
    for _ in range(10):
        for lock in late:
            world.regtest.pay(lock.pays(4_000))
        world.regtest.mine()
    top = world.regtest.height
    async with Node(world.regtest) as node, running(world, node, mode="compact") as run:
        await run.synced(world)
        await run.client.add_script(late[0].script_pubkey, from_height=top - 3)
        assert (await again(run, world)).synced is not None
        assert await run.client.searched_for(late[0].script_pubkey) == ((top - 3, top),)
        assert len([match for match in run.books.matches.values() if match.script_pubkey == late[0].script_pubkey]) == 4
        assert run.books.synced is not None
        assert run.books.synced.skipped == ((0, top - 4),)
        assert [each.skipped for each in (await run.client.status()).searched] == [(), ((0, top - 4),)]
        await run.client.add_script(late[0].script_pubkey, from_height=top - 5)  # once more, from a lower height
        await again(run, world)
        assert await run.client.searched_for(late[0].script_pubkey) == ((top - 5, top),)
        assert len([match for match in run.books.matches.values() if match.script_pubkey == late[0].script_pubkey]) == 6


@pytest.mark.few(1)
@MODES
async def test_successive_and_cancelled_rescans_lose_nothing_in_a_reorganization(mode: Mode, tmp_path: Path) -> None:
    world = World(26)
    world.grow(60)
    path = tmp_path / "w.db"
    async with Node(world.regtest) as node:
        async with running(world, node, mode=mode, store=path, from_height=130) as run:
            await run.synced(world)
            first, second, third = await asyncio.gather(
                run.client.rescan(from_height=120), run.client.rescan(from_height=0), run.client.rescan(from_height=140)
            )
            # the second rescan covers the third, because it goes back further
            assert (first, second, third) == (120, 0, 0)
            waiting = asyncio.ensure_future(run.client.rescan(from_height=110))
            await asyncio.sleep(0)
            waiting.cancel()
            world.regtest.reorg(3)
            world.grow(3)
            await again(run, world)
            assert run.books.confirmed() == world.scan()
            assert await run.client.rescan(from_height=ABOVE) == world.regtest.height + 1
            assert run.client.searched_height == world.regtest.height
            assert not run.books.warnings
        async with running(world, node, mode=mode, store=path) as run:
            assert await found(run) == world.scan()


@pytest.mark.few(1)
@MODES
async def test_an_interrupted_rescan_continues_in_the_next_run(mode: Mode, tmp_path: Path) -> None:
    world = World(27)
    world.grow(40)
    path = tmp_path / "w.db"
    async with AsyncExitStack() as gone:
        node = await gone.enter_async_context(Node(world.regtest))
        async with running(world, node, mode=mode, store=path, from_height=ABOVE) as run:
            await run.synced(world)
            await gone.aclose()  # so that no peer is connected for the search
            await run.client.rescan()
    with WalletStore.open(path) as wallet:
        assert wallet.searched_height() < world.regtest.height
    async with Node(world.regtest) as node, running(world, node, mode=mode, store=path, since=0) as run:
        assert (await run.synced(world)).confirmed() == world.scan()


@pytest.mark.few(1)
@MODES
async def test_an_entry_that_a_full_disk_refuses_leaves_no_trace(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(28)
    world.grow(10)
    path, late = tmp_path / "w.db", p2wpkh(b"\x02" + bytes(32))
    true = Store.commit

    def commit(self: Store, *batches: Batch) -> None:
        if any(batch.entries for batch in batches):
            raise StoreFullError("the disk is full")
        true(self, *batches)

    async with Node(world.regtest) as node:
        given = world.watch()
        with pytest.raises(StoreFullError):  # at the exit too
            async with running(world, node, mode=mode, store=path, watch=given) as run:
                await run.synced(world)
                monkeypatch.setattr(Store, "commit", commit)
                with pytest.raises(StoreFullError):
                    await run.client.add_script(late.script_pubkey)
                assert late.script_pubkey not in run.client.watch
                assert late.script_pubkey not in given
                for responder in node.responders:
                    assert responder.filter is None or late.script_pubkey[2:] not in responder.filter
                with pytest.raises(StoreFullError):
                    await run.client.rescan()
        assert late.script_pubkey not in given
        monkeypatch.undo()
        world.regtest.pay(late.pays(5_000))
        world.grow(3)
        async with running(world, node, mode=mode, store=path, watch=given) as run:
            await run.synced(world)
            assert late.script_pubkey not in run.client.watch
            assert await found(run) == world.scan()


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"from_height": -1}, "from_height must be a whole number"),
        ({"from_height": 1 << 32}, "from_height must be a whole number"),
        ({"from_height": 1.0}, "from_height must be a whole number"),
        ({"from_height": True}, "from_height must be a whole number"),
        ({"from_height": "5"}, "from_height must be a whole number"),
        ({"from_height": float("nan")}, "from_height must be a whole number"),
        ({"birthday": -1}, "birthday must be a date, a datetime, or a Unix time"),
        ({"birthday": True}, "birthday must be a date, a datetime, or a Unix time"),
        ({"birthday": 1e9}, "birthday must be a date, a datetime, or a Unix time"),
        ({"birthday": "2024-01-01"}, "birthday must be a date, a datetime, or a Unix time"),
        ({"birthday": START * 1_000}, "is in the future"),
        ({"birthday": START + 7_201}, "is in the future"),
        ({"birthday": date(2100, 1, 31)}, "the birthday 2100-01-31 is in the future: its Unix time is 4104986400"),
        ({"birthday": START, "from_height": 0}, "not both"),
        ({"max_peers": True}, "max_peers"),
        ({"max_peers": 2.0}, "max_peers"),
        ({"fp_rate": True}, "fp_rate"),
        ({"fp_rate": "0.1"}, "fp_rate"),
        ({"fp_rate": float("nan")}, "fp_rate"),
        ({"mempool": "no"}, "mempool must be True or False"),
        ({"keep_filters": 1}, "keep_filters must be True or False"),
        ({"mode": 3}, "mode must be one of"),
        ({"v2": "on"}, "v2 must be one of prefer, require, off, not 'on'"),
    ],
)
async def test_wrong_values_are_refused_at_once(options: dict[str, object], words: str) -> None:
    world = World(29)
    with pytest.raises(ParameterError, match=words):
        async with running(world, "127.0.0.1:1", **options):  # type: ignore[arg-type]  # by name
            pass


async def test_wrong_starts_are_refused_while_running_without_effect() -> None:
    world = World(30)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        before = untimed(await run.client.status())
        for options in (
            {"from_height": -5},
            {"from_height": True},
            {"birthday": START * 9},
            {"from_height": 1, "birthday": 1},
        ):
            for call in (run.client.rescan, lambda **o: run.client.add_script(b"\x00\x14" + bytes(20), **o)):
                with pytest.raises(ParameterError):
                    await call(**options)
        with pytest.raises(TypeError, match="not a string"):
            await run.client.add_addresses("bcrt1q")
        assert untimed(await run.client.status()) == before
        assert not any(isinstance(event, MatchWithdrawn) for event in run.books.events)


async def test_entries_added_before_the_headers_keep_the_birthday() -> None:
    now = [float(START)]
    world = World(39, clock=lambda: now[0])
    for _ in range(60):
        now[0] += 3_600
        world.grow(1, share=1.0)
    clock = Clock(wall=lambda: now[0])
    async with Node(world.regtest) as node, running(world, node, clock=clock, birthday=int(START + 40 * 3_600)) as run:
        earlier = int(START + 30 * 3_600)
        await asyncio.gather(  # requested before a peer can have answered
            run.client.add_script(b"\x00\x14" + bytes(20)),
            run.client.add_script(b"\x00\x14" + bytes(range(20)), birthday=earlier),
        )
        await again(run, world)
        status = await run.client.status()
        assert status.start_height is not None
        assert 107 < status.start_height < 125
        assert status.skipped == ((0, status.start_height - 1),)


async def test_a_run_without_a_database_repeats_the_requested_start() -> None:
    world = World(31)
    world.grow(20)
    async with Node(world.regtest) as node:
        client: LightClient
        async with running(world, node, from_height=115) as run:
            client = run.client
            await run.synced(world)
            await client.rescan(from_height=0)
        async with client:
            run = Run(client)
            assert (await run.synced(world)).confirmed() == world.scan()
