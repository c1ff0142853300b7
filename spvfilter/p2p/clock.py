"""Clock: the source of time, which tests replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spvfilter._public import public


@public
@dataclass(frozen=True, slots=True)
class Clock:
    """The source of time. Tests replace it by a virtual clock."""

    monotonic: Callable[[], float] = time.monotonic
    """Returns seconds since an arbitrary start; timeouts are measured with it."""
    wall: Callable[[], float] = time.time
    """Returns seconds since 1970; the times of blocks and transactions are compared with it."""
