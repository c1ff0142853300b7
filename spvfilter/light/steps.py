"""Run long work in the event loop, in steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator


async def in_steps(steps: Iterator[None]) -> None:
    """Run the steps of a generator, letting the event loop run in between.

    If the task is cancelled, the remaining steps run immediately.
    """
    try:
        for _ in steps:
            await asyncio.sleep(0)
    finally:
        for _ in steps:
            pass
