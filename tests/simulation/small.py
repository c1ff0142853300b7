"""Small limits: situations that need thousands of blocks or peers happen within the two hundred blocks of a life."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from simulation.behaviours import faulty
from spvfilter.chain import sync
from spvfilter.light.engine import bloomsearch, coverage, filterheaders, filterquestions, longchange, peers
from spvfilter.node import filterindex, responder


@contextmanager
def small_limits(rng: random.Random | None) -> Iterator[None]:
    """Apply limits drawn by `rng`; the network's limits hold for all its nodes. If `rng` is None, change nothing."""
    with ExitStack() as stack:
        for owner, name, value in _drawn(rng) if rng is not None else ():
            assert hasattr(owner, name)
            stack.enter_context(patch.object(owner, name, value))
        yield


def _drawn(rng: random.Random) -> Iterator[tuple[object, str, int]]:
    interval = rng.choice([7, 10, 20, 50])
    for each in (filterheaders, filterquestions, filterindex):
        yield each, "CHECKPOINT_INTERVAL", interval
    for each in (filterheaders, filterindex):
        yield each, "MAX_CFHEADERS", 2 * interval
    yield filterheaders, "HEAR_EVERY", rng.choice([5, 30, 20_160])
    yield filterheaders, "MAX_UNDECIDED", rng.choice([3, 20])
    depth = rng.choice([30, 60, 100, 288])
    for each in (peers, bloomsearch):
        yield each, "LIMITED_DEPTH", depth
    yield faulty, "_KEPT_BLOCKS", depth
    yield coverage, "MAX_UNWITNESSED_RANGES", rng.choice([1, 3, 1_000])
    yield coverage, "MAX_UNDECIDED_RANGES", rng.choice([1, 3, 100])
    headers = rng.choice([20, 50, 2_000])
    for module in (sync, responder):
        yield module, "MAX_HEADERS", headers
    yield longchange, "MANY_MATCHES", rng.choice([0, 1, 100])
    yield longchange, "AT_ONCE", rng.choice([1, 3, 200])
