"""The matcher as a citizen of asyncio: the loop stays free, nothing is left behind, memory is bounded, errors come where they belong."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from bitcoin.core import CBlock, CTransaction

from build import TxIn, TxOut, block, block_hash, block_of, chain_of, coinbase, p2wpkh, segwit_coinbase, tx, txid
from chains import Interest, exact, found_by, random_chain, record, slowly, write_records
from realdata import single_blocks
from spvfilter import errors
from spvfilter.aio import feed, scan
from spvfilter.aio.matcher import Matcher
from spvfilter.aio.sources import BlockFiles, BlockList, BlockRef, RawBlock
from spvfilter.kernel import BACKEND
from spvfilter.network import MAINNET
from spvfilter.watch import Match, MatchKind, WatchList
from support import effort

MINE = p2wpkh(b"\x11" * 20)
JOBS = pytest.mark.parametrize("jobs", [1, 2, 3])
KINDS = pytest.mark.parametrize("kind", ["list", "iterator", "generator", "in order", "files"])


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No test may hang, and none may leave a task or a thread behind."""
    async with asyncio.timeout(60):
        yield
    await asyncio.sleep(0)
    if others := asyncio.all_tasks() - {asyncio.current_task()}:  # the loop's, closing an asynchronous generator of the test's own
        await asyncio.wait(others, timeout=10)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    for thread in scanning():
        await asyncio.to_thread(thread.join, 10)  # one may be ending its last next()
    assert not threads()


