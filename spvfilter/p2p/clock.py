"""Clock: the source of time, which tests can replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spvfilter._public import public


@public
@dataclass(frozen=True, slots=True)
class Clock:
    """The source of time, which tests replace with a virtual clock."""

    monotonic: Callable[[], float] = time.monotonic
    """Function that returns the seconds since an arbitrary start, to measure timeouts."""
    wall: Callable[[], float] = time.time
    """Function that returns the Unix time, to compare with the times of blocks and transactions."""
