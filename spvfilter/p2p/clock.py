"""Clock: where time comes from, so that tests can bring their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spvfilter._public import public


@public
@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from: `monotonic` for waiting, `wall` (seconds since 1970) for what blocks and transactions say."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
