"""One direction of a connection in virtual time: bytes arrive late and in order, or never."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from simulation.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Quality:
    """How a link behaves."""

    delay: float = 0.04  # seconds, one way
    jitter: float = 0.02  # seconds
    rate: float = 4e6  # bytes per second
    breaks: float = 0.0  # chance that what is sent arrives in pieces


class Pipe:
    """`deliver` gets the sent bytes in pieces, and None at the end."""

    def __init__(
        self, timeline: Timeline, rng: random.Random, quality: Quality, deliver: Callable[[bytes | None], None]
    ) -> None:
        self.waiting = 0  # bytes under way
        self._timeline = timeline
        self._rng = rng
        self._quality = quality
        self._deliver = deliver
        self._last = 0.0  # when the last byte arrives
        self._is_cut = False

    def send(self, data: bytes) -> None:
        """Send bytes; they arrive after everything sent before."""
        if self._is_cut:
            return
        quality = self._quality
        if quality.breaks and len(data) > 1 and self._rng.random() < quality.breaks:
            at = self._rng.randrange(1, len(data))
            self._put(data[:at])
            data = data[at:]
        self._put(data)

    def _put(self, data: bytes) -> None:
        quality, timeline = self._quality, self._timeline
        arrival = max(self._last, timeline.now + quality.delay + self._rng.random() * quality.jitter)
        self._last = arrival + len(data) / quality.rate
        self.waiting += len(data)
        timeline.at(self._last, partial(self._arrive, data))

    def close(self) -> None:
        """The end arrives after everything sent before."""
        if not self._is_cut:
            self._last = max(self._last, self._timeline.now + self._quality.delay)
            self._timeline.at(self._last, partial(self._arrive, None))

    def cut(self) -> None:
        """Nothing arrives any more, not even an end: half-open."""
        self._is_cut = True

    def _arrive(self, data: bytes | None) -> None:
        self.waiting -= len(data or b"")
        if not self._is_cut:
            self._deliver(data)