@pytest.fixture(autouse=True)
def many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as jobs, whatever the kernel."""
    monkeypatch.setattr(scan, "BACKEND", "one that releases the GIL")


@pytest.fixture
def threads_of_this_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BACKEND", BACKEND)


def scanning() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("spvfilter")]


def threads() -> list[str]:
    return [thread.name for thread in scanning()]


def mine() -> WatchList:
    return Interest([MINE]).watch()


def paying(count: int) -> list[bytes]:
    """A chain in which every block pays us once."""
    return chain_of([[tx([TxIn(bytes([1]) * 32, number)], [TxOut(1_000 + number, MINE)])] for number in range(count)], height=100)


def source(kind: str, blocks: list[bytes], tmp_path: Path) -> tuple[object, dict[str, bool]]:
    match kind:
        case "list":
            return blocks, {}
        case "iterator":
            return iter(blocks), {}
        case "generator":
            return slowly(blocks), {}
        case "in order":
            return iter(blocks), {"in_order": True}
    return BlockFiles(write_records(tmp_path / "blk00000.dat", blocks)), {}


# What is accepted


async def test_blocks_may_be_bytes_with_heights_or_of_bitcoinlib() -> None:
    blocks = paying(4)
    shapes: list[Callable[[bytes], object]] = [bytes, bytearray, memoryview, CBlock.deserialize, RawBlock]
    reference = await found_by(Matcher(mine()), blocks)
    assert [match.height for match in reference] == [100, 101, 102, 103]
    for shape in shapes:
        assert await found_by(Matcher(mine()), [shape(raw) for raw in blocks]) == reference
        assert await found_by(Matcher(mine()), (shape(raw) for raw in blocks)) == reference
        assert await found_by(Matcher(mine()), slowly(shape(raw) for raw in blocks)) == reference
    assert await found_by(Matcher(mine()), tuple(blocks)) == reference


async def test_given_heights_go_before_those_that_blocks_state() -> None:
    blocks = paying(2)
    given = [RawBlock(raw, 500 + number) for number, raw in enumerate(blocks)]
    for shape in (list(given), iter(given), slowly(given)):
        assert [match.height for match in await found_by(Matcher(mine()), shape)] == [500, 501]


async def test_what_is_no_iterable_of_blocks_is_refused() -> None:
    raw = paying(1)[0]
    for wrong in (raw, bytearray(raw), memoryview(raw), raw.hex(), CBlock.deserialize(raw), 5, None):
        with pytest.raises(TypeError, match="an iterable of raw blocks expected"):
            await found_by(Matcher(mine()), wrong)
    for item in (5, raw.hex(), None):
        for shape in ([item], iter([item]), slowly([item])):
            with pytest.raises(TypeError, match="bytes or an object with serialize"):
                await found_by(Matcher(mine()), shape)


async def test_a_matcher_wants_something_to_look_for_and_a_thread() -> None:
    with pytest.raises(errors.ParameterError, match="the watch list is empty"):
        Matcher(WatchList())
    for jobs in (0, -1):
        with pytest.raises(errors.ParameterError, match=f"jobs must be at least 1: {jobs}"):
            Matcher(mine(), jobs=jobs)


@pytest.mark.parametrize("nothing", [[], (), iter([]), slowly([])], ids=["list", "tuple", "iterator", "generator"])
async def test_no_blocks_give_no_matches(nothing: object) -> None:
    matcher = Matcher(mine())
    assert await found_by(matcher, nothing) == []
    assert (matcher.report.blocks, matcher.report.segments, matcher.report.done) == (0, 0, True)


async def test_a_transaction_outside_a_block_is_matched_and_teaches_its_outpoint() -> None:
    matcher = Matcher(mine())
    paid = tx([TxIn(bytes([1]) * 32, 0)], [TxOut(5, b""), TxOut(1_000, MINE)])
    spent = tx([TxIn(txid(paid), 1)], [TxOut(900, b"\x51")])
    assert await matcher.match_tx(spent) == []
    for raw in (paid, CTransaction.deserialize(paid), bytearray(paid)):
        (match,) = await matcher.match_tx(raw)
        assert (match.kind, match.txid, match.index, match.value) == (MatchKind.OUTPUT, txid(paid), 1, 1_000)
        assert (match.block_hash, match.height) == (None, None)
    (match,) = await matcher.match_tx(spent)
    assert (match.kind, match.value, match.script_pubkey) == (MatchKind.INPUT, 1_000, MINE)
    for wrong in (paid[:-1], paid + b"\x00", b""):
        with pytest.raises(errors.FormatError):
            await matcher.match_tx(wrong)


@KINDS
async def test_the_report_follows_the_scan(kind: str, tmp_path: Path) -> None:
    blocks = paying(5)
    matcher = Matcher(mine())
    what, options = source(kind, blocks, tmp_path)
    for expected in range(1, 6):
        assert not matcher.report.done
        if expected == 1:
            matches = matcher.scan(what, **options)  # type: ignore[arg-type]
        assert (await anext(matches)).value == 999 + expected
        assert matcher.report.matches == expected
        assert matcher.report.blocks >= expected
    assert [match async for match in matches] == []
    report = matcher.report
    assert (report.done, report.blocks, report.bytes_scanned) == (True, 5, sum(map(len, blocks)))
    assert report.bytes_total == (report.bytes_scanned if kind in ("list", "files") else None)
    assert report.segments == (0 if kind == "in order" else 1)


# Malformed blocks


def damaged(kind: str, raw: bytes) -> bytes:
    return {
        "truncated": raw[:-1],
        "trailing": raw + b"\x00",
        "header": raw[:79],
        "no transactions": raw[:80] + b"\x00",
        "empty": b"",
        "non-canonical": raw[:80] + b"\xfd\x02\x00" + raw[81:],
    }[kind]


@JOBS
@pytest.mark.parametrize("damage", ["truncated", "trailing", "header", "no transactions", "empty", "non-canonical"])
@pytest.mark.parametrize("kind", ["list", "iterator", "generator", "in order"])
async def test_a_malformed_block_ends_the_scan_of_what_the_caller_made(
    kind: str, damage: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BATCH_BLOCKS", 3)
    blocks = paying(12)
    blocks[7] = damaged(damage, blocks[7])
    given: list[int | None] = []
    what, options = source(kind, blocks, tmp_path)
    matcher = Matcher(mine(), jobs=jobs)
    with pytest.raises(errors.FormatError) as error:
        async for match in matcher.scan(what, **options):  # type: ignore[arg-type]
            given.append(match.value)  # noqa: PERF401  those before the error are wanted
    assert error.value.field
    assert given == ([] if kind == "list" and len(blocks[7]) < 80 else [1_000 + number for number in range(7)])
    assert not matcher.report.done


@JOBS
@pytest.mark.parametrize("damage", ["truncated", "trailing", "no transactions", "non-canonical"])
async def test_a_malformed_block_of_a_file_is_told_at_the_end(
    damage: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BATCH_BLOCKS", 3)
    blocks = paying(12)
    blocks[7] = damaged(damage, blocks[7])
    path = write_records(tmp_path / "blk00000.dat", blocks)
    given: list[int | None] = []
    matcher = Matcher(mine(), jobs=jobs)
    with pytest.raises(errors.IncompleteScanError) as error:
        async for match in matcher.scan(BlockFiles(path)):
            given.append(match.value)  # noqa: PERF401  those before the error are wanted
    assert given == [1_000 + number for number in range(12) if number != 7]
    assert len(error.value.problems) == 1
    offset = sum(8 + len(raw) for raw in blocks[:7]) + 8
    assert error.value.problems[0].startswith(f"{path} at byte {offset}: ")
    assert matcher.report.done
    assert [str(problem) for problem in matcher.report.problems] == list(error.value.problems)


def liars() -> dict[str, bytes]:
    """Blocks that parse and are not what their header commits to."""
    paid = tx([TxIn(b"\x01" * 32, 0, witness=(b"w",))], [TxOut(1_000, MINE)])
    plain = tx([TxIn(b"\x02" * 32, 0)], [TxOut(1, b"\x51")])
    honest = block(bytes(32), [segwit_coinbase(1, [plain, paid]), plain, paid])
    wrong_witness = honest.replace(b"\x01w", b"\x01W")
    three = block(bytes(32), [coinbase(1), tx([TxIn(b"\x04" * 32, 0)], [TxOut(5, MINE)]), plain])
    doubled = three[:80] + b"\x04" + three[81:] + plain  # the same root: CVE-2012-2459
    uncommitted = block(bytes(32), [coinbase(1), paid])
    richer = honest.replace((1_000).to_bytes(8, "little"), (9_000).to_bytes(8, "little"))
    assert len({honest, wrong_witness, richer}) == 3
    return {
        "merkle root": richer,
        "duplicated transactions": doubled,
        "witness commitment": wrong_witness,
        "no commitment": uncommitted,
    }


@pytest.mark.parametrize("which", ["merkle root", "duplicated transactions", "witness commitment", "no commitment"])
async def test_checking_finds_blocks_that_are_not_what_their_header_says(which: str, tmp_path: Path) -> None:
    liar = liars()[which]
    field = "witness commitment" if "commitment" in which else "merkle root"
    assert isinstance(await found_by(Matcher(mine()), [liar]), list)  # it parses
    for what in ([liar], iter([liar]), slowly([liar])):
        with pytest.raises(errors.FormatError) as error:
            await found_by(Matcher(mine(), check=True), what)
        assert error.value.field == field
    honest = block_of(block_hash(liar), 2, [tx([TxIn(b"\x03" * 32, 0)], [TxOut(7, MINE)])])
    matcher = Matcher(mine(), check=True)
    with pytest.raises(errors.IncompleteScanError, match=field):
        await found_by(matcher, BlockFiles(write_records(tmp_path / "blk00000.dat", [liar, honest])))
    assert (matcher.report.matches, matcher.report.blocks) == (1, 1)


async def test_checking_finds_fault_with_no_honest_block() -> None:
    interest, blocks = random_chain(9)
    matches = await found_by(Matcher(interest.watch(), check=True, jobs=2), list(blocks))
    assert [exact(match) for match in matches] == interest.expected(blocks)


# The event loop

LAG_S = 0.02  # at the 99th percentile


async def lags(delays: list[float], over: asyncio.Event) -> None:
    """How much later than asked a sleeper wakes, in seconds."""
    while not over.is_set():
        asked = time.perf_counter() + 0.001
        await asyncio.sleep(0.001)
        delays.append(time.perf_counter() - asked)


async def lag_while(work: Callable[[], Awaitable[object]]) -> float:
    """99th percentile of the loop's lag during `work`, seconds; the least of three, for a machine that has other work too."""
    least = 1.0
    gc.collect()
    gc.freeze()  # or the tests' own objects are walked again and again
    for _ in range(3):
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
    """On a machine so busy that any one thread of Python makes the loop late, no more than half as late again."""
    lag = await lag_while(work)
    if lag >= LAG_S:
        any_thread = await lag_while(lambda: asyncio.to_thread(sum, (number % 7 for number in range(1_000_000))))
        assert lag < max(LAG_S, 1.5 * any_thread)


