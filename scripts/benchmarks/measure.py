"""Timing: interleaved, best of N, in one process; rows with their goals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One comparison; times in milliseconds unless the name says otherwise. `goal` is the largest ratio that meets it."""

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


def best_of(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """The best time of each call in milliseconds; the calls take turns, so that a noisy moment hits all of them."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], (time.perf_counter() - start) * 1e3)
    return best


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
        print(f"{row.name:<58} {row.ours:>10.4g} {row.reference:>10.4g} {row.ratio:>8.3f}  {row.verdict:<18}  {row.what}", flush=True)
