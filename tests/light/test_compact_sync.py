"""The mode of a client: the default one, and the entries that compact filters cannot find."""

from __future__ import annotations

import pytest

from spvfilter.errors import InexpressibleError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Mode
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.primitives import OutPoint
from spvfilter.wallet.events import MatchFound
from spvfilter.watch.match import Completeness
from support.client.compactworld import LIMITS, grown
from support.client.lightworld import START, Run, World, running, where


def completeness(run: Run) -> set[str]:
    return {event.completeness for event in run.books.events if isinstance(event, MatchFound)}


CLOCK = Clock(wall=lambda: START)


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
