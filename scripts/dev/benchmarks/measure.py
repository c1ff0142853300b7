"""Timing: interleaved, best of N, in processor time or by the clock; rows with their goals."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One comparison; times in milliseconds unless the name says otherwise. `goal` is the largest ratio that meets
    it.
    """

    name: str
    ours: float
    reference: float
    what: str  # the reference
    goal: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return f"{'met' if self.ratio <= self.goal else 'MISSED'} (≤ {self.goal:g})"


class Times(NamedTuple):
    """The least that a call took, in milliseconds."""

    clock: float
    # of all threads of this process and of the children that have ended: other load of the machine counts little
    processor: float


def times_of(rounds: int, *calls: Callable[[], object]) -> list[Times]:
    """The best times of each call; the calls take turns, so that a noisy moment hits all of them."""
    best = [Times(float("inf"), float("inf"))] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start, spent = time.perf_counter(), _spent()
            call()
            taken = (time.perf_counter() - start) * 1e3, (_spent() - spent) * 1e3
            best[number] = Times(*map(min, best[number], taken))
    return best


def best_of(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """The least processor time of each call in milliseconds."""
    return [times.processor for times in times_of(rounds, *calls)]


def _spent() -> float:
    """Processor time in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


async def record_lag(delays: list[float]) -> None:
    """Record how late the loop wakes a sleeper, in milliseconds, again and again until cancelled."""
    while True:
        asked = time.perf_counter() + 0.001
        await asyncio.sleep(0.001)
        delays.append((time.perf_counter() - asked) * 1e3)


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def print_table(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")
    print(f"{'':<58} {'ours':>10} {'reference':>10} {'ratio':>8}  {'goal':<18}  reference")
    for row in rows:
        print(
            f"{row.name:<58} {row.ours:>10.4g} {row.reference:>10.4g} {row.ratio:>8.3f}  {row.verdict:<18}  {row.what}",
            flush=True,
        )
