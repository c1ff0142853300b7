"""Interleavings of reader, loop and database that otherwise occur only on a loaded machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from spvfilter.filters.bip37 import MatchedTx
from spvfilter.light.events import Mode, PeerChanged
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.wallet.events import MatchFound, MatchWithdrawn
from spvfilter.wire.events import Fenced, SessionEvent
from spvfilter.wire.messages import table as wire
from spvfilter.wire.session import Session
from support.compactworld import LIMITS
from support.lightworld import FAST, World, running

HELD_S = 20  # at most, if the event that should end it does not come


class Held:
    """A function of the database's thread that is held after it is entered, until it is released."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._entered = threading.Event()
        self.let_go = threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        self._entered.set()
        assert self.let_go.wait(HELD_S)
        return self._function(*args, **named)

    async def entered(self) -> None:
        assert await asyncio.to_thread(self._entered.wait, HELD_S)


async def test_a_peer_that_comes_back_while_its_blocks_are_recorded_is_followed_and_not_its_own_company() -> None:
    """The peer's last flight has failed and it has reconnected, while the database still records its first."""
    world = World(3, mature=110)
    world.grow(20, share=1)
    is_back = threading.Event()
    connections: list[Responder] = []

    class Forgets(Responder):
        def __init__(self, regtest: Regtest, session: Session) -> None:
            super().__init__(regtest, session)
            connections.append(self)

        def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
            if self is connections[0] and block.height == 0:
                run.client._database.submit(is_back.wait, HELD_S)
            if self is not connections[0] or block.height < self.regtest.height:
                super().send_merkleblock(block, matched)

        def on_message(self, message: wire.Message) -> None:
            super().on_message(message)
            if isinstance(message, wire.SendHeaders) and self is not connections[0]:
                is_back.set()

    limits = replace(FAST, stall_s=3_600, reply_s=3_600, flight=100)  # two of them
    async with Node(world.regtest, responder=Forgets) as node, running(world, node, limits=limits) as run:
        await run.synced(world)
        assert is_back.is_set()
        assert len(connections) == 2
        assert run.books.confirmed() == world.scan()
        assert not run.client._sync._company


async def test_a_peer_that_came_back_is_no_witness_of_what_it_said_before() -> None:
    world = World(3, mature=110)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        sync = run.client._sync
        (gone,) = sync.peers.ready.values()
        node.responders[0].end("gone")
        world.regtest.mine()  # has it notice the end, too
        await run.until(lambda books: sum(isinstance(event, PeerChanged) for event in books.events) == 3)
        await run.synced(world)
        (back,) = sync.peers.ready.values()
        assert back is not gone
        assert back.is_greeted
        assert sync._current_witness(gone) is None
        assert not sync._company


async def test_work_for_a_peer_that_is_cancelled_before_it_began_is_over() -> None:
    world = World(3, mature=110)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        sync = run.client._sync
        (remote,) = sync.peers.ready.values()

        async def never() -> None:
            raise AssertionError("it began")

        sync._accompany(remote, never)
        assert await sync._pick() is remote
        assert not sync._company


async def test_a_greeting_that_is_cut_short_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise our transactions would not be offered to the peer."""
    world = World(3, mature=110)
    async with Node(world.regtest) as node, running(world, node) as run:
        await run.synced(world)
        sync = run.client._sync
        (remote,) = sync.peers.ready.values()
        remote.is_greeted = False
        own = Held(sync.ledger.own_unconfirmed)
        monkeypatch.setattr(sync.ledger, "own_unconfirmed", own)
        greeting = asyncio.create_task(sync._greet(remote))
        await own.entered()
        greeting.cancel()
        own.let_go.set()
        await asyncio.wait({greeting})
        assert greeting.cancelled()
        assert not remote.is_greeted


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
async def test_a_transaction_back_from_a_block_before_the_books_have_left_it_is_found(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database records one transaction while peers announce a reorganisation and another transaction, which is in the mempool again."""
    world = World(3, mature=110)
    returning = world.receive()
    back = world.regtest.find_tx(returning)
    assert back is not None
    raw = back.raw
    world.regtest.mine()

    class Fences(Responder):
        """Sends a ping after the transaction, to learn when the client has read it."""

        def send(self, message: wire.Message) -> None:
            super().send(message)
            if isinstance(message, wire.Tx) and message.raw == raw:
                self.session.fence(asyncio.get_running_loop().time())

        def on_event(self, event: SessionEvent) -> None:
            if isinstance(event, Fenced):
                recording.let_go.set()
            super().on_event(event)

    limits = replace(LIMITS, reply_s=HELD_S)
    async with Node(world.regtest, responder=Fences) as node, running(world, node, limits=limits, mode=mode) as run:
        await run.synced(world)
        ledger = run.client._ledger
        recording = Held(ledger.add_unconfirmed)
        monkeypatch.setattr(ledger, "add_unconfirmed", recording)
        other = world.receive()
        await recording.entered()
        world.regtest.reorg(1)
        node.on_tx(back)
        await run.synced(world)
        await run.until(lambda books: books.waiting() == {returning, other})
        assert run.books.confirmed() == world.scan()


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
async def test_a_mempool_asked_for_before_a_reorganisation_and_told_after_it_is_found_once(mode: Mode) -> None:
    """A match of the mempool may be reported before or after the new tip, but never before the block that held it is disconnected."""
    world = World(3, mature=110)
    returning = world.receive()
    world.regtest.mine()
    asked = asyncio.Event()

    class TellsLater(Responder):
        late: wire.Mempool | None = None

        def on_bloom(self, message: wire.Message) -> None:
            if isinstance(message, wire.Mempool) and not asked.is_set():
                asked.set()
                self.late = message
            else:
                super().on_bloom(message)

        def announce(self) -> None:
            super().announce()
            if self.late is not None:
                super().on_bloom(self.late)
                self.late = None

    async with Node(world.regtest, responder=TellsLater) as node, running(world, node, limits=LIMITS, mode=mode) as run:
        await asked.wait()
        world.regtest.reorg(1)
        await run.until(lambda books: books.waiting() == {returning})
        await run.synced(world)
        story = [type(event) for event in run.books.events if isinstance(event, (MatchFound, MatchWithdrawn))]
        assert story == [MatchFound, MatchWithdrawn, MatchFound]
