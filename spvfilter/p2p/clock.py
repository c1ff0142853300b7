"""Clock: the source of time, which tests replace."""

from __future__ import annotations

import time
from collections.abc import Callable

from spvfilter._dataclass import dataclass
from spvfilter._public import public


@public
@dataclass(frozen=True, slots=True)
class Clock:
    """The source of time:

    `monotonic` for waiting, `wall` (seconds since 1970) for the times of blocks and transactions.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
