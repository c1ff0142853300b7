"""Streams of events: each has its own position, no stream must be read, and older events come from the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from spvfilter.errors import EventGapError, UselessPeerError
from spvfilter.light import stream
from spvfilter.light.accountstream import AccountPage, AccountStream
from spvfilter.light.events import Event, PeerChanged, PeerWarning, Phase, Progress, Synced
from spvfilter.light.stream import MAX_HELD, PAGE, EventHub, EventStream
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, MatchFound, RunStarted, WalletEvent
from spvfilter.watch.match import Match, MatchKind
from support.client.engineparts import running_of
from support.client.lightworld import World, place, running
from support.held import sizes_of
from support.vectors import effort


def found(number: int) -> MatchFound:
    txid = number.to_bytes(32, "big")
    return MatchFound(Match(MatchKind.OUTPUT, txid, 0, OutPoint(txid, 0), 1_000, b"\x51", None, None, None, None))


def progress(done: int) -> Progress:
    return Progress(Phase.FILTERS, done, 1_000_000)


class Kept:
    """A hub, and the database behind it."""

    def __init__(self, before: Iterable[WalletEvent] = (), *, first: int = 1) -> None:
        self.events: list[WalletEvent] = []
        self.first = first  # number of the oldest event in the database
        self.dropped: set[int] = set()  # numbers of foreign events that the database has dropped
        self.reads = 0
        self._number(before)
        self.hub = EventHub(len(self.events), self.load)
        self.told: list[Event] = []  # all events of the run

    def _number(self, events: Iterable[Event]) -> list[Event]:
        made: list[Event] = []
        for event in events:
            if isinstance(event, WalletEvent):
                self.events.append(replace(event, sequence=len(self.events) + 1))
                event = self.events[-1]
            made.append(event)
        return made

    def put(self, *events: Event) -> None:
        numbered = self._number(events)
        self.told += numbered
        self.hub.put(numbered)

    async def load(self, since: int, limit: int) -> list[WalletEvent]:
        self.reads += 1
        assert limit <= PAGE
        await asyncio.sleep(0)
        if 0 < since < self.first or (since == 0 and self.first > 1):
            raise EventGapError(since, len(self.events))
        return [event for event in self.events[since:] if event.sequence not in self.dropped][:limit]


async def rest(events: EventStream, hub: EventHub) -> list[Event]:
    hub.end(None)
    return [event async for event in events]


def books(events: Sequence[Event]) -> list[WalletEvent]:
    return [event for event in events if isinstance(event, WalletEvent)]


def numbers(events: Sequence[Event]) -> list[int]:
    return [event.sequence for event in books(events)]


@pytest.mark.slow
async def test_slow_stream_yields_every_wallet_event() -> None:
    kept = Kept()
    events = EventStream(kept.hub)
    for number in range(20_000):
        kept.put(progress(number), PeerChanged(str(number)), found(number), Synced(number, bytes(32)))
        if number % 10 == 0:
            kept.put(BlockDisconnected(number, bytes(32)), PeerWarning(str(number), UselessPeerError("silent"), False))
    assert MAX_HELD <= sum(sizes_of(kept.hub)) <= MAX_HELD + 103 + 4  # the latest, and older ones of four kinds
    given = await rest(events, kept.hub)
    assert numbers(given) == list(range(1, 22_001))
    assert books(given) == books(kept.told)
    assert given[-MAX_HELD:] == kept.told[-MAX_HELD:]
    warned = [event.address for event in given if isinstance(event, PeerWarning)]
    assert warned == [str(10 * number) for number in range(2_000 - len(warned), 2_000)]
    assert len(warned) >= 100
    assert all(
        kind in {type(event) for event in given[-MAX_HELD - 110 : -MAX_HELD]}
        for kind in (Progress, PeerChanged, Synced)
    )


@pytest.mark.few(8)
@pytest.mark.parametrize("dropped", [range(1, 81), range(1, 30), range(50, 81), range(20, 60), range(1, 2)])
@pytest.mark.parametrize("since", [0, 10, 55, 80])
async def test_stream_continues_behind_dropped_events(dropped: range, since: int) -> None:
    kept = Kept()
    events = EventStream(kept.hub, since)
    for number in range(MAX_HELD + 80):
        kept.put(found(number), *([progress(number)] if number % 10 == 0 else []))
    kept.dropped = set(dropped)
    async with asyncio.timeout(60):
        given = await rest(events, kept.hub)
    gone = kept.hub.gone
    assert gone >= 80
    assert numbers(given) == [
        number for number in range(since + 1, MAX_HELD + 81) if number > gone or number not in kept.dropped
    ]
    assert [event for event in given if isinstance(event, Progress)][-1] == progress(MAX_HELD + 70)
    assert kept.reads < 10


async def test_account_stream_continues_behind_dropped_events() -> None:
    kept = Kept()
    kept.put(*(found(number) for number in range(300)))
    kept.dropped = set(range(1, 200)) | {250}

    async def load(after: int, limit: int) -> AccountPage:
        events = [each for each in await kept.load(after, limit) if each.sequence % 3 == 0]
        return AccountPage(events, kept.events[-1].sequence, False)

    for since in (0, 50, 230):
        events = AccountStream(kept.hub, since, load)
        kept.hub.end(None)
        given = [event.sequence async for event in events]
        assert given == [number for number in range(since + 1, 301) if number % 3 == 0 and number not in kept.dropped]


async def test_waiting_events_are_yielded_in_order_and_whole() -> None:
    kept = Kept()
    for height in range(MAX_HELD // 2):
        kept.put(progress(height), BlockConnected(height, bytes(32)))
    assert await rest(EventStream(kept.hub), kept.hub) == kept.told
    assert kept.reads == 0
    kept = Kept()  # more events than the hub holds
    events = EventStream(kept.hub)
    kept.put(found(0), Synced(1, bytes(32)), found(1), PeerChanged("a"), *map(found, range(2, 2 * MAX_HELD)))
    given = await rest(events, kept.hub)
    assert given == kept.told


async def test_since_yields_later_events_of_all_runs() -> None:
    kept = Kept(map(found, range(10)))
    kept.put(progress(1), found(10), progress(2), found(11), Synced(5, bytes(32)))
    hub = kept.hub
    given = {since: await rest(EventStream(hub, since), hub) for since in (12, 11, 10, 3, 0)}
    assert given[12] == kept.told[-1:]
    assert given[11] == kept.told[2:]
    assert given[10] == kept.told
    assert numbers(given[3]) == list(range(4, 13))
    assert numbers(given[0]) == list(range(1, 13))
    assert given[0][10:] == kept.told
    assert await rest(EventStream(hub), hub) == kept.told


async def test_streams_without_since_continue_after_one_another() -> None:
    kept = Kept(map(found, range(3)))
    first, second = EventStream(kept.hub), EventStream(kept.hub)
    kept.put(*map(found, range(3, 9)))
    assert numbers([await anext(first), await anext(first)]) == [4, 5]
    assert numbers([await anext(EventStream(kept.hub))]) == [6]  # a new loop without `since` continues
    assert numbers([await anext(EventStream(kept.hub, 0))]) == [1]  # a stream with `since` has its own position
    assert numbers([await anext(EventStream(kept.hub))]) == [7]
    assert first.sequence == 5
    assert numbers(await rest(first, kept.hub)) == [6, 7, 8, 9]
    assert numbers(await rest(second, kept.hub)) == [4, 5, 6, 7, 8, 9]
    assert await rest(EventStream(kept.hub), kept.hub) == []


async def test_dropped_events_raise_an_error_each_time() -> None:
    kept = Kept(map(found, range(3 * PAGE)), first=PAGE)
    hub = kept.hub
    for since in (0, PAGE - 1):
        events = EventStream(hub, since)
        for _ in range(2):
            with pytest.raises(EventGapError, match=f"every event after number {since}: ") as caught:
                await anext(events)
            assert (caught.value.since, caught.value.sequence) == (since, 3 * PAGE)
    assert numbers(await rest(EventStream(hub, PAGE), hub)) == list(range(PAGE + 1, 3 * PAGE + 1))


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(effort(20, 60, 1_000)))
async def test_streams_of_any_pace_give_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that begin anywhere, read in any steps, are cancelled and read by two tasks; the hub holds little."""
    monkeypatch.setattr(stream, "MAX_HELD", 7)
    monkeypatch.setattr(stream, "PAGE", 3)
    rng = random.Random(seed)
    kept = Kept(map(found, range(rng.randrange(20))))
    before = len(kept.events)
    streams: list[tuple[EventStream, int, list[Event]]] = []

    async def read(events: EventStream, into: list[Event]) -> None:
        for _ in range(rng.randrange(1, 12)):
            if events.sequence == len(kept.events):
                return  # the stream would wait
            task = asyncio.ensure_future(anext(events))
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if task.done() or rng.random() < 0.5:
                async with asyncio.timeout(5):
                    into.append(await task)
            else:
                task.cancel()
                (result,) = await asyncio.gather(task, return_exceptions=True)
                if not isinstance(result, BaseException):
                    into.append(result)
                return

    for _ in range(40):
        for _ in range(rng.randrange(9)):
            kept.put(found(0) if rng.random() < 0.6 else progress(1) if rng.random() < 0.5 else PeerChanged("a"))
        if rng.random() < 0.3:
            since = rng.randrange(len(kept.events) + 1)
            streams.append((EventStream(kept.hub, since), since, []))
        if rng.random() < 0.1:
            events = EventStream(kept.hub)
            streams.append((events, events.sequence, []))
        for events, _, into in rng.sample(streams, min(2, len(streams))):
            await read(events, into) if rng.random() < 0.7 else await asyncio.gather(read(events, into), _late(kept))
    kept.put(found(0))
    kept.hub.end(None)
    for events, since, into in streams:
        into += [event async for event in events]
        assert numbers(into) == list(range(since + 1, len(kept.events) + 1))
        alone = [event for event in into if not isinstance(event, WalletEvent)]
        assert all(any(event is told for told in kept.told) for event in alone)
        assert len({id(event) for event in alone}) == len(alone) or since < before


