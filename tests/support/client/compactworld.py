"""Worlds and runs for tests of compact filters: a chain that has grown, and a node that counts requests. No
assertions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from spvfilter.light.events import Synced
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.responder import Responder
from support.client.lightworld import FAST, TIMEOUT_S, Run, World

LIMITS = replace(FAST, filters=15)


def grown(seed: int = 1, blocks: int = 30) -> World:
    world = World(seed)
    world.grow(blocks)
    return world


async def reach_tip(run: Run, world: World) -> None:
    """Take events up to the tip without checking them, since a later run withdraws matches of an earlier one."""
    async with asyncio.timeout(TIMEOUT_S):
        async for event in run.client.events():
            if isinstance(event, Synced) and event.hash == world.regtest.chain.tip.hash:
                return


class Counting(Responder):
    """Counts the requests of each kind, over all responders."""

    asked: Counter[str]

    def on_filters_wanted(self, asked: FilterRequest) -> None:
        type(self).asked[type(asked).__name__] += 1
        super().on_filters_wanted(asked)


def counting() -> type[Counting]:
    return type("CountingOne", (Counting,), {"asked": Counter()})
