"""The factory of the engine under test."""

from __future__ import annotations

import random

from simulation.host import EngineLike
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.windowgrowth import extend
from spvfilter.signatures import find_curve, verify_spends
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList


def make(
    options: Options, watch: WatchList, store: Store, since: int | None, addresses: list[str], rng: random.Random
) -> EngineLike:
    """Make the engine from the data in the database."""
    from spvfilter.light.engine import ClientEngine, Saved

    extend(watch, options, settled := {each.name for each in store.keychains.load()})
    saved = Saved.read(store, watch, since)
    while extend(watch, options, settled | {each.name for each in watch.keychains}):
        saved = Saved.read(store, watch, since)
    verify = verify_spends if find_curve() is not None else None
    made: EngineLike = ClientEngine(options, watch, saved, addresses, rng, verify=verify)
    return made