async def _late(kept: Kept) -> None:
    """More events arrive while a stream waits for the database or for an event."""
    for _ in range(4):
        await asyncio.sleep(0)
        kept.put(found(0), progress(2), found(0))


async def test_two_tasks_that_read_one_stream_share_its_events() -> None:
    kept = Kept(map(found, range(4 * PAGE)))
    events = EventStream(kept.hub, 0)
    taken: list[int] = []

    async def take() -> None:
        async for event in events:
            taken.extend(numbers([event]))

    kept.hub.end(None)
    await asyncio.gather(take(), take(), take())
    assert taken == list(range(1, 4 * PAGE + 1))


async def test_error_follows_the_last_event_with_the_same_traceback() -> None:
    kept = Kept()

    async def load(after: int, most: int) -> AccountPage:
        return AccountPage(await kept.load(after, most), kept.hub.sequence, is_removed=False)

    streams = [*(EventStream(kept.hub) for _ in range(3)), AccountStream(kept.hub, 0, load)]
    kept.put(found(1))
    try:
        raise UselessPeerError("no peers are left")
    except UselessPeerError as error:
        kept.hub.end(error)
    lengths = set()
    for events in streams:
        assert numbers([await anext(events)]) == [1]
        for _ in range(5):
            with pytest.raises(UselessPeerError) as caught:
                await anext(events)
            lengths.add(len(caught.traceback))
    assert len(lengths) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["bip37", "compact"])
