"""Matching a stream of filters: ordered results, bounded memory, threads that end, and errors for malformed filters."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from spvfilter import WatchList, match_filters
from spvfilter.errors import BlockFilterError, FormatError, InexpressibleError, ParameterError
from spvfilter.filters import batch
from spvfilter.filters.batch import read_ahead
from spvfilter.filters.bip158 import BasicFilter, basic_data
from spvfilter.kernel import BACKEND, GcsQuery
from support.blocks import build
from support.vectors import effort

JOBS = pytest.mark.parametrize("jobs", [1, 2, 5])
OURS = [build.p2wpkh(bytes((number,)) * 20) for number in range(4)]


def filters(hits: Iterable[int], count: int) -> list[tuple[bytes, bytes]]:
    """`count` filters of two scripts each. Some have own scripts."""
    source, places = random.Random(7), set(hits)
    made = []
    for number in range(count):
        block_hash = source.randbytes(32)
        elements = [source.randbytes(22), OURS[number % 4] if number in places else source.randbytes(22)]
        made.append((block_hash, basic_data(block_hash, elements)))
    return made


def hashes(pairs: list[tuple[bytes, bytes]], places: Iterable[int]) -> list[bytes]:
    return [pairs[number][0] for number in places]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("spvfilter-filters")}


@JOBS
def test_candidates_are_yielded_in_order(jobs: int) -> None:
    count = effort(700, 1_000, 20_000)
    hits = sorted(random.Random(3).sample(range(count), count // 50))
    pairs = filters(hits, count)
    watch = WatchList()
    for script in OURS:
        watch.add_script(script)
    assert list(match_filters(pairs, watch, jobs=jobs)) == hashes(pairs, hits)
    assert list(match_filters(iter(pairs), GcsQuery(OURS), jobs=jobs)) == hashes(pairs, hits)
    assert list(match_filters([], watch, jobs=jobs)) == []
    assert list(match_filters(pairs, WatchList(), jobs=jobs)) == []
    assert not threads()


@JOBS
def test_a_duplicate_block_is_yielded_twice(jobs: int) -> None:
    (pair,) = filters([0], 1)
    parsed = BasicFilter.parse(pair[1], pair[0])
    assert list(match_filters([pair, (pair[0], parsed)], GcsQuery(OURS), jobs=jobs)) == [pair[0], pair[0]]


@JOBS
@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_filters_and_hashes_may_be_bytes_like(jobs: int, kind: type[bytearray | memoryview]) -> None:
    pairs = filters([2, 300], 301)
    given = [(kind(block_hash), kind(data)) for block_hash, data in pairs]
    assert list(match_filters(given, GcsQuery(OURS), jobs=jobs)) == hashes(pairs, [2, 300])


@JOBS
def test_a_reused_buffer_causes_no_error(jobs: int) -> None:
    pairs, buffer = filters([2, 600], 700), bytearray()

    def reused() -> Iterator[tuple[bytes, bytearray]]:
        for block_hash, data in pairs:
            buffer[:] = data
            yield block_hash, buffer

    assert list(match_filters(reused(), GcsQuery(OURS), jobs=jobs)) == hashes(pairs, [2, 600])


@JOBS
@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ((bytes(32), None), "a filter must be bytes or a BasicFilter, not NoneType"),
        ((bytes(32), "00"), "a filter must be bytes or a BasicFilter, not str"),
        ((bytes(32), 5), "a filter must be bytes or a BasicFilter, not int"),
        ((None, b"\0"), "a block hash must be bytes, not NoneType"),
        (("0" * 32, b"\0"), "a block hash must be bytes, not str"),
    ],
)
def test_an_invalid_item_raises_after_earlier_candidates(jobs: int, pair: Any, said: str) -> None:
    pairs = filters([2], 3)
    found = match_filters([*pairs, pair], GcsQuery(OURS), jobs=jobs)
    assert next(found) == pairs[2][0]
    with pytest.raises(TypeError, match=said):
        next(found)


@JOBS
def test_an_interrupt_ends_the_stream_at_once(jobs: int) -> None:
    pairs = filters([2], 3)

    def interrupted() -> Iterator[tuple[bytes, bytes]]:
        yield from pairs
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(match_filters(interrupted(), GcsQuery(OURS), jobs=jobs))
    assert not threads()


@JOBS
def test_an_endless_stream_is_read_with_a_bounded_lead(jobs: int) -> None:
    pairs = filters([5], 10)
    read = 0

    def endless() -> Iterator[tuple[bytes, bytes]]:
        nonlocal read
        while True:
            read += 1
            yield pairs[read % 10]

    found = match_filters(endless(), GcsQuery(OURS), jobs=jobs)
    assert read == 0
    for number in range(1, 500):
        assert next(found) == pairs[5][0]
        assert read <= 10 * number + read_ahead(jobs)
    found.close()
    assert not threads()


@JOBS
def test_only_a_few_large_filters_are_read_ahead(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_SIZE", 10_000)
    pairs = filters([0], 1)
    large = (bytes(32), b"\xfd\xa0\x0f" + bytes(10_000))  # 4,000 times the value 0
    source = iter([*pairs, *[large] * 100])
    found = match_filters(source, GcsQuery(OURS), jobs=jobs)
    next(found)
    assert sum(1 for _ in source) == 100 - (1 if jobs == 1 or BACKEND == "pure" else jobs + 1)
    found.close()


@JOBS
@pytest.mark.parametrize("bad", [0, 100, 256, 599])
def test_a_malformed_filter_raises_after_earlier_candidates(jobs: int, bad: int) -> None:
    hits = [3, 99, 101, 255, 300, 598]
    pairs = filters(hits, 600)
    pairs[bad] = (pairs[bad][0], pairs[bad][1][:-1])
    found = match_filters(pairs, GcsQuery(OURS), jobs=jobs)
    given = []
    with pytest.raises(
        BlockFilterError, match=f"of the filter of block {pairs[bad][0][::-1].hex()} at byte .*: truncated"
    ) as caught:
        for block_hash in found:
            given.append(block_hash)  # noqa: PERF402  # collects what precedes the error
    assert given == hashes(pairs, [hit for hit in hits if hit < bad])
    assert caught.value.block_hash == pairs[bad][0]
    assert isinstance(caught.value, FormatError)
    assert not threads()
    with pytest.raises(BlockFilterError):
        list(match_filters(pairs, GcsQuery(()), jobs=jobs))  # even for an empty query


@JOBS
def test_an_error_of_the_stream_follows_earlier_candidates(jobs: int) -> None:
    hits = [1, 255, 256, 513]
    pairs = filters(hits, 514)

    def broken() -> Iterator[tuple[bytes, bytes]]:
        yield from pairs
        raise OSError("the disk is gone")

    given = []
    with pytest.raises(OSError, match="the disk is gone"):
        for block_hash in match_filters(broken(), GcsQuery(OURS), jobs=jobs):
            given.append(block_hash)  # noqa: PERF402  # collects what precedes the error
    assert given == hashes(pairs, hits)
    assert not threads()


@JOBS
def test_a_wrong_block_hash_is_refused(jobs: int) -> None:
    (pair,) = filters([0], 1)
    with pytest.raises(ParameterError, match="32 bytes long, not 31"):
        list(match_filters([(pair[0][1:], pair[1])], GcsQuery(OURS), jobs=jobs))
    other = bytes(range(32))
    with pytest.raises(ParameterError, match=f"expected the filter of block {other[::-1].hex()}, got"):
        list(match_filters([(other, BasicFilter.parse(pair[1], pair[0]))], GcsQuery(OURS), jobs=jobs))


def test_arguments_are_checked_immediately() -> None:
    watch = WatchList()
    with pytest.raises(ParameterError, match="jobs must be at least 1, not 0"):
        match_filters([], watch, jobs=0)
    watch.add_data(b"data")
    with pytest.raises(InexpressibleError):
        match_filters([], watch)


@JOBS
def test_an_early_end_leaves_no_thread(jobs: int) -> None:
    pairs = filters(range(0, 2_000, 2), 2_000)
    for block_hash in match_filters(pairs, GcsQuery(OURS), jobs=jobs):
        assert block_hash == pairs[0][0]
        break
    assert not threads()


def test_an_error_can_be_pickled() -> None:
    pairs = filters((), 1)
    with pytest.raises(BlockFilterError) as caught:
        list(match_filters([(pairs[0][0], b"")], GcsQuery(())))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.block_hash) == (str(caught.value), pairs[0][0])
