"""Interleavings of reader, loop and database that otherwise occur only on a loaded machine."""

from __future__ import annotations

import asyncio

import pytest

from spvfilter.light.events import Mode
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.wallet.events import MatchFound, MatchUnconfirmed, MatchWithdrawn
from spvfilter.wire.messages import table as wire
from support.client.compactworld import LIMITS
from support.client.lightworld import World, running


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
async def test_a_disconnected_transaction_is_pending_from_our_own_copy(mode: Mode) -> None:
    """The node forgets the transaction."""
    world = World(3, mature=110)
    returning = world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node, running(world, node, limits=LIMITS, mode=mode) as run:
        await run.synced(world)
        world.regtest.mempool.rebuild = lambda txs: None  # type: ignore[method-assign, assignment]
        world.regtest.reorg(1)
        await run.synced(world)
        await run.until(lambda books: books.waiting() == {returning})
        assert returning not in world.regtest.mempool


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
async def test_a_mempool_answer_after_a_reorganization_matches_once(mode: Mode) -> None:
    """A match of the mempool may be reported before or after the new tip. It may not precede the disconnection of its
    block.
    """
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
        kinds = (MatchFound, MatchUnconfirmed, MatchWithdrawn)
        assert [type(event) for event in run.books.events if isinstance(event, kinds)] == [MatchFound, MatchUnconfirmed]