async def test_a_client_without_a_reader_of_events_keeps_searching(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_HELD", 20)
    monkeypatch.setattr(stream, "PAGE", 7)
    world = World(4)
    world.grow(80, share=0.8)
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        synced = await run.client.wait_synced()
        assert synced.height == run.client.searched_height == world.regtest.height
        assert running_of(run.client).hub.gone > 20
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert {place(each.match) for each in await run.client.matches()} == world.scan()
        told = books(run.books.events)
        assert isinstance(told[0], RunStarted)
        assert numbers(told) == list(range(told[0].sequence, told[0].sequence + len(told)))
        again, found = run.client.events(since=0), list[Event]()
        while numbers(found) != numbers(told):
            found.append(await anext(again))
        assert books(found) == told


async def test_slow_stream_ends_when_the_client_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream would have to read the next events from the database. The next run yields them."""
    monkeypatch.setattr(stream, "MAX_HELD", 5)
    monkeypatch.setattr(stream, "PAGE", 7)
    world = World(7)
    for _ in range(20):
        world.receive()
        world.regtest.mine()
    async with Node(world.regtest) as node:
        async with running(world, node) as run:
            events = run.client.events()
            await run.client.wait_synced()
            first = await anext(events)
        given = numbers([first, *[event async for event in events]])
        assert given == list(range(given[0], events.sequence + 1))
        assert len(given) <= 7
