"""The light client over compact filters: it finds the same matches as a full scan and as BIP-37, despite changes of
chain, peers and process.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import InexpressibleError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Mode, PeerChanged, Phase, Progress
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import SIGNATURE, Lock, p2pkh, p2sh, p2wpkh, p2wsh, push
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.p2p.clock import Clock
from spvfilter.primitives import OutPoint
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchUnconfirmed, Reason
from spvfilter.watch.match import Completeness
from spvfilter.wire.events import Service
from spvfilter.wire.messages.filters import FilterAdd, FilterLoad
from spvfilter.wire.messages.inventory import GetHeaders
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session
from support.compactworld import LIMITS, counting, grown, reach_tip
from support.lightworld import FOREIGN, LOCKS, START, STRANGER, Run, World, key, place, running, where
from support.locks import build_tx
from support.vectors import effort

ONLY_BLOOM = replace(SETTINGS, services=SERVICES & ~Service.COMPACT_FILTERS)
ONLY_COMPACT = replace(SETTINGS, services=SERVICES & ~Service.BLOOM)


def completeness(run: Run) -> set[str]:
    return {event.completeness for event in run.books.events if isinstance(event, MatchFound)}


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(2, 4, 40)))
async def test_all_modes_find_what_a_full_scan_finds(seed: int) -> None:
    world = grown(seed)
    async with Node(world.regtest) as node:
        for mode, word in (
            (Mode.COMPACT, Completeness.ONE_PEER),
            (Mode.AUTO, Completeness.ONE_PEER),
            (Mode.BIP37, Completeness.UNPROVEN),
        ):
            async with running(world, node, limits=LIMITS, mode=mode) as run:
                await run.synced(world)
                assert run.books.confirmed() == world.scan() != set()
                assert completeness(run) == {word}
                assert not run.books.warnings


CLOCK = Clock(wall=lambda: START)
OTHER = "127.1.0.1"  # a host of another network group


async def test_the_default_mode_uses_compact_filters() -> None:
    world = grown()
    async with (
        Node(world.regtest) as node,
        LightClient(world.watch(), peers=[where(node)], limits=LIMITS, clock=CLOCK) as client,
    ):
        run = Run(client)
        await run.synced(world)
        assert completeness(run) == {Completeness.ONE_PEER}
        assert client.mode is Mode.AUTO


async def test_matches_are_proven_if_two_peers_agree() -> None:
    world = grown()
    async with (
        Node(world.regtest) as one,
        Node(world.regtest, OTHER) as two,
        running(world, one, two, limits=LIMITS, mode="compact") as run,
    ):
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert completeness(run) == {Completeness.PROVEN}
        assert {
            place(found.match) for found in await run.client.matches() if found.match.height is not None
        } == world.scan()


async def test_matches_from_one_peer_become_proven_with_another(tmp_path: Path) -> None:
    world = grown()
    store = tmp_path / "wallet.db"
    async with Node(world.regtest) as one, Node(world.regtest, OTHER) as two:
        async with running(world, one, limits=LIMITS, store=store, mode="compact") as run:
            await run.synced(world)
            assert {found.completeness for found in await run.client.matches()} == {Completeness.ONE_PEER}
        async with running(world, one, two, limits=LIMITS, store=store, mode="compact") as run:
            await run.synced(world)
            assert {found.completeness for found in await run.client.matches()} == {Completeness.PROVEN}
        async with running(world, two, limits=LIMITS, store=store, mode="compact") as run:
            world.receive()
            world.regtest.mine()
            await run.synced(world)
            assert Counter(found.completeness for found in await run.client.matches())[Completeness.ONE_PEER] == 1


class Hesitates(Responder):
    """Answers getheaders after `LIMITS.stall_s`, a tenth of the time that the test below allows."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.asked: GetHeaders | None = None
        self.until = 0.0  # when it answers (monotonic seconds)

    def on_getheaders(self, asked: GetHeaders) -> None:
        self.asked, self.until = asked, asyncio.get_running_loop().time() + LIMITS.stall_s

    def step(self) -> bool:
        if self.asked is None:
            return super().step()
        if asyncio.get_running_loop().time() >= self.until:
            super().on_getheaders(self.asked)
            self.asked = None
        return True


