"""The pipeline merges batches one at a time and in order, raises errors in order, and waits for calls when it is
closed.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from spvfilter.kernel import ReadBuffer
from spvfilter.scan.pipeline import Pipeline
from support.matching import JOBS
from support.vectors import effort

pytestmark = pytest.mark.usefixtures("nothing_is_left")
Work = Callable[[int, ReadBuffer], None]
Merge = Callable[[int, ReadBuffer], "int | None"]


def idle(batch: int, buffer: ReadBuffer) -> None:
    pass


def itself(batch: int, buffer: ReadBuffer) -> int:
    return batch


@asynccontextmanager
async def running(jobs: int, work: Work = idle, merge: Merge = itself) -> AsyncIterator[Pipeline[int, int]]:
    pipeline: Pipeline[int, int] = Pipeline(jobs, work, merge)
    try:
        yield pipeline
    finally:
        await asyncio.to_thread(pipeline.close)


@JOBS
async def test_results_come_in_the_order_of_the_batches(jobs: int) -> None:
    """The first of every three batches is completed after the other batches that the threads can take have started."""
    begun = [threading.Event() for _ in range(61)]
    inside, buffers = threading.Lock(), set()

    def work(batch: int, buffer: ReadBuffer) -> None:
        begun[batch].set()
        buffers.add(buffer)
        assert batch % 3 or begun[min(batch + jobs - 1, 60)].wait(10)

    def merge(batch: int, buffer: ReadBuffer) -> int | None:
        assert inside.acquire(blocking=False)  # no other thread merges
        inside.release()
        return batch if batch % 5 else None

    async with running(jobs, work, merge) as pipeline:
        for batch in range(61):
            pipeline.put(batch)
        pipeline.finish()
        assert [result async for result in pipeline.results()] == [batch for batch in range(61) if batch % 5]
        assert await pipeline.in_thread(sum, [1, 2]) == 3
    assert 1 <= len(buffers) <= jobs


@JOBS
async def test_a_pipeline_without_batches_ends(jobs: int) -> None:
    async with running(jobs) as pipeline:
        pipeline.finish()
        assert [result async for result in pipeline.results()] == []


@JOBS
@pytest.mark.parametrize("broken", [0, 3, 6])
@pytest.mark.parametrize("where", ["work", "merge"])
async def test_an_error_is_raised_where_its_batch_is_due(where: str, broken: int, jobs: int) -> None:
    merged = []

    def fail(batch: int) -> None:
        if batch == broken:
            raise MemoryError("none left")

    def work(batch: int, buffer: ReadBuffer) -> None:
        if where == "work":
            fail(batch)

    def merge(batch: int, buffer: ReadBuffer) -> int:
        if where == "merge":
            fail(batch)
        merged.append(batch)
        return batch

    given = []
    async with running(jobs, work, merge) as pipeline:
        for batch in range(7):
            pipeline.put(batch)
        pipeline.finish()
        with pytest.raises(MemoryError):
            async for result in pipeline.results():
                given.append(result)  # noqa: PERF401  keep the matches before the error
    assert given == merged == list(range(broken))


async def test_a_merge_may_report_results_before_it_fails() -> None:
    def merge(batch: int, buffer: ReadBuffer) -> int:
        pipeline.tell(100)
        raise ValueError("the last")

    given = []
    async with running(1, merge=merge) as pipeline:
        pipeline.put(0)
        with pytest.raises(ValueError, match="the last"):
            async for result in pipeline.results():
                given.append(result)  # noqa: PERF401  keep the matches before the error
    assert given == [100]


@JOBS
async def test_only_one_batch_more_than_threads_is_begun(jobs: int) -> None:
    begun, enough = [], threading.Event()

    def work(batch: int, buffer: ReadBuffer) -> None:
        begun.append(batch)
        if len(begun) == jobs + 1:
            enough.set()

    async with running(jobs, work) as pipeline:
        for batch in range(50):
            pipeline.put(batch)
        pipeline.finish()
        assert await asyncio.to_thread(enough.wait, 10)
        taken = 0
        async for result in pipeline.results():
            assert result == taken
            taken += 1
            assert len(begun) <= taken + jobs + 1
    assert taken == 50


@JOBS
@pytest.mark.parametrize("seed", range(effort(5, 30, 500)))
async def test_a_pipeline_can_be_closed_at_any_moment(seed: int, jobs: int) -> None:
    source = random.Random(seed)
    after = source.randrange(30)
    closed = threading.Event()
    late = []

    def merge(batch: int, buffer: ReadBuffer) -> int | None:
        if closed.is_set():
            late.append(batch)
        return batch if batch % 3 == seed % 3 else None

    async with running(jobs, merge=merge) as pipeline:
        batches = range(source.randrange(after, 60))
        for batch in batches:
            pipeline.put(batch)
        if source.random() < 0.5:
            pipeline.finish()
        results = pipeline.results()
        taken = 0
        while taken < min(after // 3, len(batches[seed % 3 :: 3])):
            assert await anext(results) % 3 == seed % 3
            taken += 1
        await results.aclose()
    closed.set()
    assert not late
