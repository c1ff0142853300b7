"""Growth of running time with size, from the shortest of many runs: other processes can only lengthen a run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

SIZES = (10_000, 100_000)
LIMIT = 40  # Times as long for ten times the size. Linear work takes 10 to 13 times as long, quadratic work 100 times.
_TRIES = 20


def _least(work: Callable[[], object], before: float) -> float:
    begun = time.process_time()
    work()
    return min(before, time.process_time() - begun)


def growth(prepare: Callable[[int], Callable[[], object]], sizes: tuple[int, int] = SIZES) -> float:
    """Return the ratio of the running times of the larger and the smaller work.

    `prepare` is not measured. The measurement is repeated while the ratio is `LIMIT` or more.
    """
    small = large = found = float("inf")
    was_enabled = gc.isenabled()
    gc.disable()  # otherwise the collector traverses the objects of all earlier tests
    try:
        for _ in range(_TRIES):
            for _ in range(3):
                small = _least(prepare(sizes[0]), small)
            large = _least(prepare(sizes[1]), large)
            found = large / max(small, 1e-9)
            if found < LIMIT:
                break
    finally:
        if was_enabled:
            gc.enable()
    return found