class Deaf(Responder):
    """Fails if it receives a BIP-37 filter."""

    def on_message(self, message: Message) -> None:
        assert not isinstance(message, FilterLoad | FilterAdd)
        super().on_message(message)


@pytest.mark.slow
async def test_a_second_peer_with_slow_headers_is_awaited() -> None:
    world = grown()
    nodes = Node(world.regtest), Node(world.regtest, OTHER, responder=Hesitates)
    async with nodes[0], nodes[1], running(world, *nodes, limits=replace(LIMITS, stall_s=2), mode="compact") as run:
        await run.synced(world)
        assert completeness(run) == {Completeness.PROVEN}


async def test_filters_come_from_all_peers() -> None:
    world = grown(blocks=60)
    one, two = counting(), counting()
    nodes = [Node(world.regtest, responder=responder) for responder in (one, two)]
    async with nodes[0], nodes[1], running(world, *nodes, limits=LIMITS, mode="compact") as run:
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
    assert min(one.asked["GetCFilters"], two.asked["GetCFilters"]) > 1
    assert one.asked["GetCFilters"] + two.asked["GetCFilters"] == -(-(world.regtest.height + 1) // 15)


async def test_the_client_follows_the_tip_through_reorganizations() -> None:
    world = grown()
    async with (
        Node(world.regtest) as one,
        Node(world.regtest, OTHER) as two,
        running(world, one, two, limits=LIMITS, mode="compact") as run,
    ):
        await run.synced(world)
        for depth in (0, 1, 0, 3, 25, 0):
            if depth:
                world.regtest.reorg(depth)
                world.coins.clear()
            world.grow(2)
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
        assert not run.books.warnings
        assert any(isinstance(event, MatchUnconfirmed) for event in run.books.events)
        assert not run.books.withdrawn


@pytest.mark.few(1)
@pytest.mark.parametrize("keep", [False, True])
async def test_a_restart_continues_after_any_change_of_the_chain(tmp_path: Path, keep: bool) -> None:
    world = grown()
    store = tmp_path / "wallet.db"
    async with Node(world.regtest, responder=(responder := counting())) as node:
        async with running(world, node, limits=LIMITS, store=store, mode="compact", keep_filters=keep) as run:
            await run.until(lambda books: any(isinstance(event, MatchFound) for event in books.events))
        for change in (
            lambda: None,
            lambda: world.grow(10),
            lambda: world.regtest.reorg(7),
            lambda: world.regtest.reorg(40),
        ):
            change()
            async with running(world, node, limits=LIMITS, store=store, mode="compact", keep_filters=keep) as run:
                await reach_tip(run, world)
                assert {
                    place(found.match) for found in await run.client.matches() if found.match.height is not None
                } == world.scan()
        asked = responder.asked["GetCFilters"]
        async with running(world, node, limits=LIMITS, store=store, mode="compact") as run:
            await reach_tip(run, world)
        assert responder.asked["GetCFilters"] == asked


async def test_a_wallet_may_change_modes_between_runs(tmp_path: Path) -> None:
    world = grown()
    store = tmp_path / "wallet.db"
    async with Node(world.regtest) as node:
        for mode in ("bip37", "compact", "bip37", "auto"):
            async with running(world, node, limits=LIMITS, store=store, mode=mode) as run:
                await run.synced(world)
                assert {
                    place(found.match) for found in await run.client.matches() if found.match.height is not None
                } == world.scan()
            world.grow(5)


async def test_another_peer_takes_over_in_the_middle() -> None:
    world = grown(blocks=80)
    first = Node(world.regtest)
    async with Node(world.regtest) as second:
        await first.__aenter__()
        async with running(world, first, second, limits=LIMITS, mode="compact") as run:
            await run.until(lambda books: any(isinstance(event, MatchFound) for event in books.events))
            await first.__aexit__(None, None, None)
            world.grow(5)
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
            assert not any(warning.banned for warning in run.books.warnings)


async def test_kept_filters_find_a_new_address_without_the_network(
    tmp_path: Path,
) -> None:
    world = grown()
    late = p2wpkh(b"\x03" + bytes(32))
    for _ in range(3):
        world.regtest.pay(late.pays(700))
        world.grow(3)
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(
            world, node, limits=LIMITS, mode="compact", keep_filters=True, store=tmp_path / "kept.db"
        ) as run:
            await run.synced(world)
            asked = responder.asked["GetCFilters"]
            await run.client.add_script(late.script_pubkey)
            world.locks.append(late)
            await run.until(lambda books: len(books.confirmed()) == len(world.scan()))
            assert run.books.confirmed() == world.scan()
            assert responder.asked["GetCFilters"] == asked
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(
            world, node, limits=LIMITS, mode="compact", store=tmp_path / "kept.db", watch=world.watch()
        ) as run:
            await run.synced(world)
            assert {
                place(found.match) for found in await run.client.matches() if found.match.height is not None
            } == world.scan()
            assert not responder.asked["GetCFilters"]


async def test_a_search_may_start_above_genesis() -> None:
    world = grown()
    async with Node(world.regtest, responder=(responder := counting())) as node:  # noqa: SIM117
        async with running(world, node, limits=LIMITS, mode="compact", from_height=115) as run:
            await run.synced(world)
            assert {each[3] for each in run.books.confirmed()} == {
                each[3] for each in world.scan() if (each[3] or 0) >= 115
            }
    assert responder.asked["GetCFilters"] == -(-(world.regtest.height - 114) // 15)


async def test_auto_uses_compact_filters_if_a_peer_serves_them() -> None:
    world = grown()
    async with Node(world.regtest, settings=ONLY_BLOOM) as old, Node(world.regtest, settings=ONLY_COMPACT) as new:
        async with running(world, old, new, limits=LIMITS, mode="auto") as run:
            await run.synced(world)
            assert completeness(run) == {Completeness.ONE_PEER}
            assert run.books.confirmed() == world.scan()
        async with running(world, old, limits=LIMITS, mode="auto") as run:
            await run.synced(world)
            assert completeness(run) == {Completeness.UNPROVEN}
            assert run.books.confirmed() == world.scan()


async def test_auto_uses_bip37_for_data_outside_compact_filters() -> None:
    world = grown()
    watch = world.watch()
    watch.add_data(b"not in a compact filter")
    async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode="auto", watch=watch) as run:
        await run.synced(world)
        assert completeness(run) == {Completeness.UNPROVEN}


@pytest.mark.parametrize("kind", ["data", "outpoint"])
async def test_compact_names_the_entries_that_it_cannot_find(kind: str) -> None:
    world = World()
    watch = world.watch()
    named = b"\x07" * 8 if kind == "data" else OutPoint(bytes(31) + b"\1", 5)
    watch.add_data(named) if isinstance(named, bytes) else watch.add_outpoint(named)
    async with Node(world.regtest) as node:
        with pytest.raises(InexpressibleError) as caught:
            async with running(world, node, mode="compact", watch=watch):
                pass
    assert caught.value.entries == ((named.hex() if isinstance(named, bytes) else str(named)),)


async def test_progress_reaches_its_total() -> None:
    world = grown()
    async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode="compact") as run:
        await run.synced(world)
        for phase in (Phase.HEADERS, Phase.FILTER_HEADERS, Phase.FILTERS):
            last = [event for event in run.books.events if isinstance(event, Progress) and event.phase is phase][-1]
            assert last.done == last.total > 0 or phase is Phase.HEADERS
        assert any(isinstance(event, PeerChanged) and event.address for event in run.books.events)


