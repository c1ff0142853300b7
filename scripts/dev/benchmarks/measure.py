"""Timing, in processor time or on the clock, and the rows of the results with their goals."""

from __future__ import annotations

import asyncio
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One comparison."""

    name: str
    """Name of the measurement, with the unit if it is not milliseconds."""
    ours: float
    """Result of spvfilter."""
    reference: float
    """Result of the reference."""
    what: str
    """Name of the reference."""
    goal: float | None = None
    """Largest ratio that meets the goal; None without a goal."""

    @property
    def ratio(self) -> float:
        return self.ours / self.reference

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return f"{'met' if self.ratio <= self.goal else 'MISSED'} (≤ {self.goal:g})"


class Times(NamedTuple):
    """The shortest times of a call, in milliseconds."""

    clock: float
    """Time on the clock."""
    processor: float
    """Processor time of all threads and of all children that have ended. Other load has little effect on it."""


def times_of(rounds: int, *calls: Callable[[], object]) -> list[Times]:
    """Measure the best times of each call. The calls take turns, so that other load affects all of them."""
    best = [Times(float("inf"), float("inf"))] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start, spent = time.perf_counter(), _spent()
            call()
            taken = (time.perf_counter() - start) * 1e3, (_spent() - spent) * 1e3
            best[number] = Times(*map(min, best[number], taken))
    return best


def best_of(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Measure the shortest processor time of each call, in milliseconds."""
    return [times.processor for times in times_of(rounds, *calls)]


def _spent() -> float:
    """Processor time in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak() -> int:
    """The largest resident size of this process so far, in bytes.

    On Linux the size of the parent, before this process executed its program, does not count.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_folder(size: int) -> str | None:
    """Return a folder in memory with room for `size` bytes; None, for the usual temporary folder, if there is none.

    Files on a busy disk cost the kernel up to three times the processor time: the disk would be measured.
    """
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and shutil.disk_usage(shared).free >= size else None


async def record_lag(delays: list[float]) -> None:
    """Record again and again how late the event loop wakes a sleeper, in milliseconds, until cancelled."""
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