@pytest.mark.vectors
@pytest.mark.usefixtures("threads_of_this_kernel")
@pytest.mark.parametrize(("kind", "jobs"), [("list", 1), ("list", 2), ("generator", 1), ("generator", 2), ("files", 2), ("bitcoinlib", 1)])
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


# Leaving early


class Counting:
    """Blocks as a plain or asynchronous iterator that knows how many were taken from it."""

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
async def test_leaving_after_one_match_leaves_nothing_behind(kind: str, jobs: int, tmp_path: Path) -> None:
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
    assert len(list(watch.outpoints())) == known  # nobody teaches it any more
    assert len(await found_by(Matcher(watch), blocks)) == 40


@JOBS
async def test_leaving_without_closing_is_cleaned_up_by_the_loop(jobs: int) -> None:
    async for _ in Matcher(mine(), jobs=jobs).scan(iter(paying(40))):
        break
    gc.collect()
    await asyncio.sleep(0)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


@JOBS
@KINDS
async def test_an_error_of_the_consumer_leaves_nothing_behind(kind: str, jobs: int, tmp_path: Path) -> None:
    what, options = source(kind, paying(40), tmp_path)
    with pytest.raises(ZeroDivisionError):
        async with aclosing(Matcher(mine(), jobs=jobs).scan(what, **options)) as matches:  # type: ignore[arg-type]
            async for _ in matches:
                raise ZeroDivisionError
    assert asyncio.all_tasks() == {asyncio.current_task()}


