"""Events that nobody reads: they stay bounded, what became of each match is kept, and the client goes on."""

from __future__ import annotations

import asyncio

import pytest

from spvfilter.errors import UselessPeerError
from spvfilter.light import stream
from spvfilter.light.events import Event, PeerChanged, PeerWarning, Phase, Progress, Synced
from spvfilter.light.stream import MAX_LEFT, MAX_WAITING, EventQueue
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, MatchFound
from spvfilter.watch.match import Match, MatchKind
from support.lightworld import World, place, running


def found(number: int) -> MatchFound:
    txid = number.to_bytes(32, "big")
    return MatchFound(Match(MatchKind.OUTPUT, txid, 0, OutPoint(txid, 0), 1_000, b"\x51", None, None, None, None))


async def rest(queue: EventQueue) -> list[Event]:
    queue.end(None)
    events = []
    while True:
        try:
            events.append(await queue.take())
        except StopAsyncIteration:
            return events


def block(height: int) -> BlockConnected:
    return BlockConnected(height, height.to_bytes(32, "big"))


async def test_fewer_than_a_thousand_events_are_all_given() -> None:
    queue = EventQueue(lambda: None)
    events: list[Event] = [block(height) for height in range(MAX_WAITING - 1)]
    for event in events:
        queue.put([event])
    assert await rest(queue) == events


async def test_of_more_only_the_latest_of_each_kind_are_kept_and_every_match_in_order() -> None:
    queue = EventQueue(lambda: None)
    matches: list[Event] = []
    for height in range(20_000):
        queue.put([Progress(Phase.FILTERS, height, 20_000), PeerChanged(str(height)), block(height)])
        if height % 10 == 0:
            matches.append(found(height))
            queue.put(matches[-1:])
        if height % 1_000 == 0:
            matches.append(BlockDisconnected(height, bytes(32)))
            queue.put(matches[-1:])
        queue.put([PeerWarning(str(height), UselessPeerError("silent"), False), Synced(height, bytes(32))])
    assert len(queue._events) <= 2 * (len(matches) + 104)
    given = await rest(queue)
    assert [event for event in given if isinstance(event, (MatchFound, BlockDisconnected))] == matches
    blocks = [event for event in given if isinstance(event, BlockConnected)]
    assert blocks == [block(height) for height in range(20_000 - len(blocks), 20_000)]
    assert [event for event in given if isinstance(event, Synced)][-1].height == 19_999
    warned = [event.address for event in given if isinstance(event, PeerWarning)]
    assert warned == [str(height) for height in range(20_000 - len(warned), 20_000)]
    assert len(warned) >= 100


async def test_each_event_is_looked_at_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0

    def counted(events: object) -> object:
        nonlocal seen
        seen += len(events)  # type: ignore[arg-type]
        return reversed(events)  # type: ignore[call-overload]

    monkeypatch.setattr(stream, "reversed", counted, raising=False)
    queue = EventQueue(lambda: None)
    for number in range(40_000):
        queue.put([found(number)])
    assert 0 < seen < 8 * 40_000


async def test_the_client_waits_only_where_fifty_thousand_matches_wait() -> None:
    drained: list[bool] = []
    queue = EventQueue(lambda: drained.append(True))
    queue.put(map(found, range(MAX_LEFT - 1)))
    states = [queue.is_full]
    queue.put([found(MAX_LEFT)])
    states.append(queue.is_full)
    await queue.take()
    states.append(queue.is_full)
    assert states == [False, True, False]
    assert drained == [True]


async def test_what_does_not_count_makes_no_client_wait_and_one_that_waited_is_told_of_room() -> None:
    drained: list[bool] = []
    queue = EventQueue(lambda: drained.append(True))
    for number in range(MAX_LEFT // 2):
        queue.put([found(number), block(number), block(number)])
    assert not queue.is_full
    queue.put(map(found, range(MAX_LEFT // 2)))
    queue.put(block(number) for number in range(3 * MAX_LEFT))  # commits that were under way
    taken = 0
    while not drained:
        await queue.take()
        taken += 1
    assert 0 < taken <= MAX_WAITING


@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_a_client_whose_events_nobody_reads_searches_on(mode: str) -> None:
    world = World(4)
    for number in range(2 * MAX_WAITING):
        if number % 20 == 0:
            world.receive()
        world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        async with asyncio.timeout(60):
            while run.client.height < world.regtest.height:  # noqa: ASYNC110  # its events are not read here
                await asyncio.sleep(0.02)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert {place(each.match) for each in await run.client.matches()} == world.scan()
