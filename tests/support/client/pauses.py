"""Retries in virtual time: pauses take no time, and a clock adds them up. No assertions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spvfilter.rpc import Patience


class Pauses:
    """A clock that only pauses advance, with the messages told and a call for each pause."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.told: list[str] = []
        self.events = list(events)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.events:
            self.events.pop(0)()
        await asyncio.sleep(0)

    def patience(self, seconds: float | None = 600.0) -> Patience:
        return Patience(seconds, self.told.append, self.sleep, lambda: self.now)
