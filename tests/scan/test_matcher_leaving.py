"""A scan that stops early leaves no thread. Errors are raised in order, and sources are read little ahead."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from spvfilter.kernel import ReadBuffer
from spvfilter.scan import order, scan
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockList, BlockRef
from spvfilter.watch.match import Match
from support.blocks.build import TxIn, TxOut, block, block_hash, coinbase, tx
from support.blocks.chains import found_by, slowly
from support.matching import JOBS, KINDS, mine, paying, source, threads
from support.vectors import effort

pytestmark = pytest.mark.usefixtures("many_threads", "nothing_is_left")


class Counting:
    """Blocks as a plain or asynchronous iterator that counts them."""

    def __init__(self, blocks: list[bytes], fails_at: int | None = None) -> None:
        self.blocks = blocks
        self.taken = 0
        self.fails_at = fails_at

    def take(self) -> Iterator[bytes]:
        for raw in self.blocks:
            if self.taken == self.fails_at:
                raise RuntimeError("the source is broken")
            self.taken += 1
            yield raw

    async def take_slowly(self) -> AsyncIterator[bytes]:
        for raw in self.take():
            await asyncio.sleep(0)
            yield raw


@JOBS
@KINDS
async def test_leaving_after_one_match_leaves_no_thread(kind: str, jobs: int, tmp_path: Path) -> None:
    blocks = paying(40)
    watch = mine()
    what, options = source(kind, blocks, tmp_path)
    async with aclosing(Matcher(watch, jobs=jobs).scan(what, **options)) as matches:  # type: ignore[arg-type]
        async for match in matches:
            assert match.value == 1_000
            break
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [name for name in threads() if "read" not in name]
    known = len(list(watch.outpoints()))
    await asyncio.sleep(0.01)
    assert len(list(watch.outpoints())) == known  # the list learns nothing after the scan
    assert len(await found_by(Matcher(watch), blocks)) == 40


@JOBS
async def test_the_loop_cleans_up_an_unclosed_scan(jobs: int) -> None:
    async for _ in Matcher(mine(), jobs=jobs).scan(iter(paying(40))):
        break
    gc.collect()
    await asyncio.sleep(0)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


@JOBS
@KINDS
async def test_an_error_of_the_consumer_leaves_no_thread(kind: str, jobs: int, tmp_path: Path) -> None:
    what, options = source(kind, paying(40), tmp_path)
    with pytest.raises(ZeroDivisionError):
        async with aclosing(Matcher(mine(), jobs=jobs).scan(what, **options)) as matches:  # type: ignore[arg-type]
            async for _ in matches:
                raise ZeroDivisionError
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.few(16)
@JOBS
@KINDS
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 13, 40])
async def test_a_cancelled_scan_leaves_no_thread(kind: str, jobs: int, steps: int, tmp_path: Path) -> None:
    blocks = paying(40)
    watch = mine()
    what, options = source(kind, blocks, tmp_path)
    task = asyncio.create_task(found_by(Matcher(watch, jobs=jobs), what, **options))
    for _ in range(steps):
        await asyncio.sleep(0 if steps < 10 else 0.0003)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):  # the task may be done already
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [name for name in threads() if "read" not in name]
    assert len(await found_by(Matcher(watch, jobs=jobs), blocks)) == 40


@pytest.mark.few(2)
@JOBS
async def test_a_scan_cancelled_at_any_moment_leaves_no_thread(jobs: int) -> None:
    blocks = paying(40)
    rng = random.Random(jobs)
    for shape in (list, iter, slowly) * effort(3, 8, 200):
        watch = mine()
        task = asyncio.create_task(found_by(Matcher(watch, jobs=jobs), shape(blocks)))
        await asyncio.sleep(rng.random() * 0.02)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not [name for name in threads() if "read" not in name]
        assert len(await found_by(Matcher(watch, jobs=jobs), blocks)) == 40


class Gate(BlockList):
    """A list that blocks the reader of index 3 until the gate opens."""

    def __init__(self, blocks: list[bytes]) -> None:
        super().__init__(blocks)
        self.reached, self.open = threading.Event(), threading.Event()

    def read(self, ref: BlockRef) -> bytes:
        if ref.file == 3:
            self.reached.set()
            assert self.open.wait(10)
        return super().read(ref)


@JOBS
async def test_cancelling_waits_for_running_threads_only(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    gate = Gate(paying(40))
    watch = mine()
    matcher = Matcher(watch, jobs=jobs)
    task = asyncio.create_task(found_by(matcher, gate))
    assert await asyncio.to_thread(gate.reached.wait, 10)
    for _ in range(2):  # a second cancellation changes nothing
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()  # a thread is still scanning
    known = len(list(watch.outpoints()))
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(list(watch.outpoints())) == known
    assert matcher.report.blocks <= 3


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_source_that_stalls_can_be_left(slow: bool, in_order: bool) -> None:
    """The thread that waits for a plain iterator ends when its next() returns."""
    blocks = paying(3)
    asked, released = threading.Event(), threading.Event()

    def blocking() -> Iterator[bytes]:
        yield from blocks
        asked.set()
        assert released.wait(20)

    async def waiting() -> AsyncIterator[bytes]:
        for raw in blocks:
            yield raw
        asked.set()
        await asyncio.Event().wait()

    given: list[Match] = []
    all_given = asyncio.Event()

    async def scanned() -> None:
        async with aclosing(Matcher(mine()).scan(waiting() if slow else blocking(), in_order=in_order)) as matches:
            async for match in matches:
                given.append(match)
                if len(given) == 3:
                    all_given.set()

    task = asyncio.create_task(scanned())
    try:
        await asyncio.wait_for(all_given.wait(), 20)
        assert await asyncio.to_thread(asked.wait, 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(given) == 3
        assert threads() == ([] if slow else ["spvfilter-next"])
    finally:
        released.set()


@JOBS
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("slow", [False, True])
async def test_an_error_of_the_source_comes_after_earlier_matches(slow: bool, in_order: bool, jobs: int) -> None:
    counting = Counting(paying(20), fails_at=9)
    given: list[int | None] = []
    matcher = Matcher(mine(), jobs=jobs)
    with pytest.raises(RuntimeError, match="the source is broken"):
        async for match in matcher.scan(counting.take_slowly() if slow else counting.take(), in_order=in_order):
            given.append(match.value)  # noqa: PERF401  keep the matches before the error
    assert given == [1_000 + number for number in range(9)]
    assert not matcher.report.done


@JOBS
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_slow_consumer_slows_the_source(slow: bool, in_order: bool, jobs: int) -> None:
    counting = Counting(paying(40))
    done = 0
    what = counting.take_slowly() if slow else counting.take()
    async with aclosing(Matcher(mine(), jobs=jobs).scan(what, in_order=in_order)) as matches:
        async for _ in matches:
            done += 1
            if done % 5 == 1:
                await asyncio.sleep(0.01)  # time to read as far ahead as possible
            assert counting.taken <= done + jobs + 3
    assert counting.taken == done == 40


@pytest.mark.long
async def test_memory_does_not_grow_with_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """In declared order only the learned outpoints are kept. Otherwise each header takes a few hundred bytes more."""
    filler = tx([TxIn(b"\x07" * 32, 1, bytes(40_000))], [TxOut(1, b"\x51")])

    def chain(count: int) -> Iterator[bytes]:
        previous = bytes(32)
        for height in range(count):
            raw = block(previous, [coinbase(height + 1), filler])
            previous = block_hash(raw)
            yield raw

    async def peak(count: int, in_order: bool) -> int:
        gc.collect()
        tracemalloc.start()
        await found_by(Matcher(mine()), chain(count), in_order=in_order)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    monkeypatch.setattr("spvfilter.scan.sources.SPOOL_IN_MEMORY", 100_000)
    for in_order, each in ((True, 50), (False, 900)):
        short, long = await peak(20, in_order), await peak(220, in_order)
        assert short < 2_000_000
        assert long - short < 200 * each + 100_000


@JOBS
@pytest.mark.parametrize("name", ["work", "merge"])
@pytest.mark.parametrize("number", [0, 1, 7])
async def test_a_failure_in_a_thread_is_raised_in_order(
    name: str, number: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "BATCH_BLOCKS", 1)
    works = getattr(scan.Scan, name)
    lock, calls = threading.Lock(), []

    def fails(self: scan.Scan[object], batch: Any, buffer: ReadBuffer) -> object:
        with lock:
            calls.append(batch)
        if batch.results[0].block.ref.hash == block_hash(blocks[number]):
            raise MemoryError("none left")
        return works(self, batch, buffer)

    monkeypatch.setattr(scan.Scan, name, fails)
    blocks, found = paying(12), 0
    async with asyncio.timeout(20):
        with pytest.raises(MemoryError):
            async for _ in Matcher(mine(), jobs=jobs).scan(blocks):
                found += 1
    assert found == number
    assert calls
