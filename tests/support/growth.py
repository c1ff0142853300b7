"""Growth of running time with size, from the shortest of many runs: other processes can only lengthen a run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from math import inf

SIZES = (10_000, 100_000)
LIMIT = 40  # Times as long for ten times the size. Linear work takes 10 to 13 times as long, quadratic work 100 times.
_TRIES = 20


def _least(work: Callable[[], object], before: float) -> float:
    begun = time.process_time()
    work()
    spent = time.process_time() - begun
    return min(before, spent) if spent > 0 else before  # a virtual machine's clock can stand still for short work


def growth(prepare: Callable[[int], Callable[[], object]], sizes: tuple[int, int] = SIZES) -> float:
    """Return the ratio of the running times of the larger and the smaller work.

    `prepare` is not measured. The measurement is repeated while the ratio is `LIMIT` or more.
    """
    small = large = found = inf
    was_enabled = gc.isenabled()
    gc.disable()  # otherwise the collector traverses the objects of all earlier tests
    try:
        for _ in range(_TRIES):
            for _ in range(3):
                small = _least(prepare(sizes[0]), small)
            large = _least(prepare(sizes[1]), large)
            found = large / small if small < inf else inf
            if found < LIMIT:
                break
    finally:
        if was_enabled:
            gc.enable()
    return found
