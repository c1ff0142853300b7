"""The event loop stays free while the matcher works."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from bitcoin.core import CBlock

from spvfilter.network import MAINNET
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import block_hash
from support.blocks.chains import found_by, slowly, write_records
from support.blocks.realdata import single_blocks
from support.matching import MINE, paying
from support.vectors import effort

pytestmark = pytest.mark.usefixtures("many_threads", "nothing_is_left")
# Seconds at the 99th percentile. A block that is scanned on the loop would block it for longer.
# `scripts/bench lag` measures the lag.
LAG_S = 0.03


async def lags(delays: list[float], over: asyncio.Event) -> None:
    """Append the loop's delays: the processor time of this process until a task wakes that sleeps for 1 ms, in seconds.

    Work of other processes does not count.
    """
    while not over.is_set():
        asked = time.process_time()
        await asyncio.sleep(0.001)
        delays.append(time.process_time() - asked)


async def lag_while(work: Callable[[], Awaitable[object]]) -> float:
    """99th percentile of the loop's lag during `work`, in seconds.

    It is the least of up to five runs, as the machine may be busy.
    """
    least = 1.0
    gc.collect()
    gc.freeze()  # else the garbage collector would visit the objects of the tests again and again
    for _ in range(5):
        delays: list[float] = []
        over = asyncio.Event()
        sleeper = asyncio.create_task(lags(delays, over))
        while len(delays) < effort(100, 200, 2_000):
            await work()
        over.set()
        await sleeper
        least = min(least, sorted(delays)[int(len(delays) * 0.99)])
        if least < LAG_S:
            break
    gc.unfreeze()
    return least


async def assert_the_loop_stays_free(work: Callable[[], Awaitable[object]]) -> None:
    """The lag is small or, on a busy machine, at most three times the lag beside another Python thread."""
    lag = await lag_while(work)
    if lag >= LAG_S:
        any_thread = await lag_while(lambda: asyncio.to_thread(sum, (number % 7 for number in range(1_000_000))))
        assert lag < max(LAG_S, 3 * any_thread)


@pytest.mark.few(2)
@pytest.mark.vectors
@pytest.mark.usefixtures("threads_of_this_kernel")
@pytest.mark.parametrize(
    ("kind", "jobs"), [("list", 1), ("list", 2), ("generator", 1), ("generator", 2), ("files", 2), ("bitcoinlib", 1)]
)
async def test_the_loop_stays_free_while_large_blocks_are_scanned(kind: str, jobs: int, tmp_path: Path) -> None:
    blocks = [one.raw for one in single_blocks() if one.network is MAINNET and len(one.raw) > 700_000]
    assert len(blocks) >= 5
    watch = WatchList(MAINNET)
    watch.add_script(MINE)
    parsed = [CBlock.deserialize(raw) for raw in blocks[:2]] if kind == "bitcoinlib" else []
    path = write_records(tmp_path / "blk00000.dat", blocks, MAINNET.magic)

    async def scan_once() -> None:
        match kind:
            case "list":
                what: object = blocks
            case "bitcoinlib":
                what = parsed
            case "generator":
                what = slowly(blocks)
            case _:
                what = BlockFiles(path)
        await found_by(Matcher(watch, jobs=jobs), what)

    await assert_the_loop_stays_free(scan_once)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["list", "generator"])
async def test_the_loop_stays_free_while_many_headers_are_linked(kind: str) -> None:
    body = paying(1)[0][36:]
    blocks: list[bytes] = []
    for _ in range(effort(2_000, 3_000, 100_000)):
        blocks.append(b"\x01\x00\x00\x00" + (block_hash(blocks[-1]) if blocks else bytes(32)) + body)
    watch = WatchList(MAINNET)
    watch.add_script(b"\x52")
    matcher = Matcher(watch)
    await assert_the_loop_stays_free(lambda: found_by(matcher, blocks if kind == "list" else slowly(blocks)))
    assert matcher.report.segments == 1
