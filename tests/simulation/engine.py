"""Makes the engine that lives are lived with."""

from __future__ import annotations

import random

from simulation.host import EngineLike
from spvfilter.light.engine.options import Options
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList


def make(options: Options, watch: WatchList, store: Store, since: int | None, addresses: list[str], rng: random.Random) -> EngineLike:
    """The engine on what the database has."""
    from spvfilter.light.engine import Engine, Saved

    made: EngineLike = Engine(options, watch, Saved.read(store, watch, since), addresses, rng)
    return made