async def test_a_broadcast_is_reported_until_its_confirmation() -> None:
    world = grown()
    world.receive(world.locks[0])
    world.regtest.mine()
    raw = world.spending(change=world.locks[1])
    async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode="compact") as run:
        await run.synced(world)
        digest = (await run.client.broadcast(raw)).txid
        await run.until(lambda books: digest in books.waiting())
        world.regtest.mine()
        await run.synced(world)
        assert not run.books.waiting()
        assert run.books.confirmed() == world.scan()


async def test_new_blocks_during_a_search_cost_no_peer_and_match() -> None:
    world = grown(blocks=60)
    limits = replace(LIMITS, filters=5)
    async with (
        Node(world.regtest) as one,
        Node(world.regtest, OTHER) as two,
        running(world, one, two, limits=limits, mode="compact") as run,
    ):
        seen = 0
        while seen < 6:
            # a lambda's default has no type
            await run.until(lambda books, seen=seen: len(books.events) > 20 * seen)  # type: ignore[misc]
            seen += 1
            world.grow(1)
            if seen % 3 == 0:
                world.regtest.reorg(2)
                world.coins.clear()
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert not run.books.warnings


@pytest.mark.few(1)
@pytest.mark.parametrize("services", [SERVICES, SERVICES & ~Service.BLOOM])
async def test_pending_payments_are_found_without_a_bip37_filter(services: Service) -> None:
    world = grown()
    nodes = [Node(world.regtest, settings=replace(SETTINGS, services=services), responder=Deaf) for _ in range(2)]
    async with nodes[0], nodes[1]:
        waiting = world.receive()
        async with running(world, *nodes, limits=LIMITS, mode="compact") as run:
            await run.synced(world)
            if services & Service.BLOOM:  # BIP-35 requires it
                await run.until(lambda books: waiting in books.waiting())
            for _ in range(3):
                world.others(5)
                payment = world.receive()
                # a lambda's default has no type
                await run.until(lambda books, payment=payment: payment in books.waiting())  # type: ignore[misc]
            spend = world.spend()
            await run.until(lambda books: spend in books.waiting())
            world.regtest.mine()
            await run.synced(world)
            assert not run.books.waiting()
            assert run.books.confirmed() == world.scan()
            world.regtest.reorg(1)
            await run.synced(world)
            if services & Service.BLOOM:
                await run.until(lambda books: {waiting, payment, spend} <= books.waiting())
            world.regtest.mine()
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
            assert not run.books.warnings


