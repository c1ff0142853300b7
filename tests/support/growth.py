"""How the time of some work grows with its size: told by the least of many runs, as others' work on the machine only
ever adds to it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

SIZES = (10_000, 100_000)
LIMIT = 40  # times as long for ten times as much: what is linear takes 10 to 13, a square 100
_TRIES = 20


def _least(work: Callable[[], object], before: float) -> float:
    begun = time.process_time()
    work()
    return min(before, time.process_time() - begun)


def growth(prepare: Callable[[int], Callable[[], object]], sizes: tuple[int, int] = SIZES) -> float:
    """How many times as long the larger work takes; what `prepare` does is not measured. Tried again while it is
    `LIMIT` or more.
    """
    small = large = found = float("inf")
    was_enabled = gc.isenabled()
    gc.disable()  # or all that other tests left is walked again and again
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