@JOBS
@KINDS
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 13, 40])
async def test_a_cancelled_scan_leaves_nothing_behind(kind: str, jobs: int, steps: int, tmp_path: Path) -> None:
    blocks = paying(40)
    watch = mine()
    what, options = source(kind, blocks, tmp_path)
    task = asyncio.create_task(found_by(Matcher(watch, jobs=jobs), what, **options))
    for _ in range(steps):
        await asyncio.sleep(0 if steps < 10 else 0.0003)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):  # it may have been done
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not [name for name in threads() if "read" not in name]
    assert len(await found_by(Matcher(watch, jobs=jobs), blocks)) == 40


@JOBS
async def test_a_scan_cancelled_at_any_moment_leaves_nothing_behind(jobs: int) -> None:
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
    """A list whose third block cannot be read until the gate opens."""

    def __init__(self, blocks: list[bytes]) -> None:
        super().__init__(blocks)
        self.reached, self.open = threading.Event(), threading.Event()

    def read(self, ref: BlockRef) -> bytes:
        if ref.file == 3:
            self.reached.set()
            assert self.open.wait(10)
        return super().read(ref)


@JOBS
async def test_cancelling_waits_for_the_threads_that_scan_but_not_for_what_is_queued(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BATCH_BLOCKS", 1)
    gate = Gate(paying(40))
    watch = mine()
    matcher = Matcher(watch, jobs=jobs)
    task = asyncio.create_task(found_by(matcher, gate))
    assert await asyncio.to_thread(gate.reached.wait, 10)
    for _ in range(2):  # impatience changes nothing
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()  # a thread still scans
    known = len(list(watch.outpoints()))
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(list(watch.outpoints())) == known
    assert matcher.report.blocks <= 3


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_source_that_never_gives_another_block_can_be_left(slow: bool, in_order: bool) -> None:
    """The thread that waits for a plain one ends when its next() does."""
    blocks = paying(3)
    released = threading.Event()

    def blocking() -> Iterator[bytes]:
        yield from blocks
        assert released.wait(20)

    async def waiting() -> AsyncIterator[bytes]:
        for raw in blocks:
            yield raw
        await asyncio.Event().wait()

    given: list[Match] = []
    try:
        with pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(0.2),
                aclosing(Matcher(mine()).scan(waiting() if slow else blocking(), in_order=in_order)) as matches,
            ):
                async for match in matches:
                    given.append(match)  # noqa: PERF401  those before the timeout are wanted
        assert len(given) == 3
        assert threads() == ([] if slow else ["spvfilter-next"])
    finally:
        released.set()


@JOBS
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("slow", [False, True])
async def test_an_error_of_the_source_comes_after_the_matches_before_it(slow: bool, in_order: bool, jobs: int) -> None:
    counting = Counting(paying(20), fails_at=9)
    given: list[int | None] = []
    matcher = Matcher(mine(), jobs=jobs)
    with pytest.raises(RuntimeError, match="the source is broken"):
        async for match in matcher.scan(counting.take_slowly() if slow else counting.take(), in_order=in_order):
            given.append(match.value)  # noqa: PERF401  those before the error are wanted
    assert given == [1_000 + number for number in range(9)]
    assert not matcher.report.done


@JOBS
@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("slow", [False, True])
async def test_a_slow_consumer_holds_the_source_back(slow: bool, in_order: bool, jobs: int) -> None:
    counting = Counting(paying(40))
    done = 0
    what = counting.take_slowly() if slow else counting.take()
    async with aclosing(Matcher(mine(), jobs=jobs).scan(what, in_order=in_order)) as matches:
        async for _ in matches:
            done += 1
            if done % 5 == 1:
                await asyncio.sleep(0.01)  # whatever can run ahead does
            assert counting.taken <= done + jobs + 3
    assert counting.taken == done == 40


async def test_memory_does_not_grow_with_the_length_of_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """In declared order nothing is kept but what was learned; else a few hundred bytes for each header."""
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

    monkeypatch.setattr("spvfilter.aio.sources._SPOOL_IN_MEMORY", 100_000)
    for in_order, each in ((True, 50), (False, 900)):
        short, long = await peak(20, in_order), await peak(220, in_order)
        assert short < 2_000_000
        assert long - short < 200 * each + 100_000


async def test_scans_may_follow_one_another_on_one_matcher() -> None:
    blocks = paying(6)
    matcher = Matcher(mine(), jobs=2)
    first = await found_by(matcher, blocks)
    report = matcher.report
    assert await found_by(matcher, blocks[::-1]) == first
    assert matcher.report is not report
    assert matcher.report == report


async def test_records_of_the_same_blocks_are_the_same_matches(tmp_path: Path) -> None:
    blocks = paying(6)
    (tmp_path / "blk00000.dat").write_bytes(b"".join(map(record, blocks)))
    assert await found_by(Matcher(mine()), BlockFiles(tmp_path)) == await found_by(Matcher(mine()), blocks)
