"""Virtual time: events happen in order of time, and then in order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Timer:
    """A scheduled call that can be cancelled."""

    __slots__ = ("call", "time")

    def __init__(self, time: float, call: Callable[[], None] | None) -> None:
        self.time = time
        self.call = call

    def cancel(self) -> None:
        self.call = None


class Timeline:
    """A clock that jumps from event to event. Seconds, from 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = 0

    def at(self, time: float, call: Callable[[], None]) -> Timer:
        """Call at a time, or now if that time has passed."""
        timer = Timer(max(time, self.now), call)
        self._number += 1
        heappush(self._heap, (timer.time, self._number, timer))
        return timer

    def after(self, delay: float, call: Callable[[], None]) -> Timer:
        """Call in `delay` seconds."""
        return self.at(self.now + delay, call)

    def run(self, until: float) -> None:
        """Run all events up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            time, _, timer = heappop(heap)
            if timer.call is not None:
                self.now = time
                timer.call()
        self.now = max(self.now, until)