async def test_without_the_mempool_payments_are_found_only_in_blocks() -> None:
    world = grown()
    for mode in Mode:
        async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode=mode, mempool=False) as run:
            await run.synced(world)
            world.receive()
            world.regtest.mine()
            await run.synced(world)
            assert run.books.confirmed() == world.scan()
            assert not any(isinstance(event, MatchConfirmed) for event in run.books.events)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "lock", [p2pkh(key(98)), STRANGER, p2sh(p2wpkh(key(97))), p2wsh(push(key(96)) + b"\xac", [SIGNATURE])]
)
async def test_a_double_spend_of_any_script_type_withdraws_the_payment(lock: Lock) -> None:
    world = grown()
    coin = OutPoint(world.regtest.pay(lock.pays(50_000)), 0)
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode="compact") as run:
        await run.synced(world)
        payment = world.regtest.submit_tx(build_tx([lock.spends(coin, 50_000)], [LOCKS[1].pays(49_000)]))
        await run.until(lambda books: payment in books.waiting())
        world.regtest.mine(transactions=[build_tx([lock.spends(coin, 50_000)], [FOREIGN.pays(48_000)])])
        books = await run.synced(world)
        assert [(event.match.txid, event.reason) for event in books.withdrawn] == [(payment, Reason.CONFLICT)]
        assert books.confirmed() == world.scan()
